/* Regions of memory on devices. Each region does one thing at a time: `choose` looks for the next piece to take off a device that should
 * not have it, or to bring to one that should, and the helper does that. Whatever happens meanwhile (a device fails, one comes back, a
 * piece is to have a new key, the region is released) changes what `choose` finds next, and nothing else. */
#include "transports/rdma/rdma_memory.h"
#include "reactor/pool.h"
#include "transports/rdma/rdma_region_fsm.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define RETRY_NS UINT64_C(1000000000)
#define SWEEP_AT_ONCE 128u

struct piece {
	struct neap_verbs_mr *mr; /* NULL: not registered there */
	struct neap_verbs_keys keys;
	bool renewing; /* to be taken off, because somebody may still have its key */
	bool kept;     /* the device did not let go of it once: nobody knows what that reaches */
};

struct region {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rdma_memory *memory;
	uint64_t address, length, piece_bytes;
	unsigned access;
	uint32_t piece_count;
	struct piece *pieces; /* [piece * rails + rail] */
	uint64_t refused;     /* rails that would not take it when they came back, by bit */
	bool ending, told, slabs;
	struct neap_rdma_renewal *renewals; /* that wait for a piece to be off all devices */
	int outcome, release_outcome; /* what `done` and `released` are told at the end */
	uint32_t tries;               /* to deregister the present piece */
	neap_rdma_registered *done;
	void *done_user;
	neap_rdma_released *released;
	void *released_user;
	char why[NEAP_RDMA_WHY_SIZE];

	/* the helper's while it is under way */
	struct neap_helper_job job;
	uint32_t rail, piece;
	bool registers;
	struct neap_verbs_pd *pd;
	struct piece made;
	int error;
};

struct neap_rdma_memory {
	struct neap_reactor *reactor;
	const struct neap_verbs *verbs;
	struct neap_helper *helper;
	struct neap_rdma_devices *devices;
	struct neap_rdma_memory_options options;
	struct neap_reactor_class *class_;
	struct neap_pool regions;
	uint32_t rails;
	struct neap_ready sweep; /* tells regions of devices, a few at a time */
	uint32_t sweep_next;
	bool closing, swept_again; /* swept_again: something changed while it was under way */
	void (*closed)(void *user);
	void *closed_user;
	struct neap_reap reap;
};

static struct region *region_of(const struct neap_machine *machine)
{
	return (struct region *)(uintptr_t)((const char *)machine - offsetof(struct region, machine));
}

static struct region *region_of_job(struct neap_helper_job *job)
{
	return (struct region *)(void *)((char *)job - offsetof(struct region, job));
}

static struct piece *piece_at(const struct region *region, uint32_t piece, uint32_t rail)
{
	return &region->pieces[(size_t)piece * region->memory->rails + rail];
}

static struct neap_rdma_device *device_at(const struct neap_rdma_memory *memory, uint32_t rail)
{
	return neap_rdma_devices_at(memory->devices, rail);
}

static uint64_t piece_length(const struct region *region, uint32_t piece)
{
	uint64_t from = piece * region->piece_bytes;
	return region->length - from < region->piece_bytes ? region->length - from : region->piece_bytes;
}

/* --- what is to be done next */

static bool is_open(const struct neap_rdma_device *device)
{
	return device->handle.context && !device->letting_go;
}

/* Whether a device that came later can take the pieces as they are cut. */
static bool wanted(const struct region *region, uint32_t rail)
{
	const struct neap_rdma_device *device = device_at(region->memory, rail);
	return !region->ending && is_open(device) && !(region->refused >> rail & 1) &&
	       device->handle.limits.mr_size_max >= (region->piece_count > 1 ? region->piece_bytes : region->length);
}

/* The first piece of a rail that is to be taken off it, or brought to it. */
static bool find_piece(const struct region *region, uint32_t rail, bool registers, uint32_t *piece_p)
{
	bool stays = wanted(region, rail);
	if (registers && !stays)
		return false;
	for (uint32_t piece = 0; piece < region->piece_count; piece++) {
		const struct piece *at = piece_at(region, piece, rail);
		if (registers ? !at->mr : at->mr && (!stays || at->renewing)) {
			*piece_p = piece;
			return true;
		}
	}
	return false;
}

