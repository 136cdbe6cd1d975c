/* Segments: opening a name, keeping its descriptor, reading it again, letting go. */
#include "transports/engine_state.h"
#include "transports/segment_fsm.h"
#include <stdio.h>
#include <string.h>

#define OPENED_A_PIECE 64u
#define ENDED_A_PIECE 64u

static struct neap_segment *segment_of_machine(struct neap_machine *machine)
{
	return (struct neap_segment *)(void *)((unsigned char *)machine - offsetof(struct neap_segment, machine));
}

uint64_t neap_segment_handle(const struct neap_segment *segment)
{
	struct neap_engine *engine = segment->engine;
	return segment == &engine->self ? NEAP_LOCAL_SEGMENT : neap_pool_handle(&engine->segments, segment);
}

struct neap_segment *neap_segment_find(struct neap_engine *engine, neap_segment_id id)
{
	if (id == NEAP_LOCAL_SEGMENT)
		return engine->options.no_local_path ? NULL : &engine->self;
	struct neap_segment *segment = neap_pool_find(&engine->segments, id);
	return segment && segment->machine.state == segment_OPEN ? segment : NULL;
}

bool neap_segment_is_neap(const struct neap_segment *segment)
{
	return segment->snapshot && segment->snapshot->descriptor->neap.present;
}

/* --- names */

static struct neap_segment **bucket_of(struct neap_engine *engine, const char *name)
{
	uint64_t hash = UINT64_C(14695981039346656037);
	for (; *name; name++)
		hash = (hash ^ (unsigned char)*name) * UINT64_C(1099511628211);
	return &engine->names[(hash ^ hash >> 32) & engine->names_mask];
}

static struct neap_segment *by_name(struct neap_engine *engine, const char *name)
{
	struct neap_segment *segment = *bucket_of(engine, name);
	while (segment && strcmp(segment->name, name) != 0)
		segment = segment->next_by_name;
	return segment;
}

static void remember_name(struct neap_engine *engine, struct neap_segment *segment)
{
	struct neap_segment **bucket = bucket_of(engine, segment->name);
	segment->next_by_name = *bucket;
	*bucket = segment;
}

static void forget_name(struct neap_segment *segment)
{
	struct neap_segment **slot = bucket_of(segment->engine, segment->name);
	while (*slot && *slot != segment)
		slot = &(*slot)->next_by_name;
	if (*slot)
		*slot = segment->next_by_name;
}

/* --- answers to users, made outside of actions */

static void answer(struct neap_engine *engine, struct neap_opener *opener, int error, const char *why)
{
	opener->error = error;
	snprintf(opener->why, sizeof opener->why, "%s", why ? why : "");
	opener->segment = NULL;
	opener->next = NULL;
	*engine->opened.tail = opener;
	engine->opened.tail = &opener->next;
	neap_engine_wake(engine);
}

static struct neap_opener *make_opener(struct neap_engine *engine, neap_opened_func *opened, void *user)
{
	struct neap_opener *opener = neap_pool_take(&engine->openers);
	if (opener)
		*opener = (struct neap_opener){.opened = opened, .user = user};
	return opener;
}

/* All calls that wait for this segment to open. */
static void answer_openers(struct neap_segment *segment, int error, const char *why)
{
	struct neap_engine *engine = segment->engine;
	uint32_t index = 0;
	for (struct neap_opener *opener; (opener = neap_pool_next(&engine->openers, &index)) != NULL;) {
		if (opener->segment != segment)
			continue;
		opener->id = error ? 0 : neap_segment_handle(segment);
		segment->opens += !error;
		answer(engine, opener, error, why);
	}
}

/* --- reading the descriptor */

static void look_up(struct neap_segment *segment, uint64_t not_before_ns);

/* Neap peers serve TCP beside their devices. */
static int check_snapshot(const struct neap_engine *engine, const struct neap_snapshot *snapshot, char *why, size_t why_size)
{
	const struct neap_descriptor *descriptor = snapshot->descriptor;
	const struct neap_transport *remote = engine->remote;
	bool over_tcp = descriptor->protocol == NEAP_PROTOCOL_TCP || (descriptor->neap.present && descriptor->tcp_data_port > 0);
	if (over_tcp || (remote->ops->reaches && remote->ops->reaches(remote, descriptor)))
		return NEAP_OK;
	snprintf(why, why_size,
	         "segment %.160s is served over rdma alone, and this engine has tcp: set protocol to \"rdma\" on a machine with RDMA devices",
	         descriptor->name);
	return NEAP_ENOTSUP;
}

