/* The choice of paths: both ends by name, near before far, even among equals, elsewhere after a failure. */
#include "transports/topology/paths.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_topology *topology;
static struct neap_descriptor *peer;
static struct neap_path_side local, remote;
static char why[256];

static void begin(void)
{
	topology = neap_topology_new();
	peer = NULL;
}

static void end(void)
{
	neap_topology_free(topology);
	neap_descriptor_free(peer);
}

/* Our devices are n0..n3, two at each node. */
static void four_of_ours(void)
{
	static const char matrix[] = "{\"cpu:0\": [[\"n0\", \"n1\"], [\"n2\", \"n3\"]], \"cpu:1\": [[\"n2\", \"n3\"], [\"n0\", \"n1\"]]}";
	for (int i = 0; i < 4; i++) {
		char name[8];
		snprintf(name, sizeof name, "n%d", i);
		neap_topology_add_device(topology, name);
	}
	ck_assert_int_eq(neap_topology_read(topology, matrix, strlen(matrix), why, sizeof why), 0);
}

/* A peer's document with these devices (a space between names) and this matrix. */
static void peer_is(const char *devices, const char *matrix)
{
	char text[4096], name[64];
	int at = sprintf(text, "{\"protocol\":\"rdma\",\"name\":\"p:1\",\"buffers\":[],\"devices\":["), used;
	for (const char *comma = ""; sscanf(devices, "%63s%n", name, &used) == 1; devices += used, comma = ",")
		at += sprintf(text + at, "%s{\"name\":\"%s\",\"lid\":0,\"gid\":\"0:0:0:0:0:0:0:0:0:0:ff:ff:a:0:0:1\"}", comma, name);
	sprintf(text + at, "]%s%s}", *matrix ? ",\"priority_matrix\":" : "", matrix);
	neap_descriptor_free(peer);
	int error = neap_descriptor_decode(text, strlen(text), &peer, why, sizeof why);
	ck_assert_msg(error == 0, "%s: %s", text, why);
}

/* "n0 n1 | n2": preferred, then available; and the names are those of the indices */
static const char *shown(const struct neap_path_side *side, bool ours)
{
	static char text[1024];
	char *to = text;
	*to = '\0';
	for (uint32_t i = 0; i < side->count; i++) {
		to += sprintf(to, "%s%s%s", i ? " " : "", i == side->preferred ? "| " : "", side->names[i]);
		ck_assert_str_eq(side->names[i], ours ? topology->devices[side->device[i]].name : peer->devices[side->device[i]].name);
	}
	return text;
}

static const char *ours(const char *location, int32_t node)
{
	neap_path_local(topology, location, node, &local);
	return shown(&local, true);
}

static const char *theirs(const char *location)
{
	neap_path_remote(peer, location, &remote);
	return shown(&remote, false);
}

static const char *named(struct neap_path path)
{
	static char text[64];
	snprintf(text, sizeof text, "%s-%s", topology->devices[path.local].name, peer->devices[path.remote].name);
	return text;
}

/* --- the ends */

START_TEST(our_end)
{
	four_of_ours();
	ck_assert_str_eq(ours("cpu:0", -1), "n0 n1 | n2 n3");
	ck_assert_str_eq(ours("cpu:0", 1), "n0 n1 | n2 n3"); /* what was said counts, not what was found */
	ck_assert_str_eq(ours("*", 1), "n2 n3 | n0 n1");
	ck_assert_str_eq(ours("*", -1), "n0 n1 n2 n3");
	ck_assert_str_eq(ours("cuda:3", -1), "n0 n1 n2 n3");
	ck_assert_str_eq(ours("cuda:3", 7), "n0 n1 n2 n3");
	neap_topology_lose(topology, 0, "gone");
	ck_assert_str_eq(ours("cpu:0", -1), "n1 | n2 n3");
	neap_topology_lose(topology, 1, "gone");
	ck_assert_str_eq(ours("cpu:0", -1), "| n2 n3");
	neap_topology_regain(topology, 0);
	ck_assert_str_eq(ours("cpu:0", -1), "n0 | n2 n3");
	for (uint32_t i = 0; i < 4; i++)
		neap_topology_lose(topology, i, "gone");
	ck_assert_str_eq(ours("cpu:0", 0), "");
}
END_TEST

