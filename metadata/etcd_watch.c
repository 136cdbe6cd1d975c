/* The stream of changes. It is taken up again behind the last revision we were told of, so that what is watched stays watched when a member
 * goes; only when that does not succeed, or what came since was compacted, all that watch are told that anything may have changed. */
#include "metadata/etcd_inside.h"
#include "metadata/etcd_watch_fsm.h"
#include <stdio.h>
#include <string.h>

#define REPLY_NS UINT64_C(3000000000)
#define RENEW_NS UINT64_C(60000000000)
#define PRIME_NS UINT64_C(1000000000) /* a stream that ends sooner is no use */
#define PAUSE_MIN_NS UINT64_C(100000000)
#define PAUSE_MAX_NS UINT64_C(5000000000)
#define LINE_MAX_BYTES ((size_t)8 << 20) /* two fragments and their base64; etcd cuts them at its --max-request-bytes */

static struct etcd_watch *watch_of(const struct neap_machine *machine)
{
	return (struct etcd_watch *)(uintptr_t)((const char *)machine - offsetof(struct etcd_watch, machine));
}

static void drop_line(struct etcd_watch *watch)
{
	if (watch->line)
		neap_release(watch->etcd->reactor, watch->line, watch->capacity);
	watch->line = NULL;
	watch->length = watch->capacity = 0;
}

static void end_stream(struct etcd_watch *watch)
{
	etcd_ask_end(watch->etcd, &watch->ask);
	drop_line(watch);
}

