/* Puts, and what is asked about them afterwards. */
#include "store/accessor/inside.h"
#include <string.h>

#define AGAIN_MAX 2u /* times that one owner says "exists" and then has nothing */

static void post(struct accessor_op *op, uint8_t event)
{
	(void)neap_post(&op->machine, event, 0);
}

/* Not done, but a reservation is left behind. */
static void leave_behind(struct accessor_op *op, uint8_t event)
{
	op->cleanup_ns = accessor_now(op) + op->accessor->options.cleanup_timeout_ns;
	accessor_step(op, event);
}

static void give_up_sure(struct accessor_op *op, bool perhaps)
{
	(void)perhaps;
	accessor_step(op, store_put_on_REFUSED);
}

void put_there_elsewhere(struct accessor_op *op)
{
	struct neap_store_outcome *outcome = &op->outcome;
	outcome->status = NEAP_STORE_SUCCESS;
	outcome->created = false;
	outcome->generation = 0;
	outcome->size = op->total;
	outcome->has_crc = op->unsettled.has_crc;
	outcome->crc = op->unsettled.crc;
	op->accessor->stats.existed++;
}

/* What the directory made of a value that its owner had committed already. False: it is about something else. */
static bool directory_refused(struct accessor_op *op, int status)
{
	switch (status) {
	case NEAP_STORE_REPLICA_NUM_EXCEEDED:
		put_there_elsewhere(op);
		accessor_step(op, store_put_on_ANSWERED);
		return true;
	case NEAP_STORE_CAS_FAILED: /* with another value: no other owner can take ours */
		op->outcome.error = NEAP_STORE_OBJECT_ALREADY_EXISTS;
		op->final = true;
		accessor_step(op, store_put_on_REFUSED);
		return true;
	case NEAP_STORE_INVALID_KEY:
		op->final = true;
		accessor_step(op, store_put_on_REFUSED);
		return true;
	case NEAP_STORE_REPLICA_IS_NOT_READY: /* it is there, and may become known yet */
		accessor_step(op, store_put_on_UNSURE);
		return true;
	default:
		return false;
	}
}

static void refused_plainly(struct accessor_op *op, int status)
{
	if (status == NEAP_STORE_OBJECT_ALREADY_EXISTS || status == NEAP_STORE_REPLICA_ALREADY_EXISTS)
		accessor_step(op, store_put_on_EXISTS);
	else
		accessor_step(op, store_put_on_REFUSED);
}

/* --- what is there now -------------------------------------------------------------------------------------------------------- */

static bool differs(const struct accessor_op *op, uint64_t size, bool has_crc, uint32_t crc)
{
	const struct neap_unsettled *ours = &op->unsettled;
	return (ours->size && size != ours->size) || (ours->has_crc && has_crc && crc != ours->crc);
}

/* At the present owner, or in this process. */
void put_conclude(struct accessor_op *op, bool created, uint64_t size, uint64_t generation, bool has_crc, uint32_t crc)
{
	struct neap_store_outcome *outcome = &op->outcome;
	outcome->size = size;
	outcome->generation = generation;
	outcome->has_crc = has_crc;
	outcome->crc = crc;
	outcome->created = created;
	op->accessor->stats.existed += !created;
	if (!created && differs(op, size, has_crc, crc)) {
		op->stopped = 0;
		accessor_blame(op, NEAP_STORE_OBJECT_ALREADY_EXISTS, "the key has another value: %llu bytes", (unsigned long long)size);
		outcome->status = NEAP_STORE_FAILED;
	} else {
		outcome->status = NEAP_STORE_SUCCESS;
		if (!op->peer)
			return;
		struct neap_route route = {.place = op->peer->place, .size = size, .generation = generation};
		neap_route_cache_keep(op->accessor->routes, &(struct neap_key){op->key, op->key_length}, &route, 1);
	}
}

static void committed(struct accessor_op *op, const void *data)
{
	const struct committed_reply *reply = data;
	put_conclude(op, reply->created, reply->size_bytes, reply->generation, reply->has_crc, (uint32_t)reply->crc32c);
	accessor_step(op, store_put_on_ANSWERED);
}

/* --- candidates --------------------------------------------------------------------------------------------------------------- */

static void look_placed(struct accessor_op *op)
{
	if (op->placed && op->summed)
		accessor_step(op, op->exists ? (uint8_t)store_put_on_EXISTS : (uint8_t)store_put_on_ANSWERED);
}

void put_placed(struct accessor_op *op)
{
	op->placed = true;
	if (op->route_count == 0)
		accessor_step(op, store_put_on_REFUSED);
	else
		look_placed(op);
}

void put_summed(struct accessor_op *op)
{
	op->summed = op->unsettled.has_crc = true;
	op->unsettled.crc = op->sum;
	look_placed(op);
}

