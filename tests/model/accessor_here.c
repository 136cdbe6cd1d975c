/* Values that are, or are to stay, in the process of the accessor: store/accessor/here.c. */
#include "store/accessor/get_fsm.h"
#include "store/accessor/put_fsm.h"
#include "store/owner/move_record_fsm.h"
#include "tests/model/world.h"

static uint8_t owner_here(const struct step *step, uint8_t index)
{
	return (uint8_t)(scenario_of(step)->here[index] - 1);
}

/* accessor_begins_here(); what is put stays here, if it can. */
bool begins_here(const struct step *step, uint8_t index)
{
	const struct op *op = &step->world->ops[index];
	if (scenario_of(step)->here[index] == 0 || op->stopped || op->kind == RESOLVE)
		return false;
	const struct key *key = &step->world->owners[owner_here(step, index)].keys[scenario_of(step)->keys[index]];
	return op->kind == PUT || (key->value != NONE && (key->known || !has(step, READS_SETTLED)));
}

/* --- put */

static void kept(struct step *step, uint8_t index, bool created, uint8_t version)
{
	struct op *op = &step->world->ops[index];
	op->created = created;
	op->version = version;
	post_op(step, index, store_put_on_ANSWERED);
}

static void not_kept(struct step *step, uint8_t index, uint8_t status)
{
	if (status == EXISTS)
		kept(step, index, false, key_at(step, owner_here(step, index), index)->version);
	else
		post_op(step, index, status == PROCESSING ? (uint8_t)store_put_on_BROKEN : (uint8_t)store_put_on_REFUSED);
}

static uint8_t take_move(struct step *step, uint8_t index, uint8_t slot)
{
	uint8_t owner = owner_here(step, index);
	uint8_t record = record_take(step, owner, MOVE_RECORD, &(struct message){.op = index}, slot);
	if (record != NONE)
		step->world->owners[owner].records[record].here = true;
	else
		slot_drop(step, owner, slot);
	return record;
}

/* accessor_do_keep(): copied at once (INLINE), or neap_owner_pull() within the process. */
void keep(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	uint8_t owner = owner_here(step, index), slot, status = owner_reserve(step, owner, index, &slot);
	struct owner *place = &step->world->owners[owner];
	op->owner = owner;
	op->until = true; /* there is no call */
	if (status != OK) {
		not_kept(step, index, status);
		return;
	}
	if (op->way == INLINE) {
		place->slots[slot].bytes[0] = place->slots[slot].bytes[1] = (uint8_t)(index + 1);
		key_publish(step, owner, slot, (uint8_t)(index + 1), 0, index);
		kept(step, index, true, (uint8_t)(index + 1));
		return;
	}
	uint8_t record = take_move(step, index, slot);
	if (record == NONE) {
		not_kept(step, index, NO_HANDLE);
		return;
	}
	place->records[record].entry = true;
	place->records[record].expected = scenario_of(step)->sums && has(step, CHECKSUMS);
	key_at(step, owner, index)->pending = record;
	post(step, owner, record, move_record_on_ORDER);
}

/* settle_as() */
static uint8_t settle_as(struct step *step, uint8_t index, uint8_t verdict)
{
	struct op *op = &step->world->ops[index];
	bool refused = verdict == REFUSED_SAME || verdict == REFUSED_OTHER;
	if (!op->created && refused)
		return store_put_on_EMPTY;
	switch (verdict) {
	case KNOWN:
	case GONE: conclude(step, index, op->created, op->version); return store_put_on_ANSWERED;
	case REFUSED_SAME:
		op->outcome = SUCCESS;
		op->created = false;
		return store_put_on_ANSWERED;
	case REFUSED_OTHER: return store_put_on_REFUSED;
	default: return has(step, LATE_IS_UNKNOWN) ? (uint8_t)store_put_on_UNSURE : (uint8_t)store_put_on_REFUSED;
	}
}

void settled(struct step *step, uint8_t index, uint8_t verdict)
{
	step->world->ops[index].settling = false;
	post_op(step, index, settle_as(step, index, verdict));
}

/* accessor_do_settle(), neap_announcer_ask() */
void settle(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	if (key_at(step, op->owner, index)->known || !has(step, PUTS_SETTLE))
		settled(step, index, KNOWN);
	else if (op->deadline || op->stopped) /* it passed while the value was copied, or a cancel came */
		settled(step, index, op->deadline ? TOO_LATE : STOPPED);
	else
		op->settling = true;
}

/* --- get */

/* accessor_do_fetch(): copied at once (INLINE), or neap_owner_push() within the process. */
void fetch(struct step *step, uint8_t index)
{
	struct op *op = &step->world->ops[index];
	uint8_t owner = owner_here(step, index);
	struct owner *place = &step->world->owners[owner];
	const struct key *key = key_at(step, owner, index);
	op->owner = owner;
	op->version = key->version;
	op->has_expected = scenario_of(step)->sums && has(step, CHECKSUMS);
	if (op->way == INLINE) {
		for (uint32_t half = 0; half < HALVES; half++)
			op->buffer[half] = place->slots[key->value].bytes[half];
		post_op(step, index, store_get_on_ANSWERED);
		return;
	}
	slot_hold(place, key->value);
	uint8_t record = take_move(step, index, key->value);
	if (record == NONE) {
		post_op(step, index, store_get_on_REFUSED);
		return;
	}
	place->records[record].push = true;
	place->records[record].version = key->version;
	post(step, owner, record, move_record_on_ORDER);
}

/* transports/local.c: nobody sees a part of the copy, and one that has ended touches nothing any more. */
void copied_here(struct step *step, uint8_t owner, uint8_t index)
{
	const struct record *record = &step->world->owners[owner].records[index];
	struct op *op = &step->world->ops[record->op];
	struct slot *slot = &step->world->owners[owner].slots[record->slot];
	check_buffer(step, record->op, !record->push);
	for (uint32_t half = 0; half < HALVES; half++)
		*(record->push ? &op->buffer[half] : &slot->bytes[half]) = record->push ? slot->bytes[half] : op->buffer[half];
}

/* kept(), fetched() */
void move_told(struct step *step, const struct record *done, uint8_t status)
{
	uint8_t index = done->op;
	if (step->world->ops[index].kind == GET)
		post_op(step, index, status == OK ? (uint8_t)store_get_on_ANSWERED : (uint8_t)store_get_on_REFUSED);
	else if (status == OK)
		kept(step, index, true, (uint8_t)(index + 1));
	else
		post_op(step, index, status == COPY_FAILED ? (uint8_t)store_put_on_BROKEN : (uint8_t)store_put_on_REFUSED);
}