/* Said once until it is mended: whoever opens a segment is not hindered, only slower. */
static void complain(struct etcd_watch *watch, const char *why)
{
	if (!watch->why[0])
		neap_log(watch->etcd->reactor, NEAP_LOG_INFO, "metadata", "changes are not watched: %s", why);
	(void)snprintf(watch->why, sizeof watch->why, "%s", why);
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

static bool is_in_its_prime(const struct etcd_watch *watch)
{
	return watch->machine.state == etcd_watch_WATCHING && neap_now(watch->etcd->reactor) - watch->began_ns > PRIME_NS;
}

static void stream_ended(struct etcd_watch *watch, bool token, const char *why)
{
	struct neap_machine *machine = &watch->machine;
	if (machine->state == etcd_watch_WATCHING) {
		neap_step(machine, is_in_its_prime(watch) ? etcd_watch_on_ENDED : etcd_watch_on_BROKEN, 0);
	} else if (token && !watch->expired) {
		watch->expired = true;
		neap_step(machine, etcd_watch_on_EXPIRED, 0);
	} else {
		complain(watch, why);
		neap_step(machine, etcd_watch_on_BROKEN, 0);
	}
}

static void refused(struct etcd_watch *watch, int error, long status, const char *text, size_t length, const char *why)
{
	struct etcd_failure failure = {0};
	enum etcd_remedy remedy = etcd_judge(watch->etcd, watch->ask.endpoint, error, status, text, length, why, &failure);
	stream_ended(watch, remedy == ETCD_TOKEN && watch->etcd->username, failure.why);
}

static bool changed(void *user, const char *key, size_t length)
{
	struct etcd_watch *watch = user;
	uint64_t call = watch->ask.call;
	neap_watches_tell(&watch->etcd->watches, key, length);
	return !watch->etcd->closing && watch->ask.call == call; /* the callee may have destroyed us */
}

/* All members may have begun anew with nothing. Then their revisions count from 1 again, and so do the terms of their leaders; and a stream
 * that is to begin behind what they have would tell nothing until they have come so far. (A member that is behind the others looks the
 * same.) What they have forgotten is as good as compacted. */
static bool is_anew(const struct etcd_watch *watch, const struct etcd_notice *notice)
{
	if (watch->machine.state != etcd_watch_CREATING || !notice->created || notice->canceled || !watch->seen)
		return false;
	return notice->revision < watch->seen || notice->term < watch->term || notice->cluster != watch->cluster;
}

static void take_created(struct etcd_watch *watch, const struct etcd_notice *notice)
{
	watch->cluster = notice->cluster;
	watch->term = notice->term;
	neap_step(&watch->machine, etcd_watch_on_CREATED, notice->revision);
}

static void take_line(struct etcd_watch *watch, const char *line, size_t length)
{
	struct etcd_notice notice;
	uint64_t call = watch->ask.call;
	int error = etcd_notice_read(line, length, &notice, changed, watch);
	if (error == NEAP_ECANCELED || watch->ask.call != call)
		return;
	if (error) {
		refused(watch, error, 0, NULL, 0, "what it tells of changes cannot be read");
		return;
	}
	if (is_anew(watch, &notice) || (notice.compacted && (watch->resumes || is_in_its_prime(watch))))
		neap_step(&watch->machine, etcd_watch_on_COMPACTED, 0);
	else if (notice.compacted)
		refused(watch, NEAP_EPROTO, 0, NULL, 0, "it says that what is to come is compacted");
	else if (notice.canceled || notice.failed)
		refused(watch, NEAP_OK, 0, notice.reason, strlen(notice.reason), "");
	else if (notice.created && watch->machine.state == etcd_watch_CREATING)
		take_created(watch, &notice);
	else if (notice.last && !notice.fragment)
		watch->seen = notice.last;
	else if (!notice.events && !notice.created && notice.revision > watch->seen)
		watch->seen = notice.revision; /* a word that there was nothing */
}

static bool keep_rest(struct etcd_watch *watch, const char *bytes, size_t length)
{
	size_t needed = watch->length + length;
	if (needed > LINE_MAX_BYTES)
		return false;
	if (needed > watch->capacity) {
		size_t capacity = watch->capacity ? 2 * watch->capacity : 4096u;
		capacity = capacity < needed ? needed : capacity;
		char *larger = neap_allocate(watch->etcd->reactor, capacity);
		if (!larger)
			return false;
		if (watch->length)
			memcpy(larger, watch->line, watch->length);
		if (watch->line)
			neap_release(watch->etcd->reactor, watch->line, watch->capacity);
		watch->line = larger;
		watch->capacity = capacity;
	}
	if (length)
		memcpy(watch->line + watch->length, bytes, length);
	watch->length = needed;
	return true;
}

/* The rest of a line that has begun earlier. False: the stream has ended meanwhile. */
static bool finish_line(struct etcd_watch *watch, const char *bytes, size_t length)
{
	uint64_t call = watch->ask.call;
	if (watch->length == 0) {
		take_line(watch, bytes, length);
		return watch->ask.call == call;
	}
	if (!keep_rest(watch, bytes, length)) {
		refused(watch, NEAP_ELIMIT, 0, NULL, 0, "a change is longer than any value");
		return false;
	}
	char *line = watch->line;
	size_t capacity = watch->capacity, whole = watch->length;
	watch->line = NULL;
	watch->length = watch->capacity = 0;
	take_line(watch, line, whole);
	neap_release(watch->etcd->reactor, line, capacity);
	return watch->ask.call == call;
}

static void received(void *user, long status, const char *bytes, size_t length)
{
	struct etcd_watch *watch = user;
	const char *end;
	while (status == 200 && (end = memchr(bytes, '\n', length)) != NULL) {
		size_t line = (size_t)(end - bytes);
		if (!finish_line(watch, bytes, line))
			return;
		bytes += line + 1;
		length -= line + 1;
	}
	if (!keep_rest(watch, bytes, length))
		refused(watch, NEAP_ELIMIT, 0, NULL, 0, "a change is longer than any value");
}

static void stream_done(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct etcd_watch *watch = user;
	(void)body, (void)length;
	watch->ask.call = 0;
	if (error)
		refused(watch, error, 0, NULL, 0, why);
	else if (status != 200)
		refused(watch, NEAP_OK, status, watch->line, watch->length, "");
	else
		stream_ended(watch, false, "it ended the stream of changes");
}

/* --- actions ------------------------------------------------------------------------------------------------------------ */

static void do_open(struct neap_machine *machine, uint64_t argument)
{
	const struct etcd_watch *watch = watch_of(machine);
	(void)argument;
	(void)neap_post_first(machine, etcd_token_is_needed(&watch->etcd->token) ? etcd_watch_on_NEED_TOKEN : etcd_watch_on_READY, 0);
}

static void do_await(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	etcd_token_need(&watch_of(machine)->etcd->token);
}

static void do_create(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	struct neap_etcd *etcd = watch->etcd;
	struct neap_json_writer body;
	(void)argument;
	end_stream(watch);
	watch->began_ns = neap_now(etcd->reactor);
	watch->token_generation = etcd->token.generation;
	watch->resumes = watch->seen != 0;
	neap_json_writer_init(&body, SIZE_MAX, 256);
	etcd_put_watch(&body, etcd->prefix, watch->seen ? watch->seen + 1 : 0);
	struct etcd_send send = {.path = "/v3/watch",
	                         .body = &body,
	                         .timeout_ns = RENEW_NS + 2 * REPLY_NS,
	                         .shows_token = true,
	                         .once = true,
	                         .done = stream_done,
	                         .received = received,
	                         .user = watch};
	int error = etcd_send(etcd, &watch->ask, &send);
	if (!error)
		return;
	complain(watch, neap_error_text(error));
	(void)neap_post_first(machine, etcd_watch_on_BROKEN, 0);
}

/* A stream from now on begins behind the revision that the word names; one that was taken up again first brings what we missed. */
static void do_begin(struct neap_machine *machine, uint64_t revision)
{
	struct etcd_watch *watch = watch_of(machine);
	if (!watch->seen)
		watch->seen = revision;
	watch->tracks = true;
	watch->expired = false;
	watch->failures = 0;
	if (watch->why[0])
		neap_log(watch->etcd->reactor, NEAP_LOG_INFO, "metadata", "%s: changes are watched again", watch->etcd->base.where);
	watch->why[0] = '\0';
}

static void tell_all(struct etcd_watch *watch)
{
	watch->tracks = false;
	watch->seen = 0;
	watch->etcd->tell_all = true;
	neap_ready_again(watch->etcd->reactor, &watch->etcd->work);
}

static void do_resume(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	if (!watch->ask.call) /* it ended: another member */
		etcd_endpoint_failed(watch->etcd, watch->ask.endpoint);
	end_stream(watch);
	do_open(machine, argument);
}

static void do_restart(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	end_stream(watch);
	tell_all(watch);
	do_open(machine, argument);
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	end_stream(watch);
	etcd_token_expired(&watch->etcd->token, watch->token_generation);
	(void)argument;
	(void)neap_post(machine, etcd_watch_on_NEED_TOKEN, 0); /* behind the token's own end */
}

static void do_lose(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	(void)argument;
	end_stream(watch);
	etcd_endpoint_failed(watch->etcd, watch->ask.endpoint);
	tell_all(watch);
	watch->expired = false;
	watch->failures++;
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	struct etcd_failure failure = {0};
	etcd_note(watch->etcd, watch->ask.endpoint, &failure, NEAP_ETIMEDOUT, "the stream of changes did not begin in time");
	complain(watch, failure.why);
	do_lose(machine, argument);
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_watch *watch = watch_of(machine);
	(void)argument;
	end_stream(watch);
	watch->tracks = false;
}

static neap_action_func *const actions[] = {
	[etcd_watch_do_open] = do_open,       [etcd_watch_do_await] = do_await,     [etcd_watch_do_create] = do_create,
	[etcd_watch_do_begin] = do_begin,     [etcd_watch_do_resume] = do_resume,   [etcd_watch_do_restart] = do_restart,
	[etcd_watch_do_expire] = do_expire,   [etcd_watch_do_lose] = do_lose,       [etcd_watch_do_give_up] = do_give_up,
	[etcd_watch_do_close] = do_close,
};

static uint64_t pause_ns(const struct etcd_watch *watch)
{
	return neap_backend_pause_ns(watch->etcd->reactor, watch->failures, PAUSE_MIN_NS, PAUSE_MAX_NS);
}

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct etcd_watch *watch = watch_of(machine);
	if (timeout_class == etcd_watch_timeout_PAUSE)
		return now_ns + pause_ns(watch);
	if (timeout_class == etcd_watch_timeout_REPLY)
		return now_ns + REPLY_NS;
	return now_ns + RENEW_NS - RENEW_NS / 8 + neap_random_u64(watch->etcd->reactor) % (RENEW_NS / 8);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct etcd_watch *watch = watch_of(machine);
	(void)event;
	end_stream(watch);
	tell_all(watch);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_etcd_watch,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct etcd_watch),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls -------------------------------------------------------------------------------------------------------------- */