static void replace_snapshot(struct neap_segment *segment, struct neap_snapshot *snapshot)
{
	struct neap_snapshot *old = segment->snapshot;
	segment->snapshot = neap_snapshot_keep(snapshot);
	segment->refreshed++;
	if (old)
		neap_snapshot_drop(old);
}

/* Ours only by the instance id: an address may be shared by containers, a name by anyone. */
static struct neap_transport *choose_transport(struct neap_engine *engine, const struct neap_descriptor *descriptor)
{
	bool ours = descriptor->neap.present &&
	            memcmp(descriptor->neap.instance, engine->view.instance, sizeof descriptor->neap.instance) == 0;
	return ours && !engine->options.no_local_path ? engine->local : engine->remote;
}

static void opened(struct neap_segment *segment, int error, struct neap_snapshot *snapshot, const char *why)
{
	char reason[NEAP_WHY_MAX];
	if (!error && (error = check_snapshot(segment->engine, snapshot, reason, sizeof reason)) != 0)
		why = reason;
	if (error) {
		answer_openers(segment, error, why);
		neap_step(&segment->machine, segment_on_NOT_FOUND, 0);
		return;
	}
	replace_snapshot(segment, snapshot);
	segment->transport = choose_transport(segment->engine, snapshot->descriptor);
	neap_step(&segment->machine, segment_on_FOUND, 0);
	answer_openers(segment, NEAP_OK, NULL);
}

/* Those that wanted knowledge of `not_before_ns` or older. They may ask again, or cancel others, from their callback. */
static void serve_waiters(struct neap_segment *segment, uint64_t not_before_ns, int error, const char *why)
{
	struct neap_segment_waiter *waiter;
	do {
		waiter = segment->waiters;
		while (waiter && waiter->not_before_ns > not_before_ns)
			waiter = waiter->next;
		if (waiter) {
			neap_segment_waiter_cancel(segment, waiter);
			waiter->done(waiter, error, why);
		}
	} while (waiter);
}

static void refreshed(struct neap_segment *segment, int error, struct neap_snapshot *snapshot, const char *why)
{
	char reason[NEAP_WHY_MAX];
	uint64_t answered_ns = segment->lookup_not_before_ns;
	if (!error && (error = check_snapshot(segment->engine, snapshot, reason, sizeof reason)) != 0)
		why = reason;
	if (!error) {
		if (snapshot->fetched_ns > answered_ns)
			answered_ns = snapshot->fetched_ns;
		replace_snapshot(segment, snapshot);
		segment->engine->stats.descriptor_refreshes++;
	}
	serve_waiters(segment, answered_ns, error, why);
	uint64_t newest = 0;
	for (struct neap_segment_waiter *waiter = segment->waiters; waiter; waiter = waiter->next)
		if (waiter->not_before_ns > newest)
			newest = waiter->not_before_ns;
	if (segment->waiters && !segment->looking)
		look_up(segment, newest);
}

static void found(void *user, int error, struct neap_snapshot *snapshot, const char *why)
{
	struct neap_segment *segment = user;
	segment->looking = false;
	if (segment->machine.state == segment_OPENING)
		opened(segment, error, snapshot, why);
	else
		refreshed(segment, error, snapshot, why);
}

static int begin_lookup(struct neap_segment *segment, uint64_t not_before_ns)
{
	struct neap_engine *engine = segment->engine;
	/* A refresh has a reason to doubt what is known. */
	segment->lookup.watched_will_do = segment->machine.state == segment_OPENING;
	segment->lookup_not_before_ns = not_before_ns;
	int error = neap_directory_lookup(engine->directory, segment->name, not_before_ns, &segment->lookup, found, segment);
	segment->looking = error == 0;
	return error;
}