START_TEST(our_end_by_a_file)
{
	static const char matrix[] = "{\"cpu:0\": [[\"a\"], []], \"cuda:0\": [[], []], \"*\": [[\"b\"], [\"a\"]]}";
	neap_topology_add_device(topology, "a");
	neap_topology_add_device(topology, "b");
	ck_assert_int_eq(neap_topology_read(topology, matrix, strlen(matrix), why, sizeof why), 0);
	ck_assert_str_eq(ours("*", -1), "b | a");
	ck_assert_str_eq(ours("*", 0), "a");
	ck_assert_str_eq(ours("cuda:0", -1), "b | a"); /* a row that says nothing is none */
}
END_TEST

START_TEST(their_end_by_name)
{
	peer_is("r1 r0", "{\"cpu:0\":[[\"r0\"],[\"r1\"]],\"cpu:1\":[[\"r1\"],[\"r0\"]]}");
	ck_assert_str_eq(theirs("cpu:0"), "r0 | r1");
	ck_assert_uint_eq(remote.device[0], 1); /* the index of its key */
	ck_assert_str_eq(theirs("cpu:1"), "r1 | r0");
	ck_assert_str_eq(theirs("*"), "r0 r1");
	ck_assert_str_eq(theirs("cuda:0"), "r0 r1");
}
END_TEST

/* rdma-observed 6, the last row: rxe9 is a placeholder with rkey 0 */
START_TEST(what_no_row_names_is_dead)
{
	peer_is("rxe9 rxe0", "{\"cpu:0\":[[\"rxe0\"],[]]}");
	ck_assert_str_eq(theirs("cpu:0"), "rxe0");
	ck_assert_uint_eq(remote.device[0], 1);
	ck_assert_str_eq(theirs("*"), "rxe0");
	ck_assert_str_eq(theirs("cpu:1"), "rxe0");
}
END_TEST

START_TEST(matrices_of_little_use)
{
	peer_is("a b", "");
	ck_assert_str_eq(theirs("cpu:0"), "a b");
	peer_is("a b", "null");
	ck_assert_str_eq(theirs("*"), "a b");
	peer_is("a b", "{\"cpu:0\":[[\"a\"]]}"); /* the decoder leaves a bad one out */
	ck_assert_str_eq(theirs("cpu:0"), "a b");
	peer_is("a b", "{\"cpu:0\":[[\"x\"],[\"y\"]]}");
	ck_assert_str_eq(theirs("cpu:0"), "a b");
	peer_is("a b", "{\"cpu:0\":[[],[]],\"cpu:1\":[[\"b\"],[]]}");
	ck_assert_str_eq(theirs("cpu:0"), "b");
	peer_is("a b a", "{\"cpu:0\":[[\"a\",\"a\",\"b\"],[\"a\",\"c\"]]}");
	ck_assert_str_eq(theirs("cpu:0"), "a b");
	ck_assert_uint_eq(remote.device[0], 0);
	peer_is("", "{\"cpu:0\":[[\"a\"],[]]}");
	ck_assert_str_eq(theirs("cpu:0"), "");
}
END_TEST

START_TEST(locations)
{
	static const struct {
		const char *name;
		uint64_t offset, length;
		const char *wanted;
	} cases[] = {
		{"cpu:3", 5, 10, "cpu:3"}, {"*", 0, 1, "*"}, {"cuda:11", 0, 1, "cuda:11"}, {"", 0, 1, ""},
		{"segments:4096:0,1", 0, 8192, "cpu:0"}, {"segments:4096:0,1", 4095, 8192, "cpu:0"}, {"segments:4096:0,1", 4096, 8192, "cpu:1"},
		{"segments:4096:0,1,5", 99, 100, "cpu:5"}, /* 33 each; the last one has the rest */
		{"segments:4096:7", 99, 100, "cpu:7"}, {"segments:4096:0,,1", 99, 100, "cpu:1"}, {"segments:4096:0,1,", 99, 100, "cpu:1"},
		{"segments:4096:0,1", 0, 1, "*"}, {"segments:4096:", 0, 100, "*"}, {"segments:4096", 0, 100, "*"}, {"segments:", 0, 100, "*"},
		{"segments:x:0,1", 0, 100, "*"}, {"segments:4096:0,x", 0, 100, "*"}, {"segments:4096:-1", 0, 100, "*"},
		{"segments:4096:99999999999", 0, 100, "*"}, {"segments:4096:0 1", 0, 100, "*"},
		{"segments:4096:0,1", UINT64_MAX, UINT64_MAX, "cpu:1"},
		{"a location that is longer than one may be", 0, 1, "*"},
	};
	for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
		char location[NEAP_TOPOLOGY_LOCATION_SIZE];
		neap_location_at(cases[i].name, cases[i].offset, cases[i].length, location);
		ck_assert_msg(strcmp(location, cases[i].wanted) == 0, "%s: %s, not %s", cases[i].name, location, cases[i].wanted);
	}
}
END_TEST

