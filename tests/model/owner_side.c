/* What an owner does with requests: at most once (store/rpc/server.h), the service (store/peer/service_*.c) and the owner's calls
 * (store/owner/), with the facts that they look at. */
#include "store/owner/move_record_fsm.h"
#include "store/owner/pin_record_fsm.h"
#include "store/owner/write_record_fsm.h"
#include "tests/model/world.h"

/* --- answers */

static bool is_once(uint8_t method)
{
	return method != LOOK_UP && method != READ_REMOTE && method != UN_PIN; /* store/peer/methods.c */
}

static void reply(struct step *step, uint8_t owner, uint8_t op, const struct message *answer)
{
	struct message message = *answer;
	message.type = REPLY;
	message.op = op;
	message.owner = owner;
	message.epoch = step->world->owners[owner].epoch;
	send(step, &message);
}

/* The answer of a once method is kept, and goes to whoever asked last. */
void owner_answer(struct step *step, uint8_t owner, uint8_t op, uint8_t serial, uint8_t attempt, const struct message *answer)
{
	struct lane *lane = &step->world->owners[owner].lanes[op];
	struct message message = *answer;
	message.serial = serial;
	message.attempt = attempt;
	if (is_once(answer->method) && has(step, IDEMPOTENCE)) {
		if (lane->serial != serial || lane->phase != UNDER_WAY)
			return; /* the lane was forgotten, or the id was finished: nobody waits */
		lane->phase = ANSWERED;
		lane->status = answer->status;
		lane->id = answer->id;
		lane->version = answer->version;
		lane->slot = answer->slot;
		lane->created = answer->created;
		message.attempt = lane->attempt;
	}
	reply(step, owner, op, &message);
}

static void answer(struct step *step, const struct message *request, uint8_t status, uint8_t id, uint8_t version, uint8_t slot, bool created)
{
	struct message message = {
		.method = request->method, .status = status, .id = id, .version = version, .slot = slot, .created = created};
	owner_answer(step, request->owner, request->op, request->serial, request->attempt, &message);
}

static void refuse(struct step *step, const struct message *request, uint8_t status)
{
	answer(step, request, status, 0, 0, 0, false);
}

/* --- what the key has */

static bool is_over(const struct step *step, const struct record *record)
{
	return record->over && (!record->done || !has(step, COMMIT_MASKS_EXPIRY)); /* is_over() in write_record.c */
}

/* The foreground check: neap_write_look, neap_write_look_at. */
static void look(struct step *step, uint8_t owner, uint8_t index)
{
	const struct record *record = &step->world->owners[owner].records[index];
	if (record->type != WRITE_RECORD || !record->entry || !is_over(step, record))
		return;
	record_detach(step, owner, index);
	post(step, owner, index, write_record_on_TIMEOUT);
}

/* check_pending() in owner.c, then the allocation. */
uint8_t owner_reserve(struct step *step, uint8_t owner, uint8_t op, uint8_t *slot_p)
{
	const struct key *key = key_at(step, owner, op);
	if (key->pending != NONE)
		look(step, owner, key->pending);
	if (key->pending != NONE)
		return PROCESSING;
	if (key->value != NONE && has(step, CREATE_IF_ABSENT))
		return EXISTS;
	*slot_p = slot_reserve(step, owner);
	return *slot_p == NONE ? NO_HANDLE : OK;
}

/* --- FORWARD writes */

static void pre_write(struct step *step, const struct message *request)
{
	uint8_t slot, status = owner_reserve(step, request->owner, request->op, &slot);
	if (status != OK) {
		refuse(step, request, status);
		return;
	}
	uint8_t index = slot_may_be_told(step, request->owner) ? record_take(step, request->owner, WRITE_RECORD, request, slot) : NONE;
	if (index == NONE) {
		slot_drop(step, request->owner, slot);
		refuse(step, request, NO_HANDLE);
		return;
	}
	struct owner *place = &step->world->owners[request->owner];
	struct record *record = &place->records[index];
	record->entry = record->exposed = true;
	slot_expose(place, slot);
	record->grant = 1; /* LIVE */
	key_at(step, request->owner, request->op)->pending = index;
	post(step, request->owner, index, write_record_on_GRANT);
	answer(step, request, OK, id_of(place, index), 0, slot, false);
}