static void look_up(struct neap_segment *segment, uint64_t not_before_ns)
{
	int error = begin_lookup(segment, not_before_ns);
	if (error)
		serve_waiters(segment, UINT64_MAX, error, neap_error_text(error));
}

void neap_segment_look_again(struct neap_segment *segment)
{
	if (segment->machine.state == segment_OPEN && segment != &segment->engine->self && !segment->looking)
		(void)begin_lookup(segment, neap_now(segment->engine->reactor));
}

int neap_segment_want_fresh(struct neap_segment *segment, struct neap_segment_waiter *waiter, uint64_t not_before_ns,
                            void (*done)(struct neap_segment_waiter *, int error, const char *why))
{
	if (segment->machine.state != segment_OPEN || segment == &segment->engine->self)
		return NEAP_ECLOSED;
	if (!segment->looking) {
		int error = begin_lookup(segment, not_before_ns);
		if (error)
			return error;
	}
	waiter->done = done;
	waiter->not_before_ns = not_before_ns;
	waiter->next = segment->waiters;
	if (waiter->next)
		waiter->next->slot = &waiter->next;
	waiter->slot = &segment->waiters;
	segment->waiters = waiter;
	return NEAP_OK;
}

void neap_segment_waiter_cancel(struct neap_segment *segment, struct neap_segment_waiter *waiter)
{
	(void)segment;
	if (!waiter->slot)
		return;
	*waiter->slot = waiter->next;
	if (waiter->next)
		waiter->next->slot = waiter->slot;
	waiter->slot = NULL;
	waiter->next = NULL;
}

/* --- calls of the user */

static int open_new(struct neap_engine *engine, struct neap_opener *opener, const char *name)
{
	struct neap_segment *segment = neap_pool_take(&engine->segments);
	if (!segment)
		return NEAP_ELIMIT;
	struct neap_machine machine = segment->machine; /* its generation goes on */
	*segment = (struct neap_segment){.machine = machine, .engine = engine};
	size_t bytes = strlen(name) + 1;
	segment->name = neap_allocate(engine->reactor, bytes);
	int error = segment->name ? NEAP_OK : NEAP_ENOMEM;
	if (!error) {
		memcpy(segment->name, name, bytes);
		neap_machine_begin(&segment->machine, &engine->classes.segment->class_);
		error = begin_lookup(segment, neap_now(engine->reactor));
	}
	if (error) {
		neap_release(engine->reactor, segment->name, bytes);
		neap_pool_give(&engine->segments, segment);
		return error;
	}
	remember_name(engine, segment);
	opener->segment = segment;
	return NEAP_OK;
}

int neap_segment_begin_open(struct neap_engine *engine, const char *name, neap_opened_func *opened_func, void *user)
{
	if (!neap_engine_is_running(engine))
		return NEAP_ECLOSED;
	if (!name || !opened_func || !*name || strnlen(name, NEAP_NAME_MAX + 1) > NEAP_NAME_MAX)
		return NEAP_EINVAL;
	struct neap_opener *opener = make_opener(engine, opened_func, user);
	if (!opener)
		return NEAP_EAGAIN;
	struct neap_segment *segment = by_name(engine, name);
	int error = NEAP_OK;
	if (strcmp(name, engine->name) == 0 && !engine->options.no_local_path) {
		answer(engine, opener, NEAP_OK, NULL);
	} else if (!segment) {
		error = open_new(engine, opener, name);
	} else if (segment->machine.state == segment_OPEN) {
		opener->id = neap_segment_handle(segment);
		segment->opens++;
		answer(engine, opener, NEAP_OK, NULL);
	} else {
		opener->segment = segment;
	}
	if (error)
		neap_pool_give(&engine->openers, opener);
	neap_reactor_touch(engine->reactor);
	return error;
}

static void refresh_done(struct neap_segment_waiter *waiter, int error, const char *why)
{
	struct neap_opener *opener = (struct neap_opener *)(void *)((unsigned char *)waiter - offsetof(struct neap_opener, waiter));
	answer(opener->segment->engine, opener, error, why);
}

