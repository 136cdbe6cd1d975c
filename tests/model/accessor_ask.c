/* What both of the accessor's machines share: calls to owners (store/accessor/ask.c), owners and ends (accessor.c), grants and transfers
 * (bytes.c). */
#include "store/accessor/get_fsm.h"
#include "store/accessor/put_fsm.h"
#include "tests/model/world.h"
#include "transports/grant_fsm.h"
#include <string.h>

static bool insists(uint8_t method)
{
	return method == COMMIT || method == REVOKE || method == LOOK_UP; /* .insist in put.c */
}

static bool time_is_left(const struct op *op, uint8_t method)
{
	return method == REVOKE ? !op->cleanup : !op->deadline; /* .cleans */
}

static void end(struct op *op)
{
	op->has_id = false;
	op->ask = NO_METHOD;
}

static void give_up(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	uint8_t asked = op->ask;
	bool perhaps = op->perhaps;
	end(op);
	if (op->kind == GET)
		get_given_up(step, index, asked, perhaps);
	else
		put_given_up(step, index, asked, perhaps);
}

/* missed() in ask.c */
void ask_missed(struct step *step, uint8_t index, bool perhaps, uint8_t status)
{
	struct op *op = &step->world->ops[index];
	op->perhaps = op->perhaps || perhaps;
	op->attempts++;
	if (op->ask != REVOKE && op->deadline)
		op->stopped = true;
	bool forgotten = status == NO_SESSION, worth = false;
	if (forgotten && !op->perhaps && op->has_id) {
		op->has_id = false;
		op->serial++;
		forgotten = false;
		worth = true;
	}
	bool again = !op->cut && !forgotten && op->attempts < scenario_of(step)->attempts && time_is_left(op, op->ask) &&
	             (op->perhaps || insists(op->ask) || worth);
	if (!again)
		give_up(step, index);
	else if (op->ask == READ_REMOTE) { /* move_lost() in get.c */
		op->verdict = store_get_on_RESUME;
		post_op(step, index, store_get_on_OVER);
	} else
		post_op(step, index, op->kind == GET ? (uint8_t)store_get_on_LOST : (uint8_t)store_put_on_LOST);
}

/* accessor_ask() */
void ask(struct step *step, uint8_t index, uint8_t method)
{
	struct op *op = &step->world->ops[index];
	if (op->ask != method) {
		op->ask = method;
		op->attempts = 0;
		op->perhaps = op->cut = op->has_id = false;
		op->serial++;
		if (method == PRE_WRITE || method == PIN_KEY)
			op->guard = false; /* asked_ns */
	}
	const struct owner *owner = &step->world->owners[op->owner];
	uint8_t epoch = (uint8_t)(op->known_epochs >> op->owner & 1u);
	bool error = !time_is_left(op, method);
	if (op->stopped && !insists(method)) {
		op->cut = true;
		error = true;
	}
	if (!error && !op->has_id) {
		op->has_id = true;
		op->session = owner->lanes[index].session;
	}
	if (error || (epoch != owner->epoch && has(step, FENCE_EPOCH))) { /* the channel expects the instance that the route names */
		ask_missed(step, index, false, NOT_SENT);
		return;
	}
	op->call = true;
	struct message request = {.type = REQUEST, .op = index, .owner = op->owner, .epoch = epoch, .method = method, .serial = op->serial,
	                          .attempt = op->attempts, .session = op->session, .lent = op->lent,
	                          .id = method == LOOK_UP ? op->write_id : method == COMMIT || method == REVOKE ? op->owner_id : 0};
	send(step, &request);
}

/* answered() in ask.c; an answer to an attempt that has ended is dropped before it comes to this */
void ask_received(struct step *step, const struct message *reply)
{
	struct op *op = &step->world->ops[reply->op];
	uint8_t asked = op->ask;
	op->call = false;
	if (reply->status == NO_SESSION) {
		ask_missed(step, reply->op, false, NO_SESSION);
		return;
	}
	end(op);
	if (reply->status == OK && op->kind == GET)
		get_answered(step, reply->op, reply);
	else if (reply->status == OK)
		put_answered(step, reply->op, reply);
	else if (op->kind == GET)
		get_refused(step, reply->op, asked, reply->status);
	else
		put_refused(step, reply->op, asked, reply->status);
}

