/* Gets. */
#include "store/accessor/inside.h"
#include <string.h>

static void post(struct accessor_op *op, uint8_t event)
{
	(void)neap_post(&op->machine, event, 0);
}

/* --- routes ------------------------------------------------------------------------------------------------------------------- */

void get_placed(struct accessor_op *op)
{
	struct neap_key key = accessor_key(op);
	if (op->route_count == 0) {
		accessor_step(op, store_get_on_REFUSED);
		return;
	}
	neap_route_cache_keep(op->accessor->routes, &key, op->routes, op->route_count);
	accessor_step(op, store_get_on_ANSWERED);
}

/* The cache first; a second time the directory, once. */
static void do_find(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct neap_key key = accessor_key(op);
	(void)argument;
	if (op->stopped) {
		post(op, store_get_on_CANCEL);
		return;
	}
	op->next_route = 0;
	op->route_count = op->from_cache ? 0 : neap_route_cache_find(op->accessor->routes, &key, op->routes);
	op->from_cache = op->route_count > 0;
	if (op->from_cache) {
		post(op, store_get_on_ANSWERED);
		return;
	}
	op->asked_directory = true;
	accessor_ask_directory(op);
}

static void do_next(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	accessor_leave_owner(op);
	op->has_expected = false;
	if (accessor_next_owner(op)) {
		if (op->way == NEAP_WAY_FORWARD)
			accessor_reach(op);
		else
			post(op, store_get_on_REVERSE);
		return;
	}
	/* Once more, whatever the routes came from: a value moves, or one moment was a bad one. */
	bool anew = !op->stopped && !op->final && !op->asked_anew && op->tries < 2 * NEAP_ROUTES_MAX;
	op->asked_anew = true;
	op->from_cache = true;
	op->accessor->stats.read_retries += anew;
	post(op, anew ? (uint8_t)store_get_on_ANEW : (uint8_t)store_get_on_EMPTY);
}

/* What the owner says of the value. False: it cannot be had into these slices, or the route was wrong. */
static bool take_value(struct accessor_op *op, uint64_t size, uint64_t generation, bool has_crc, uint64_t crc)
{
	op->outcome.size = size;
	op->outcome.generation = generation;
	op->outcome.has_crc = has_crc;
	op->outcome.crc = (uint32_t)crc;
	op->has_expected = has_crc && op->verify;
	op->expected = (uint32_t)crc;
	if (op->route->size && op->route->size != size)
		accessor_stale(op); /* the owner knows better */
	if (size > op->total) {
		accessor_blame(op, NEAP_STORE_BUFFER_OVERFLOW, "the value has %llu bytes, the slices %llu", (unsigned long long)size,
		               (unsigned long long)op->total);
		op->final = true;
		return false;
	}
	op->length = size;
	return true;
}

static void refused(struct accessor_op *op, int status)
{
	if (status == NEAP_STORE_OBJECT_NOT_FOUND || status == NEAP_STORE_INVALID_PARAMS || status == NEAP_STORE_REPLICA_IS_GONE)
		accessor_stale(op);
}

/* --- FORWARD ------------------------------------------------------------------------------------------------------------------ */

static void pin_over(struct accessor_op *op)
{
	struct neap_key key = accessor_key(op);
	if (op->owner_id)
		neap_store_peer_finished(op->peer, &key, op->owner_id);
	op->owner_id = 0;
}

static void pinned(struct accessor_op *op, const void *data)
{
	const struct pin_key_reply *reply = data;
	const struct remote_slice *slice = reply->remote_buffer.items;
	op->owner_id = reply->read_operation_id;
	bool usable = reply->remote_buffer.count == 1 && slice->token.length == sizeof op->remote_token.bytes;
	bool in_time = accessor_take_lease(op, reply->lease_ms);
	if (!usable)
		accessor_blame(op, NEAP_STORE_INTERNAL_ERROR, "the owner's pin names no memory");
	else if (!in_time)
		accessor_blame(op, NEAP_STORE_LEASE_EXPIRED, "the pin came when its lease was almost over");
	if (!usable || !in_time || op->stopped || !take_value(op, slice->length, reply->generation, reply->has_crc, reply->crc32c)) {
		pin_over(op);
		/* Late is not the owner's fault alone: it is asked once more, for another pin. */
		bool once_more = usable && !in_time && !op->stopped && op->agains++ == 0;
		accessor_step(op, once_more ? (uint8_t)store_get_on_LOST : (uint8_t)store_get_on_REFUSED);
		return;
	}
	op->remote_address = slice->address;
	peer_token_take(slice, &op->remote_token);
	accessor_step(op, store_get_on_ANSWERED);
}

