/* The etcd back-end's machines against a driver that does as it is told. What a real server says is in test_etcd_text. */
#include "metadata/etcd.h"
#include "tests/support/drive.h"
#include "tests/support/coverage.h"
#include "tests/support/script_http.h"
#include "tests/support/script_names.h"
#include <check.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define KEY "mooncake/k" /* bW9vbmNha2Uvaw== */
#define OK "{\"header\":{\"revision\":\"7\"}}"
#define HELD "{\"kvs\":[{\"key\":\"bW9vbmNha2Uvaw==\",\"value\":\"dmFsdWU=\"}]}" /* value */
#define NO_LEADER "{\"error\":\"etcdserver: no leader\",\"message\":\"etcdserver: no leader\",\"code\":14}"
#define BAD_TOKEN "{\"error\":\"etcdserver: invalid auth token\",\"code\":16}"
#define CREATED_AT(revision) "{\"result\":{\"header\":{\"revision\":\"" #revision "\"},\"created\":true}}\n"
#define CREATED CREATED_AT(7)
#define EVENT(key, revision) "{\"result\":{\"header\":{\"revision\":\"99\"},\"events\":[{\"kv\":{\"key\":\"" key "\",\"mod_revision\":\"" #revision "\"}}]}}\n"

static struct {
	struct script_names names;
	struct neap_reactor *reactor;
	struct neap_backend *backend;
	struct script_http http;
	uint64_t now_ns;
} rig;

static void turn(void)
{
	for (int i = 0; i < 4; i++)
		ck_assert_int_gt(neap_reactor_run_at(rig.reactor, rig.now_ns, NULL), 0);
}

/* Small steps: a timer that is started late starts from a late time. */
static void pass(uint64_t ns)
{
	for (uint64_t step = ns / 20; ns > 0; ns -= step < ns ? step : ns) {
		rig.now_ns += step < ns ? step : ns;
		turn();
	}
}

static void open_rig(struct neap_backend_options options)
{
	char why[300] = "";
	memset(&rig, 0, sizeof rig);
	script_names_open(&rig.names, "meta.test");
	script_http_init(&rig.http);
	rig.now_ns = 1000 * MS;
	struct neap_reactor_options reactor = {.net = &rig.names.net};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &reactor), 0);
	turn();
	options.calls_max = 8;
	int error = neap_etcd_create(&rig.backend, rig.reactor, &options, &rig.http.driver, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
}

static void open_one(void)
{
	open_rig((struct neap_backend_options){.connection = "10.0.0.1"});
}

static void open_three(void)
{
	open_rig((struct neap_backend_options){.connection = "etcd://10.0.0.1:1, 10.0.0.2:2;https://10.0.0.3"});
}

static void open_user(const char *connection)
{
	open_rig((struct neap_backend_options){.connection = connection, .etcd_username = "me", .etcd_password = "secret"});
}

static void close_rig(void)
{
	if (rig.backend)
		rig.backend->ops->destroy(rig.backend);
	neap_reactor_stop(rig.reactor);
	for (int i = 0; i < 100 && neap_reactor_run_at(rig.reactor, rig.now_ns += MS, NULL) != NEAP_RUN_STOPPED; i++)
		;
	ck_assert(rig.http.closed && !rig.names.resolving && script_http_is_quiet(&rig.http));
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), 0);
}

struct asked {
	int error, times;
	uint64_t call;
	char value[600], why[600];
	bool destroys;
};

static void destroy_now(void)
{
	rig.backend->ops->destroy(rig.backend);
	rig.backend = NULL;
}

static void told(void *user, int error, const char *value, size_t length, const char *why)
{
	struct asked *asked = user;
	asked->times++;
	asked->error = error;
	(void)snprintf(asked->value, sizeof asked->value, "%.*s", (int)length, value ? value : "");
	(void)snprintf(asked->why, sizeof asked->why, "%s", why);
	if (asked->destroys)
		destroy_now();
}

static void begin(struct asked *asked, const char *verb, uint64_t lease_ns)
{
	const struct neap_backend_ops *ops = rig.backend->ops;
	struct neap_backend_set set = {
		.key = KEY, .value = "value", .length = 5, .lease_ns = lease_ns, .create = strcmp(verb, "create") == 0};
	int error;
	*asked = (struct asked){.destroys = asked->destroys};
	if (strcmp(verb, "get") == 0)
		error = ops->get(rig.backend, KEY, 3000 * MS, told, asked, &asked->call);
	else if (strcmp(verb, "remove") == 0)
		error = ops->remove(rig.backend, KEY, 3000 * MS, told, asked, &asked->call);
	else if (strcmp(verb, "touch") == 0)
		error = ops->touch(rig.backend, KEY, lease_ns, 3000 * MS, told, asked, &asked->call);
	else
		error = ops->set(rig.backend, &set, 3000 * MS, told, asked, &asked->call);
	ck_assert_int_eq(error, 0);
	turn();
	ck_assert_int_eq(asked->times, 0);
}

