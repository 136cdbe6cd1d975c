/* Endpoints: the machine and its life. What users and peers hear of it is told outside of actions, because there may be any number of
 * them, and what they do then is theirs. */
#include "transports/rdma/endpoint_inside.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)

/* --- leaving -------------------------------------------------------------------------------------------------------------------- */

void rdma_endpoint_tell_later(struct rdma_endpoint *endpoint)
{
	neap_ready_again(endpoint->base.endpoints->reactor, &endpoint->news);
}

bool rdma_endpoint_leave(struct rdma_endpoint *endpoint, enum neap_cause cause, const char *why)
{
	struct neap_rdma_endpoint *base = &endpoint->base;
	if (base->leaving)
		return false;
	base->leaving = true;
	base->usable = false;
	base->cause = (uint8_t)cause;
	snprintf(base->why, sizeof base->why, "%s", why);
	if (cause != NEAP_CAUSE_ENGINE_CLOSED)
		neap_log(base->endpoints->reactor, NEAP_LOG_INFO, "rdma", "%s to %s: %s", base->queue->device->name, base->path, why);
	rdma_hang_up(endpoint);
	rdma_list_take(endpoint);
	rdma_starve_end(endpoint);
	neap_timer_cancel(base->endpoints->reactor, &endpoint->progress);
	endpoint->news_leaving = true;
	rdma_endpoint_tell_later(endpoint);
	return true;
}

void rdma_endpoint_fail(struct rdma_endpoint *endpoint, enum neap_cause cause, const char *format, ...)
{
	char why[NEAP_RDMA_WHY_SIZE];
	va_list list;
	va_start(list, format);
	(void)vsnprintf(why, sizeof why, format, list);
	va_end(list);
	if (rdma_endpoint_leave(endpoint, cause, why))
		neap_step(&endpoint->base.machine, rdma_endpoint_on_RETIRE, cause);
}

void neap_rdma_endpoint_retire(struct neap_rdma_endpoint *base, enum neap_cause cause, const char *why)
{
	rdma_endpoint_fail((struct rdma_endpoint *)(void *)base, cause, "%s", why);
	neap_reactor_touch(base->endpoints->reactor);
}

/* --- news ----------------------------------------------------------------------------------------------------------------------- */

static void link_user(struct neap_rdma_endpoint_user **head, struct neap_rdma_endpoint_user *user)
{
	user->next = *head;
	if (user->next)
		user->next->slot = &user->next;
	user->slot = head;
	*head = user;
}

static void unlink_user(struct neap_rdma_endpoint_user *user)
{
	*user->slot = user->next;
	if (user->next)
		user->next->slot = user->slot;
	user->slot = NULL;
}

/* Each that is there now, once, whatever they do meanwhile. */
static void tell(struct rdma_endpoint *endpoint, enum neap_rdma_news news)
{
	struct neap_rdma_endpoint_user *list = endpoint->base.users;
	endpoint->base.users = NULL;
	if (list)
		list->slot = &list;
	while (list) {
		struct neap_rdma_endpoint_user *user = list;
		unlink_user(user);
		if (news == NEAP_RDMA_GONE) {
			user->endpoint = NULL;
			user->fenced = endpoint->fenced;
		} else {
			link_user(&endpoint->base.users, user);
		}
		user->told(user, news);
	}
}

/* Peers that wait for a connection hear of it too. */
static void tell_leaving(struct rdma_endpoint *endpoint)
{
	if (endpoint->base.leaving)
		rdma_answer_refused(endpoint, endpoint->base.why, false);
	if (!endpoint->news_leaving)
		return;
	endpoint->news_leaving = false;
	tell(endpoint, NEAP_RDMA_LEAVING);
}

static void ended_again(struct neap_rdma_endpoints *endpoints)
{
	if (endpoints->closing && endpoints->pool.used == 0)
		neap_ready_again(endpoints->reactor, &endpoints->ended);
}

static void release(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	struct neap_rdma_queue *queue = endpoint->base.queue;
	neap_ready_cancel(endpoints->reactor, &endpoint->news);
	neap_pool_give(&endpoints->pool, endpoint);
	neap_rdma_queue_unuse(queue);
	rdma_line_look(endpoints);
	ended_again(endpoints);
}

