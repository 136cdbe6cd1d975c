/* Simulated verbs: devices, ports, events, memory. */
#include "tests/support/sim_verbs.h"
#include "tests/support/sim_inside.h"
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* splitmix64 */
uint64_t sim_random(struct sim_verbs *sim)
{
	uint64_t z = sim->random += UINT64_C(0x9e3779b97f4a7c15);
	z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
	return z ^ (z >> 31);
}

int sim_fails(struct sim_verbs *sim, enum sim_call call)
{
	sim->calls[call]++;
	if (sim->fail_in[call] == 0 || --sim->fail_in[call] > 0)
		return 0;
	return sim->fail_with[call];
}

uint64_t sim_now(const struct sim_verbs *sim)
{
	return sim->clock ? sim->clock->now_ns(sim->clock->user) : neap_now(sim->reactor);
}

#define BLOCK_BYTES ((sizeof(struct sim_block) + 15) / 16 * 16)

static void *allocate(struct sim_verbs *sim, const struct sim_process *process, size_t bytes, bool counts)
{
	struct sim_block *block = calloc(1, BLOCK_BYTES + bytes);
	assert(block);
	*block = (struct sim_block){.next = sim->blocks, .process = process, .counts = counts};
	if (sim->blocks)
		sim->blocks->previous = block;
	sim->blocks = block;
	sim->objects += counts;
	return (char *)block + BLOCK_BYTES;
}

void *sim_new(const struct neap_verbs_context *context, size_t bytes)
{
	return allocate(context->sim, context->process, bytes, true);
}

void *sim_room(const struct neap_verbs_context *context, size_t bytes)
{
	return allocate(context->sim, context->process, bytes, false);
}

void sim_delete(struct sim_verbs *sim, void *memory)
{
	struct sim_block *block = (struct sim_block *)(void *)((char *)memory - BLOCK_BYTES);
	if (block->next)
		block->next->previous = block->previous;
	*(block->previous ? &block->previous->next : &sim->blocks) = block->next;
	sim->objects -= block->counts;
	free(block);
}

void sim_process_abandon(struct sim_process *process)
{
	assert(process->dead);
	for (struct sim_block *block = process->sim->blocks; block; block = block->next)
		if (block->process == process) {
			process->sim->objects -= block->counts;
			block->counts = false;
		}
}

/* --- devices */

static bool has(const struct sim_process *process, const struct sim_device *device)
{
	return device->present && !process->dead && process->devices >> (device - process->sim->devices) & 1;
}

static int list(void *user, char (*names)[NEAP_TOPOLOGY_NAME_SIZE], uint32_t capacity, uint32_t *count_p)
{
	const struct sim_process *process = user;
	struct sim_verbs *sim = process->sim;
	uint32_t count = 0;
	int error = sim_fails(sim, SIM_LIST);
	for (uint32_t i = 0; i < sim->device_count && count < capacity; i++)
		if (has(process, &sim->devices[i]))
			memcpy(names[count++], sim->devices[i].name, sizeof names[0]);
	*count_p = count;
	return error;
}

static struct sim_device *find(const struct sim_process *process, const char *name)
{
	struct sim_verbs *sim = process->sim;
	for (uint32_t i = 0; i < sim->device_count; i++)
		if (has(process, &sim->devices[i]) && strcmp(sim->devices[i].name, name) == 0)
			return &sim->devices[i];
	return NULL;
}

static int open_device(void *user, const char *name, struct neap_verbs_context **context_p)
{
	struct sim_process *process = user;
	struct sim_verbs *sim = process->sim;
	struct sim_device *device = find(process, name);
	int error = sim_fails(sim, SIM_OPEN);
	*context_p = NULL;
	if (error || !device || device->forbidden)
		return error ? error : device ? -EACCES : -ENODEV;
	struct neap_verbs_context *context = allocate(sim, process, sizeof *context, true);
	*context = (struct neap_verbs_context){.next = device->contexts, .sim = sim, .process = process, .device = device};
	sim_signal_begin(&context->signal, sim, process);
	device->contexts = context;
	*context_p = context;
	return 0;
}