static void expect(const char *said, const char *body)
{
	struct neap_http_exchange *exchange = script_http_plain(&rig.http);
	ck_assert(exchange && exchange->open);
	ck_assert_str_eq(exchange->said, said);
	if (body)
		ck_assert_msg(strstr(exchange->body, body) != NULL, "%s", exchange->body);
}

static void answer(long status, const char *body)
{
	script_http_answer(script_http_plain(&rig.http), status, body);
	turn();
}

static void break_off(int error)
{
	script_http_fail(script_http_plain(&rig.http), error, "it went wrong");
	turn();
}

static void ended(const struct asked *asked, int error, const char *why)
{
	ck_assert_msg(asked->times == 1 && asked->error == error, "%d times, %d: %s", asked->times, asked->error, asked->why);
	ck_assert_msg(strstr(asked->why, why) != NULL, "%s", asked->why);
}

#define URL(path) "POST http://10.0.0.1:2379/v3/" path

/* --- operations ------------------------------------------------------------------------------------------------------------- */

START_TEST(get_set_remove_touch)
{
	struct asked a = {0};
	open_one();
	begin(&a, "get", 0);
	expect(URL("kv/range"), "{\"key\":\"bW9vbmNha2Uvaw==\"}");
	answer(200, HELD);
	ended(&a, 0, "");
	ck_assert_str_eq(a.value, "value");
	begin(&a, "get", 0);
	answer(200, OK);
	ended(&a, NEAP_EMETADATA, "http://10.0.0.1:2379: there is no such key");
	begin(&a, "get", 0);
	answer(200, "{\"kvs\":[{\"key\":\"aw==\"}]}"); /* an empty one */
	ended(&a, 0, "");
	begin(&a, "set", 0);
	expect(URL("kv/put"), "{\"key\":\"bW9vbmNha2Uvaw==\",\"value\":\"dmFsdWU=\"}");
	answer(200, OK);
	ended(&a, 0, "");
	begin(&a, "remove", 0);
	expect(URL("kv/deleterange"), "{\"key\":\"bW9vbmNha2Uvaw==\"}");
	answer(200, OK);
	ended(&a, 0, "");
	begin(&a, "touch", 0);
	expect(URL("kv/range"), "\"keys_only\":true");
	answer(200, HELD);
	ended(&a, 0, "");
	ck_assert_str_eq(a.value, "");
	begin(&a, "touch", 0);
	answer(200, OK);
	ended(&a, NEAP_EMETADATA, "");
	close_rig();
}
END_TEST

START_TEST(create_only_where_nothing_is)
{
	struct asked a = {0};
	open_one();
	begin(&a, "create", 0);
	expect(URL("kv/txn"), "\"create_revision\":\"0\"");
	answer(200, "{\"succeeded\":true,\"responses\":[{\"response_put\":{}}]}");
	ended(&a, 0, "");
	begin(&a, "create", 0);
	answer(200, "{\"responses\":[{\"response_range\":" HELD "}]}"); /* ours already */
	ended(&a, 0, "");
	begin(&a, "create", 0);
	answer(200, "{\"responses\":[{\"response_range\":{\"kvs\":[{\"value\":\"dmFsdXg=\"}]}}]}");
	ended(&a, NEAP_ETAKEN, "has a value already");
	/* the first attempt was done and its answer lost: no conflict with ourselves */
	begin(&a, "create", 0);
	break_off(NEAP_EPEER);
	pass(100 * MS);
	answer(200, "{\"responses\":[{\"response_range\":" HELD "}]}");
	ended(&a, 0, "");
	close_rig();
}
END_TEST

#define GRANTED "{\"ID\":\"77\",\"TTL\":\"5\"}"
#define ALIVE "{\"result\":{\"ID\":\"77\",\"TTL\":\"5\"}}\n"
#define GONE "{\"result\":{\"ID\":\"77\"}}\n"
#define NOT_FOUND "{\"error\":\"etcdserver: requested lease not found\",\"code\":5}"
#define UNDER(lease) "{\"kvs\":[{\"key\":\"aw==\",\"lease\":\"" #lease "\"}]}"