static void do_place(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	if (op->stopped) {
		post(op, store_put_on_CANCEL);
		return;
	}
	if (!op->summed)
		accessor_sum(op);
	accessor_ask_directory(op);
}

static void next(struct accessor_op *op)
{
	accessor_leave_owner(op);
	accessor_recall(op);
	op->unsettled.write_id = 0; /* of the owner before: another one may have given the same number to somebody else */
	op->final = op->final || op->lent > 0; /* the old grants could not be ended: no room for new ones */
	if (!accessor_next_owner(op)) {
		post(op, store_put_on_EMPTY);
		return;
	}
	if (op->way == NEAP_WAY_FORWARD)
		accessor_reach(op);
	else
		post(op, store_put_on_REVERSE);
}

static void do_next(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	next(accessor_op_of(machine));
}

/* --- FORWARD ------------------------------------------------------------------------------------------------------------------ */

static void reserved(struct accessor_op *op, const void *data)
{
	const struct pre_write_reply *reply = data;
	const struct remote_slice *slice = reply->remote_buffer.items;
	op->owner_id = reply->write_operation_id;
	op->revokes = 0;
	op->loose = false;
	op->unsettled.write_id = op->owner_id;
	bool usable = reply->remote_buffer.count == 1 && slice->length == op->total && slice->token.length == sizeof op->remote_token.bytes;
	if (usable) {
		op->remote_address = slice->address;
		peer_token_take(slice, &op->remote_token);
	}
	bool in_time = accessor_take_lease(op, reply->lease_ms);
	if (!usable)
		accessor_blame(op, NEAP_STORE_INTERNAL_ERROR, "the owner's reservation is not for this value");
	else if (!in_time)
		accessor_blame(op, NEAP_STORE_LEASE_EXPIRED, "the reservation came when its lease was almost over");
	if (usable && in_time && !op->stopped)
		accessor_step(op, store_put_on_ANSWERED);
	else
		leave_behind(op, store_put_on_LATE);
}

static const struct ask ask_pre_write = {.method = &neap_method_pre_write, .answered = reserved, .refused = refused_plainly,
                                         .given_up = give_up_sure, .lost_event = store_put_on_LOST};

static void do_reserve(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct finished_pin pins[NEAP_STORE_PEER_PINS_MAX];
	(void)argument;
	struct pre_write request = {.key = accessor_key_view(op), .size_bytes = op->total,
	                            .engine = {(const char *)op->accessor->instance, sizeof op->accessor->instance},
	                            .has_tier = op->route->has_tier, .target_tier = op->route->tier,
	                            .finished = accessor_ride(op, &ask_pre_write, pins)};
	accessor_ask(op, &ask_pre_write, &request);
}

static void do_write(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	if (accessor_transfer(op, NEAP_WRITE))
		leave_behind(op, store_put_on_BROKEN);
}

void put_transferred(struct accessor_op *op, bool completed)
{
	if (completed && !op->stopped)
		accessor_step(op, store_put_on_ANSWERED);
	else
		leave_behind(op, store_put_on_BROKEN);
}

/* REPLICA_IS_PROCESSING: an earlier attempt of this commit is under way, how it ends is not known here. Some refusals mean that the
 * reservation has gone with it. */
static void commit_refused(struct accessor_op *op, int status)
{
	if (directory_refused(op, status))
		return;
	if (status == NEAP_STORE_REPLICA_IS_PROCESSING)
		accessor_step(op, store_put_on_UNSURE);
	else if (status == NEAP_STORE_OBJECT_ALREADY_EXISTS)
		accessor_step(op, store_put_on_EXISTS);
	else if (status == NEAP_STORE_LEASE_EXPIRED || status == NEAP_STORE_OBJECT_NOT_FOUND || status == NEAP_STORE_DATA_COPY_FAILED)
		accessor_step(op, store_put_on_REFUSED);
	else
		leave_behind(op, store_put_on_BROKEN);
}

static void commit_given_up(struct accessor_op *op, bool perhaps)
{
	if (perhaps)
		accessor_step(op, store_put_on_UNSURE);
	else
		leave_behind(op, store_put_on_BROKEN);
}

static const struct ask ask_commit = {.method = &neap_method_write_commit, .answered = committed, .refused = commit_refused,
                                      .given_up = commit_given_up, .lost_event = store_put_on_LOST, .insist = true};

static void do_commit(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	struct write_commit request = {.key = accessor_key_view(op), .write_operation_id = op->owner_id, .size_bytes = op->total,
	                               .has_crc = op->unsettled.has_crc, .crc32c = op->unsettled.crc};
	accessor_ask(op, &ask_commit, &request);
}

/* --- revoke ------------------------------------------------------------------------------------------------------------------- */

