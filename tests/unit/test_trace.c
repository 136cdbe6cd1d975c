/* The trace ring, its dump and what a viewer is given. */
#include "fsm/trace_view.h"
#include "tests/unit/sample_fsm.h"
#include <check.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#define RECORDS 64u

static struct neap_dispatcher dispatcher;
static struct neap_machine_class class_;
static struct neap_posted queue[64];
static struct neap_trace_record control[RECORDS], data[RECORDS];
static uint64_t hits[sample_state_count * sample_event_count];
static struct neap_machine first, second;

static void nothing(struct neap_machine *machine, uint64_t argument)
{
	(void)machine;
	(void)argument;
}

static neap_action_func *const actions[sample_action_count] = {[sample_do_send] = nothing, [sample_do_tell] = nothing};

static char out[1 << 20];
static size_t out_length;

static int to_out(void *user, const void *bytes, size_t length)
{
	(void)user;
	ck_assert_uint_lt(out_length + length, sizeof out);
	memcpy(out + out_length, bytes, length);
	out_length += length;
	out[out_length] = 0;
	return NEAP_OK;
}

static void setup(void)
{
	ck_assert_int_eq(neap_trace_ring_init(&dispatcher.control_ring, control, RECORDS), 0);
	ck_assert_int_eq(neap_trace_ring_init(&dispatcher.data_ring, data, RECORDS), 0);
	ck_assert_int_eq(neap_dispatcher_init(&dispatcher, queue, 64, NULL), 0);
	ck_assert_int_eq(neap_machine_class_init(&class_, &dispatcher, &neap_fsm_sample, actions, NULL, hits), 0);
	out_length = 0;
}

static void at(uint64_t now_ns, struct neap_machine *machine, uint8_t event, uint64_t argument)
{
	dispatcher.now_ns = now_ns;
	neap_step(machine, event, argument);
}

/* first: IDLE -> ASKED at 1 us, -> RELAYED at 3.5 us, -> DONE at 10 us; second, its child, asks at 4 us and is still waiting. */
static void play(void)
{
	neap_machine_begin(&first, &class_);
	neap_machine_begin(&second, &class_);
	at(1000, &first, sample_on_ASK, 0xabc);
	at(3500, &first, sample_on_TIMEOUT, 0);
	neap_trace_relate(&first, &second);
	at(4000, &second, sample_on_ASK, 0);
	at(10000, &first, sample_on_ANSWERED, 7);
	at(12000, &first, sample_on_CLOSE, 0); /* ignored in DONE */
	ck_assert_int_eq(neap_post(&first, sample_on_CLOSE, 0), 0);
	neap_machine_end(&first);
	dispatcher.now_ns = 20000;
	neap_dispatch(&dispatcher, 0); /* stale */
}

START_TEST(ring_wants_a_power_of_two)
{
	struct neap_trace_ring ring;
	ck_assert_int_eq(neap_trace_ring_init(&ring, control, 0), NEAP_EINVAL);
	ck_assert_int_eq(neap_trace_ring_init(&ring, control, 48), NEAP_EINVAL);
	ck_assert_int_eq(neap_trace_ring_init(&ring, NULL, 64), NEAP_EINVAL);
	ck_assert_int_eq(neap_trace_ring_init(&ring, control, 1), 0);
}
END_TEST

static const char expected_text[] =
	"0.000001000 sample#1.1 IDLE -ASK-> ASKED 0xabc\n"
	"0.000003500 sample#1.1 ASKED -TIMEOUT-> RELAYED 0x0\n"
	"0.000003500 sample#1.1 RELAYED parent of sample#2\n"
	"0.000004000 sample#2.1 IDLE -ASK-> ASKED 0x0\n"
	"0.000010000 sample#1.1 RELAYED -ANSWERED-> DONE 0x7\n"
	"0.000012000 sample#1.1 DONE ignored CLOSE 0x0\n"
	"0.000020000 sample#1.2 DONE stale CLOSE 0x0\n";

START_TEST(text)
{
	play();
	ck_assert_int_eq(neap_trace_write_text(&dispatcher, to_out, NULL), 0);
	ck_assert_str_eq(out, expected_text);
}
END_TEST

