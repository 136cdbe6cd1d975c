/* What the store's keys held, and when. */
#include "tests/sim/md_inside.h"
#include <stdio.h>
#include <string.h>

void md_truth_init(struct md_world *world)
{
	const char *cluster = world->options.cluster ? "east" : NULL;
	for (uint32_t i = 0; i < world->name_count; i++) {
		struct md_name *name = &world->names[i];
		(void)snprintf(name->text, sizeof name->text, i == 1 ? "rack/%u" : "segment-%u", i);
		(void)neap_directory_segment_key(cluster, name->text, name->keys[MD_DOCUMENT].text, NEAP_BACKEND_KEY_MAX);
		(void)neap_directory_rpc_key(cluster, name->text, name->keys[MD_OWNER].text, NEAP_BACKEND_KEY_MAX);
		name->keys[MD_DOCUMENT].count = name->keys[MD_OWNER].count = 1; /* nothing is there at first */
	}
}

bool md_same_address(const struct neap_host_port *a, const struct neap_host_port *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

static void read_document(struct md_world *world, struct md_state *state, const char *value, size_t length)
{
	struct neap_descriptor *descriptor = NULL;
	char why[200];
	if (neap_descriptor_decode(value, length, &descriptor, why, sizeof why))
		md_violation(world, "a document was stored that cannot be read: %s", why);
	else
		state->version = descriptor->neap.version;
	neap_descriptor_free(descriptor);
}

/* Whoever wants a name that is taken first removes what is there, and claims it then. */
static void check_claim(struct md_world *world, const struct md_key *key, const struct md_state *state)
{
	const struct md_state *before = &key->states[(key->count - 1) % MD_STATES_MAX];
	if (before->there && state->there && !world->editing && !md_same_address(&before->owner, &state->owner))
		md_violation(world, "%s:%u has taken the place of %s:%u as the owner of '%s'", state->owner.host, state->owner.port, before->owner.host,
		             before->owner.port, key->text);
}

static void remember(struct md_world *world, struct md_key *key, enum md_part part, const char *value, size_t length)
{
	struct md_state state = {.from_ns = world->sim->now_ns, .there = value != NULL};
	char why[200];
	if (value && part == MD_DOCUMENT)
		read_document(world, &state, value, length);
	else if (value && neap_rpc_document_decode(value, length, &state.owner, why, sizeof why))
		md_violation(world, "an address was stored that cannot be read: %s", why);
	if (part == MD_OWNER)
		check_claim(world, key, &state);
	key->states[key->count++ % MD_STATES_MAX] = state;
}

void md_truth_changed(void *user, const char *text, const char *value, size_t length)
{
	struct md_world *world = user;
	for (uint32_t i = 0; i < world->name_count; i++)
		for (int part = 0; part < MD_PARTS; part++) {
			struct md_key *key = &world->names[i].keys[part];
			if (strcmp(key->text, text) != 0)
				continue;
			remember(world, key, (enum md_part)part, value, length);
			const struct md_state *now = md_truth_now(world, i, (enum md_part)part);
			md_log(world, "store: %s = %s %u %llu", text, value ? now->owner.host : "(gone)", now->owner.port, (unsigned long long)now->version);
		}
}

const struct md_state *md_truth_now(const struct md_world *world, uint32_t name, enum md_part part)
{
	const struct md_key *key = &world->names[name].keys[part];
	return &key->states[(key->count - 1) % MD_STATES_MAX];
}

struct wanted {
	bool missing;
	const uint64_t *version;
	const struct neap_host_port *owner;
};

static bool fits(const struct md_state *state, const struct wanted *wanted)
{
	if (wanted->missing || !state->there)
		return wanted->missing && !state->there;
	return wanted->version ? state->version == *wanted->version : md_same_address(&state->owner, wanted->owner);
}

/* From the newest state back to the one that was there at the time. */
static bool was(const struct md_world *world, uint32_t name, enum md_part part, uint64_t since_ns, const struct wanted *wanted)
{
	const struct md_key *key = &world->names[name].keys[part];
	uint64_t remembered = key->count < MD_STATES_MAX ? key->count : MD_STATES_MAX;
	for (uint64_t back = 1; back <= remembered; back++) {
		const struct md_state *state = &key->states[(key->count - back) % MD_STATES_MAX];
		if (fits(state, wanted))
			return true;
		if (state->from_ns < since_ns)
			return false;
	}
	return key->count > MD_STATES_MAX;
}

bool md_truth_was_missing(const struct md_world *world, uint32_t name, enum md_part part, uint64_t since_ns)
{
	return was(world, name, part, since_ns, &(struct wanted){.missing = true});
}

bool md_truth_was_version(const struct md_world *world, uint32_t name, uint64_t version, uint64_t since_ns)
{
	return was(world, name, MD_DOCUMENT, since_ns, &(struct wanted){.version = &version});
}

bool md_truth_was_owner(const struct md_world *world, uint32_t name, const struct neap_host_port *owner, uint64_t since_ns)
{
	return was(world, name, MD_OWNER, since_ns, &(struct wanted){.owner = owner});
}