static void revoked(struct accessor_op *op, const void *reply)
{
	(void)reply;
	accessor_step(op, store_put_on_ANSWERED);
}

/* LEASE_EXPIRED: it is cleaned. What may go well another time is asked again; that an id is unknown will not. */
static void revoke_refused(struct accessor_op *op, int status)
{
	bool cleaned = status == NEAP_STORE_LEASE_EXPIRED;
	bool recoverable = status != NEAP_STORE_INVALID_WRITE && status != NEAP_STORE_INVALID_PARAMS && status != NEAP_STORE_OBJECT_NOT_FOUND &&
	                   status != NEAP_STORE_NOT_IMPLEMENTED;
	if (cleaned)
		accessor_step(op, store_put_on_ANSWERED);
	else if (recoverable && ++op->revokes < op->accessor->options.revokes_max && accessor_now(op) < op->cleanup_ns)
		accessor_step(op, store_put_on_LOST);
	else
		accessor_step(op, store_put_on_REFUSED);
}

static const struct ask ask_revoke = {.method = &neap_method_write_revoke, .answered = revoked, .refused = revoke_refused,
                                      .given_up = give_up_sure, .lost_event = store_put_on_LOST, .insist = true, .blameless = true,
                                      .cleans = true};

static void do_revoke(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct write_revoke request = {.key = accessor_key_view(op), .write_operation_id = op->owner_id, .quiet = !op->loose};
	(void)argument;
	op->accessor->stats.revokes++;
	accessor_ask(op, &ask_revoke, &request);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	op->accessor->stats.revokes_failed++;
	next(op);
}

/* --- REVERSE ------------------------------------------------------------------------------------------------------------------ */

static void move_given_up(struct accessor_op *op, bool perhaps)
{
	accessor_step(op, perhaps ? (uint8_t)store_put_on_UNSURE : (uint8_t)store_put_on_REFUSED);
}

static void move_refused(struct accessor_op *op, int status)
{
	if (!directory_refused(op, status))
		refused_plainly(op, status);
}

static const struct ask ask_move = {.method = &neap_method_write_remote_data, .answered = committed, .refused = move_refused,
                                    .given_up = move_given_up, .lost_event = store_put_on_LOST, .moves = true};

static void do_move(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct finished_pin pins[NEAP_STORE_PEER_PINS_MAX];
	struct remote_slice slices[NEAP_MOVE_SLICES_MAX];
	char value[NEAP_INLINE_MAX];
	struct write_remote_data request = {.key = accessor_key_view(op), .has_tier = op->route->has_tier, .target_tier = op->route->tier,
	                                    .has_crc = op->unsettled.has_crc, .crc32c = op->unsettled.crc};
	(void)argument;
	/* The call's deadline travels with it; what the network delays, it delays for no longer than that. */
	op->unsettled.until_ns = op->deadline_ns + op->accessor->options.call_timeout_ns;
	op->unsettled.write_id = 0;
	if (op->way == NEAP_WAY_INLINE) {
		accessor_copy_out(op, value);
		request.value = (struct neap_rpc_view){value, (uint32_t)op->total};
	} else {
		uint32_t count;
		if (accessor_lend(op, NEAP_MAY_READ, slices, &count)) {
			op->final = true;
			post(op, store_put_on_REFUSED);
			return;
		}
		request.src_buffers = (struct neap_rpc_list){slices, count};
	}
	request.finished = accessor_ride(op, &ask_move, pins);
	accessor_ask(op, &ask_move, &request);
}

/* --- what the key has --------------------------------------------------------------------------------------------------------- */

/* Of a put that was told "exists". */
static void seen(struct accessor_op *op, const struct look_up_reply *reply)
{
	if (!reply->exists) {
		accessor_step(op, store_put_on_EMPTY);
		return;
	}
	bool same = reply->same_write && op->unsettled.write_id != 0;
	put_conclude(op, same, reply->size_bytes, reply->generation, reply->has_crc, (uint32_t)reply->crc32c);
	accessor_step(op, store_put_on_ANSWERED);
}

/* Of an unsettled one. Nothing there and nothing pending: it will not come any more, unless the call itself may still be on its way. */
static void settled(struct accessor_op *op, const struct look_up_reply *reply)
{
	const struct neap_unsettled *ours = &op->unsettled;
	if (reply->exists) {
		bool same = reply->same_write && ours->write_id != 0;
		put_conclude(op, same, reply->size_bytes, reply->generation, reply->has_crc, (uint32_t)reply->crc32c);
		accessor_step(op, store_put_on_ANSWERED);
	} else if (reply->pending || (ours->write_id == 0 && accessor_now(op) < ours->until_ns)) {
		accessor_blame(op, NEAP_STORE_REPLICA_IS_PROCESSING, "the write may still be committed");
		accessor_step(op, store_put_on_UNSURE);
	} else {
		accessor_blame(op, NEAP_STORE_OBJECT_NOT_FOUND, "the owner has no value under the key, and no write of it pending");
		accessor_step(op, store_put_on_ANSWERED);
	}
}

