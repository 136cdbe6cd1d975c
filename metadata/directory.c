/* The directory of segments: a table of names with what is known of each, and one fetch at a time per name that all lookups share.
 *
 * Nothing is answered from inside a lookup: it is put on its name's list and the name on the ready queue. */
#include "metadata/directory.h"
#include "metadata/segment_fetch_fsm.h"
#include "reactor/pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WHY_MAX 512u
#define GRACE_NS UINT64_C(250000000) /* the back-end's own deadline comes first */

enum { DOCUMENT, OWNER, PARTS }; /* what a fetch brings; a back-end that stores has them under two keys */

/* One of them. */
struct part {
	struct neap_backend_watch watch;
	struct entry *entry;
	uint64_t call;
};

/* One name. */
struct entry {
	struct neap_machine machine; /* of its present fetch */
	struct neap_timer timer;
	struct neap_ready ready;
	struct neap_directory *directory;
	struct entry *next_in_bucket;
	struct entry *older, *newer;     /* by use */
	struct neap_lookup *lookups;     /* to be answered */
	struct neap_lookup *answering;   /* those of them whose turn it is */
	struct neap_snapshot *snapshot;  /* NULL: nothing is known */
	struct neap_descriptor *fetched; /* between the answer and the action that adopts it */
	struct neap_host_port owner;     /* the same */
	struct part parts[PARTS];
	uint64_t began_ns;
	int error; /* of the present fetch */
	bool fetching;
	uint8_t awaited; /* parts */
	bool watching;   /* the present fetch: since it began */
	bool watched;    /* no part changed since the snapshot's fetch began, as far as the back-end can tell, and it can */
	uint16_t name_length;
	char name[NEAP_NAME_MAX + 1];
	char why[WHY_MAX];
};

struct neap_directory {
	struct neap_reactor *reactor;
	struct neap_reactor_class *class_;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_backend *backend;
	const char *cluster; /* a copy, or NULL */
	char *cluster_copy;
	size_t cluster_bytes;
	bool stores;
	struct neap_pool pool;
	struct entry **buckets;
	uint32_t bucket_count; /* power of two */
	struct entry *oldest, *newest;
	uint64_t fetch_timeout_ns, fetches;
	bool closing;
};

static struct entry *entry_of(const struct neap_machine *machine)
{
	return (struct entry *)(uintptr_t)((const char *)machine - offsetof(struct entry, machine));
}

/* --- snapshots ---------------------------------------------------------------------------------------------------- */

struct neap_snapshot *neap_snapshot_keep(struct neap_snapshot *snapshot)
{
	snapshot->references++;
	return snapshot;
}

void neap_snapshot_drop(struct neap_snapshot *snapshot)
{
	if (!snapshot || --snapshot->references > 0)
		return;
	neap_descriptor_free(snapshot->descriptor);
	neap_release(snapshot->reactor, snapshot, sizeof *snapshot);
}

static void set_snapshot(struct entry *entry, struct neap_snapshot *snapshot)
{
	neap_snapshot_drop(entry->snapshot);
	entry->snapshot = snapshot;
}

/* --- names -------------------------------------------------------------------------------------------------------- */

static uint32_t hash(const char *name, size_t length)
{
	uint32_t value = 2166136261u;
	for (size_t i = 0; i < length; i++)
		value = (value ^ (unsigned char)name[i]) * 16777619u;
	return value;
}

static struct entry **bucket_of(const struct neap_directory *directory, const char *name, size_t length)
{
	return &directory->buckets[hash(name, length) & (directory->bucket_count - 1)];
}

static struct entry *find(const struct neap_directory *directory, const char *name)
{
	size_t length = strlen(name);
	struct entry *entry = *bucket_of(directory, name, length);
	while (entry && (entry->name_length != length || memcmp(entry->name, name, length) != 0))
		entry = entry->next_in_bucket;
	return entry;
}

static void unlink_use(struct entry *entry)
{
	struct neap_directory *directory = entry->directory;
	*(entry->older ? &entry->older->newer : &directory->oldest) = entry->newer;
	*(entry->newer ? &entry->newer->older : &directory->newest) = entry->older;
}

static void link_newest(struct entry *entry)
{
	struct neap_directory *directory = entry->directory;
	entry->older = directory->newest;
	entry->newer = NULL;
	*(directory->newest ? &directory->newest->newer : &directory->oldest) = entry;
	directory->newest = entry;
}

