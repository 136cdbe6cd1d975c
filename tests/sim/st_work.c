/* What users do: puts, gets, removals, batches, cancels, deadlines, and asking what became of an unknown put. */
#include "tests/sim/st_inside.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct st_client *client_of(const struct st_op *op)
{
	struct st_client *client = &op->world->clients[op->client];
	return client->incarnation == op->incarnation && client->node ? client : NULL;
}

static struct st_op *new_op(struct st_world *world, struct st_client *client, enum st_kind kind, uint32_t key)
{
	for (uint32_t i = 0; i < ST_OPS_MAX; i++) {
		struct st_op *op = &world->ops[i];
		if (op->used)
			continue;
		*op = (struct st_op){.world = world, .used = true, .kind = (uint8_t)kind, .client = client->index, .incarnation = client->incarnation,
		                     .key = key, .slot = ST_SLOTS, .began_ns = world->sim->now_ns,
		                     .acknowledged_before = world->keys[key].acknowledged};
		world->issued++;
		return op;
	}
	return NULL;
}

static void free_op(struct st_op *op)
{
	op->used = false;
}

bool st_idle(const struct st_world *world)
{
	for (uint32_t i = 0; i < ST_OPS_MAX; i++)
		if (world->ops[i].used && !world->ops[i].gone)
			return false;
	return true;
}

void st_client_gone(struct st_world *world, const struct st_client *client)
{
	for (uint32_t i = 0; i < ST_OPS_MAX; i++) {
		struct st_op *op = &world->ops[i];
		if (!op->used || op->client != client->index || op->incarnation != client->incarnation)
			continue;
		if (op->kind == ST_PUT && world->puts[op->put].phase == ST_PUT_RUNS)
			world->puts[op->put].phase = ST_PUT_ORPHAN;
		op->gone = true;
	}
}

/* --- ends --------------------------------------------------------------------------------------------------------------------- */

static void count_outcome(struct st_world *world, const struct st_op *op, const struct neap_store_outcome *outcome)
{
	bool put = op->kind == ST_PUT;
	world->result->succeeded += outcome->status == NEAP_STORE_SUCCESS;
	world->result->failed += outcome->status == NEAP_STORE_FAILED;
	world->result->unknown += outcome->status == NEAP_STORE_UNKNOWN;
	world->result->sometimes.put_existed += put && outcome->status == NEAP_STORE_SUCCESS && !outcome->created;
	world->result->sometimes.put_differs += put && outcome->error == NEAP_STORE_OBJECT_ALREADY_EXISTS;
	world->result->sometimes.put_failed += put && outcome->status == NEAP_STORE_FAILED;
	world->result->sometimes.put_unknown += outcome->status == NEAP_STORE_UNKNOWN;
	world->result->sometimes.get_missed += !put && outcome->error == NEAP_STORE_OBJECT_NOT_FOUND;
	world->result->sometimes.get_not_ready += !put && outcome->error == NEAP_STORE_REPLICA_IS_NOT_READY;
	world->result->sometimes.get_failed += !put && outcome->status == NEAP_STORE_FAILED && outcome->error != NEAP_STORE_OBJECT_NOT_FOUND;
	world->result->sometimes.canceled += outcome->error == NEAP_ECANCELED;
	world->result->sometimes.timed_out += outcome->error == NEAP_ETIMEDOUT;
	world->result->sometimes.worked_after_faults += op->last && outcome->status == NEAP_STORE_SUCCESS;
}

static unsigned char *memory_of(const struct st_client *client, const struct st_op *op)
{
	return client->memory + (size_t)op->slot * client->world->slot_bytes;
}

static void resolve(struct st_world *world, struct st_client *client, const struct st_op *of);

/* The slot came back after an outcome that said `held`. */
static void let_go(void *user)
{
	struct st_op *op = user;
	struct st_client *client = client_of(op);
	if (op->gone)
		return;
	if (!op->used || !op->held || (client && client->slots[op->slot] != ST_SLOT_HELD))
		st_violation(op->world, "client %u: a buffer is given back that was not held", op->client);
	if (client)
		st_slot_return(client, op->slot);
	free_op(op);
}

/* What has been silent for progress_timeout_ms is known by then. */
#define LAST_TRIES 3u
#define TRY_AGAIN_NS (3000 * MS)
#define RETRIED_KEYS (ST_KEYS_MAX - ST_CLIENTS_MAX * LAST_TRIES) /* those that nobody else has */

