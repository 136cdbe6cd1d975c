/* The beginning of a world, and small things that all files of the model need. */
#include "store/accessor/get_fsm.h"
#include "store/accessor/put_fsm.h"
#include "tests/model/world.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void world_begin(struct world *world, const struct setting *setting)
{
	const struct scenario *scenario = setting->scenario;
	memset(world, 0, sizeof *world);
	for (uint32_t i = 0; i < OWNERS; i++) {
		struct owner *owner = &world->owners[i];
		owner->filler = NONE;
		for (uint32_t k = 0; k < KEYS; k++)
			owner->keys[k].value = owner->keys[k].pending = NONE;
	}
	world->directory.route = NONE;
	if (scenario->old) {
		struct owner *owner = &world->owners[0];
		owner->keys[0] = (struct key){.value = 0, .version = OLD, .pending = NONE, .known = true};
		if (scenario->directory)
			world->directory = (struct directory){.route = 0, .version = OLD};
		owner->slots[0] = (struct slot){.phase = COMMITTED, .references = 1, .bytes = {OLD, OLD}};
	}
	for (uint32_t i = 0; i < OPS; i++) {
		struct op *op = &world->ops[i];
		if (scenario->kinds[i] == NO_OP)
			continue;
		op->kind = scenario->kinds[i];
		op->way = scenario->ways[i];
		if (op->kind == PUT)
			op->buffer[0] = op->buffer[1] = (uint8_t)(i + 1);
	}
	memcpy(world->budgets, scenario->budgets, sizeof world->budgets);
}

void violated(struct step *step, const char *invariant, const char *text)
{
	if (step->wrong)
		return;
	step->wrong = text;
	step->invariant = invariant;
}

void note(struct step *step, const char *format, ...)
{
	char text[200];
	va_list arguments;
	if (!step->note)
		return;
	va_start(arguments, format);
	(void)vsnprintf(text, sizeof text, format, arguments);
	va_end(arguments);
	step->note(step->user, text);
}

bool budget_left(const struct world *world, enum budget budget)
{
	return world->budgets[budget] > 0 && (!budget_is_fault(budget) || world->budgets[FAULTS] > 0);
}

bool spend(struct step *step, enum budget budget)
{
	uint8_t *budgets = step->world->budgets;
	if (!budget_left(step->world, budget))
		return false;
	budgets[budget]--;
	if (budget_is_fault(budget) && --budgets[FAULTS] == 0)
		memset(&budgets[LOSS], 0, BUDGETS - LOSS); /* worlds without faults to come are alike */
	step->fault = true;
	return true;
}

void send(struct step *step, const struct message *message)
{
	for (uint32_t i = 0; i < MESSAGES; i++) {
		if (step->world->messages[i].type != NO_MESSAGE)
			continue;
		step->world->messages[i] = *message;
		return;
	}
	violated(step, "BOUND", "more messages are on their way than the model has room for");
}

uint8_t id_of(const struct owner *owner, uint32_t record)
{
	return (uint8_t)(1 + record + 8u * (owner->records[record].generation % 8u));
}

uint8_t record_find(const struct owner *owner, uint8_t id)
{
	uint8_t index = (uint8_t)((id - 1u) % 8u);
	if (id == 0 || index >= RECORDS || owner->records[index].type == NO_RECORD || id_of(owner, index) != id)
		return NONE;
	return index;
}

bool record_is(const struct owner *owner, uint8_t id, enum record_type type, uint8_t *index_p)
{
	*index_p = record_find(owner, id);
	return *index_p != NONE && owner->records[*index_p].type == type;
}

/* --- one order for what has none */

static int compare_messages(const void *left, const void *right)
{
	return memcmp(right, left, sizeof(struct message));
}

static int compare_pieces(const void *left, const void *right)
{
	return memcmp(right, left, sizeof(struct piece));
}

/* Few elements, nearly sorted: insertion. */
static void sort(void *items, uint32_t count, size_t size, int (*compare)(const void *left, const void *right))
{
	unsigned char *at = items, kept[sizeof(struct message) + sizeof(struct piece)];
	for (uint32_t i = 1; i < count; i++) {
		uint32_t k = i;
		memcpy(kept, at + i * size, size);
		for (; k > 0 && compare(at + (k - 1) * size, kept) > 0; k--)
			memcpy(at + k * size, at + (k - 1) * size, size);
		if (k != i)
			memcpy(at + k * size, kept, size);
	}
}

