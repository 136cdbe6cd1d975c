/* What must hold. Looked at after every step; what a caller is told is looked at when it is told. */
#include "store/owner/pin_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "tests/model/world.h"
#include <stdio.h>

const struct invariant_text invariant_texts[] = {
	{"NEVER", "no event comes in a state in which the table says that it cannot"},
	{"S1", "no byte of a one-sided write is stored into memory that is another's or published"},
	{"S2", "a get that succeeds returns the bytes of one version, which the key had at some moment of the get"},
	{"S3", "a caller's buffer is neither written nor read once its operation was told and the buffer is not held"},
	{"S4", "a write is committed once, and a key with a value gets no second one"},
	{"S5", "what is published is what the writer put, and it does not change"},
	{"S6", "a write that was revoked or whose lease has ended is never published"},
	{"S7", "memory of a value, of a pin and of a move is not free, and keeps its bytes until it is let go of"},
	{"S8", "the counts of memory are those of who holds it and of who can reach it"},
	{"S9", "no memory has two uses"},
	{"RECORD", "a record has in each state what the owner's own invariants say (write_record.c, pin_record.c)"},
	{"S11", "an operation is told once"},
	{"S12", "SUCCESS only of what is committed, FAILED only of what will never become visible, UNKNOWN never of a get"},
	{"L1", "from each situation, without any further fault, every operation and every record can come to its end"},
	{"L3", "an operation that was canceled or whose time is over waits for no answer, but for that of a commit that was sent and of a revoke"},
	{"L2", "when they all have, all memory but that of values is free"},
	{"ONE", "of the values of a key that may be read there is one version"},
	{"LIMIT", "the quarantine holds no more than its limit and what was granted before it was reached"},
	{"BOUND", "the model's own room was enough"},
};
const uint32_t invariant_count = sizeof invariant_texts / sizeof invariant_texts[0];

static bool holds_bytes(const struct slot *slot, uint8_t stamp)
{
	return slot->bytes[0] == stamp && slot->bytes[1] == stamp;
}

static void check_key(struct step *step, const struct owner *owner, const struct key *key)
{
	if (key->value == NONE)
		return;
	const struct slot *slot = &owner->slots[key->value];
	if (slot->phase != COMMITTED || slot->references == 0)
		violated(step, "S7", "the memory of the key's value is not its own any more");
	else if (!holds_bytes(slot, key->version))
		violated(step, "S5", "the bytes of a published value have changed");
	if (key->value == owner->filler)
		violated(step, "S9", "two values are in the same memory");
}

static void check_values(struct step *step, const struct owner *owner)
{
	for (uint32_t i = 0; i < KEYS; i++)
		check_key(step, owner, &owner->keys[i]);
	if (owner->filler != NONE && !holds_bytes(&owner->slots[owner->filler], FILLER))
		violated(step, "S1", "the bytes of another key's value have changed");
	if (owner->keys[0].value != NONE && owner->keys[0].value == owner->keys[1].value)
		violated(step, "S9", "two values are in the same memory");
}

/* invariant() in write_record.c and pin_record.c */
static void check_inside(struct step *step, const struct record *record)
{
	if (record->type == PIN_RECORD && record->at == pin_record_PINNED && (!record->exposed || record->ending))
		violated(step, "RECORD", "what is pinned may be read");
	if (record->type != WRITE_RECORD)
		return;
	if (record->at == write_record_GRANTED && (!record->entry || !record->exposed))
		violated(step, "RECORD", "a granted write has its key and may be written");
	if (record->at == write_record_SEALING && (!record->entry || !record->done))
		violated(step, "RECORD", "a write that is being committed has its key and an asker");
	if (record->at == write_record_QUARANTINED && record->entry)
		violated(step, "RECORD", "a write in quarantine blocks its key");
}

