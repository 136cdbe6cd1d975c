/* What is said to etcd and what it answers, byte for byte as a server of version 3.4 was seen to take and to say it. */
#include "metadata/etcd_text.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER "\"header\":{\"cluster_id\":\"324952591200643719\",\"member_id\":\"3319814642761637952\",\"revision\":\"7\",\"raft_term\":\"2\"}"

static char *taken(struct neap_json_writer *writer)
{
	char *text;
	size_t length;
	ck_assert_int_eq(neap_json_writer_take(writer, &text, &length), 0);
	return text;
}

static void says(struct neap_json_writer *writer, const char *expected)
{
	char *text = taken(writer);
	ck_assert_str_eq(text, expected);
	free(text);
	neap_json_writer_init(writer, SIZE_MAX, 64);
}

START_TEST(requests)
{
	struct neap_json_writer w;
	neap_json_writer_init(&w, SIZE_MAX, 64);
	etcd_put_range(&w, "k", false);
	says(&w, "{\"key\":\"aw==\"}");
	etcd_put_range(&w, "mooncake/k", true);
	says(&w, "{\"key\":\"bW9vbmNha2Uvaw==\",\"keys_only\":true}");
	etcd_put_value(&w, "k", "v", 1, 0);
	says(&w, "{\"key\":\"aw==\",\"value\":\"dg==\"}");
	etcd_put_value(&w, "k", "", 0, UINT64_C(2324035714185060618));
	says(&w, "{\"key\":\"aw==\",\"value\":\"\",\"lease\":\"2324035714185060618\"}");
	etcd_put_create(&w, "k", "v", 1, 0);
	says(&w, "{\"compare\":[{\"key\":\"aw==\",\"target\":\"CREATE\",\"create_revision\":\"0\"}],\"success\":[{\"request_put\":{\"key\":\"aw==\","
	         "\"value\":\"dg==\"}}],\"failure\":[{\"request_range\":{\"key\":\"aw==\"}}]}");
	etcd_put_number(&w, "TTL", 5);
	says(&w, "{\"TTL\":\"5\"}");
	ck_assert(etcd_put_user(&w, "ne\"ap", "p\\\n"));
	says(&w, "{\"name\":\"ne\\\"ap\",\"password\":\"p\\\\\\n\"}");
	ck_assert(!etcd_put_user(&w, "\xff", "p"));
	neap_json_writer_drop(&w);
	neap_json_writer_init(&w, SIZE_MAX, 64);
	etcd_put_watch(&w, "mooncake/", 0);
	says(&w, "{\"create_request\":{\"key\":\"bW9vbmNha2Uv\",\"range_end\":\"bW9vbmNha2Uw\",\"fragment\":true,\"progress_notify\":true}}");
	etcd_put_watch(&w, "mooncake/", 8);
	says(&w, "{\"create_request\":{\"key\":\"bW9vbmNha2Uv\",\"range_end\":\"bW9vbmNha2Uw\",\"fragment\":true,\"progress_notify\":true,"
	         "\"start_revision\":\"8\"}}");
	neap_json_writer_drop(&w);
}
END_TEST

/* Any bytes, of lengths around those where the encoder begins anew, come back as they went. */
START_TEST(values_come_back)
{
	static const size_t lengths[] = {0, 1, 2, 3, 4, 5, 766, 767, 768, 769, 1535, 1536, 1537, 100000};
	for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
		struct neap_json_writer w;
		struct etcd_answer answer;
		char *value = malloc(lengths[i] + 1), why[160];
		uint32_t random = 1;
		for (size_t k = 0; k < lengths[i]; k++)
			value[k] = (char)((random = random * 1664525u + 1013904223u) >> 24);
		neap_json_writer_init(&w, SIZE_MAX, 64);
		neap_json_put_text(&w, "{\"kvs\":[");
		etcd_put_value(&w, "k", value, lengths[i], 7);
		neap_json_put_text(&w, "]}");
		char *text = taken(&w);
		ck_assert_msg(etcd_answer_read(text, strlen(text), &answer, why, sizeof why) == 0, "%s", why);
		ck_assert(answer.found && answer.lease == 7 && answer.length == lengths[i]);
		ck_assert_int_eq(memcmp(answer.value, value, lengths[i]), 0);
		etcd_answer_drop(&answer);
		free(text);
		free(value);
	}
}
END_TEST

static struct etcd_answer read_answer(const char *text, int error)
{
	struct etcd_answer answer;
	char why[160] = "";
	int said = etcd_answer_read(text, strlen(text), &answer, why, sizeof why);
	ck_assert_msg(said == error, "%d %s: %s", said, why, text);
	return answer;
}