int etcd_watch_init(struct etcd_watch *watch, struct neap_etcd *etcd)
{
	struct neap_reactor_class *class_;
	int error = neap_reactor_class_of(etcd->reactor, &kind, &class_);
	if (error)
		return error;
	watch->etcd = etcd;
	neap_machine_begin(&watch->machine, &class_->class_);
	return NEAP_OK;
}

void etcd_watch_need(struct etcd_watch *watch)
{
	if (watch->needed)
		return;
	watch->needed = true;
	(void)neap_post(&watch->machine, etcd_watch_on_NEEDED, 0);
	neap_reactor_touch(watch->etcd->reactor);
}

void etcd_watch_token_settled(struct etcd_watch *watch)
{
	bool held = !etcd_token_is_needed(&watch->etcd->token);
	if (watch->machine.state != etcd_watch_AWAITING || !etcd_token_is_settled(&watch->etcd->token))
		return;
	if (!held)
		complain(watch, watch->etcd->token.failure.why);
	neap_step(&watch->machine, held ? etcd_watch_on_READY : etcd_watch_on_BROKEN, 0);
}

void etcd_watch_end(struct etcd_watch *watch)
{
	if (watch->ended)
		return;
	watch->ended = watch->needed = true;
	neap_step(&watch->machine, etcd_watch_on_CLOSE, 0);
	end_stream(watch);
}