static void check_record(struct step *step, const struct owner *owner, const struct record *record)
{
	const struct slot *slot = &owner->slots[record->slot];
	check_inside(step, record);
	if (!record->holds && has(step, QUARANTINE) && record->type == PIN_RECORD)
		violated(step, "S7", "a pin has let go of its memory before its end");
	if (!record->holds)
		return;
	if (slot->phase == FREE)
		violated(step, "S7", "memory that is reserved, pinned or being moved is free");
	if ((record->type == PIN_RECORD || record->push) && !holds_bytes(slot, record->version))
		violated(step, "S7", "the bytes of a pinned value have changed");
}

static void check_counts(struct step *step, const struct owner *owner)
{
	uint8_t references[SLOTS] = {0}, exposures[SLOTS] = {0}, writers[SLOTS] = {0};
	for (uint32_t i = 0; i < RECORDS; i++) {
		const struct record *record = &owner->records[i];
		if (record->type == NO_RECORD)
			continue;
		references[record->slot] = (uint8_t)(references[record->slot] + record->holds);
		exposures[record->slot] = (uint8_t)(exposures[record->slot] + record->exposed);
		writers[record->slot] = (uint8_t)(writers[record->slot] + (record->holds && record->type != PIN_RECORD && !record->push));
	}
	for (uint32_t i = 0; i < KEYS; i++)
		if (owner->keys[i].value != NONE)
			references[owner->keys[i].value]++;
	if (owner->filler != NONE)
		references[owner->filler]++;
	for (uint32_t i = 0; i < SLOTS; i++) {
		const struct slot *slot = &owner->slots[i];
		bool used = slot->phase == RESERVED || slot->phase == COMMITTED;
		if (slot->references != references[i] || slot->exposures != exposures[i] || used != (references[i] > 0))
			violated(step, "S8", "memory is counted otherwise than it is held");
		if (slot->phase == QUARANTINED && exposures[i] == 0)
			violated(step, "L2", "memory is in quarantine that nobody can reach");
		if (writers[i] > 1 || (writers[i] == 1 && slot->phase == COMMITTED))
			violated(step, "S9", "memory has two uses");
	}
}

static void check_pieces(struct step *step)
{
	const struct world *world = step->world;
	for (uint32_t i = 0; i < PIECES; i++) {
		const struct piece *piece = &world->pieces[i];
		bool reverse = piece->kind == PULL || piece->kind == PUSH;
		const struct op *op = &world->ops[piece->op];
		uint8_t record;
		if (piece->kind == NO_PIECE || !piece->local)
			continue;
		if (!reverse && op->told && !op->told_held)
			violated(step, "S3", "a buffer is still in use by the transport after its operation was told");
		if (reverse && !record_is(&world->owners[piece->owner], piece->record, MOVE_RECORD, &record))
			violated(step, "S7", "memory is still in use by the transport after its move has let go of it");
	}
}

/* What is granted while the quarantine has room may still come to it: one write of each key, also one whose lease is found to be over when
 * the next one is asked for. */
static void check_quarantine(struct step *step, const struct owner *owner)
{
	uint32_t most = scenario_of(step)->quarantine_max, count = 0, keys = 1;
	for (uint32_t i = 0; i < SLOTS; i++)
		count += owner->slots[i].phase == QUARANTINED;
	for (uint32_t i = 0; i < OPS; i++)
		keys = scenario_of(step)->keys[i] ? KEYS : keys;
	if (most > 0 && count > most + keys)
		violated(step, "LIMIT", "more memory is in quarantine than its limit and the writes that were granted before it was reached");
}

/* ONE: values of one key that may be read are of one version. */
static void check_settling(struct step *step)
{
	const struct owner *owners = step->world->owners;
	const struct key *first = &owners[0].keys[0], *second = &owners[1].keys[0];
	if (first->value != NONE && second->value != NONE && first->known && second->known && is_directory_asked(step))
		violated(step, "ONE", "two owners have values of one key that may be read");
	for (uint32_t i = 0; i < OPS; i++)
		if (step->world->ops[i].settling && step->world->ops[i].stopped)
			violated(step, "L3", "an operation that was canceled waits for the directory");
}