/* names_own_holding() in service_forward.c and find() in write_record.c. NONE with OK: the id is no pending write's. */
static uint8_t find(struct step *step, const struct message *request, uint8_t *index_p)
{
	struct owner *place = &step->world->owners[request->owner];
	if (!record_is(place, request->id, WRITE_RECORD, index_p)) {
		*index_p = NONE;
		return place->lanes[request->op].ended_id == request->id ? LEASE_EXPIRED : OK;
	}
	const struct record *record = &place->records[*index_p];
	if (record->op != request->op)
		return INVALID_WRITE;
	if (!record->entry)
		return LEASE_EXPIRED;
	if (is_over(step, record)) {
		look(step, request->owner, *index_p);
		return LEASE_EXPIRED;
	}
	return record->done ? PROCESSING : OK;
}

static bool is_committed(const struct key *key, uint8_t id)
{
	return key->value != NONE && key->write_id == id;
}

/* peer_operation_begin(), before anything is done that its refusal would deny. */
static bool takes_operation(struct step *step, const struct message *request)
{
	if (!step->world->owners[request->owner].full)
		return true;
	refuse(step, request, NO_HANDLE);
	return false;
}

/* committed() in service_forward.c */
static void answer_committed(struct step *step, const struct message *request, uint8_t id, uint8_t version, bool created)
{
	struct wait wait = {.method = request->method, .serial = request->serial, .attempt = request->attempt, .version = version, .id = id,
	                    .created = created};
	answer_settled(step, request->owner, request->op, &wait);
}

static void commit(struct step *step, const struct message *request)
{
	struct owner *place = &step->world->owners[request->owner];
	uint8_t index, status = find(step, request, &index);
	const struct key *key = key_at(step, request->owner, request->op);
	if (!takes_operation(step, request))
		return;
	if (status != OK) {
		refuse(step, request, status);
	} else if (index == NONE) {
		if (is_committed(key, request->id))
			answer_committed(step, request, request->id, key->version, true);
		else
			refuse(step, request, key->pending == NONE ? NOT_FOUND : INVALID_WRITE);
	} else {
		struct record *record = &place->records[index];
		record->done = true;
		record->expected = scenario_of(step)->sums && has(step, CHECKSUMS);
		record->answer_serial = request->serial;
		record->answer_attempt = request->attempt;
		post(step, request->owner, index, write_record_on_COMMIT);
	}
}

static void revoke(struct step *step, const struct message *request)
{
	const struct key *key = key_at(step, request->owner, request->op);
	uint8_t index, status = find(step, request, &index);
	if (status == OK && index == NONE)
		status = is_committed(key, request->id) ? INVALID_WRITE : key->pending != NONE ? INVALID_WRITE : OK;
	if (status == OK && index != NONE) {
		record_detach(step, request->owner, index);
		post(step, request->owner, index, write_record_on_REVOKE);
	}
	refuse(step, request, status); /* with OK it is the empty answer */
}

/* --- FORWARD reads */

static uint8_t shared_pin(const struct step *step, const struct owner *place, const struct key *key)
{
	for (uint8_t i = 0; i < RECORDS; i++) {
		const struct record *record = &place->records[i];
		bool live = record->type == PIN_RECORD && record->at == pin_record_PINNED && !record->ending && !record->over;
		if (live && (!has(step, VERSION_PINS) || (!has(step, READERS_PINS) && record->slot == key->value)))
			return i;
	}
	return NONE;
}