static void pin_refused(struct accessor_op *op, int status)
{
	refused(op, status);
	accessor_step(op, store_get_on_REFUSED);
}

static void pin_given_up(struct accessor_op *op, bool perhaps)
{
	(void)perhaps;
	accessor_forget_route(op);
	accessor_step(op, store_get_on_REFUSED);
}

static const struct ask ask_pin = {.method = &neap_method_pin_key, .answered = pinned, .refused = pin_refused, .given_up = pin_given_up,
                                   .lost_event = store_get_on_LOST};

static void do_pin(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct finished_pin pins[NEAP_STORE_PEER_PINS_MAX];
	(void)argument;
	struct pin_key request = {.key = accessor_key_view(op),
	                          .engine = {(const char *)op->accessor->instance, sizeof op->accessor->instance},
	                          .finished = accessor_ride(op, &ask_pin, pins)};
	accessor_ask(op, &ask_pin, &request);
}

static void do_read(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	if (!accessor_transfer(op, NEAP_READ))
		return;
	pin_over(op);
	post(op, store_get_on_BROKEN);
}

/* What was read after the pin may have been something else. While the transport has the buffer the pin stands, and nobody else may write
 * into it: the get ends here. */
void get_transferred(struct accessor_op *op, bool completed)
{
	if (op->held) {
		accessor_step(op, store_get_on_HELD);
		return;
	}
	bool late = completed && accessor_now(op) >= op->guard_ns;
	if (late) {
		op->accessor->stats.late++;
		accessor_blame(op, NEAP_STORE_LEASE_EXPIRED, "the read ended when its pin's lease was almost over");
	}
	pin_over(op);
	if (!completed)
		accessor_forget_route(op);
	/* What cannot be read within a lease is for its owner to bring: that has none. */
	if (late || (!completed && op->failure.status == NEAP_TIMEOUT))
		op->direction = NEAP_REVERSE;
	accessor_step(op, completed && !late && !op->stopped ? (uint8_t)store_get_on_ANSWERED : (uint8_t)store_get_on_BROKEN);
}

/* --- REVERSE ------------------------------------------------------------------------------------------------------------------ */

static void over(struct accessor_op *op, uint8_t verdict)
{
	op->verdict = verdict;
	accessor_step(op, store_get_on_OVER);
}

static void moved(struct accessor_op *op, const void *data)
{
	const struct read_remote_data_reply *reply = data;
	bool has_value = take_value(op, reply->size_bytes, reply->generation, reply->has_crc, reply->crc32c);
	bool whole = reply->is_inline ? reply->value.length == reply->size_bytes : op->lent > 0 && reply->size_bytes == op->lent_bytes;
	if (has_value && !whole) {
		accessor_blame(op, NEAP_STORE_INTERNAL_ERROR, "the owner's answer is not as long as the value it tells of");
		has_value = false;
	}
	if (has_value && reply->is_inline)
		accessor_copy_in(op, reply->value.bytes, reply->value.length);
	over(op, has_value ? (uint8_t)store_get_on_ANSWERED : (uint8_t)store_get_on_REFUSED);
}

static void move_refused(struct accessor_op *op, int status)
{
	refused(op, status);
	over(op, store_get_on_REFUSED);
}

/* An earlier attempt may still bring another version than the next one: its grants end first. */
static void move_lost(struct accessor_op *op)
{
	over(op, store_get_on_RESUME);
}

static void move_given_up(struct accessor_op *op, bool perhaps)
{
	(void)perhaps;
	accessor_forget_route(op);
	over(op, store_get_on_REFUSED);
}

static const struct ask ask_move = {.method = &neap_method_read_remote_data, .answered = moved, .refused = move_refused, .lost = move_lost,
                                    .given_up = move_given_up, .moves = true};

