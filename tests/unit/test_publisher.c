/* The publisher against a back-end that answers as it is told, on virtual time; and against real processes of the same name. */
#include "metadata/directory.h"
#include "metadata/publisher.h"
#include "metadata/publisher_fsm.h"
#include "tests/support/coverage.h"
#include "tests/support/drive.h"
#include "tests/support/memory_stream.h"
#include "tests/support/raw_peer.h"
#include "tests/support/script_backend.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MS UINT64_C(1000000)
#define RPC "mooncake/rpc_meta/me"
#define RAM "mooncake/ram/me"
#define OURS "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1000}\n"
#define OTHER "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":1001}\n"

static struct {
	struct neap_reactor *reactor;
	struct neap_handshake_caller *caller;
	struct script_backend backend;
	struct neap_publisher *publisher;
	uint64_t now_ns;
	uint8_t instance[16];
	uint32_t version; /* of the descriptor */
	bool undescribed, is_old;
	int told, tells;
	char why[700];
	bool gone;
} rig;

static char *describe(void *user, size_t *length_p)
{
	char *text = NULL;
	(void)user;
	if (rig.undescribed || asprintf(&text, "{\"version\":%u}\n", rig.version) < 0)
		return NULL;
	*length_p = strlen(text);
	rig.is_old = false;
	return text;
}

static bool is_old(void *user)
{
	(void)user;
	return rig.is_old;
}

static void told(void *user, int error, const char *why)
{
	(void)user;
	rig.told = error;
	rig.tells++;
	(void)snprintf(rig.why, sizeof rig.why, "%s", why);
}

static void gone(void *user)
{
	(void)user;
	ck_assert(!rig.gone);
	rig.gone = true;
}

static void turn(void)
{
	for (int i = 0; i < 4; i++)
		ck_assert_int_gt(neap_reactor_run_at(rig.reactor, rig.now_ns, NULL), 0);
}

static void pass(uint64_t ns)
{
	rig.now_ns += ns;
	turn();
}

static void open_rig(uint64_t lease_ns)
{
	struct neap_reactor_options options = {.net = memory_net()};
	memset(&rig, 0, sizeof rig);
	rig.now_ns = 1000 * MS;
	rig.told = 1;
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &options), 0);
	turn();
	ck_assert_int_eq(neap_handshake_caller_create(&rig.caller, rig.reactor, 1, 0, NULL), 0);
	script_backend_open(&rig.backend, NEAP_BACKEND_STORES | NEAP_BACKEND_WATCHES | NEAP_BACKEND_LEASES);
	struct neap_publisher_options publisher = {.backend = &rig.backend.base,
	                                           .caller = rig.caller,
	                                           .name = "me",
	                                           .address = {.host = "127.0.0.1", .port = 1000, .has_port = true},
	                                           .timeout_ns = 100 * MS,
	                                           .refresh_ns = 10000 * MS,
	                                           .lease_ns = lease_ns,
	                                           .describe = describe,
	                                           .is_old = is_old,
	                                           .instance = rig.instance,
	                                           .told = told};
	ck_assert_int_eq(neap_publisher_create(&rig.publisher, rig.reactor, &publisher), 0);
	turn();
}

static void close_rig(void)
{
	neap_publisher_destroy(rig.publisher);
	neap_publisher_destroy(NULL);
	neap_handshake_caller_destroy(rig.caller);
	neap_reactor_stop(rig.reactor);
	for (int i = 0; i < 100 && neap_reactor_run_at(rig.reactor, rig.now_ns += MS, NULL) != NEAP_RUN_STOPPED; i++)
		;
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), 0);
}

static void reply(const char *verb, const char *key, int error, const char *value)
{
	script_backend_answer(script_backend_expect(&rig.backend, verb, key), error, value);
	turn();
}

/* What the store has of our descriptor: the last that was written. */
static void confirm(void)
{
	char text[40];
	(void)snprintf(text, sizeof text, "{\"version\":%u}\n", rig.version);
	reply("get", RAM, 0, text);
}