/* accessor_cut() */
void ask_cut(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->cut = true;
	if (op->call) {
		op->call = false;
		ask_missed(step, index, true, OK);
	} else if (op->ask != NO_METHOD) {
		op->paused = false;
		give_up(step, index);
	} else if (op->paused) {
		op->paused = false;
		post_op(step, index, op->pause_event);
	}
}

void ask_pause(struct step *step, uint8_t index, uint8_t event)
{
	struct op *op = &step->world->ops[index];
	if (!scenario_of(step)->slow) {
		post_op(step, index, event);
		return;
	}
	op->paused = true;
	op->pause_event = event;
}

void ask_resume(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->paused = false;
	post_op(step, index, op->pause_event);
}

/* --- owners */

bool next_owner(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (op->deadline)
		op->stopped = true;
	uint8_t owners = scenario_of(step)->owners;
	while (!op->stopped && !op->final && op->next_route < owners) {
		op->owner = (uint8_t)((op->next_route++ + scenario_of(step)->starts[index]) % owners);
		if (op->routes >> op->owner & 1u)
			return true;
	}
	return false;
}

void reached(struct step *step, uint8_t index, bool there)
{
	struct op *op = &step->world->ops[index];
	bool same = (op->known_epochs >> op->owner & 1u) == step->world->owners[op->owner].epoch || !has(step, FENCE_EPOCH);
	op->reaching = false;
	if (op->kind == GET)
		post_op(step, index, there && same ? (uint8_t)store_get_on_FORWARD : (uint8_t)store_get_on_REFUSED);
	else
		post_op(step, index, there && same ? (uint8_t)store_put_on_FORWARD : (uint8_t)store_put_on_REFUSED);
}

void reach(struct step *step, uint8_t index)
{
	if (scenario_of(step)->slow)
		step->world->ops[index].reaching = true;
	else
		reached(step, index, true);
}

/* Whom the directory names. False: nobody. Of a key that it does not know while it recovers it says nothing. */
static bool routes(const struct step *step, struct op *op)
{
	const struct directory *directory = &step->world->directory;
	bool is_there = is_directory_asked(step) && directory->route != NONE;
	op->exists = is_there && op->kind == PUT;
	op->routes = is_there ? (uint8_t)(1u << directory->route) : (uint8_t)((1u << scenario_of(step)->owners) - 1);
	return is_there || !is_directory_asked(step) || (op->kind == PUT && (!directory->recovering || !has(step, RECOVERY)));
}

/* placed() in accessor.c, put_placed(), get_placed() */
void placed(struct step *step, uint8_t index, bool any)
{
	struct op *op = &step->world->ops[index];
	op->asking = false;
	op->next_route = 0;
	op->known_epochs = 0;
	for (uint32_t i = 0; i < OWNERS; i++)
		op->known_epochs = (uint8_t)(op->known_epochs | step->world->owners[i].epoch << i);
	any = routes(step, op) && any;
	if (op->exists && any)
		post_op(step, index, store_put_on_EXISTS);
	else if (op->kind == GET)
		post_op(step, index, any ? (uint8_t)store_get_on_ANSWERED : (uint8_t)store_get_on_REFUSED);
	else
		post_op(step, index, any ? (uint8_t)store_put_on_ANSWERED : (uint8_t)store_put_on_REFUSED);
}

void place(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (op->stopped)
		post_op(step, index, op->kind == GET ? (uint8_t)store_get_on_CANCEL : (uint8_t)store_put_on_CANCEL);
	else if (scenario_of(step)->slow)
		op->asking = true;
	else
		placed(step, index, true);
}

/* accessor_do_stop, accessor_do_halt */
void stop_or_halt(struct step *step, uint8_t index, bool halt)
{
	struct op *op = &step->world->ops[index];
	op->stopped = true;
	if (halt || !op->batch)
		ask_cut(step, index);
}

