/* What the server programs are made of: the HTTP room in a libev loop, metrics as text, JSON, flags from the environment. */
#include "apps/common/flags.h"
#include "apps/common/http.h"
#include "apps/common/prometheus.h"
#include <arpa/inet.h>
#include <check.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- HTTP --------------------------------------------------------------------------------------------------------- */

static struct ev_loop *loop;
static struct app_http *http;
static struct app_http_request *kept[16];
static unsigned kept_count, canceled, released;
static bool expired;

static void echo(void *user, struct app_http_request *request)
{
	size_t length, name_length;
	const char *body = app_http_body(request, &length), *name = app_http_argument(request, "status", &name_length);
	ck_assert_ptr_eq(user, &http);
	app_http_answer(request, name ? (unsigned)strtoul(name, NULL, 10) : 200, "x/y", body, length);
}

static void on_canceled(void *user)
{
	ck_assert_ptr_eq(user, &canceled);
	canceled++;
}

static void keep(void *user, struct app_http_request *request)
{
	(void)user;
	kept[kept_count++] = request;
	app_http_on_cancel(request, on_canceled, &canceled);
}

static void on_released(void *user)
{
	ck_assert_ptr_eq(user, &released);
	released++;
}

static char big[100000];

static void from_memory(void *user, struct app_http_request *request)
{
	(void)user;
	app_http_answer_from(request, 200, APP_HTTP_TEXT, big, sizeof big, on_released, &released);
}

static void too_long(void *user, struct app_http_request *request)
{
	struct app_text text = {.max = 3};
	(void)user;
	app_text_puts(&text, "four");
	app_http_answer_text(request, 200, APP_HTTP_JSON, &text);
}

static const struct app_http_route routes[] = {
	{"GET", "/echo", echo, 0}, {"PUT", "/echo", echo, 5000}, {"GET", "/keep", keep, 0}, {"GET", "/memory", from_memory, 0},
	{"GET", "/long", too_long, 0},
};

static void open_http(struct app_http_options *options)
{
	char why[256];
	options->routes = routes;
	options->route_count = sizeof routes / sizeof routes[0];
	options->user = &http;
	loop = ev_default_loop(EVFLAG_AUTO);
	kept_count = canceled = released = 0;
	ck_assert_msg(app_http_open(&http, loop, options, why, sizeof why) == 0, "%s", why);
}

static void on_expired(struct ev_loop *loop_, ev_timer *timer, int events)
{
	(void)loop_, (void)timer, (void)events;
	expired = true;
}

/* Runs the loop once; fails the test after a while. */
static void turn(double *left_p)
{
	ev_timer timer;
	ev_timer_init(&timer, on_expired, 0.005, 0);
	ev_timer_start(loop, &timer);
	ev_run(loop, EVRUN_ONCE);
	ev_timer_stop(loop, &timer);
	if (expired)
		*left_p -= 0.005;
	expired = false;
	ck_assert_msg(*left_p > 0, "nothing happens");
}

static int dial(const char *text)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(app_http_port(http)), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	ck_assert_int_ge(fd, 0);
	ck_assert_int_eq(connect(fd, (struct sockaddr *)&address, sizeof address), 0);
	ck_assert_int_eq(fcntl(fd, F_SETFL, O_NONBLOCK), 0);
	ck_assert_int_eq(send(fd, text, strlen(text), MSG_NOSIGNAL), (ssize_t)strlen(text));
	return fd;
}

/* All that comes until the end of the connection. */
static size_t hear(int fd, char *answer, size_t size)
{
	double left = 10;
	size_t length = 0;
	for (;;) {
		ssize_t got = recv(fd, answer + length, size - 1 - length, 0);
		if (got > 0)
			length += (size_t)got;
		else if (got == 0 || errno != EAGAIN)
			break;
		else
			turn(&left);
	}
	close(fd);
	answer[length] = '\0';
	return length;
}

static void expect(const char *text, const char *start, const char *end)
{
	static char answer[200000];
	size_t length = hear(dial(text), answer, sizeof answer);
	ck_assert_msg(!strncmp(answer, start, strlen(start)), "%s\ngives\n%s", text, answer);
	ck_assert_msg(length >= strlen(end) && !strcmp(answer + length - strlen(end), end), "%s\ngives\n%s", text, answer);
}

#define TAIL " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"