START_TEST(leases)
{
	struct asked a = {0};
	uint64_t lease = 4500 * MS;
	open_one();
	begin(&a, "set", lease);
	expect(URL("lease/grant"), "{\"TTL\":\"5\"}"); /* whole seconds */
	answer(200, GRANTED);
	expect(URL("kv/put"), "\"lease\":\"77\"");
	answer(200, OK);
	ended(&a, 0, "");
	begin(&a, "create", lease);
	expect(URL("lease/keepalive"), "{\"ID\":\"77\"}"); /* the same one for all */
	answer(200, ALIVE);
	expect(URL("kv/txn"), "\"lease\":\"77\"");
	answer(200, "{\"succeeded\":true}");
	ended(&a, 0, "");
	begin(&a, "touch", lease);
	answer(200, UNDER(77));
	expect(URL("lease/keepalive"), "{\"ID\":\"77\"}");
	answer(200, ALIVE);
	ended(&a, 0, "");
	begin(&a, "touch", lease);
	answer(200, UNDER(78)); /* what a former life put there */
	expect(URL("lease/keepalive"), "{\"ID\":\"78\"}");
	answer(200, GONE);
	ended(&a, NEAP_EMETADATA, "lease has ended");
	begin(&a, "touch", lease);
	answer(200, HELD); /* under no lease: has to be put anew */
	ended(&a, NEAP_EMETADATA, "");
	/* the last key under it goes, and it with it; whether that succeeds is no matter */
	begin(&a, "remove", 0);
	answer(200, OK);
	expect(URL("lease/revoke"), "{\"ID\":\"77\"}");
	answer(404, NOT_FOUND);
	ended(&a, 0, "");
	begin(&a, "set", lease);
	expect(URL("lease/grant"), NULL);
	close_rig();
}
END_TEST

/* The lease of a key that is being put is not ended by the removal of another one. */
START_TEST(a_lease_that_is_about_to_be_used)
{
	struct asked a = {0}, b = {0};
	struct neap_backend_set set = {.key = "mooncake/other", .value = "v", .length = 1, .lease_ns = 5000 * MS};
	open_one();
	begin(&a, "set", 5000 * MS);
	answer(200, GRANTED);
	answer(200, OK);
	ck_assert_int_eq(rig.backend->ops->set(rig.backend, &set, 3000 * MS, told, &b, &b.call), 0);
	turn();
	answer(200, ALIVE);
	struct neap_http_exchange *put = script_http_last(&rig.http);
	ck_assert_ptr_nonnull(strstr(put->said, "kv/put"));
	begin(&a, "remove", 0);
	answer(200, OK);
	ended(&a, 0, ""); /* and nothing is revoked */
	script_http_answer(put, 200, OK);
	turn();
	ended(&b, 0, "");
	close_rig();
}
END_TEST

START_TEST(leases_that_end_and_that_are_none)
{
	struct asked a = {0};
	uint64_t lease = 5000 * MS;
	open_one();
	begin(&a, "set", lease);
	answer(200, GRANTED);
	answer(200, OK);
	begin(&a, "set", lease);
	answer(200, GONE); /* it ended: another */
	expect(URL("lease/grant"), NULL);
	answer(200, "{\"ID\":\"78\",\"TTL\":\"5\"}");
	expect(URL("kv/put"), "\"lease\":\"78\"");
	answer(404, NOT_FOUND); /* ended in between, once */
	expect(URL("lease/grant"), NULL);
	answer(200, "{\"ID\":\"79\",\"TTL\":\"5\"}");
	answer(404, NOT_FOUND); /* twice is too often */
	ended(&a, NEAP_EAGAIN, "the lease has ended"); /* not: there is none */
	begin(&a, "set", 2000 * MS); /* another time is another lease */
	expect(URL("lease/grant"), "{\"TTL\":\"2\"}");
	answer(200, OK);
	ck_assert_int_eq(a.times, 0); /* the one we had may be meant: it is asked for anew */
	answer(200, OK);
	ended(&a, NEAP_EPROTO, "no time");
	begin(&a, "set", lease);
	answer(503, NO_LEADER);
	pass(100 * MS);
	expect(URL("lease/grant"), NULL);
	answer(400, "{\"error\":\"etcdserver: too large lease TTL\",\"code\":3}");
	ended(&a, NEAP_EPROTO, "too large lease");
	begin(&a, "set", lease);
	pass(3001 * MS);
	ended(&a, NEAP_ETIMEDOUT, "3000 ms");
	/* a revocation that nobody answers does not hold up who removed the key, longer than it may take */
	begin(&a, "set", lease);
	answer(200, GRANTED);
	answer(200, OK);
	begin(&a, "remove", 0);
	answer(200, OK);
	pass(3001 * MS);
	ended(&a, 0, "");
	begin(&a, "set", lease);
	answer(200, GRANTED);
	answer(200, OK);
	begin(&a, "remove", 0);
	rig.http.refuse = true;
	answer(200, OK);
	ended(&a, 0, "");
	close_rig();
}
END_TEST

START_TEST(renewals_that_fail)
{
	struct asked a = {0};
	open_one();
	begin(&a, "touch", 5000 * MS);
	answer(200, UNDER(77));
	break_off(NEAP_EPEER);
	pass(100 * MS);
	expect(URL("kv/range"), NULL); /* from the beginning */
	answer(200, UNDER(77));
	answer(403, "{\"error\":\"etcdserver: permission denied\",\"code\":7}");
	ended(&a, NEAP_EREJECTED, "readwrite");
	begin(&a, "touch", 5000 * MS);
	answer(200, UNDER(77));
	pass(3001 * MS);
	ended(&a, NEAP_ETIMEDOUT, "");
	close_rig();
}
END_TEST

