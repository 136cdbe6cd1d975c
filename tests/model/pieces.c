/* Bytes on their way. A value travels as two halves. Each is looked at where it arrives: the grant is asked before it is stored or handed
 * out (ADMITTED), and what was admitted still happens: the grace period of a grant that ends is that nothing is admitted any more. */
#include "tests/model/world.h"
#include <string.h>

void piece_add(struct step *step, const struct piece *piece)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		if (step->world->pieces[i].kind != NO_PIECE)
			continue;
		step->world->pieces[i] = *piece;
		return;
	}
	violated(step, "BOUND", "more bytes are on their way than the model has room for");
}

void piece_remove(struct world *world, uint32_t index)
{
	memset(&world->pieces[index], 0, sizeof world->pieces[index]);
}

/* accessor_transfer() in bytes.c: under the owner's grant. */
void pieces_of_op(struct step *step, uint8_t index, enum piece_kind kind)
{
	struct op *op = &step->world->ops[index];
	op->batch = true;
	op->failed = false;
	for (uint8_t half = 0; half < HALVES; half++) {
		struct piece piece = {.kind = (uint8_t)kind, .op = index, .owner = op->owner, .id = op->owner_id, .record = op->owner_id,
		                      .epoch = (uint8_t)(op->known_epochs >> op->owner & 1u), .half = half, .live = true, .local = true, .slot = op->slot,
		                      .stamp = kind == FORWARD_WRITE ? op->buffer[half] : NOTHING};
		piece_add(step, &piece);
	}
}

/* do_move() in move_record.c: under the accessor's. Within a process nothing travels: copied_here(). */
void pieces_of_move(struct step *step, uint8_t owner, uint8_t index)
{
	const struct owner *place = &step->world->owners[owner];
	const struct record *record = &place->records[index];
	for (uint8_t half = 0; half < HALVES && !record->here; half++) {
		struct piece piece = {.kind = record->push ? PUSH : PULL, .op = record->op, .owner = owner, .id = record->lent,
		                      .record = id_of(place, index), .epoch = place->epoch, .slot = record->slot, .half = half,
		                      .stamp = record->push ? place->slots[record->slot].bytes[half] : NOTHING, .live = true, .local = true};
		piece_add(step, &piece);
	}
}

/* --- arriving at an owner */

/* As if a token were the memory's, and not the grant's. */
static bool may_be_written(const struct owner *place, uint8_t slot)
{
	for (uint32_t i = 0; i < RECORDS; i++) {
		const struct record *record = &place->records[i];
		if (record->type == WRITE_RECORD && record->slot == slot && grant_is_live(record->grant))
			return true;
	}
	return false;
}

static bool owner_admits(const struct step *step, const struct piece *piece)
{
	const struct owner *place = &step->world->owners[piece->owner];
	enum record_type type = piece->kind == FORWARD_WRITE ? WRITE_RECORD : PIN_RECORD;
	uint8_t index;
	if (!has(step, GRANT_PER_PIECE))
		return true;
	if (place->epoch != piece->epoch && has(step, FENCE_EPOCH))
		return false;
	if (!has(step, FRESH_TOKENS) && piece->kind == FORWARD_WRITE)
		return may_be_written(place, piece->slot);
	if (record_is(place, piece->id, type, &index))
		return grant_is_live(place->records[index].grant);
	return type == WRITE_RECORD && place->slots[piece->slot].left_open;
}

static bool accessor_admits(const struct step *step, const struct piece *piece)
{
	return !has(step, GRANT_PER_PIECE) || grant_is_live(step->world->ops[piece->op].grants[piece->id]);
}

static void store(struct step *step, struct piece *piece)
{
	struct owner *place = &step->world->owners[piece->owner];
	struct slot *slot = &place->slots[piece->slot];
	bool others = slot->phase == COMMITTED && slot->bytes[piece->half] != piece->stamp;
	for (uint8_t i = 0; i < RECORDS; i++) {
		const struct record *record = &place->records[i];
		bool writes = record->type == WRITE_RECORD || (record->type == MOVE_RECORD && !record->push);
		if (writes && record->holds && record->slot == piece->slot && id_of(place, i) != piece->record)
			others = true;
	}
	slot->bytes[piece->half] = piece->stamp;
	note(step, "memory: a half of operation %u's bytes is stored in slot %u of owner %u", piece->op, piece->slot, piece->owner);
	if (others)
		violated(step, "S1", "bytes were stored into memory that is another's, or published");
}

