/* Contents, and what may be seen of them. */
#include "tests/sim/st_inside.h"
#include <stdio.h>
#include <string.h>

#define CANARY 0xa5
#define INLINE_MAX (16u << 10) /* the default */

void st_key_text(uint32_t key, char text[24])
{
	(void)snprintf(text, 24, "key/%u", key);
}

/* The number of the put, then bytes that no other put has. */
void st_fill(unsigned char *bytes, uint32_t put, uint32_t size)
{
	uint64_t state = UINT64_C(0x9e3779b97f4a7c15) * (put + 1);
	memcpy(bytes, &put, sizeof put);
	memcpy(bytes + 4, &size, sizeof size);
	for (uint32_t at = 8; at < size; at += 8) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(bytes + at, &state, size - at < 8 ? size - at : 8);
	}
}

/* --- memory of users ---------------------------------------------------------------------------------------------------------- */

static unsigned char *slot_memory(const struct st_client *client, uint32_t slot)
{
	return client->memory + (size_t)slot * client->world->slot_bytes;
}

static void check_canary(struct st_client *client, uint32_t slot)
{
	const unsigned char *bytes = slot_memory(client, slot);
	if (client->slots[slot] == ST_SLOT_CANARY && (bytes[0] != CANARY || memcmp(bytes, bytes + 1, client->world->slot_bytes - 1) != 0))
		st_violation(client->world, "client %u: a buffer was written to after its operation had ended", client->index);
}

void st_slot_return(struct st_client *client, uint32_t slot)
{
	memset(slot_memory(client, slot), CANARY, client->world->slot_bytes);
	client->slots[slot] = ST_SLOT_CANARY;
	if (client->incarnation > 0 && st_sabotage(client->world, ST_SABOTAGE_TOUCH_RETURNED))
		slot_memory(client, slot)[client->world->slot_bytes / 2] = 1;
}

uint32_t st_slot_take(struct st_client *client)
{
	uint32_t from = (uint32_t)sim_random_below(st_workload(client->world), ST_SLOTS);
	for (uint32_t i = 0; i < ST_SLOTS; i++) {
		uint32_t slot = (from + i) % ST_SLOTS;
		if (client->slots[slot] != ST_SLOT_CANARY)
			continue;
		check_canary(client, slot);
		client->slots[slot] = ST_SLOT_BUSY;
		return slot;
	}
	return ST_SLOTS;
}

void st_slots_check(struct st_client *client)
{
	for (uint32_t slot = 0; slot < ST_SLOTS; slot++)
		check_canary(client, slot);
}

/* --- puts --------------------------------------------------------------------------------------------------------------------- */

static void note_created(struct st_world *world, const struct st_op *op)
{
	struct st_key *key = &world->keys[op->key];
	if (key->creators > 0 && st_is_stable(world))
		st_violation(world, "key %u: puts %u and %u both say that they created its value", op->key, key->creator, op->put);
	key->creators++;
	key->creator = op->put;
	world->puts[op->put].created = true;
}

void st_put_ended(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome)
{
	struct st_put *put = &world->puts[op->put];
	struct st_key *key = &world->keys[op->key];
	enum neap_store_status status = outcome->status;
	if (status == NEAP_STORE_SUCCESS && outcome->created && st_sabotage(world, ST_SABOTAGE_LIE_FAILED))
		status = NEAP_STORE_FAILED;
	put->ended_ns = world->sim->now_ns;
	switch (status) {
	case NEAP_STORE_SUCCESS:
		if (outcome->error != 0 || (outcome->created && outcome->size != op->size))
			st_violation(world, "key %u, put %u: SUCCESS of %lu bytes with error %d", op->key, op->put, (unsigned long)outcome->size,
			             outcome->error);
		put->phase = ST_PUT_SUCCESS;
		if (outcome->created)
			note_created(world, op);
		if (world->options.stable)
			key->acknowledged = true;
		break;
	case NEAP_STORE_FAILED:
		put->phase = ST_PUT_FAILED;
		if (outcome->error == 0)
			st_violation(world, "key %u, put %u: FAILED without an error", op->key, op->put);
		if (put->seen)
			st_violation(world, "key %u: put %u ends FAILED (%d %s), and its value was seen", op->key, op->put, outcome->error, outcome->why);
		break;
	case NEAP_STORE_UNKNOWN:
		put->phase = ST_PUT_UNKNOWN;
		if (!outcome->unsettled)
			st_violation(world, "key %u, put %u: UNKNOWN, and nothing to resolve it by", op->key, op->put);
		break;
	}
}