/* --- grants on the caller's buffers: accessor_lend, accessor_recall */

bool is_lent_or_recalling(const struct op *op)
{
	for (uint32_t i = 1; i < GRANTS; i++)
		if (grant_is_live(op->grants[i]) || grant_is_ending(op->grants[i]))
			return true;
	return false;
}

static bool is_known(const struct world *world, uint8_t index, uint8_t number)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		const struct piece *piece = &world->pieces[i];
		if ((piece->kind == PULL || piece->kind == PUSH) && piece->op == index && piece->id == number)
			return true;
	}
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type == REQUEST && world->messages[i].op == index && world->messages[i].lent == number)
			return true;
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < RECORDS; k++) {
			const struct record *record = &world->owners[i].records[k];
			if (record->type == MOVE_RECORD && record->op == index && record->lent == number)
				return true;
		}
	return false;
}

/* Tokens are secrets that are never used twice: a number is, when nothing knows it any more. */
void lend(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	for (uint8_t i = 1; i < ENDED_GRANT && !op->lent; i++) {
		if (grant_is_live(op->grants[i]) || grant_is_ending(op->grants[i]) || is_known(step->world, index, i))
			continue;
		op->grants[i] = grant_LIVE + 1;
		op->lent = i;
	}
	if (!op->lent)
		violated(step, "BOUND", "an operation has more grants than the model has room for");
}

static void quiet(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (op->kind == GET && op->at == store_get_RECALLING) { /* get_quiet() */
		if (op->verdict == store_get_on_RESUME)
			ask_pause(step, index, store_get_on_RESUME);
		else
			post_op(step, index, op->verdict);
	} else if (op->kind != GET && op->at == store_put_ENDING) { /* put_quiet() */
		post_op(step, index, op->held ? (uint8_t)store_put_on_HELD : (uint8_t)store_put_on_QUIET);
	}
}

static bool is_recalling(const struct op *op)
{
	for (uint32_t i = 1; i < GRANTS; i++)
		if (grant_is_ending(op->grants[i]))
			return true;
	return false;
}

void recall(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	bool repeats = op->kind == GET && op->at == store_get_RECALLING && op->verdict == store_get_on_RESUME;
	if (repeats && !has(step, RECALL_BEFORE_REPEAT)) {
		quiet(step, index);
		return;
	}
	if (op->lent && has(step, REVERSE_GRANTS))
		grant_step(step, &op->grants[op->lent], grant_on_END);
	op->lent = 0;
	if (!is_recalling(op))
		quiet(step, index);
}

/* grant_ended() in bytes.c */
void accessor_grant_over(struct step *step, uint8_t index, uint8_t number)
{
	struct op *op = &step->world->ops[index];
	grant_step(step, &op->grants[number], grant_on_PASSED);
	if (!is_recalling(op) && !op->lent)
		quiet(step, index);
}

/* --- ends */

void tell(struct step *step, uint8_t index, bool held)
{
	static const char *const words[] = {"FAILED", "SUCCESS", "UNKNOWN"};
	struct op *op = &step->world->ops[index];
	op->told = true;
	op->told_held = held;
	op->tells++;
	note(step, "operation %u is told %s%s", index, words[op->outcome], held ? ", and that its buffer is held" : "");
	check_told(step, index);
	if (op->kind == PUT && !held)
		op->buffer[0] = op->buffer[1] = JUNK; /* the caller uses it for something else */
}

void release(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->told_held = false;
	op->buffer[0] = op->buffer[1] = JUNK;
	note(step, "operation %u is told that its buffer is released", index);
}

/* on_released() in bytes.c */
void op_released(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	pieces_release(step, index, false, 0, 0);
	op->held = false;
	if (op->told)
		post_op(step, index, op->kind == GET ? (uint8_t)store_get_on_QUIET : (uint8_t)store_put_on_QUIET);
}

void op_action(struct step *step, uint8_t op, enum table table, uint8_t action)
{
	if (table == T_GET)
		get_action(step, op, action);
	else
		put_action(step, op, action);
}
