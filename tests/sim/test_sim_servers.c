/* The simulated servers themselves: what lies between, the Redis server as tests/integ/test_metadata.py asks a real one, the HTTP server. */
#include "tests/support/sim_http_server.h"
#include "tests/support/sim_redis_server.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

static struct sim *sim;
static struct sim_node *node;
static struct sim_redis_server redis;
static struct sim_http_server http;
static struct sim_redis_driver redis_driver;
static struct sim_http_driver http_driver;

/* A connection and what came over it, as one line. */
struct end {
	struct neap_redis_wire *wire; /* NULL: it has ended */
	char heard[300];
};

static void open_world(void)
{
	sim = sim_create(5);
	node = sim_node_create(sim, 0);
	sim_redis_server_init(&redis, sim);
	sim_http_server_init(&http, sim, sim_http_metadata);
	redis.server.lag_per_mille = http.server.lag_per_mille = 0;
	sim_redis_driver_init(&redis_driver, &redis, node);
	sim_http_driver_init(&http_driver, &http, node);
}

static void close_world(void)
{
	ck_assert_uint_eq(sim_node_finish(node, NULL, NULL), 0);
	ck_assert_uint_eq(redis.wires + http.exchanges, 0);
	sim_redis_server_release(&redis);
	sim_http_server_release(&http);
	sim_destroy(sim);
}

static void settle(void)
{
	sim_run_for(sim, 1000 * MS);
}

/* --- Redis ---------------------------------------------------------------------------------------------------------------------- */

static void hear(struct end *end, const char *text)
{
	size_t length = strlen(end->heard);
	(void)snprintf(end->heard + length, sizeof end->heard - length, "%s%s", length ? " " : "", text);
}

static void connected(void *user)
{
	hear(user, "connected");
}

static void replied(void *user, const struct neap_redis_reply *reply)
{
	char text[40];
	(void)snprintf(text, sizeof text, "%d:%lld", reply->kind, (long long)reply->integer);
	hear(user, reply->text ? reply->text : text);
}

static void subscribed(void *user)
{
	hear(user, "subscribed");
}

static void invalidated(void *user, const char *key, size_t length)
{
	(void)length;
	hear(user, key ? key : "(all)");
}

static void closed(void *user, const char *why)
{
	struct end *end = user;
	end->wire = NULL;
	hear(end, why);
}

static const struct neap_redis_events events = {
	.connected = connected, .replied = replied, .subscribed = subscribed, .invalidated = invalidated, .closed = closed};

static void open_end(struct end *end)
{
	char why[100];
	*end = (struct end){.wire = NULL};
	end->wire = redis_driver.driver.connect(&redis_driver.driver, node->reactor, "10.9.9.9", 6379, &events, end, why, sizeof why);
}

static void close_end(struct end *end)
{
	if (end->wire)
		redis_driver.driver.close(end->wire);
	end->wire = NULL;
}

/* Words with blanks in between. */
static void say(struct end *end, const char *line)
{
	char copy[200], *words[8], *rest = copy;
	size_t lengths[8];
	int count = 0;
	(void)snprintf(copy, sizeof copy, "%s", line);
	for (char *word; (word = strtok_r(rest, " ", &rest)) != NULL; count++) {
		words[count] = word;
		lengths[count] = strlen(word);
	}
	ck_assert_int_eq(redis_driver.driver.command(end->wire, count, (const char *const *)words, lengths), 0);
}

static void ask(struct end *end, const char *line, const char *reply)
{
	end->heard[0] = '\0';
	say(end, line);
	settle();
	ck_assert_msg(strcmp(end->heard, reply) == 0, "%s: '%s', not '%s'", line, end->heard, reply);
}