static void looked(struct accessor_op *op, const void *reply)
{
	if (op->kind == ACCESSOR_RESOLVE)
		settled(op, reply);
	else
		seen(op, reply);
}

/* The error is that of the look: to say that the key has another value would be more than is known. */
static void look_over(struct accessor_op *op)
{
	accessor_step(op, op->kind == ACCESSOR_RESOLVE ? store_put_on_UNSURE : store_put_on_REFUSED);
}

static void look_refused(struct accessor_op *op, int status)
{
	(void)status;
	look_over(op);
}

static void look_given_up(struct accessor_op *op, bool perhaps)
{
	(void)perhaps;
	look_over(op);
}

static const struct ask ask_look = {.method = &neap_method_look_up, .answered = looked, .refused = look_refused,
                                    .given_up = look_given_up, .lost_event = store_put_on_LOST, .insist = true};

static void do_look(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct look_up request = {.key = accessor_key_view(op), .write_operation_id = op->unsettled.write_id};
	(void)argument;
	if (op->stopped || (!op->peer && !accessor_next_owner(op))) {
		post(op, op->kind == ACCESSOR_RESOLVE ? (uint8_t)store_put_on_UNSURE : (uint8_t)store_put_on_REFUSED);
		return;
	}
	accessor_ask(op, &ask_look, &request);
}

/* It is not there after all: it was removed meanwhile. The same owner once more. */
static void do_again(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	accessor_blame(op, NEAP_EAGAIN, "the key had a value, and then had none");
	if (op->agains++ < AGAIN_MAX)
		op->next_route--;
	next(op);
}

/* --- pauses and ends ---------------------------------------------------------------------------------------------------------- */

static void do_pause(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_pause(accessor_op_of(machine), store_put_on_RESUME);
}

static void do_cut(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_cut(accessor_op_of(machine));
}

static void end(struct accessor_op *op)
{
	op->asking = false;
	op->sum_left = 0;
	neap_ready_cancel(op->accessor->reactor, &op->work);
	neap_store_peer_wait_no_more(&op->waiter);
	accessor_recall(op);
}

static void do_end(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	end(accessor_op_of(machine));
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	accessor_stop(op, NEAP_ETIMEDOUT);
	end(op);
}

static void unsure(struct accessor_op *op)
{
	op->outcome.status = NEAP_STORE_UNKNOWN;
	if (op->way == NEAP_WAY_LOCAL)
		op->unsettled.place = op->accessor->options.here;
	else if (op->route)
		op->unsettled.place = op->route->place;
	end(op);
}

static void do_unsure(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	unsure(accessor_op_of(machine));
}

static void do_forget(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	accessor_forget_settling(op);
	unsure(op);
}

void put_quiet(struct accessor_op *op)
{
	if (op->machine.state == store_put_ENDING)
		accessor_step(op, op->held ? (uint8_t)store_put_on_HELD : (uint8_t)store_put_on_QUIET);
}

static void do_tell(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_tell(accessor_op_of(machine), false);
}

static void do_tell_held(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_tell(accessor_op_of(machine), true);
}

static void do_release(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_release(accessor_op_of(machine));
}

static neap_action_func *const actions[] = {
	[store_put_do_place] = do_place,     [store_put_do_next] = do_next,           [store_put_do_reserve] = do_reserve,
	[store_put_do_write] = do_write,     [store_put_do_commit] = do_commit,       [store_put_do_revoke] = do_revoke,
	[store_put_do_move] = do_move,       [store_put_do_look] = do_look,           [store_put_do_pause] = do_pause,
	[store_put_do_stop] = accessor_do_stop,       [store_put_do_halt] = accessor_do_halt,           [store_put_do_cut] = do_cut,
	[store_put_do_expire] = do_expire,   [store_put_do_give_up] = do_give_up,     [store_put_do_again] = do_again,
	[store_put_do_unsure] = do_unsure,   [store_put_do_end] = do_end,             [store_put_do_tell] = do_tell,
	[store_put_do_tell_held] = do_tell_held, [store_put_do_release] = do_release,
	[store_put_do_keep] = accessor_do_keep, [store_put_do_settle] = accessor_do_settle, [store_put_do_forget] = do_forget,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct accessor_op *op = accessor_op_of(machine);
	(void)now_ns;
	return timeout_class == store_put_timeout_CLEANUP ? op->cleanup_ns : op->deadline_ns;
}

const struct neap_machine_kind store_put_kind = {
	.fsm = &neap_fsm_store_put,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct accessor_op),
	.due_ns = due_ns,
	.broken = accessor_broken,
};