START_TEST(text_of_a_full_ring)
{
	neap_machine_begin(&first, &class_);
	for (uint64_t i = 0; i < RECORDS + 10; i++)
		at(i, &first, sample_on_ANSWERED, i);
	ck_assert_int_eq(neap_trace_write_text(&dispatcher, to_out, NULL), 0);
	const char *begin = "# 10 older control records were overwritten\n0.000000010 sample#1.1 IDLE ignored ANSWERED 0xa\n";
	ck_assert_int_eq(strncmp(out, begin, strlen(begin)), 0);
	size_t lines = 0;
	for (size_t i = 0; i < out_length; i++)
		lines += out[i] == '\n';
	ck_assert_uint_eq(lines, RECORDS + 1);
}
END_TEST

/* --- Chrome ------------------------------------------------------------------------------------------------------------------- */

static json_t *load(void)
{
	json_error_t error;
	json_t *root = json_loads(out, JSON_REJECT_DUPLICATES, &error);
	ck_assert_msg(root != NULL, "line %d: %s", error.line, error.text);
	return root;
}

static const json_t *find_event(const json_t *root, const char *phase, const char *name, int tid)
{
	size_t i;
	const json_t *event, *events = json_object_get(root, "traceEvents");
	json_array_foreach(events, i, event)
		if (strcmp(json_string_value(json_object_get(event, "ph")), phase) == 0 &&
		    strcmp(json_string_value(json_object_get(event, "name")), name) == 0 &&
		    json_integer_value(json_object_get(event, "tid")) == tid)
			return event;
	ck_abort_msg("no event %s %s on track %d", phase, name, tid);
	return NULL;
}

static void is_at(const json_t *event, double ts)
{
	ck_assert_double_eq_tol(json_number_value(json_object_get(event, "ts")), ts, 1e-9);
}

static void slice_is(const json_t *root, const char *state, int tid, double ts, double duration)
{
	const json_t *slice = find_event(root, "X", state, tid);
	is_at(slice, ts);
	ck_assert_double_eq_tol(json_number_value(json_object_get(slice, "dur")), duration, 1e-9);
	ck_assert_int_eq(json_integer_value(json_object_get(slice, "pid")), 1);
}

START_TEST(chrome)
{
	play();
	ck_assert_int_eq(neap_trace_write_chrome(&dispatcher, to_out, NULL), 0);
	json_t *root = load();
	slice_is(root, "ASKED", 1, 1.0, 2.5);
	slice_is(root, "RELAYED", 1, 3.5, 6.5);
	slice_is(root, "ASKED", 2, 4.0, 16.0); /* to the end of the trace */
	is_at(find_event(root, "i", "DONE", 1), 10.0);
	is_at(find_event(root, "i", "ignored CLOSE", 1), 12.0);
	is_at(find_event(root, "i", "stale CLOSE", 1), 20.0);
	const json_t *start = find_event(root, "s", "parent of", 1), *finish = find_event(root, "f", "parent of", 2);
	is_at(start, 3.5);
	is_at(finish, 4.0);
	ck_assert(json_equal(json_object_get(start, "id"), json_object_get(finish, "id")));
	const json_t *track = json_object_get(find_event(root, "M", "thread_name", 2), "args");
	ck_assert_str_eq(json_string_value(json_object_get(track, "name")), "sample 2");
	json_decref(root);
}
END_TEST

START_TEST(chrome_of_nothing)
{
	ck_assert_int_eq(neap_trace_write_chrome(&dispatcher, to_out, NULL), 0);
	json_decref(load());
}
END_TEST

/* --- dump --------------------------------------------------------------------------------------------------------------------- */

static uint8_t dump[1 << 16];
static size_t dump_length;

static void make_dump(void)
{
	play();
	ck_assert_int_eq(neap_trace_write_dump(&dispatcher, to_out, NULL), 0);
	ck_assert_uint_le(out_length, sizeof dump);
	memcpy(dump, out, out_length);
	dump_length = out_length;
	out_length = 0;
	out[0] = 0;
}

START_TEST(dump_comes_back)
{
	make_dump();
	ck_assert_int_eq(neap_trace_decode(dump, dump_length, 0, to_out, NULL), 0);
	ck_assert_str_eq(out, expected_text);
	out_length = 0;
	ck_assert_int_eq(neap_trace_decode(dump, dump_length, 1, to_out, NULL), 0);
	char *from_dump = strdup(out);
	out_length = 0;
	ck_assert_int_eq(neap_trace_write_chrome(&dispatcher, to_out, NULL), 0);
	ck_assert_str_eq(out, from_dump);
	free(from_dump);
}
END_TEST

