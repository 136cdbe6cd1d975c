#include "tests/support/rdma_engine_rig.h"
#include "tests/support/coverage.h"
#include "tests/support/small_engine.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define SECOND (1000 * RDMA_RIG_MS)
#define GRAIN_NS 20000u
#define IDLE_STEPS 250u

static uint64_t clock_now(void *user)
{
	const struct rdma_engine_rig *rig = user;
	return rig->now_ns;
}

static void *allocate(void *user, size_t bytes)
{
	struct rdma_engine_rig *rig = user;
	if (rig->fail_allocation && --rig->fail_allocation == 0)
		return NULL;
	return calloc(1, bytes);
}

static void release(void *user, void *memory, size_t bytes)
{
	(void)user;
	(void)bytes;
	free(memory);
}

static void log_line(void *user, enum neap_log_level level, const char *component, const char *message)
{
	struct rdma_engine_rig *rig = user;
	size_t used = strlen(rig->log);
	(void)component;
	if (level <= NEAP_LOG_WARNING)
		(void)snprintf(rig->log + used, sizeof rig->log - used, "%s\n", message);
}

uint32_t rdma_engine_rig_logged(const struct rdma_engine_rig *rig, const char *part)
{
	uint32_t count = 0;
	for (const char *at = rig->log; (at = strstr(at, part)); at++)
		count++;
	return count;
}

/* --- time */

void rdma_engine_rig_turns(struct rdma_engine_rig *rig)
{
	for (int i = 0; i < 100000; i++)
		if (neap_reactor_run_at(rig->reactor, rig->now_ns, NULL) != NEAP_RUN_MORE)
			return;
	ck_abort_msg("does not come to rest");
}

/* Bytes over loopback need real time where the kernel delivers them on a thread of its own, which wants a processor: a busy machine is not
 * to look like a peer that has stopped. */
static void let_bytes_move(struct rdma_engine_rig *rig)
{
	if (++rig->idle_steps % IDLE_STEPS == 0)
		(void)nanosleep(&(struct timespec){.tv_nsec = 20000}, NULL);
}

/* Not from deadline to deadline: each turn sets a real timer, and a megabyte has thousands of them. */
static void step(struct rdma_engine_rig *rig, uint64_t end)
{
	uint64_t due = neap_reactor_deadline_ns(rig->reactor), most = rig->now_ns + RDMA_RIG_MS, least = rig->now_ns + GRAIN_NS;
	most = most < end ? most : end;
	due = due > least ? due : least;
	if (due >= most)
		let_bytes_move(rig);
	rig->now_ns = due < most ? due : most;
	rdma_engine_rig_turns(rig);
}

bool rdma_engine_rig_until(struct rdma_engine_rig *rig, const bool *flag, uint64_t ns)
{
	uint64_t end = rig->now_ns + ns;
	rdma_engine_rig_turns(rig);
	while (rig->now_ns < end && !*flag)
		step(rig, end);
	return *flag;
}

void rdma_engine_rig_pass(struct rdma_engine_rig *rig, uint64_t ns)
{
	const bool never = false;
	(void)rdma_engine_rig_until(rig, &never, ns);
}

/* --- begin and end */

void rdma_engine_rig_begin(struct rdma_engine_rig *rig, uint32_t devices)
{
	memset(rig, 0, sizeof *rig);
	rig->now_ns = RDMA_RIG_MS;
	const struct neap_reactor_options options = {
		.clock = {.now_ns = clock_now, .user = rig},
		.alloc = {.allocate = allocate, .release = release, .user = rig},
		.log = log_line,
		.log_user = rig,
	};
	ck_assert_int_eq(neap_reactor_create(&rig->reactor, &options), NEAP_OK);
	rdma_engine_rig_turns(rig);
	sim_verbs_begin(&rig->sim, rig->reactor, 7);
	for (; rig->device_count < devices; rig->device_count++) {
		char name[NEAP_TOPOLOGY_NAME_SIZE];
		(void)snprintf(name, sizeof name, "rxe%u", rig->device_count);
		rig->devices[rig->device_count] = sim_verbs_add(&rig->sim, name);
	}
}

