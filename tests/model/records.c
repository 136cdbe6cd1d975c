/* Actions of the owner's machines: store/owner/write_record.c, pin_record.c, move_record.c. */
#include "store/owner/move_record_fsm.h"
#include "store/owner/pin_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "tests/model/world.h"
#include "transports/grant_fsm.h"

uint8_t record_take(struct step *step, uint8_t owner, enum record_type type, const struct message *request, uint8_t slot)
{
	struct owner *place = &step->world->owners[owner];
	for (uint8_t i = 0; i < RECORDS; i++) {
		struct record *record = &place->records[i];
		if (record->type != NO_RECORD)
			continue;
		*record = (struct record){.type = (uint8_t)type, .op = request->op, .serial = request->serial, .slot = slot,
		                          .generation = record->generation, .answer_serial = request->serial,
		                          .answer_attempt = request->attempt, .lent = request->lent, .holds = true};
		return i;
	}
	return NONE;
}

static void give_back(struct step *step, uint8_t owner, uint8_t index)
{
	struct record *record = &step->world->owners[owner].records[index];
	if (grant_is_ending(record->grant))
		violated(step, "S7", "a record has gone while its grant was still ending");
	*record = (struct record){.generation = (uint8_t)((record->generation + 1u) % 8u)};
}

/* The key is free for another write: detach(), leave_key(). */
void record_detach(struct step *step, uint8_t owner, uint8_t index)
{
	struct owner *place = &step->world->owners[owner];
	struct record *record = &place->records[index];
	if (!record->entry)
		return;
	record->entry = false;
	key_at(step, owner, record->op)->pending = NONE;
	if (record->type == WRITE_RECORD)
		place->lanes[record->op].ended_id = id_of(place, index);
}

static void drop(struct step *step, uint8_t owner, uint8_t index)
{
	struct record *record = &step->world->owners[owner].records[index];
	if (record->holds)
		slot_drop(step, owner, record->slot);
	record->holds = false;
}

static void end_exposure(struct step *step, uint8_t owner, uint8_t index)
{
	struct record *record = &step->world->owners[owner].records[index];
	if (record->exposed)
		slot_end_exposure(step, owner, record->slot);
	record->exposed = false;
}

static void end_grant(struct step *step, uint8_t owner, uint8_t index)
{
	struct record *record = &step->world->owners[owner].records[index];
	if (grant_is_live(record->grant))
		grant_step(step, &record->grant, grant_on_END);
	else /* stale: neap_grant_end() says so, and nobody else will tell of the end */
		post(step, owner, index, record->type == WRITE_RECORD ? (uint8_t)write_record_on_SEALED : (uint8_t)pin_record_on_ENDED);
}

/* The grant has ended with its grace period: on_sealed(), on_ended(). */
void record_grant_over(struct step *step, uint8_t owner, uint8_t index)
{
	struct record *record = &step->world->owners[owner].records[index];
	grant_step(step, &record->grant, grant_on_PASSED);
	post(step, owner, index, record->type == WRITE_RECORD ? (uint8_t)write_record_on_SEALED : (uint8_t)pin_record_on_ENDED);
}

bool record_in_use(const struct world *world, uint8_t owner, uint8_t index)
{
	const struct record *record = &world->owners[owner].records[index];
	uint8_t id = id_of(&world->owners[owner], index);
	for (uint8_t i = 0; i < OPS; i++) {
		const struct op *op = &world->ops[i];
		if (op->kind == NO_OP || (op->told && !op->told_held) || op->owner != owner)
			continue;
		bool asks = i == record->op && (op->ask == PRE_WRITE || op->ask == PIN_KEY) && op->serial == record->serial;
		if (op->owner_id == id || asks)
			return true;
	}
	return false;
}

static void answer(struct step *step, uint8_t owner, const struct record *record, uint8_t method, uint8_t status, uint8_t version)
{
	struct message message = {.method = method, .status = status, .version = version, .created = status == OK};
	owner_answer(step, owner, record->op, record->answer_serial, record->answer_attempt, &message);
}

/* neap_sum_begin(): later, from a turn of its own. Without anything to compare the turn makes no difference to others. */
static void sum(struct step *step, uint8_t owner, uint8_t index, uint8_t right)
{
	struct record *record = &step->world->owners[owner].records[index];
	if (record->expected || !has(step, COMMIT_MASKS_EXPIRY))
		record->summing = true;
	else
		post(step, owner, index, right);
}

/* --- write_record */

static void quarantine(struct step *step, uint8_t owner, uint8_t index)
{
	record_detach(step, owner, index);
	drop(step, owner, index);
	end_grant(step, owner, index);
}