/* --- what fails ---------------------------------------------------------------------------------------------------------------- */

START_TEST(one_member_is_asked_until_the_deadline)
{
	struct asked a = {0};
	open_one();
	begin(&a, "get", 0);
	break_off(NEAP_ESOCKET);
	ck_assert_int_eq(a.times, 0);
	pass(100 * MS);
	expect(URL("kv/range"), NULL);
	answer(503, NO_LEADER);
	pass(200 * MS);
	answer(200, HELD);
	ended(&a, 0, "");
	begin(&a, "get", 0);
	for (int i = 0; i < 100 && !a.times; i++) {
		if (!script_http_is_quiet(&rig.http))
			break_off(NEAP_ESOCKET);
		pass(50 * MS);
	}
	ended(&a, NEAP_ESOCKET, "http://10.0.0.1:2379: it went wrong");
	ck_assert_uint_lt(rig.http.count, 20); /* with pauses */
	begin(&a, "get", 0);
	pass(3001 * MS);
	ended(&a, NEAP_ETIMEDOUT, "within 3000 ms");
	close_rig();
}
END_TEST

START_TEST(another_member_is_asked_at_once)
{
	struct asked a = {0};
	open_three();
	begin(&a, "get", 0);
	expect("POST http://10.0.0.1:1/v3/kv/range", NULL);
	break_off(NEAP_ESOCKET);
	pass(20 * MS);
	expect("POST http://10.0.0.2:2/v3/kv/range", NULL);
	answer(503, NO_LEADER);
	pass(20 * MS);
	expect("POST https://10.0.0.3:2379/v3/kv/range", NULL);
	answer(200, HELD);
	ended(&a, 0, "");
	begin(&a, "get", 0); /* that one stays */
	expect("POST https://10.0.0.3:2379/v3/kv/range", NULL);
	pass(1700 * MS); /* half of the time is all that one gets */
	expect("POST http://10.0.0.1:1/v3/kv/range", NULL);
	answer(200, HELD);
	ended(&a, 0, "");
	begin(&a, "get", 0);
	break_off(NEAP_EREJECTED); /* a certificate that is not right may be that of one member */
	pass(20 * MS);
	expect("POST http://10.0.0.2:2/v3/kv/range", NULL);
	answer(200, HELD);
	ended(&a, 0, "");
	close_rig();
}
END_TEST

START_TEST(refusals_and_bounds)
{
	struct asked a = {0}, more[8] = {0};
	static char key[NEAP_BACKEND_KEY_MAX + 1];
	open_one();
	const struct neap_backend_ops *ops = rig.backend->ops;
	begin(&a, "set", 0);
	answer(400, "{\"error\":\"etcdserver: request is too large\",\"code\":3}");
	ended(&a, NEAP_ELIMIT, "max-request-bytes");
	begin(&a, "get", 0);
	break_off(NEAP_EREJECTED); /* with one member there is no other to hope for */
	ended(&a, NEAP_EREJECTED, "");
	begin(&a, "get", 0);
	break_off(NEAP_ELIMIT);
	ended(&a, NEAP_ELIMIT, "");
	begin(&a, "get", 0);
	answer(200, "{\"kvs\":7}");
	ended(&a, NEAP_EJSON, "kvs");
	begin(&a, "get", 0);
	answer(401, BAD_TOKEN); /* and we have no user to get another with */
	ended(&a, NEAP_EREJECTED, "");
	memset(key, 'k', sizeof key - 1);
	ck_assert_int_eq(ops->get(rig.backend, key, MS, told, &a, &a.call), NEAP_ELIMIT);
	ck_assert_int_eq(ops->get(rig.backend, "", MS, told, &a, &a.call), NEAP_EINVAL);
	struct neap_backend_set set = {.key = "k", .value = "v", .length = NEAP_ETCD_VALUE_MAX + 1};
	ck_assert_int_eq(ops->set(rig.backend, &set, MS, told, &a, &a.call), NEAP_ELIMIT);
	rig.http.refuse = true;
	ck_assert_int_eq(ops->get(rig.backend, KEY, 3000 * MS, told, &a, &a.call), 0);
	a.times = 0;
	pass(3001 * MS);
	ended(&a, NEAP_ENOMEM, "");
	rig.http.refuse = false;
	for (int i = 0; i < 8; i++)
		begin(&more[i], "get", 0);
	ck_assert_int_eq(ops->get(rig.backend, KEY, MS, told, &a, &a.call), NEAP_EAGAIN);
	ops->cancel(rig.backend, more[0].call);
	ops->cancel(rig.backend, more[0].call);
	more[7].destroys = true; /* from inside a callback, with the others under way */
	answer(200, HELD);
	ended(&more[7], 0, "");
	ck_assert(more[0].times == 0 && more[1].times == 0);
	close_rig();
}
END_TEST

/* --- the token -------------------------------------------------------------------------------------------------------------------- */

#define TOKEN(text) "{\"token\":\"" text "\"}"