static void drop_lookups(struct neap_lookup **list)
{
	while (*list) {
		struct neap_lookup *lookup = *list;
		*list = lookup->next;
		lookup->slot = NULL;
	}
}

static void cancel_parts(struct entry *entry)
{
	struct neap_directory *directory = entry->directory;
	for (int i = 0; i < PARTS; i++) {
		uint64_t call = entry->parts[i].call;
		entry->parts[i].call = 0;
		if (call)
			directory->backend->ops->cancel(directory->backend, call);
	}
}

static void unwatch_parts(struct entry *entry)
{
	entry->watched = entry->watching = false;
	for (int i = 0; i < PARTS; i++)
		neap_backend_unwatch(&entry->parts[i].watch);
}

/* A document that came before the part that was missing. */
static void drop_fetched(struct entry *entry)
{
	neap_descriptor_free(entry->fetched);
	entry->fetched = NULL;
}

/* Lookups, fetch and knowledge go; nothing is called back. */
static void end_entry(struct entry *entry)
{
	struct neap_directory *directory = entry->directory;
	struct entry **slot = bucket_of(directory, entry->name, entry->name_length);
	while (*slot != entry)
		slot = &(*slot)->next_in_bucket;
	*slot = entry->next_in_bucket;
	unlink_use(entry);
	neap_ready_cancel(directory->reactor, &entry->ready);
	drop_lookups(&entry->lookups);
	drop_lookups(&entry->answering);
	unwatch_parts(entry);
	if (entry->fetching) {
		cancel_parts(entry);
		neap_machine_end(&entry->machine);
	}
	entry->fetching = false;
	drop_fetched(entry);
	set_snapshot(entry, NULL);
	neap_pool_give(&directory->pool, entry);
}

static struct entry *take_entry(struct neap_directory *directory)
{
	struct entry *entry = neap_pool_take(&directory->pool);
	for (struct entry *old = directory->oldest; !entry && old; old = old->newer)
		if (!old->lookups && !old->answering && !old->fetching) {
			end_entry(old);
			entry = neap_pool_take(&directory->pool);
		}
	return entry;
}

static void entry_ready(struct neap_ready *ready);

static struct entry *add(struct neap_directory *directory, const char *name, size_t length)
{
	struct entry *entry = take_entry(directory);
	if (!entry)
		return NULL;
	struct entry **bucket = bucket_of(directory, name, length);
	entry->directory = directory;
	entry->ready.run = entry_ready;
	entry->name_length = (uint16_t)length;
	memcpy(entry->name, name, length + 1);
	entry->next_in_bucket = *bucket;
	*bucket = entry;
	link_newest(entry);
	return entry;
}

/* --- answering ---------------------------------------------------------------------------------------------------- */

static void link_lookup(struct neap_lookup **list, struct neap_lookup *lookup)
{
	lookup->next = *list;
	lookup->slot = list;
	if (*list)
		(*list)->slot = &lookup->next;
	*list = lookup;
}

static void unlink_lookup(struct neap_lookup *lookup)
{
	*lookup->slot = lookup->next;
	if (lookup->next)
		lookup->next->slot = lookup->slot;
	lookup->slot = NULL;
}

/* Answers the lookups that ask for nothing newer than `fresh_ns`, or that take what is watched. A callee may look up, cancel, forget, or
 * destroy the directory. */
static void answer(struct entry *entry, uint64_t fresh_ns, int error)
{
	struct neap_snapshot *snapshot = !error ? neap_snapshot_keep(entry->snapshot) : NULL;
	char why[WHY_MAX];
	(void)snprintf(why, sizeof why, "%s", error ? entry->why : "");
	for (struct neap_lookup *lookup = entry->lookups, *next; lookup; lookup = next) {
		next = lookup->next;
		if (lookup->not_before_ns <= fresh_ns || (lookup->watched_will_do && entry->watched && !error)) {
			unlink_lookup(lookup);
			link_lookup(&entry->answering, lookup);
		}
	}
	while (entry->answering) {
		struct neap_lookup *lookup = entry->answering;
		unlink_lookup(lookup);
		lookup->found(lookup->user, error, snapshot, why);
	}
	neap_snapshot_drop(snapshot);
}