static bool is_spoken_of(const struct world *world, uint8_t op)
{
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type != NO_MESSAGE && world->messages[i].op == op)
			return true;
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < RECORDS; k++)
			if (world->owners[i].records[k].type != NO_RECORD && world->owners[i].records[k].op == op)
				return true;
	for (uint32_t i = 0; i < OWNERS; i++)
		if (world->owners[i].waits[op].method != NO_METHOD)
			return true;
	return false;
}

/* Of an operation that is over only what others can still notice is kept. */
static void settle_told(struct world *world, uint8_t index, bool keeps_created)
{
	struct op *op = &world->ops[index], kept = {0};
	kept.kind = op->kind;
	kept.at = op->at;
	kept.way = op->way;
	kept.told = true;
	kept.outcome = op->outcome;
	kept.commits = op->commits;
	kept.tells = op->tells;
	kept.created = keeps_created && op->created && op->outcome == SUCCESS;
	kept.accepted = op->accepted;
	if (op->outcome == UNKNOWN) {
		kept.owner = op->owner;
		kept.write_id = op->write_id;
		kept.until = op->until;
		kept.serial = op->serial;
		kept.known_epochs = op->known_epochs;
	}
	memcpy(kept.grants, op->grants, sizeof kept.grants);
	*op = kept;
	if (is_spoken_of(world, index) || op->outcome == UNKNOWN)
		return;
	for (uint32_t i = 0; i < OWNERS; i++)
		world->owners[i].lanes[index] = (struct lane){0};
}

/* Of one that goes on: what a question had, when none is under way; what is written before it is read again. */
static void settle_running(struct world *world, uint8_t index)
{
	struct op *op = &world->ops[index];
	bool leased = op->owner_id || op->ask == PRE_WRITE || op->ask == PIN_KEY;
	if (op->ask == NO_METHOD) {
		op->attempts = op->session = 0;
		op->perhaps = op->cut = op->has_id = false;
	}
	if (op->ask == NO_METHOD && !is_spoken_of(world, index)) { /* nothing knows a number of it */
		op->serial = 0;
		for (uint32_t i = 0; i < OWNERS; i++)
			world->owners[i].lanes[index].serial = world->owners[i].lanes[index].phase = 0;
	}
	op->guard = op->guard && leased;
	if (op->kind != GET && (op->at == store_put_KEEPING || op->at == store_put_SETTLING))
		return;
	if (op->kind != GET) {
		op->cleanup = op->cleanup && op->at == store_put_REVOKING;
		op->revokes = op->at == store_put_REVOKING ? op->revokes : 0;
		op->version = 0;
		return;
	}
	op->slot = 0;
	if (op->at != store_get_MOVING && op->at != store_get_RECALLING)
		op->verdict = 0;
	if (op->at != store_get_READING && op->at != store_get_MOVING && op->at != store_get_RECALLING && op->at != store_get_CHECKING &&
	    op->at != store_get_HOLDING && op->at != store_get_FETCHING)
		op->buffer[0] = op->buffer[1] = op->version = 0;
}

static bool is_asked(const struct world *world, uint8_t op, uint8_t owner, uint8_t serial)
{
	if (world->ops[op].ask != NO_METHOD && world->ops[op].serial == serial)
		return true;
	for (uint32_t i = 0; i < MESSAGES; i++) {
		const struct message *m = &world->messages[i];
		if (m->type == REQUEST && m->op == op && m->owner == owner && m->serial == serial)
			return true;
	}
	return false;
}

static void settle_owner(struct world *world, uint8_t index)
{
	struct owner *owner = &world->owners[index];
	for (uint8_t i = 0; i < OPS; i++) {
		struct wait *wait = &owner->waits[i];
		if (wait->method != NO_METHOD && !is_asked(world, i, index, wait->serial))
			*wait = (struct wait){0}; /* nobody will hear of it */
		struct lane *lane = &owner->lanes[i];
		if (lane->serial > 0 && lane->phase == ANSWERED && !is_asked(world, i, index, lane->serial)) {
			lane->attempt = lane->status = lane->id = lane->version = lane->slot = 0;
			lane->created = false;
		}
	}
	for (uint32_t i = 0; i < RECORDS; i++) {
		struct record *record = &owner->records[i];
		const struct op *op = &world->ops[record->op];
		if (record->type == NO_RECORD || record->type == MOVE_RECORD)
			continue;
		if (op->serial != record->serial || (op->ask != PRE_WRITE && op->ask != PIN_KEY))
			record->serial = 0;
		if (!record->done)
			record->answer_serial = record->answer_attempt = 0;
	}
}