START_TEST(dump_cut_anywhere_is_refused)
{
	make_dump();
	for (size_t length = 0; length < dump_length; length++) {
		/* a copy of exactly that size, so that a read past its end is seen */
		uint8_t *cut = malloc(length ? length : 1);
		ck_assert_ptr_nonnull(cut);
		memcpy(cut, dump, length);
		ck_assert_int_eq(neap_trace_decode(cut, length, 0, to_out, NULL), NEAP_EPROTO);
		free(cut);
	}
	ck_assert_int_eq(neap_trace_decode(dump, dump_length + 1, 0, to_out, NULL), NEAP_EPROTO);
	ck_assert_uint_eq(out_length, 0);
}
END_TEST

START_TEST(dump_with_a_flipped_bit_is_refused)
{
	make_dump();
	for (size_t bit = 0; bit < dump_length * 8; bit++) {
		dump[bit / 8] ^= (uint8_t)(1u << bit % 8);
		ck_assert_int_eq(neap_trace_decode(dump, dump_length, 0, to_out, NULL), NEAP_EPROTO);
		dump[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	ck_assert_uint_eq(out_length, 0);
}
END_TEST

/* The same with the hash made right again: what the checks behind it are for. Decoding may succeed (a changed time), but never reads
 * outside. */
START_TEST(dump_with_a_right_hash_stays_inside)
{
	make_dump();
	unsigned refused = 0;
	for (size_t i = 24; i < dump_length; i++)
		for (unsigned value = 1; value < 256; value = value * 3 + 1) {
			uint8_t *changed = malloc(dump_length);
			ck_assert_ptr_nonnull(changed);
			memcpy(changed, dump, dump_length);
			changed[i] ^= (uint8_t)value;
			uint64_t hash = 0xcbf29ce484222325u;
			for (size_t at_ = 24; at_ < dump_length; at_++)
				hash = (hash ^ changed[at_]) * 0x100000001b3u;
			memcpy(changed + 16, &hash, sizeof hash);
			out_length = 0;
			int error = neap_trace_decode(changed, dump_length, i & 1, to_out, NULL);
			ck_assert(error == NEAP_OK || error == NEAP_EPROTO);
			refused += error == NEAP_EPROTO;
			free(changed);
		}
	ck_assert_uint_gt(refused, 100);
}
END_TEST

static int fail_at_once(void *user, const void *bytes, size_t length)
{
	(void)user;
	(void)bytes;
	(void)length;
	return NEAP_ESOCKET;
}

START_TEST(errors_come_back)
{
	play();
	ck_assert_int_eq(neap_trace_write_text(&dispatcher, fail_at_once, NULL), NEAP_ESOCKET);
	ck_assert_int_eq(neap_trace_write_chrome(&dispatcher, fail_at_once, NULL), NEAP_ESOCKET);
	ck_assert_int_eq(neap_trace_write_dump(&dispatcher, fail_at_once, NULL), NEAP_ESOCKET);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("trace");
	TCase *print = tcase_create("print"), *file = tcase_create("dump");
	tcase_add_checked_fixture(print, setup, NULL);
	tcase_add_checked_fixture(file, setup, NULL);
	tcase_add_test(print, ring_wants_a_power_of_two);
	tcase_add_test(print, text);
	tcase_add_test(print, text_of_a_full_ring);
	tcase_add_test(print, chrome);
	tcase_add_test(print, chrome_of_nothing);
	tcase_add_test(print, errors_come_back);
	tcase_add_test(file, dump_comes_back);
	tcase_add_test(file, dump_cut_anywhere_is_refused);
	tcase_add_test(file, dump_with_a_flipped_bit_is_refused);
	tcase_add_test(file, dump_with_a_right_hash_stays_inside);
	suite_add_tcase(suite, print);
	suite_add_tcase(suite, file);
	SRunner *runner = srunner_create(suite);
	srunner_set_fork_status(runner, CK_FORK); /* each test needs a process of its own */
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
