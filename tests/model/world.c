/* The beginning of a world, and small things that all files of the model need. */
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
		owner->value = owner->pending = owner->filler = NONE;
	}
	if (scenario->old) {
		struct owner *owner = &world->owners[0];
		owner->value = 0;
		owner->version = OLD;
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

bool spend(struct step *step, enum budget budget)
{
	if (step->world->budgets[budget] == 0)
		return false;
	step->world->budgets[budget]--;
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
	return false;
}

/* Of an operation that is over only what others can still notice is kept. */
static void settle_op(struct world *world, uint8_t index)
{
	struct op *op = &world->ops[index], kept = {0};
	if (op->kind == NO_OP || !op->told || !op_is_final(op))
		return;
	kept.kind = op->kind;
	kept.at = op->at;
	kept.way = op->way;
	kept.told = true;
	kept.outcome = op->outcome;
	kept.commits = op->commits;
	kept.tells = op->tells;
	if (op->outcome == UNKNOWN) {
		kept.owner = op->owner;
		kept.write_id = op->write_id;
		kept.until = op->until;
		kept.serial = op->serial;
		kept.known_epochs = op->known_epochs;
	}
	for (uint32_t i = 0; i < GRANTS; i++)
		kept.grants[i] = grant_is_live(op->grants[i]) || grant_is_ending(op->grants[i]) ? op->grants[i] : 0;
	*op = kept;
	if (is_spoken_of(world, index) || op->outcome == UNKNOWN)
		return;
	for (uint32_t i = 0; i < OWNERS; i++)
		world->owners[i].lanes[index] = (struct lane){0};
}

/* An answer to an attempt that is over changes nothing. */
bool is_awaited(const struct world *world, const struct message *message)
{
	const struct op *op = &world->ops[message->op];
	return op->call && message->method == op->ask && message->serial == op->serial && message->attempt == op->attempts;
}

void world_settle(struct world *world)
{
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type == REPLY && !is_awaited(world, &world->messages[i]))
			memset(&world->messages[i], 0, sizeof world->messages[i]);
	for (uint8_t i = 0; i < OPS; i++)
		settle_op(world, i);
	sort(world->messages, MESSAGES, sizeof world->messages[0], compare_messages);
	sort(world->pieces, PIECES, sizeof world->pieces[0], compare_pieces);
}
