#include "tests/unit/peer_rig.h"
#include "store/peer/token.h"

#include "tests/support/coverage.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct peer_rig rig;
struct rig_below rig_below;

void rig_set(void *flag)
{
	*(bool *)flag = true;
}

static bool is_set(void *flag)
{
	return *(const bool *)flag;
}

bool rig_until_set(const bool *flag, unsigned ms)
{
	bool set = false;
	(void)sim_run_until(rig.sim, is_set, (void *)(uintptr_t)flag, ms * MS);
	set = *flag;
	return set;
}

void rig_for(unsigned ms)
{
	sim_run_for(rig.sim, ms * MS);
}

/* --- the world ------------------------------------------------------------------------------------------------------------ */

static struct neap_engine *start_engine(struct sim_node *node, uint8_t instance[16])
{
	char address[32], why[256];
	struct neap_engine *engine;
	sim_node_address(node, address, sizeof address);
	struct neap_engine_options options = {
		.local_name = address,
		.bind_address = address,
		.handshake_port = 15100,
		.requests_max = 256,
		.batches_max = 64,
		.peers_max = 8,
		.sessions_max = 16,
		.regions_max = 32,
		.grants_max = 512,
		.handshake_sessions_max = 16,
		.connect_timeout_ms = 500,
		.handshake_timeout_ms = 500,
		.progress_timeout_ms = 1000,
		.drain_timeout_ms = 200,
	};
	int error = neap_engine_create(&engine, node->reactor, &options, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	neap_engine_instance(engine, instance);
	return engine;
}

static bool is_own(void *user, const uint8_t instance[16], const char *segment, const uint8_t *engine)
{
	ck_assert_ptr_eq(user, &rig);
	ck_assert((segment != NULL) != (engine != NULL));
	for (uint32_t i = 0; i < RIG_PEERS; i++) {
		const struct rig_peer *peer = &rig.peers[i];
		/* An accessor of the library shows its engine's instance. */
		if (memcmp(peer->instance, instance, 16) == 0 || memcmp(peer->engine_instance, instance, 16) == 0)
			return engine ? memcmp(peer->engine_instance, engine, 16) == 0 : strcmp(neap_engine_name(peer->engine), segment) == 0;
	}
	return false;
}

static void start_owner(void (*change)(struct neap_owner_options *owner, struct neap_peer_service_options *service))
{
	struct neap_dram_options dram = {.capacity = 8 * MIB, .numa_node = -1, .slab_bytes = 2 * MIB};
	struct neap_tiers_options tiers = {.handles_max = 4096};
	struct neap_tier_settings settings = {.priority = 1};
	struct neap_owner_options owner = {.shards = 16, .keys_max = 4096, .writes_max = 256, .pins_max = 256, .moves_max = 16,
	                                   .lease_ns = RIG_LEASE_MS * MS, .move_timeout_ns = 3000 * MS};
	struct neap_sockaddr address;
	struct neap_peer_service_options service = {
		.address = &address,
		.rpc = {.epoch = 7, .connections_max = 16, .calls_total_max = 512, .lanes_max = 16},
		.writes_max = 256,
		.pins_max = 256,
		.operations_max = 64,
		.is_own = is_own,
		.user = &rig,
	};
	uint32_t index;
	int system_errno;
	char why[320];
	if (change)
		change(&owner, &service);
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", RIG_PORT, &address), 0);
	rig.engine = start_engine(rig.node, rig.engine_instance);
	memcpy(service.rpc.instance, rig.engine_instance, sizeof rig.engine_instance);
	ck_assert_int_eq(neap_dram_create(&rig.dram, rig.node->reactor, &dram, why, sizeof why), 0);
	ck_assert_int_eq(neap_dram_engine_begin(&rig.binding, rig.engine, &rig.dram, -1, false, why, sizeof why), 0);
	ck_assert_int_eq(neap_tiers_create(&rig.tiers, rig.node->reactor, &tiers), 0);
	ck_assert_int_eq(neap_tiers_add(&rig.tiers, &settings, &neap_dram_tier_ops, &rig.dram, dram.capacity, &index), 0);
	if (rig_below.ops) {
		struct neap_tier_settings below = {.kind = NEAP_TIER_STORAGE};
		rig_below.begun(rig.node->reactor);
		ck_assert_int_eq(neap_tiers_add(&rig.tiers, &below, rig_below.ops, rig_below.backend, rig_below.capacity, &index), 0);
	}
	ck_assert_int_eq(neap_owner_create(&rig.owner, rig.engine, &rig.tiers, &owner), 0);
	int error = neap_peer_service_create(&rig.service, rig.node->reactor, rig.engine, rig.owner, &service, &system_errno, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
}

static void welcomed(void *user, const uint8_t instance[16], uint64_t epoch)
{
	ck_assert_mem_eq(instance, rig.engine_instance, 16);
	ck_assert_uint_eq(epoch, 7);
	((struct rig_peer *)user)->welcomes++;
}

void rig_channel_open(struct rig_peer *peer)
{
	/* a channel's ids are its own, also after it was closed */
	struct neap_rpc_channel_options options = {
		.server = {.host = "10.0.0.2", .port = RIG_PORT, .has_port = true}, .lane = ++peer->lanes, .welcomed = welcomed, .user = peer};
	ck_assert_int_eq(neap_rpc_channel_open(&peer->channel, peer->client, &options), 0);
	neap_rpc_channel_connect(peer->channel);
}

void rig_channel_close(struct rig_peer *peer)
{
	neap_rpc_channel_close(peer->channel);
	peer->channel = NULL;
}

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	ck_assert_msg(error == 0, "%s", why);
	((struct rig_peer *)user)->owner = segment;
}

static void start_peer(struct rig_peer *peer, uint32_t host)
{
	char why[256];
	peer->node = sim_node_create(rig.sim, host);
	peer->engine = start_engine(peer->node, peer->engine_instance);
	peer->memory = aligned_alloc(4096, RIG_MEMORY);
	memset(peer->memory, 0, RIG_MEMORY);
	struct neap_memory memory = {.address = peer->memory, .length = RIG_MEMORY, .location = "cpu:0", .access = NEAP_GRANT_ONLY};
	ck_assert_int_eq(neap_memory_register(peer->engine, &memory, 1, NULL, why, sizeof why), 0);
	(void)snprintf((char *)peer->instance, sizeof peer->instance, "accessor %u", host);
	struct neap_rpc_client_options options = {.channels_max = 4, .calls_max = 512};
	memcpy(options.instance, peer->instance, 16);
	ck_assert_int_eq(neap_rpc_client_create(&peer->client, peer->node->reactor, &options), 0);
	rig_channel_open(peer);
	ck_assert_int_eq(neap_segment_open(peer->engine, neap_engine_name(rig.engine), on_opened, peer), 0);
}

void rig_open(void (*change)(struct neap_owner_options *owner, struct neap_peer_service_options *service))
{
	memset(&rig, 0, sizeof rig);
	rig.sim = sim_create(17);
	rig.sim->net = (struct sim_net_options){
		.delay_min_ns = 10000, .delay_max_ns = 20000, .segment_max = 65536, .window_min = 1u << 18, .window_max = 1u << 18};
	rig.sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	rig.node = sim_node_create(rig.sim, 1);
	start_owner(change);
	for (uint32_t i = 0; i < RIG_PEERS; i++)
		start_peer(&rig.peers[i], 2 * i);
	rig_for(20);
	for (uint32_t i = 0; i < RIG_PEERS; i++)
		ck_assert_uint_ne(rig.peers[i].owner, 0);
}

void rig_holds(void)
{
	const char *wrong = neap_owner_check(rig.owner);
	ck_assert_msg(!wrong, "%s", wrong);
	wrong = neap_peer_service_check(rig.service);
	ck_assert_msg(!wrong, "%s", wrong);
}

static void close_owner(void)
{
	bool served = false, closed = false, unmapped = false;
	if (rig.service) {
		rig_holds();
		neap_peer_service_close(rig.service, rig_set, &served);
		ck_assert_msg(rig_until_set(&served, 20000), "the service does not close");
	}
	neap_owner_close(rig.owner, rig_set, &closed);
	ck_assert_msg(rig_until_set(&closed, 20000), "the owner does not close");
	neap_owner_destroy(rig.owner);
	ck_assert_int_eq(neap_tiers_destroy(&rig.tiers), 0);
	ck_assert_int_eq(neap_dram_close(&rig.dram, rig_set, &unmapped), 0);
	ck_assert(rig_until_set(&unmapped, 5000));
	neap_dram_engine_end(&rig.binding);
}

static void close_engine(struct sim_node *node, void *user)
{
	(void)node;
	ck_assert_int_eq(neap_engine_close(user, NULL, NULL), 0);
}

void rig_close(void)
{
	close_owner();
	for (uint32_t i = 0; i < RIG_PEERS; i++) {
		struct rig_peer *peer = &rig.peers[i];
		neap_rpc_client_destroy(peer->client);
		support_cover(neap_reactor_dispatcher(peer->node->reactor));
		ck_assert_uint_eq(sim_node_finish(peer->node, close_engine, peer->engine), 0);
		free(peer->memory);
	}
	support_cover(neap_reactor_dispatcher(rig.node->reactor));
	ck_assert_uint_eq(sim_node_finish(rig.node, close_engine, rig.engine), 0);
	sim_destroy(rig.sim);
}

static bool has_operation(void *user)
{
	(void)user;
	return rig_stats().operations_now > 0;
}

void rig_await_operation(void)
{
	ck_assert_msg(sim_run_until(rig.sim, has_operation, NULL, 1000 * MS), "nothing is under way");
}

void rig_cut(struct rig_peer *peer)
{
	bool rpc = false;
	uint64_t losses[2];
	struct neap_rpc_client_stats stats;
	neap_rpc_client_stats(peer->client, &stats);
	losses[0] = stats.losses;
	/* the data connections between the two are cut as well when they are chosen first: they come again */
	for (unsigned i = 0; i < 50 && !rpc; i++) {
		ck_assert(sim_cut_one(rig.sim, peer->node->host, 1, true));
		rig_for(1);
		neap_rpc_client_stats(peer->client, &stats);
		losses[1] = stats.losses;
		rpc = losses[1] > losses[0];
	}
	ck_assert_msg(rpc, "the RPC connection was not cut");
}

/* --- calls ------------------------------------------------------------------------------------------------------------------ */

struct neap_rpc_view rig_text(const char *text)
{
	return neap_rpc_view_of(text, strlen(text));
}

static void keep_buffer(struct rig_call *call, const struct neap_rpc_list *list)
{
	ck_assert_uint_eq(list->count, 1);
	call->buffer = *(const struct remote_slice *)list->items;
	ck_assert_uint_lt(call->buffer.segment.length, sizeof call->segment);
	memcpy(call->segment, call->buffer.segment.bytes, call->buffer.segment.length);
	ck_assert_uint_eq(call->buffer.token.length, sizeof call->token.bytes);
	peer_token_take(&call->buffer, &call->token);
	ck_assert_str_eq(call->segment, neap_engine_name(rig.engine));
}

static void keep(struct rig_call *call, const void *reply)
{
	memcpy(&call->reply, reply, call->method->reply->size);
	if (call->method == &neap_method_pre_write)
		keep_buffer(call, &call->reply.pre_write.remote_buffer);
	else if (call->method == &neap_method_pin_key)
		keep_buffer(call, &call->reply.pin_key.remote_buffer);
	else if (call->method == &neap_method_read_remote_data && call->reply.read.value.length)
		memcpy(call->value, call->reply.read.value.bytes, call->reply.read.value.length);
}

static void done(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct rig_call *call = user;
	ck_assert((reply != NULL) == (outcome->result == NEAP_RPC_OK));
	call->times++;
	call->outcome = *outcome;
	(void)snprintf(call->why, sizeof call->why, "%s", outcome->why);
	if (reply)
		keep(call, reply);
}

void rig_ask(struct rig_peer *peer, struct rig_call *call, const struct neap_rpc_method *method, const void *request, unsigned timeout_ms,
             const struct neap_rpc_id *id)
{
	memset(call, 0, offsetof(struct rig_call, value));
	call->method = method;
	int error = neap_rpc_call(peer->channel, method, request, timeout_ms * MS, id, done, call, &call->handle);
	ck_assert_msg(error == 0, "%s: %s", method->name, neap_error_name(error));
}

static bool has_ended(void *user)
{
	return ((const struct rig_call *)user)->times > 0;
}

void rig_await(struct rig_call *call)
{
	ck_assert_msg(sim_run_until(rig.sim, has_ended, call, 60000 * MS), "a call does not end");
	ck_assert_uint_eq(call->times, 1);
}

int rig_status(struct rig_call *call)
{
	rig_await(call);
	ck_assert_msg(call->outcome.result == NEAP_RPC_OK || call->outcome.result == NEAP_RPC_REFUSED, "%s: %s",
	              neap_rpc_result_name(call->outcome.result), call->why);
	return call->outcome.status;
}

static int one_call(struct rig_peer *peer, struct rig_call *call, const struct neap_rpc_method *method, const void *request)
{
	static struct rig_call unused;
	call = call ? call : &unused;
	rig_ask(peer, call, method, request, 20000, NULL);
	int status = rig_status(call);
	rig_holds();
	return status;
}

int rig_pre_write(struct rig_peer *peer, const char *key, uint64_t size, struct rig_call *call)
{
	struct pre_write request = {.key = rig_text(key), .size_bytes = size, .engine = neap_rpc_view_of(peer->engine_instance, 16)};
	return one_call(peer, call, &neap_method_pre_write, &request);
}

int rig_commit(struct rig_peer *peer, const char *key, uint64_t id, uint64_t size, const uint32_t *crc, struct rig_call *call)
{
	struct write_commit request = {
		.key = rig_text(key), .write_operation_id = id, .size_bytes = size, .has_crc = crc != NULL, .crc32c = crc ? *crc : 0};
	return one_call(peer, call, &neap_method_write_commit, &request);
}

int rig_revoke(struct rig_peer *peer, const char *key, uint64_t id)
{
	return one_call(peer, NULL, &neap_method_write_revoke, &(struct write_revoke){.key = rig_text(key), .write_operation_id = id});
}

int rig_pin(struct rig_peer *peer, const char *key, struct rig_call *call)
{
	struct pin_key request = {.key = rig_text(key), .engine = neap_rpc_view_of(peer->engine_instance, 16)};
	return one_call(peer, call, &neap_method_pin_key, &request);
}

int rig_unpin(struct rig_peer *peer, const char *key, uint64_t id)
{
	return one_call(peer, NULL, &neap_method_un_pin_key, &(struct un_pin_key){.key = rig_text(key), .read_operation_id = id});
}

int rig_write_inside(struct rig_peer *peer, const char *key, const void *bytes, size_t length, struct rig_call *call)
{
	struct write_remote_data request = {.key = rig_text(key), .value = neap_rpc_view_of(bytes, length)};
	return one_call(peer, call, &neap_method_write_remote_data, &request);
}

int rig_read_inside(struct rig_peer *peer, const char *key, uint64_t inline_max, struct rig_call *call)
{
	return one_call(peer, call, &neap_method_read_remote_data, &(struct read_remote_data){.key = rig_text(key), .inline_max = inline_max});
}

struct neap_rpc_list rig_grant(struct rig_peer *peer, struct rig_slices *slices, size_t offset, size_t length, uint32_t pieces, unsigned rights)
{
	size_t at = offset;
	for (uint32_t i = 0; i < pieces; i++) {
		size_t end = offset + length * (i + 1) / pieces;
		ck_assert_int_eq(neap_grant_create(peer->engine, peer->memory + at, end - at, rights, rig.engine_instance, &slices->tokens[i]), 0);
		slices->slices[i] = (struct remote_slice){.segment = rig_text(neap_engine_name(peer->engine)),
		                                          .address = (uint64_t)(uintptr_t)(peer->memory + at),
		                                          .length = end - at,
		                                          .token = neap_rpc_view_of(slices->tokens[i].bytes, sizeof slices->tokens[i].bytes)};
		at = end;
	}
	return (struct neap_rpc_list){slices->slices, pieces};
}

int rig_write_buffers(struct rig_peer *peer, const char *key, size_t offset, size_t length, uint32_t pieces, struct rig_call *call)
{
	struct rig_slices slices;
	struct write_remote_data request = {.key = rig_text(key), .src_buffers = rig_grant(peer, &slices, offset, length, pieces, NEAP_MAY_READ)};
	return one_call(peer, call, &neap_method_write_remote_data, &request);
}

int rig_read_buffers(struct rig_peer *peer, const char *key, size_t offset, size_t length, uint32_t pieces, struct rig_call *call)
{
	struct rig_slices slices;
	struct read_remote_data request = {.key = rig_text(key),
	                                   .dest_buffers = rig_grant(peer, &slices, offset, length, pieces, NEAP_MAY_WRITE)};
	return one_call(peer, call, &neap_method_read_remote_data, &request);
}

int rig_look_up(struct rig_peer *peer, const char *key, uint64_t id, struct rig_call *call)
{
	return one_call(peer, call, &neap_method_look_up, &(struct look_up){.key = rig_text(key), .write_operation_id = id});
}

int rig_remove(struct rig_peer *peer, const char *key, uint64_t generation)
{
	return one_call(peer, NULL, &neap_method_remove_key, &(struct remove_key){.key = rig_text(key), .generation = generation});
}

/* --- bytes ------------------------------------------------------------------------------------------------------------------- */

static unsigned char byte_at(size_t i, unsigned seed)
{
	return (unsigned char)(i * 13 + seed * 101 + (i >> 8));
}

void rig_fill(void *bytes, size_t length, unsigned seed)
{
	for (size_t i = 0; i < length; i++)
		((unsigned char *)bytes)[i] = byte_at(i, seed);
}

bool rig_filled(const void *bytes, size_t length, unsigned seed)
{
	size_t wrong = 0;
	for (size_t i = 0; i < length; i++)
		wrong += ((const unsigned char *)bytes)[i] != byte_at(i, seed);
	return wrong == 0;
}

struct transfer {
	bool ended;
	uint8_t status;
};

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct transfer *transfer = user;
	(void)batch, (void)index, (void)request_user;
	transfer->status = outcome->status;
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch, (void)summary;
	((struct transfer *)user)->ended = true;
}