static void publish(void)
{
	reply("get", RPC, NEAP_EMETADATA, NULL);
	reply("create", RPC, 0, NULL);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.told, 0);
	ck_assert(neap_publisher_is_published(rig.publisher));
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
}

static void withdraw(void)
{
	neap_publisher_withdraw(rig.publisher, gone, NULL);
	neap_publisher_withdraw(rig.publisher, gone, NULL); /* once */
	turn();
}

static void leave(void)
{
	withdraw();
	reply("get", RPC, 0, OURS);
	reply("remove", RPC, 0, NULL);
	ck_assert(!rig.gone);
	reply("remove", RAM, 0, NULL);
	ck_assert(rig.gone);
}

/* --- when all is well --------------------------------------------------------------------------------------------------- */

START_TEST(published_and_taken_back)
{
	open_rig(0);
	struct script_backend_call *call = script_backend_expect(&rig.backend, "get", RPC);
	ck_assert_uint_eq(call->timeout_ns, 100 * MS);
	reply("get", RPC, NEAP_EMETADATA, NULL);
	call = script_backend_expect(&rig.backend, "create", RPC);
	ck_assert_str_eq(call->value, OURS);
	ck_assert_uint_eq(call->lease_ns, 0);
	reply("create", RPC, 0, NULL);
	ck_assert_str_eq(script_backend_expect(&rig.backend, "set", RAM)->value, "{\"version\":0}\n");
	ck_assert_int_eq(rig.tells, 0);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.told, 0);
	leave();
	ck_assert_int_eq(rig.tells, 1);
	close_rig();
}
END_TEST

/* Changes while one is written are written together, and nothing is written that has not changed. */
START_TEST(changes_are_written_together)
{
	open_rig(0);
	reply("get", RPC, NEAP_EMETADATA, NULL);
	neap_publisher_changed(rig.publisher);
	reply("create", RPC, 0, NULL);
	for (rig.version = 1; rig.version < 100; rig.version++)
		neap_publisher_changed(rig.publisher);
	reply("set", RAM, 0, NULL);
	reply("get", RPC, 0, OURS);
	ck_assert_str_eq(script_backend_expect(&rig.backend, "set", RAM)->value, "{\"version\":100}\n");
	reply("set", RAM, 0, NULL);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	/* two at once, and one that is seen only when it is looked for */
	neap_publisher_changed(rig.publisher);
	neap_publisher_changed(rig.publisher);
	turn();
	reply("get", RPC, 0, OURS);
	reply("set", RAM, 0, NULL);
	rig.is_old = true;
	pass(10000 * MS);
	reply("get", RPC, 0, OURS);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.tells, 1);
	close_rig();
}
END_TEST

START_TEST(it_is_looked_at_again)
{
	open_rig(0);
	publish();
	pass(9999 * MS);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	pass(1 * MS);
	reply("get", RPC, 0, OURS);
	confirm();
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	/* a notice that comes while it looks is not forgotten */
	neap_watches_tell_all(&rig.backend.watches);
	turn();
	reply("get", RPC, 0, OURS);
	neap_watches_tell_all(&rig.backend.watches);
	confirm();
	reply("get", RPC, 0, OURS);
	confirm();
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	close_rig();
}
END_TEST

/* Until the back-end can watch, it is looked again soon, and then less and less often. */
START_TEST(looked_at_blindly)
{
	static const unsigned looks_ms[] = {1000, 2000, 4000, 8000, 10000, 10000};
	open_rig(0);
	publish();
	rig.backend.no_watch = NEAP_EAGAIN;
	neap_watches_tell_all(&rig.backend.watches);
	turn();
	reply("get", RPC, 0, OURS);
	confirm();
	for (size_t i = 0; i < sizeof looks_ms / sizeof *looks_ms; i++) {
		pass((looks_ms[i] - 1) * MS);
		ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
		rig.backend.no_watch = i == 4 ? 0 : NEAP_EAGAIN;
		pass(MS);
		reply("get", RPC, 0, OURS);
		confirm();
	}
	close_rig();
}
END_TEST

