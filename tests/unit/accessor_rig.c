#include "tests/unit/accessor_rig.h"
#include "tests/support/coverage.h"
#include "transports/checksum.h"
#include "transports/engine_state.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

struct accessor_rig rig;

/* --- owners ------------------------------------------------------------------------------------------------------------------- */

static struct rig_value *find_bytes(struct rig_owner *owner, struct neap_rpc_view key)
{
	for (uint32_t i = 0; i < RIG_VALUES; i++) {
		struct rig_value *value = &owner->values[i];
		if ((value->exists || value->pending) && strlen(value->key) == key.length && memcmp(value->key, key.bytes, key.length) == 0)
			return value;
	}
	return NULL;
}

static struct rig_value *make(struct rig_owner *owner, struct neap_rpc_view key, uint64_t size)
{
	for (uint32_t i = 0; i < RIG_VALUES; i++) {
		struct rig_value *value = &owner->values[i];
		if (value->exists || value->pending)
			continue;
		*value = (struct rig_value){.size = size, .at = owner->used, .write_id = ++owner->ids};
		owner->used += (size + 63) / 64 * 64;
		ck_assert_uint_le(owner->used, RIG_MEMORY);
		ck_assert_uint_lt(key.length, sizeof value->key);
		memcpy(value->key, key.bytes, key.length);
		return value;
	}
	ck_abort_msg("too many values");
	return NULL;
}

static void commit(struct rig_owner *owner, struct rig_value *value)
{
	value->exists = true;
	value->pending = false;
	value->generation = ++owner->ids;
	value->crc = neap_crc32c(0, owner->memory + value->at, (size_t)value->size);
}

static struct committed_reply committed_of(const struct rig_owner *owner, const struct rig_value *value, bool created)
{
	return (struct committed_reply){.generation = value->generation, .size_bytes = value->size, .created = created,
	                                .has_crc = owner->with_crc, .crc32c = value->crc};
}

static void grant(struct rig_owner *owner, struct rig_value *value, unsigned rights, struct neap_rpc_view instance)
{
	ck_assert_uint_eq(instance.length, 16);
	ck_assert_int_eq(neap_grant_create(owner->engine, owner->memory + value->at, value->size, rights, (const uint8_t *)instance.bytes,
	                                   &value->token), 0);
	value->granted = true;
}

static void end_grant(struct rig_owner *owner, struct rig_value *value)
{
	if (value->granted)
		ck_assert_int_eq(neap_grant_end(owner->engine, &value->token, NULL, NULL), 0);
	value->granted = false;
}

static void note_finished(struct rig_owner *owner, const struct neap_rpc_list *list)
{
	const struct finished_pin *pins = list->items;
	for (uint32_t i = 0; i < list->count; i++)
		owner->finished[owner->finished_count++ % RIG_FINISHED_MAX] = pins[i].read_operation_id;
}

enum { GO_ON, REFUSED, HELD, LOSE, TWIST };

static uint32_t script(struct rig_owner *owner, uint32_t method, const struct neap_rpc_incoming *incoming)
{
	struct rig_script *on = &owner->on[method];
	on->calls++;
	if (on->skip) {
		on->skip--;
		return GO_ON;
	}
	if (on->refuse) {
		on->refuse--;
		ck_assert_int_eq(neap_rpc_answer(incoming->server, incoming->handle, on->status, NULL, "as the test wants", on->retry_after_ms), 0);
		return REFUSED;
	}
	if (on->hold) {
		on->hold--;
		owner->held = incoming->handle;
		owner->held_method = (uint8_t)method;
		return HELD;
	}
	if (on->twist) {
		on->twist--;
		return TWIST;
	}
	if (on->lose) {
		on->lose--;
		return LOSE;
	}
	return GO_ON;
}