uint8_t rig_transfer(struct rig_peer *peer, enum neap_opcode opcode, const struct rig_call *grant, void *bytes, size_t length)
{
	struct transfer transfer = {0};
	neap_batch_id batch;
	struct neap_request request = {.opcode = opcode, .source = bytes, .segment = peer->owner, .target_offset = grant->buffer.address,
	                               .length = length, .grant = &grant->token};
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .user = &transfer};
	ck_assert_int_eq(neap_submit(peer->engine, &request, 1, &options, &batch), 0);
	ck_assert(rig_until_set(&transfer.ended, 20000));
	return transfer.status;
}

uint64_t rig_put(struct rig_peer *peer, const char *key, size_t length, unsigned seed)
{
	static struct rig_call grant;
	ck_assert_int_eq(rig_pre_write(peer, key, length, &grant), 0);
	rig_fill(peer->memory, length, seed);
	ck_assert_int_eq(rig_transfer(peer, NEAP_WRITE, &grant, peer->memory, length), NEAP_COMPLETED);
	ck_assert_int_eq(rig_commit(peer, key, grant.reply.pre_write.write_operation_id, length, NULL, NULL), 0);
	return grant.reply.pre_write.write_operation_id;
}

bool rig_exists(const char *key)
{
	struct neap_key name = {key, (uint32_t)strlen(key)};
	return neap_owner_exists(rig.owner, &name);
}

struct neap_owner_stats rig_owner_stats(void)
{
	struct neap_owner_stats stats;
	neap_owner_stats(rig.owner, &stats);
	return stats;
}

struct neap_peer_service_stats rig_stats(void)
{
	struct neap_peer_service_stats stats;
	neap_peer_service_stats(rig.service, &stats);
	return stats;
}