static void run_news(struct neap_ready *ready)
{
	struct rdma_endpoint *endpoint = (struct rdma_endpoint *)(void *)((char *)ready - offsetof(struct rdma_endpoint, news));
	bool usable = endpoint->news_usable, room = endpoint->news_room;
	endpoint->news_usable = endpoint->news_room = false;
	if (usable && endpoint->base.usable)
		tell(endpoint, NEAP_RDMA_USABLE);
	if (room && endpoint->base.usable)
		tell(endpoint, NEAP_RDMA_ROOM);
	tell_leaving(endpoint);
	if (!endpoint->news_gone)
		return;
	tell(endpoint, NEAP_RDMA_GONE);
	release(endpoint);
}

/* --- facts from the helper ------------------------------------------------------------------------------------------------------ */

const char *rdma_error_text(int error)
{
	return strerrordesc_np(-error) ? strerrordesc_np(-error) : "unknown error";
}

static void make_done(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoint *base = &endpoint->base;
	char why[NEAP_RDMA_WHY_SIZE];
	if (base->leaving)
		return;
	if (endpoint->work.make_error) {
		snprintf(why, sizeof why, "%s: queue pairs cannot be made: %s (rdma resource show; MC_MAX_EP_PER_CTX, ulimit -l)",
		         base->queue->device->name, rdma_error_text(endpoint->work.make_error));
		(void)rdma_endpoint_leave(endpoint, NEAP_CAUSE_CONNECT_FAILED, why);
		neap_step(&base->machine, rdma_endpoint_on_FAILED, 0);
		return;
	}
	endpoint->made = endpoint->work.wanted;
	for (uint32_t i = 0; i < endpoint->made; i++)
		base->qps[i] = (struct neap_rdma_qp){.qp = endpoint->work.qps[i], .number = endpoint->work.numbers[i]};
	neap_step(&base->machine, endpoint->peer.known ? rdma_endpoint_on_MADE_TOLD : rdma_endpoint_on_MADE, 0);
}

/* Who waits for a word now, we or the peer. */
static uint8_t after_connecting(const struct rdma_endpoint *endpoint)
{
	if (endpoint->answered)
		return endpoint->ack_wanted ? rdma_endpoint_on_CONNECTED_ACK : rdma_endpoint_on_CONNECTED;
	return endpoint->peer.has_ready_ack ? rdma_endpoint_on_CONNECTED_AWAIT : rdma_endpoint_on_CONNECTED;
}

void rdma_endpoint_doubt_gid(struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_queue *queue = endpoint->base.queue;
	if (!queue->gid_proven && endpoint->view_changes == queue->view_changes)
		neap_rdma_device_next_gid(queue->device);
}

static void connect_done(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoint *base = &endpoint->base;
	char why[NEAP_RDMA_WHY_SIZE];
	if (base->leaving)
		return;
	if (endpoint->work.connect_error) {
		snprintf(why, sizeof why, "Failed to modify QP to %s%s: %s", endpoint->work.doing,
		         strcmp(endpoint->work.doing, RDMA_TO_RTR) == 0 ? ", check mtu, gid, peer lid, peer qp num" : "",
		         rdma_error_text(endpoint->work.connect_error));
		rdma_answer_refused(endpoint, why, true);
		(void)rdma_endpoint_leave(endpoint, NEAP_CAUSE_CONNECT_FAILED, why);
		if (endpoint->work.connect_error == -EINVAL && strcmp(endpoint->work.doing, RDMA_TO_RTR) == 0)
			rdma_endpoint_doubt_gid(endpoint);
		neap_step(&base->machine, rdma_endpoint_on_FAILED, 0);
		return;
	}
	endpoint->connected = true;
	base->queue->gid_proven = true;
	base->qp_count = endpoint->work.connected;
	rdma_answer_connected(endpoint);
	neap_step(&base->machine, after_connecting(endpoint), 0);
}

/* What is owed by queue pairs that are gone will not come. Whether the peer must go too is known when the users have heard of the end. */
static void destroyed(struct rdma_endpoint *endpoint)
{
	struct neap_rdma_endpoint *base = &endpoint->base;
	tell_leaving(endpoint);
	rdma_forget_owed(endpoint);
	rdma_answer_retired(endpoint);
	rdma_map_take(endpoint);
	rdma_fences_look(base->endpoints);
	bool fence = base->wants_fence && base->peer_is_neap && endpoint->has_address && endpoint->connected && !base->endpoints->hurried;
	neap_step(&base->machine, fence ? rdma_endpoint_on_DESTROYED_FENCE : rdma_endpoint_on_DESTROYED, 0);
}

