/* What can happen next in a world. happen.c makes it happen. */
#include "store/accessor/get_fsm.h"
#include "store/accessor/put_fsm.h"
#include "store/owner/move_record_fsm.h"
#include "store/owner/pin_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "tests/model/events.h"
#include "tests/model/world.h"
#include <stdio.h>
#include <string.h>

#define AS_NAME(kind, name, text) #name,
static const char *const names[] = {EVENTS(AS_NAME)};
#define AS_TEXT(kind, name, text) text,
static const char *const texts[] = {EVENTS(AS_TEXT)};

const char *event_name(uint8_t kind)
{
	return kind < EVENT_KINDS ? names[kind] : "?";
}

int event_find(const char *name)
{
	for (int i = 0; i < EVENT_KINDS; i++)
		if (strcmp(name, names[i]) == 0)
			return i;
	return -1;
}

static const char *method_name(uint8_t method)
{
	static const char *const methods[] = {"?", "PreWrite", "WriteCommit", "WriteRevoke", "WriteRemoteData", "LookUp", "PinKey",
	                                      "ReadRemoteData", "UnPinKey"};
	return methods[method];
}

static const char *status_name(uint8_t status)
{
	static const char *const statuses[] = {"OK", "ALREADY_EXISTS", "IS_PROCESSING", "NOT_FOUND", "NO_AVAILABLE_HANDLE", "LEASE_EXPIRED",
	                                       "INVALID_WRITE", "DATA_COPY_FAILED", "TRANSFER_FAIL", "no session", "not sent", "UNAVAILABLE",
	                                       "REPLICA_IS_NOT_READY", "REPLICA_NUM_EXCEEDED", "CAS_FAILED"};
	return statuses[status];
}

void event_text(const struct world *world, const struct event *event, char *text, uint32_t size)
{
	if (event->kind == HAPPENS_DELIVER) {
		const struct message *m = &world->messages[event->a];
		if (m->type == REQUEST)
			(void)snprintf(text, size, "%s of operation %u (attempt %u) arrives at owner %u", method_name(m->method), m->op, m->attempt + 1,
			               m->owner);
		else
			(void)snprintf(text, size, "the answer to %s of operation %u (attempt %u) arrives: %s", method_name(m->method), m->op,
			               m->attempt + 1, status_name(m->status));
		return;
	}
	if (event->kind == HAPPENS_PIECE) {
		static const char *const moves[][2] = {
			{"?", "?"},
			{"a half that operation %u writes comes to owner %u, which looks at the grant", "a half that operation %u writes is stored at owner %u"},
			{"operation %u asks for a half, and owner %u looks at the grant", "a half that operation %u reads is taken from owner %u"},
			{"operation %u is asked for a half by owner %u, and looks at the grant", "a half of operation %u is stored at owner %u"},
			{"operation %u is brought a half by owner %u, and looks at the grant", "operation %u's buffer gets a half from owner %u"},
		};
		const struct piece *piece = &world->pieces[event->a];
		(void)snprintf(text, size, moves[piece->kind][piece->at], piece->op, piece->owner);
		return;
	}
	(void)snprintf(text, size, texts[event->kind], event->a, event->b);
}

/* --- what can happen ------------------------------------------------------------------------------------------------------------- */

struct list {
	struct event *events;
	uint32_t count, max;
	const struct world *world;
	const struct setting *setting;
};

static void can(struct list *list, uint8_t kind, uint8_t a, uint8_t b)
{
	if (list->count < list->max)
		list->events[list->count] = (struct event){kind, a, b};
	list->count++;
}

static bool left(const struct list *list, enum budget budget)
{
	return budget_left(list->world, budget);
}

static bool are_alike(const struct scenario *s, uint32_t left, uint32_t right)
{
	return s->kinds[left] == s->kinds[right] && s->ways[left] == s->ways[right] && s->keys[left] == s->keys[right] &&
	       s->here[left] == s->here[right] && s->starts[left] == s->starts[right];
}

/* Of alike operations the one with the lower number begins first: they differ in nothing else. */
static bool may_start(const struct list *list, uint8_t index)
{
	const struct op *op = &list->world->ops[index];
	if (op->kind == NO_OP || op->kind == RESOLVE || op->at != 0 || op->told)
		return false;
	const struct scenario *s = list->setting->scenario;
	for (uint32_t i = 0; i < index; i++)
		if (are_alike(s, i, index) && list->world->ops[i].at == 0 && !list->world->ops[i].told)
			return false;
	return true;
}