static int close_device(struct neap_verbs_context *context)
{
	struct neap_verbs_context **at = &context->device->contexts;
	if (context->users)
		return -EBUSY;
	int error = sim_fails(context->sim, SIM_CLOSE);
	if (error)
		return error;
	while (*at && *at != context)
		at = &(*at)->next;
	if (*at) /* its process lives */
		*at = context->next;
	sim_signal_end(&context->signal, context->sim);
	sim_delete(context->sim, context);
	return 0;
}

static int event_fd(struct neap_verbs_context *context)
{
	return context->signal.fd;
}

static int next_event(struct neap_verbs_context *context, struct neap_verbs_event *event_p)
{
	if (context->event_count == 0) {
		sim_signal_take(&context->signal);
		return context->lost ? -EIO : 0;
	}
	*event_p = context->events[context->event_head++ % SIM_EVENTS_MAX];
	context->event_count--;
	return 1;
}

static int query_device(struct neap_verbs_context *context, struct neap_verbs_device_limits *limits_p)
{
	int error = sim_fails(context->sim, SIM_QUERY_DEVICE);
	*limits_p = context->device->limits;
	return context->lost ? -EIO : error;
}

static int query_port(struct neap_verbs_context *context, uint32_t port, struct neap_verbs_port *port_p)
{
	int error = sim_fails(context->sim, SIM_QUERY_PORT);
	if (port == 0 || port > context->device->limits.port_count)
		return -EINVAL;
	*port_p = context->device->port;
	return context->lost ? -EIO : error;
}

static int query_gids(struct neap_verbs_context *context, uint32_t port, struct neap_gid_entry entries[NEAP_GIDS_MAX], uint32_t *count_p)
{
	(void)port;
	int error = sim_fails(context->sim, SIM_QUERY_GIDS);
	*count_p = context->device->gid_count;
	memcpy(entries, context->device->gids, *count_p * sizeof entries[0]);
	return context->lost ? -EIO : error;
}

/* --- memory */

static int allocate_pd(struct neap_verbs_context *context, struct neap_verbs_pd **pd_p)
{
	int error = context->lost ? -EIO : sim_fails(context->sim, SIM_ALLOCATE_PD);
	*pd_p = NULL;
	if (error)
		return error;
	*pd_p = sim_new(context, sizeof **pd_p);
	(*pd_p)->context = context;
	context->pd = *pd_p;
	context->users++;
	return 0;
}

static int free_pd(struct neap_verbs_pd *pd)
{
	if (pd->users)
		return -EBUSY;
	int error = sim_fails(pd->context->sim, SIM_FREE_PD);
	if (error)
		return error;
	pd->context->users--;
	pd->context->pd = NULL;
	sim_mistake_forget(pd);
	sim_delete(pd->context->sim, pd);
	return 0;
}

/* What the kernel and the device check, in that order. */
static int may_register(struct sim_device *device, uint64_t length, unsigned access)
{
	bool remote_write = access & (NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_ATOMIC);
	if (length == 0 || (remote_write && !(access & NEAP_VERBS_LOCAL_WRITE)))
		return -EINVAL;
	if (device->locked_bytes + length > device->locked_bytes_max || device->regions >= device->limits.mr_max)
		return -ENOMEM;
	return length > device->limits.mr_size_max ? -EINVAL : 0;
}

static int register_memory(struct neap_verbs_pd *pd, void *address, uint64_t length, unsigned access, struct neap_verbs_mr **mr_p,
                           struct neap_verbs_keys *keys_p)
{
	struct sim_verbs *sim = pd->context->sim;
	struct sim_device *device = pd->context->device;
	int error = sim_fails(sim, SIM_REGISTER);
	if (!error)
		error = pd->context->lost ? -EIO : may_register(device, length, access);
	*mr_p = NULL;
	if (error)
		return error;
	struct neap_verbs_mr *mr = sim_new(pd->context, sizeof *mr);
	uint32_t key = sim->next_key += 0x101; /* lkey and rkey differ: they are not the same thing */
	*mr = (struct neap_verbs_mr){.next = pd->regions, .pd = pd, .address = (uint64_t)(uintptr_t)address, .length = length, .access = access,
	                             .keys = {key, key ^ 0x80000000u}};
	pd->regions = mr;
	pd->users++;
	device->regions++;
	device->locked_bytes += length;
	sim->access_seen = access;
	*mr_p = mr;
	*keys_p = mr->keys;
	sim_mistake_rekey(mr, keys_p);
	return 0;
}