static bool get(struct st_world *world, struct st_client *client, uint32_t key, uint32_t last);
static bool put(struct st_world *world, struct st_client *client, uint32_t key, uint32_t last);

static void try_again(struct sim *sim, void *user, uint64_t argument)
{
	struct st_world *world = user;
	struct st_client *client = &world->clients[argument & 0xff];
	uint32_t key = argument >> 8 & 0xffff, tries = argument >> 25 & 0xff;
	bool puts = argument >> 24 & 1;
	(void)sim;
	world->retries--;
	if (puts) /* what the first one has become of is not known, maybe: another key */
		key = RETRIED_KEYS + client->index * LAST_TRIES + tries - 1;
	if (world->result->ok && client->store && !(puts ? put : get)(world, client, key, tries))
		st_violation(world, "client %u takes no operation when nothing else is under way", client->index);
}

static bool shall_try_again(struct st_op *op, const struct neap_store_outcome *outcome)
{
	struct st_world *world = op->world;
	bool failed = outcome->status != NEAP_STORE_SUCCESS && outcome->error != NEAP_STORE_OBJECT_NOT_FOUND;
	if (!op->last || !world->fabric || op->tries >= LAST_TRIES || !failed)
		return false;
	world->retries++;
	sim_after(world->sim, TRY_AGAIN_NS, try_again, world,
	          op->client | (uint64_t)op->key << 8 | (uint64_t)(op->kind == ST_PUT) << 24 | (uint64_t)(op->tries + 1) << 25);
	return true;
}

/* Somebody reads at once what has just been said to be there. */
static void follow(struct sim *sim, void *user, uint64_t key);
static void perhaps_follow(struct st_world *world, const struct st_op *op, const struct neap_store_outcome *outcome)
{
	uint32_t per_mille = world->options.follow_per_mille;
	if (per_mille && !op->last && op->kind == ST_PUT && outcome->status == NEAP_STORE_SUCCESS && sim_random_chance(st_workload(world), per_mille))
		sim_after(world->sim, 1, follow, world, op->key);
}

static void ended(struct st_op *op, const struct neap_store_outcome *outcome)
{
	struct st_world *world = op->world;
	struct st_client *client = client_of(op);
	if (op->ended) {
		st_violation(world, "an operation of client %u on key %u has ended twice", op->client, op->key);
		return;
	}
	op->ended = true;
	st_log(world, "%s of key %u by client %u, put %u, %u bytes: status %d error %d created %d %s", op->kind == ST_PUT ? "put" : "get",
	       op->key, op->client, op->put, op->size, outcome->status, outcome->error, outcome->created, outcome->why);
	if (!client)
		return;
	if (shall_try_again(op, outcome))
		op->last = false;
	if (op->kind == ST_PUT) {
		if (op->again)
			st_again_ended(world, op, outcome);
		else
			st_put_ended(world, op, outcome);
		if (op->last && outcome->status != NEAP_STORE_SUCCESS)
			st_violation(world, "everything has healed, and a put of client %u fails: %d %s", op->client, outcome->error, outcome->why);
	} else {
		unsigned char *bytes = memory_of(client, op);
		if (outcome->status == NEAP_STORE_SUCCESS && st_sabotage(world, ST_SABOTAGE_CORRUPT_VALUE))
			bytes[outcome->size / 2] ^= 1;
		st_get_ended(world, op, outcome, bytes);
	}
	count_outcome(world, op, outcome);
	perhaps_follow(world, op, outcome);
	if (outcome->status == NEAP_STORE_UNKNOWN && !op->again && st_client_awake(client)) {
		op->unsettled = *outcome->unsettled;
		resolve(world, client, op);
	}
	if (outcome->held) {
		client->slots[op->slot] = ST_SLOT_HELD;
		op->held = true;
		return;
	}
	st_slot_return(client, op->slot);
	free_op(op);
}

static void done(void *user, const struct neap_store_outcome *outcome)
{
	struct st_op *op = user;
	struct st_world *world = op->world;
	if (op->gone)
		return;
	if (world->issued > world->options.operations / 4 && !world->swallowed && st_sabotage(world, ST_SABOTAGE_NEVER_END)) {
		world->swallowed = true;
		return;
	}
	struct st_op before = *op;
	ended(op, outcome);
	if (st_sabotage(world, ST_SABOTAGE_END_TWICE)) {
		before.ended = true;
		ended(&before, outcome);
	}
}

