/* Steps through the library's tables. What fsm/dispatch.c does, with a world that can be copied: next state and action come from the cell. */
#include "store/accessor/get_fsm.h"
#include "store/accessor/put_fsm.h"
#include "store/owner/move_record_fsm.h"
#include "store/owner/pin_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "tests/model/world.h"
#include "transports/grant_fsm.h"
#include <stdio.h>
#include <string.h>

const struct neap_fsm *const tables[TABLES] = {
	[T_PUT] = &neap_fsm_store_put,      [T_GET] = &neap_fsm_store_get,      [T_WRITE] = &neap_fsm_write_record,
	[T_PIN] = &neap_fsm_pin_record,     [T_MOVE] = &neap_fsm_move_record,   [T_GRANT] = &neap_fsm_grant,
};

/* Some protections are cells. Without one the cell says what it would say. */
static struct {
	struct neap_cell cells[TABLES][256];
	struct cell_counts *counts;
} now;

static void change(enum table table, uint8_t at, uint8_t event, uint8_t next, uint8_t action)
{
	now.cells[table][at * tables[table]->event_count + event] = (struct neap_cell){.kind = NEAP_CELL_GO, .next = next, .action = action};
}

void tables_begin(const struct setting *setting, struct cell_counts *counts)
{
	for (uint32_t i = 0; i < TABLES; i++)
		memcpy(now.cells[i], tables[i]->cells, (size_t)tables[i]->state_count * tables[i]->event_count * sizeof(struct neap_cell));
	now.counts = counts;
	if (setting->has_mutant)
		now.cells[setting->mutant_table][setting->mutant_cell] = (struct neap_cell){.kind = NEAP_CELL_IGNORE};
	if (setting->without[COMMIT_MASKS_EXPIRY]) {
		change(T_WRITE, write_record_SEALING, write_record_on_TIMEOUT, write_record_QUARANTINED, write_record_do_expire);
		change(T_WRITE, write_record_CHECKING, write_record_on_TIMEOUT, write_record_QUARANTINED, write_record_do_expire);
	}
	if (setting->without[UNKNOWN_STAYS]) {
		change(T_PUT, store_put_COMMITTING, store_put_on_UNSURE, store_put_REACHING, store_put_do_next);
		change(T_PUT, store_put_MOVING, store_put_on_UNSURE, store_put_REACHING, store_put_do_next);
	}
}

enum table table_of(const struct world *world, const struct pending *pending)
{
	if (pending->owner == NONE)
		return world->ops[pending->index].kind == GET ? T_GET : T_PUT;
	switch (world->owners[pending->owner].records[pending->index].type) {
	case WRITE_RECORD: return T_WRITE;
	case PIN_RECORD: return T_PIN;
	default: return T_MOVE;
	}
}

void post(struct step *step, uint8_t owner, uint8_t index, uint8_t event)
{
	if (step->tail - step->head == 32) {
		violated(step, "L1", "one event has more than 32 others follow at once");
		return;
	}
	step->queue[step->tail++ % 32] = (struct pending){.owner = owner, .index = index, .event = event};
}

static void run_one(struct step *step, const struct pending *pending)
{
	struct world *world = step->world;
	struct record *record = pending->owner == NONE ? NULL : &world->owners[pending->owner].records[pending->index];
	uint8_t *at = record ? &record->at : &world->ops[pending->index].at;
	if (record && record->type == NO_RECORD)
		return; /* of a generation that is over */
	enum table table = table_of(world, pending);
	const struct neap_fsm *fsm = tables[table];
	uint32_t place = (uint32_t)*at * fsm->event_count + pending->event;
	const struct neap_cell *cell = &now.cells[table][place];
	now.counts->hits[table][place]++;
	const char *before = fsm->states[*at].name, *event = fsm->event_names[pending->event];
	if (cell->kind == NEAP_CELL_IGNORE) {
		note(step, "%s %u: %s in %s is ignored", fsm->name, pending->index, event, before);
		return;
	}
	if (cell->kind != NEAP_CELL_GO) {
		static char text[160];
		(void)snprintf(text, sizeof text, "%s: %s in state %s", fsm->name, event, before);
		violated(step, "NEVER", text);
		return;
	}
	*at = cell->next;
	note(step, "%s %u: %s --%s--> %s, %s", fsm->name, pending->index, before, event, fsm->states[*at].name,
	     fsm->action_names[cell->action]);
	if (cell->action == 0)
		return;
	if (record)
		record_action(step, pending->owner, pending->index, table, cell->action);
	else
		op_action(step, pending->index, table, cell->action);
}

void run_queue(struct step *step)
{
	while (step->head != step->tail && !step->wrong) {
		struct pending pending = step->queue[step->head++ % 32];
		run_one(step, &pending);
	}
}

void grant_step(struct step *step, uint8_t *grant, uint8_t event)
{
	uint8_t at = (uint8_t)(*grant - 1);
	const struct neap_cell *cell = neap_fsm_cell(&neap_fsm_grant, at, event);
	now.counts->hits[T_GRANT][at * neap_fsm_grant.event_count + event]++;
	if (cell->kind != NEAP_CELL_GO) {
		violated(step, "NEVER", "grant: an event that cannot happen");
		return;
	}
	*grant = (uint8_t)(cell->next + 1);
}

bool grant_is_live(uint8_t grant)
{
	return grant == grant_LIVE + 1;
}

bool grant_is_ending(uint8_t grant)
{
	return grant == grant_FENCING + 1;
}

bool op_waits_with(const struct op *op, uint8_t *class_p)
{
	const struct neap_fsm *fsm = op->kind == GET ? &neap_fsm_store_get : &neap_fsm_store_put;
	*class_p = fsm->states[op->at].timeout_class;
	return *class_p != 0;
}

bool op_is_final(const struct op *op)
{
	const struct neap_fsm *fsm = op->kind == GET ? &neap_fsm_store_get : &neap_fsm_store_put;
	return fsm->states[op->at].kind == NEAP_STATE_FINAL;
}