int neap_segment_begin_refresh(struct neap_engine *engine, neap_segment_id id, neap_opened_func *opened_func, void *user)
{
	struct neap_segment *segment = neap_segment_find(engine, id);
	if (!segment)
		return NEAP_ESTALE;
	if (!opened_func)
		return NEAP_EINVAL;
	struct neap_opener *opener = make_opener(engine, opened_func, user);
	if (!opener)
		return NEAP_EAGAIN;
	opener->id = id;
	int error = NEAP_OK;
	if (segment == &engine->self)
		answer(engine, opener, NEAP_OK, NULL);
	else
		error = neap_segment_want_fresh(segment, &opener->waiter, neap_now(engine->reactor), refresh_done);
	if (error)
		neap_pool_give(&engine->openers, opener);
	else if (segment != &engine->self)
		opener->segment = segment;
	neap_reactor_touch(engine->reactor);
	return error;
}

int neap_segment_begin_close(struct neap_engine *engine, neap_segment_id id)
{
	if (id == NEAP_LOCAL_SEGMENT)
		return NEAP_EINVAL;
	struct neap_segment *segment = neap_segment_find(engine, id);
	if (!segment)
		return NEAP_ESTALE;
	if (segment->opens > 1) {
		segment->opens--;
		return NEAP_OK;
	}
	neap_step(&segment->machine, segment_on_CLOSE, 0);
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}

static const char *protocol_of(const struct neap_engine *engine, const struct neap_segment *segment)
{
	const struct neap_transport *transport = segment->transport;
	if (transport == engine->local)
		return "local";
	return transport->ops->protocol ? transport->ops->protocol(transport, segment) : "tcp";
}

int neap_segment_ask_info(struct neap_engine *engine, neap_segment_id id, struct neap_segment_info *info_p)
{
	const struct neap_segment *segment = neap_segment_find(engine, id);
	if (!segment)
		return NEAP_ESTALE;
	if (segment == &engine->self) {
		*info_p = (struct neap_segment_info){.name = engine->name, .protocol = "local", .is_neap = true, .tcp_proto_version = 2,
		                                     .buffer_count = neap_registry_open_regions(engine->registry)};
		memcpy(info_p->instance, engine->view.instance, sizeof info_p->instance);
		return NEAP_OK;
	}
	const struct neap_descriptor *descriptor = segment->snapshot->descriptor;
	*info_p = (struct neap_segment_info){
		.name = descriptor->name,
		.protocol = protocol_of(engine, segment),
		.buffer_count = descriptor->buffer_count,
		.is_neap = descriptor->neap.present,
		.tcp_proto_version = descriptor->tcp_proto_version > 0 ? (uint32_t)descriptor->tcp_proto_version : 1,
		.refreshed = segment->refreshed,
	};
	if (descriptor->neap.present)
		memcpy(info_p->instance, descriptor->neap.instance, sizeof info_p->instance);
	return NEAP_OK;
}

int neap_segment_ask_buffer(struct neap_engine *engine, neap_segment_id id, uint32_t index, uint64_t *address_p, uint64_t *length_p)
{
	const struct neap_segment *segment = neap_segment_find(engine, id);
	if (!segment)
		return NEAP_ESTALE;
	if (segment != &engine->self) {
		const struct neap_descriptor *descriptor = segment->snapshot->descriptor;
		if (index >= descriptor->buffer_count)
			return NEAP_EINVAL;
		*address_p = descriptor->buffers[index].address;
		*length_p = descriptor->buffers[index].length;
		return NEAP_OK;
	}
	if (engine->home != engine)
		neap_registry_enter(engine->registry, engine->core_index);
	struct neap_registry_cursor cursor = {0};
	bool more = true;
	for (uint32_t i = 0; more && i <= index; i++)
		more = neap_registry_next_open(engine->registry, &cursor, address_p, length_p);
	if (engine->home != engine)
		neap_registry_leave(engine->registry, engine->core_index);
	return more ? NEAP_OK : NEAP_EINVAL;
}

/* --- the end of a segment */

static void list_for_tending(struct neap_segment *segment)
{
	struct neap_engine *engine = segment->engine;
	if (segment->tended)
		return;
	segment->tended = true;
	segment->tend_next = engine->tends;
	engine->tends = segment;
	neap_engine_wake(engine);
}

static void end_lookups(struct neap_segment *segment)
{
	if (segment->looking)
		neap_directory_lookup_cancel(segment->engine->directory, &segment->lookup);
	segment->looking = false;
}