/* --- an unknown put ------------------------------------------------------------------------------------------------------------ */

static void resolved(void *user, const struct neap_store_outcome *outcome)
{
	struct st_op *op = user;
	struct st_world *world = op->world;
	struct st_put *put = &world->puts[op->put];
	if (op->gone)
		return;
	op->ended = true;
	world->result->sometimes.resolved_there += outcome->status == NEAP_STORE_SUCCESS;
	world->result->sometimes.resolved_gone += outcome->status == NEAP_STORE_FAILED && outcome->error == NEAP_STORE_OBJECT_NOT_FOUND;
	st_log(world, "resolve of put %u: status %d error %d %s", op->put, outcome->status, outcome->error, outcome->why);
	/* "There is none, and none will come": unless it had been there and was removed. */
	if (outcome->status == NEAP_STORE_FAILED && outcome->error == NEAP_STORE_OBJECT_NOT_FOUND && put->phase == ST_PUT_UNKNOWN && !put->seen &&
	    world->options.stable)
		put->phase = ST_PUT_FAILED;
	free_op(op);
}

static void resolve(struct st_world *world, struct st_client *client, const struct st_op *of)
{
	struct st_op *op = new_op(world, client, ST_RESOLVE, of->key);
	char text[24];
	if (!op)
		return;
	st_key_text(of->key, text);
	op->put = of->put;
	op->unsettled = of->unsettled;
	struct neap_key key = {text, (uint32_t)strlen(text)};
	if (neap_store_resolve(client->store, &key, &op->unsettled, 0, resolved, op, NULL))
		free_op(op);
}

/* --- begins -------------------------------------------------------------------------------------------------------------------- */

static enum neap_direction direction(struct st_world *world)
{
	return sim_random_chance(st_workload(world), world->options.forward_per_mille) ? NEAP_FORWARD : NEAP_REVERSE;
}

static uint32_t value_size(struct st_world *world)
{
	uint32_t most = world->options.value_bytes;
	uint32_t size = ST_LEAST_VALUE + (uint32_t)sim_random_below(st_workload(world), most - ST_LEAST_VALUE + 1);
	return sim_random_chance(st_workload(world), 400) && size > 2000 ? 2000 + size % 500 : size; /* small ones travel in the call */
}

static uint32_t new_put(struct st_world *world, const struct st_client *client, uint32_t key, uint32_t size)
{
	uint32_t number = world->put_count++;
	world->puts[number] = (struct st_put){.key = key, .size = size, .client = client->index};
	return number;
}

static uint32_t cut(struct st_world *world, unsigned char *memory, uint32_t size, struct neap_slice_of *slices)
{
	uint32_t first = 1 + (uint32_t)sim_random_below(st_workload(world), size);
	slices[0] = (struct neap_slice_of){memory, first};
	slices[1] = (struct neap_slice_of){memory + first, size - first};
	return first < size ? 2 : 1;
}

static uint64_t some_deadline(struct st_world *world, struct st_op *op)
{
	op->has_deadline = sim_random_chance(st_workload(world), world->options.deadline_per_mille);
	return op->has_deadline ? 1 + sim_random_below(st_workload(world), 100 * MS) : 0;
}

static void cancel(struct sim *sim, void *user, uint64_t operation)
{
	struct st_op *op = user;
	struct st_client *client = op->used && op->operation == operation ? client_of(op) : NULL;
	(void)sim;
	if (client && client->store && !client->closed && !client->node->crashed && !client->node->paused)
		neap_store_cancel(client->store, operation);
}

static void perhaps_cancel(struct st_world *world, struct st_op *op)
{
	if (sim_random_chance(st_workload(world), world->options.cancel_per_mille))
		sim_after(world->sim, sim_random_below(st_workload(world), 5 * MS), cancel, op, op->operation);
}

