/* The simulated etcd cluster, as a real one of version 3.4 was seen to answer. */
#include "tests/support/sim_etcd_server.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

static struct sim *sim;
static struct sim_node *node;
static struct sim_etcd_server etcd;
static struct sim_http_driver driver;
static struct neap_http_session *session;
static char heard[2000];

static void settle(void)
{
	sim_run_for(sim, 1000 * MS);
}

static void answered(void *user, long status, const char *body, size_t length)
{
	size_t at = strlen(heard);
	(void)user;
	(void)snprintf(heard + at, sizeof heard - at, "%ld %.*s", status, (int)length, body);
}

static void failed(void *user, int error, const char *why)
{
	(void)error;
	answered(user, 0, why, strlen(why));
}

static void received(void *user, long status, const char *bytes, size_t length)
{
	size_t at = strlen(heard);
	(void)user, (void)status;
	(void)snprintf(heard + at, sizeof heard - at, "%.*s", (int)length, bytes);
}

static const struct neap_http_events events = {.answered = answered, .failed = failed, .received = received};

static struct neap_http_exchange *ask_etcd(uint32_t member, const char *path, const char *body, const char *token)
{
	char url[100];
	(void)snprintf(url, sizeof url, "http://10.9.9.%u:2379/v3/%s", member + 1, path);
	struct neap_http_request request = {
		.method = "POST", .url = url, .body = body, .length = strlen(body), .token = token, .streams = strcmp(path, "watch") == 0};
	heard[0] = '\0';
	return driver.driver.begin(session, &request, &events, NULL);
}

/* What was heard, without the headers. */
static void heard_is(const char *expected)
{
	char told[2000];
	size_t at = 0;
	for (const char *from = heard; *from; from++) {
		if (strncmp(from, "\"header\":{", 10) == 0)
			from = strchr(from, '}') + 1 + (strchr(from, '}')[1] == ',');
		told[at++] = *from;
	}
	told[at] = '\0';
	ck_assert_msg(strcmp(told, expected) == 0, "'%s', not '%s'", told, expected);
}

static void etcd_says(const char *path, const char *body, const char *token, const char *expected)
{
	ck_assert_ptr_nonnull(ask_etcd(0, path, body, token));
	settle();
	heard_is(expected);
}

static void open_etcd(uint32_t members)
{
	sim = sim_create(5);
	node = sim_node_create(sim, 0);
	sim_etcd_server_init(&etcd, sim, members);
	for (uint32_t i = 0; i < etcd.member_count; i++) {
		etcd.members[i].http.server.lag_per_mille = 0;
		etcd.members[i].http.kept_per_mille = 0;
		etcd.members[i].lag_ns = 0;
	}
	sim_http_driver_init(&driver, &etcd.members[0].http, node);
	ck_assert_int_eq(driver.driver.open(&driver.driver, node->reactor, NULL, &session), 0);
}

static void close_etcd(void)
{
	driver.driver.close(session);
	ck_assert_uint_eq(sim_node_finish(node, NULL, NULL), 0);
	for (uint32_t i = 0; i < etcd.member_count; i++)
		ck_assert_uint_eq(etcd.members[i].http.exchanges, 0);
	sim_etcd_server_release(&etcd);
	sim_destroy(sim);
}

/* --- what it answers ------------------------------------------------------------------------------------------------------------ */

#define REFUSED(said, code) "{\"error\":\"etcdserver: " said "\",\"message\":\"etcdserver: " said "\",\"code\":" #code "}"
#define CREATE(lease)                                                                                                                     \
	"{\"compare\":[{\"key\":\"azE=\",\"target\":\"CREATE\",\"create_revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":\"azE=\",\"value\":" \
	"\"dg==\",\"lease\":\"" lease "\"}}],\"failure\":[{\"request_range\":{\"key\":\"azE=\"}}]}"
#define PUT "{\"key\":\"azE=\",\"value\":\"dw==\"}"
#define RANGE "{\"key\":\"azE=\"}"