START_TEST(one_token_for_all)
{
	struct asked a = {0}, b = {0};
	open_user("10.0.0.1");
	begin(&a, "get", 0);
	expect(URL("auth/authenticate"), "{\"name\":\"me\",\"password\":\"secret\"}");
	begin(&b, "get", 0);
	ck_assert_uint_eq(rig.http.count, 1);
	answer(200, TOKEN("t1"));
	ck_assert_uint_eq(rig.http.count, 3);
	ck_assert_str_eq(rig.http.exchanges[1].token, "t1");
	script_http_answer(&rig.http.exchanges[1], 200, HELD);
	/* it is not taken any more: another, once */
	script_http_answer(&rig.http.exchanges[2], 401, BAD_TOKEN);
	turn();
	ended(&a, 0, "");
	expect(URL("auth/authenticate"), NULL);
	answer(200, TOKEN("t2"));
	ck_assert_str_eq(script_http_last(&rig.http)->token, "t2");
	answer(401, BAD_TOKEN);
	ended(&b, NEAP_EREJECTED, "does not take the token");
	/* while a lease is renewed */
	begin(&a, "touch", 5000 * MS);
	answer(200, UNDER(77));
	answer(401, BAD_TOKEN);
	pass(100 * MS);
	expect(URL("auth/authenticate"), NULL);
	answer(200, TOKEN("t3"));
	answer(200, UNDER(77));
	answer(200, ALIVE);
	ended(&a, 0, "");
	close_rig();
}
END_TEST

START_TEST(users_that_are_refused)
{
	struct asked a = {0};
	open_user("10.0.0.1");
	begin(&a, "get", 0);
	answer(400, "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}");
	ended(&a, NEAP_EREJECTED, "MC_ETCD_PASSWORD");
	ck_assert_ptr_null(strstr(a.why, "secret"));
	begin(&a, "get", 0);
	expect(URL("auth/authenticate"), NULL); /* it may have been changed meanwhile */
	answer(200, "{}");
	ended(&a, NEAP_EPROTO, "no token");
	begin(&a, "get", 0);
	answer(200, "[]");
	ended(&a, NEAP_EJSON, "");
	begin(&a, "get", 0);
	answer(412, "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}");
	expect(URL("kv/range"), NULL); /* without */
	ck_assert_str_eq(script_http_last(&rig.http)->token, "");
	answer(200, HELD);
	ended(&a, 0, "");
	close_rig();
}
END_TEST

START_TEST(tokens_from_another_member)
{
	struct asked a = {0};
	open_user("10.0.0.1,10.0.0.2");
	begin(&a, "get", 0);
	break_off(NEAP_ESOCKET);
	pass(20 * MS);
	expect("POST http://10.0.0.2:2379/v3/auth/authenticate", NULL);
	pass(2100 * MS); /* no answer to that */
	expect("POST http://10.0.0.1:2379/v3/auth/authenticate", NULL);
	pass(1000 * MS); /* the operation's time is over, the token is still asked for */
	ended(&a, NEAP_ETIMEDOUT, "");
	begin(&a, "get", 0);
	answer(200, TOKEN("t"));
	answer(200, HELD);
	ended(&a, 0, "");
	rig.http.refuse = true;
	close_rig();
	open_user("10.0.0.1");
	rig.http.refuse = true;
	begin(&a, "get", 0);
	pass(3001 * MS);
	ended(&a, NEAP_ENOMEM, "");
	rig.http.refuse = false;
	begin(&a, "get", 0);
	close_rig(); /* while it is asked for */
	open_user("10.0.0.1");
	close_rig(); /* before */
}
END_TEST

/* --- changes ---------------------------------------------------------------------------------------------------------------------- */

static int changes;
static bool change_destroys;

static void changed(struct neap_backend_watch *watch)
{
	(void)watch;
	changes++;
	if (change_destroys)
		destroy_now();
}

static struct neap_backend_watch watched, other;

static int watch(const char *key, struct neap_backend_watch *which)
{
	which->changed = changed;
	int error = rig.backend->ops->watch(rig.backend, key, which);
	turn();
	return error;
}

static void bring(const char *bytes)
{
	script_http_bring(script_http_stream(&rig.http), 200, bytes);
	turn();
}

/* Until another request than those so far is made. */
static void await_request(void)
{
	uint32_t before = rig.http.count;
	for (int i = 0; i < 10000 && rig.http.count == before; i++)
		pass(20 * MS);
	ck_assert_uint_eq(rig.http.count, before + 1);
}

static void expect_stream(const char *said, const char *from)
{
	struct neap_http_exchange *stream = script_http_stream(&rig.http);
	ck_assert(stream && stream->open);
	ck_assert_str_eq(stream->said, said);
	ck_assert_msg(strstr(stream->body, "\"range_end\":\"bW9vbmNha2Uw\"") != NULL, "%s", stream->body);
	ck_assert_msg((strstr(stream->body, "start_revision") != NULL) == (from != NULL), "%s", stream->body);
	if (from)
		ck_assert_msg(strstr(stream->body, from) != NULL, "%s", stream->body);
}