/* `last`: it is the last one's try of this number. 0: it is not the last. */
static bool put(struct st_world *world, struct st_client *client, uint32_t key, uint32_t last)
{
	uint32_t slot = st_slot_take(client);
	struct st_op *op = slot < ST_SLOTS && world->put_count < ST_PUTS_MAX ? new_op(world, client, ST_PUT, key) : NULL;
	struct neap_slice_of slices[2];
	char text[24];
	if (!op) {
		if (slot < ST_SLOTS)
			st_slot_return(client, slot);
		return false;
	}
	op->slot = slot;
	op->last = last > 0;
	op->tries = last;
	op->again = !last && world->keys[key].creators && sim_random_chance(st_workload(world), 150);
	op->size = value_size(world);
	op->put = op->again ? world->keys[key].creator : new_put(world, client, key, op->size);
	op->size = world->puts[op->put].size;
	if (op->again)
		world->puts[op->put].again = true;
	st_fill(memory_of(client, op), op->put, op->size);
	st_key_text(key, text);
	struct neap_key of = {text, (uint32_t)strlen(text)};
	struct neap_put_options options = {.direction = direction(world), .released = let_go, .checksum = sim_random_chance(st_workload(world), 300)};
	options.deadline_ns = last ? 0 : some_deadline(world, op);
	uint32_t count = cut(world, memory_of(client, op), op->size, slices);
	if (neap_store_put(client->store, &of, slices, count, &options, done, op, &op->operation)) {
		if (!op->again)
			world->puts[op->put].phase = ST_PUT_FAILED;
		st_slot_return(client, slot);
		free_op(op);
		return false;
	}
	if (!last)
		perhaps_cancel(world, op);
	return true;
}

static bool get(struct st_world *world, struct st_client *client, uint32_t key, uint32_t last)
{
	uint32_t slot = st_slot_take(client);
	struct st_op *op = slot < ST_SLOTS ? new_op(world, client, ST_GET, key) : NULL;
	struct neap_slice_of slices[2];
	char text[24];
	if (!op) {
		if (slot < ST_SLOTS)
			st_slot_return(client, slot);
		return false;
	}
	op->slot = slot;
	op->last = last > 0;
	op->tries = last;
	op->size = world->slot_bytes;
	st_key_text(key, text);
	struct neap_key of = {text, (uint32_t)strlen(text)};
	struct neap_get_options options = {.direction = direction(world), .released = let_go};
	options.deadline_ns = last ? 0 : some_deadline(world, op);
	uint32_t count = cut(world, memory_of(client, op), world->slot_bytes, slices);
	if (neap_store_get(client->store, &of, slices, count, &options, done, op, &op->operation)) {
		st_slot_return(client, slot);
		free_op(op);
		return false;
	}
	if (!last)
		perhaps_cancel(world, op);
	return true;
}

/* --- removals ------------------------------------------------------------------------------------------------------------------ */

static void removed(void *user, int error, uint64_t count, const char *why)
{
	struct st_op *op = user;
	struct st_world *world = op->world;
	struct st_key *key = &world->keys[op->key];
	(void)count;
	if (op->gone)
		return;
	op->ended = true;
	st_log(world, "removal of key %u: %d %s", op->key, error, why);
	world->result->sometimes.removed += error == 0;
	world->result->sometimes.removed_nothing += error == NEAP_STORE_OBJECT_NOT_FOUND;
	if (error == 0 && op->kind == ST_REMOVE && op->began_ns >= key->removed_from_ns) {
		key->removed_from_ns = op->began_ns;
		key->removed_until_ns = world->sim->now_ns;
	}
	world->result->sometimes.swept += op->kind == ST_SWEEP && error == 0;
	free_op(op);
}

static void remove_key(struct st_world *world, struct st_client *client, uint32_t key)
{
	struct st_op *op = new_op(world, client, ST_REMOVE, key);
	char text[24];
	if (!op)
		return;
	st_key_text(key, text);
	struct neap_key of = {text, (uint32_t)strlen(text)};
	if (neap_store_remove(client->store, &of, 0, removed, op))
		free_op(op);
}

static void sweep(struct st_world *world, struct st_client *client)
{
	struct st_op *op = new_op(world, client, ST_SWEEP, 0);
	if (op && neap_store_remove_matching(client->store, "[13]$", 0, removed, op))
		free_op(op);
}

/* --- batches ------------------------------------------------------------------------------------------------------------------- */

static void batch_item(void *user, uint32_t index, void *item_user, const struct neap_store_outcome *outcome)
{
	(void)user;
	(void)index;
	struct st_op *op = item_user;
	op->batch = NULL;
	done(op, outcome);
}

static void batch_over(void *user, uint32_t succeeded, uint32_t count)
{
	struct st_batch *batch = user;
	(void)succeeded;
	(void)count;
	free(batch);
}