static void answer(const struct neap_rpc_incoming *incoming, uint32_t how, int status, const void *reply)
{
	ck_assert_int_eq(neap_rpc_answer(incoming->server, incoming->handle, status, status ? NULL : reply, "the owner's own", 0), 0);
	if (how == LOSE)
		neap_rpc_server_drop(incoming->server, incoming->instance);
}

static void pre_write_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct pre_write *request = data;
	uint32_t how = script(owner, PRE_WRITE, incoming);
	note_finished(owner, &request->finished);
	if (how == REFUSED)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	if (value) {
		answer(incoming, how, value->exists ? NEAP_STORE_OBJECT_ALREADY_EXISTS : NEAP_STORE_REPLICA_IS_PROCESSING, NULL);
		return;
	}
	value = make(owner, request->key, request->size_bytes);
	value->pending = true;
	grant(owner, value, NEAP_MAY_WRITE, request->engine);
	const char *name = neap_engine_name(owner->engine);
	owner->slice = (struct remote_slice){.segment = {name, (uint32_t)strlen(name)}, .address = (uintptr_t)(owner->memory + value->at),
	                                     .length = how == TWIST ? value->size + 1 : value->size,
	                                     .token = {(const char *)value->token.bytes, 32}};
	owner->pre = (struct pre_write_reply){.write_operation_id = value->write_id, .remote_buffer = {&owner->slice, 1},
	                                      .lease_ms = owner->lease_ms};
	if (how != HELD)
		answer(incoming, how, 0, &owner->pre);
}

static void write_commit_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct write_commit *request = data;
	uint32_t how = script(owner, WRITE_COMMIT, incoming);
	if (how == REFUSED)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	if (!value || !value->pending || value->write_id != request->write_operation_id) {
		answer(incoming, how, NEAP_STORE_OBJECT_NOT_FOUND, NULL);
		return;
	}
	end_grant(owner, value);
	if (request->has_crc && request->crc32c != neap_crc32c(0, owner->memory + value->at, (size_t)value->size)) {
		value->pending = false;
		answer(incoming, how, NEAP_STORE_DATA_COPY_FAILED, NULL);
		return;
	}
	ck_assert_uint_eq(request->size_bytes, value->size);
	commit(owner, value);
	owner->committed = committed_of(owner, value, true);
	if (how != HELD)
		answer(incoming, how, 0, &owner->committed);
}

static void write_revoke_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct write_revoke *request = data;
	struct empty_reply reply = {0};
	uint32_t how = script(owner, WRITE_REVOKE, incoming);
	owner->quiet_revokes += request->quiet;
	if (how == REFUSED)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	if (value && value->pending && value->write_id == request->write_operation_id) {
		end_grant(owner, value);
		value->pending = false;
	}
	if (how != HELD)
		answer(incoming, how, 0, &reply);
}

static void pin_key_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct pin_key *request = data;
	uint32_t how = script(owner, PIN_KEY, incoming);
	note_finished(owner, &request->finished);
	if (how == REFUSED)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	if (!value || !value->exists) {
		answer(incoming, how, NEAP_STORE_OBJECT_NOT_FOUND, NULL);
		return;
	}
	if (!value->granted)
		grant(owner, value, NEAP_MAY_READ, request->engine);
	const char *name = neap_engine_name(owner->engine);
	owner->slice = (struct remote_slice){.segment = {name, (uint32_t)strlen(name)}, .address = (uintptr_t)(owner->memory + value->at),
	                                     .length = value->size, .token = {(const char *)value->token.bytes, how == TWIST ? 31 : 32}};
	owner->pin = (struct pin_key_reply){.read_operation_id = ++owner->ids, .remote_buffer = {&owner->slice, 1}, .lease_ms = owner->lease_ms,
	                                    .generation = value->generation, .has_crc = owner->with_crc,
	                                    .crc32c = owner->wrong_crc ? value->crc ^ 1 : value->crc};
	if (how != HELD)
		answer(incoming, how, 0, &owner->pin);
}