#define REFUSALS_MAX 10u /* those who asked give up */

static void leave_ghost(const struct neap_verbs_mr *mr)
{
	struct neap_verbs_mr *ghost = sim_room(mr->pd->context, sizeof *ghost);
	*ghost = *mr;
	ghost->ghost = true;
	ghost->next = mr->pd->ghosts;
	mr->pd->ghosts = ghost;
}

static int deregister_memory(struct neap_verbs_mr *mr)
{
	struct neap_verbs_pd *pd = mr->pd;
	struct neap_verbs_mr **at = &pd->regions;
	int error = sim_fails(pd->context->sim, SIM_DEREGISTER);
	if (!error && pd->context->device->keeps && !pd->context->lost)
		error = -EIO;
	if (error && ++mr->refusals >= REFUSALS_MAX)
		pd->context->process->spoiled = true;
	if (error)
		return error;
	if (pd->context->sim->lies.keys_stay && *at)
		leave_ghost(mr);
	sim_network_settle(pd->context->sim, mr, NULL);
	while (*at && *at != mr)
		at = &(*at)->next;
	if (*at && sim_mistake_keep_region(mr))
		return 0;
	pd->users--;
	if (*at) { /* its process lives */
		*at = mr->next;
		pd->context->device->regions--;
		pd->context->device->locked_bytes -= mr->length;
	}
	sim_delete(pd->context->sim, mr);
	return 0;
}

static struct neap_verbs_mr *find_key(struct neap_verbs_mr *mr, bool remote, uint32_t key)
{
	while (mr && (remote ? mr->keys.rkey : mr->keys.lkey) != key)
		mr = mr->next;
	return mr;
}

struct neap_verbs_mr *sim_region(const struct neap_verbs_pd *pd, bool remote, uint32_t key, uint64_t address, uint64_t length,
                                 unsigned access)
{
	struct neap_verbs_mr *mr = find_key(pd->regions, remote, key);
	if (mr && mr->ghost && !remote)
		mr = NULL;
	if (!mr && remote)
		mr = find_key(pd->ghosts, remote, key);
	return mr && address >= mr->address && length <= mr->length && address - mr->address <= mr->length - length &&
	       (mr->access & access) == access ? mr : NULL;
}

/* --- what happens to devices */

void sim_verbs_event(struct sim_device *device, struct neap_verbs_event event)
{
	for (struct neap_verbs_context *context = device->contexts; context; context = context->next) {
		assert(context->event_count < SIM_EVENTS_MAX);
		context->events[(context->event_head + context->event_count++) % SIM_EVENTS_MAX] = event;
		sim_signal_raise(&context->signal);
	}
}

void sim_verbs_set_port(struct sim_verbs *sim, struct sim_device *device, enum neap_port_state status)
{
	enum neap_verbs_event_kind kind = status == NEAP_PORT_ACTIVE ? NEAP_VERBS_PORT_ACTIVE : NEAP_VERBS_PORT_ERROR;
	device->port.status = status;
	sim_verbs_event(device, (struct neap_verbs_event){.kind = kind, .port = 1});
	sim_network_wake(sim);
}

void sim_verbs_vanish(struct sim_verbs *sim, struct sim_device *device)
{
	device->present = false;
	for (struct neap_verbs_context *context = device->contexts; context; context = context->next) {
		context->lost = true;
		sim_signal_raise(&context->signal);
	}
	for (struct neap_verbs_qp *qp = sim->qps; qp; qp = qp->next)
		if (qp->pd->context->device == device) {
			sim_strays_leave(qp);
			sim_qp_fails(qp);
		}
}

void sim_verbs_lose(struct sim_verbs *sim, struct sim_device *device)
{
	sim_verbs_vanish(sim, device);
	sim_verbs_event(device, (struct neap_verbs_event){.kind = NEAP_VERBS_DEVICE_FATAL});
}

