/* Makes an event happen: turns a fact into what the code is told of it. */
#include "store/accessor/get_fsm.h"
#include "store/accessor/put_fsm.h"
#include "store/owner/move_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "tests/model/events.h"
#include "tests/model/world.h"
#include <string.h>

/* Notes what the key has in the beginning, be it that the directory alone knows. */
static void look_around(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	const struct directory *directory = &step->world->directory;
	for (uint8_t i = 0; i < OWNERS; i++) {
		const struct key *key = key_at(step, i, index);
		if (key->value != NONE && key->known)
			op->seen = (uint8_t)(op->seen | 1u << key->version);
	}
	if (directory->route != NONE)
		op->seen = (uint8_t)(op->seen | 1u << directory->version);
}

static void start(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	look_around(step, index);
	if (begins_here(step, index))
		post_op(step, index, op->kind == GET ? (uint8_t)store_get_on_HERE : (uint8_t)store_put_on_HERE);
	else
		post_op(step, index, op->kind == GET ? (uint8_t)store_get_on_START : (uint8_t)store_put_on_START);
}

/* take_up() in accessor.c */
static void cancel(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	(void)spend(step, CANCEL);
	op->stopped = true;
	if (op->at == 0)
		start(step, index);
	else
		post_op(step, index, op->kind == GET ? (uint8_t)store_get_on_CANCEL : (uint8_t)store_put_on_CANCEL);
}

/* neap_accessor_resolve(): another operation, about the same write. */
static void resolve(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index], kept = *op;
	memset(op, 0, sizeof *op);
	op->kind = RESOLVE;
	op->way = REVERSE;
	op->owner = kept.owner;
	op->write_id = kept.write_id;
	op->until = kept.until;
	op->serial = kept.serial;
	op->known_epochs = kept.known_epochs;
	op->commits = kept.commits;
	op->accepted = kept.accepted;
	memcpy(op->grants, kept.grants, sizeof op->grants);
	op->buffer[0] = op->buffer[1] = JUNK;
	look_around(step, index);
	post_op(step, index, store_put_on_EXISTS);
}

/* The call's deadline travels with it: after that the owner does not begin it (store/rpc/server.h). */
static void pass_until(struct step *step, uint8_t index)
{
	step->world->ops[index].until = true;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		struct message *m = &step->world->messages[i];
		if (m->type == REQUEST && m->op == index && m->method == WRITE_REMOTE)
			memset(m, 0, sizeof *m);
	}
}

static void deliver(struct step *step, uint32_t index)
{
	struct message message = step->world->messages[index];
	memset(&step->world->messages[index], 0, sizeof message);
	if (message.type == REQUEST)
		owner_receive(step, &message);
	else
		ask_received(step, &message);
}

static void no_answer(struct step *step, uint8_t index, bool sent)
{
	struct op *op = &step->world->ops[index];
	for (uint32_t i = 0; i < MESSAGES && !sent; i++) {
		struct message *m = &step->world->messages[i];
		if (m->type != REQUEST || m->op != index || !is_awaited(step->world, m))
			continue;
		memset(m, 0, sizeof *m);
		break;
	}
	op->call = false;
	ask_missed(step, index, sent, sent ? OK : NOT_SENT);
}

static void stray(struct step *step, uint8_t index)
{
	const struct op *op = &step->world->ops[index];
	(void)spend(step, STRAY);
	piece_add(step, &(struct piece){.kind = FORWARD_WRITE, .op = index, .owner = op->owner, .id = op->owner_id, .record = op->owner_id,
	                                .epoch = (uint8_t)(op->known_epochs >> op->owner & 1u), .slot = op->slot, .stamp = RUINED});
}

static void batch_fails(struct step *step, uint8_t index, bool held)
{
	const struct op *op = &step->world->ops[index];
	if (held)
		(void)spend(step, HELD);
	if (!op->failed && !op->guard && !op->deadline && !op->stopped)
		(void)spend(step, XFER);
	batch_over(step, index, false, held);
}

static void summed(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	op->summing = false;
	bool right = op->buffer[0] == op->version && op->buffer[1] == op->version;
	if (right)
		op->outcome = SUCCESS;
	post_op(step, index, right ? (uint8_t)store_get_on_ANSWERED : (uint8_t)store_get_on_BROKEN);
}