static void un_pin_key_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct un_pin_key *request = data;
	struct empty_reply reply = {0};
	uint32_t how = script(owner, UN_PIN_KEY, incoming);
	if (how == REFUSED)
		return;
	owner->finished[owner->finished_count++ % RIG_FINISHED_MAX] = request->read_operation_id;
	note_finished(owner, &request->finished);
	owner->unpin_items += 1 + request->finished.count;
	if (how != HELD)
		answer(incoming, how, 0, &reply);
}

static void look_up_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct look_up *request = data;
	uint32_t how = script(owner, LOOK_UP, incoming);
	if (how == REFUSED)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	struct look_up_reply reply = {.pending = (value && value->pending) || owner->pending_always};
	if (value && value->exists && how != TWIST)
		reply = (struct look_up_reply){.exists = true, .same_write = value->write_id == request->write_operation_id,
		                               .size_bytes = value->size, .generation = value->generation, .has_crc = owner->with_crc,
		                               .crc32c = value->crc};
	if (how != HELD)
		answer(incoming, how, 0, &reply);
}

/* --- owners that move the bytes ----------------------------------------------------------------------------------------------- */

struct rig_move {
	struct rig_owner *owner;
	struct rig_value *value;
	struct neap_rpc_incoming incoming;
	uint8_t instance[16];
	struct neap_request requests[NEAP_MOVE_SLICES_MAX];
	struct neap_grant_token tokens[NEAP_MOVE_SLICES_MAX];
	uint32_t count, how;
	bool read; /* ReadRemoteData */
	bool has_crc;
	uint32_t crc;
};

static struct read_remote_data_reply read_reply(const struct rig_owner *owner, const struct rig_value *value)
{
	return (struct read_remote_data_reply){.size_bytes = value->size, .generation = value->generation, .has_crc = owner->with_crc,
	                                       .crc32c = owner->wrong_crc ? value->crc ^ 1 : value->crc};
}

static void move_answer(struct rig_move *move, bool well)
{
	struct rig_owner *owner = move->owner;
	struct rig_value *value = move->value;
	int status = well ? 0 : NEAP_STORE_TRANSFER_FAIL;
	if (move->read) {
		struct read_remote_data_reply reply = read_reply(owner, value);
		reply.size_bytes += move->how == TWIST;
		(void)neap_rpc_answer(owner->server, move->incoming.handle, status, status ? NULL : &reply, "the owner could not", 0);
	} else {
		value->pending = false;
		if (well && move->has_crc && move->crc != neap_crc32c(0, owner->memory + value->at, (size_t)value->size))
			status = NEAP_STORE_DATA_COPY_FAILED;
		if (status == 0)
			commit(owner, value);
		owner->committed = committed_of(owner, value, true);
		if (move->how != HELD)
			(void)neap_rpc_answer(owner->server, move->incoming.handle, status, status ? NULL : &owner->committed, "the owner could not", 0);
	}
	if (move->how == LOSE)
		neap_rpc_server_drop(owner->server, move->instance);
	free(move);
}

static void moved(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	move_answer(user, summary->completed == summary->total);
}

static void move_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct rig_move *move = user;
	ck_assert_msg(!error, "%s", why);
	struct neap_batch_options options = {.on_batch = moved, .user = move};
	neap_batch_id batch;
	for (uint32_t i = 0; i < move->count; i++)
		move->requests[i].segment = segment;
	ck_assert_int_eq(neap_submit(move->owner->engine, move->requests, move->count, &options, &batch), 0);
}