START_TEST(answers)
{
	struct etcd_answer a = read_answer("{" HEADER "}", 0);
	ck_assert(!a.found && !a.succeeded && !a.value);
	a = read_answer("{" HEADER ",\"kvs\":[{\"key\":\"aw==\",\"create_revision\":\"2\",\"mod_revision\":\"2\",\"version\":\"1\",\"value\":\"dg==\","
	                "\"lease\":\"2324035714185060618\"}],\"count\":\"1\"}", 0);
	ck_assert(a.found && a.length == 1 && a.value[0] == 'v' && a.lease == UINT64_C(2324035714185060618));
	etcd_answer_drop(&a);
	a = read_answer("{" HEADER ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":{\"revision\":\"4\"}}}]}", 0);
	ck_assert(a.succeeded && !a.found);
	a = read_answer("{" HEADER ",\"responses\":[{\"response_range\":{\"header\":{\"revision\":\"4\"},\"kvs\":[{\"key\":\"aw==\",\"value\":\"dg==\"}],"
	                "\"count\":\"1\"}}]}", 0);
	ck_assert(!a.succeeded && a.found && a.length == 1);
	etcd_answer_drop(&a);
	a = read_answer("{" HEADER ",\"ID\":\"2324035714185060618\",\"TTL\":\"5\"}", 0);
	ck_assert(a.id == UINT64_C(2324035714185060618) && a.ttl == 5);
	a = read_answer("{\"result\":{" HEADER ",\"ID\":\"123\"}}\n", 0); /* a lease that is no more */
	ck_assert(a.id == 123 && a.ttl == 0);
	a = read_answer("{\"ID\":7,\"TTL\":\"-1\"}", 0);
	ck_assert(a.id == 7 && a.ttl == 0);
	a = read_answer("{" HEADER ",\"token\":\"dxwHiNwJuJfLfjec.27\"}", 0);
	ck_assert_str_eq(a.token, "dxwHiNwJuJfLfjec.27");
	/* two values, of which only one was asked for */
	a = read_answer("{\"kvs\":[{\"value\":\"dg==\"},{\"value\":\"dw==\"}]}", 0);
	ck_assert(a.found && a.value[0] == 'v');
	etcd_answer_drop(&a);
}
END_TEST

START_TEST(broken_answers)
{
	static const char *const texts[] = {"", "[]", "{\"kvs\":7}", "{\"kvs\":[{\"value\":\"d*==\"}]}", "{\"ID\":\"x\"}", "{\"ID\":{}}", "{\"kvs\":[",
	                                    "{\"responses\":[{\"response_range\":7}]}", "{} {}", "not found"};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct etcd_answer answer;
		char why[160] = "";
		ck_assert_msg(etcd_answer_read(texts[i], strlen(texts[i]), &answer, why, sizeof why) < 0, "%s", texts[i]);
		etcd_answer_drop(&answer);
	}
	/* as deep as one likes: refused, not recursed into */
	char deep[4000] = "";
	for (int i = 0; i < 300; i++)
		strcat(deep, "{\"result\":");
	struct etcd_answer answer;
	struct etcd_notice notice;
	ck_assert_int_lt(etcd_answer_read(deep, strlen(deep), &answer, NULL, 0), 0);
	ck_assert_int_lt(etcd_notice_read(deep, strlen(deep), &notice, NULL, NULL), 0);
}
END_TEST

static char changes[200];

static bool changed(void *user, const char *key, size_t length)
{
	size_t at = strlen(changes);
	(void)snprintf(changes + at, sizeof changes - at, "%.*s ", (int)length, key);
	return user == NULL;
}

static struct etcd_notice read_notice(const char *line, int error)
{
	struct etcd_notice notice;
	changes[0] = '\0';
	ck_assert_int_eq(etcd_notice_read(line, strlen(line), &notice, changed, NULL), error);
	return notice;
}

START_TEST(notices)
{
	struct etcd_notice n = read_notice("{\"result\":{" HEADER ",\"created\":true}}", 0);
	ck_assert(n.created && !n.canceled && n.revision == 7 && n.last == 0 && n.events == 0);
	n = read_notice("{\"result\":{" HEADER ",\"events\":[{\"kv\":{\"key\":\"bW9vbjI=\",\"create_revision\":\"5\",\"mod_revision\":\"5\",\"version\":\"1\","
	                "\"value\":\"dg==\"}},{\"type\":\"DELETE\",\"kv\":{\"key\":\"bW9vbjE=\",\"mod_revision\":\"6\"}}]}}", 0);
	ck_assert(!n.created && n.last == 6 && n.events == 2 && n.revision == 7);
	ck_assert_str_eq(changes, "moon2 moon1 ");
	n = read_notice("{\"result\":{" HEADER ",\"canceled\":true,\"compact_revision\":\"6\"}}", 0);
	ck_assert(n.canceled && n.compacted);
	n = read_notice("{\"result\":{" HEADER ",\"watch_id\":\"-1\",\"created\":true,\"canceled\":true,\"cancel_reason\":\"rpc error: code = "
	                "PermissionDenied desc = etcdserver: permission denied\"}}", 0);
	ck_assert(n.created && n.canceled && !n.compacted && strstr(n.reason, "permission denied"));
	n = read_notice("{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"transport is closing\",\"http_status\":\"Service Unavailable\"}}", 0);
	ck_assert(n.failed);
	ck_assert_str_eq(n.reason, "transport is closing");
	n = read_notice("{\"error\":\"x\",\"message\":\"y\",\"code\":14}", 0);
	ck_assert(n.failed);
	n = read_notice("{\"result\":{" HEADER ",\"fragment\":true,\"events\":[{\"kv\":{\"key\":\"aw==\",\"mod_revision\":\"9\"}}]}}", 0);
	ck_assert(n.fragment && n.last == 9);
	(void)read_notice("{\"result\":{\"events\":[{\"kv\":{\"key\":\"a*\"}}]}}", NEAP_EPROTO);
	ck_assert_int_lt(etcd_notice_read("{\"result\":", 10, &n, changed, NULL), 0);
	/* who does not want any more is not told more */
	changes[0] = '\0';
	const char *two = "{\"result\":{\"events\":[{\"kv\":{\"key\":\"aw==\"}},{\"kv\":{\"key\":\"aw==\"}}]}}";
	ck_assert_int_eq(etcd_notice_read(two, strlen(two), &n, changed, changes), NEAP_ECANCELED);
	ck_assert_str_eq(changes, "k ");
}
END_TEST