static void destroy_done(struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_endpoint *base = &endpoint->base;
	if (!endpoint->work.destroy_error) {
		destroyed(endpoint);
		return;
	}
	neap_log(base->endpoints->reactor, NEAP_LOG_ERROR, "rdma", "%s to %s: a queue pair cannot be destroyed: %s; %s",
	         base->queue->device->name, base->path, rdma_error_text(endpoint->work.destroy_error),
	         endpoint->destroy_tries + 1 < RDMA_DESTROY_TRIES ? "tried again" : "it stays until the process ends");
	endpoint->destroy_again = ++endpoint->destroy_tries < RDMA_DESTROY_TRIES;
	if (!endpoint->destroy_again) {
		base->endpoints->stray = true;
		destroyed(endpoint);
	}
}

/* --- actions -------------------------------------------------------------------------------------------------------------------- */

static void do_make(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	if (endpoint->base.leaving) /* here and below: its RETIRE is behind this event */
		return;
	rdma_work_make(endpoint);
	rdma_work_submit(endpoint, &endpoint->make_job);
}

static void do_ask(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	if (!endpoint->base.leaving)
		rdma_call_ask(endpoint);
}

static void do_connect(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	if (endpoint->base.leaving)
		return;
	rdma_work_connect(endpoint);
	rdma_work_submit(endpoint, &endpoint->connect_job);
}

static void do_ack(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	if (!endpoint->base.leaving)
		rdma_call_ack(endpoint);
}

static void do_ready(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	if (endpoint->base.leaving)
		return;
	endpoint->base.usable = endpoint->base.ever_usable = true;
	endpoint->usable_ns = neap_now(endpoint->base.endpoints->reactor);
	rdma_line_look(endpoint->base.endpoints);
	endpoint->news_usable = true;
	rdma_endpoint_tell_later(endpoint);
}

/* The kernel does this at once; what was posted and not executed comes back as flushed. */
static void do_drain(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	const struct neap_verbs_ops *ops = endpoint->base.endpoints->verbs->ops;
	(void)argument;
	for (uint32_t i = 0; i < endpoint->made; i++)
		(void)ops->modify_qp(endpoint->base.qps[i].qp, &(struct neap_verbs_qp_change){.to = NEAP_QP_ERR});
	if (endpoint->base.owed == 0)
		(void)neap_post_first(machine, rdma_endpoint_on_DRAINED, 0);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	char why[NEAP_RDMA_WHY_SIZE];
	snprintf(why, sizeof why, "the peer did not say within %llu ms that it is connected",
	         (unsigned long long)(endpoint->base.endpoints->options.ack_timeout_ns / 1000000));
	(void)rdma_endpoint_leave(endpoint, NEAP_CAUSE_CONNECT_TIMEOUT, why);
	do_drain(machine, argument);
}

static void do_destroy(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	rdma_work_destroy(endpoint);
	rdma_work_submit(endpoint, &endpoint->destroy_job);
}

/* Not while the helper is at something else. */
static void do_warn(struct neap_machine *machine, uint64_t argument)
{
	const struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	const struct neap_rdma_endpoint *base = &endpoint->base;
	uint64_t ns = rdma_work_runs_ns(endpoint);
	(void)argument;
	if (ns < base->endpoints->options.slow_ns)
		return;
	neap_log(base->endpoints->reactor, NEAP_LOG_WARNING, "rdma", "%s to %s: the kernel has not answered for %llu ms; waiting on",
	         base->queue->device->name, base->path, (unsigned long long)(ns / 1000000));
}

static void do_persist(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	if (endpoint->destroy_again)
		do_destroy(machine, argument);
	else
		do_warn(machine, argument);
}

static void do_fence(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	rdma_call_fence(rdma_endpoint_of(machine));
}

static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)argument;
	rdma_answer_refused(endpoint, endpoint->base.why, false);
	rdma_answer_retired(endpoint);
	rdma_map_take(endpoint);
	endpoint->news_gone = true;
	rdma_endpoint_tell_later(endpoint);
	rdma_fences_look(endpoint->base.endpoints);
	neap_machine_end(machine);
}

