/* A key is removed at all its owners: the directory says where, each of them is asked, and this process looks at itself in any case. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

static struct node_removal *removal_of(const struct neap_machine *machine)
{
	return (struct node_removal *)(uintptr_t)((const char *)machine - offsetof(struct node_removal, machine));
}

static void note_error(struct node_removal *removal, int error, const char *why)
{
	removal->error = error;
	(void)snprintf(removal->why, sizeof removal->why, "%s", why);
}

static void found(struct neap_key_call *call, int error)
{
	struct node_removal *removal = call->user;
	if (!error)
		error = removal->item.error;
	removal->store->reached = error == 0 || call->effect == NEAP_KEY_EFFECT_DONE;
	if (error)
		note_error(removal, error, node_directory_text(error));
	neap_step(&removal->machine, error ? (uint8_t)key_removal_on_NONE : (uint8_t)key_removal_on_FOUND, 0);
}

static void remove_here(struct node_removal *removal)
{
	struct neap_store *store = removal->store;
	struct neap_key key = {removal->key, removal->key_length};
	if (store->owner && neap_owner_remove(store->owner, &key) == NEAP_STORE_OK)
		removal->removed++;
}

static void do_find(struct neap_machine *machine, uint64_t argument)
{
	struct node_removal *removal = removal_of(machine);
	struct neap_store *store = removal->store;
	(void)argument;
	removal->item.key = (struct neap_key_text){removal->key, removal->key_length};
	removal->call.op = NEAP_KEY_OP_REPLICAS;
	removal->call.done = found;
	removal->call.user = removal;
	removal->call.deadline_ns = removal->deadline_ns;
	removal->call.as.replicas = (struct neap_key_replicas){
		.config = {.priority_limit = INT32_MIN}, .items = &removal->item, .count = 1, .replicas = removal->replicas,
		.replicas_max = NODE_REPLICAS_MAX};
	int error = neap_key_begin(&store->directory, &removal->call);
	if (!error)
		return;
	note_error(removal, error, neap_error_text(error));
	(void)neap_post(machine, key_removal_on_NONE, 0);
}

static void answered(void *user, int error, const char *why)
{
	struct node_removal *removal = user;
	if (error == NEAP_STORE_OK)
		removal->removed++;
	else if (error != NEAP_STORE_OBJECT_NOT_FOUND) /* gone already is as good */
		note_error(removal, error, why);
	if (--removal->waiting == 0)
		(void)neap_post(&removal->machine, key_removal_on_ANSWERED, 0);
}

static void do_remove(struct neap_machine *machine, uint64_t argument)
{
	struct node_removal *removal = removal_of(machine);
	struct neap_store *store = removal->store;
	struct neap_key key = {removal->key, removal->key_length};
	(void)argument;
	removal->waiting = 1; /* until all were asked */
	for (uint32_t i = 0; i < removal->item.count; i++) {
		const struct neap_key_replica *replica = &removal->replicas[removal->item.first + i];
		struct neap_place place;
		if (neap_key_id_equal(replica->client, store->client.id))
			continue;
		node_place(&place, replica->client, replica->host, replica->port);
		removal->waiting++;
		int error = neap_accessor_remove(store->accessor, &place, &key, removal->deadline_ns, answered, removal);
		if (error)
			answered(removal, error, neap_error_text(error));
	}
	remove_here(removal);
	if (--removal->waiting == 0)
		(void)neap_post(machine, key_removal_on_ANSWERED, 0);
}

static void do_finish(struct neap_machine *machine, uint64_t argument)
{
	struct node_removal *removal = removal_of(machine);
	struct neap_store *store = removal->store;
	neap_store_removed_func *done = removal->done;
	void *user = removal->user;
	uint64_t removed;
	char why[NODE_WHY_MAX];
	(void)argument;
	if (removal->error)
		remove_here(removal); /* the directory did not know, or could not say */
	removed = removal->removed;
	int error = removal->error;
	if (error == NEAP_STORE_OBJECT_NOT_FOUND && removed)
		error = NEAP_STORE_OK;
	else if (!error && !removed)
		error = NEAP_STORE_OBJECT_NOT_FOUND;
	(void)snprintf(why, sizeof why, "%s", !error ? "" : *removal->why ? removal->why : neap_store_error_text(error));
	neap_machine_end(&removal->machine);
	neap_pool_give(&store->removals, removal);
	node_sweep_look(store);
	done(user, error, removed, why);
}

/* The store is closing. Those that wait for owners end with the accessor. */
void node_removals_cancel(struct neap_store *store)
{
	struct node_removal *removal;
	for (uint32_t index = 0; (removal = neap_pool_next(&store->removals, &index)) != NULL;) {
		if (removal->machine.state != key_removal_FINDING)
			continue;
		neap_key_cancel(&store->directory, &removal->call);
		note_error(removal, NEAP_ECANCELED, "the store is closing");
		neap_step(&removal->machine, key_removal_on_NONE, 0);
	}
}

static neap_action_func *const actions[] = {
	[key_removal_do_find] = do_find,
	[key_removal_do_remove] = do_remove,
	[key_removal_do_finish] = do_finish,
};

const struct neap_machine_kind key_removal_kind = {.fsm = &neap_fsm_key_removal, .actions = actions};

int node_removal_begin(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_removed_func *done,
                       void *user)
{
	struct node_removal *removal = neap_pool_take(&store->removals);
	if (!removal)
		return NEAP_EAGAIN;
	struct neap_machine machine = removal->machine; /* its generation goes on */
	memset(removal, 0, offsetof(struct node_removal, key));
	removal->machine = machine;
	removal->store = store;
	removal->deadline_ns = deadline_ns;
	removal->done = done;
	removal->user = user;
	removal->key_length = key->length;
	memcpy(removal->key, key->bytes, key->length);
	neap_machine_begin(&removal->machine, &store->removal_class->class_);
	(void)neap_post(&removal->machine, key_removal_on_START, 0);
	return NEAP_OK;
}

int neap_store_remove(struct neap_store *store, const struct neap_key *key, uint64_t deadline_ns, neap_store_removed_func *done, void *user)
{
	if (!done || !key || !key->bytes || key->length == 0 || key->length > NEAP_KEY_MAX)
		return NEAP_EINVAL;
	if (!node_takes(store))
		return NEAP_ECLOSED;
	deadline_ns = neap_now(store->reactor) + (deadline_ns ? deadline_ns : store->deadline_ns);
	int error = node_removal_begin(store, key, deadline_ns, done, user);
	neap_reactor_touch(store->reactor);
	return error;
}