START_TEST(leases_are_renewed)
{
	open_rig(3000 * MS);
	reply("get", RPC, NEAP_EMETADATA, NULL);
	ck_assert_uint_eq(script_backend_expect(&rig.backend, "create", RPC)->lease_ns, 3000 * MS);
	reply("create", RPC, 0, NULL);
	ck_assert_uint_eq(script_backend_expect(&rig.backend, "set", RAM)->lease_ns, 3000 * MS);
	reply("set", RAM, 0, NULL);
	pass(1000 * MS);
	reply("get", RPC, 0, OURS);
	ck_assert_uint_eq(script_backend_expect(&rig.backend, "touch", RPC)->lease_ns, 3000 * MS);
	reply("touch", RPC, 0, NULL);
	ck_assert_uint_eq(script_backend_expect(&rig.backend, "touch", RAM)->lease_ns, 3000 * MS);
	reply("touch", RAM, NEAP_EMETADATA, NULL); /* it ran out: written anew */
	reply("get", RAM, NEAP_EMETADATA, NULL);
	reply("get", RPC, 0, OURS);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.tells, 1);
	close_rig();
}
END_TEST

/* A lease or not: what is looked at, and what the store has of our descriptor. */
static void look_again(bool leased, const char *stored)
{
	pass(10000 * MS);
	reply("get", RPC, 0, OURS);
	if (leased) {
		reply("touch", RPC, 0, NULL);
		reply("touch", RAM, 0, NULL);
	}
	reply("get", RAM, 0, stored);
}

/* A write that was given up is done all the same, after the one that followed it. */
START_TEST(a_write_that_came_late)
{
	open_rig(_i ? 30000 * MS : 0);
	publish();
	rig.version = 1;
	neap_publisher_changed(rig.publisher);
	turn();
	reply("get", RPC, 0, OURS);
	reply("set", RAM, 0, NULL);
	look_again(_i, "{\"version\":0}\n");
	reply("get", RPC, 0, OURS);
	ck_assert_mem_eq(script_backend_expect(&rig.backend, "set", RAM)->value, "{\"version\":1}", 13);
	reply("set", RAM, 0, NULL);
	look_again(_i, "{\"version\":1}"); /* some stores keep it without its newline */
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	ck_assert_int_eq(rig.tells, 1);
	close_rig();
}
END_TEST

/* --- a store that lost its data, or is not there ------------------------------------------------------------------------- */

START_TEST(a_store_that_came_back_empty)
{
	open_rig(0);
	publish();
	neap_watches_tell_all(&rig.backend.watches);
	turn();
	publish();
	ck_assert_int_eq(rig.tells, 1);
	close_rig();
}
END_TEST

START_TEST(a_store_that_cannot_be_reached)
{
	open_rig(0);
	for (int i = 0; i < 8; i++) {
		reply("get", RPC, NEAP_ESOCKET, NULL);
		ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
		ck_assert_int_eq(rig.told, NEAP_ESOCKET);
		ck_assert_str_eq(rig.why, "segment 'me' is not published: script://test: as the test says");
		pass(i < 1 ? 74 * MS : 0); /* at least three quarters of 100 ms, doubled each time up to 5 s */
		ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
		pass((125 * MS << i) > 6250 * MS ? 6250 * MS : 125 * MS << i);
	}
	ck_assert_int_eq(rig.tells, 1);
	publish();
	ck_assert_int_eq(rig.tells, 2);
	close_rig();
}
END_TEST

/* Each answer does not come, or is an error. */
static void fails_and_begins_again(bool silent, const char *verb, const char *key)
{
	if (silent) {
		ck_assert_ptr_nonnull(script_backend_expect(&rig.backend, verb, key));
		pass(350 * MS);
	} else {
		reply(verb, key, NEAP_EPEER, NULL);
	}
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	ck_assert_int_eq(rig.told, silent ? NEAP_ETIMEDOUT : NEAP_EPEER);
	pass(6250 * MS);
}