void sim_verbs_regain(struct sim_device *device)
{
	device->present = true;
}

int sim_verbs_force(struct sim_device *device)
{
	int count = 0;
	for (struct neap_verbs_context *context = device->contexts; context; context = context->next)
		for (; context->pd && context->pd->regions; count++)
			{
			int error = deregister_memory(context->pd->regions);
			assert(error == 0);
			(void)error;
		}
	return count;
}

void sim_verbs_fail(struct sim_verbs *sim, enum sim_call call, uint32_t nth, int error)
{
	sim->fail_in[call] = nth;
	sim->fail_with[call] = error;
}

/* --- life */

static void begin(struct sim_verbs *sim, uint64_t seed)
{
	sim->random = seed;
	sim->latency_max_ns = UINT64_C(50000);
	sim->next_key = 0x1000;
	sim->next_qp = 16;
	sim->ops = sim_queue_ops;
	sim->ops.list = list;
	sim->ops.open = open_device;
	sim->ops.close = close_device;
	sim->ops.event_fd = event_fd;
	sim->ops.next_event = next_event;
	sim->ops.query_device = query_device;
	sim->ops.query_port = query_port;
	sim->ops.query_gids = query_gids;
	sim->ops.allocate_pd = allocate_pd;
	sim->ops.free_pd = free_pd;
	sim->ops.register_memory = register_memory;
	sim->ops.deregister_memory = deregister_memory;
	sim_process_begin(&sim->process, sim, UINT32_MAX, NULL, NULL);
	sim->verbs = sim->process.verbs;
}

void sim_verbs_begin(struct sim_verbs *sim, struct neap_reactor *reactor, uint64_t seed)
{
	memset(sim, 0, sizeof *sim);
	sim->reactor = reactor;
	begin(sim, seed);
}

void sim_verbs_begin_with(struct sim_verbs *sim, const struct sim_verbs_clock *clock, uint64_t seed)
{
	memset(sim, 0, sizeof *sim);
	sim->clock = clock;
	begin(sim, seed);
}

void sim_verbs_end(struct sim_verbs *sim)
{
	if (sim->reactor)
		neap_timer_cancel(sim->reactor, &sim->timer);
	sim_strays_end(sim);
	if (sim->objects)
		fprintf(stderr, "%u objects of verbs were left\n", sim->objects);
	if (sim->overruns && !sim->overruns_allowed)
		fprintf(stderr, "%u completions did not fit their CQ\n", sim->overruns);
	assert(sim->objects == 0 && (sim->overruns == 0 || sim->overruns_allowed));
	for (struct sim_block *block; (block = sim->blocks);) {
		sim->blocks = block->next;
		free(block);
	}
}

struct sim_device *sim_verbs_add(struct sim_verbs *sim, const char *name)
{
	assert(sim->device_count < SIM_DEVICES_MAX);
	uint8_t host = (uint8_t)(sim->device_count + 1);
	struct sim_device *device = &sim->devices[sim->device_count++];
	*device = (struct sim_device){
		.present = true,
		.limits = {.mr_size_max = UINT64_C(1) << 40, .mr_max = 1u << 20, .qp_max = 1024, .cq_max = 256, .cqe_max = 4096, .wr_max = 1024,
	               .sge_max = 4, .read_initiator_max = 16, .read_target_max = 16, .reads_doubtful = true, .port_count = 1},
		.port = {.status = NEAP_PORT_ACTIVE, .ethernet = true, .mtu_bytes = SIM_MTU_BYTES, .gid_count = 16},
		.locked_bytes_max = UINT64_MAX,
		.gids = {{.index = 0, .gid = {0xfe, 0x80, [15] = host}, .type = NEAP_GID_ROCE_V2},
	             {.index = 1, .gid = {[10] = 0xff, [11] = 0xff, 10, 77, 0, host}, .type = NEAP_GID_ROCE_V2}},
		.gid_count = 2,
	};
	(void)snprintf(device->name, sizeof device->name, "%s", name);
	for (uint32_t i = 0; i < device->gid_count; i++)
		(void)snprintf(device->gids[i].netdev, sizeof device->gids[i].netdev, "nic%u", host - 1u);
	return device;
}
