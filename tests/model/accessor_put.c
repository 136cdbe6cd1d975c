/* Actions of store_put: store/accessor/put.c. */
#include "store/accessor/put_fsm.h"
#include "tests/model/world.h"

#define AGAIN_MAX 2u

static void leave_behind(struct step *step, uint8_t index, uint8_t event)
{
	step->world->ops[index].cleanup = false;
	post_op(step, index, event);
}

/* put_conclude() */
void conclude(struct step *step, uint8_t index, bool created, uint8_t version)
{
	struct op *op = &step->world->ops[index];
	bool differs = scenario_of(step)->sums && version != index + 1;
	op->version = version;
	op->created = created;
	op->outcome = !created && differs ? FAILED : SUCCESS;
}

static void reserved(struct step *step, struct op *op, uint8_t index, const struct message *reply)
{
	op->owner_id = op->write_id = reply->id;
	op->slot = reply->slot;
	op->revokes = 0;
	bool in_time = !op->guard; /* accessor_take_lease() */
	if (!has(step, SEND_TIME_LEASE)) {
		op->guard = false;
		in_time = true;
	}
	if (in_time && !op->stopped)
		post_op(step, index, store_put_on_ANSWERED);
	else
		leave_behind(step, index, store_put_on_LATE);
}

/* seen() and settled() */
static void looked(struct step *step, struct op *op, uint8_t index, const struct message *reply)
{
	bool exists = reply->version != 0, pending = reply->id != 0;
	if (exists) {
		conclude(step, index, reply->created && op->write_id != 0, reply->version);
		post_op(step, index, store_put_on_ANSWERED);
	} else if (op->kind != RESOLVE) {
		post_op(step, index, store_put_on_EMPTY);
	} else if (pending || (op->write_id == 0 && !op->until && has(step, SETTLE_WAITS))) {
		post_op(step, index, store_put_on_UNSURE);
	} else {
		post_op(step, index, store_put_on_ANSWERED);
	}
}

void put_answered(struct step *step, uint8_t index, const struct message *reply)
{
	struct op *op = &step->world->ops[index];
	switch (reply->method) {
	case PRE_WRITE: reserved(step, op, index, reply); break;
	case COMMIT:
	case WRITE_REMOTE: /* committed() */
		conclude(step, index, reply->created, reply->version);
		post_op(step, index, store_put_on_ANSWERED);
		break;
	case LOOK_UP: looked(step, op, index, reply); break;
	default: post_op(step, index, store_put_on_ANSWERED); break; /* revoked() */
	}
}

/* directory_refused(). False: it is about something else. */
static bool directory_refused(struct step *step, uint8_t index, uint8_t status)
{
	struct op *op = &step->world->ops[index];
	uint8_t event = store_put_on_REFUSED;
	if (status == ELSEWHERE) {
		op->outcome = SUCCESS;
		op->created = false;
		event = store_put_on_ANSWERED;
	} else if (status == DIFFERS) {
		op->final = true;
	} else if (status == NOT_READY) {
		event = store_put_on_UNSURE;
	} else {
		return false;
	}
	post_op(step, index, event);
	return true;
}

static void commit_refused(struct step *step, uint8_t index, uint8_t status)
{
	if (status == PROCESSING)
		post_op(step, index, store_put_on_UNSURE);
	else if (status == EXISTS)
		post_op(step, index, store_put_on_EXISTS);
	else if (status == LEASE_EXPIRED || status == NOT_FOUND || status == COPY_FAILED)
		post_op(step, index, store_put_on_REFUSED);
	else
		leave_behind(step, index, store_put_on_BROKEN);
}

static void revoke_refused(struct step *step, uint8_t index, uint8_t status)
{
	struct op *op = &step->world->ops[index];
	bool recoverable = status != INVALID_WRITE && status != NOT_FOUND;
	if (status == LEASE_EXPIRED)
		post_op(step, index, store_put_on_ANSWERED);
	else if (recoverable && ++op->revokes < scenario_of(step)->attempts && !op->cleanup)
		post_op(step, index, store_put_on_LOST);
	else
		post_op(step, index, store_put_on_REFUSED);
}

static void look_over(struct step *step, uint8_t index)
{
	bool resolve = step->world->ops[index].kind == RESOLVE;
	post_op(step, index, resolve ? (uint8_t)store_put_on_UNSURE : (uint8_t)store_put_on_REFUSED);
}

