#include "tests/unit/fake_store.h"
#include "reactor/core.h"
#include "transports/checksum.h"
#include <stdlib.h>
#include <string.h>

#define KEYS_MAX 256u
#define OPERATIONS_MAX 128u

struct fake_value {
	char key[NEAP_KEY_MAX];
	uint32_t key_length;
	unsigned char *bytes; /* NULL: none */
	uint64_t size, generation;
	uint32_t crc;
};

enum fake_kind { FAKE_NONE, FAKE_PUT, FAKE_GET, FAKE_RESOLVE, FAKE_STAT, FAKE_EXIST, FAKE_REMOVE, FAKE_LIST };

struct fake_operation {
	enum fake_kind kind;
	bool canceled, was_held, matching;
	char key[NEAP_KEY_MAX];
	uint32_t key_length, count;
	struct neap_slice_of slices[NEAP_STORE_SLICES_MAX];
	void (*released)(void *user);
	void *done, *user;
};

struct neap_store {
	struct neap_engine *engine;
	struct neap_ready ready;
	struct fake_value values[KEYS_MAX];
	struct fake_operation operations[OPERATIONS_MAX];
	uint64_t generation;
};

struct fake_store_plan fake_plan;
struct fake_store_seen fake_seen;

static struct fake_value *find(struct neap_store *store, const char *key, uint32_t length)
{
	for (uint32_t i = 0; i < KEYS_MAX; i++) {
		struct fake_value *value = &store->values[i];
		if (value->bytes && value->key_length == length && !memcmp(value->key, key, length))
			return value;
	}
	return NULL;
}

static struct fake_value *add(struct neap_store *store, const struct fake_operation *operation)
{
	uint32_t i = 0;
	while (i < KEYS_MAX && store->values[i].bytes)
		i++;
	if (i == KEYS_MAX)
		abort();
	struct fake_value *value = &store->values[i];
	*value = (struct fake_value){.key_length = operation->key_length, .generation = ++store->generation};
	memcpy(value->key, operation->key, operation->key_length);
	for (uint32_t s = 0; s < operation->count; s++)
		value->size += operation->slices[s].length;
	value->bytes = malloc(value->size);
	unsigned char *to = value->bytes;
	for (uint32_t s = 0; s < operation->count; to += operation->slices[s++].length)
		memcpy(to, operation->slices[s].address, operation->slices[s].length);
	value->crc = neap_crc32c(0, value->bytes, value->size);
	return value;
}

static struct neap_place place = {.rpc = "127.0.0.1:4711"};
static const struct neap_unsettled unsettled = {.write_id = 7};

static void fill(struct neap_store_outcome *outcome, const struct fake_value *value)
{
	outcome->size = value->size;
	outcome->generation = value->generation;
	outcome->has_crc = true;
	outcome->crc = value->crc;
}

static void end_put(struct neap_store *store, struct fake_operation *operation, struct neap_store_outcome *outcome)
{
	struct fake_value *value = find(store, operation->key, operation->key_length);
	if (fake_plan.put_error) {
		outcome->status = NEAP_STORE_FAILED;
		outcome->error = fake_plan.put_error;
		outcome->why = "the test says so";
		return;
	}
	outcome->created = !value;
	fill(outcome, value ? value : add(store, operation));
	if (fake_plan.unknown_puts) {
		fake_plan.unknown_puts--;
		*outcome = (struct neap_store_outcome){.status = NEAP_STORE_UNKNOWN, .error = NEAP_ETIMEDOUT, .unsettled = &unsettled, .why = "no answer"};
	}
}

static void end_get(struct neap_store *store, struct fake_operation *operation, struct neap_store_outcome *outcome)
{
	const struct fake_value *value = find(store, operation->key, operation->key_length);
	uint64_t room = 0, at = 0;
	for (uint32_t s = 0; s < operation->count; s++)
		room += operation->slices[s].length;
	outcome->error = fake_plan.get_error ? fake_plan.get_error : !value ? NEAP_STORE_OBJECT_NOT_FOUND : room < value->size ? NEAP_STORE_BUFFER_OVERFLOW : 0;
	outcome->status = outcome->error ? NEAP_STORE_FAILED : NEAP_STORE_SUCCESS;
	outcome->why = outcome->error ? "the test says so" : "";
	if (value)
		fill(outcome, value);
	for (uint32_t s = 0; s < operation->count && !outcome->error; s++) {
		uint64_t n = value->size - at < operation->slices[s].length ? value->size - at : operation->slices[s].length;
		memcpy(operation->slices[s].address, value->bytes + at, n);
		at += n;
	}
}

