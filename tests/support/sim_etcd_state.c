#include "tests/support/sim_etcd_state.h"
#include <stdlib.h>
#include <string.h>

#define SECOND UINT64_C(1000000000)

/* --- lists --------------------------------------------------------------------------------------------------------------------- */

static void *must(void *memory)
{
	if (!memory)
		abort();
	return memory;
}

static char *copy_bytes(const char *bytes, size_t length)
{
	char *copy = must(malloc(length + 1));
	memcpy(copy, bytes, length);
	copy[length] = '\0';
	return copy;
}

/* A copy of it, at the end. */
static void append(struct sim_etcd_list *list, const struct sim_etcd_value *value)
{
	if (list->count == list->capacity) {
		list->capacity = list->capacity ? 2 * list->capacity : 32;
		list->values = must(realloc(list->values, list->capacity * sizeof *list->values));
	}
	struct sim_etcd_value *at = &list->values[list->count++];
	*at = *value;
	at->key = copy_bytes(value->key, strlen(value->key));
	at->value = value->value ? copy_bytes(value->value, value->length) : NULL;
}

static void remove_at(struct sim_etcd_list *list, size_t index)
{
	free(list->values[index].key);
	free(list->values[index].value);
	list->count--;
	memmove(&list->values[index], &list->values[index + 1], (list->count - index) * sizeof *list->values);
}

static void drop_all(struct sim_etcd_list *list)
{
	while (list->count)
		remove_at(list, list->count - 1);
	free(list->values);
	*list = (struct sim_etcd_list){.values = NULL};
}

/* --- keys ---------------------------------------------------------------------------------------------------------------------- */

void sim_etcd_state_init(struct sim_etcd_state *state, struct sim *sim)
{
	*state = (struct sim_etcd_state){.sim = sim, .revision = 1, .term = 2, .next_lease = 7000};
}

const struct sim_etcd_value *sim_etcd_find(const struct sim_etcd_state *state, const char *key)
{
	for (size_t i = 0; i < state->keys.count; i++)
		if (strcmp(state->keys.values[i].key, key) == 0)
			return &state->keys.values[i];
	return NULL;
}

static void advanced(struct sim_etcd_state *state)
{
	if (state->advanced)
		state->advanced(state);
}

static void tell(struct sim_etcd_state *state, const struct sim_etcd_value *now)
{
	if (state->changed)
		state->changed(state->user, now->key, now->value, now->length);
}

void sim_etcd_put(struct sim_etcd_state *state, const char *key, const char *value, size_t length, uint64_t lease)
{
	const struct sim_etcd_value *at = sim_etcd_find(state, key);
	char *name = copy_bytes(key, strlen(key)), *content = copy_bytes(value, length);
	struct sim_etcd_value now = {.key = name, .value = content, .length = length, .lease = lease, .modified = ++state->revision};
	now.created = at ? at->created : now.modified;
	now.version = at ? at->version + 1 : 1;
	if (at)
		remove_at(&state->keys, (size_t)(at - state->keys.values));
	append(&state->keys, &now);
	append(&state->changes, &now);
	tell(state, &now);
	free(name);
	free(content);
	advanced(state);
}

static void take_away(struct sim_etcd_state *state, size_t index)
{
	char *key = state->keys.values[index].key;
	struct sim_etcd_value now = {.key = copy_bytes(key, strlen(key)), .modified = state->revision};
	remove_at(&state->keys, index);
	append(&state->changes, &now);
	tell(state, &now);
	free(now.key);
}

bool sim_etcd_remove(struct sim_etcd_state *state, const char *key)
{
	const struct sim_etcd_value *at = sim_etcd_find(state, key);
	if (!at)
		return false;
	state->revision++;
	take_away(state, (size_t)(at - state->keys.values));
	advanced(state);
	return true;
}

void sim_etcd_remove_all(struct sim_etcd_state *state)
{
	if (state->keys.count == 0)
		return;
	state->revision++;
	while (state->keys.count)
		take_away(state, 0);
	advanced(state);
}