/* Near is the device of the node's number. */
static void add_row(struct neap_topology *topology, uint32_t node)
{
	char location[NEAP_TOPOLOGY_LOCATION_SIZE], near[NEAP_TOPOLOGY_NAME_SIZE];
	(void)snprintf(location, sizeof location, "cpu:%u", node);
	(void)snprintf(near, sizeof near, "rxe%u", node);
	struct neap_topology_row *row = neap_topology_add_row(topology, location);
	for (int pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < topology->device_count; i++) {
			if ((strcmp(topology->devices[i].name, near) == 0) != (pass == 0))
				continue;
			row->order[row->count++] = (uint8_t)i;
			row->preferred += pass == 0;
		}
}

static struct neap_topology *make_topology(const struct rdma_engine_rig *rig, uint32_t devices)
{
	struct neap_topology *topology = neap_topology_new();
	for (uint32_t i = 0; i < rig->device_count; i++)
		if (devices >> i & 1)
			(void)neap_topology_add_device(topology, rig->devices[i]->name);
	for (uint32_t i = 0; i < rig->device_count; i++)
		add_row(topology, i);
	return topology;
}

static const struct neap_rdma_surroundings *surroundings; /* of the engine that is being made */

static int make_transport(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size)
{
	return neap_rdma_transport_create_in(transport_p, engine, surroundings, why, why_size);
}

int rdma_engine_rig_try(struct rdma_engine_rig *rig, uint32_t which, uint32_t devices, const struct neap_engine_options *options)
{
	struct rdma_engine_rig_side *side = &rig->sides[which];
	struct neap_engine_options filled = small_engine(options);
	if (!options || !options->regions_max)
		filled.regions_max = 256;
	if (!filled.rdma.endpoints_max)
		filled.rdma.endpoints_max = 64;
	if (!filled.protocol)
		filled.protocol = "rdma";
	sim_helper_begin(&side->helper, rig->reactor, RDMA_RIG_MS);
	side->topology = make_topology(rig, devices);
	side->closed = false;
	const struct neap_rdma_surroundings mine = {.verbs = &rig->sim.verbs, .topology = side->topology, .helper = &side->helper.base};
	surroundings = &mine;
	int error = neap_engine_create_with(&side->engine, rig->reactor, &filled, make_transport, rig->why, sizeof rig->why);
	surroundings = NULL;
	if (error) {
		neap_topology_free(side->topology);
		side->topology = NULL;
	}
	return error;
}

void rdma_engine_rig_start(struct rdma_engine_rig *rig, uint32_t which, uint32_t devices, const struct neap_engine_options *options)
{
	int error = rdma_engine_rig_try(rig, which, devices, options);
	ck_assert_msg(error == NEAP_OK, "%s", rig->why);
	rdma_engine_rig_pass(rig, SECOND);
}

void rdma_engine_rig_closed(void *user)
{
	struct rdma_engine_rig_side *side = user;
	side->closed = true;
}

static void forget(struct rdma_engine_rig_side *side)
{
	neap_helper_end(&side->helper.base);
	neap_topology_free(side->topology);
	side->topology = NULL;
	side->engine = NULL;
}

void rdma_engine_rig_close(struct rdma_engine_rig *rig, uint32_t which)
{
	struct rdma_engine_rig_side *side = &rig->sides[which];
	int error = neap_engine_close(side->engine, rdma_engine_rig_closed, side);
	ck_assert(error == NEAP_OK || error == NEAP_ECLOSED);
	ck_assert_msg(rdma_engine_rig_until(rig, &side->closed, 60 * SECOND), "engine %u does not close", which);
	rdma_engine_rig_turns(rig);
	forget(side);
}

