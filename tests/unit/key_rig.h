/* What the suites about the directory of keys share: one directory on virtual time, calls that are begun and waited for, and
 * clients with two segments each. */
#ifndef UNIT_KEY_RIG_H
#define UNIT_KEY_RIG_H

#include "reactor/core.h"
#include "reactor/net.h"
#include "store/directory/local.h"
#include "tests/support/coverage.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)

static struct key_rig {
	struct neap_reactor *reactor;
	struct neap_local_directory *directory;
	const struct neap_key_directory *face;
	struct neap_net net;
	uint64_t now_ns, random;
	uint64_t epoch; /* of the directory, as clients know it */
	uint32_t allocations_left; /* then every one fails; UINT32_MAX: none does */
	size_t allocated;
	char why[200], log[400];
} rig;

struct waited {
	struct neap_key_call call; /* first */
	bool done;
	int error;
	void (*then)(struct waited *waited);
};

static inline uint64_t rig_now(void *user)
{
	(void)user;
	return rig.now_ns;
}

static inline uint64_t rig_wall(void *user)
{
	(void)user;
	return 1000000 + rig.now_ns / 1000;
}

static inline uint64_t rig_random(void)
{
	rig.random = rig.random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return rig.random >> 33;
}

static inline void rig_fill(void *user, void *bytes, size_t length)
{
	(void)user;
	for (size_t i = 0; i < length; i++)
		((unsigned char *)bytes)[i] = (unsigned char)rig_random();
}

static inline void *rig_allocate(void *user, size_t bytes)
{
	(void)user;
	if (rig.allocations_left == 0)
		return NULL;
	if (rig.allocations_left != UINT32_MAX)
		rig.allocations_left--;
	rig.allocated += bytes;
	return calloc(1, bytes);
}

static inline void rig_release(void *user, void *memory, size_t bytes)
{
	(void)user;
	if (memory)
		rig.allocated -= bytes;
	free(memory);
}

static inline void rig_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user;
	(void)level;
	(void)snprintf(rig.log, sizeof rig.log, "%s: %s", component, message);
}

static inline void rig_reactor(void)
{
	rig.random = rig.random ? rig.random : 42;
	rig.now_ns = 1000 * MS;
	rig.allocations_left = UINT32_MAX;
	struct neap_reactor_options options = {
		.clock = {.now_ns = rig_now, .wall_us = rig_wall},
		.random.fill = rig_fill,
		.alloc = {.allocate = rig_allocate, .release = rig_release},
		.net = &rig.net,
		.log = rig_log,
	};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &options), NEAP_OK);
}

static inline void rig_open(struct neap_local_directory_options options)
{
	rig_reactor();
	int error = neap_local_directory_create(&rig.directory, rig.reactor, &options, rig.why, sizeof rig.why);
	ck_assert_msg(error == NEAP_OK, "%s", rig.why);
	rig.face = neap_local_directory_face(rig.directory);
	rig.epoch = options.epoch ? options.epoch : rig_wall(NULL);
}

/* A directory that was never there before. */
static inline void rig_open_first(void)
{
	rig_open((struct neap_local_directory_options){.first = true, .keys_max = 1000, .epoch = 7});
}

static inline int rig_turn(void)
{
	int answer = neap_reactor_run_at(rig.reactor, rig.now_ns, NULL);
	ck_assert_int_gt(answer, 0);
	return answer;
}

static inline void rig_rest(void)
{
	for (int i = 0; i < 100000; i++)
		if (rig_turn() != NEAP_RUN_MORE)
			return;
	ck_abort_msg("does not come to rest");
}

static inline void rig_advance(uint64_t ms)
{
	uint64_t until_ns = rig.now_ns + ms * MS;
	for (;;) {
		rig_rest();
		uint64_t next_ns = neap_reactor_deadline_ns(rig.reactor);
		if (next_ns > until_ns)
			break;
		rig.now_ns = next_ns > rig.now_ns ? next_ns : rig.now_ns;
	}
	rig.now_ns = until_ns;
	rig_rest();
}

static inline void rig_close(void)
{
	if (rig.directory) {
		rig_rest();
		const char *wrong = neap_local_directory_check(rig.directory);
		ck_assert_msg(!wrong, "%s", wrong);
		neap_local_directory_destroy(rig.directory);
		rig_rest();
	}
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), NEAP_OK);
	ck_assert_uint_eq(rig.allocated, 0);
	memset(&rig, 0, sizeof rig);
}