START_TEST(what_redis_tells)
{
	static const struct {
		const char *ours[3], *theirs, *told; /* what we say; what somebody else makes of k, NULL: removes it */
	} rows[] = {
		{{"GET k"}, "1", "k"},
		{{"GET k", "SET k 1"}, "2", ""},
		{{"SET k 1", "GET k", "PEXPIRE k 100000"}, "2", ""},
		{{"SET k 1", "GET k", "DEL k"}, "2", ""},
		{{"GET k", "DEL k"}, "2", "k"},
		{{"SET k 1", "GET k", "SET k 2 NX"}, NULL, "k"},
		{{"SET k 1", "PEXPIRE k 100000", "EXISTS k"}, NULL, "k"},
		{{"GET other"}, "1", ""},
	};
	struct end ours, tracker;
	open_world();
	open_end(&tracker);
	open_end(&ours);
	settle();
	ck_assert_str_eq(tracker.heard, "connected");
	char track[80];
	(void)snprintf(track, sizeof track, "CLIENT TRACKING ON REDIRECT %lld NOLOOP", 777LL);
	ask(&ours, track, "ERR The client ID you want redirect to does not exist");
	tracker.heard[0] = '\0';
	say(&tracker, "CLIENT ID");
	settle();
	(void)snprintf(track, sizeof track, "CLIENT TRACKING ON REDIRECT %lld NOLOOP", strtoll(strchr(tracker.heard, ':') + 1, NULL, 10));
	ck_assert_int_eq(redis_driver.driver.subscribe(tracker.wire, "__redis__:invalidate"), 0);
	settle();
	ask(&ours, track, "OK");
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		for (int word = 0; word < 3 && rows[i].ours[word]; word++)
			say(&ours, rows[i].ours[word]);
		settle();
		tracker.heard[0] = '\0';
		sim_redis_server_put(&redis, "k", rows[i].theirs);
		sim_redis_server_put(&redis, "k", rows[i].theirs); /* told once */
		settle();
		ck_assert_msg(strcmp(tracker.heard, rows[i].told) == 0, "%zu: '%s'", i, tracker.heard);
		sim_redis_server_put(&redis, "k", NULL);
	}
	ask(&ours, "SET k 1 PX 5000", "OK");
	say(&ours, "GET k");
	settle();
	tracker.heard[0] = '\0';
	sim_run_for(sim, 5000 * MS);
	ck_assert_str_eq(tracker.heard, "k"); /* it has ended */
	sim_redis_server_flush(&redis);
	settle();
	ck_assert_str_eq(tracker.heard, "k (all)");
	close_end(&ours);
	close_end(&tracker);
	close_world();
}
END_TEST

/* --- what lies between ------------------------------------------------------------------------------------------------------------ */

START_TEST(order_is_kept)
{
	struct end end;
	open_world();
	open_end(&end);
	for (int i = 0; i < 8; i++)
		say(&end, i % 2 ? "GET k" : "PING");
	settle();
	ck_assert_str_eq(end.heard, "connected PONG 4:0 PONG 4:0 PONG 4:0 PONG 4:0");
	close_end(&end);
	close_world();
}
END_TEST

/* What was said is done, even when nobody hears the answer. */
START_TEST(what_was_said_is_under_way)
{
	struct end end;
	open_world();
	open_end(&end);
	settle();
	say(&end, "SET k v");
	close_end(&end);
	ck_assert_ptr_null(sim_keys_find(&redis.keys, "k"));
	settle();
	ck_assert_ptr_nonnull(sim_keys_find(&redis.keys, "k"));
	close_world();
}
END_TEST

START_TEST(a_server_that_stands_still)
{
	struct end end;
	open_world();
	sim_server_stand_still(&redis.server, 5000 * MS);
	open_end(&end);
	say(&end, "SET k v");
	say(&end, "GET k");
	sim_run_for(sim, 4900 * MS);
	ck_assert_str_eq(end.heard, "connected"); /* by its kernel */
	settle();
	ck_assert_str_eq(end.heard, "connected OK v");
	close_end(&end);
	close_world();
}
END_TEST

START_TEST(connections_that_end)
{
	struct end end;
	open_world();
	open_end(&end);
	settle();
	ck_assert(sim_server_cut_one(&redis.server));
	settle();
	ck_assert_str_eq(end.heard, "connected Connection reset by peer");
	open_end(&end);
	settle();
	ck_assert(sim_server_silence_one(&redis.server));
	say(&end, "PING");
	sim_run_for(sim, SIM_KEEPALIVE_NS - 1000 * MS);
	ck_assert_str_eq(end.heard, "connected");
	settle();
	settle();
	ck_assert_str_eq(end.heard, "connected Connection timed out");
	open_end(&end);
	settle();
	sim_server_stop(&redis.server);
	settle();
	ck_assert_str_eq(end.heard, "connected Connection reset by peer");
	open_end(&end);
	settle();
	ck_assert_str_eq(end.heard, "Connection refused");
	redis.server.dark = true;
	open_end(&end);
	settle();
	ck_assert_str_eq(end.heard, "");
	close_end(&end);
	close_world();
}
END_TEST