static void end_move(struct neap_store *store, struct fake_operation *operation)
{
	struct neap_store_outcome outcome = {.status = NEAP_STORE_SUCCESS, .place = &place, .why = ""};
	if (operation->canceled) {
		outcome = (struct neap_store_outcome){.status = NEAP_STORE_FAILED, .error = NEAP_ECANCELED, .why = "canceled"};
	} else if (operation->kind == FAKE_PUT) {
		end_put(store, operation, &outcome);
	} else if (operation->kind == FAKE_GET) {
		end_get(store, operation, &outcome);
	} else {
		const struct fake_value *value = find(store, operation->key, operation->key_length);
		outcome.created = true;
		fill(&outcome, value);
	}
	neap_store_done_func *done = (neap_store_done_func *)operation->done;
	outcome.held = fake_plan.keeps && operation->kind != FAKE_RESOLVE;
	operation->was_held = outcome.held;
	operation->kind = FAKE_NONE;
	fake_seen.operations--;
	done(operation->user, &outcome);
}

static void end_remove(struct neap_store *store, struct fake_operation *operation)
{
	uint64_t count = 0;
	for (uint32_t i = 0; i < KEYS_MAX; i++) {
		struct fake_value *value = &store->values[i];
		bool meant = value->bytes && (operation->matching || find(store, operation->key, operation->key_length) == value);
		if (!meant)
			continue;
		free(value->bytes);
		value->bytes = NULL;
		count++;
	}
	operation->kind = FAKE_NONE;
	((neap_store_removed_func *)operation->done)(operation->user, count || operation->matching ? 0 : NEAP_STORE_OBJECT_NOT_FOUND, count, "");
}

static void end_question(struct neap_store *store, struct fake_operation *operation)
{
	struct neap_key keys[KEYS_MAX];
	uint32_t count = 0;
	const struct fake_value *value = find(store, operation->key, operation->key_length);
	enum fake_kind kind = operation->kind;
	operation->kind = FAKE_NONE;
	if (kind == FAKE_STAT) {
		struct neap_store_replica replica = {.place = place, .priority = -3, .in_memory = true};
		if (value)
			replica.size = value->size;
		((neap_store_stat_func *)operation->done)(operation->user, value ? 0 : NEAP_STORE_OBJECT_NOT_FOUND, &replica, value ? 1 : 0, "");
	} else if (kind == FAKE_EXIST) {
		int8_t found = value != NULL;
		((neap_store_exist_func *)operation->done)(operation->user, 0, &found, 1);
	} else {
		for (uint32_t i = 0; i < KEYS_MAX; i++)
			if (store->values[i].bytes)
				keys[count++] = (struct neap_key){.bytes = store->values[i].key, .length = store->values[i].key_length};
		((neap_store_listed_func *)operation->done)(operation->user, 0, keys, count, 0, "");
	}
}

static void run(struct neap_ready *ready)
{
	struct neap_store *store = (struct neap_store *)(void *)((char *)ready - offsetof(struct neap_store, ready));
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct fake_operation *operation = &store->operations[i];
		bool moves = operation->kind == FAKE_PUT || operation->kind == FAKE_GET || operation->kind == FAKE_RESOLVE;
		if (operation->kind == FAKE_NONE || (moves && fake_plan.hold && !operation->canceled))
			continue;
		if (moves)
			end_move(store, operation);
		else if (operation->kind == FAKE_REMOVE)
			end_remove(store, operation);
		else
			end_question(store, operation);
	}
}

void fake_store_go(struct neap_store *store)
{
	neap_ready_again(neap_engine_reactor(store->engine), &store->ready);
}

void fake_store_release(struct neap_store *store)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct fake_operation *operation = &store->operations[i];
		if (!operation->was_held)
			continue;
		operation->was_held = false;
		operation->released(operation->user);
	}
}

static struct fake_operation *begin(struct neap_store *store, enum fake_kind kind, const struct neap_key *key, void *done, void *user)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct fake_operation *operation = &store->operations[i];
		if (operation->kind != FAKE_NONE || operation->was_held)
			continue;
		*operation = (struct fake_operation){.kind = kind, .done = done, .user = user};
		if (key) {
			operation->key_length = key->length;
			memcpy(operation->key, key->bytes, key->length);
		}
		fake_store_go(store);
		return operation;
	}
	abort();
}

static int begin_move(struct neap_store *store, enum fake_kind kind, const struct neap_key *key, const struct neap_slice_of *slices,
                      uint32_t count, void (*released)(void *user), neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	struct fake_operation *operation = begin(store, kind, key, (void *)(uintptr_t)done, user);
	if (count)
		memcpy(operation->slices, slices, count * sizeof *slices);
	operation->count = count;
	operation->released = released;
	fake_seen.slices = count;
	fake_seen.operations++;
	if (operation_p)
		*operation_p = (neap_operation_id)(operation - store->operations) + 1;
	return 0;
}