START_TEST(every_wait_ends)
{
	bool silent = _i;
	open_rig(0);
	fails_and_begins_again(silent, "get", RPC);
	reply("get", RPC, NEAP_EMETADATA, NULL);
	fails_and_begins_again(silent, "create", RPC);
	reply("get", RPC, 0, OURS); /* the reply was lost, not the request */
	fails_and_begins_again(silent, "set", RAM);
	reply("get", RPC, 0, OURS);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.told, 0);
	neap_watches_tell_all(&rig.backend.watches);
	turn();
	reply("get", RPC, 0, OURS);
	fails_and_begins_again(silent, "get", RAM);
	reply("get", RPC, 0, OTHER);
	fails_and_begins_again(silent, "remove", RPC);
	publish();
	/* nor does anything hold up the end */
	withdraw();
	if (silent) {
		pass(350 * MS);
	} else {
		reply("get", RPC, NEAP_EPEER, NULL);
	}
	ck_assert(rig.gone);
	close_rig();
	open_rig(0);
	publish();
	withdraw();
	reply("get", RPC, 0, OURS);
	if (silent) {
		pass(350 * MS);
	} else {
		reply("remove", RPC, NEAP_EPEER, NULL);
	}
	ck_assert(rig.gone);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	close_rig();
}
END_TEST

/* What cannot even be asked. */
START_TEST(a_back_end_at_its_bound)
{
	open_rig(0);
	rig.backend.refuse = NEAP_EAGAIN;
	reply("get", RPC, NEAP_EMETADATA, NULL);
	ck_assert_int_eq(rig.told, NEAP_EAGAIN);
	pass(6250 * MS);
	rig.backend.refuse = 0;
	pass(6250 * MS);
	reply("get", RPC, 0, OTHER);
	turn();
	rig.backend.refuse = NEAP_EAGAIN;
	reply("remove", RPC, 0, NULL);
	rig.backend.refuse = 0;
	pass(6250 * MS);
	rig.undescribed = true;
	reply("get", RPC, 0, OURS);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	rig.undescribed = false;
	pass(6250 * MS);
	reply("get", RPC, 0, OURS);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.told, 0);
	withdraw();
	rig.backend.refuse = NEAP_EAGAIN;
	rig.backend.refuse_after = 2;
	reply("get", RPC, 0, OURS);
	ck_assert(rig.gone);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	close_rig();
}
END_TEST

/* --- leaving at any time -------------------------------------------------------------------------------------------------- */

static void to_checking(void) {}
static void to_announcing(void) { reply("get", RPC, NEAP_EMETADATA, NULL); }
static void to_writing(void) { to_announcing(), reply("create", RPC, 0, NULL); }
static void to_published(void) { publish(); }
static void to_confirming(void) { publish(), pass(10000 * MS), reply("get", RPC, 0, OURS); }
static void to_pausing(void) { reply("get", RPC, NEAP_EPEER, NULL); }

START_TEST(leaving_at_any_time)
{
	static void (*const ways[])(void) = {to_checking, to_announcing, to_writing, to_published, to_confirming, to_pausing};
	open_rig(0);
	ways[_i]();
	withdraw();
	neap_publisher_changed(rig.publisher); /* too late to matter */
	turn();
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 1);
	reply("get", RPC, _i % 2 ? NEAP_EMETADATA : 0, _i % 2 ? NULL : OURS);
	reply("remove", RPC, 0, NULL);
	reply("remove", RAM, 0, NULL);
	ck_assert(rig.gone);
	close_rig();
}
END_TEST

/* What is somebody else's by then is left alone. */
START_TEST(leaving_what_is_not_ours)
{
	open_rig(0);
	publish();
	withdraw();
	reply("get", RPC, 0, OTHER);
	ck_assert(rig.gone);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	close_rig();
	/* while it is being replaced */
	open_rig(0);
	reply("get", RPC, 0, OTHER);
	ck_assert_ptr_nonnull(script_backend_expect(&rig.backend, "remove", RPC));
	withdraw();
	ck_assert(rig.gone);
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	close_rig();
}
END_TEST

/* --- somebody else's value ------------------------------------------------------------------------------------------------- */