static void publish(struct step *step, uint8_t owner, uint8_t index)
{
	struct owner *place = &step->world->owners[owner];
	struct record *record = &place->records[index], done = *record;
	if (!record->entry || key_at(step, owner, record->op)->pending != index || !record->holds) {
		violated(step, "S6", "a write is published after it was revoked or its lease had ended");
		return;
	}
	bool write = record->type == WRITE_RECORD;
	key_publish(step, owner, record->slot, (uint8_t)(record->op + 1), write ? id_of(place, index) : 0, record->op);
	give_back(step, owner, index);
	if (done.here) {
		move_told(step, &done, OK);
		return;
	}
	struct wait wait = {.method = write ? COMMIT : WRITE_REMOTE, .serial = done.answer_serial, .attempt = done.answer_attempt,
	                    .version = (uint8_t)(done.op + 1), .created = true};
	answer_settled(step, owner, done.op, &wait);
}

static void seal(struct step *step, uint8_t owner, uint8_t index)
{
	struct owner *place = &step->world->owners[owner];
	if (has(step, GRANT_BEFORE_COMMIT)) {
		end_grant(step, owner, index);
		return;
	}
	place->slots[place->records[index].slot].left_open = true;
	post(step, owner, index, write_record_on_SEALED);
}

static void write_action(struct step *step, uint8_t owner, uint8_t index, uint8_t action)
{
	struct record *record = &step->world->owners[owner].records[index], done = *record;
	switch (action) {
	case write_record_do_seal: seal(step, owner, index); break;
	case write_record_do_expire:
	case write_record_do_revoke: quarantine(step, owner, index); break;
	case write_record_do_check:
		end_exposure(step, owner, index);
		sum(step, owner, index, write_record_on_RIGHT);
		break;
	case write_record_do_publish: publish(step, owner, index); break;
	case write_record_do_discard:
		record_detach(step, owner, index);
		drop(step, owner, index);
		give_back(step, owner, index);
		answer(step, owner, &done, COMMIT, COPY_FAILED, 0);
		break;
	default: /* release */
		if (record->done)
			violated(step, "S6", "a commit that was accepted has ended with its lease: it is neither published nor answered");
		end_exposure(step, owner, index);
		give_back(step, owner, index);
		break;
	}
}

/* --- pin_record */

static void pin_action(struct step *step, uint8_t owner, uint8_t index, uint8_t action)
{
	struct record *record = &step->world->owners[owner].records[index];
	switch (action) {
	case pin_record_do_expire:
		record->ending = true;
		end_grant(step, owner, index);
		break;
	case pin_record_do_unpin: end_grant(step, owner, index); break;
	default: /* release */
		end_exposure(step, owner, index);
		drop(step, owner, index);
		give_back(step, owner, index);
		return;
	}
	if (!has(step, QUARANTINE))
		drop(step, owner, index);
}

/* --- move_record */

static void move_failed(struct step *step, uint8_t owner, uint8_t index, bool wrong, bool keep)
{
	struct record *record = &step->world->owners[owner].records[index], done = *record;
	record_detach(step, owner, index);
	if (!keep) {
		drop(step, owner, index);
		give_back(step, owner, index);
	}
	if (done.here)
		move_told(step, &done, wrong ? COPY_FAILED : TRANSFER_FAIL);
	else
		answer(step, owner, &done, done.push ? READ_REMOTE : WRITE_REMOTE, wrong ? COPY_FAILED : TRANSFER_FAIL, 0);
}

static void move_action(struct step *step, uint8_t owner, uint8_t index, uint8_t action)
{
	struct record *record = &step->world->owners[owner].records[index], done = *record;
	switch (action) {
	case move_record_do_open:
		if (scenario_of(step)->slow && !record->here)
			record->opening = true;
		else
			post(step, owner, index, move_record_on_OPENED);
		break;
	case move_record_do_move: pieces_of_move(step, owner, index); break;
	case move_record_do_check: sum(step, owner, index, move_record_on_RIGHT); break;
	case move_record_do_publish: publish(step, owner, index); break;
	case move_record_do_finish:
		drop(step, owner, index);
		give_back(step, owner, index);
		if (done.here)
			move_told(step, &done, OK);
		else
			answer(step, owner, &done, READ_REMOTE, OK, done.version);
		break;
	case move_record_do_fail: move_failed(step, owner, index, done.ending, false); break;
	case move_record_do_report: move_failed(step, owner, index, false, true); break;
	default: /* settle */
		drop(step, owner, index);
		give_back(step, owner, index);
		break;
	}
}

void record_action(struct step *step, uint8_t owner, uint8_t index, enum table table, uint8_t action)
{
	if (table == T_WRITE)
		write_action(step, owner, index, action);
	else if (table == T_PIN)
		pin_action(step, owner, index, action);
	else
		move_action(step, owner, index, action);
}