/* Taking off goes first: a device waits for it. */
static bool choose(const struct region *region, uint32_t *rail_p, uint32_t *piece_p, bool *registers_p)
{
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t rail = 0; rail < region->memory->rails; rail++) {
			*rail_p = rail;
			*registers_p = pass == 1;
			if (find_piece(region, rail, *registers_p, piece_p))
				return true;
		}
	return false;
}

static bool has_work(const struct region *region)
{
	uint32_t rail, piece;
	bool registers;
	return region->ending || choose(region, &rail, &piece, &registers);
}

/* --- on the helper */

static void run_piece(struct neap_helper_job *job)
{
	struct region *region = region_of_job(job);
	const struct neap_verbs_ops *ops = region->memory->verbs->ops;
	void *address = (void *)(uintptr_t)(region->address + region->piece * region->piece_bytes);
	if (region->registers)
		region->error = ops->register_memory(region->pd, address, piece_length(region, region->piece), region->access, &region->made.mr,
		                                     &region->made.keys);
	else
		region->error = ops->deregister_memory(region->made.mr);
}

/* --- events from facts */

static uint8_t after(const struct region *region)
{
	uint32_t rail, piece;
	bool registers;
	if (choose(region, &rail, &piece, &registers))
		return rdma_region_on_MORE;
	return region->ending ? rdma_region_on_FREED : rdma_region_on_SETTLED;
}

static const char *error_text(const struct region *region)
{
	const char *text = strerrordesc_np(-region->error);
	return text ? text : "unknown error";
}

/* A device that keeps a piece in spite of all is left alone with it. */
static uint8_t not_deregistered(struct region *region)
{
	struct neap_rdma_device *device = device_at(region->memory, region->rail);
	snprintf(region->why, sizeof region->why, "%s: failed, and does not let go of memory: %s", device->name, error_text(region));
	if (++region->tries < NEAP_RDMA_RELEASE_TRIES)
		return rdma_region_on_BLOCKED;
	neap_log(region->memory->reactor, NEAP_LOG_ERROR, "rdma", "%s: does not let go of memory at %#llx: %s", device->name,
	         (unsigned long long)region->address, error_text(region));
	region->release_outcome = NEAP_EBUSY;
	region->tries = 0;
	*piece_at(region, region->piece, region->rail) = (struct piece){.kept = true};
	neap_rdma_device_unuse(device);
	return after(region);
}

static uint8_t deregistered(struct region *region)
{
	struct piece *piece = piece_at(region, region->piece, region->rail);
	*piece = (struct piece){.kept = piece->kept};
	region->tries = 0;
	neap_rdma_device_unuse(device_at(region->memory, region->rail));
	return after(region);
}

static uint8_t registered(struct region *region)
{
	*piece_at(region, region->piece, region->rail) = region->made;
	return after(region);
}

static void explain_refusal(struct region *region, const struct neap_rdma_device *device)
{
	char hint[96];
	if (region->error == -EFAULT)
		snprintf(hint, sizeof hint, "is all of it mapped, and writable?");
	else
		snprintf(hint, sizeof hint, "ulimit -l, or the device's limits: max_mr %u", device->handle.limits.mr_max);
	snprintf(region->why, sizeof region->why, "%s: %llu bytes of memory cannot be registered: %s (%s)", device->name,
	         (unsigned long long)piece_length(region, region->piece), error_text(region), hint);
}

static uint8_t not_registered(struct region *region)
{
	struct neap_rdma_device *device = device_at(region->memory, region->rail);
	explain_refusal(region, device);
	bool excused = region->ending || !is_open(device);
	neap_rdma_device_unuse(device);
	return excused ? after(region) : rdma_region_on_REFUSED;
}

static void piece_done(struct neap_helper_job *job)
{
	struct region *region = region_of_job(job);
	uint8_t event;
	if (region->registers)
		event = region->error ? not_registered(region) : registered(region);
	else
		event = region->error ? not_deregistered(region) : deregistered(region);
	neap_step(&region->machine, event, (uint64_t)-(int64_t)region->error);
}

/* --- renewals */

static bool is_renewing(const struct region *region, uint32_t piece)
{
	for (uint32_t rail = 0; rail < region->memory->rails; rail++)
		if (piece_at(region, piece, rail)->renewing)
			return true;
	return false;
}