static void move_begin(struct rig_owner *owner, const struct neap_rpc_incoming *incoming, struct rig_value *value, uint32_t how,
                       const struct neap_rpc_list *slices, bool read, bool has_crc, uint32_t crc)
{
	const struct remote_slice *slice = slices->items;
	struct rig_move *move = calloc(1, sizeof *move);
	char segment[256];
	uint64_t done = 0;
	*move = (struct rig_move){.owner = owner, .value = value, .incoming = *incoming, .count = slices->count, .how = how, .read = read,
	                          .has_crc = has_crc, .crc = crc};
	memcpy(move->instance, incoming->instance, 16);
	for (uint32_t i = 0; i < slices->count; i++) {
		ck_assert_uint_eq(slice[i].token.length, 32);
		memcpy(move->tokens[i].bytes, slice[i].token.bytes, 32);
		move->requests[i] = (struct neap_request){.opcode = read ? NEAP_WRITE : NEAP_READ, .source = owner->memory + value->at + done,
		                                          .target_offset = slice[i].address, .length = slice[i].length, .grant = &move->tokens[i]};
		done += slice[i].length;
	}
	ck_assert_uint_eq(done, value->size);
	(void)snprintf(segment, sizeof segment, "%.*s", (int)slice->segment.length, slice->segment.bytes);
	ck_assert_int_eq(neap_segment_open(owner->engine, segment, move_opened, move), 0);
}

static void write_remote_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct write_remote_data *request = data;
	const struct remote_slice *slices = request->src_buffers.items;
	uint64_t size = request->value.length;
	uint32_t how = script(owner, WRITE_REMOTE, incoming);
	note_finished(owner, &request->finished);
	if (how == REFUSED)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	if (value) {
		owner->committed = committed_of(owner, value, false);
		answer(incoming, how, value->exists ? 0 : NEAP_STORE_REPLICA_IS_PROCESSING, &owner->committed);
		return;
	}
	for (uint32_t i = 0; i < request->src_buffers.count; i++)
		size += slices[i].length;
	value = make(owner, request->key, size);
	value->pending = true;
	if (request->src_buffers.count) {
		move_begin(owner, incoming, value, how, &request->src_buffers, false, request->has_crc, (uint32_t)request->crc32c);
		return;
	}
	memcpy(owner->memory + value->at, request->value.bytes, request->value.length);
	commit(owner, value);
	owner->committed = committed_of(owner, value, true);
	if (how != HELD)
		answer(incoming, how, 0, &owner->committed);
}

static void read_remote_handle(void *user, const struct neap_rpc_incoming *incoming, const void *data)
{
	struct rig_owner *owner = user;
	const struct read_remote_data *request = data;
	uint32_t how = script(owner, READ_REMOTE, incoming);
	note_finished(owner, &request->finished);
	if (how == REFUSED || how == HELD)
		return;
	struct rig_value *value = find_bytes(owner, request->key);
	if (!value || !value->exists) {
		answer(incoming, how, NEAP_STORE_OBJECT_NOT_FOUND, NULL);
		return;
	}
	if (request->dest_buffers.count) {
		const struct remote_slice *slices = request->dest_buffers.items;
		uint64_t room = 0;
		for (uint32_t i = 0; i < request->dest_buffers.count; i++)
			room += slices[i].length;
		if (room != value->size)
			answer(incoming, how, NEAP_STORE_INVALID_PARAMS, NULL);
		else
			move_begin(owner, incoming, value, how, &request->dest_buffers, true, false, 0);
		return;
	}
	struct read_remote_data_reply reply = read_reply(owner, value);
	reply.is_inline = true;
	if (value->size <= request->inline_max)
		reply.value = (struct neap_rpc_view){(const char *)owner->memory + value->at, (uint32_t)value->size - (how == TWIST)};
	answer(incoming, how, 0, &reply);
}

void rig_answer(uint32_t index)
{
	struct rig_owner *owner = &rig.owners[index];
	static const struct empty_reply empty;
	const void *reply = owner->held_method == PRE_WRITE ? (const void *)&owner->pre
	                    : owner->held_method == PIN_KEY ? (const void *)&owner->pin
	                    : owner->held_method == WRITE_REVOKE || owner->held_method == UN_PIN_KEY ? (const void *)&empty
	                                                                                           : (const void *)&owner->committed;
	(void)neap_rpc_answer(owner->server, owner->held, 0, reply, NULL, 0);
}