START_TEST(operations_on_etcd)
{
	open_etcd(1);
	etcd_says("kv/range", RANGE, NULL, "200 {}");
	etcd_says("kv/deleterange", RANGE, NULL, "200 {}");
	etcd_says("kv/txn", CREATE("99"), NULL, "404 " REFUSED("requested lease not found", 5));
	etcd_says("kv/txn", CREATE("0"), NULL, "200 {\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}");
	etcd_says("kv/put", PUT, NULL, "200 {}");
	etcd_says("kv/txn", CREATE("99"), NULL,
	          "200 {\"responses\":[{\"response_range\":{\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"version\":\"2\","
	          "\"value\":\"dw==\"}],\"count\":\"1\"}}]}");
	etcd_says("kv/range", "{\"key\":\"azE=\",\"keys_only\":true}", NULL,
	          "200 {\"kvs\":[{\"key\":\"azE=\",\"create_revision\":\"2\",\"mod_revision\":\"3\",\"version\":\"2\"}],\"count\":\"1\"}");
	etcd_says("kv/deleterange", RANGE, NULL, "200 {\"deleted\":\"1\"}");
	sim_etcd_server_lose_leader(&etcd, 3000 * MS);
	etcd_says("kv/range", RANGE, NULL, "503 " REFUSED("no leader", 14));
	sim_run_for(sim, 3000 * MS);
	etcd_says("kv/range", RANGE, NULL, "200 {}");
	close_etcd();
}
END_TEST

START_TEST(leases_of_etcd)
{
	open_etcd(1);
	etcd_says("lease/keepalive", "{\"ID\":\"7001\"}", NULL, "200 {\"result\":{\"ID\":\"7001\"}}\n");
	etcd_says("lease/revoke", "{\"ID\":\"7001\"}", NULL, "404 " REFUSED("requested lease not found", 5));
	etcd_says("lease/grant", "{\"TTL\":\"5\"}", NULL, "200 {\"ID\":\"7001\",\"TTL\":\"5\"}");
	etcd_says("kv/txn", CREATE("7001"), NULL, "200 {\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}");
	sim_run_for(sim, 2500 * MS);
	ck_assert_ptr_nonnull(sim_etcd_find(&etcd.state, "k1"));
	etcd_says("lease/keepalive", "{\"ID\":\"7001\"}", NULL, "200 {\"result\":{\"ID\":\"7001\",\"TTL\":\"5\"}}\n");
	sim_run_for(sim, 3000 * MS);
	sim_etcd_server_lose_leader(&etcd, 4000 * MS); /* no lease ends without, and each begins anew with another */
	sim_run_for(sim, 8000 * MS);
	ck_assert_ptr_nonnull(sim_etcd_find(&etcd.state, "k1"));
	sim_run_for(sim, 2000 * MS);
	ck_assert_ptr_null(sim_etcd_find(&etcd.state, "k1"));
	ck_assert_uint_eq(etcd.state.leases_ended, 1);
	etcd_says("lease/grant", "{\"TTL\":\"5\"}", NULL, "200 {\"ID\":\"7002\",\"TTL\":\"5\"}");
	etcd_says("kv/put", "{\"key\":\"azE=\",\"value\":\"dw==\",\"lease\":\"7002\"}", NULL, "200 {}");
	etcd_says("lease/revoke", "{\"ID\":\"7002\"}", NULL, "200 {}");
	ck_assert_ptr_null(sim_etcd_find(&etcd.state, "k1"));
	close_etcd();
}
END_TEST

#define WATCH(from) "{\"create_request\":{\"key\":\"aw==\",\"range_end\":\"bA==\",\"start_revision\":\"" from "\"}}"
#define TOLD(revision, version)                                                                                                \
	"{\"kv\":{\"key\":\"azE=\",\"create_revision\":\"2\",\"mod_revision\":\"" #revision "\",\"version\":\"" #version "\",\"value\":\"dw==\"}}"