static void do_move(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct finished_pin pins[NEAP_STORE_PEER_PINS_MAX];
	struct remote_slice slices[NEAP_MOVE_SLICES_MAX];
	uint32_t count;
	struct read_remote_data request = {.key = accessor_key_view(op)};
	(void)argument;
	if (op->stopped) { /* meanwhile */
		if (op->ask)
			accessor_cut(op);
		else
			over(op, store_get_on_REFUSED);
		return;
	}
	if (op->route->size > op->total) { /* nobody needs to be asked */
		op->outcome.size = op->route->size;
		accessor_blame(op, NEAP_STORE_BUFFER_OVERFLOW, "the value has %llu bytes, the slices %llu", (unsigned long long)op->route->size,
		               (unsigned long long)op->total);
		op->final = true;
		over(op, store_get_on_REFUSED);
		return;
	}
	/* Exactly the value, as far as it is known. */
	op->length = op->route->size && op->route->size < op->total ? op->route->size : op->total;
	if (op->way == NEAP_WAY_INLINE) {
		request.inline_max = op->total < op->accessor->options.inline_max ? op->total : op->accessor->options.inline_max;
	} else if (accessor_lend(op, NEAP_MAY_WRITE, slices, &count)) {
		op->final = true;
		over(op, store_get_on_REFUSED);
		return;
	} else {
		request.dest_buffers = (struct neap_rpc_list){slices, count};
		op->lent_bytes = op->length;
	}
	request.finished = accessor_ride(op, &ask_move, pins);
	accessor_ask(op, &ask_move, &request);
}

static void do_recall(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_recall(accessor_op_of(machine));
}

void get_quiet(struct accessor_op *op)
{
	if (op->machine.state != store_get_RECALLING)
		return;
	if (op->verdict == store_get_on_RESUME)
		accessor_pause(op, store_get_on_RESUME);
	else
		accessor_step(op, op->verdict);
}

/* --- is it right ---------------------------------------------------------------------------------------------------------------- */

static void succeed(struct accessor_op *op)
{
	op->outcome.status = NEAP_STORE_SUCCESS;
	accessor_step(op, store_get_on_ANSWERED);
}

static void do_check(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	if (op->has_expected)
		accessor_sum(op);
	else
		succeed(op);
}

void get_summed(struct accessor_op *op)
{
	if (op->sum == op->expected) {
		succeed(op);
		return;
	}
	op->accessor->stats.wrong_sums++;
	accessor_blame(op, NEAP_STORE_DATA_COPY_FAILED, "the bytes have crc32c %08x, the value has %08x", op->sum, op->expected);
	accessor_forget_route(op);
	accessor_step(op, store_get_on_BROKEN);
}

/* --- pauses and ends ---------------------------------------------------------------------------------------------------------- */

static void do_pause(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	accessor_pause(accessor_op_of(machine), store_get_on_RESUME);
}

static void end(struct accessor_op *op, bool held)
{
	op->asking = false;
	neap_store_peer_wait_no_more(&op->waiter);
	accessor_tell(op, held);
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	accessor_stop(op, NEAP_ETIMEDOUT);
	end(op, false);
}

static void do_tell(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	end(accessor_op_of(machine), false);
}

static void do_tell_held(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	end(accessor_op_of(machine), true);
}

static void do_release(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	(void)argument;
	pin_over(op);
	accessor_release(op);
}

static neap_action_func *const actions[] = {
	[store_get_do_find] = do_find,     [store_get_do_next] = do_next,   [store_get_do_pin] = do_pin,
	[store_get_do_read] = do_read,     [store_get_do_move] = do_move,   [store_get_do_recall] = do_recall,
	[store_get_do_check] = do_check,   [store_get_do_pause] = do_pause, [store_get_do_stop] = accessor_do_stop,
	[store_get_do_halt] = accessor_do_halt,     [store_get_do_expire] = do_expire, [store_get_do_tell] = do_tell,
	[store_get_do_tell_held] = do_tell_held, [store_get_do_release] = do_release, [store_get_do_fetch] = accessor_do_fetch,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return accessor_op_of(machine)->deadline_ns;
}

const struct neap_machine_kind store_get_kind = {
	.fsm = &neap_fsm_store_get,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct accessor_op),
	.due_ns = due_ns,
	.broken = accessor_broken,
};