static void drop_leases(struct sim_etcd_state *state)
{
	while (state->leases) {
		struct sim_etcd_lease *lease = state->leases;
		state->leases = lease->next;
		free(lease);
	}
}

void sim_etcd_begin_anew(struct sim_etcd_state *state)
{
	while (state->keys.count)
		take_away(state, 0);
	drop_all(&state->changes);
	drop_leases(state);
	state->revision = 1;
	state->compacted = 0;
	state->term = 1;
	state->life++;
}

/* The changes stay: a member that has not heard of it yet still tells them. */
void sim_etcd_compact(struct sim_etcd_state *state)
{
	state->compacted = state->revision;
}

void sim_etcd_state_release(struct sim_etcd_state *state)
{
	drop_all(&state->keys);
	drop_all(&state->changes);
	drop_leases(state);
}

/* --- leases -------------------------------------------------------------------------------------------------------------------- */

struct sim_etcd_lease *sim_etcd_lease_find(struct sim_etcd_state *state, uint64_t id)
{
	struct sim_etcd_lease *lease = state->leases;
	while (lease && lease->id != id)
		lease = lease->next;
	return lease;
}

static void look_at_lease(struct sim *sim, void *user, uint64_t id)
{
	struct sim_etcd_state *state = user;
	const struct sim_etcd_lease *lease = sim_etcd_lease_find(state, id);
	if (!lease || state->stopped)
		return;
	if (lease->ends_ns > sim->now_ns) /* it has begun anew, and is looked at then */
		return;
	state->leases_ended++;
	(void)sim_etcd_lease_revoke(state, id);
}

/* A leader looks for what has ended twice a second. */
static void begin_lease(struct sim_etcd_state *state, struct sim_etcd_lease *lease)
{
	lease->ends_ns = state->sim->now_ns + lease->seconds * SECOND;
	sim_at(state->sim, lease->ends_ns + sim_random_below(&state->sim->random[SIM_NET], SECOND / 2), look_at_lease, state, lease->id);
}

uint64_t sim_etcd_lease_grant(struct sim_etcd_state *state, uint64_t seconds)
{
	struct sim_etcd_lease *lease = must(calloc(1, sizeof *lease));
	lease->id = ++state->next_lease;
	lease->seconds = seconds;
	lease->next = state->leases;
	state->leases = lease;
	begin_lease(state, lease);
	return lease->id;
}

/* One that has ended and was not looked at yet does not begin anew either. */
bool sim_etcd_lease_keep(struct sim_etcd_state *state, uint64_t id, uint64_t *seconds_p)
{
	struct sim_etcd_lease *lease = sim_etcd_lease_find(state, id);
	if (!lease || lease->ends_ns <= state->sim->now_ns)
		return false;
	begin_lease(state, lease);
	*seconds_p = lease->seconds;
	return true;
}

static size_t first_under(const struct sim_etcd_state *state, uint64_t id)
{
	size_t index = 0;
	while (index < state->keys.count && state->keys.values[index].lease != id)
		index++;
	return index;
}

bool sim_etcd_lease_revoke(struct sim_etcd_state *state, uint64_t id)
{
	struct sim_etcd_lease **slot = &state->leases;
	while (*slot && (*slot)->id != id)
		slot = &(*slot)->next;
	struct sim_etcd_lease *lease = *slot;
	if (!lease)
		return false;
	*slot = lease->next;
	free(lease);
	if (first_under(state, id) == state->keys.count)
		return true;
	state->revision++;
	for (size_t index; (index = first_under(state, id)) < state->keys.count;)
		take_away(state, index);
	advanced(state);
	return true;
}

void sim_etcd_lead_anew(struct sim_etcd_state *state)
{
	state->stopped = false;
	state->term++;
	for (struct sim_etcd_lease *lease = state->leases; lease; lease = lease->next)
		begin_lease(state, lease);
}
