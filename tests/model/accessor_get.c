/* Actions of store_get: store/accessor/get.c. */
#include "store/accessor/get_fsm.h"
#include "tests/model/world.h"

/* The read has ended: its pin is told, with a request or by itself, and perhaps in vain. */
static void pin_over(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	uint8_t epoch = (uint8_t)(op->known_epochs >> op->owner & 1u);
	if (op->owner_id)
		send(step, &(struct message){.type = REQUEST, .op = index, .owner = op->owner, .epoch = epoch, .method = UN_PIN, .id = op->owner_id});
	op->owner_id = 0;
}

/* take_value() */
static void take_value(struct step *step, struct op *op, uint8_t version)
{
	op->version = version;
	op->has_expected = scenario_of(step)->sums && has(step, CHECKSUMS);
}

static void pinned(struct step *step, uint8_t index, const struct message *reply)
{
	struct op *op = &step->world->ops[index];
	op->owner_id = reply->id;
	op->slot = reply->slot;
	bool in_time = !op->guard;
	if (!has(step, SEND_TIME_LEASE)) {
		op->guard = false;
		in_time = true;
	}
	if (!in_time || op->stopped) {
		pin_over(step, index);
		bool once_more = !in_time && !op->stopped && op->agains++ == 0;
		post_op(step, index, once_more ? (uint8_t)store_get_on_LOST : (uint8_t)store_get_on_REFUSED);
		return;
	}
	take_value(step, op, reply->version);
	post_op(step, index, store_get_on_ANSWERED);
}

static void over(struct step *step, uint8_t index, uint8_t verdict)
{
	step->world->ops[index].verdict = verdict;
	post_op(step, index, store_get_on_OVER);
}

/* moved() */
void get_answered(struct step *step, uint8_t index, const struct message *reply)
{
	struct op *op = &step->world->ops[index];
	if (reply->method == PIN_KEY) {
		pinned(step, index, reply);
		return;
	}
	take_value(step, op, reply->version);
	if (op->way == INLINE)
		op->buffer[0] = op->buffer[1] = reply->version;
	over(step, index, store_get_on_ANSWERED);
}

void get_refused(struct step *step, uint8_t index, uint8_t asked, uint8_t status)
{
	(void)status;
	if (asked == PIN_KEY)
		post_op(step, index, store_get_on_REFUSED);
	else
		over(step, index, store_get_on_REFUSED);
}

void get_given_up(struct step *step, uint8_t index, uint8_t asked, bool perhaps)
{
	(void)perhaps;
	get_refused(step, index, asked, OK);
}

void get_transferred(struct step *step, uint8_t index, bool completed)
{
	struct op *op = &step->world->ops[index];
	if (op->held) {
		post_op(step, index, store_get_on_HELD);
		return;
	}
	bool late = completed && op->guard && has(step, SEND_TIME_LEASE);
	pin_over(step, index);
	post_op(step, index, completed && !late && !op->stopped ? (uint8_t)store_get_on_ANSWERED : (uint8_t)store_get_on_BROKEN);
}

/* do_next() */
static void next(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->has_expected = false;
	if (next_owner(step, index)) {
		if (op->way == FORWARD)
			reach(step, index);
		else
			post_op(step, index, store_get_on_REVERSE);
		return;
	}
	bool anew = !op->stopped && !op->final && !op->asked_anew;
	op->asked_anew = true;
	post_op(step, index, anew ? (uint8_t)store_get_on_ANEW : (uint8_t)store_get_on_EMPTY);
}

/* do_move() */
static void move(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (op->stopped) {
		if (op->ask != NO_METHOD)
			ask_cut(step, index);
		else
			over(step, index, store_get_on_REFUSED);
		return;
	}
	if (op->way == REVERSE)
		lend(step, index);
	ask(step, index, READ_REMOTE);
}

static void check(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (op->has_expected) {
		op->summing = true;
		return;
	}
	op->outcome = SUCCESS;
	post_op(step, index, store_get_on_ANSWERED);
}

void get_action(struct step *step, uint8_t index, uint8_t action)
{
	struct op *op = &step->world->ops[index];
	switch (action) {
	case store_get_do_find: place(step, index); break;
	case store_get_do_next: next(step, index); break;
	case store_get_do_pin: ask(step, index, PIN_KEY); break;
	case store_get_do_read: pieces_of_op(step, index, FORWARD_READ); break;
	case store_get_do_fetch: fetch(step, index); break;
	case store_get_do_move: move(step, index); break;
	case store_get_do_recall: recall(step, index); break;
	case store_get_do_check: check(step, index); break;
	case store_get_do_pause: ask_pause(step, index, store_get_on_RESUME); break;
	case store_get_do_stop: stop_or_halt(step, index, false); break;
	case store_get_do_halt: stop_or_halt(step, index, true); break;
	case store_get_do_expire:
		op->stopped = true;
		op->asking = op->reaching = false;
		tell(step, index, false);
		break;
	case store_get_do_tell:
		op->asking = op->reaching = false;
		tell(step, index, false);
		break;
	case store_get_do_tell_held: tell(step, index, true); break;
	default:
		pin_over(step, index);
		release(step, index);
		break;
	}
}