void check_world(struct step *step)
{
	for (uint32_t i = 0; i < scenario_of(step)->owners; i++) {
		const struct owner *owner = &step->world->owners[i];
		check_values(step, owner);
		check_quarantine(step, owner);
		for (uint32_t k = 0; k < RECORDS; k++)
			if (owner->records[k].type != NO_RECORD)
				check_record(step, owner, &owner->records[k]);
		check_counts(step, owner);
	}
	check_pieces(step);
	check_settling(step);
}

/* After a cancel, or the timer in a state that it was set for. */
void check_ends_soon(struct step *step, uint8_t index, bool canceled, bool revoked_before)
{
	const struct op *op = &step->world->ops[index];
	bool waits = op->asking || op->reaching || op->call; /* a pause is short */
	bool may = canceled ? op->ask == COMMIT || op->ask == REVOKE : revoked_before != (op->ask == REVOKE);
	if (!op->told && waits && !may)
		violated(step, "L3", canceled ? "an operation waits on after its cancel" : "an operation waits on after its time was over");
}

static void check_get(struct step *step, const struct op *op)
{
	if (op->outcome == UNKNOWN)
		violated(step, "S12", "a get was told UNKNOWN");
	if (op->outcome != SUCCESS)
		return;
	if (op->buffer[0] != op->version || op->buffer[1] != op->version)
		violated(step, "S2", "a get succeeded with bytes that are not those of one version");
	else if (!(op->seen >> op->version & 1u))
		violated(step, "S2", "a get succeeded with a version that the key did not have since the get began");
}

/* The value of the put was, or is there to become visible. */
static bool may_be_seen(const struct step *step, uint8_t index)
{
	bool is_there = step->world->ops[index].accepted;
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < KEYS; k++)
			is_there |= step->world->owners[i].keys[k].value != NONE && step->world->owners[i].keys[k].version == index + 1;
	return is_there;
}

/* Of an owner's value, before it may be read. */
void check_accept(struct step *step, uint8_t version)
{
	for (uint32_t i = 0; i < OPS; i++)
		if (version == i + 1 && step->world->ops[i].told && step->world->ops[i].outcome == FAILED)
			violated(step, "S12", "a put was told FAILED, and became visible later");
}

void check_told(struct step *step, uint8_t index)
{
	const struct op *op = &step->world->ops[index];
	if (op->tells > 1)
		violated(step, "S11", "an operation was told twice");
	if (op->kind == GET) {
		check_get(step, op);
		return;
	}
	if (op->outcome == SUCCESS && op->created && op->commits == 0)
		violated(step, "S12", "a put was told SUCCESS, and its bytes were never committed");
	if (op->outcome == SUCCESS && !op->created && !op->seen)
		violated(step, "S12", "a put was told that the key had a value, and it had none");
	if (op->outcome == SUCCESS && op->created && is_directory_asked(step) && !op->accepted)
		violated(step, "S12", "a put was told SUCCESS, and the directory does not know its value");
	if (op->kind == PUT && op->outcome == FAILED && op->commits > 0 && (!is_directory_asked(step) || may_be_seen(step, index)))
		violated(step, "S12", "a put was told FAILED, and its bytes had been committed");
}

/* Before the value is the key's. */
void check_publish(struct step *step, uint8_t owner, uint8_t slot, uint8_t version, uint8_t index)
{
	const struct owner *place = &step->world->owners[owner];
	const struct op *op = &step->world->ops[index];
	if (key_at(step, owner, index)->value != NONE)
		violated(step, "S4", "a key that has a value got another one");
	else if (op->commits > 0)
		violated(step, "S4", "one put was committed twice");
	else if (op->told && op->outcome == FAILED)
		violated(step, "S12", "a put was told FAILED, and became visible later");
	else if (!holds_bytes(&place->slots[slot], version))
		violated(step, "S5", "what was published are not the bytes of the put");
}

void check_buffer(struct step *step, uint8_t index, bool reading)
{
	const struct op *op = &step->world->ops[index];
	if (op->told && !op->told_held)
		violated(step, "S3", reading ? "a buffer was read after its operation was told" : "a buffer was written after its operation was told");
}