static neap_action_func *const actions[] = {
	[rdma_endpoint_do_make] = do_make,         [rdma_endpoint_do_ask] = do_ask,         [rdma_endpoint_do_connect] = do_connect,
	[rdma_endpoint_do_ack] = do_ack,           [rdma_endpoint_do_ready] = do_ready,     [rdma_endpoint_do_drain] = do_drain,
	[rdma_endpoint_do_give_up] = do_give_up,   [rdma_endpoint_do_destroy] = do_destroy, [rdma_endpoint_do_fence] = do_fence,
	[rdma_endpoint_do_warn] = do_warn, [rdma_endpoint_do_persist] = do_persist, [rdma_endpoint_do_bury] = do_bury,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rdma_endpoint_options *options = &rdma_endpoint_of(machine)->base.endpoints->options;
	if (timeout_class == rdma_endpoint_timeout_ACK)
		return now_ns + options->ack_timeout_ns;
	return now_ns + (timeout_class == rdma_endpoint_timeout_DRAIN ? options->drain_timeout_ns : options->slow_ns);
}

/* It stays where it is: its memory may be in use by the device. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	(void)event;
	(void)rdma_endpoint_leave(endpoint, NEAP_CAUSE_INTERNAL, neap_error_text(NEAP_EINTERNAL));
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct rdma_endpoint *endpoint = rdma_endpoint_of(machine);
	const struct neap_rdma_endpoint *base = &endpoint->base;
	uint8_t state = machine->state;
	(void)from;
	if (base->usable && (state != rdma_endpoint_READY || base->leaving))
		return "usable, and not READY";
	if (base->owed && state < rdma_endpoint_READY)
		return "posted to before it was ready";
	if (state == rdma_endpoint_GONE && (base->owed || endpoint->ticket_count))
		return "gone, and somebody waits";
	if (state >= rdma_endpoint_DRAINING && !base->leaving)
		return "it ends, and nobody was told";
	return NULL;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_rdma_endpoint,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_rdma_endpoint),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- one ------------------------------------------------------------------------------------------------------------------------ */

struct rdma_endpoint *rdma_endpoint_begin(struct neap_rdma_endpoints *endpoints, struct rdma_place *place, const char *path)
{
	struct rdma_endpoint *endpoint = neap_pool_take(&endpoints->pool);
	if (!endpoint)
		return NULL;
	struct neap_machine machine = endpoint->base.machine; /* its generation goes on */
	*endpoint = (struct rdma_endpoint){
		.base = {.machine = machine, .endpoints = endpoints, .queue = place->queue},
		.place = place,
		.view_changes = place->queue->view_changes,
		.news.run = run_news,
		.begun_ns = neap_now(endpoints->reactor),
		.epoch = ++endpoints->last_epoch,
		.fences_before = endpoints->fences_ever,
		.make_job.then = make_done,
		.connect_job.then = connect_done,
		.destroy_job.then = destroy_done,
	};
	snprintf(endpoint->base.path, sizeof endpoint->base.path, "%s", path);
	neap_rdma_queue_use(place->queue);
	rdma_list_put(endpoint);
	rdma_map_put(endpoint);
	neap_machine_begin(&endpoint->base.machine, &endpoints->class_->class_);
	return endpoint;
}

/* Either the endpoint or the target is older than the process that is there now. */
static bool is_of_another(const struct rdma_endpoint *endpoint, const struct neap_rdma_target *target)
{
	const struct rdma_half *peer = &endpoint->peer;
	return target->is_neap && peer->known && (!peer->is_neap || memcmp(peer->instance, target->instance, sizeof peer->instance) != 0);
}