static void refused(struct step *step, uint32_t index)
{
	struct piece *piece = &step->world->pieces[index];
	bool forward = piece->kind == FORWARD_WRITE || piece->kind == FORWARD_READ;
	uint8_t record;
	note(step, "a half of operation %u's bytes is refused: its grant has ended", piece->op);
	if (forward && piece->live)
		step->world->ops[piece->op].failed |= piece->kind == FORWARD_WRITE || (!scenario_of(step)->blind && has(step, REFUSALS_TOLD));
	else if (!forward && piece->live && record_is(&step->world->owners[piece->owner], piece->record, MOVE_RECORD, &record))
		step->world->owners[piece->owner].records[record].refused = true;
	piece_remove(step->world, index);
}

static void arrive(struct step *step, struct piece *piece)
{
	struct op *op = &step->world->ops[piece->op];
	check_buffer(step, piece->op, false);
	op->buffer[piece->half] = piece->stamp;
	note(step, "a half of what operation %u reads is in its buffer", piece->op);
}

/* The next thing that happens to it. */
void piece_moves(struct step *step, uint32_t index)
{
	struct piece *piece = &step->world->pieces[index];
	bool forward = piece->kind == FORWARD_WRITE || piece->kind == FORWARD_READ;
	if (piece->at == ON_THE_WIRE) {
		if (!(forward ? owner_admits(step, piece) : accessor_admits(step, piece))) {
			refused(step, index);
			return;
		}
		piece->at = ADMITTED;
		note(step, "a half of operation %u's bytes is admitted", piece->op);
		return;
	}
	if (piece->kind == PULL)
		check_buffer(step, piece->op, true);
	if (piece->kind == PULL && piece->stamp == NOTHING)
		piece->stamp = step->world->ops[piece->op].buffer[piece->half];
	if (piece->kind == FORWARD_READ && piece->stamp == NOTHING)
		piece->stamp = step->world->owners[piece->owner].slots[piece->slot].bytes[piece->half];
	if (piece->kind == FORWARD_WRITE || piece->kind == PULL)
		store(step, piece);
	else
		arrive(step, piece);
	piece_remove(step->world, index);
}

bool pieces_admitted(const struct world *world, bool of_accessor, uint8_t who, uint8_t id)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		const struct piece *piece = &world->pieces[i];
		bool reverse = piece->kind == PULL || piece->kind == PUSH;
		if (piece->kind != NO_PIECE && piece->at == ADMITTED && reverse == of_accessor && piece->id == id &&
		    (of_accessor ? piece->op : piece->owner) == who)
			return true;
	}
	return false;
}

static bool is_of(const struct piece *piece, uint8_t op, bool of_move, uint8_t owner, uint8_t id)
{
	bool reverse = piece->kind == PULL || piece->kind == PUSH;
	if (piece->kind == NO_PIECE || reverse != of_move)
		return false;
	return of_move ? piece->owner == owner && piece->record == id : piece->op == op;
}

uint32_t pieces_live(const struct world *world, uint8_t op, bool of_move, uint8_t owner, uint8_t id)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < PIECES; i++)
		count += is_of(&world->pieces[i], op, of_move, owner, id) && world->pieces[i].live;
	return count;
}

static void let_go(struct world *world, uint32_t index, bool held)
{
	struct piece *piece = &world->pieces[index];
	piece->live = false;
	piece->local = held;
	if (!held && (piece->kind == FORWARD_READ || piece->kind == PULL))
		piece_remove(world, index);
}

void pieces_end(struct step *step, uint8_t op, bool of_move, uint8_t owner, uint8_t id, bool held)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		struct piece *piece = &step->world->pieces[i];
		if (is_of(piece, op, of_move, owner, id) && piece->live)
			let_go(step->world, i, held);
	}
}

void pieces_release(struct step *step, uint8_t op, bool of_move, uint8_t owner, uint8_t id)
{
	for (uint32_t i = 0; i < PIECES; i++) {
		struct piece *piece = &step->world->pieces[i];
		if (is_of(piece, op, of_move, owner, id) && !piece->live && piece->local)
			let_go(step->world, i, false);
	}
}

/* What nobody waits for, and what will be refused wherever it arrives, is gone. */
void pieces_settle(struct step *step)
{
	bool lasts = has(step, FENCE_EPOCH) && has(step, FRESH_TOKENS); /* what is refused now is refused for ever */
	for (uint32_t i = 0; i < PIECES && lasts; i++) {
		struct piece *piece = &step->world->pieces[i];
		bool reverse = piece->kind == PULL || piece->kind == PUSH;
		if (piece->kind == NO_PIECE || piece->live || piece->local || piece->at != ON_THE_WIRE)
			continue;
		if (!(reverse ? accessor_admits(step, piece) : owner_admits(step, piece)))
			piece_remove(step->world, i);
	}
}