void rdma_engine_rig_end(struct rdma_engine_rig *rig)
{
	for (uint32_t i = 0; i < RDMA_RIG_ENGINES; i++)
		if (rig->sides[i].engine)
			rdma_engine_rig_close(rig, i);
	for (uint32_t i = 0; i < rig->device_count; i++)
		ck_assert_uint_eq(rig->devices[i]->regions, 0);
	sim_verbs_end(&rig->sim);
	rdma_engine_rig_turns(rig);
	ck_assert_int_eq(support_reactor_destroy(rig->reactor), NEAP_OK);
}

/* --- what tests ask for */

struct neap_rdma *rdma_engine_rig_of(const struct rdma_engine_rig *rig, uint32_t which)
{
	struct neap_transport *remote = rig->sides[which].engine->remote;
	ck_assert_str_eq(remote->ops->name, "rdma");
	return (struct neap_rdma *)(void *)remote;
}

struct answer {
	struct rdma_engine_rig *rig;
	bool come;
	int error;
	neap_segment_id segment;
};

static void settled(void *user, int error, const char *why)
{
	struct answer *answer = user;
	ck_assert(!answer->come);
	answer->come = true;
	answer->error = error;
	(void)snprintf(answer->rig->why, sizeof answer->rig->why, "%s", why ? why : "");
}

int rdma_engine_rig_settle(struct rdma_engine_rig *rig, uint32_t which, neap_region_id region)
{
	struct answer answer = {.rig = rig};
	ck_assert_int_eq(neap_memory_settled(rig->sides[which].engine, region, settled, &answer), NEAP_OK);
	ck_assert(!answer.come);
	ck_assert(rdma_engine_rig_until(rig, &answer.come, 10 * SECOND));
	return answer.error;
}

neap_region_id rdma_engine_rig_register(struct rdma_engine_rig *rig, uint32_t which, void *address, uint64_t length,
                                        enum neap_access access)
{
	const struct neap_memory memory = {.address = address, .length = length, .location = "cpu:0", .access = access};
	neap_region_id region;
	int error = neap_memory_register(rig->sides[which].engine, &memory, 1, &region, rig->why, sizeof rig->why);
	ck_assert_msg(error == NEAP_OK, "%s", rig->why);
	error = rdma_engine_rig_settle(rig, which, region);
	ck_assert_msg(error == NEAP_OK, "%s", rig->why);
	return region;
}

static void opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct answer *answer = user;
	answer->come = true;
	answer->error = error;
	answer->segment = segment;
	(void)snprintf(answer->rig->why, sizeof answer->rig->why, "%s", why ? why : "");
}

neap_segment_id rdma_engine_rig_open(struct rdma_engine_rig *rig, uint32_t which)
{
	return rdma_engine_rig_open_of(rig, which, !which);
}

neap_segment_id rdma_engine_rig_open_of(struct rdma_engine_rig *rig, uint32_t which, uint32_t whose)
{
	struct answer answer = {.rig = rig};
	ck_assert_int_eq(neap_segment_open(rig->sides[which].engine, neap_engine_name(rig->sides[whose].engine), opened, &answer), NEAP_OK);
	ck_assert(rdma_engine_rig_until(rig, &answer.come, 10 * SECOND));
	ck_assert_msg(answer.error == NEAP_OK, "%s", rig->why);
	return answer.segment;
}

struct neap_descriptor *rdma_engine_rig_describe(struct rdma_engine_rig *rig, uint32_t which)
{
	size_t length = 0;
	struct neap_descriptor *descriptor = NULL;
	char *text = neap_publish_describe(rig->sides[which].engine, &length);
	ck_assert_ptr_nonnull(text);
	int error = neap_descriptor_decode(text, length, &descriptor, rig->why, sizeof rig->why);
	ck_assert_msg(error == NEAP_OK, "%s in %s", rig->why, text);
	free(text);
	return descriptor;
}