/* Something of the call under way is still on its way, or the owner works on it. */
bool answer_may_come(const struct world *world, uint8_t index)
{
	const struct op *op = &world->ops[index];
	for (uint32_t i = 0; i < MESSAGES; i++) {
		const struct message *m = &world->messages[i];
		if (m->type != NO_MESSAGE && m->op == index && m->method == op->ask && m->serial == op->serial && m->attempt == op->attempts)
			return true;
	}
	const struct owner *owner = &world->owners[op->owner];
	const struct lane *lane = &owner->lanes[index];
	const struct wait *wait = &owner->waits[index];
	if (wait->method == op->ask && wait->serial == op->serial)
		return true;
	if (lane->phase == UNDER_WAY && lane->serial == op->serial && lane->attempt == op->attempts) {
		for (uint32_t i = 0; i < RECORDS; i++)
			if (owner->records[i].type != NO_RECORD && owner->records[i].op == index && owner->records[i].answer_serial == op->serial)
				return true;
	}
	for (uint32_t i = 0; i < RECORDS; i++) {
		const struct record *record = &owner->records[i];
		if (record->type == MOVE_RECORD && record->push && record->op == index && record->answer_serial == op->serial &&
		    record->answer_attempt == op->attempts && record->at != move_record_HOLDING)
			return true;
	}
	return false;
}

static bool unsent(const struct world *world, uint8_t index)
{
	const struct op *op = &world->ops[index];
	for (uint32_t i = 0; i < MESSAGES; i++) {
		const struct message *m = &world->messages[i];
		if (m->type == REQUEST && m->op == index && m->method == op->ask && m->serial == op->serial && m->attempt == op->attempts)
			return true;
	}
	return false;
}

static void of_batch(struct list *list, uint8_t index)
{
	const struct op *op = &list->world->ops[index];
	uint32_t live = pieces_live(list->world, index, false, 0, 0);
	bool reason = op->failed || op->guard || op->deadline || op->stopped;
	if (live == 0 && !op->failed)
		can(list, HAPPENS_BATCH_DONE, index, 0);
	if (reason || left(list, XFER))
		can(list, HAPPENS_BATCH_FAILED, index, 0);
	if (live > 0 && left(list, HELD) && (reason || left(list, XFER)))
		can(list, HAPPENS_BATCH_HELD, index, 0);
	if (op->kind == PUT && left(list, STRAY))
		can(list, HAPPENS_STRAY_WRITE, index, 0);
}

static void of_call(struct list *list, uint8_t index)
{
	bool come = answer_may_come(list->world, index);
	if (!come || left(list, LOSS))
		can(list, HAPPENS_NO_ANSWER, index, 0);
	if (left(list, UNREACHABLE) && unsent(list->world, index))
		can(list, HAPPENS_UNSENT, index, 0);
	if (list->world->ops[index].ask == COMMIT && left(list, STRAY))
		can(list, HAPPENS_STRAY_WRITE, index, 0);
}

static void of_grants(struct list *list, uint8_t index)
{
	for (uint8_t i = 1; i < GRANTS; i++)
		if (grant_is_ending(list->world->ops[index].grants[i]) && !pieces_admitted(list->world, true, index, i))
			can(list, HAPPENS_GRANT_OVER, index, i);
}

static void of_op(struct list *list, uint8_t index)
{
	const struct op *op = &list->world->ops[index];
	uint8_t class_;
	if (op->kind == NO_OP)
		return;
	of_grants(list, index);
	if (may_start(list, index)) {
		can(list, HAPPENS_START, index, 0);
		if (left(list, CANCEL))
			can(list, HAPPENS_ASK_CANCEL, index, 0);
		return;
	}
	if (op->told && op->outcome == UNKNOWN && op->kind == PUT && op_is_final(op) && list->setting->scenario->resolve)
		can(list, HAPPENS_ASK_RESOLVE, index, 0);
	if (op->outcome == UNKNOWN && op->write_id == 0 && !op->until && (op->kind == RESOLVE || op->told) && list->setting->scenario->resolve)
		can(list, HAPPENS_PASS_UNTIL, index, 0);
	else if (op->kind == RESOLVE && op->write_id == 0 && !op->until && !op->told)
		can(list, HAPPENS_PASS_UNTIL, index, 0);
	if (op->held)
		can(list, HAPPENS_BUFFER_RELEASED, index, 0);
	if (op->told || op->at == 0)
		return;
	if (!op->stopped && left(list, CANCEL))
		can(list, HAPPENS_ASK_CANCEL, index, 0);
	if (!op->deadline && left(list, DEADLINE))
		can(list, HAPPENS_PASS_DEADLINE, index, 0);
	if (op_waits_with(op, &class_)) {
		bool cleanup = op->kind != GET && class_ == store_put_timeout_CLEANUP;
		if (cleanup && !op->cleanup && left(list, DEADLINE))
			can(list, HAPPENS_PASS_CLEANUP, index, 0);
		if (cleanup ? op->cleanup : op->deadline)
			can(list, HAPPENS_TIMER, index, 0);
	}
	bool leased = op->way == FORWARD && (op->owner_id || op->ask == PRE_WRITE || op->ask == PIN_KEY);
	if (leased && !op->guard && left(list, LEASE))
		can(list, HAPPENS_PASS_GUARD, index, 0);
	if (op->asking) {
		can(list, HAPPENS_PLACED, index, 0);
		if (left(list, UNREACHABLE))
			can(list, HAPPENS_UNPLACED, index, 0);
	}
	if (op->reaching) {
		can(list, HAPPENS_REACHED, index, 0);
		if (left(list, UNREACHABLE))
			can(list, HAPPENS_UNREACHED, index, 0);
	}
	if (op->paused)
		can(list, HAPPENS_RESUMED, index, 0);
	if (op->call)
		of_call(list, index);
	if (op->batch)
		of_batch(list, index);
	if (op->summing)
		can(list, HAPPENS_SUMMED, index, 0);
	if (op->settling && op->deadline)
		can(list, HAPPENS_SETTLE_LATE, index, 0);
}