START_TEST(what_a_crash_left_is_replaced)
{
	static const char *const left[] = {OTHER, "nonsense", "{}", "{\"ip_or_host_name\":\"a b\",\"rpc_port\":7}", "{\"rpc_port\":70000}"};
	open_rig(0);
	reply("get", RPC, 0, left[_i]);
	reply("remove", RPC, 0, NULL);
	reply("create", RPC, NEAP_ETAKEN, NULL); /* another newcomer was first */
	ck_assert_int_eq(rig.told, NEAP_EAGAIN);
	pass(6250 * MS);
	reply("get", RPC, 0, left[_i]);
	reply("remove", RPC, 0, NULL);
	reply("create", RPC, 0, NULL);
	reply("set", RAM, 0, NULL);
	ck_assert_int_eq(rig.told, 0);
	close_rig();
}
END_TEST

/* A real process behind the address that is there already. */
static char *document;

static char *their_document(void *user, size_t *length_p)
{
	(void)user;
	*length_p = strlen(document);
	return strdup(document);
}

static bool backend_asked(void *user)
{
	(void)user;
	return script_backend_pending(&rig.backend) > 0 || rig.told != 1;
}

/* A publisher that finds the address of a process that says `text`. */
static struct neap_handshake_service *meet(const char *text, char *there, size_t there_size)
{
	struct neap_handshake_service *service;
	struct neap_sockaddr loopback;
	const struct neap_handshake_handlers handlers = {.describe = their_document};
	char why[200];
	int system_errno;
	memset(&rig, 0, sizeof rig);
	rig.told = 1;
	document = (char *)(uintptr_t)text;
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", 0, &loopback), 0);
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	ck_assert_int_eq(neap_handshake_caller_create(&rig.caller, rig.reactor, 4, 0, NULL), 0);
	ck_assert_int_eq(neap_handshake_service_create(&service, rig.reactor, &loopback, 20000, 30000, NULL, &handlers, &system_errno, why, sizeof why), 0);
	(void)snprintf(there, there_size, "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":%u}", neap_handshake_service_port(service));
	script_backend_open(&rig.backend, NEAP_BACKEND_STORES);
	struct neap_publisher_options options = {.backend = &rig.backend.base,
	                                         .caller = rig.caller,
	                                         .name = "me",
	                                         .address = {.host = "127.0.0.1", .port = 1000, .has_port = true},
	                                         .timeout_ns = 5000 * MS,
	                                         .refresh_ns = 10 * MS,
	                                         .pause_min_ns = 4 * MS,
	                                         .describe = describe,
	                                         .instance = rig.instance,
	                                         .told = told};
	ck_assert_int_eq(neap_publisher_create(&rig.publisher, rig.reactor, &options), 0);
	return service;
}

static void part_from(struct neap_handshake_service *service)
{
	neap_handshake_service_destroy(service);
	neap_publisher_destroy(rig.publisher);
	neap_handshake_caller_destroy(rig.caller);
	drive_to_end(rig.reactor);
}

/* The next question, when it comes. */
static void answer_address(int error, const char *there)
{
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	script_backend_answer(script_backend_expect(&rig.backend, "get", RPC), error, there);
	rig.told = 1;
}

START_TEST(who_lives_under_our_name)
{
	static const struct {
		const char *document;
		bool lives;
	} rows[] = {
		{"{\"name\":\"me\",\"protocol\":\"tcp\",\"buffers\":[]}", true},
		{"null", true}, /* answers as an engine does, and does not say that it is another one */
		{"{\"name\":\"another\",\"protocol\":\"tcp\",\"buffers\":[]}", false},
		{"{\"name\":\"me\",\"protocol\":\"tcp\",\"buffers\":[],\"neap\":{\"instance\":\"00000000000000000000000000000000\",\"level\":1}}", false},
	};
	char there[100];
	struct neap_handshake_service *service = meet(rows[_i].document, there, sizeof there);
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	script_backend_answer(script_backend_expect(&rig.backend, "get", RPC), 0, there);
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	if (rows[_i].lives) {
		ck_assert_int_eq(rig.told, NEAP_ETAKEN);
		ck_assert_msg(strstr(rig.why, "has this name, and lives") != NULL, "%s", rig.why);
		rig.told = 1;
		ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000)); /* looks again */
		script_backend_answer(script_backend_expect(&rig.backend, "get", RPC), 0, there);
		drive_for(rig.reactor, 2);
		neap_publisher_withdraw(rig.publisher, gone, NULL);
		ck_assert(drive_until(rig.reactor, &rig.gone, 5000));
	} else {
		ck_assert_ptr_nonnull(script_backend_expect(&rig.backend, "remove", RPC));
	}
	part_from(service);
}
END_TEST