int neap_rdma_endpoint_use(struct neap_rdma_endpoints *endpoints, struct neap_rdma_queue *queue, const struct neap_rdma_target *target,
                           struct neap_rdma_endpoint_user *user)
{
	char path[NEAP_RDMA_NIC_PATH_MAX];
	struct rdma_place *place = rdma_place_of(endpoints, queue);
	int length = snprintf(path, sizeof path, "%s@%s", target->server, target->nic);
	if (length < 0 || (size_t)length >= sizeof path)
		return NEAP_EINVAL;
	if (endpoints->closing)
		return NEAP_ECLOSED;
	if (!place || !queue->usable)
		return NEAP_ENODEV;
	struct rdma_endpoint *endpoint = rdma_map_find(endpoints, place, path);
	if (endpoint && is_of_another(endpoint, target)) {
		if (endpoint->base.owed > 0 && !endpoint->base.leaving)
			return NEAP_ESTALE;
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_OTHER_INSTANCE, "another process lives at the peer's address now");
	}
	bool begin = !endpoint || endpoint->base.leaving;
	if (begin) {
		bool first = endpoints->waiting == 0 || endpoints->served == user;
		if (!first || !rdma_admit(endpoints, place))
			return NEAP_EAGAIN;
		endpoint = rdma_endpoint_begin(endpoints, place, path);
		if (!endpoint)
			return NEAP_EAGAIN;
	}
	endpoint->target = *target;
	endpoint->target.server = endpoint->target.nic = NULL;
	endpoint->has_target = endpoint->has_address = true;
	endpoint->chances |= 1;
	user->endpoint = &endpoint->base;
	user->fenced = false;
	link_user(&endpoint->base.users, user);
	if (begin)
		neap_step(&endpoint->base.machine, endpoint->before ? rdma_endpoint_on_FOLLOW : rdma_endpoint_on_START, 0);
	neap_reactor_touch(endpoints->reactor);
	return NEAP_OK;
}

void neap_rdma_endpoint_unuse(struct neap_rdma_endpoint_user *user)
{
	if (user->line) {
		rdma_line_leave(user);
		return;
	}
	unlink_user(user);
	user->endpoint = NULL;
}

/* --- all ------------------------------------------------------------------------------------------------------------------------ */

#define SET_OF(member_pointer, member) \
	((struct neap_rdma_endpoints *)(void *)((char *)(member_pointer) - offsetof(struct neap_rdma_endpoints, member)))

static void reap(struct neap_reap *reap)
{
	struct neap_rdma_endpoints *endpoints = SET_OF(reap, reap);
	struct neap_reactor *reactor = endpoints->reactor;
	neap_reactor_detach(reactor, &endpoints->dependent);
	neap_ready_cancel(reactor, &endpoints->fences_due);
	neap_ready_cancel(reactor, &endpoints->line_due);
	neap_timer_cancel(reactor, &endpoints->line_timer);
	neap_pool_destroy(&endpoints->guest_pool);
	neap_pool_destroy(&endpoints->pool);
	neap_release(reactor, endpoints->buckets, (endpoints->bucket_mask + 1u) * sizeof *endpoints->buckets);
	neap_release(reactor, endpoints, sizeof *endpoints);
}

static void run_ended(struct neap_ready *ready)
{
	struct neap_rdma_endpoints *endpoints = SET_OF(ready, ended);
	neap_reap_later(endpoints->reactor, &endpoints->reap);
	endpoints->closed(endpoints->closed_user);
}

void neap_rdma_endpoints_close(struct neap_rdma_endpoints *endpoints, void (*closed)(void *user), void *user)
{
	struct rdma_endpoint *endpoint;
	uint32_t index = 0;
	if (endpoints->closing)
		return;
	endpoints->closing = true;
	endpoints->closed = closed;
	endpoints->closed_user = user;
	while ((endpoint = neap_pool_next(&endpoints->pool, &index)) != NULL)
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_ENGINE_CLOSED, "the engine closes");
	rdma_guests_end(endpoints, "the engine closes");
	rdma_line_look(endpoints);
	ended_again(endpoints);
	neap_reactor_touch(endpoints->reactor);
}

void neap_rdma_endpoints_retire(struct neap_rdma_endpoints *endpoints, const char *why)
{
	struct rdma_endpoint *endpoint;
	uint32_t index = 0;
	while ((endpoint = neap_pool_next(&endpoints->pool, &index)) != NULL)
		rdma_endpoint_fail(endpoint, NEAP_CAUSE_NONE, "%s", why);
	neap_reactor_touch(endpoints->reactor);
}

void neap_rdma_endpoints_hurry(struct neap_rdma_endpoints *endpoints)
{
	struct rdma_endpoint *endpoint;
	uint32_t index = 0;
	endpoints->hurried = true;
	while ((endpoint = neap_pool_next(&endpoints->pool, &index)) != NULL)
		if (endpoint->base.machine.state == rdma_endpoint_FENCING && endpoint->call) {
			rdma_hang_up(endpoint);
			neap_step(&endpoint->base.machine, rdma_endpoint_on_CALLED, 0);
		}
	neap_reactor_touch(endpoints->reactor);
}