/* The owner counts from when it answers, the accessor from when it asked: whoever still counts on the lease sees its end first. */
static bool lease_may_end(const struct list *list, uint8_t owner, uint8_t index)
{
	const struct world *world = list->world;
	const struct record *record = &world->owners[owner].records[index];
	uint8_t id = id_of(&world->owners[owner], index);
	if (!record_in_use(world, owner, index))
		return true;
	if (list->setting->without[SEND_TIME_LEASE])
		return left(list, LEASE);
	for (uint8_t i = 0; i < OPS; i++) {
		const struct op *op = &world->ops[i];
		bool uses = op->kind != NO_OP && !op->told && op->owner == owner && (op->owner_id == id || i == record->op);
		if (uses && !op->guard)
			return false;
	}
	return true;
}

static void of_move(struct list *list, uint8_t owner, uint8_t index)
{
	const struct record *record = &list->world->owners[owner].records[index];
	uint8_t id = id_of(&list->world->owners[owner], index);
	if (record->opening) {
		can(list, HAPPENS_OPENED, owner, index);
		if (left(list, UNREACHABLE))
			can(list, HAPPENS_UNOPENED, owner, index);
	}
	if (record->held)
		can(list, HAPPENS_MOVE_RELEASED, owner, index);
	if (record->at != move_record_MOVING)
		return;
	uint32_t live = pieces_live(list->world, record->op, true, owner, id);
	if (live == 0 && !record->refused)
		can(list, HAPPENS_MOVED, owner, index);
	if (record->refused || left(list, XFER))
		can(list, HAPPENS_MOVE_FAILED, owner, index);
	if (live > 0 && left(list, HELD) && (record->refused || left(list, XFER)))
		can(list, HAPPENS_MOVE_HELD, owner, index);
}

static void of_record(struct list *list, uint8_t owner, uint8_t index)
{
	const struct record *record = &list->world->owners[owner].records[index];
	if (record->type == NO_RECORD)
		return;
	bool write = record->type == WRITE_RECORD, pin = record->type == PIN_RECORD;
	bool committing = write && (record->at == write_record_SEALING || record->at == write_record_CHECKING);
	bool timed = write ? record->at == write_record_GRANTED : pin && record->at == pin_record_PINNED;
	if (list->setting->without[COMMIT_MASKS_EXPIRY])
		timed = timed || committing;
	if (timed && !record->over && lease_may_end(list, owner, index))
		can(list, HAPPENS_LEASE_ENDS, owner, index);
	if (timed && record->over)
		can(list, HAPPENS_RECORD_TIMER, owner, index);
	if (grant_is_ending(record->grant) && !pieces_admitted(list->world, false, owner, id_of(&list->world->owners[owner], index)))
		can(list, HAPPENS_SEALED, owner, index);
	if (record->summing)
		can(list, HAPPENS_RECORD_SUMMED, owner, index);
	if (record->type == MOVE_RECORD)
		of_move(list, owner, index);
}

static bool holds_something(const struct owner *owner, uint8_t op)
{
	for (uint32_t i = 0; i < RECORDS; i++) {
		const struct record *record = &owner->records[i];
		bool write = record->type == WRITE_RECORD && record->entry && !record->done;
		if (record->op == op && !record->over && (write || (record->type == PIN_RECORD && !record->ending)))
			return true;
	}
	return false;
}