static int renewal_outcome(const struct region *region, uint32_t piece)
{
	for (uint32_t rail = 0; rail < region->memory->rails; rail++)
		if (piece_at(region, piece, rail)->kept)
			return NEAP_EBUSY;
	return NEAP_OK;
}

/* Tells those whose piece is off all devices. */
static void answer_renewals(struct region *region)
{
	struct neap_rdma_renewal **at = &region->renewals, *due = NULL;
	while (*at) {
		struct neap_rdma_renewal *renewal = *at;
		if (is_renewing(region, renewal->piece)) {
			at = &renewal->next;
			continue;
		}
		*at = renewal->next;
		renewal->next = due;
		due = renewal;
	}
	for (struct neap_rdma_renewal *next; due; due = next) {
		next = due->next;
		due->done(due, renewal_outcome(region, due->piece));
	}
}

/* --- actions */

static void do_step(struct neap_machine *machine, uint64_t argument)
{
	struct region *region = region_of(machine);
	uint32_t rail = region->rail, piece = region->piece;
	(void)argument;
	answer_renewals(region);
	if (!choose(region, &region->rail, &region->piece, &region->registers)) {
		(void)neap_post_first(machine, after(region), 0);
		return;
	}
	if (region->rail != rail || region->piece != piece)
		region->tries = 0;
	struct neap_rdma_device *device = device_at(region->memory, region->rail);
	region->pd = device->handle.pd;
	region->made = *piece_at(region, region->piece, region->rail);
	region->made.renewing = false;
	if (region->registers)
		neap_rdma_device_use(device); /* a use for each piece */
	neap_helper_submit(region->memory->helper, &region->job);
}

/* Of the one that the kernel is at; thousands may wait behind it. */
static void do_complain(struct neap_machine *machine, uint64_t argument)
{
	struct region *region = region_of(machine);
	uint64_t ns = neap_helper_runs_ns(region->memory->helper, &region->job);
	(void)argument;
	if (ns < region->memory->options.slow_ns)
		return;
	neap_log(region->memory->reactor, NEAP_LOG_WARNING, "rdma", "%s: the kernel has been at %llu bytes of memory for %llu ms; waiting on",
	         device_at(region->memory, region->rail)->name, (unsigned long long)piece_length(region, region->piece),
	         (unsigned long long)(ns / 1000000));
}

/* What changed in between is done at once. */
static void go_on(struct region *region)
{
	if (has_work(region))
		(void)neap_post_first(&region->machine, rdma_region_on_RAILS, 0);
}

static void do_settle(struct neap_machine *machine, uint64_t argument)
{
	struct region *region = region_of(machine);
	const struct neap_rdma_memory_options *options = &region->memory->options;
	(void)argument;
	answer_renewals(region);
	if (options->keys_changed && !region->slabs)
		options->keys_changed(options->user, region->access);
	go_on(region);
}

static void do_tell(struct neap_machine *machine, uint64_t argument)
{
	struct region *region = region_of(machine);
	(void)argument;
	region->told = true;
	region->done(region->done_user, NEAP_OK, "");
	answer_renewals(region);
	go_on(region);
}

static void do_end(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	region_of(machine)->ending = true;
}

static void do_unwind(struct neap_machine *machine, uint64_t argument)
{
	do_end(machine, argument);
	do_step(machine, argument);
}

static void do_roll_back(struct neap_machine *machine, uint64_t argument)
{
	region_of(machine)->outcome = NEAP_ECONTEXT;
	do_unwind(machine, argument);
}

/* The other devices have it: this one goes without, until it comes back once more. */
static void do_leave_out(struct neap_machine *machine, uint64_t argument)
{
	struct region *region = region_of(machine);
	region->refused |= UINT64_C(1) << region->rail;
	neap_log(region->memory->reactor, NEAP_LOG_WARNING, "rdma", "%s; the device goes without it", region->why);
	do_step(machine, argument);
}

static void do_lament(struct neap_machine *machine, uint64_t argument)
{
	struct region *region = region_of(machine);
	(void)argument;
	if (region->tries == 1)
		neap_log(region->memory->reactor, NEAP_LOG_WARNING, "rdma", "%s: memory at %#llx cannot be deregistered yet: %s",
		         device_at(region->memory, region->rail)->name, (unsigned long long)region->address, error_text(region));
}