static void pin(struct step *step, const struct message *request)
{
	struct owner *place = &step->world->owners[request->owner];
	const struct key *key = key_at(step, request->owner, request->op);
	uint8_t shared = shared_pin(step, place, key), slot = key->value, version = key->version;
	if (!is_settled(step, request->owner, request->op)) {
		refuse(step, request, NOT_READY);
		return;
	}
	if (shared != NONE && !has(step, READERS_PINS)) {
		place->records[shared].op = request->op; /* who asks last renews it for all */
		place->records[shared].serial = request->serial;
		answer(step, request, OK, id_of(place, shared), place->records[shared].version, place->records[shared].slot, false);
		return;
	}
	if (slot == NONE) {
		refuse(step, request, NOT_FOUND);
		return;
	}
	if (shared != NONE) {
		slot = place->records[shared].slot;
		version = place->records[shared].version;
	}
	slot_hold(place, slot);
	uint8_t index = slot_may_be_told(step, request->owner) ? record_take(step, request->owner, PIN_RECORD, request, slot) : NONE;
	if (index == NONE) {
		slot_drop(step, request->owner, slot);
		refuse(step, request, NO_HANDLE);
		return;
	}
	struct record *record = &place->records[index];
	record->version = version;
	record->exposed = true;
	slot_expose(place, slot);
	record->grant = 1;
	post(step, request->owner, index, pin_record_on_GRANT);
	answer(step, request, OK, id_of(place, index), version, slot, false);
}

/* peer_finish_pins, neap_owner_unpin: nobody is told how it went. */
static void unpin(struct step *step, const struct message *request)
{
	struct owner *place = &step->world->owners[request->owner];
	uint8_t index;
	if (!record_is(place, request->id, PIN_RECORD, &index))
		return;
	struct record *record = &place->records[index];
	if ((record->op != request->op && has(step, READERS_PINS)) || record->unpinned || record->ending || record->over)
		return;
	record->ending = record->unpinned = true;
	post(step, request->owner, index, pin_record_on_UNPIN);
}

/* --- REVERSE */

/* answer_existing() in service_reverse.c */
static void answer_existing(struct step *step, const struct message *request)
{
	const struct key *key = key_at(step, request->owner, request->op);
	bool differs = scenario_of(step)->sums && key->version != request->op + 1;
	if (differs)
		refuse(step, request, EXISTS);
	else
		answer_committed(step, request, 0, key->version, false);
}

static void write_remote(struct step *step, const struct message *request)
{
	struct owner *place = &step->world->owners[request->owner];
	uint8_t slot, status;
	if ((request->lent || has(step, ROOM_FIRST)) && !takes_operation(step, request))
		return;
	status = owner_reserve(step, request->owner, request->op, &slot);
	if (status == EXISTS) {
		answer_existing(step, request);
		return;
	}
	if (status != OK) {
		refuse(step, request, status);
		return;
	}
	if (request->lent == 0) { /* write_inside(): the value is in the call */
		place->slots[slot].bytes[0] = place->slots[slot].bytes[1] = (uint8_t)(request->op + 1);
		key_publish(step, request->owner, slot, (uint8_t)(request->op + 1), 0, request->op);
		if (has(step, ROOM_FIRST) || takes_operation(step, request))
			answer_committed(step, request, 0, (uint8_t)(request->op + 1), true);
		return;
	}
	uint8_t index = record_take(step, request->owner, MOVE_RECORD, request, slot);
	if (index == NONE) {
		slot_drop(step, request->owner, slot);
		refuse(step, request, NO_HANDLE);
		return;
	}
	place->records[index].entry = true;
	place->records[index].expected = scenario_of(step)->sums && has(step, CHECKSUMS);
	key_at(step, request->owner, request->op)->pending = index;
	post(step, request->owner, index, move_record_on_ORDER);
}

static void read_remote(struct step *step, const struct message *request)
{
	struct owner *place = &step->world->owners[request->owner];
	const struct key *key = key_at(step, request->owner, request->op);
	if (key->value == NONE || !is_settled(step, request->owner, request->op)) {
		refuse(step, request, key->value == NONE ? NOT_FOUND : NOT_READY);
		return;
	}
	if (request->lent && !takes_operation(step, request))
		return;
	if (request->lent == 0) { /* read_inside() */
		answer(step, request, OK, 0, key->version, 0, true);
		return;
	}
	slot_hold(place, key->value);
	uint8_t index = record_take(step, request->owner, MOVE_RECORD, request, key->value);
	if (index == NONE) {
		slot_drop(step, request->owner, key->value);
		refuse(step, request, NO_HANDLE);
		return;
	}
	place->records[index].push = true;
	place->records[index].version = key->version;
	post(step, request->owner, index, move_record_on_ORDER);
}