static void begin_watching(void)
{
	memset(&watched, 0, sizeof watched);
	memset(&other, 0, sizeof other);
	changes = 0;
	change_destroys = false;
	ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN); /* not yet */
	bring(CREATED);
	ck_assert_int_eq(watch(KEY, &watched), 0);
}

START_TEST(told_of_changes)
{
	open_one();
	begin_watching();
	expect_stream(URL("watch"), NULL);
	ck_assert_int_eq(watch("elsewhere/k", &other), NEAP_EAGAIN);
	ck_assert_int_eq(watch("mooncake/other", &other), 0);
	bring(EVENT("bW9vbmNha2Uvb3RoZXIy", 8)); /* mooncake/other2 */
	ck_assert_int_eq(changes, 0);
	bring(EVENT("bW9vbmNha2Uvaw==", 9));
	ck_assert_int_eq(changes, 1);
	ck_assert(!watched.slot && other.slot);
	/* cut anywhere, and several in one piece */
	const char *text = EVENT("bW9vbmNha2Uvaw==", 10) EVENT("bW9vbmNha2Uvb3RoZXI=", 11);
	for (size_t cut = 0; cut < strlen(text); cut++) {
		char first[400];
		(void)snprintf(first, sizeof first, "%.*s", (int)cut, text);
		ck_assert_int_eq(watch(KEY, &watched), 0);
		ck_assert_int_eq(watch("mooncake/other", &other), 0);
		changes = 0;
		bring(first);
		bring(text + cut);
		ck_assert_int_eq(changes, 2);
	}
	close_rig();
}
END_TEST

/* The stream is taken up again behind what was seen last, and what is watched stays watched. */
START_TEST(streams_are_taken_up_again)
{
	open_three();
	begin_watching();
	expect_stream("POST http://10.0.0.1:1/v3/watch", NULL);
	await_request(); /* renewed, for it might have died in silence */
	expect_stream("POST http://10.0.0.1:1/v3/watch", "\"start_revision\":\"8\"");
	ck_assert(watched.slot);
	ck_assert_int_eq(watch("mooncake/other", &other), 0); /* meanwhile too: nothing is missed */
	bring(CREATED);
	bring(EVENT("bW9vbmNha2Uvb3RoZXI=", 12)); /* of several batches the first: the header is ahead of it */
	ck_assert_int_eq(changes, 1);
	pass(2000 * MS);
	script_http_fail(script_http_stream(&rig.http), NEAP_EPEER, "gone");
	turn();
	expect_stream("POST http://10.0.0.2:2/v3/watch", "\"start_revision\":\"13\"");
	bring(CREATED_AT(12));
	bring("{\"result\":{\"header\":{\"revision\":\"20\"}}}\n"); /* nothing happened up to here */
	bring("{\"result\":{\"fragment\":true,\"events\":[{\"kv\":{\"key\":\"aw==\",\"mod_revision\":\"21\"}}]}}\n");
	ck_assert(watched.slot);
	pass(2000 * MS);
	script_http_answer(script_http_stream(&rig.http), 200, ""); /* ended properly, in the middle of a change */
	turn();
	expect_stream("POST https://10.0.0.3:2379/v3/watch", "\"start_revision\":\"21\"");
	ck_assert(watched.slot && changes == 1);
	/* compacted: whatever is watched may have changed */
	bring("{\"result\":{\"created\":true,\"canceled\":true,\"compact_revision\":\"30\"}}\n");
	ck_assert(!watched.slot && changes == 2);
	expect_stream("POST https://10.0.0.3:2379/v3/watch", NULL);
	ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN);
	bring(CREATED);
	ck_assert_int_eq(watch(KEY, &watched), 0);
	pass(2000 * MS);
	bring("{\"result\":{\"canceled\":true,\"compact_revision\":\"30\"}}\n");
	ck_assert_int_eq(changes, 3);
	expect_stream("POST https://10.0.0.3:2379/v3/watch", NULL);
	close_rig();
}
END_TEST

#define BEGUN(cluster, term, revision)                                                                                                  \
	"{\"result\":{\"header\":{\"cluster_id\":\"" #cluster "\",\"revision\":\"" #revision "\",\"raft_term\":\"" #term "\"},\"created\":true}}\n"
static const struct {
	const char *begun; /* of the stream that is taken up behind revision 40 of cluster 1 in term 5 */
	bool anew;
} lives[] = {
	{BEGUN(1, 5, 39), true}, {BEGUN(1, 5, 40), false}, {BEGUN(1, 4, 50), true}, {BEGUN(1, 6, 50), false}, {BEGUN(2, 5, 50), true},
};

/* A cluster that has lost everything counts from 1 again: a stream that begins behind what it has would be silent until it has come so far,
 * and one that is further has changed what we were not told of. */
