/* One connection to a Redis server. */
#include "metadata/redis_inside.h"
#include "metadata/redis_link_fsm.h"
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#define INVALIDATIONS "__redis__:invalidate"

static struct redis_link *link_of(const struct neap_machine *machine)
{
	return (struct redis_link *)(uintptr_t)((const char *)machine - offsetof(struct redis_link, machine));
}

static struct neap_net *net_of(const struct redis_link *link)
{
	return neap_reactor_net(link->redis->reactor);
}

bool redis_link_is_ready(const struct redis_link *link)
{
	return link->machine.state == redis_link_READY && link->wire;
}

static void let_go(struct redis_link *link)
{
	struct neap_redis *redis = link->redis;
	if (link->resolution)
		net_of(link)->resolve_cancel(link->resolution);
	link->resolution = NULL;
	if (link->wire)
		redis->driver->close(link->wire);
	link->wire = NULL;
}

/* What went wrong last: for those who wait, and once for the log. */
NEAP_PRINTF(3, 4) static void note(struct redis_link *link, int error, const char *format, ...)
{
	char why[REDIS_WHY_MAX];
	va_list list;
	va_start(list, format);
	(void)vsnprintf(why, sizeof why, format, list);
	va_end(list);
	bool news = link->error != error || strcmp(why, link->why) != 0;
	link->error = error;
	memcpy(link->why, why, sizeof why);
	if (news)
		neap_log(link->redis->reactor, link->tracks ? NEAP_LOG_INFO : NEAP_LOG_WARNING, "metadata", "%s%s: %s",
		         link->redis->base.where, link->tracks ? " (invalidations)" : "", why);
}

/* --- facts to events ------------------------------------------------------------------------------------------------- */

static void address_failed(struct redis_link *link, const char *why)
{
	char text[NEAP_ADDRESS_TEXT_MAX];
	if (neap_sockaddr_format(&link->addresses[link->address_next - 1], text, sizeof text) < 0)
		text[0] = '\0';
	note(link, NEAP_ESOCKET, "cannot connect to %s: %s", text, why);
	let_go(link);
	neap_step(&link->machine, link->address_next < link->address_count ? redis_link_on_NEXT : redis_link_on_BROKEN, 0);
}

static void connected(void *user)
{
	struct redis_link *link = user;
	const struct neap_redis *redis = link->redis;
	neap_step(&link->machine,
	          redis->password           ? redis_link_on_AUTH
	          : redis->options.database ? redis_link_on_SELECT
	                                    : redis_link_on_GREET,
	          0);
}

static void refused(struct redis_link *link, const struct neap_redis_reply *reply, const char *doing)
{
	char why[REDIS_WHY_MAX - 32];
	struct neap_redis_verdict verdict = neap_redis_classify(reply, why, sizeof why);
	bool definite = verdict.error == NEAP_EREJECTED || verdict.error == NEAP_ENOTSUP;
	note(link, verdict.error, "%s: %s", doing, why);
	neap_step(&link->machine, definite ? redis_link_on_REFUSED : redis_link_on_BROKEN, 0);
}

static bool is_status(const struct neap_redis_reply *reply, const char *text)
{
	return reply->kind == NEAP_REDIS_STATUS && reply->length == strlen(text) && memcmp(reply->text, text, reply->length) == 0;
}

static void greeted(struct redis_link *link, const struct neap_redis_reply *reply)
{
	if (link->tracks && reply->kind == NEAP_REDIS_INTEGER) {
		link->id = reply->integer;
		neap_step(&link->machine, redis_link_on_SUBSCRIBE, 0);
	} else if (!link->tracks && is_status(reply, "PONG")) {
		neap_step(&link->machine, redis_link_on_OPENED, 0);
	} else {
		refused(link, reply, link->tracks ? "CLIENT ID" : "PING");
	}
}

static void replied(void *user, const struct neap_redis_reply *reply)
{
	struct redis_link *link = user;
	struct neap_redis *redis = link->redis;
	switch (link->machine.state) {
	case redis_link_AUTHENTICATING:
		if (is_status(reply, "OK"))
			neap_step(&link->machine, redis->options.database ? redis_link_on_SELECT : redis_link_on_GREET, 0);
		else
			refused(link, reply, "AUTH");
		break;
	case redis_link_SELECTING:
		if (is_status(reply, "OK"))
			neap_step(&link->machine, redis_link_on_GREET, 0);
		else
			refused(link, reply, "SELECT");
		break;
	case redis_link_GREETING:
		greeted(link, reply);
		break;
	default:
		if (link->tracks)
			redis_link_broke(link, NEAP_EPROTO, "it answered what was not asked");
		else
			redis_calls_replied(redis, reply);
		break;
	}
}