static size_t pieces_bytes(const struct region *region)
{
	return (size_t)region->piece_count * region->memory->rails * sizeof *region->pieces;
}

static void finish_when_empty(struct neap_rdma_memory *memory)
{
	if (memory->closing && memory->regions.used == 0)
		neap_ready_again(memory->reactor, &memory->sweep);
}

/* The slot may serve another range from here on, so all that is told is kept aside. */
static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	answer_renewals(region_of(machine)); /* all of them: nothing is left on any device */
	struct region *region = region_of(machine), last = *region;
	struct neap_rdma_memory *memory = region->memory;
	neap_release(memory->reactor, region->pieces, pieces_bytes(region));
	neap_machine_end(machine);
	neap_pool_give(&memory->regions, region);
	finish_when_empty(memory);
	if (!last.told)
		last.done(last.done_user, last.outcome, last.outcome == NEAP_ECANCELED ? "released while it was being registered" : last.why);
	if (last.released)
		last.released(last.released_user, last.release_outcome);
}

static neap_action_func *const actions[] = {
	[rdma_region_do_step] = do_step,
	[rdma_region_do_complain] = do_complain,
	[rdma_region_do_tell] = do_tell,
	[rdma_region_do_settle] = do_settle,
	[rdma_region_do_roll_back] = do_roll_back,
	[rdma_region_do_leave_out] = do_leave_out,
	[rdma_region_do_lament] = do_lament,
	[rdma_region_do_end] = do_end,
	[rdma_region_do_unwind] = do_unwind,
	[rdma_region_do_bury] = do_bury,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rdma_memory_options *options = &region_of(machine)->memory->options;
	return now_ns + (timeout_class == rdma_region_timeout_RETRY ? options->retry_ns : options->slow_ns);
}

/* Builds with assertions look after each transition. */
static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct region *region = region_of(machine);
	(void)from;
	if (machine->state == rdma_region_REGISTERING && region->told)
		return "told before all devices had it";
	if (machine->state == rdma_region_STUCK && region->registers)
		return "stuck with what it does not have";
	return NULL;
}

/* It keeps what it has: memory that devices may reach is not given back. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	struct region *region = region_of(machine);
	(void)event;
	neap_log(region->memory->reactor, NEAP_LOG_ERROR, "rdma", "memory at %#llx: %s", (unsigned long long)region->address,
	         neap_error_text(NEAP_EINTERNAL));
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_rdma_region,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct region),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- all regions: told of devices, and of the end, a few at a time */

static void reap(struct neap_reap *reap)
{
	struct neap_rdma_memory *memory = (struct neap_rdma_memory *)(void *)((char *)reap - offsetof(struct neap_rdma_memory, reap));
	neap_ready_cancel(memory->reactor, &memory->sweep);
	neap_pool_destroy(&memory->regions);
	neap_release(memory->reactor, memory, sizeof *memory);
}

static void tell_region(struct region *region)
{
	for (uint32_t rail = 0; rail < region->memory->rails; rail++)
		if (!is_open(device_at(region->memory, rail)))
			region->refused &= ~(UINT64_C(1) << rail); /* a new chance when it is back */
	if (region->memory->closing)
		neap_step(&region->machine, rdma_region_on_RELEASE, 0);
	else if (has_work(region))
		neap_step(&region->machine, rdma_region_on_RAILS, 0);
}

static void run_sweep(struct neap_ready *ready)
{
	struct neap_rdma_memory *memory = (struct neap_rdma_memory *)(void *)((char *)ready - offsetof(struct neap_rdma_memory, sweep));
	struct region *region = NULL;
	for (uint32_t i = 0; i < SWEEP_AT_ONCE && (region = neap_pool_next(&memory->regions, &memory->sweep_next)); i++)
		tell_region(region);
	if (region || memory->swept_again) {
		if (!region) {
			memory->swept_again = false;
			memory->sweep_next = 0;
		}
		neap_ready_again(memory->reactor, &memory->sweep);
		return;
	}
	if (memory->closing && memory->regions.used == 0 && memory->closed) {
		void (*closed)(void *user) = memory->closed;
		memory->closed = NULL;
		neap_reap_later(memory->reactor, &memory->reap);
		closed(memory->closed_user);
	}
}