/* The present fetch has ended: its knowledge serves those who came before it began, the others need another. */
static void finish(struct entry *entry, int error)
{
	struct neap_directory *directory = entry->directory;
	neap_machine_end(&entry->machine);
	entry->fetching = false;
	answer(entry, entry->began_ns, error);
	if (!directory->closing && entry->lookups)
		neap_ready_again(directory->reactor, &entry->ready);
}

static void entry_ready(struct neap_ready *ready)
{
	struct entry *entry = (struct entry *)(void *)((char *)ready - offsetof(struct entry, ready));
	struct neap_directory *directory = entry->directory;

	if (entry->snapshot)
		answer(entry, entry->snapshot->fetched_ns, NEAP_OK);
	if (directory->closing || !entry->lookups || entry->fetching)
		return;
	entry->fetching = true;
	neap_machine_begin(&entry->machine, &directory->class_->class_);
	neap_step(&entry->machine, segment_fetch_on_START, 0);
}

/* --- fetching ----------------------------------------------------------------------------------------------------- */

static void failed(struct entry *entry, int error, const char *why)
{
	entry->error = error;
	(void)snprintf(entry->why, sizeof entry->why, "segment '%.*s': %s", 80, entry->name,
	               why && why[0] ? why : neap_error_text(error));
}

/* The literal null stands for "there is none": a P2P peer that has no segment says so. */
static bool is_null(const char *json, size_t length)
{
	while (length > 0 && (json[length - 1] == '\n' || json[length - 1] == ' '))
		length--;
	return length == 4 && memcmp(json, "null", 4) == 0;
}

static int read_document(struct entry *entry, const char *json, size_t length, char *why, size_t why_size)
{
	if (is_null(json, length)) {
		(void)snprintf(why, why_size, entry->directory->stores ? "it was taken back" : "the process at this address has no segment");
		return NEAP_EMETADATA;
	}
	int error = neap_descriptor_decode(json, length, &entry->fetched, why, why_size);
	if (!error && why[0])
		neap_log(entry->directory->reactor, NEAP_LOG_INFO, "directory", "segment '%.80s': left out: %s", entry->name, why);
	return error;
}

/* A part failed: what the others would bring does not matter any more. */
static void part_failed(struct entry *entry, const struct part *part, int error, const char *why)
{
	char where[400];
	cancel_parts(entry);
	if (error == NEAP_EMETADATA && entry->directory->stores) {
		(void)snprintf(where, sizeof where, "%.300s: %s", entry->directory->backend->where,
		               part == &entry->parts[OWNER] ? "there is none of this name, or its owner's address (rpc_meta) is gone"
		                                            : "there is none of this name");
		why = where;
	}
	failed(entry, error, why);
	neap_step(&entry->machine, error == NEAP_EMETADATA ? segment_fetch_on_MISSING : segment_fetch_on_FAILED, 0);
}

/* The back-end's answer, sorted into what it means. */
static void fetched(void *user, int error, const char *value, size_t length, const char *why)
{
	struct part *part = user;
	struct entry *entry = part->entry;
	char detail[256] = "";

	part->call = 0;
	if (!error) {
		error = part == &entry->parts[DOCUMENT] ? read_document(entry, value, length, detail, sizeof detail)
		                                        : neap_rpc_document_decode(value, length, &entry->owner, detail, sizeof detail);
		why = detail;
	}
	if (error)
		part_failed(entry, part, error, why);
	else if (--entry->awaited == 0)
		neap_step(&entry->machine, segment_fetch_on_FOUND, 0);
}

static void part_changed(struct neap_backend_watch *watch)
{
	struct part *part = (struct part *)(void *)((char *)watch - offsetof(struct part, watch));
	unwatch_parts(part->entry);
}

static int key_of(const struct neap_directory *directory, int which, const char *name, char *key, size_t size)
{
	while (*name == '/')
		name++;
	return which == DOCUMENT ? neap_directory_segment_key(directory->cluster, name, key, size)
	                         : neap_directory_rpc_key(directory->cluster, name, key, size);
}