static const struct neap_rpc_handler handlers[] = {
	{&neap_method_pre_write, pre_write_handle},       {&neap_method_write_commit, write_commit_handle},
	{&neap_method_write_revoke, write_revoke_handle}, {&neap_method_pin_key, pin_key_handle},
	{&neap_method_un_pin_key, un_pin_key_handle},     {&neap_method_look_up, look_up_handle},
	{&neap_method_write_remote_data, write_remote_handle}, {&neap_method_read_remote_data, read_remote_handle},
};

/* --- the world ---------------------------------------------------------------------------------------------------------------- */

static struct neap_engine *make_engine(struct sim_node *node, bool fake)
{
	char address[32], why[300];
	struct neap_engine *engine = NULL;
	sim_node_address(node, address, sizeof address);
	struct neap_engine_options options = {.local_name = address, .bind_address = address, .handshake_port = 5000, .requests_max = 512,
	                                      .batches_max = 128, .peers_max = 8, .sessions_max = 16, .regions_max = 16, .grants_max = 128,
	                                      .handshake_sessions_max = 16, .notifies_max = 4, .connect_timeout_ms = 300,
	                                      .handshake_timeout_ms = 300, .progress_timeout_ms = 1000, .drain_timeout_ms = 200};
	int error = fake ? neap_engine_create_with(&engine, node->reactor, &options, fake_transport_make, why, sizeof why)
	                 : neap_engine_create(&engine, node->reactor, &options, why, sizeof why);
	ck_assert_msg(!error, "%s", why);
	return engine;
}