static void sweep(struct neap_rdma_memory *memory)
{
	memory->swept_again = true;
	neap_ready_again(memory->reactor, &memory->sweep);
	neap_reactor_touch(memory->reactor);
}

void neap_rdma_memory_devices_changed(struct neap_rdma_memory *memory)
{
	sweep(memory);
}

/* --- calls */

int neap_rdma_memory_create(struct neap_reactor *reactor, const struct neap_verbs *verbs, struct neap_helper *helper,
                            struct neap_rdma_devices *devices, const struct neap_rdma_memory_options *options,
                            struct neap_rdma_memory **memory_p)
{
	struct neap_reactor_class *class_;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	struct neap_rdma_memory *memory = neap_allocate(reactor, sizeof *memory);
	if (!memory)
		return NEAP_ENOMEM;
	*memory = (struct neap_rdma_memory){
		.reactor = reactor,
		.verbs = verbs,
		.helper = helper,
		.devices = devices,
		.options = *options,
		.class_ = class_,
		.rails = neap_rdma_devices_count(devices),
		.sweep.run = run_sweep,
		.reap.reap = reap,
	};
	if (!memory->options.slow_ns)
		memory->options.slow_ns = NEAP_RDMA_SLOW_NS;
	if (!memory->options.retry_ns)
		memory->options.retry_ns = RETRY_NS;
	error = neap_pool_create(&memory->regions, reactor, sizeof(struct region), options->regions_max);
	if (error) {
		neap_release(reactor, memory, sizeof *memory);
		return error;
	}
	*memory_p = memory;
	return NEAP_OK;
}

void neap_rdma_memory_close(struct neap_rdma_memory *memory, void (*closed)(void *user), void *user)
{
	memory->closing = true;
	memory->closed = closed;
	memory->closed_user = user;
	sweep(memory);
}

/* What all open devices can register at once; 0: none is open. */
static uint64_t piece_limit(const struct neap_rdma_memory *memory)
{
	uint64_t limit = memory->options.piece_max_bytes ? memory->options.piece_max_bytes : UINT64_MAX;
	bool any = false;
	for (uint32_t rail = 0; rail < memory->rails; rail++) {
		const struct neap_rdma_device *device = device_at(memory, rail);
		if (!is_open(device))
			continue;
		any = true;
		limit = device->handle.limits.mr_size_max < limit ? device->handle.limits.mr_size_max : limit;
	}
	return any ? limit : 0;
}

static void fill(struct region *region, struct neap_rdma_memory *memory, void *address, uint64_t length, unsigned access)
{
	uint16_t generation = region->machine.generation;
	*region = (struct region){
		.machine.generation = generation, /* goes on over the lives of this slot */
		.memory = memory,
		.address = (uint64_t)(uintptr_t)address,
		.length = length,
		.access = access | (memory->options.strict_ordering ? 0u : (unsigned)NEAP_VERBS_RELAXED_ORDERING),
		.outcome = NEAP_ECANCELED,
		.job = {.run = run_piece, .done = piece_done},
	};
}

static uint64_t pieces_of(uint64_t length, uint64_t piece_bytes)
{
	return (length - 1) / piece_bytes + 1;
}

/* Slabs keep to powers of two, so that what is aligned as they are does not straddle two of them. */
static uint64_t fit_slabs(uint64_t slab_bytes, uint64_t length, uint64_t limit)
{
	while (slab_bytes > limit && slab_bytes > 1)
		slab_bytes /= 2;
	while (pieces_of(length, slab_bytes) > NEAP_RDMA_PIECES_MAX && slab_bytes <= limit / 2)
		slab_bytes *= 2;
	return slab_bytes;
}