static void of_owner(struct list *list, uint8_t index)
{
	const struct owner *owner = &list->world->owners[index];
	for (uint8_t i = 0; i < RECORDS; i++)
		of_record(list, index, i);
	for (uint8_t i = 0; i < OPS; i++) {
		if (left(list, CUT) && holds_something(owner, i))
			can(list, HAPPENS_CONNECTION_LOST, index, i);
		if (left(list, FORGET) && owner->lanes[i].serial > 0 && !list->world->ops[i].told)
			can(list, HAPPENS_SESSION_LOST, index, i);
	}
	for (uint8_t i = 0; i < KEYS; i++)
		if (owner->keys[i].value != NONE && left(list, REMOVE))
			can(list, HAPPENS_REMOVED, index, i);
	if (owner->filler == NONE && !owner->leaving && left(list, FILL)) {
		for (uint32_t i = 0; i < list->setting->scenario->slots; i++)
			if (owner->slots[i].phase == FREE) {
				can(list, HAPPENS_FILLED, index, 0);
				break;
			}
	}
	if (left(list, LEAVE) && !owner->leaving)
		can(list, HAPPENS_LEAVES, index, 0);
	if (left(list, RESTART))
		can(list, HAPPENS_RESTARTED, index, 0);
}

static void of_directory(struct list *list)
{
	const struct world *world = list->world;
	for (uint8_t i = 0; i < list->setting->scenario->owners; i++) {
		const struct owner *owner = &world->owners[i];
		for (uint8_t k = 0; k < OPS; k++)
			if (owner->waits[k].method != NO_METHOD && left(list, LOSS))
				can(list, HAPPENS_WAIT_LATE, i, k);
		if (owner->full)
			can(list, HAPPENS_OPERATIONS_ROOM, i, 0);
		else if (left(list, FULL))
			can(list, HAPPENS_OPERATIONS_FULL, i, 0);
		if (may_announce(world, list->setting, i))
			can(list, HAPPENS_ANNOUNCED, i, 0);
		if (owner->keys[0].answer)
			can(list, HAPPENS_ANSWERED, i, 0);
		if (owner->keys[0].answer && left(list, LOSS))
			can(list, HAPPENS_ANSWER_LOST, i, 0);
	}
	if (left(list, MASTER))
		can(list, HAPPENS_MASTER_RESTARTED, 0, 0);
	if (may_recover(world, list->setting))
		can(list, HAPPENS_RECOVERED, 0, 0);
}

static void of_network(struct list *list)
{
	const struct world *world = list->world;
	for (uint8_t i = 0; i < MESSAGES; i++) {
		const struct message *m = &world->messages[i];
		if (m->type == NO_MESSAGE || (i > 0 && memcmp(m, m - 1, sizeof *m) == 0))
			continue;
		can(list, HAPPENS_DELIVER, i, 0);
	}
	for (uint8_t i = 0; i < PIECES; i++) {
		const struct piece *piece = &world->pieces[i];
		if (piece->kind == NO_PIECE || (i > 0 && memcmp(piece, piece - 1, sizeof *piece) == 0))
			continue;
		can(list, HAPPENS_PIECE, i, 0);
		if ((piece->stamp != NOTHING || piece->at == ADMITTED) && piece->stamp != RUINED && left(list, CORRUPT))
			can(list, HAPPENS_RUIN, i, 0);
	}
}

uint32_t events_of(const struct world *world, const struct setting *setting, struct event *events, uint32_t max)
{
	struct list list = {.events = events, .max = max, .world = world, .setting = setting};
	for (uint8_t i = 0; i < OPS; i++)
		of_op(&list, i);
	for (uint8_t i = 0; i < setting->scenario->owners; i++)
		of_owner(&list, i);
	if (setting->scenario->directory)
		of_directory(&list);
	of_network(&list);
	return list.count;
}

/* Nobody waits for it, and it may never arrive: nothing counts on it. */
bool piece_is_late(const struct piece *piece)
{
	return !piece->live && !piece->local && piece->at == ON_THE_WIRE;
}

bool world_is_final(const struct world *world)
{
	for (uint32_t i = 0; i < OPS; i++)
		if (world->ops[i].kind != NO_OP && (!world->ops[i].told || !op_is_final(&world->ops[i])))
			return false;
	for (uint32_t i = 0; i < OWNERS; i++)
		for (uint32_t k = 0; k < RECORDS; k++)
			if (world->owners[i].records[k].type != NO_RECORD)
				return false;
	for (uint32_t i = 0; i < MESSAGES; i++)
		if (world->messages[i].type != NO_MESSAGE && is_awaited(world, &world->messages[i]))
			return false;
	for (uint32_t i = 0; i < PIECES; i++)
		if (world->pieces[i].kind != NO_PIECE && !piece_is_late(&world->pieces[i]))
			return false;
	return true;
}