/* Begins to watch before it reads: a change in between is told. */
static int fetch_part(struct entry *entry, int which)
{
	struct neap_directory *directory = entry->directory;
	struct neap_backend *backend = directory->backend;
	struct part *part = &entry->parts[which];
	char key[NEAP_BACKEND_KEY_MAX];
	part->entry = entry;
	if (!directory->stores)
		return backend->ops->get(backend, entry->name, directory->fetch_timeout_ns, fetched, part, &part->call);
	int error = key_of(directory, which, entry->name, key, sizeof key);
	if (error)
		return error;
	part->watch.changed = part_changed;
	if (backend->ops->watch(backend, key, &part->watch))
		entry->watching = false;
	return backend->ops->get(backend, key, directory->fetch_timeout_ns, fetched, part, &part->call);
}

static int fetch_parts(struct entry *entry, char *why, size_t why_size)
{
	struct neap_directory *directory = entry->directory;
	entry->awaited = directory->stores ? PARTS : 1;
	unwatch_parts(entry);
	entry->watching = directory->stores;
	int error = directory->stores ? NEAP_OK : neap_p2p_address(entry->name, &entry->owner, why, why_size);
	for (int i = 0; i < entry->awaited && !error; i++)
		error = fetch_part(entry, i);
	return error;
}

static void do_fetch(struct neap_machine *machine, uint64_t argument)
{
	struct entry *entry = entry_of(machine);
	struct neap_directory *directory = entry->directory;
	char why[200] = "";
	(void)argument;
	directory->fetches++;
	entry->began_ns = neap_now(directory->reactor);
	int error = fetch_parts(entry, why, sizeof why);
	if (error) {
		cancel_parts(entry);
		failed(entry, error, why);
		(void)neap_post_first(machine, segment_fetch_on_FAILED, 0);
	}
}

static void do_adopt(struct neap_machine *machine, uint64_t argument)
{
	struct entry *entry = entry_of(machine);
	struct neap_reactor *reactor = entry->directory->reactor;
	struct neap_snapshot *snapshot = neap_allocate(reactor, sizeof *snapshot);
	(void)argument;
	if (!snapshot) {
		drop_fetched(entry);
		unwatch_parts(entry);
		failed(entry, NEAP_ENOMEM, NULL);
		finish(entry, NEAP_ENOMEM);
		return;
	}
	*snapshot =
		(struct neap_snapshot){.descriptor = entry->fetched, .references = 1, .fetched_ns = entry->began_ns, .reactor = reactor};
	snapshot->owner = entry->owner;
	entry->fetched = NULL;
	set_snapshot(entry, snapshot);
	entry->watched = entry->watching;
	finish(entry, NEAP_OK);
}

static void do_forget(struct neap_machine *machine, uint64_t argument)
{
	struct entry *entry = entry_of(machine);
	(void)argument;
	drop_fetched(entry);
	unwatch_parts(entry);
	set_snapshot(entry, NULL);
	finish(entry, entry->error);
}

/* What was known may still be true: who cannot be reached now is not gone. */
static void do_keep(struct neap_machine *machine, uint64_t argument)
{
	struct entry *entry = entry_of(machine);
	(void)argument;
	drop_fetched(entry);
	unwatch_parts(entry);
	finish(entry, entry->error);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct entry *entry = entry_of(machine);
	(void)argument;
	cancel_parts(entry);
	drop_fetched(entry);
	unwatch_parts(entry);
	failed(entry, NEAP_ETIMEDOUT, "the metadata source did not answer in time");
	finish(entry, NEAP_ETIMEDOUT);
}

static neap_action_func *const actions[] = {
	[segment_fetch_do_fetch] = do_fetch, [segment_fetch_do_adopt] = do_adopt,     [segment_fetch_do_forget] = do_forget,
	[segment_fetch_do_keep] = do_keep,   [segment_fetch_do_give_up] = do_give_up,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	uint64_t timeout_ns = entry_of(machine)->directory->fetch_timeout_ns + GRACE_NS;
	(void)timeout_class;
	return now_ns + timeout_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct entry *entry = entry_of(machine);
	(void)event;
	cancel_parts(entry);
	failed(entry, NEAP_EINTERNAL, NULL);
	finish(entry, NEAP_EINTERNAL);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_segment_fetch,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct entry),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls -------------------------------------------------------------------------------------------------------- */