static int take_in(struct neap_rdma_memory *memory, void *address, uint64_t length, unsigned access, uint64_t slab_bytes,
                   neap_rdma_registered *done, void *user, uint64_t *id_p)
{
	uint64_t limit = piece_limit(memory);
	if (memory->closing)
		return NEAP_ECLOSED;
	if (length == 0 || (uintptr_t)address + length < length)
		return NEAP_EINVAL;
	if (limit == 0)
		return NEAP_ENODEV;
	uint64_t piece_bytes = slab_bytes ? fit_slabs(slab_bytes, length, limit) : limit, count = pieces_of(length, piece_bytes);
	struct region *region = count <= NEAP_RDMA_PIECES_MAX ? neap_pool_take(&memory->regions) : NULL;
	if (!region)
		return NEAP_ELIMIT;
	fill(region, memory, address, length, access);
	region->slabs = slab_bytes != 0;
	region->piece_bytes = piece_bytes;
	region->piece_count = (uint32_t)count;
	region->done = done;
	region->done_user = user;
	region->pieces = neap_allocate(memory->reactor, pieces_bytes(region));
	if (!region->pieces) {
		neap_pool_give(&memory->regions, region);
		return NEAP_ENOMEM;
	}
	neap_machine_begin(&region->machine, &memory->class_->class_);
	*id_p = neap_pool_handle(&memory->regions, region);
	(void)neap_post(&region->machine, rdma_region_on_START, 0);
	neap_reactor_touch(memory->reactor);
	return NEAP_OK;
}

int neap_rdma_memory_register(struct neap_rdma_memory *memory, void *address, uint64_t length, unsigned access,
                              neap_rdma_registered *done, void *user, uint64_t *id_p)
{
	return take_in(memory, address, length, access, 0, done, user, id_p);
}

int neap_rdma_memory_register_slabs(struct neap_rdma_memory *memory, void *address, uint64_t length, unsigned access, uint64_t slab_bytes,
                                    neap_rdma_registered *done, void *user, uint64_t *id_p)
{
	return take_in(memory, address, length, access, slab_bytes, done, user, id_p);
}

int neap_rdma_memory_renew(struct neap_rdma_memory *memory, uint64_t id, uint32_t piece, struct neap_rdma_renewal *renewal)
{
	struct region *region = neap_pool_find(&memory->regions, id);
	if (!region)
		return NEAP_ESTALE;
	if (piece >= region->piece_count)
		return NEAP_EINVAL;
	for (uint32_t rail = 0; rail < memory->rails; rail++) {
		struct piece *at = piece_at(region, piece, rail);
		at->renewing = at->mr != NULL;
	}
	renewal->piece = piece;
	renewal->next = region->renewals;
	region->renewals = renewal;
	(void)neap_post(&region->machine, rdma_region_on_RAILS, 0);
	neap_reactor_touch(memory->reactor);
	return NEAP_OK;
}

int neap_rdma_memory_release(struct neap_rdma_memory *memory, uint64_t id, neap_rdma_released *released, void *user)
{
	struct region *region = neap_pool_find(&memory->regions, id);
	if (!region)
		return NEAP_ESTALE;
	if (region->released)
		return NEAP_OK;
	region->released = released;
	region->released_user = user;
	(void)neap_post(&region->machine, rdma_region_on_RELEASE, 0);
	neap_reactor_touch(memory->reactor);
	return NEAP_OK;
}

int neap_rdma_memory_keys(const struct neap_rdma_memory *memory, uint64_t id, const struct neap_rdma_device *device, const void *address,
                          struct neap_verbs_keys *keys_p, uint64_t *end_p)
{
	const struct region *region = neap_pool_find(&memory->regions, id);
	uint64_t at = (uint64_t)(uintptr_t)address;
	if (!region)
		return NEAP_ESTALE;
	if (at < region->address || at - region->address >= region->length)
		return NEAP_ENOTREG;
	uint32_t piece = (uint32_t)((at - region->address) / region->piece_bytes);
	uint32_t rail = (uint32_t)(device - neap_rdma_devices_at(memory->devices, 0));
	const struct piece *found = piece_at(region, piece, rail);
	if (!found->mr || found->renewing || region->ending)
		return NEAP_ENODEV;
	*keys_p = found->keys;
	*end_p = region->address + piece * region->piece_bytes + piece_length(region, piece);
	return NEAP_OK;
}

uint64_t neap_rdma_memory_piece_bytes(const struct neap_rdma_memory *memory, uint64_t id)
{
	const struct region *region = neap_pool_find(&memory->regions, id);
	return region ? region->piece_bytes : 0;
}

uint32_t neap_rdma_memory_count(const struct neap_rdma_memory *memory)
{
	return memory->regions.used;
}