static inline void rig_done(struct neap_key_call *call, int error)
{
	struct waited *waited = call->user;
	ck_assert(!waited->done);
	waited->done = true;
	waited->error = error;
	if (waited->then)
		waited->then(waited);
}

static inline int rig_begin(struct waited *waited, enum neap_key_op op)
{
	waited->call.op = op;
	waited->call.done = rig_done;
	waited->call.user = waited;
	waited->done = false;
	return neap_key_begin(rig.face, &waited->call);
}

static inline int rig_call(struct waited *waited, enum neap_key_op op)
{
	ck_assert_int_eq(rig_begin(waited, op), NEAP_OK);
	ck_assert(!waited->done);
	rig_rest();
	ck_assert(waited->done);
	return waited->error;
}

/* --- clients: number n has id {n, 1}, instance n + 100, segments {n, 10} with priority 10 and {n, 20} with priority 20 ------- */

static inline struct neap_key_id id_of(uint64_t client)
{
	return (struct neap_key_id){client, 1};
}

static inline struct neap_key_client self(uint64_t client)
{
	return (struct neap_key_client){.id = id_of(client), .instance = client + 100};
}

static inline struct neap_key_id segment_id(uint64_t client, int32_t priority)
{
	return (struct neap_key_id){client, (uint64_t)priority};
}

static inline struct neap_key_segment segment_of(uint64_t client, int32_t priority, uint64_t capacity)
{
	struct neap_key_segment segment = {.id = segment_id(client, priority), .capacity = capacity, .priority = priority};
	(void)snprintf(segment.name, sizeof segment.name, "tier_%d", priority);
	return segment;
}

static inline struct neap_key_register registration(uint64_t client)
{
	struct neap_key_register registration = {.client = self(client), .port = (uint16_t)(1000 + client)};
	(void)snprintf(registration.host, sizeof registration.host, "10.0.0.%u", (unsigned)client);
	return registration;
}

static inline int do_register(uint64_t client, uint64_t capacity10, uint64_t capacity20)
{
	struct neap_key_segment segments[2];
	struct waited waited = {.call.as.register_ = registration(client)};
	uint32_t count = 0;
	if (capacity10)
		segments[count++] = segment_of(client, 10, capacity10);
	if (capacity20)
		segments[count++] = segment_of(client, 20, capacity20);
	waited.call.as.register_.segments = segments;
	waited.call.as.register_.segment_count = count;
	return rig_call(&waited, NEAP_KEY_OP_REGISTER);
}

static inline void join(uint64_t client, uint64_t capacity)
{
	ck_assert_int_eq(do_register(client, capacity, 0), NEAP_OK);
}

static inline int do_unregister(uint64_t client)
{
	struct waited waited = {.call.as.unregister.client = self(client)};
	return rig_call(&waited, NEAP_KEY_OP_UNREGISTER);
}

static inline enum neap_key_status beat(uint64_t client)
{
	struct waited waited = {.call.as.heartbeat = {.client = self(client), .epoch_known = rig.epoch}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	return waited.call.as.heartbeat.status;
}

static inline int use(uint64_t client, int32_t priority, uint64_t used, uint64_t capacity)
{
	struct neap_key_usage usage = {.segment = segment_id(client, priority), .used = used, .capacity = capacity};
	struct waited waited = {
		.call.as.heartbeat = {.client = self(client), .epoch_known = rig.epoch, .usages = &usage, .usage_count = 1}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_HEARTBEAT), NEAP_OK);
	return usage.error;
}

static inline enum neap_key_status status_of(uint64_t client)
{
	struct neap_key_client_item item = {.id = id_of(client)};
	struct waited waited = {.call.as.clients = {.items = &item, .count = 1}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_CLIENTS), NEAP_OK);
	return item.status;
}

static inline int do_mount(uint64_t client, int32_t priority, uint64_t capacity)
{
	struct waited waited = {.call.as.mount = {.client = self(client), .segment = segment_of(client, priority, capacity)}};
	return rig_call(&waited, NEAP_KEY_OP_MOUNT);
}

static inline int do_unmount(uint64_t client, int32_t priority)
{
	struct waited waited = {.call.as.unmount = {.client = self(client), .segment = segment_of(client, priority, 0)}};
	return rig_call(&waited, NEAP_KEY_OP_UNMOUNT);
}

/* --- announcements --------------------------------------------------------------------------------------------------------- */