static unsigned char *make_memory(struct neap_engine *engine)
{
	char why[300];
	void *memory = mmap(NULL, RIG_MEMORY, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(memory, MAP_FAILED);
	struct neap_memory region = {.address = memory, .length = RIG_MEMORY, .location = "cpu:0", .access = NEAP_GRANT_ONLY};
	ck_assert_msg(neap_memory_register(engine, &region, 1, NULL, why, sizeof why) == 0, "%s", why);
	return memory;
}

static void serve(struct rig_owner *owner)
{
	struct neap_rpc_server_options options = {.epoch = 7};
	struct neap_sockaddr address;
	char host[32], why[320];
	int system_errno;
	neap_engine_instance(owner->engine, options.instance);
	sim_node_address(owner->node, host, sizeof host);
	ck_assert_int_eq(neap_sockaddr_from_numeric(host, RIG_PORT, &address), 0);
	int error = neap_rpc_server_create(&owner->server, owner->node->reactor, &address, handlers, sizeof handlers / sizeof handlers[0],
	                                   &options, owner, &system_errno, why, sizeof why);
	ck_assert_msg(!error, "%s", why);
}

static void owner_start(uint32_t index)
{
	struct rig_owner *owner = &rig.owners[index];
	owner->node = sim_node_create(rig.sim, index + 1);
	owner->engine = make_engine(owner->node, false);
	owner->memory = make_memory(owner->engine);
	owner->lease_ms = owner->lease_ms ? owner->lease_ms : 5000;
	serve(owner);
}

static void owner_route(uint32_t index, struct neap_route *route)
{
	struct rig_owner *owner = &rig.owners[index];
	char host[32];
	*route = (struct neap_route){0};
	sim_node_address(owner->node, host, sizeof host);
	neap_engine_instance(owner->engine, route->place.instance);
	(void)snprintf(route->place.rpc, sizeof route->place.rpc, "%s:%u", host, RIG_PORT);
	(void)snprintf(route->place.engine, sizeof route->place.engine, "%s", neap_engine_name(owner->engine));
}

void rig_open(void)
{
	memset(&rig, 0, sizeof rig);
	rig.sim = sim_create(11);
	rig.sim->net = (struct sim_net_options){.delay_min_ns = 10000, .delay_max_ns = 20000, .segment_max = 65536,
	                                        .window_min = 1u << 18, .window_max = 1u << 18};
	rig.sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	rig.a = sim_node_create(rig.sim, 0);
	for (uint32_t i = 0; i < RIG_OWNERS; i++) {
		owner_start(i);
		owner_route(i, &rig.routes[i]);
	}
	rig.route_count = RIG_OWNERS;
	rig.options = (struct neap_accessor_options){.operations_max = 32, .batches_max = 4, .peers_max = 4, .pins_max = 256,
	                                             .call_timeout_ns = 200 * MS, .cleanup_timeout_ns = 500 * MS, .deadline_ns = 5000 * MS};
}

static void fire_answer(struct neap_timer *timer, void *user)
{
	(void)timer;
	(void)user;
	rig.answered(rig.answered_user, rig.question, rig.places_error, rig.routes, rig.places_error ? 0 : rig.route_count,
	             rig.places_error ? "as the test wants" : NULL);
}

static void ask(neap_placed_func *answered, void *user, uint64_t question)
{
	rig.answered = answered;
	rig.answered_user = user;
	rig.question = question;
	if (rig.answers == RIG_AT_ONCE)
		fire_answer(NULL, NULL);
	else if (rig.answers == RIG_LATER)
		(void)neap_timer_start(rig.a->reactor, &rig.answer_timer, neap_now(rig.a->reactor) + 100000, fire_answer, NULL);
}

static void write_candidates(void *directory, const struct neap_key *key, uint64_t size, neap_placed_func *answered, void *user,
                             uint64_t question)
{
	ck_assert(directory == &rig && key->length > 0 && size > 0);
	rig.asked_candidates++;
	ask(answered, user, question);
}

static void replicas(void *directory, const struct neap_key *key, neap_placed_func *answered, void *user, uint64_t question)
{
	ck_assert(directory == &rig && key->length > 0);
	rig.asked_replicas++;
	ask(answered, user, question);
}

static void report_stale(void *directory, const struct neap_key *key, const struct neap_route *route)
{
	ck_assert(directory == &rig && key->length > 0 && route->place.rpc[0]);
	rig.stale++;
}

void rig_start(void)
{
	static const struct neap_places places = {.write_candidates = write_candidates, .replicas = replicas, .report_stale = report_stale, .directory = &rig};
	if (!rig.engine) {
		rig.engine = make_engine(rig.a, rig.use_fake);
		rig.memory = make_memory(rig.engine);
		if (rig.use_fake)
			rig.fake = fake_transport_of(rig.engine);
	}
	ck_assert_int_eq(neap_accessor_create(&rig.accessor, rig.engine, &places, &rig.options), 0);
}

void rig_begin(void)
{
	rig_open();
	rig_start();
}

static void on_closed(void *user)
{
	(void)user;
	rig.closed = true;
	rig.accessor = NULL;
}

static bool is_closed(void)
{
	return rig.closed;
}

static void close_all(struct sim_node *node, void *user)
{
	(void)user;
	if (node == rig.a && rig.engine)
		ck_assert_int_eq(neap_engine_close(rig.engine, NULL, NULL), 0);
	for (uint32_t i = 0; i < RIG_OWNERS; i++)
		if (node == rig.owners[i].node) {
			neap_rpc_server_destroy(rig.owners[i].server);
			ck_assert_int_eq(neap_engine_close(rig.owners[i].engine, NULL, NULL), 0);
		}
}

static void finish(struct sim_node *node)
{
	support_cover(neap_reactor_dispatcher(node->reactor));
	ck_assert_uint_eq(sim_node_finish(node, close_all, NULL), 0);
}

void rig_end(void)
{
	if (rig.accessor) {
		neap_accessor_close(rig.accessor, on_closed, &rig);
		ck_assert(rig.accessor);
		ck_assert_msg(rig_until(is_closed, 20000), "the accessor does not close");
	}
	struct neap_engine_stats stats;
	if (rig.engine) {
		neap_engine_stats(rig.engine, &stats);
		ck_assert_uint_eq(stats.grants, 0);
	}
	finish(rig.a);
	for (uint32_t i = 0; i < RIG_OWNERS; i++) {
		finish(rig.owners[i].node);
		munmap(rig.owners[i].memory, RIG_MEMORY);
	}
	if (rig.memory)
		munmap(rig.memory, RIG_MEMORY);
	sim_destroy(rig.sim);
}

void rig_owner_restart(uint32_t index)
{
	struct rig_owner *owner = &rig.owners[index];
	uint32_t lease_ms = owner->lease_ms;
	finish(owner->node);
	munmap(owner->memory, RIG_MEMORY);
	*owner = (struct rig_owner){.lease_ms = lease_ms};
	owner_start(index);
}

bool rig_until(bool (*holds)(void), unsigned ms)
{
	uint64_t limit_ns = rig.sim->now_ns + ms * MS;
	while (!holds() && rig.sim->now_ns < limit_ns)
		sim_run_for(rig.sim, 5000);
	return holds();
}

void rig_for(unsigned ms)
{
	sim_run_for(rig.sim, ms * MS);
}

void rig_reach(uint8_t state)
{
	uint64_t limit_ns = rig.sim->now_ns + 10000 * MS;
	for (;;) {
		uint32_t index = 0;
		const struct accessor_op *op = neap_pool_next(&rig.accessor->ops, &index);
		if (op && op->machine.state == state)
			return;
		ck_assert_msg(rig.sim->now_ns < limit_ns, "it does not come to state %u, is in %s", state,
		              op ? neap_machine_state_name(&op->machine) : "none");
		sim_run_for(rig.sim, 1000);
	}
}

void rig_cut_all(uint32_t owner)
{
	for (int i = 0; i < 64; i++) /* each is chosen by chance, dead ones too */
		(void)sim_cut_one(rig.sim, 0, owner + 1, true);
}

/* --- values and operations ---------------------------------------------------------------------------------------------------- */

static uint8_t byte_of(const char *key, uint64_t i)
{
	return (uint8_t)((uint64_t)(uint8_t)key[0] * 31 + (uint8_t)key[strlen(key) - 1] + i * 7 + (i >> 8) * 13);
}

static void fill(const char *key, uint64_t size, unsigned char *bytes)
{
	for (uint64_t i = 0; i < size; i++)
		bytes[i] = byte_of(key, i);
}

void rig_fill(const char *key, uint64_t size, uint64_t at)
{
	fill(key, size, rig.memory + at);
}

bool rig_filled(const char *key, uint64_t size, const unsigned char *bytes)
{
	for (uint64_t i = 0; i < size; i++)
		if (bytes[i] != byte_of(key, i))
			return false;
	return true;
}

uint32_t rig_crc(const char *key, uint64_t size)
{
	unsigned char *bytes = malloc(size);
	fill(key, size, bytes);
	uint32_t crc = neap_crc32c(0, bytes, size);
	free(bytes);
	return crc;
}

struct rig_value *rig_find(uint32_t owner, const char *key)
{
	return find_bytes(&rig.owners[owner], neap_rpc_view_of(key, strlen(key)));
}

struct rig_value *rig_have(uint32_t index, const char *key, uint64_t size)
{
	struct rig_owner *owner = &rig.owners[index];
	struct rig_value *value = make(owner, neap_rpc_view_of(key, strlen(key)), size);
	fill(key, size, owner->memory + value->at);
	commit(owner, value);
	return value;
}

void rig_done(void *user, const struct neap_store_outcome *outcome)
{
	struct rig_op *op = user;
	op->times++;
	op->outcome = *outcome;
	(void)snprintf(op->why, sizeof op->why, "%s", outcome->why);
	if (outcome->unsettled)
		op->unsettled = *outcome->unsettled;
	if (outcome->place)
		op->place = *outcome->place;
	ck_assert((outcome->status == NEAP_STORE_UNKNOWN) == (outcome->unsettled != NULL));
	ck_assert((outcome->status == NEAP_STORE_SUCCESS) == (outcome->why[0] == '\0'));
	if (op->then)
		op->then(op);
}

static struct neap_key key_of(const char *key)
{
	return (struct neap_key){key, (uint32_t)strlen(key)};
}

/* Slices of unequal length, with gaps between them. */
static void cut(struct neap_slice_of *slices, uint64_t size, uint32_t count, unsigned char *memory)
{
	uint64_t done = 0;
	for (uint32_t i = 0; i < count; i++) {
		uint64_t length = i + 1 == count ? size - done : size / count + (i % 2 ? 0 : 1);
		slices[i] = (struct neap_slice_of){memory + done + i * 64, length};
		done += length;
	}
}

int rig_put_of(struct rig_op *op, const char *key, uint64_t size, uint32_t count, const struct neap_put_options *options)
{
	struct neap_slice_of slices[NEAP_MOVE_SLICES_MAX];
	struct neap_key name = key_of(key);
	unsigned char *bytes = malloc(size);
	uint64_t done = 0;
	*op = (struct rig_op){.then = op->then};
	cut(slices, size, count, rig.memory);
	fill(key, size, bytes);
	for (uint32_t i = 0; i < count; i++) {
		memcpy(slices[i].address, bytes + done, slices[i].length);
		done += slices[i].length;
	}
	free(bytes);
	int error = neap_accessor_put(rig.accessor, &name, slices, count, options, rig_done, op, &op->id);
	memset(slices, 0xee, sizeof slices);
	ck_assert_uint_eq(op->times, 0);
	return error;
}

int rig_get_of(struct rig_op *op, const char *key, uint64_t size, uint32_t count, const struct neap_get_options *options)
{
	struct neap_slice_of slices[NEAP_MOVE_SLICES_MAX];
	struct neap_key name = key_of(key);
	*op = (struct rig_op){.then = op->then};
	cut(slices, size, count, rig.memory);
	memset(rig.memory, 0, size + 64 * count);
	int error = neap_accessor_get(rig.accessor, &name, slices, count, options, rig_done, op, &op->id);
	memset(slices, 0xee, sizeof slices);
	ck_assert_uint_eq(op->times, 0);
	return error;
}

static void released(void *user)
{
	struct rig_op *op = user;
	ck_assert(op->times == 1 && op->outcome.held);
	op->released++;
}

void rig_put(struct rig_op *op, const char *key, uint64_t size, enum neap_direction direction)
{
	struct neap_put_options options = {.direction = direction, .released = released};
	ck_assert_int_eq(rig_put_of(op, key, size, 1, &options), 0);
}

void rig_get(struct rig_op *op, const char *key, uint64_t size, enum neap_direction direction)
{
	struct neap_get_options options = {.direction = direction, .released = released};
	ck_assert_int_eq(rig_get_of(op, key, size, 1, &options), 0);
}

void rig_expect(struct rig_op *op, enum neap_store_status status, int error)
{
	uint64_t limit_ns = rig.sim->now_ns + 30000 * MS;
	while (op->times == 0 && rig.sim->now_ns < limit_ns)
		sim_run_for(rig.sim, 5000);
	ck_assert_msg(op->times == 1, "%u outcomes", op->times);
	ck_assert_msg(op->outcome.status == status && op->outcome.error == error, "status %d error %d: %s", (int)op->outcome.status,
	              op->outcome.error, op->why);
}

struct neap_accessor_stats rig_stats(void)
{
	struct neap_accessor_stats stats;
	neap_accessor_stats(rig.accessor, &stats);
	return stats;
}

/* It has lost what it remembered of request ids, and nothing else. */
void rig_server_restart(uint32_t index)
{
	struct rig_owner *owner = &rig.owners[index];
	neap_rpc_server_destroy(owner->server);
	rig_for(1);
	serve(owner);
}