/* --- HTTP ------------------------------------------------------------------------------------------------------------------------- */

static void http_answered(void *user, long status, const char *body, size_t length)
{
	char *heard = user;
	(void)snprintf(heard, 100, "%ld %.*s", status, (int)length, body);
}

static void http_failed(void *user, int error, const char *why)
{
	char *heard = user;
	(void)error;
	(void)snprintf(heard, 100, "%s", why);
}

static const struct neap_http_events http_events = {.answered = http_answered, .failed = http_failed};

START_TEST(requests_over_http)
{
	static const struct {
		const char *method, *key, *body, *answer;
	} rows[] = {
		{"GET", "mooncake%2Fram%2Fa", NULL, "404 metadata not found"},  {"PUT", "mooncake%2Fram%2Fa", "1", "200 metadata updated"},
		{"PUT", "mooncake%2Fram%2Fa", "2", "200 metadata updated"},     {"GET", "mooncake%2Fram%2Fa", NULL, "200 2"},
		{"DELETE", "mooncake%2Fram%2Fa", NULL, "200 metadata deleted"}, {"DELETE", "mooncake%2Fram%2Fa", NULL, "404 metadata not found"},
		{"PUT", "rpc_meta%2Fa", "1", "200 metadata updated"},           {"PUT", "rpc_meta%2Fa", "2", "400 Duplicate rpc_meta key not allowed"},
		{"PUT", "rpc_meta%2Fa", "1", "200 metadata updated"},           {"GET", "rpc_meta%2Fa", NULL, "200 1"},
	};
	struct neap_http_session *session;
	open_world();
	http.same_is_fine = true;
	ck_assert_int_eq(http_driver.driver.open(&http_driver.driver, node->reactor, NULL, &session), 0);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char url[100], heard[100] = "";
		(void)snprintf(url, sizeof url, "http://10.9.9.9/metadata?key=%s", rows[i].key);
		struct neap_http_request request = {
			.method = rows[i].method, .url = url, .body = rows[i].body, .length = rows[i].body ? strlen(rows[i].body) : 0};
		ck_assert_ptr_nonnull(http_driver.driver.begin(session, &request, &http_events, heard));
		settle();
		ck_assert_msg(strcmp(heard, rows[i].answer) == 0, "%zu: '%s'", i, heard);
	}
	http_driver.driver.close(session);
	close_world();
}
END_TEST

/* A kept connection that is gone: the request is sent once more, and may have been done twice. */
START_TEST(sent_once_more)
{
	struct neap_http_request request = {.method = "PUT", .url = "http://10.9.9.9/metadata?key=k", .body = "v", .length = 1};
	struct neap_http_session *session;
	char heard[100] = "";
	open_world();
	http.kept_per_mille = _i ? 1000 : 0;
	ck_assert_int_eq(http_driver.driver.open(&http_driver.driver, node->reactor, NULL, &session), 0);
	ck_assert_ptr_nonnull(http_driver.driver.begin(session, &request, &http_events, heard));
	ck_assert(sim_server_cut_one(&http.server));
	settle();
	ck_assert_str_eq(heard, _i ? "200 metadata updated" : "Connection reset by peer");
	http_driver.driver.close(session);
	close_world();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated servers");
	TCase *cases = tcase_create("servers");
	tcase_add_test(cases, what_redis_tells);
	tcase_add_test(cases, order_is_kept);
	tcase_add_test(cases, what_was_said_is_under_way);
	tcase_add_test(cases, a_server_that_stands_still);
	tcase_add_test(cases, connections_that_end);
	tcase_add_test(cases, requests_over_http);
	tcase_add_loop_test(cases, sent_once_more, 0, 2);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