static void batch(struct st_world *world, struct st_client *client, bool puts)
{
	struct st_batch *batch = calloc(1, sizeof *batch);
	if (!batch)
		abort();
	uint32_t wanted = 2 + (uint32_t)sim_random_below(st_workload(world), ST_BATCH_MAX - 1);
	for (uint32_t i = 0; i < wanted; i++) {
		uint32_t key = (uint32_t)sim_random_below(st_workload(world), world->options.keys), slot = st_slot_take(client);
		struct st_op *op = slot < ST_SLOTS && world->put_count < ST_PUTS_MAX ? new_op(world, client, puts ? ST_PUT : ST_GET, key) : NULL;
		if (!op) {
			if (slot < ST_SLOTS)
				st_slot_return(client, slot);
			break;
		}
		op->slot = slot;
		op->batch = batch;
		op->size = puts ? value_size(world) : world->slot_bytes;
		if (puts) {
			op->put = new_put(world, client, key, op->size);
			st_fill(memory_of(client, op), op->put, op->size);
		}
		st_key_text(key, batch->keys[i]);
		batch->slices[i] = (struct neap_slice_of){memory_of(client, op), op->size};
		batch->items[i] = (struct neap_batch_item){{batch->keys[i], (uint32_t)strlen(batch->keys[i])}, &batch->slices[i], 1, op};
		batch->ops[batch->count++] = op;
	}
	struct neap_store_batch_options options = {.concurrency = 2, .done = batch_item, .finished = batch_over, .user = batch};
	options.put.direction = options.get.direction = direction(world);
	int error = NEAP_EINVAL;
	if (batch->count)
		error = puts ? neap_store_put_batch(client->store, batch->items, batch->count, &options, NULL)
		             : neap_store_get_batch(client->store, batch->items, batch->count, &options, NULL);
	if (!error) {
		ST_SEEN(world, batched);
		return;
	}
	for (uint32_t i = 0; i < batch->count; i++) {
		if (puts)
			world->puts[batch->ops[i]->put].phase = ST_PUT_FAILED;
		st_slot_return(client, batch->ops[i]->slot);
		free_op(batch->ops[i]);
	}
	free(batch);
}

/* --- the mix ------------------------------------------------------------------------------------------------------------------- */

static uint32_t under_way(const struct st_world *world, const struct st_client *client)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < ST_OPS_MAX; i++)
		count += world->ops[i].used && world->ops[i].client == client->index && world->ops[i].incarnation == client->incarnation;
	return count;
}

static void issue(struct st_world *world, struct st_client *client)
{
	const struct st_options *o = &world->options;
	struct sim_random *random = st_workload(world);
	uint32_t key = (uint32_t)sim_random_below(random, o->keys);
	if (sim_random_chance(random, o->remove_per_mille)) {
		remove_key(world, client, key);
	} else if (sim_random_chance(random, o->sweep_per_mille)) {
		sweep(world, client);
	} else if (sim_random_chance(random, o->batch_per_mille)) {
		batch(world, client, sim_random_chance(random, 500));
	} else if (sim_random_chance(random, 450)) {
		(void)put(world, client, key, 0);
	} else {
		(void)get(world, client, key, 0);
	}
}

void st_work(struct sim *sim, void *user, uint64_t argument)
{
	struct st_world *world = user;
	struct sim_random *random = st_workload(world);
	(void)argument;
	if (!world->issuing || !world->result->ok)
		return;
	struct st_client *client = &world->clients[sim_random_below(random, world->options.clients)];
	if (st_client_awake(client) && under_way(world, client) < world->options.inflight)
		issue(world, client);
	if (world->issued >= world->options.operations) {
		world->issuing = false;
		return;
	}
	sim_after(sim, 1 + sim_random_below(random, 2 * (uint64_t)world->options.work_period_us * 1000), st_work, world, 0);
}

static void follow(struct sim *sim, void *user, uint64_t key)
{
	struct st_world *world = user;
	(void)sim;
	struct st_client *client = &world->clients[sim_random_below(st_workload(world), world->options.clients)];
	if (world->issuing && world->result->ok && st_client_awake(client))
		(void)get(world, client, (uint32_t)key, 0);
}

void st_last_get(struct st_world *world, struct st_client *client, uint32_t key)
{
	if (!get(world, client, key, 1))
		st_violation(world, "client %u takes no get when nothing else is under way", client->index);
}

bool st_last_put(struct st_world *world, struct st_client *client, uint32_t key)
{
	return put(world, client, key, 1);
}