static void release_directory(struct neap_directory *directory)
{
	struct neap_reactor *reactor = directory->reactor;
	if (directory->buckets)
		neap_release(reactor, directory->buckets, directory->bucket_count * sizeof(struct entry *));
	if (directory->cluster_copy)
		neap_release(reactor, directory->cluster_copy, directory->cluster_bytes);
	neap_pool_destroy(&directory->pool);
	neap_release(reactor, directory, sizeof *directory);
}

static int copy_cluster(struct neap_directory *directory, const char *cluster)
{
	if (!cluster || !cluster[0])
		return NEAP_OK;
	directory->cluster_bytes = strlen(cluster) + 1;
	directory->cluster_copy = neap_allocate(directory->reactor, directory->cluster_bytes);
	if (directory->cluster_copy)
		memcpy(directory->cluster_copy, cluster, directory->cluster_bytes);
	directory->cluster = directory->cluster_copy;
	return directory->cluster ? NEAP_OK : NEAP_ENOMEM;
}

int neap_directory_create(struct neap_directory **directory_p, struct neap_reactor *reactor, struct neap_backend *backend,
                          const char *cluster, uint32_t names_max, uint64_t fetch_timeout_ns)
{
	*directory_p = NULL;
	struct neap_reactor_class *class_ = NULL;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	struct neap_directory *directory = neap_allocate(reactor, sizeof *directory);
	if (!directory)
		return NEAP_ENOMEM;
	directory->reactor = reactor;
	directory->class_ = class_;
	directory->backend = backend;
	directory->stores = neap_backend_can(backend, NEAP_BACKEND_STORES);
	directory->fetch_timeout_ns = fetch_timeout_ns;
	error = copy_cluster(directory, cluster);
	if (!error)
		error = neap_pool_create(&directory->pool, reactor, sizeof(struct entry), names_max);
	for (directory->bucket_count = 1; directory->bucket_count < names_max && directory->bucket_count < 1u << 20;)
		directory->bucket_count *= 2;
	if (!error) {
		directory->buckets = neap_allocate(reactor, directory->bucket_count * sizeof(struct entry *));
		error = directory->buckets ? NEAP_OK : NEAP_ENOMEM;
	}
	if (error) {
		release_directory(directory);
		return error;
	}
	directory->dependent.what = "a directory";
	neap_reactor_attach(reactor, &directory->dependent);
	*directory_p = directory;
	return NEAP_OK;
}

static void reap_directory(struct neap_reap *reap)
{
	struct neap_directory *directory = (struct neap_directory *)(void *)((char *)reap - offsetof(struct neap_directory, reap));
	neap_reactor_detach(directory->reactor, &directory->dependent);
	release_directory(directory);
}

void neap_directory_destroy(struct neap_directory *directory)
{
	if (!directory || directory->closing)
		return;
	directory->closing = true;
	while (directory->oldest)
		end_entry(directory->oldest);
	directory->reap.reap = reap_directory;
	neap_reap_later(directory->reactor, &directory->reap);
}

int neap_directory_lookup(struct neap_directory *directory, const char *name, uint64_t not_before_ns, struct neap_lookup *lookup,
                          neap_found_func *found, void *user)
{
	size_t length = strnlen(name, NEAP_NAME_MAX + 1);
	uint64_t now_ns = neap_now(directory->reactor);
	if (directory->closing)
		return NEAP_ECLOSED;
	if (length == 0 || length > NEAP_NAME_MAX)
		return NEAP_EINVAL;
	struct entry *entry = find(directory, name);
	if (!entry)
		entry = add(directory, name, length);
	if (!entry)
		return NEAP_ELIMIT;
	unlink_use(entry);
	link_newest(entry);
	lookup->found = found;
	lookup->user = user;
	lookup->not_before_ns = not_before_ns < now_ns ? not_before_ns : now_ns;
	link_lookup(&entry->lookups, lookup);
	neap_ready_again(directory->reactor, &entry->ready);
	neap_reactor_touch(directory->reactor);
	return NEAP_OK;
}

void neap_directory_lookup_cancel(struct neap_directory *directory, struct neap_lookup *lookup)
{
	(void)directory;
	if (lookup->slot)
		unlink_lookup(lookup);
}

void neap_directory_forget(struct neap_directory *directory, const char *name)
{
	struct entry *entry = find(directory, name);
	if (entry)
		set_snapshot(entry, NULL);
}

uint64_t neap_directory_fetches(const struct neap_directory *directory)
{
	return directory->fetches;
}