static void event_of_op(struct step *step, const struct event *event)
{
	uint8_t index = event->a;
	struct op *op = &step->world->ops[index];
	switch (event->kind) {
	case HAPPENS_START: start(step, index); break;
	case HAPPENS_ASK_CANCEL: cancel(step, index); break;
	case HAPPENS_PASS_DEADLINE:
		(void)spend(step, DEADLINE);
		op->deadline = true;
		break;
	case HAPPENS_PASS_CLEANUP:
		(void)spend(step, DEADLINE);
		op->cleanup = true;
		break;
	case HAPPENS_TIMER: post_op(step, index, 0); break;
	case HAPPENS_PASS_GUARD:
		(void)spend(step, LEASE);
		op->guard = true;
		break;
	case HAPPENS_PLACED: placed(step, index, true); break;
	case HAPPENS_UNPLACED:
		(void)spend(step, UNREACHABLE);
		placed(step, index, false);
		break;
	case HAPPENS_REACHED: reached(step, index, true); break;
	case HAPPENS_UNREACHED:
		(void)spend(step, UNREACHABLE);
		reached(step, index, false);
		break;
	case HAPPENS_RESUMED: ask_resume(step, index); break;
	case HAPPENS_NO_ANSWER: no_answer(step, index, true); break;
	case HAPPENS_UNSENT:
		(void)spend(step, UNREACHABLE);
		no_answer(step, index, false);
		break;
	case HAPPENS_STRAY_WRITE: stray(step, index); break;
	case HAPPENS_BATCH_DONE: batch_over(step, index, true, false); break;
	case HAPPENS_BATCH_FAILED: batch_fails(step, index, false); break;
	case HAPPENS_BATCH_HELD: batch_fails(step, index, true); break;
	case HAPPENS_BUFFER_RELEASED: op_released(step, index); break;
	case HAPPENS_GRANT_OVER: accessor_grant_over(step, index, event->b); break;
	case HAPPENS_SUMMED: summed(step, index); break;
	case HAPPENS_PASS_UNTIL: pass_until(step, index); break;
	case HAPPENS_SETTLE_LATE: settled(step, index, TOO_LATE); break;
	default: resolve(step, index); break;
	}
}

/* --- owners */

static void record_summed(struct step *step, uint8_t owner, uint8_t index)
{
	const struct owner *place = &step->world->owners[owner];
	struct record *record = &step->world->owners[owner].records[index];
	const struct slot *slot = &place->slots[record->slot];
	bool right = !record->expected || (slot->bytes[0] == record->op + 1 && slot->bytes[1] == record->op + 1);
	record->summing = false;
	record->ending = record->type == MOVE_RECORD; /* it had come to the sum */
	if (record->type == WRITE_RECORD)
		post(step, owner, index, right ? (uint8_t)write_record_on_RIGHT : (uint8_t)write_record_on_WRONG);
	else
		post(step, owner, index, right ? (uint8_t)move_record_on_RIGHT : (uint8_t)move_record_on_WRONG);
}

/* on_batch() in move_record.c */
static void move_over(struct step *step, uint8_t owner, uint8_t index, bool failed, bool held)
{
	struct record *record = &step->world->owners[owner].records[index];
	pieces_end(step, record->op, true, owner, id_of(&step->world->owners[owner], index), held);
	uint8_t event = record->push ? move_record_on_MOVED_OUT : move_record_on_MOVED_IN;
	record->held = held && has(step, HELD_MEMORY);
	if (record->here && !failed)
		copied_here(step, owner, index);
	if (failed)
		event = record->held ? move_record_on_HELD : move_record_on_FAILED;
	post(step, owner, index, event);
}

static void move_fails(struct step *step, uint8_t owner, uint8_t index, bool held)
{
	if (held)
		(void)spend(step, HELD);
	if (!step->world->owners[owner].records[index].refused)
		(void)spend(step, XFER);
	move_over(step, owner, index, true, held);
}

/* The process is gone with its memory. What it had sent may still arrive; what it had asked to be read goes nowhere. */
static void restart(struct step *step, uint8_t index)
{
	struct world *world = step->world;
	struct owner *owner = &world->owners[index];
	uint8_t epoch = owner->epoch;
	(void)spend(step, RESTART);
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type == REQUEST && world->messages[i].owner == index && has(step, FENCE_EPOCH))
			memset(&world->messages[i], 0, sizeof world->messages[i]);
	for (uint32_t i = 0; i < PIECES; i++) {
		struct piece *piece = &world->pieces[i];
		bool forward = piece->kind == FORWARD_WRITE || piece->kind == FORWARD_READ;
		if (piece->kind == NO_PIECE || piece->owner != index)
			continue;
		if (piece->kind == PULL || (forward && piece->at == ADMITTED)) {
			if (forward && piece->live)
				world->ops[piece->op].failed = true;
			piece_remove(world, i);
		} else if (piece->kind == PUSH) {
			piece->live = piece->local = false;
		}
	}
	memset(owner, 0, sizeof *owner);
	owner->filler = NONE;
	for (uint32_t i = 0; i < KEYS; i++)
		owner->keys[i].value = owner->keys[i].pending = NONE;
	owner->epoch = (uint8_t)(epoch ^ 1u);
}

static void forget(struct step *step, uint8_t owner, uint8_t op)
{
	struct lane *lane = &step->world->owners[owner].lanes[op];
	uint8_t session = lane->session, ended_id = lane->ended_id;
	(void)spend(step, FORGET);
	*lane = (struct lane){.session = (uint8_t)(session ^ 1u), .ended_id = ended_id};
}