START_TEST(changes_told_by_etcd)
{
	struct neap_http_exchange *stream;
	open_etcd(2);
	stream = ask_etcd(0, "watch", WATCH("0"), NULL);
	settle();
	heard_is("{\"result\":{\"created\":true}}\n");
	heard[0] = '\0';
	sim_etcd_server_put(&etcd, "k1", "w");
	sim_etcd_server_put(&etcd, "other", "w");
	settle();
	heard_is("{\"result\":{\"events\":[" TOLD(2, 1) "]}}\n");
	heard[0] = '\0';
	etcd.members[0].lag_ns = 5000 * MS;
	sim_etcd_server_put(&etcd, "k1", NULL);
	settle();
	heard_is("");
	sim_run_for(sim, 5000 * MS);
	heard_is("{\"result\":{\"events\":[{\"type\":\"DELETE\",\"kv\":{\"key\":\"azE=\",\"mod_revision\":\"4\"}}]}}\n");
	heard[0] = '\0';
	etcd.members[0].lag_ns = 0;
	etcd.tears = true;
	sim_etcd_server_put(&etcd, "k1", "w");
	settle();
	ck_assert_ptr_nonnull(strstr(heard, "Connection reset by peer"));
	ck_assert_ptr_null(strchr(heard, '\n'));
	stream = ask_etcd(0, "watch", WATCH("50"), NULL); /* not there yet: silence until then */
	settle();
	sim_etcd_server_put(&etcd, "k1", "w");
	settle();
	heard_is("{\"result\":{\"created\":true}}\n");
	driver.driver.cancel(stream);
	sim_etcd_compact(&etcd.state);
	stream = ask_etcd(1, "watch", WATCH("2"), NULL);
	settle();
	heard_is("{\"result\":{\"created\":true}}\n{\"result\":{\"canceled\":true,\"compact_revision\":\"6\"}}\n");
	driver.driver.cancel(stream);
	stream = ask_etcd(1, "watch", WATCH("6"), NULL);
	settle();
	ck_assert_ptr_nonnull(strstr(heard, "\"mod_revision\":\"6\""));
	heard[0] = '\0';
	sim_etcd_member_stop(&etcd.members[1], true);
	settle();
	ck_assert_ptr_nonnull(strstr(heard, "transport is closing"));
	sim_etcd_server_stop(&etcd);
	sim_etcd_server_start(&etcd, true);
	stream = ask_etcd(1, "watch", WATCH("7"), NULL);
	settle();
	ck_assert_ptr_nonnull(strstr(heard, "\"revision\":\"1\""));
	ck_assert_uint_eq(etcd.overtaken, 0);
	driver.driver.cancel(stream);
	settle();
	close_etcd();
}
END_TEST

START_TEST(users_of_etcd)
{
	struct neap_http_exchange *stream;
	open_etcd(1);
	etcd_says("auth/authenticate", "{\"name\":\"n\",\"password\":\"p\"}", NULL, "412 " REFUSED("authentication is not enabled", 9));
	etcd.password = "p";
	etcd.token_ns = 5000 * MS;
	etcd.token_renews = true;
	etcd_says("kv/range", RANGE, NULL, "400 " REFUSED("user name is empty", 3));
	etcd_says("auth/authenticate", "{\"name\":\"n\",\"password\":\"x\"}", NULL,
	          "400 " REFUSED("authentication failed, invalid user ID or password", 3));
	etcd_says("auth/authenticate", "{\"name\":\"n\",\"password\":\"p\"}", NULL, "200 {\"token\":\"sim.1\"}");
	for (int i = 0; i < 8; i++)
		etcd_says("kv/range", RANGE, "sim.1", "200 {}");
	sim_run_for(sim, 5000 * MS);
	etcd_says("kv/range", RANGE, "sim.1", "401 " REFUSED("invalid auth token", 16));
	etcd_says("auth/authenticate", "{\"name\":\"n\",\"password\":\"p\"}", NULL, "200 {\"token\":\"sim.2\"}");
	sim_etcd_server_change_users(&etcd);
	etcd_says("kv/range", RANGE, "sim.2", "400 " REFUSED("revision of auth store is old", 3));
	sim_etcd_server_forget_tokens(&etcd);
	stream = ask_etcd(0, "watch", WATCH("0"), "sim.2");
	settle();
	heard_is("{\"result\":{\"watch_id\":\"-1\",\"created\":true,\"canceled\":true,\"cancel_reason\":\"rpc error: code = Unauthenticated desc = "
	         "etcdserver: invalid auth token\"}}\n");
	driver.driver.cancel(stream);
	settle();
	close_etcd();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("simulated etcd");
	TCase *cases = tcase_create("etcd");
	tcase_add_test(cases, operations_on_etcd);
	tcase_add_test(cases, leases_of_etcd);
	tcase_add_test(cases, changes_told_by_etcd);
	tcase_add_test(cases, users_of_etcd);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