START_TEST(streams_of_a_cluster_that_began_anew)
{
	open_three();
	(void)watch(KEY, &watched);
	changes = 0;
	bring(BEGUN(1, 5, 7));
	ck_assert_int_eq(watch(KEY, &watched), 0);
	bring(EVENT("bW9vbmNha2Uvb3RoZXI=", 40));
	pass(2000 * MS);
	script_http_fail(script_http_stream(&rig.http), NEAP_EPEER, "gone");
	turn();
	expect_stream("POST http://10.0.0.2:2/v3/watch", "\"start_revision\":\"41\"");
	ck_assert(watched.slot);
	bring(lives[_i].begun);
	ck_assert_msg(!watched.slot == lives[_i].anew && changes == lives[_i].anew, "%d", _i);
	if (lives[_i].anew) {
		expect_stream("POST http://10.0.0.2:2/v3/watch", NULL);
		ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN);
		bring(lives[_i].begun);
		ck_assert_int_eq(watch(KEY, &watched), 0);
	}
	bring(EVENT("bW9vbmNha2Uvaw==", 51));
	ck_assert_int_eq(changes, 1 + lives[_i].anew);
	close_rig();
}
END_TEST

START_TEST(streams_that_cannot_be_had)
{
	open_rig((struct neap_backend_options){.connection = "10.0.0.1,10.0.0.2"});
	begin_watching();
	bring("what is this\n"); /* too young to be taken up again */
	ck_assert(!watched.slot && changes == 1);
	ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN);
	await_request();
	expect_stream("POST http://10.0.0.2:2379/v3/watch", NULL);
	bring("{\"result\":{\"created\":true,\"canceled\":true,\"cancel_reason\":\"etcdserver: permission denied\"}}\n");
	ck_assert(!script_http_stream(&rig.http)->open);
	await_request();
	script_http_bring(script_http_stream(&rig.http), 503, "{\"error\":\"no lea");
	script_http_bring(script_http_stream(&rig.http), 503, "der\",\"code\":14}");
	script_http_answer(script_http_stream(&rig.http), 503, "");
	await_request();
	await_request(); /* no word at all to that */
	bring(CREATED);
	ck_assert_int_eq(watch(KEY, &watched), 0);
	bring("{\"error\":{\"message\":\"closing\",\"grpc_code\":14}}\n");
	ck_assert_int_eq(changes, 2);
	rig.http.refuse = true;
	pass(6000 * MS);
	close_rig();
}
END_TEST

/* One that is told of compaction where it asked for what is to come would begin anew without end. */
START_TEST(compaction_again_and_again)
{
	open_one();
	begin_watching();
	for (int i = 0; i < 5; i++) {
		uint32_t before = rig.http.count;
		bring("{\"result\":{\"canceled\":true,\"compact_revision\":\"30\"}}\n");
		ck_assert_uint_eq(rig.http.count, before); /* after a pause */
		await_request();
		bring(CREATED);
	}
	close_rig();
}
END_TEST

/* A member of the list that is none does not stand in the way of the others. */
START_TEST(a_member_that_is_no_etcd)
{
	struct asked a = {0};
	open_three();
	begin(&a, "get", 0);
	answer(404, "404 page not found");
	pass(20 * MS);
	expect("POST http://10.0.0.2:2/v3/kv/range", NULL);
	answer(200, "<html>");
	pass(20 * MS);
	expect("POST https://10.0.0.3:2379/v3/kv/range", NULL);
	answer(200, HELD);
	ended(&a, 0, "");
	close_rig();
}
END_TEST

/* A user was given and not wanted; then it is. */
START_TEST(users_that_are_wanted_later)
{
	struct asked a = {0};
	open_user("10.0.0.1");
	begin(&a, "get", 0);
	answer(412, "{\"error\":\"etcdserver: authentication is not enabled\",\"code\":9}");
	answer(400, "{\"error\":\"etcdserver: user name is empty\",\"code\":3}");
	expect(URL("auth/authenticate"), NULL);
	answer(200, TOKEN("t"));
	ck_assert_str_eq(script_http_last(&rig.http)->token, "t");
	answer(200, HELD);
	ended(&a, 0, "");
	begin(&a, "get", 0);
	answer(401, BAD_TOKEN);
	answer(200, TOKEN("t\\r\\nX: y"));
	ended(&a, NEAP_EPROTO, "no token that can be sent back");
	close_rig();
}
END_TEST

START_TEST(the_end_while_a_change_is_told)
{
	open_one();
	begin_watching();
	change_destroys = true;
	bring(EVENT("bW9vbmNha2Uvaw==", 9) EVENT("bW9vbmNha2Uvaw==", 10));
	ck_assert(changes == 1 && !rig.backend);
	close_rig();
	open_one();
	begin_watching();
	change_destroys = true;
	bring("{\"result\":{\"canceled\":true,\"compact_revision\":\"30\"}}\n");
	ck_assert(changes == 1 && !rig.backend);
	close_rig();
	open_one();
	ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN);
	close_rig(); /* while it is created */
	open_one();
	begin_watching();
	bring("what\n");
	close_rig(); /* in the pause */
}
END_TEST

