/* Removal of all keys that match: a page of keys from the directory, some of them at a time removed, then the next page. */
#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

#define SWEPT_AT_ONCE 64u

static void finish(struct node_sweep *sweep)
{
	struct neap_store *store = sweep->store;
	neap_store_removed_func *done = sweep->done;
	char why[NODE_WHY_MAX];
	neap_release(store->reactor, sweep->pattern, sweep->pattern_length + 1u);
	sweep->pattern = NULL;
	sweep->runs = false;
	memcpy(why, sweep->why, sizeof why);
	done(sweep->user, sweep->error, sweep->removed, why);
}

static void note_error(struct node_sweep *sweep, int error, const char *why)
{
	sweep->error = error;
	(void)snprintf(sweep->why, sizeof sweep->why, "%s", why);
}

static void removed(void *user, int error, uint64_t count, const char *why)
{
	struct node_sweep *sweep = user;
	sweep->running--;
	sweep->removed += count > 0;
	if (error && error != NEAP_STORE_OBJECT_NOT_FOUND)
		note_error(sweep, error, why);
	neap_ready_again(sweep->store->reactor, &sweep->more);
}

static void listed(struct neap_key_call *call, int error)
{
	struct node_sweep *sweep = call->user;
	if (error) {
		note_error(sweep, error, *call->as.list.why ? call->as.list.why : node_directory_text(error));
		call->as.list.count = 0;
		call->as.list.cursor = 0;
	} else if (!call->as.list.complete) {
		note_error(sweep, NEAP_STORE_REPLICA_IS_NOT_READY, NODE_NOT_ALL);
	}
	sweep->at = 0;
	neap_ready_again(sweep->store->reactor, &sweep->more);
}

static void ask_page(struct node_sweep *sweep, uint64_t cursor)
{
	struct neap_store *store = sweep->store;
	memset(&sweep->call, 0, sizeof sweep->call);
	sweep->at = UINT32_MAX; /* nothing to begin yet */
	sweep->call.op = NEAP_KEY_OP_LIST;
	sweep->call.done = listed;
	sweep->call.user = sweep;
	sweep->call.deadline_ns = sweep->deadline_ns;
	sweep->call.as.list = (struct neap_key_list){.pattern = {sweep->pattern, sweep->pattern_length},
	                                             .cursor = cursor,
	                                             .keys = sweep->keys,
	                                             .keys_max = NODE_SWEEP_KEYS,
	                                             .text = sweep->text,
	                                             .text_size = NODE_SWEEP_TEXT};
	int error = neap_key_begin(&store->directory, &sweep->call);
	if (error)
		listed(&sweep->call, error);
}

/* Begins removals as there is room; when the page is done, the next one. */
static void go_on(struct neap_ready *ready)
{
	struct node_sweep *sweep = (struct node_sweep *)(void *)((char *)ready - offsetof(struct node_sweep, more));
	struct neap_key_list *page = &sweep->call.as.list;
	if (!sweep->runs || sweep->at == UINT32_MAX)
		return;
	while (sweep->at < page->count && sweep->running < SWEPT_AT_ONCE) {
		const struct neap_key_listed *at = &sweep->keys[sweep->at];
		struct neap_key key = {sweep->text + at->offset, at->length};
		if (node_removal_begin(sweep->store, &key, sweep->deadline_ns, removed, sweep))
			return; /* node_sweep_look when one has ended */
		sweep->running++;
		sweep->at++;
	}
	if (sweep->at < page->count || sweep->running > 0)
		return;
	if (page->cursor && neap_now(sweep->store->reactor) >= sweep->deadline_ns) {
		note_error(sweep, NEAP_ETIMEDOUT, "its deadline passed");
		page->cursor = 0;
	}
	if (page->cursor)
		ask_page(sweep, page->cursor);
	else
		finish(sweep);
}

void node_sweep_look(struct neap_store *store)
{
	if (store->sweep.runs)
		neap_ready_again(store->reactor, &store->sweep.more);
}

void node_sweep_cancel(struct neap_store *store)
{
	struct node_sweep *sweep = &store->sweep;
	if (!sweep->runs)
		return;
	neap_key_cancel(&store->directory, &sweep->call);
	neap_ready_cancel(store->reactor, &sweep->more);
	note_error(sweep, NEAP_ECANCELED, "the store is closing");
	finish(sweep);
}

int neap_store_remove_matching(struct neap_store *store, const char *pattern, uint64_t deadline_ns, neap_store_removed_func *done,
                               void *user)
{
	struct node_sweep *sweep = &store->sweep;
	size_t length = pattern ? strlen(pattern) : 0;
	if (!done || length > NEAP_KEY_MAX)
		return NEAP_EINVAL;
	if (!node_takes(store))
		return NEAP_ECLOSED;
	if (sweep->runs)
		return NEAP_EAGAIN;
	sweep->pattern = neap_allocate(store->reactor, length + 1);
	if (!sweep->pattern)
		return NEAP_ENOMEM;
	if (length)
		memcpy(sweep->pattern, pattern, length);
	sweep->pattern_length = (uint32_t)length;
	sweep->more.run = go_on;
	sweep->done = done;
	sweep->user = user;
	sweep->error = 0;
	sweep->removed = 0;
	sweep->running = 0;
	sweep->why[0] = '\0';
	sweep->deadline_ns = neap_now(store->reactor) + (deadline_ns ? deadline_ns : store->deadline_ns);
	sweep->runs = true;
	ask_page(sweep, 0);
	neap_reactor_touch(store->reactor);
	return NEAP_OK;
}