static void look_up(struct step *step, const struct message *request)
{
	const struct key *key = key_at(step, request->owner, request->op);
	bool same_write = request->id != 0 && key->write_id == request->id;
	if (key->value != NONE && takes_operation(step, request))
		answer_committed(step, request, 0, key->version, same_write);
	else if (key->value == NONE)
		answer(step, request, OK, key->pending != NONE, 0, 0, false); /* the id: pending */
}

/* --- calls as they come */

/* False: it is answered, or its answer is under way, or it is finished. */
static bool begin_once(struct step *step, const struct message *request)
{
	struct lane *lane = &step->world->owners[request->owner].lanes[request->op];
	if (request->session != lane->session) {
		struct message gone = {.method = request->method, .status = NO_SESSION, .serial = request->serial, .attempt = request->attempt};
		reply(step, request->owner, request->op, &gone);
		return false;
	}
	if (has(step, IDEMPOTENCE)) {
		if (request->serial < lane->serial)
			return false; /* EFINISHED: nobody waits for it */
		if (request->serial == lane->serial && lane->phase == UNDER_WAY) {
			lane->attempt = request->attempt;
			return false;
		}
		if (request->serial == lane->serial && lane->phase == ANSWERED) {
			struct message again = {.method = request->method, .status = lane->status, .id = lane->id, .version = lane->version,
			                        .slot = lane->slot, .created = lane->created, .serial = request->serial, .attempt = request->attempt};
			reply(step, request->owner, request->op, &again);
			return false;
		}
	}
	lane->serial = request->serial;
	lane->phase = UNDER_WAY;
	lane->attempt = request->attempt;
	lane->status = lane->id = lane->version = lane->slot = 0;
	lane->created = false;
	return true;
}

void owner_receive(struct step *step, const struct message *request)
{
	if (request->epoch != step->world->owners[request->owner].epoch && has(step, FENCE_EPOCH)) {
		note(step, "owner %u: it was meant for the predecessor, and is refused", request->owner);
		return;
	}
	if (is_once(request->method) && !begin_once(step, request))
		return;
	if (step->world->owners[request->owner].leaving && request->method != UN_PIN) { /* peer_begin() */
		refuse(step, request, UNAVAILABLE);
		return;
	}
	switch (request->method) {
	case PRE_WRITE: pre_write(step, request); break;
	case COMMIT: commit(step, request); break;
	case REVOKE: revoke(step, request); break;
	case WRITE_REMOTE: write_remote(step, request); break;
	case LOOK_UP: look_up(step, request); break;
	case PIN_KEY: pin(step, request); break;
	case READ_REMOTE: read_remote(step, request); break;
	default: unpin(step, request); break;
	}
}

/* The service drains and the owner closes: neap_owner_close(). Commits that were accepted and moves come to their end; values go. */
void owner_leave(struct step *step, uint8_t owner)
{
	struct owner *place = &step->world->owners[owner];
	place->leaving = true;
	for (uint8_t i = 0; i < RECORDS; i++) {
		struct record *record = &place->records[i];
		if (record->type == WRITE_RECORD) { /* neap_owner_write_lost() */
			if (!record->done)
				record_detach(step, owner, i);
			post(step, owner, i, write_record_on_LOST);
		} else if (record->type == PIN_RECORD) {
			record->ending = true;
			post(step, owner, i, pin_record_on_LOST);
		}
	}
	for (uint8_t i = 0; i < KEYS; i++)
		if (place->keys[i].value != NONE)
			key_withdraw(step, owner, i);
	if (place->filler != NONE)
		filler_remove(step, owner);
}

/* connection_ended() in service_holdings.c: what it holds is given up. What was accepted for a commit goes on, and so do moves. */
void owner_connection_lost(struct step *step, uint8_t owner, uint8_t op)
{
	struct owner *place = &step->world->owners[owner];
	for (uint8_t i = 0; i < RECORDS; i++) {
		struct record *record = &place->records[i];
		if (record->op != op || record->over)
			continue;
		if (record->type == WRITE_RECORD && record->entry && !record->done) {
			record_detach(step, owner, i);
			post(step, owner, i, write_record_on_LOST);
		} else if (record->type == PIN_RECORD && !record->ending) {
			record->ending = true;
			post(step, owner, i, pin_record_on_LOST);
		}
	}
}