static void subscribed(void *user)
{
	struct redis_link *link = user;
	neap_step(&link->machine, redis_link_on_OPENED, 0);
}

static void invalidated(void *user, const char *key, size_t length)
{
	struct redis_link *link = user;
	redis_invalidated(link->redis, key, length);
}

static void closed(void *user, const char *why)
{
	struct redis_link *link = user;
	link->wire = NULL;
	if (link->machine.state == redis_link_CONNECTING) {
		address_failed(link, why);
		return;
	}
	note(link, NEAP_EPEER, "the connection ended: %s", why);
	neap_step(&link->machine, redis_link_on_BROKEN, 0);
}

static const struct neap_redis_events events = {
	.connected = connected, .replied = replied, .subscribed = subscribed, .invalidated = invalidated, .closed = closed};

void redis_link_broke(struct redis_link *link, int error, const char *why)
{
	if (!link->wire)
		return;
	note(link, error, "%s", why);
	let_go(link);
	neap_step(&link->machine, redis_link_on_BROKEN, 0);
}

static void resolved(void *user, int error, const char *detail, const struct neap_sockaddr *addresses, uint32_t count)
{
	struct redis_link *link = user;
	link->resolution = NULL;
	if (error || count == 0) {
		note(link, error ? error : NEAP_EDNS, "'%s': %s", link->redis->options.server.host, detail ? detail : "has no address");
		neap_step(&link->machine, redis_link_on_BROKEN, 0);
		return;
	}
	link->address_count = count < REDIS_ADDRESSES_MAX ? count : REDIS_ADDRESSES_MAX;
	memcpy(link->addresses, addresses, link->address_count * sizeof *addresses);
	neap_step(&link->machine, redis_link_on_RESOLVED, count);
}

/* --- actions --------------------------------------------------------------------------------------------------------- */

static void do_resolve(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	const struct neap_host_port *server = &link->redis->options.server;
	int error = NEAP_EDNS;
	(void)argument;
	link->address_next = 0;
	if (neap_sockaddr_from_numeric(server->host, server->port, &link->addresses[0]) == NEAP_OK) {
		link->address_count = 1;
		(void)neap_post_first(machine, redis_link_on_RESOLVED, 1);
		return;
	}
	link->resolution = net_of(link)->resolve(net_of(link), link->redis->reactor, server->host, server->port, AF_UNSPEC, resolved,
	                                         link, &error);
	if (link->resolution)
		return;
	note(link, error, "'%s': %s", server->host, neap_error_text(error));
	(void)neap_post_first(machine, redis_link_on_BROKEN, 0);
}

static void do_attempt(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	struct neap_redis *redis = link->redis;
	char why[128] = "";
	(void)argument;
	const struct neap_sockaddr *address = &link->addresses[link->address_next++];
	char text[NEAP_ADDRESS_TEXT_MAX];
	struct neap_host_port parts = {.port = 0};
	if (neap_sockaddr_format(address, text, sizeof text) >= 0 && neap_host_port_parse(text, 0, &parts, why, sizeof why) == NEAP_OK)
		link->wire = redis->driver->connect(redis->driver, redis->reactor, parts.host, parts.port, &events, link, why, sizeof why);
	if (!link->wire)
		address_failed(link, why);
}

static void command(struct redis_link *link, int count, const char *const *words)
{
	struct neap_redis *redis = link->redis;
	size_t lengths[3];
	for (int i = 0; i < count; i++)
		lengths[i] = strlen(words[i]);
	int error = redis->driver->command(link->wire, count, words, lengths);
	if (error)
		redis_link_broke(link, error, neap_error_text(error));
}

static void do_auth(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	const struct neap_redis *redis = link->redis;
	(void)argument;
	const char *words[] = {"AUTH", redis->username ? redis->username : redis->password, redis->password};
	command(link, redis->username ? 3 : 2, words);
}

static void do_select(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	char number[16];
	(void)argument;
	(void)snprintf(number, sizeof number, "%" PRIu32, link->redis->options.database);
	const char *words[] = {"SELECT", number};
	command(link, 2, words);
}

static void do_greet(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	static const char *const ping[] = {"PING"}, *const identity[] = {"CLIENT", "ID"};
	(void)argument;
	command(link, link->tracks ? 2 : 1, link->tracks ? identity : ping);
}

static void do_subscribe(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	(void)argument;
	int error = link->redis->driver->subscribe(link->wire, INVALIDATIONS);
	if (error)
		redis_link_broke(link, error, neap_error_text(error));
}