void put_refused(struct step *step, uint8_t index, uint8_t asked, uint8_t status)
{
	switch (asked) {
	case COMMIT:
		if (!directory_refused(step, index, status))
			commit_refused(step, index, status);
		break;
	case REVOKE: revoke_refused(step, index, status); break;
	case LOOK_UP: look_over(step, index); break;
	default: /* move_refused(), refused_plainly() */
		if (asked == WRITE_REMOTE && directory_refused(step, index, status))
			break;
		post_op(step, index, status == EXISTS ? (uint8_t)store_put_on_EXISTS : (uint8_t)store_put_on_REFUSED);
		break;
	}
}

void put_given_up(struct step *step, uint8_t index, uint8_t asked, bool perhaps)
{
	switch (asked) {
	case COMMIT:
		if (perhaps)
			post_op(step, index, store_put_on_UNSURE);
		else
			leave_behind(step, index, store_put_on_BROKEN);
		break;
	case WRITE_REMOTE:
		post_op(step, index, perhaps ? (uint8_t)store_put_on_UNSURE : (uint8_t)store_put_on_REFUSED);
		break;
	case LOOK_UP: look_over(step, index); break;
	default: post_op(step, index, store_put_on_REFUSED); break;
	}
}

/* put_transferred() */
static void transferred(struct step *step, uint8_t index, bool completed)
{
	if (completed && !step->world->ops[index].stopped)
		post_op(step, index, store_put_on_ANSWERED);
	else
		leave_behind(step, index, store_put_on_BROKEN);
}

static void next(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	recall(step, index);
	if (!next_owner(step, index))
		post_op(step, index, store_put_on_EMPTY);
	else if (op->way == FORWARD)
		reach(step, index);
	else
		post_op(step, index, store_put_on_REVERSE);
}

static void look(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (op->kind == RESOLVE && op->deadline)
		op->stopped = true; /* accessor_next_owner() */
	bool nowhere = op->stopped || (op->exists && !next_owner(step, index));
	op->exists = false;
	if (nowhere)
		look_over(step, index);
	else
		ask(step, index, LOOK_UP);
}

static void move(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->until = false;
	op->write_id = 0;
	if (op->way == REVERSE)
		lend(step, index);
	ask(step, index, WRITE_REMOTE);
}

static void end(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->asking = op->reaching = false;
	recall(step, index);
}

void put_action(struct step *step, uint8_t index, uint8_t action)
{
	struct op *op = &step->world->ops[index];
	switch (action) {
	case store_put_do_place: place(step, index); break;
	case store_put_do_next: next(step, index); break;
	case store_put_do_reserve: ask(step, index, PRE_WRITE); break;
	case store_put_do_write: pieces_of_op(step, index, FORWARD_WRITE); break;
	case store_put_do_commit: ask(step, index, COMMIT); break;
	case store_put_do_revoke: ask(step, index, REVOKE); break;
	case store_put_do_move: move(step, index); break;
	case store_put_do_look: look(step, index); break;
	case store_put_do_pause: ask_pause(step, index, store_put_on_RESUME); break;
	case store_put_do_stop: stop_or_halt(step, index, false); break;
	case store_put_do_halt: stop_or_halt(step, index, true); break;
	case store_put_do_cut: ask_cut(step, index); break;
	case store_put_do_expire:
		op->stopped = true;
		end(step, index);
		break;
	case store_put_do_give_up: next(step, index); break;
	case store_put_do_again:
		if (op->agains++ < AGAIN_MAX)
			op->next_route--;
		next(step, index);
		break;
	case store_put_do_unsure:
		op->outcome = UNKNOWN;
		end(step, index);
		break;
	case store_put_do_end: end(step, index); break;
	case store_put_do_keep: keep(step, index); break;
	case store_put_do_settle: settle(step, index); break;
	case store_put_do_forget:
		op->settling = false;
		op->outcome = UNKNOWN;
		end(step, index);
		break;
	case store_put_do_tell: tell(step, index, false); break;
	case store_put_do_tell_held: tell(step, index, true); break;
	default: release(step, index); break;
	}
}

/* ended() in bytes.c. With `held` the transport keeps the buffer. */
void batch_over(struct step *step, uint8_t index, bool completed, bool held)
{
	struct op *op = &step->world->ops[index];
	op->batch = false;
	op->held = op->held || (held && has(step, HELD_MEMORY));
	pieces_end(step, index, false, 0, 0, held);
	if (!completed && op->deadline)
		op->stopped = true; /* blame_failure() */
	if (op->kind != GET)
		transferred(step, index, completed);
	else
		get_transferred(step, index, completed);
}