START_TEST(answers)
{
	struct app_http_options options = {.bytes_max = 120000};
	open_http(&options);
	expect("GET /echo" TAIL "\r\n", "HTTP/1.1 200 ", "\r\n\r\n");
	expect("PUT /echo?status=299" TAIL "Content-Length: 4\r\n\r\nbody", "HTTP/1.1 299 ", "\r\n\r\nbody");
	expect("PUT /echo?a=1&status=2%39%39" TAIL "Transfer-Encoding: chunked\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n", "HTTP/1.1 299 ", "\r\n\r\nbody");
	expect("PUT /echo" TAIL "Content-Length: 2000000\r\n\r\n", "HTTP/1.1 413 ", "\n");
	expect("GET /memory" TAIL "\r\n", "HTTP/1.1 200 ", "");
	ck_assert_uint_eq(released, 1);
	expect("HEAD /memory" TAIL "\r\n", "HTTP/1.1 200 ", "\r\n\r\n");
	ck_assert_uint_eq(released, 2);
	expect("GET /long" TAIL "\r\n", "HTTP/1.1 503 ", "too long for this server\n");
	expect("GET /nowhere" TAIL "\r\n", "HTTP/1.1 404 ", "\n");
	expect("DELETE /echo" TAIL "\r\n", "HTTP/1.1 405 ", "\n");
	expect("GET /echo?status=%2" TAIL "\r\n", "HTTP/1.1 400 ", "\n");
	app_http_close(http);
}
END_TEST

START_TEST(later)
{
	struct app_http_options options = {0};
	static char answer[4096];
	int fds[3];
	double left = 10;
	open_http(&options);
	for (int i = 0; i < 3; i++)
		fds[i] = dial("GET /keep" TAIL "\r\n");
	while (kept_count < 3)
		turn(&left);
	close(fds[1]); /* has gone when it is answered */
	for (unsigned i = 3; i-- > 0;)
		app_http_say(kept[i], 200, "%s", "at last");
	for (int i = 0; i < 3; i += 2) {
		hear(fds[i], answer, sizeof answer);
		ck_assert_ptr_nonnull(strstr(answer, "at last\n"));
	}
	ck_assert_uint_eq(canceled, 0);
	/* those that are not answered by the end are canceled and told */
	fds[0] = dial("GET /keep" TAIL "\r\n");
	while (kept_count < 4)
		turn(&left);
	app_http_close(http);
	ck_assert_uint_eq(canceled, 1);
	hear(fds[0], answer, sizeof answer);
	ck_assert_msg(strstr(answer, " 503 ") != NULL, "%s", answer);
}
END_TEST

START_TEST(answers_have_a_bound_in_all)
{
	struct app_http_options options = {.bytes_max = 150000};
	static char answer[200000];
	double left = 10;
	open_http(&options);
	int first = dial("GET /keep" TAIL "\r\n"), second = dial("GET /keep" TAIL "\r\n");
	while (kept_count < 2)
		turn(&left);
	app_http_answer_from(kept[0], 200, APP_HTTP_TEXT, big, sizeof big, on_released, &released);
	app_http_answer_from(kept[1], 200, APP_HTTP_TEXT, big, sizeof big, on_released, &released);
	ck_assert_uint_eq(released, 1); /* the second one is refused at once */
	hear(second, answer, sizeof answer);
	ck_assert_ptr_nonnull(strstr(answer, " 503 "));
	ck_assert_uint_gt(hear(first, answer, sizeof answer), sizeof big);
	while (released < 2)
		turn(&left);
	expect("GET /memory" TAIL "\r\n", "HTTP/1.1 200 ", "");
	app_http_close(http);
}
END_TEST

START_TEST(slow_requests_end)
{
	struct app_http_options options = {.idle_seconds = 60, .request_seconds = 1};
	char answer[4096];
	open_http(&options);
	ev_now_update(loop);
	ev_tstamp began = ev_time();
	hear(dial("GET /echo HTTP/1.1\r\nHost:"), answer, sizeof answer);
	ck_assert(ev_time() - began > 0.5);
	ck_assert_ptr_null(strstr(answer, " 200 "));
	app_http_close(http);
}
END_TEST

START_TEST(places_to_listen)
{
	char why[256] = "";
	struct app_http *second;
	struct app_http_options options = {0};
	open_http(&options);
	options.port = app_http_port(http);
	ck_assert_int_ne(options.port, 0);
	ck_assert_int_eq(app_http_open(&second, loop, &options, why, sizeof why), -1);
	ck_assert_msg(strstr(why, "another process has this port") != NULL, "%s", why);
	options.address = "192.0.2.1";
	ck_assert_int_eq(app_http_open(&second, loop, &options, why, sizeof why), -1);
	options.address = "no such name";
	ck_assert_int_eq(app_http_open(&second, loop, &options, why, sizeof why), -1);
	ck_assert_ptr_null(second);
	app_http_close(second);
	app_http_close(http);
}
END_TEST