static inline struct neap_key_text text(const char *key)
{
	return (struct neap_key_text){.text = key, .length = (uint32_t)strlen(key)};
}

static inline int announce(uint64_t client, uint64_t number, uint32_t round, struct neap_key_change *changes, uint32_t count)
{
	struct waited waited = {
		.call.as.announce = {.client = self(client), .number = number, .round = round, .changes = changes, .count = count}};
	return rig_call(&waited, NEAP_KEY_OP_ANNOUNCE);
}

static inline struct neap_key_change adding(uint64_t client, int32_t priority, const char *key)
{
	return (struct neap_key_change){
		.kind = NEAP_KEY_ADD, .key = text(key), .segment = segment_id(client, priority), .size = 100, .generation = 1};
}

/* The item's error; `stamp`, when given, is in and out. */
static inline int add_stamped(uint64_t client, int32_t priority, const char *key, struct neap_key_stamp *stamp)
{
	struct neap_key_change change = adding(client, priority, key);
	if (stamp)
		change.stamp = *stamp;
	int error = announce(client, 0, 0, &change, 1);
	if (stamp)
		*stamp = change.stamp;
	return error ? error : change.error;
}

static inline int add(uint64_t client, int32_t priority, const char *key)
{
	return add_stamped(client, priority, key, NULL);
}

static inline int take_away(uint64_t client, int32_t priority, const char *key, uint64_t generation)
{
	struct neap_key_change change = {
		.kind = NEAP_KEY_REMOVE, .key = text(key), .segment = segment_id(client, priority), .generation = generation};
	int error = announce(client, 0, 0, &change, 1);
	return error ? error : change.error;
}

static inline uint32_t round_begin(uint64_t client)
{
	struct waited waited = {.call.as.round.client = self(client)};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_ROUND_BEGIN), NEAP_OK);
	return waited.call.as.round.round;
}

static inline int round_end(uint64_t client, uint32_t round, uint64_t *dropped_p)
{
	struct waited waited = {.call.as.round = {.client = self(client), .round = round}};
	int error = rig_call(&waited, NEAP_KEY_OP_ROUND_END);
	if (dropped_p)
		*dropped_p = waited.call.as.round.dropped;
	return error;
}

/* --- questions ------------------------------------------------------------------------------------------------------------- */

static struct neap_key_replica found[64];
static struct neap_key_candidate offered[64];

/* How many replicas, in `found`; or the item's error. */
static inline int look_with(const char *key, struct neap_key_read_config config)
{
	struct neap_key_read_item item = {.key = text(key)};
	struct waited waited = {
		.call.as.replicas = {.config = config, .items = &item, .count = 1, .replicas = found, .replicas_max = 64}};
	int error = rig_call(&waited, NEAP_KEY_OP_REPLICAS);
	return error ? error : item.error ? item.error : (int)item.count;
}

static inline int look(const char *key)
{
	return look_with(key, (struct neap_key_read_config){.priority_limit = INT32_MIN});
}

static inline int exists(const char *key)
{
	struct neap_key_read_item item = {.key = text(key)};
	struct waited waited = {.call.as.exist = {.items = &item, .count = 1}};
	int error = rig_call(&waited, NEAP_KEY_OP_EXIST);
	return error ? error : item.error;
}

static inline uint64_t count_keys(void)
{
	struct waited waited = {.call = {0}};
	ck_assert_int_eq(rig_call(&waited, NEAP_KEY_OP_COUNT), NEAP_OK);
	return waited.call.as.count.keys;
}

/* How many candidates, in `offered`; or the error. */
static inline int place_from(uint64_t requester, const char *key, uint64_t size, struct neap_key_write_config config)
{
	struct neap_key_write_item item = {.key = text(key), .size = size};
	struct waited waited = {.call.as.write_routes = {.requester = requester ? id_of(requester) : (struct neap_key_id){0},
	                                                 .config = config,
	                                                 .items = &item,
	                                                 .count = 1,
	                                                 .candidates = offered,
	                                                 .candidates_max = 64}};
	int error = rig_call(&waited, NEAP_KEY_OP_WRITE_ROUTES);
	return error ? error : item.error ? item.error : (int)item.count;
}

static inline int place(const char *key, uint64_t size)
{
	return place_from(0, key, size, (struct neap_key_write_config)NEAP_KEY_WRITE_CONFIG);
}

static inline int run_suite(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

#endif