static bool grant_is_over(const struct world *world, uint8_t op, uint8_t number)
{
	return number > 0 && !grant_is_live(world->ops[op].grants[number]) && !grant_is_ending(world->ops[op].grants[number]);
}

/* A grant that has ended is as good as any other. */
static void settle_grants(struct world *world)
{
	for (uint32_t i = 0; i < OPS; i++)
		for (uint32_t k = 0; k < GRANTS; k++)
			if (!grant_is_live(world->ops[i].grants[k]) && !grant_is_ending(world->ops[i].grants[k]))
				world->ops[i].grants[k] = 0;
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type == REQUEST && grant_is_over(world, world->messages[i].op, world->messages[i].lent))
			world->messages[i].lent = ENDED_GRANT;
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < RECORDS; k++) {
			struct record *record = &world->owners[i].records[k];
			if (record->type == MOVE_RECORD && grant_is_over(world, record->op, record->lent))
				record->lent = ENDED_GRANT;
		}
	for (uint32_t i = 0; i < PIECES; i++) {
		struct piece *piece = &world->pieces[i];
		if ((piece->kind == PULL || piece->kind == PUSH) && grant_is_over(world, piece->op, piece->id))
			piece->id = ENDED_GRANT;
	}
}

/* An answer to an attempt that is over changes nothing. */
bool is_awaited(const struct world *world, const struct message *message)
{
	const struct op *op = &world->ops[message->op];
	return op->call && message->method == op->ask && message->serial == op->serial && message->attempt == op->attempts;
}

static void swap_bytes(uint8_t bytes[HALVES])
{
	uint8_t first = bytes[0];
	bytes[0] = bytes[1];
	bytes[1] = first;
}

/* The halves of a value are alike: of a world and the one with all halves exchanged one stands for both. */
static void choose_half(struct world *world)
{
	struct world other;
	bool differs = false;
	for (uint32_t i = 0; i < OPS; i++)
		differs |= world->ops[i].buffer[0] != world->ops[i].buffer[1];
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < SLOTS; k++)
			differs |= world->owners[i].slots[k].bytes[0] != world->owners[i].slots[k].bytes[1];
	if (!differs && world->pieces[0].kind == NO_PIECE)
		return;
	other = *world;
	for (uint32_t i = 0; i < OPS; i++)
		swap_bytes(other.ops[i].buffer);
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < SLOTS; k++)
			swap_bytes(other.owners[i].slots[k].bytes);
	for (uint32_t i = 0; i < PIECES && other.pieces[i].kind != NO_PIECE; i++)
		other.pieces[i].half ^= 1;
	sort(other.pieces, PIECES, sizeof other.pieces[0], compare_pieces);
	if (memcmp(&other, world, sizeof other) < 0)
		*world = other;
}

void world_settle(struct step *step)
{
	struct world *world = step->world;
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type == REPLY && !is_awaited(world, &world->messages[i]))
			memset(&world->messages[i], 0, sizeof world->messages[i]);
	settle_grants(world);
	pieces_settle(step);
	for (uint8_t i = 0; i < OPS; i++) {
		const struct op *op = &world->ops[i];
		if (op->kind != NO_OP && op->told && op_is_final(op))
			settle_told(world, i, scenario_of(step)->directory);
		else if (op->kind != NO_OP)
			settle_running(world, i);
	}
	for (uint8_t i = 0; i < scenario_of(step)->owners; i++)
		settle_owner(world, i);
	sort(world->messages, MESSAGES, sizeof world->messages[0], compare_messages);
	sort(world->pieces, PIECES, sizeof world->pieces[0], compare_pieces);
	choose_half(world);
}

bool is_directory_asked(const struct step *step)
{
	return scenario_of(step)->directory;
}

struct key *key_at(struct step *step, uint8_t owner, uint8_t op)
{
	return &step->world->owners[owner].keys[scenario_of(step)->keys[op]];
}