/* --- neap/store.h ----------------------------------------------------------------------------------------------------------- */

int neap_store_put(struct neap_store *store, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                   const struct neap_put_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	fake_seen.puts++;
	fake_seen.direction = options->direction;
	fake_seen.has_crc = options->has_crc;
	fake_seen.crc = options->crc;
	fake_seen.deadline_ns = options->deadline_ns;
	return begin_move(store, FAKE_PUT, key, slices, count, options->released, done, user, operation_p);
}

int neap_store_get(struct neap_store *store, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                   const struct neap_get_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	fake_seen.gets++;
	fake_seen.direction = options->direction;
	fake_seen.verify = options->verify;
	return begin_move(store, FAKE_GET, key, slices, count, options->released, done, user, operation_p);
}

void neap_store_cancel(struct neap_store *store, neap_operation_id operation)
{
	fake_seen.cancels++;
	store->operations[operation - 1].canceled = true;
	fake_store_go(store);
}

int neap_store_resolve(struct neap_store *store, const struct neap_key *key, const struct neap_unsettled *what, uint64_t deadline_ns,
                       neap_store_done_func *done, void *user, neap_operation_id *operation_p)
{
	(void)deadline_ns;
	if (what->write_id != unsettled.write_id)
		abort();
	fake_seen.resolves++;
	return begin_move(store, FAKE_RESOLVE, key, NULL, 0, NULL, done, user, operation_p);
}

int neap_store_stat(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_stat_func *done, void *user)
{
	(void)deadline_ns;
	begin(store, FAKE_STAT, key, (void *)(uintptr_t)done, user);
	return 0;
}

int neap_store_exist(struct neap_store *store, const struct neap_key *keys, uint32_t count, uint64_t deadline_ns,
                     neap_store_exist_func *done, void *user)
{
	(void)deadline_ns;
	(void)count;
	begin(store, FAKE_EXIST, keys, (void *)(uintptr_t)done, user);
	return 0;
}

int neap_store_remove(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_removed_func *done, void *user)
{
	(void)deadline_ns;
	fake_seen.removes++;
	begin(store, FAKE_REMOVE, key, (void *)(uintptr_t)done, user);
	return 0;
}

int neap_store_remove_matching(struct neap_store *store, const char *pattern, uint64_t deadline_ns, neap_store_removed_func *done,
                               void *user)
{
	(void)deadline_ns;
	(void)pattern;
	begin(store, FAKE_REMOVE, NULL, (void *)(uintptr_t)done, user)->matching = true;
	return 0;
}

int neap_store_list(struct neap_store *store, const char *pattern, uint64_t cursor, uint64_t deadline_ns, neap_store_listed_func *done,
                    void *user)
{
	(void)deadline_ns;
	(void)pattern;
	(void)cursor;
	begin(store, FAKE_LIST, NULL, (void *)(uintptr_t)done, user);
	return 0;
}

struct neap_engine *neap_store_engine(const struct neap_store *store)
{
	return store->engine;
}

uint16_t neap_store_rpc_port(const struct neap_store *store)
{
	(void)store;
	return 4711;
}

enum neap_store_health neap_store_health(const struct neap_store *store)
{
	(void)store;
	return NEAP_STORE_FULL;
}

const char *neap_store_health_name(enum neap_store_health health)
{
	return health == NEAP_STORE_FULL ? "FULL" : "";
}

void neap_store_numbers(const struct neap_store *store, struct neap_store_numbers *numbers_p)
{
	*numbers_p = (struct neap_store_numbers){.keys = store->generation, .puts = fake_seen.puts};
}

/* --- the test's side ---------------------------------------------------------------------------------------------------------- */

struct neap_store *fake_store_open(struct neap_engine *engine)
{
	struct neap_store *store = calloc(1, sizeof *store);
	store->engine = engine;
	store->ready.run = run;
	fake_plan = (struct fake_store_plan){0};
	fake_seen = (struct fake_store_seen){0};
	return store;
}

void fake_store_close(struct neap_store *store)
{
	neap_ready_cancel(neap_engine_reactor(store->engine), &store->ready);
	for (uint32_t i = 0; i < KEYS_MAX; i++)
		free(store->values[i].bytes);
	free(store);
}

const void *fake_store_value(struct neap_store *store, const char *key, uint64_t *size_p)
{
	const struct fake_value *value = find(store, key, (uint32_t)strlen(key));
	if (value)
		*size_p = value->size;
	return value ? value->bytes : NULL;
}