START_TEST(streams_with_a_token)
{
	struct asked a = {0};
	open_user("10.0.0.1");
	ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN);
	expect(URL("auth/authenticate"), NULL);
	answer(200, TOKEN("t1"));
	ck_assert_str_eq(script_http_stream(&rig.http)->token, "t1");
	bring("{\"result\":{\"created\":true,\"canceled\":true,\"cancel_reason\":\"etcdserver: invalid auth token\"}}\n");
	expect(URL("auth/authenticate"), NULL);
	answer(200, TOKEN("t2"));
	ck_assert_str_eq(script_http_stream(&rig.http)->token, "t2");
	bring("{\"result\":{\"created\":true,\"canceled\":true,\"cancel_reason\":\"etcdserver: invalid auth token\"}}\n"); /* twice */
	pass(200 * MS);
	ck_assert_str_eq(script_http_stream(&rig.http)->token, "t2");
	/* an operation got another token meanwhile: the stream takes that one */
	begin(&a, "get", 0);
	answer(401, BAD_TOKEN);
	answer(200, TOKEN("t3"));
	answer(200, HELD);
	ended(&a, 0, "");
	bring("{\"result\":{\"created\":true,\"canceled\":true,\"cancel_reason\":\"etcdserver: invalid auth token\"}}\n");
	ck_assert_str_eq(script_http_stream(&rig.http)->token, "t3");
	bring(CREATED);
	ck_assert_int_eq(watch(KEY, &watched), 0);
	/* taken up again when the user is refused */
	begin(&a, "get", 0);
	answer(401, BAD_TOKEN);
	pass(1100 * MS);
	changes = 0;
	script_http_fail(script_http_stream(&rig.http), NEAP_EPEER, "gone");
	turn();
	answer(400, "{\"error\":\"etcdserver: authentication failed, invalid user ID or password\",\"code\":3}");
	ended(&a, NEAP_EREJECTED, "");
	ck_assert_int_eq(changes, 1);
	pass(200 * MS);
	expect(URL("auth/authenticate"), NULL);
	close_rig(); /* while it waits for that */
}
END_TEST

/* --- making one ------------------------------------------------------------------------------------------------------------------- */

START_TEST(names)
{
	struct asked a = {0};
	struct neap_sockaddr address;
	open_rig((struct neap_backend_options){.connection = "etcd://meta.test:7", .prefix = "mooncake/one/"});
	ck_assert(!rig.backend->local);
	ck_assert_str_eq(rig.backend->where, "etcd at http://meta.test:7");
	ck_assert_int_eq(watch(KEY, &watched), NEAP_EAGAIN); /* not of this cluster: nothing is begun */
	begin(&a, "get", 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", 80, &address), 0);
	script_names_answer(&rig.names, 0, &address, 1);
	turn();
	expect("POST http://meta.test:7/v3/kv/range", NULL);
	ck_assert_str_eq(script_http_last(&rig.http)->addresses, "+meta.test:7:10.0.0.2");
	answer(200, HELD);
	ended(&a, 0, "");
	close_rig();
	open_rig((struct neap_backend_options){.connection = "etcd://127.0.0.1;[::1]:3"});
	ck_assert(rig.backend->local);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("etcd back-end");
	TCase *machines = tcase_create("machines");
	tcase_set_timeout(machines, 120);
	tcase_add_test(machines, get_set_remove_touch);
	tcase_add_test(machines, create_only_where_nothing_is);
	tcase_add_test(machines, leases);
	tcase_add_test(machines, a_lease_that_is_about_to_be_used);
	tcase_add_test(machines, leases_that_end_and_that_are_none);
	tcase_add_test(machines, renewals_that_fail);
	tcase_add_test(machines, one_member_is_asked_until_the_deadline);
	tcase_add_test(machines, another_member_is_asked_at_once);
	tcase_add_test(machines, refusals_and_bounds);
	tcase_add_test(machines, one_token_for_all);
	tcase_add_test(machines, users_that_are_refused);
	tcase_add_test(machines, tokens_from_another_member);
	tcase_add_test(machines, told_of_changes);
	tcase_add_test(machines, streams_are_taken_up_again);
	tcase_add_loop_test(machines, streams_of_a_cluster_that_began_anew, 0, sizeof lives / sizeof *lives);
	tcase_add_test(machines, streams_that_cannot_be_had);
	tcase_add_test(machines, compaction_again_and_again);
	tcase_add_test(machines, a_member_that_is_no_etcd);
	tcase_add_test(machines, users_that_are_wanted_later);
	tcase_add_test(machines, the_end_while_a_change_is_told);
	tcase_add_test(machines, streams_with_a_token);
	tcase_add_test(machines, names);
	suite_add_tcase(suite, machines);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