/* Bytes that the key has had: it has them still, or again. */
void st_again_ended(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome)
{
	if (outcome->status == NEAP_STORE_SUCCESS && outcome->created && st_is_stable(world))
		st_violation(world, "key %u: its value was created by put %u, and now again", op->key, op->put);
	if (outcome->error == NEAP_STORE_OBJECT_ALREADY_EXISTS && st_is_stable(world))
		st_violation(world, "key %u: the bytes of put %u are said to be others than its own", op->key, op->put);
}

/* --- gets --------------------------------------------------------------------------------------------------------------------- */

/* The put that these bytes are of; NULL: none. */
static struct st_put *put_of(struct st_world *world, const unsigned char *bytes, uint64_t size, uint32_t *number_p)
{
	uint32_t number;
	if (size < ST_LEAST_VALUE)
		return NULL;
	memcpy(&number, bytes, sizeof number);
	if (number >= world->put_count || world->puts[number].size != size)
		return NULL;
	st_fill(world->expected, number, (uint32_t)size);
	*number_p = number;
	return memcmp(world->expected, bytes, size) == 0 ? &world->puts[number] : NULL;
}

static void got(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome, const unsigned char *bytes)
{
	struct st_key *key = &world->keys[op->key];
	uint32_t number = 0;
	struct st_put *put = outcome->size <= ST_SLOT_BYTES ? put_of(world, bytes, outcome->size, &number) : NULL;
	if (!put) {
		st_violation(world, "key %u: a get of client %u brought bytes that nobody put (%lu of them)", op->key, op->client,
		             (unsigned long)outcome->size);
		return;
	}
	put->seen = true;
	world->last_large += op->last && outcome->size > INLINE_MAX;
	if (put->key != op->key)
		st_violation(world, "key %u: a get brought the value of key %u", op->key, put->key);
	else if (put->phase == ST_PUT_FAILED)
		st_violation(world, "key %u: put %u had ended FAILED, and its value was got", op->key, number);
	else if (key->creators && number != key->creator && st_is_stable(world))
		st_violation(world, "key %u: put %u created its value, and that of put %u was got", op->key, key->creator, number);
	else if (put->phase == ST_PUT_SUCCESS && put->created && !put->again && put->ended_ns < key->removed_from_ns &&
	         key->removed_until_ns < op->began_ns && !st_owner_was_given_up(world))
		st_violation(world, "key %u: the value of put %u was got after it had been removed", op->key, number);
}

void st_get_ended(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome, const unsigned char *bytes)
{
	if (outcome->status == NEAP_STORE_SUCCESS) {
		if (outcome->error != 0)
			st_violation(world, "key %u: a get is SUCCESS with error %d", op->key, outcome->error);
		got(world, op, outcome, bytes);
		return;
	}
	if (outcome->status == NEAP_STORE_UNKNOWN || outcome->error == 0) {
		st_violation(world, "key %u: a get ends with status %d and error %d", op->key, outcome->status, outcome->error);
		return;
	}
	if (outcome->error == NEAP_STORE_OBJECT_NOT_FOUND && op->acknowledged_before && st_is_stable(world))
		st_violation(world, "key %u: its value was acknowledged before, and client %u is told that there is none (%s)", op->key, op->client,
		             outcome->why);
	else if (op->last && outcome->error != NEAP_STORE_OBJECT_NOT_FOUND)
		st_violation(world, "key %u: everything has healed, and a get of client %u fails: %d %s", op->key, op->client, outcome->error,
		             outcome->why);
}