/* --- text --------------------------------------------------------------------------------------------------------- */

static const struct {
	const char *bytes, *json;
} strings[] = {
	{"", "\"\""},
	{"plain", "\"plain\""},
	{"q\"b\\", "\"q\\\"b\\\\\""},
	{"\n\t\x01\x1f\x7f", "\"\\u000a\\u0009\\u0001\\u001f\\u007f\""},
	{"\xc3\xb6\xe2\x82\xac\xf0\x9f\x90\x9a", "\"\xc3\xb6\xe2\x82\xac\xf0\x9f\x90\x9a\""},
	{"\xff", "\"\\ufffd\""},
	{"a\xc3", "\"a\\ufffd\""},                         /* cut off */
	{"\xc0\x80", "\"\\ufffd\\ufffd\""},                 /* overlong */
	{"\xed\xa0\x80", "\"\\ufffd\\ufffd\\ufffd\""},       /* a surrogate */
	{"\xf4\x90\x80\x80", "\"\\ufffd\\ufffd\\ufffd\\ufffd\""}, /* beyond the last */
	{"\x80x", "\"\\ufffdx\""},
};

START_TEST(json_strings)
{
	struct app_text text = {.max = 1000};
	app_text_json(&text, strings[_i].bytes, strlen(strings[_i].bytes));
	ck_assert_str_eq(text.bytes, strings[_i].json);
	app_text_release(&text);
}
END_TEST

START_TEST(text_ends_at_its_bound)
{
	struct app_text text = {.max = 10};
	app_text_puts(&text, "12345");
	app_text_puts(&text, "67890");
	ck_assert(!text.full);
	app_text_puts(&text, "");
	ck_assert(!text.full);
	app_text_puts(&text, "x");
	ck_assert(text.full);
	ck_assert_str_eq(text.bytes, "1234567890");
	app_text_release(&text);
	ck_assert(!text.full);
	app_text_json(&text, "a\0b", 3);
	ck_assert_str_eq(text.bytes, "\"a\\u0000b\""); /* just so long */
	app_text_release(&text);
}
END_TEST

START_TEST(prometheus_text)
{
	static const uint32_t upper[] = {10, 20};
	static const uint64_t buckets[] = {1, 2, 4};
	struct neap_metric_histogram histogram = {.upper = upper, .bounds = 2, .buckets = buckets, .count = 7, .sum = 99};
	struct app_prometheus out = {.text.max = 10000};
	app_prometheus_add(&out, &(struct neap_metric){.name = "a", .help = "One\nline \\ two", .labels = "", .kind = NEAP_METRIC_GAUGE, .value = 5});
	app_prometheus_add(&out, &(struct neap_metric){.name = "b", .help = "B", .labels = "x=\"1\"", .kind = NEAP_METRIC_COUNTER, .value = 6});
	app_prometheus_add(&out, &(struct neap_metric){
		.name = "b", .help = "B", .labels = "x=\"2\"", .kind = NEAP_METRIC_COUNTER, .value = UINT64_MAX});
	app_prometheus_add(&out, &(struct neap_metric){.name = "h", .help = "H", .labels = "", .kind = NEAP_METRIC_HISTOGRAM, .histogram = &histogram});
	app_prometheus_add(&out, &(struct neap_metric){
		.name = "h", .help = "H", .labels = "y=\"z\"", .kind = NEAP_METRIC_HISTOGRAM, .histogram = &histogram});
	ck_assert_str_eq(out.text.bytes,
	                 "# HELP a One\\nline \\\\ two\n# TYPE a gauge\na 5\n# HELP b B\n# TYPE b counter\nb{x=\"1\"} 6\n"
	                 "b{x=\"2\"} 18446744073709551615\n# HELP h H\n# TYPE h histogram\nh_bucket{le=\"10\"} 1\nh_bucket{le=\"20\"} 3\n"
	                 "h_bucket{le=\"+Inf\"} 7\nh_sum 99\nh_count 7\nh_bucket{y=\"z\",le=\"10\"} 1\nh_bucket{y=\"z\",le=\"20\"} 3\n"
	                 "h_bucket{y=\"z\",le=\"+Inf\"} 7\nh_sum{y=\"z\"} 99\nh_count{y=\"z\"} 7\n");
	app_text_release(&out.text);
}
END_TEST