static void do_open(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	(void)argument;
	if (link->why[0])
		neap_log(link->redis->reactor, NEAP_LOG_INFO, "metadata", "%s%s: connected again", link->redis->base.where,
		         link->tracks ? " (invalidations)" : "");
	link->why[0] = '\0';
	link->error = 0;
	link->opened_ns = neap_now(link->redis->reactor);
	redis_opened(link);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	(void)argument;
	let_go(link);
	link->failures++;
}

static void do_give_up_name(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	note(link, NEAP_EDNS, "'%s': no name server answered in time", link->redis->options.server.host);
	do_fail(machine, argument);
}

static void do_give_up_address(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	address_failed(link_of(machine), "no answer in time");
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	note(link, NEAP_ETIMEDOUT, "connected, but it did not answer within %" PRIu64 " ms", link->redis->options.reply_timeout_ns / 1000000);
	do_fail(machine, argument);
}

/* A connection that was of use for longer than any pause ends their row. The pause is reckoned before the action that follows the end. */
static uint32_t failures_in_a_row(const struct redis_link *link)
{
	bool was_well = link->opened_ns && neap_now(link->redis->reactor) - link->opened_ns > link->redis->options.pause_max_ns;
	return was_well ? 0 : link->failures;
}

/* Who waits for this connection is told; it is tried again all the same, for a password may be changed. */
static void do_refuse(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	do_fail(machine, argument);
	if (link->tracks)
		return;
	link->redis->refused = true;
	neap_ready_again(link->redis->reactor, &link->redis->work);
}

static void do_lose(struct neap_machine *machine, uint64_t argument)
{
	struct redis_link *link = link_of(machine);
	(void)argument;
	let_go(link);
	link->failures = failures_in_a_row(link) + 1;
	link->opened_ns = 0;
	redis_lost(link);
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	let_go(link_of(machine));
}

static neap_action_func *const actions[] = {
	[redis_link_do_resolve] = do_resolve,
	[redis_link_do_attempt] = do_attempt,
	[redis_link_do_give_up_name] = do_give_up_name,
	[redis_link_do_give_up_address] = do_give_up_address,
	[redis_link_do_auth] = do_auth,
	[redis_link_do_select] = do_select,
	[redis_link_do_greet] = do_greet,
	[redis_link_do_subscribe] = do_subscribe,
	[redis_link_do_open] = do_open,
	[redis_link_do_give_up] = do_give_up,
	[redis_link_do_refuse] = do_refuse,
	[redis_link_do_fail] = do_fail,
	[redis_link_do_lose] = do_lose,
	[redis_link_do_close] = do_close,
};

static uint64_t pause_ns(const struct redis_link *link)
{
	const struct neap_redis_options *options = &link->redis->options;
	return neap_backend_pause_ns(link->redis->reactor, failures_in_a_row(link), options->pause_min_ns, options->pause_max_ns);
}

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct redis_link *link = link_of(machine);
	const struct neap_redis_options *options = &link->redis->options;
	if (timeout_class == redis_link_timeout_PAUSE)
		return now_ns + pause_ns(link);
	return now_ns + (timeout_class == redis_link_timeout_CONNECT ? options->connect_timeout_ns : options->reply_timeout_ns);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)event;
	let_go(link_of(machine));
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct redis_link *link = link_of(machine);
	(void)from;
	if (link->wire && (machine->state == redis_link_PAUSING || machine->state == redis_link_CLOSED))
		return "a connection that nobody waits for";
	if (link->resolution && machine->state != redis_link_RESOLVING)
		return "a resolution that nobody waits for";
	return NULL;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_redis_link,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct redis_link),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ------------------------------------------------------------------------------------------------------------ */

int redis_link_init(struct redis_link *link, struct neap_redis *redis, bool tracks)
{
	struct neap_reactor_class *class_;
	int error = neap_reactor_class_of(redis->reactor, &kind, &class_);
	if (error)
		return error;
	link->redis = redis;
	link->tracks = tracks;
	neap_machine_begin(&link->machine, &class_->class_);
	return NEAP_OK;
}

void redis_link_need(struct redis_link *link)
{
	if (link->needed)
		return;
	link->needed = true;
	neap_step(&link->machine, redis_link_on_NEEDED, 0);
	neap_reactor_touch(link->redis->reactor);
}

void redis_link_end(struct redis_link *link)
{
	if (link->ended)
		return;
	link->ended = link->needed = true;
	neap_step(&link->machine, redis_link_on_CLOSE, 0);
}