static uint64_t or_else(uint64_t value, uint64_t otherwise)
{
	return value ? value : otherwise;
}

static void set_options(struct neap_rdma_endpoint_options *options)
{
	options->endpoints_max = (uint32_t)or_else(options->endpoints_max, 65535);
	options->qps = (uint32_t)or_else(options->qps, 2);
	if (options->qps > NEAP_RDMA_QPS_MAX)
		options->qps = NEAP_RDMA_QPS_MAX;
	options->depth = (uint32_t)or_else(options->depth, 256);
	options->mtu_bytes = (uint32_t)or_else(options->mtu_bytes, 4096);
	options->timeout = (uint8_t)or_else(options->timeout, 14);
	options->retry_count = (uint8_t)or_else(options->retry_count, 6);
	options->handshake_timeout_ns = or_else(options->handshake_timeout_ns, 5 * SECOND_NS);
	options->ack_timeout_ns = or_else(options->ack_timeout_ns, 10 * SECOND_NS);
	options->progress_timeout_ns = or_else(options->progress_timeout_ns, 30 * SECOND_NS);
	options->drain_timeout_ns = or_else(options->drain_timeout_ns, 10 * SECOND_NS);
	options->slow_ns = or_else(options->slow_ns, 10 * SECOND_NS);
	options->stay_ns = or_else(options->stay_ns, SECOND_NS / 20);
	options->idle_ns = or_else(options->idle_ns, SECOND_NS / 500);
	options->guest_ns = or_else(options->guest_ns, SECOND_NS / 2);
}

/* Those that leave have successors before they are destroyed. */
static uint32_t places_of(const struct neap_rdma_endpoint_options *options)
{
	return 2 * options->endpoints_max + 16;
}

static int make_room(struct neap_rdma_endpoints *endpoints)
{
	uint32_t buckets = 64, wanted = places_of(&endpoints->options);
	while (buckets < wanted && buckets < 65536)
		buckets *= 2;
	endpoints->buckets = neap_allocate(endpoints->reactor, buckets * sizeof *endpoints->buckets);
	if (!endpoints->buckets)
		return NEAP_ENOMEM;
	endpoints->bucket_mask = buckets - 1;
	int error = neap_pool_create(&endpoints->pool, endpoints->reactor, sizeof(struct rdma_endpoint), wanted);
	if (!error)
		error = rdma_guests_create(endpoints);
	if (error)
		neap_pool_destroy(&endpoints->pool);
	if (error)
		neap_release(endpoints->reactor, endpoints->buckets, buckets * sizeof *endpoints->buckets);
	return error;
}

int neap_rdma_endpoints_create(struct neap_reactor *reactor, const struct neap_verbs *verbs, struct neap_helper *helper,
                               struct neap_handshake_caller *caller, const struct neap_rdma_answers *answers, const char *local_server,
                               const uint8_t instance[16], const struct neap_rdma_endpoint_options *options,
                               struct neap_rdma_endpoints **endpoints_p)
{
	struct neap_reactor_class *class_;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	struct neap_rdma_endpoints *endpoints = neap_allocate(reactor, sizeof *endpoints);
	if (!endpoints)
		return NEAP_ENOMEM;
	*endpoints = (struct neap_rdma_endpoints){
		.reactor = reactor,
		.class_ = class_,
		.verbs = verbs,
		.helper = helper,
		.caller = caller,
		.answers = *answers,
		.options = *options,
		.ended.run = run_ended,
		.fences_due.run = rdma_fences_run,
		.line_due.run = rdma_line_run,
		.reap.reap = reap,
		.dependent.what = "RDMA endpoints",
	};
	snprintf(endpoints->local_server, sizeof endpoints->local_server, "%s", local_server);
	memcpy(endpoints->instance, instance, sizeof endpoints->instance);
	endpoints->last_job = &endpoints->first_job;
	set_options(&endpoints->options);
	error = make_room(endpoints);
	if (error) {
		neap_release(reactor, endpoints, sizeof *endpoints);
		return error;
	}
	neap_reactor_attach(reactor, &endpoints->dependent);
	*endpoints_p = endpoints;
	return NEAP_OK;
}

uint32_t neap_rdma_endpoints_count(const struct neap_rdma_endpoints *endpoints)
{
	return endpoints->pool.used;
}
