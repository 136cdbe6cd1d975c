#include "tests/support/sim_keys.h"
#include <stdlib.h>
#include <string.h>

static struct sim_key **slot_of(struct sim_keys *keys, const char *key)
{
	struct sim_key **slot = &keys->first;
	while (*slot && strcmp((*slot)->key, key) != 0)
		slot = &(*slot)->next;
	return slot;
}

const struct sim_key *sim_keys_find(const struct sim_keys *keys, const char *key)
{
	const struct sim_key *at = keys->first;
	while (at && strcmp(at->key, key) != 0)
		at = at->next;
	return at;
}

static void tell(struct sim_keys *keys, const struct sim_key *at, bool gone)
{
	if (keys->changed)
		keys->changed(keys->user, at->key, gone ? NULL : at->value, gone ? 0 : at->length);
}

static void drop(struct sim_keys *keys, struct sim_key **slot)
{
	struct sim_key *at = *slot;
	*slot = at->next;
	tell(keys, at, true);
	free(at->value);
	free(at->key);
	free(at);
}

/* The key's last word on when it ends is the one that counts. */
static void expire(struct sim *sim, void *user, uint64_t stamp)
{
	struct sim_keys *keys = user;
	struct sim_key **slot = &keys->first;
	(void)sim;
	while (*slot && (*slot)->stamp != stamp)
		slot = &(*slot)->next;
	if (!*slot)
		return;
	char *key = strdup((*slot)->key);
	keys->ended++;
	drop(keys, slot);
	if (keys->expired)
		keys->expired(keys, key);
	free(key);
}

static void end_at(struct sim_keys *keys, struct sim_key *at, uint64_t ends_ns)
{
	at->stamp = ++keys->stamp;
	at->ends_ns = ends_ns;
	if (ends_ns)
		sim_at(keys->sim, ends_ns, expire, keys, at->stamp);
}

void sim_keys_set(struct sim_keys *keys, const char *key, const char *value, size_t length, uint64_t ends_ns)
{
	struct sim_key **slot = slot_of(keys, key);
	struct sim_key *at = *slot ? *slot : calloc(1, sizeof *at);
	char *copy = malloc(length + 1);
	if (!at || !copy)
		abort();
	memcpy(copy, value, length);
	copy[length] = '\0';
	free(at->value);
	at->key = at->key ? at->key : strdup(key);
	at->value = copy;
	at->length = length;
	*slot = at;
	end_at(keys, at, ends_ns);
	tell(keys, at, false);
}

bool sim_keys_end_at(struct sim_keys *keys, const char *key, uint64_t ends_ns)
{
	struct sim_key *at = *slot_of(keys, key);
	if (at)
		end_at(keys, at, ends_ns);
	return at != NULL;
}

bool sim_keys_remove(struct sim_keys *keys, const char *key)
{
	struct sim_key **slot = slot_of(keys, key);
	bool there = *slot != NULL;
	if (there)
		drop(keys, slot);
	return there;
}

void sim_keys_wipe(struct sim_keys *keys)
{
	while (keys->first)
		drop(keys, &keys->first);
}

void sim_keys_release(struct sim_keys *keys)
{
	keys->changed = NULL;
	sim_keys_wipe(keys);
}