#define SAID(words, code) "{\"error\":\"" words "\",\"message\":\"" words "\",\"code\":" #code "}"
static const struct {
	long status;
	const char *text;
	enum etcd_remedy remedy;
	int error;
	const char *said;
} refusals[] = {
	{404, SAID("etcdserver: requested lease not found", 5), ETCD_LEASE, NEAP_EAGAIN, "lease not found"},
	{412, SAID("etcdserver: authentication is not enabled", 9), ETCD_NO_AUTH, NEAP_EREJECTED, "not enabled"},
	{400, SAID("etcdserver: user name is empty", 3), ETCD_TOKEN, NEAP_EREJECTED, "user name is empty"},
	{400, SAID("etcdserver: authentication failed, invalid user ID or password", 3), ETCD_FAIL, NEAP_EREJECTED, "authentication failed"},
	{401, SAID("etcdserver: invalid auth token", 16), ETCD_TOKEN, NEAP_EREJECTED, "invalid auth token"},
	{400, SAID("etcdserver: revision of auth store is old", 3), ETCD_TOKEN, NEAP_EREJECTED, "old"},
	{403, SAID("etcdserver: permission denied", 7), ETCD_FAIL, NEAP_EREJECTED, "permission denied"},
	{400, SAID("etcdserver: request is too large", 3), ETCD_FAIL, NEAP_ELIMIT, "too large"},
	{429, SAID("etcdserver: mvcc: database space exceeded", 8), ETCD_FAIL, NEAP_ELIMIT, "space exceeded"},
	{429, SAID("etcdserver: too many requests", 8), ETCD_AGAIN, NEAP_EAGAIN, "too many"},
	{503, SAID("etcdserver: no leader", 14), ETCD_AGAIN, NEAP_EAGAIN, "no leader"},
	{503, SAID("etcdserver: request timed out", 14), ETCD_AGAIN, NEAP_EAGAIN, "timed out"},
	{500, SAID("?", 2), ETCD_AGAIN, NEAP_EAGAIN, "?"},
	{504, SAID("context deadline exceeded", 4), ETCD_AGAIN, NEAP_EAGAIN, "deadline"},
	{400, SAID("json: cannot unmarshal", 3), ETCD_FAIL, NEAP_EPROTO, "unmarshal"},
	{404, "Not Found\n", ETCD_FAIL, NEAP_EPROTO, "Not Found"},
	{302, "", ETCD_FAIL, NEAP_EREJECTED, ""},
	{502, "<html>bad gateway", ETCD_AGAIN, NEAP_EAGAIN, "<html>"},
	{500, "{\"error\":{\"code\":14,\"message\":\"gone\"}}", ETCD_AGAIN, NEAP_EAGAIN, "gone"},
	{0, "rpc error: code = Unauthenticated desc = etcdserver: invalid auth token", ETCD_TOKEN, NEAP_EREJECTED, "invalid auth"},
	{0, "rpc error: code = PermissionDenied desc = etcdserver: permission denied", ETCD_FAIL, NEAP_EREJECTED, "denied"},
	{0, "rpc error: code = InvalidArgument desc = etcdserver: user name is empty", ETCD_TOKEN, NEAP_EREJECTED, "empty"},
};

START_TEST(what_a_refusal_means)
{
	struct etcd_refusal refusal;
	etcd_refusal_read(refusals[_i].status, refusals[_i].text, strlen(refusals[_i].text), &refusal);
	ck_assert_msg(refusal.remedy == refusals[_i].remedy && refusal.error == refusals[_i].error, "%d %d: %s", refusal.remedy, refusal.error,
	              refusals[_i].text);
	ck_assert_msg(strstr(refusal.said, refusals[_i].said) != NULL, "%s", refusal.said);
	ck_assert_uint_gt(strlen(refusal.advice), 5);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("etcd texts");
	TCase *texts = tcase_create("texts");
	tcase_add_test(texts, requests);
	tcase_add_test(texts, values_come_back);
	tcase_add_test(texts, answers);
	tcase_add_test(texts, broken_answers);
	tcase_add_test(texts, notices);
	tcase_add_loop_test(texts, what_a_refusal_means, 0, sizeof refusals / sizeof *refusals);
	suite_add_tcase(suite, texts);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