/* --- the choice */

static struct neap_path_question question;

static void four_and_four(void)
{
	four_of_ours();
	peer_is("n3 n2 n1 n0", "{\"cpu:0\":[[\"n0\",\"n1\"],[\"n2\",\"n3\"]],\"cpu:1\":[[\"n2\",\"n3\"],[\"n0\",\"n1\"]]}");
	ours("cpu:0", -1);
	theirs("cpu:1");
	question = (struct neap_path_question){.local = &local, .remote = &remote};
}

static const char *chosen(void)
{
	struct neap_path path;
	return neap_path_choose(&question, &path) ? named(path) : "none";
}

/* One of each 16 pairs by a random number each: how often each came. */
static void count_choices(uint32_t rounds, uint32_t counts[4][4])
{
	memset(counts, 0, 16 * sizeof **counts);
	for (uint32_t i = 0; i < rounds; i++) {
		struct neap_path path;
		question.random = i;
		ck_assert(neap_path_choose(&question, &path));
		counts[path.local][path.remote]++;
	}
}

START_TEST(near_and_even)
{
	uint32_t counts[4][4];
	four_and_four();
	count_choices(4000, counts);
	/* ours n0, n1 (0, 1), theirs n2, n3 (1, 0), each pair about 1000 times */
	for (int i = 0; i < 4; i++)
		for (int k = 0; k < 4; k++)
			ck_assert_msg(i < 2 && k < 2 ? counts[i][k] > 850 && counts[i][k] < 1150 : counts[i][k] == 0, "%d-%d: %u", i, k, counts[i][k]);
}
END_TEST

static bool no_first_pair(void *user, struct neap_path path)
{
	(void)user;
	return path.local == 0 && path.remote == 0;
}

START_TEST(even_among_those_that_are_left)
{
	uint32_t counts[4][4];
	four_and_four();
	question.paused = no_first_pair;
	count_choices(3000, counts);
	ck_assert_uint_eq(counts[0][0], 0);
	ck_assert(counts[0][1] > 850 && counts[1][0] > 850 && counts[1][1] > 850);
}
END_TEST

START_TEST(the_least_busy)
{
	uint64_t here[4] = {4096, 0, 0, 0}, there[4] = {0, 65536, 0, 0};
	four_and_four();
	question.local_bytes = here;
	question.remote_bytes = there;
	ck_assert_str_eq(chosen(), "n1-n3");
	here[1] = 70000; /* n0-n3 4096, n0-n2 69632, n1-n3 70000 */
	ck_assert_str_eq(chosen(), "n0-n3");
	there[0] = UINT64_MAX; /* sums do not wrap */
	ck_assert_str_eq(chosen(), "n0-n2");
	here[0] = here[1] = there[1] = UINT64_MAX;
	ck_assert_str_ne(chosen(), "none"); /* and nearness comes before idleness */
	ck_assert_ptr_nonnull(strstr("n0-n2 n0-n3 n1-n2 n1-n3", chosen()));
}
END_TEST

START_TEST(load_spreads_itself)
{
	uint64_t here[4] = {0}, there[4] = {0};
	four_and_four();
	question.local_bytes = here;
	question.remote_bytes = there;
	for (uint32_t i = 0; i < 1000; i++) {
		struct neap_path path;
		question.random = i;
		ck_assert(neap_path_choose(&question, &path));
		here[path.local] += 65536;
		there[path.remote] += 65536;
	}
	ck_assert_uint_eq(here[0], here[1]);
	ck_assert_uint_eq(there[0], there[1]);
}
END_TEST

START_TEST(rails)
{
	four_and_four();
	theirs("cpu:0");
	question.same_name = true;
	for (question.random = 0; question.random < 100; question.random++) {
		const char *path = chosen();
		ck_assert_msg(strcmp(path, "n0-n0") == 0 || strcmp(path, "n1-n1") == 0, "%s", path);
	}
	theirs("cpu:1"); /* nearness comes before the name */
	ck_assert_ptr_nonnull(strstr("n0-n2 n0-n3 n1-n2 n1-n3", chosen()));
}
END_TEST

struct rails_down {
	uint32_t local, remote; /* bits */
};