/* A store that answers is well: what failed before makes no pause longer. */
START_TEST(failures_before_a_name_was_taken)
{
	char there[100];
	struct neap_handshake_service *service = meet("{\"name\":\"me\",\"protocol\":\"tcp\",\"buffers\":[]}", there, sizeof there);
	for (int i = 0; i < 8; i++)
		answer_address(NEAP_EPEER, NULL);
	answer_address(0, there);
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	ck_assert_int_eq(rig.told, NEAP_ETAKEN);
	rig.told = 1;
	answer_address(NEAP_EPEER, NULL);
	uint64_t failed_ns = neap_reactor_now_ns(rig.reactor);
	answer_address(0, there);
	ck_assert_uint_lt(neap_reactor_now_ns(rig.reactor) - failed_ns, 300 * MS); /* 4 ms, not what they were doubled to */
	part_from(service);
}
END_TEST

static void not_called(void *user, int error, const char *json, size_t length, const char *why)
{
	(void)user, (void)error, (void)json, (void)length, (void)why;
}

/* The only call there may be is taken, by one to a process that never answers; later the publisher's own waits for the same. */
START_TEST(nobody_says_who_lives_there)
{
	uint16_t port;
	uint64_t call;
	char there[100];
	int listener = raw_listen(&port, 4, 0);
	struct neap_host_port silent = {.host = "127.0.0.1", .port = port, .has_port = true};
	memset(&rig, 0, sizeof rig);
	rig.told = 1;
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	ck_assert_int_eq(neap_handshake_caller_create(&rig.caller, rig.reactor, 1, 0, NULL), 0);
	ck_assert_int_eq(neap_handshake_call(rig.caller, &silent, NEAP_HANDSHAKE_PROBE, "{}", 2, 60000 * MS, not_called, NULL, &call), 0);
	script_backend_open(&rig.backend, NEAP_BACKEND_STORES);
	(void)snprintf(there, sizeof there, "{\"ip_or_host_name\":\"127.0.0.1\",\"rpc_port\":%u}", port);
	struct neap_publisher_options options = {.backend = &rig.backend.base,
	                                         .caller = rig.caller,
	                                         .name = "me",
	                                         .address = {.host = "127.0.0.1", .port = 1000, .has_port = true},
	                                         .timeout_ns = 60000 * MS,
	                                         .refresh_ns = 10 * MS,
	                                         .pause_min_ns = MS,
	                                         .pause_max_ns = MS,
	                                         .describe = describe,
	                                         .instance = rig.instance,
	                                         .told = told};
	ck_assert_int_eq(neap_publisher_create(&rig.publisher, rig.reactor, &options), 0);
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	script_backend_answer(script_backend_expect(&rig.backend, "get", RPC), 0, there);
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	ck_assert_int_eq(rig.told, NEAP_EAGAIN);
	neap_handshake_cancel(rig.caller, call);
	rig.told = 1;
	ck_assert(drive_all_until(&rig.reactor, 1, backend_asked, NULL, 5000));
	script_backend_answer(script_backend_expect(&rig.backend, "get", RPC), 0, there);
	drive_for(rig.reactor, 5);
	ck_assert_int_eq(rig.told, 1);
	neap_publisher_withdraw(rig.publisher, gone, NULL);
	ck_assert(drive_until(rig.reactor, &rig.gone, 5000));
	ck_assert_uint_eq(script_backend_pending(&rig.backend), 0);
	neap_publisher_destroy(rig.publisher);
	neap_handshake_caller_destroy(rig.caller);
	drive_to_end(rig.reactor);
	close(listener);
}
END_TEST