static void event_of_owner(struct step *step, const struct event *event)
{
	uint8_t owner = event->a, index = event->b;
	struct record *record = index < RECORDS ? &step->world->owners[owner].records[index] : NULL;
	switch (event->kind) {
	case HAPPENS_LEASE_ENDS:
		if (!has(step, SEND_TIME_LEASE) && record_in_use(step->world, owner, index))
			(void)spend(step, LEASE);
		record->over = true;
		if (!record_in_use(step->world, owner, index) && !record->done)
			post(step, owner, index, 0); /* what nobody counts on: its timer is as good as the fact */
		break;
	case HAPPENS_RECORD_TIMER: post(step, owner, index, 0); break;
	case HAPPENS_SEALED: record_grant_over(step, owner, index); break;
	case HAPPENS_RECORD_SUMMED: record_summed(step, owner, index); break;
	case HAPPENS_OPENED:
		record->opening = false;
		post(step, owner, index, move_record_on_OPENED);
		break;
	case HAPPENS_UNOPENED:
		(void)spend(step, UNREACHABLE);
		record->opening = false;
		post(step, owner, index, move_record_on_FAILED);
		break;
	case HAPPENS_MOVED: move_over(step, owner, index, false, false); break;
	case HAPPENS_MOVE_FAILED: move_fails(step, owner, index, false); break;
	case HAPPENS_MOVE_HELD: move_fails(step, owner, index, true); break;
	case HAPPENS_MOVE_RELEASED:
		record->held = false;
		pieces_release(step, record->op, true, owner, id_of(&step->world->owners[owner], index));
		post(step, owner, index, move_record_on_RELEASED);
		break;
	case HAPPENS_CONNECTION_LOST:
		(void)spend(step, CUT);
		owner_connection_lost(step, owner, index);
		break;
	case HAPPENS_REMOVED:
		(void)spend(step, REMOVE);
		key_withdraw(step, owner, index);
		break;
	case HAPPENS_FILLED:
		(void)spend(step, FILL);
		(void)filler_put(step, owner);
		break;
	case HAPPENS_RESTARTED: restart(step, owner); break;
	case HAPPENS_LEAVES:
		(void)spend(step, LEAVE);
		owner_leave(step, owner);
		break;
	default: forget(step, owner, index); break;
	}
}

static void event_of_directory(struct step *step, const struct event *event)
{
	struct directory *directory = &step->world->directory;
	switch (event->kind) {
	case HAPPENS_WAIT_LATE:
		(void)spend(step, LOSS);
		wait_too_late(step, event->a, event->b);
		break;
	case HAPPENS_ANNOUNCED: announce(step, event->a); break;
	case HAPPENS_ANSWERED: announced(step, event->a); break;
	case HAPPENS_ANSWER_LOST:
		(void)spend(step, LOSS);
		step->world->owners[event->a].keys[0].answer = 0;
		break;
	case HAPPENS_MASTER_RESTARTED:
		(void)spend(step, MASTER);
		master_restart(step);
		break;
	case HAPPENS_RECOVERED: directory->recovering = false; break;
	default:
		if (event->kind == HAPPENS_OPERATIONS_FULL)
			(void)spend(step, FULL);
		step->world->owners[event->a].full = event->kind == HAPPENS_OPERATIONS_FULL;
		break;
	}
}

void event_apply(struct step *step, const struct event *event)
{
	bool hurried = event->kind == HAPPENS_TIMER || event->kind == HAPPENS_ASK_CANCEL;
	bool revoking = hurried && step->world->ops[event->a].ask == REVOKE;
	switch (event->kind) {
	case HAPPENS_DELIVER:
		step->fault = !is_awaited(step->world, &step->world->messages[event->a]);
		deliver(step, event->a);
		break;
	case HAPPENS_PIECE:
		step->fault = piece_is_late(&step->world->pieces[event->a]);
		piece_moves(step, event->a);
		break;
	case HAPPENS_RUIN:
		(void)spend(step, CORRUPT);
		step->world->pieces[event->a].stamp = RUINED;
		break;
	case HAPPENS_NO_ANSWER:
		if (answer_may_come(step->world, event->a))
			(void)spend(step, LOSS);
		event_of_op(step, event);
		break;
	default:
		if (event->kind < HAPPENS_LEASE_ENDS)
			event_of_op(step, event);
		else if (event->kind >= HAPPENS_WAIT_LATE)
			event_of_directory(step, event);
		else
			event_of_owner(step, event);
		break;
	}
	run_queue(step);
	if (!step->wrong && hurried)
		check_ends_soon(step, event->a, event->kind == HAPPENS_ASK_CANCEL, revoking);
	if (!step->wrong)
		check_world(step);
	world_settle(step);
}