static bool is_down(void *user, struct neap_path path)
{
	const struct rails_down *down = user;
	return (down->local >> path.local & 1) || (down->remote >> path.remote & 1);
}

START_TEST(paused_rails)
{
	struct rails_down down = {.local = 3}; /* n0, n1 */
	four_and_four();
	question.paused = is_down;
	question.user = &down;
	ck_assert_ptr_nonnull(strstr("n2-n2 n2-n3 n3-n2 n3-n3", chosen()));
	down.remote = 3; /* n3, n2 */
	ck_assert_ptr_nonnull(strstr("n2-n0 n2-n1 n3-n0 n3-n1", chosen()));
	down = (struct rails_down){.remote = 3};
	ck_assert_ptr_nonnull(strstr("n0-n0 n0-n1 n1-n0 n1-n1", chosen()));
	down.remote = 15;
	ck_assert_str_eq(chosen(), "none");
}
END_TEST

/* Each of the 16 paths is tried before one is tried again, and each next one leaves both devices of the last behind while it can. */
START_TEST(each_retry_goes_elsewhere)
{
	struct neap_path tried[17];
	four_and_four();
	question.random = (uint64_t)_i;
	question.tried = tried;
	for (uint32_t n = 0; n < 16; n++) {
		question.tried_count = n;
		ck_assert(neap_path_choose(&question, &tried[n]));
		for (uint32_t i = 0; i < n; i++)
			ck_assert_msg(memcmp(&tried[i], &tried[n], sizeof *tried) != 0, "try %u is try %u", n, i);
		if (n == 0 || n == 1)
			ck_assert(tried[n].local < 2 && tried[n].remote < 2);
		if (n == 1)
			ck_assert(tried[1].local != tried[0].local && tried[1].remote != tried[0].remote);
	}
	question.tried_count = 16; /* all were: still somewhere else than the last time */
	ck_assert(neap_path_choose(&question, &tried[16]));
	ck_assert(tried[16].local != tried[15].local && tried[16].remote != tried[15].remote);
}
END_TEST

START_TEST(a_single_path_is_tried_again)
{
	static const char matrix[] = "{\"cpu:0\": [[\"a\"], []]}";
	struct neap_path tried[3] = {{0, 0}, {0, 0}, {0, 0}};
	neap_topology_add_device(topology, "a");
	ck_assert_int_eq(neap_topology_read(topology, matrix, strlen(matrix), why, sizeof why), 0);
	peer_is("b", "{\"cpu:0\":[[\"b\"],[]]}");
	ours("cpu:0", -1);
	theirs("cpu:0");
	question = (struct neap_path_question){.local = &local, .remote = &remote, .tried = tried, .tried_count = 3};
	ck_assert_str_eq(chosen(), "a-b");
	remote.count = remote.preferred = 0;
	ck_assert_str_eq(chosen(), "none");
}
END_TEST

START_TEST(ranked)
{
	struct neap_path paths[20];
	four_and_four();
	ck_assert_uint_eq(neap_path_rank(&question, paths, 20), 16);
	for (uint32_t i = 0; i < 16; i++) {
		uint32_t far_here = paths[i].local >= 2, far_there = paths[i].remote >= 2;
		ck_assert_uint_eq(i / 4, far_here * 2 + far_there);
	}
	ck_assert_uint_eq(neap_path_rank(&question, paths, 3), 3);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("paths");
	TCase *ends = tcase_create("ends"), *choice = tcase_create("choice");
	tcase_add_checked_fixture(ends, begin, end);
	tcase_add_checked_fixture(choice, begin, end);
	tcase_add_test(ends, our_end);
	tcase_add_test(ends, our_end_by_a_file);
	tcase_add_test(ends, their_end_by_name);
	tcase_add_test(ends, what_no_row_names_is_dead);
	tcase_add_test(ends, matrices_of_little_use);
	tcase_add_test(ends, locations);
	tcase_add_test(choice, near_and_even);
	tcase_add_test(choice, even_among_those_that_are_left);
	tcase_add_test(choice, the_least_busy);
	tcase_add_test(choice, load_spreads_itself);
	tcase_add_test(choice, rails);
	tcase_add_test(choice, paused_rails);
	tcase_add_loop_test(choice, each_retry_goes_elsewhere, 0, 20);
	tcase_add_test(choice, a_single_path_is_tried_again);
	tcase_add_test(choice, ranked);
	suite_add_tcase(suite, ends);
	suite_add_tcase(suite, choice);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