START_TEST(what_is_refused_at_the_door)
{
	char name[NEAP_NAME_MAX + 2];
	struct neap_publisher *publisher;
	open_rig(0);
	struct neap_publisher_options options = {.backend = &rig.backend.base, .caller = rig.caller, .name = "", .address = {.host = "h", .port = 1}};
	ck_assert_int_eq(neap_publisher_create(&publisher, rig.reactor, &options), NEAP_EINVAL);
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	options.name = name;
	ck_assert_int_eq(neap_publisher_create(&publisher, rig.reactor, &options), NEAP_ELIMIT);
	options.name = "me";
	options.lease_ns = MS;
	rig.backend.ops.capabilities = NEAP_BACKEND_STORES;
	ck_assert_int_eq(neap_publisher_create(&publisher, rig.reactor, &options), NEAP_ENOTSUP);
	ck_assert_ptr_null(publisher);
	close_rig();
}
END_TEST

START_TEST(rpc_documents)
{
	static const struct {
		const char *text;
		int error;
		const char *host;
		uint16_t port;
	} rows[] = {
		{"{\"ip_or_host_name\":\"10.1.2.3\",\"rpc_port\":15733}", 0, "10.1.2.3", 15733},
		{" {\"rpc_port\":1,\"new\":{\"x\":[1]},\"ip_or_host_name\":\"::1\"}\n", 0, "::1", 1},
		{"{\"rpc_port\":1,\"ip_or_host_name\":\"[::1]:77\"}", 0, "::1", 1},
		{"{\"ip_or_host_name\":\"h\",\"rpc_port\":0}", NEAP_EJSON, "", 0},
		{"{\"ip_or_host_name\":\"h\",\"rpc_port\":65536}", NEAP_EJSON, "", 0},
		{"{\"ip_or_host_name\":7,\"rpc_port\":1}", NEAP_EJSON, "", 0},
		{"{\"ip_or_host_name\":\"h\"}", NEAP_EADDRESS, "", 0},
		{"{\"rpc_port\":1}", NEAP_EADDRESS, "", 0},
		{"[]", NEAP_EJSON, "", 0},
		{"", NEAP_EJSON, "", 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_host_port address;
		char why[200];
		int error = neap_rpc_document_decode(rows[i].text, strlen(rows[i].text), &address, why, sizeof why);
		ck_assert_msg(error == rows[i].error, "%s: %d %s", rows[i].text, error, why);
		ck_assert((error == 0) == (why[0] == '\0'));
		if (error)
			continue;
		ck_assert_str_eq(address.host, rows[i].host);
		ck_assert_uint_eq(address.port, rows[i].port);
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("publisher");
	TCase *cases[] = {tcase_create("all is well"), tcase_create("faults"), tcase_create("leaving"), tcase_create("somebody else")};
	tcase_add_test(cases[0], published_and_taken_back);
	tcase_add_test(cases[0], changes_are_written_together);
	tcase_add_test(cases[0], it_is_looked_at_again);
	tcase_add_test(cases[0], looked_at_blindly);
	tcase_add_test(cases[0], leases_are_renewed);
	tcase_add_loop_test(cases[1], a_write_that_came_late, 0, 2);
	tcase_add_test(cases[1], a_store_that_came_back_empty);
	tcase_add_test(cases[1], a_store_that_cannot_be_reached);
	tcase_add_loop_test(cases[1], every_wait_ends, 0, 2);
	tcase_add_test(cases[1], a_back_end_at_its_bound);
	tcase_add_test(cases[1], what_is_refused_at_the_door);
	tcase_add_test(cases[1], rpc_documents);
	tcase_add_loop_test(cases[2], leaving_at_any_time, 0, 6);
	tcase_add_test(cases[2], leaving_what_is_not_ours);
	tcase_add_loop_test(cases[3], what_a_crash_left_is_replaced, 0, 5);
	tcase_add_test(cases[3], nobody_says_who_lives_there);
	tcase_add_loop_test(cases[3], who_lives_under_our_name, 0, 4);
	tcase_add_test(cases[3], failures_before_a_name_was_taken);
	for (int i = 0; i < 4; i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