START_TEST(labels_are_escaped)
{
	char out[16];
	ck_assert_str_eq(app_prometheus_escape("a\"b\\c\nd", out, sizeof out), "a\\\"b\\\\c\\nd");
	ck_assert_str_eq(app_prometheus_escape("\xc3\xb6\xff", out, sizeof out), "\xc3\xb6?");
	app_prometheus_escape("\xf0\x9f\x90\x9a\xf0\x9f\x90\x9a\xf0\x9f\x90\x9a\xf0\x9f\x90\x9a", out, sizeof out);
	ck_assert_uint_eq(strlen(out) % 4, 0); /* cut between two */
	ck_assert_uint_lt(strlen(out), sizeof out);
}
END_TEST

/* --- flags -------------------------------------------------------------------------------------------------------- */

static uint64_t number;
static const char *text_value;
static const struct app_flag flag_table[] = {
	{"some_number", APP_FLAG_NUMBER, &number, NULL, 1, 9, "a number"},
	{"text", APP_FLAG_TEXT, &text_value, NULL, 0, 0, "a text"},
};
static const struct app_foreign_flag foreign[] = {{"ha", true, "no reason"}, {"threads", false, NULL}, {"store", false, "elsewhere"}};
static const struct app_program program = {
	.name = "test", .flags = flag_table, .flag_count = 2, .foreign = foreign, .foreign_count = 3, .environment = "NEAP_TEST_"};

static int parse(const char *first, const char *second)
{
	char *argv[] = {(char *)(uintptr_t)"test", (char *)(uintptr_t)first, (char *)(uintptr_t)second, NULL};
	number = 0;
	return app_flags_parse(&program, 1 + (first != NULL) + (second != NULL), argv);
}

START_TEST(flags_from_the_environment)
{
	ck_assert_int_eq(setenv("NEAP_TEST_SOME_NUMBER", "7", 1), 0);
	ck_assert_int_eq(parse(NULL, NULL), -1);
	ck_assert_uint_eq(number, 7);
	ck_assert_int_eq(parse("--some_number", "8"), -1);
	ck_assert_uint_eq(number, 8);
	ck_assert_int_eq(setenv("NEAP_TEST_SOME_NUMBER", "10", 1), 0);
	ck_assert_int_eq(parse(NULL, NULL), APP_USAGE);
	ck_assert_int_eq(setenv("NEAP_TEST_SOME_NUMBER", "", 1), 0);
	ck_assert_int_eq(parse(NULL, NULL), -1);
	ck_assert_uint_eq(number, 0);
}
END_TEST

START_TEST(flags_of_other_programs)
{
	ck_assert_int_eq(unsetenv("NEAP_TEST_SOME_NUMBER"), 0);
	ck_assert_int_eq(parse("--ha", NULL), APP_USAGE);
	ck_assert_int_eq(parse("--ha=true", NULL), APP_USAGE);
	ck_assert_int_eq(parse("--ha=false", "--some_number=3"), -1);
	ck_assert_uint_eq(number, 3);
	ck_assert_int_eq(parse("--threads", "4"), -1);
	ck_assert_int_eq(parse("--threads=4", "--some-number=4"), -1);
	ck_assert_uint_eq(number, 4);
	ck_assert_int_eq(parse("--store", "x"), APP_USAGE);
	ck_assert_int_eq(parse("--store=", NULL), -1);
	ck_assert_int_eq(parse("--stores=", NULL), APP_USAGE);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("program http");
	TCase *server = tcase_create("http"), *texts = tcase_create("text"), *flags = tcase_create("flags");
	tcase_add_test(server, answers);
	tcase_add_test(server, later);
	tcase_add_test(server, answers_have_a_bound_in_all);
	tcase_add_test(server, slow_requests_end);
	tcase_add_test(server, places_to_listen);
	tcase_set_timeout(server, 30);
	tcase_add_loop_test(texts, json_strings, 0, (int)(sizeof strings / sizeof strings[0]));
	tcase_add_test(texts, text_ends_at_its_bound);
	tcase_add_test(texts, prometheus_text);
	tcase_add_test(texts, labels_are_escaped);
	tcase_add_test(flags, flags_from_the_environment);
	tcase_add_test(flags, flags_of_other_programs);
	suite_add_tcase(suite, server);
	suite_add_tcase(suite, texts);
	suite_add_tcase(suite, flags);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