/* The transport's own waiters are its affair: it is told next. */
static void answer_refreshers(struct neap_segment *segment, const char *why)
{
	for (struct neap_segment_waiter *waiter = segment->waiters, *next; waiter; waiter = next) {
		next = waiter->next;
		if (waiter->done != refresh_done)
			continue;
		neap_segment_waiter_cancel(segment, waiter);
		waiter->done(waiter, NEAP_ECLOSED, why);
	}
}

static void do_abandon(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_segment *segment = segment_of_machine(machine);
	end_lookups(segment);
	answer_openers(segment, NEAP_ECLOSED, "the engine was closed");
	forget_name(segment);
	list_for_tending(segment);
}

/* The transport is told outside of this action: it may have a thousand lanes to close. */
static void do_forget(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_segment *segment = segment_of_machine(machine);
	end_lookups(segment);
	forget_name(segment);
	answer_refreshers(segment, "the segment was closed");
	list_for_tending(segment);
}

static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_segment *segment = segment_of_machine(machine);
	/* From OPENING it still has its name; from CLOSING it has not. */
	if (!segment->transport)
		forget_name(segment);
	list_for_tending(segment);
}

neap_action_func *const neap_segment_actions[] = {
	[segment_do_abandon] = do_abandon,
	[segment_do_forget] = do_forget,
	[segment_do_bury] = do_bury,
};

static void check_forgotten(struct neap_segment *segment)
{
	if (segment->forgotten && segment->slices == 0)
		neap_step(&segment->machine, segment_on_FORGOTTEN, 0);
}

void neap_segment_forgotten(struct neap_segment *segment)
{
	if (segment->holders > 1) {
		segment->holders--;
		return;
	}
	segment->forgotten = true;
	check_forgotten(segment);
}

void neap_segment_slice_done(struct neap_segment *segment)
{
	segment->slices--;
	check_forgotten(segment);
}

static void give_back(struct neap_segment *segment)
{
	struct neap_engine *engine = segment->engine;
	if (segment->snapshot)
		neap_snapshot_drop(segment->snapshot);
	segment->snapshot = NULL;
	neap_release(engine->reactor, segment->name, strlen(segment->name) + 1);
	segment->name = NULL;
	neap_machine_end(&segment->machine);
	neap_pool_give(&engine->segments, segment);
}

static bool report_opened(struct neap_engine *engine)
{
	for (uint32_t i = 0; i < OPENED_A_PIECE && engine->opened.first; i++) {
		struct neap_opener opener = *engine->opened.first;
		neap_pool_give(&engine->openers, engine->opened.first);
		engine->opened.first = opener.next;
		if (!opener.next)
			engine->opened.tail = &engine->opened.first;
		opener.opened(opener.user, opener.error, opener.error ? 0 : opener.id, opener.error ? opener.why : NULL);
	}
	return engine->opened.first != NULL;
}

bool neap_segments_tend(struct neap_engine *engine)
{
	for (uint32_t i = 0; i < ENDED_A_PIECE && engine->tends; i++) {
		struct neap_segment *segment = engine->tends;
		engine->tends = segment->tend_next;
		segment->tended = false;
		if (segment->machine.state == segment_CLOSING)
			segment->transport->ops->forget(segment->transport, segment);
		else
			give_back(segment);
	}
	bool more = report_opened(engine);
	return more || engine->tends;
}

/* The engine closes: what is opening or waits for a refresh is answered now; transports end the rest by themselves. */
void neap_segments_abandon(struct neap_engine *engine)
{
	uint32_t index = 0;
	for (struct neap_segment *segment; (segment = neap_pool_next(&engine->segments, &index)) != NULL;) {
		if (segment->machine.state == segment_OPENING)
			neap_step(&segment->machine, segment_on_CLOSE, 0);
		else if (segment->machine.state == segment_OPEN)
			answer_refreshers(segment, "the engine was closed");
	}
}

void neap_segments_free_all(struct neap_engine *engine)
{
	uint32_t index = 0;
	for (struct neap_segment *segment; (segment = neap_pool_next(&engine->segments, &index)) != NULL;)
		give_back(segment);
}
