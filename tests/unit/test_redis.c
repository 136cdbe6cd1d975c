/* The Redis back-end's machines against a driver that does as it is told, on virtual time; and what error replies mean. */
#include "metadata/redis.h"
#include "tests/support/coverage.h"
#include "tests/support/script_names.h"
#include <check.h>
#include <stdio.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define WIRES 32

/* --- a driver, and a resolver, that do as they are told --------------------------------------------------------------- */

struct neap_redis_wire {
	const struct neap_redis_events *events;
	void *user;
	char address[64], said[64][600];
	uint32_t count, seen;
	bool open;
};

static struct {
	struct script_names names;
	struct neap_reactor *reactor;
	struct neap_backend *backend;
	uint64_t now_ns;
	struct neap_redis_wire wires[WIRES];
	uint32_t wire_count;
	int refuse_connect, refuse_command;
} rig;

static struct neap_redis_wire *fake_connect(const struct neap_redis_driver *driver, struct neap_reactor *reactor, const char *address,
                                            uint16_t port, const struct neap_redis_events *events, void *user, char *why, size_t why_size)
{
	(void)driver, (void)reactor;
	if (rig.refuse_connect) {
		(void)snprintf(why, why_size, "no descriptors");
		return NULL;
	}
	ck_assert_uint_lt(rig.wire_count, WIRES);
	struct neap_redis_wire *wire = &rig.wires[rig.wire_count++];
	*wire = (struct neap_redis_wire){.events = events, .user = user, .open = true};
	(void)snprintf(wire->address, sizeof wire->address, "%s %u", address, port);
	return wire;
}

static int say(struct neap_redis_wire *wire, int count, const char *const *words, const size_t *lengths)
{
	ck_assert(wire->open && wire->count < 64);
	if (rig.refuse_command)
		return NEAP_ENOMEM;
	char *line = wire->said[wire->count++];
	size_t at = 0;
	for (int i = 0; i < count; i++)
		at += (size_t)snprintf(line + at, sizeof wire->said[0] - at, "%s%.*s", i ? " " : "", (int)lengths[i], words[i]);
	return NEAP_OK;
}

static int subscribe(struct neap_redis_wire *wire, const char *channel)
{
	const char *words[] = {"SUBSCRIBE", channel};
	const size_t lengths[] = {9, strlen(channel)};
	return say(wire, 2, words, lengths);
}

static void fake_close(struct neap_redis_wire *wire)
{
	ck_assert(wire->open);
	wire->open = false;
}

static const struct neap_redis_driver driver = {.connect = fake_connect, .command = say, .subscribe = subscribe, .close = fake_close};

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

static void open_rig(const struct neap_redis_options *given)
{
	struct neap_redis_options options = *given;
	memset(&rig, 0, sizeof rig);
	script_names_open(&rig.names, "redis.test");
	rig.now_ns = 1000 * MS;
	struct neap_reactor_options reactor = {.net = &rig.names.net};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &reactor), 0);
	turn();
	if (!options.server.host[0])
		options.server = (struct neap_host_port){.host = "10.0.0.1", .port = 6379, .has_port = true};
	options.calls_max = options.calls_max ? options.calls_max : 8;
	ck_assert_int_eq(neap_redis_create(&rig.backend, rig.reactor, &options, &driver), 0);
}

static void close_rig(void)
{
	if (rig.backend)
		rig.backend->ops->destroy(rig.backend);
	turn();
	for (uint32_t i = 0; i < rig.wire_count; i++)
		ck_assert(!rig.wires[i].open);
	ck_assert(!rig.names.resolving);
	neap_reactor_stop(rig.reactor);
	for (int i = 0; i < 100 && neap_reactor_run_at(rig.reactor, rig.now_ns += MS, NULL) != NEAP_RUN_STOPPED; i++)
		;
	ck_assert_int_eq(support_reactor_destroy(rig.reactor), 0);
}

static struct neap_redis_wire *wire(void)
{
	ck_assert_uint_gt(rig.wire_count, 0);
	return &rig.wires[rig.wire_count - 1];
}

/* The next thing said on a connection is this. */
static void heard_on(struct neap_redis_wire *on, const char *line)
{
	ck_assert_msg(on->seen < on->count, "nothing was said, not %s", line);
	ck_assert_str_eq(on->said[on->seen++], line);
}

static void heard(const char *line)
{
	heard_on(wire(), line);
}

static void answer_on(struct neap_redis_wire *on, enum neap_redis_kind kind, const char *text, int64_t integer)
{
	struct neap_redis_reply reply = {.kind = kind, .integer = integer, .text = text, .length = text ? strlen(text) : 0};
	ck_assert(on->open);
	on->events->replied(on->user, &reply);
	turn();
}

static void answer(enum neap_redis_kind kind, const char *text)
{
	answer_on(wire(), kind, text, 0);
}

static void connected(void)
{
	wire()->events->connected(wire()->user);
	turn();
}

static void drop_wire(struct neap_redis_wire *on, const char *why)
{
	ck_assert(on->open);
	on->open = false;
	on->events->closed(on->user, why);
	turn();
}

static void get_ready(void)
{
	connected();
	heard("PING");
	answer(NEAP_REDIS_STATUS, "PONG");
}

struct asked {
	int error, times;
	uint64_t call;
	char value[600], why[600];
	void (*then)(struct asked *asked);
};

static void answered(void *user, int error, const char *value, size_t length, const char *why)
{
	struct asked *asked = user;
	asked->times++;
	asked->error = error;
	(void)snprintf(asked->value, sizeof asked->value, "%.*s", (int)length, value ? value : "");
	(void)snprintf(asked->why, sizeof asked->why, "%s", why);
	if (asked->then)
		asked->then(asked);
}

static int try_get(struct asked *asked, const char *key)
{
	asked->times = 0;
	return rig.backend->ops->get(rig.backend, key, 3000 * MS, answered, asked, &asked->call);
}

static void get(struct asked *asked, const char *key)
{
	asked->then = NULL;
	ck_assert_int_eq(try_get(asked, key), 0);
	turn();
	ck_assert_int_eq(asked->times, 0);
}

static void expect(const struct asked *asked, int error, const char *text)
{
	ck_assert_int_eq(asked->times, 1);
	ck_assert_msg(asked->error == error, "%d: %s", asked->error, asked->why);
	ck_assert_msg(strstr(error ? asked->why : asked->value, text) != NULL, "%s %s", asked->why, asked->value);
}

/* --- commands ------------------------------------------------------------------------------------------------------------ */

START_TEST(commands_and_their_answers)
{
	struct asked a = {0};
	struct neap_backend *b;
	open_rig(&(struct neap_redis_options){0});
	b = rig.backend;
	ck_assert_uint_eq(rig.wire_count, 0); /* nothing is sent before it is needed */
	get(&a, "k");
	ck_assert_str_eq(wire()->address, "10.0.0.1 6379");
	get_ready();
	heard("GET k");
	answer(NEAP_REDIS_STRING, "v");
	expect(&a, 0, "v");
	get(&a, "k");
	heard("GET k");
	answer(NEAP_REDIS_NIL, NULL);
	expect(&a, NEAP_EMETADATA, "redis://10.0.0.1:6379: there is no such key");
	static const struct {
		bool create;
		uint64_t lease_ns;
		const char *said;
		enum neap_redis_kind kind;
		const char *text;
		int error;
	} sets[] = {
		{false, 0, "SET k v w", NEAP_REDIS_STATUS, "OK", 0},
		{true, 0, "SET k v w NX", NEAP_REDIS_STATUS, "OK", 0},
		{true, 5000 * MS, "SET k v w NX PX 5000", NEAP_REDIS_NIL, NULL, NEAP_ETAKEN},
		{false, 1, "SET k v w PX 1", NEAP_REDIS_NIL, NULL, NEAP_EPROTO},
	};
	for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
		struct neap_backend_set set = {.key = "k", .value = "v w", .length = 3, .create = sets[i].create, .lease_ns = sets[i].lease_ns};
		a = (struct asked){0};
		ck_assert_int_eq(b->ops->set(b, &set, 3000 * MS, answered, &a, &a.call), 0);
		turn();
		heard(sets[i].said);
		answer(sets[i].kind, sets[i].text);
		expect(&a, sets[i].error, "");
		if (sets[i].error == NEAP_EPROTO) { /* who answers like that is no Redis server */
			ck_assert(!wire()->open);
			pass(1000 * MS);
			get_ready();
		}
	}
	for (int i = 0; i < 3; i++) {
		a = (struct asked){0};
		if (i == 0)
			ck_assert_int_eq(b->ops->remove(b, "k", 3000 * MS, answered, &a, &a.call), 0);
		else
			ck_assert_int_eq(b->ops->touch(b, "k", i == 1 ? 0 : 7000 * MS, 3000 * MS, answered, &a, &a.call), 0);
		turn();
		heard(i == 0 ? "DEL k" : i == 1 ? "EXISTS k" : "PEXPIRE k 7000");
		answer_on(wire(), NEAP_REDIS_INTEGER, NULL, i == 2);
		expect(&a, i == 1 ? NEAP_EMETADATA : 0, "");
	}
	/* many at once: answers in order */
	struct asked many[8] = {0};
	char key[8];
	for (int i = 0; i < 8; i++) {
		(void)snprintf(key, sizeof key, "k%d", i);
		get(&many[i], key);
	}
	ck_assert_int_eq(try_get(&a, "k8"), NEAP_EAGAIN); /* calls_max */
	for (int i = 0; i < 8; i++) {
		(void)snprintf(key, sizeof key, "k%d", i);
		answer(NEAP_REDIS_STRING, key);
		expect(&many[i], 0, key);
	}
	close_rig();
}
END_TEST

START_TEST(what_is_refused_at_the_door)
{
	struct asked a = {0};
	char key[NEAP_BACKEND_KEY_MAX + 1];
	open_rig(&(struct neap_redis_options){0});
	memset(key, 'k', sizeof key);
	key[NEAP_BACKEND_KEY_MAX] = '\0';
	ck_assert_int_eq(try_get(&a, key), NEAP_ELIMIT);
	ck_assert_int_eq(try_get(&a, ""), NEAP_EINVAL);
	struct neap_backend_set set = {.key = "k", .value = "v", .length = NEAP_REDIS_VALUE_MAX + 1};
	ck_assert_int_eq(rig.backend->ops->set(rig.backend, &set, MS, answered, &a, &a.call), NEAP_ELIMIT);
	set.length = 1;
	set.key = "";
	ck_assert_int_eq(rig.backend->ops->set(rig.backend, &set, MS, answered, &a, &a.call), NEAP_EINVAL);
	close_rig();
}
END_TEST

/* --- making a connection ready --------------------------------------------------------------------------------------------- */

START_TEST(auth_and_select_on_each_connection)
{
	static const struct {
		const char *user, *password, *auth;
		uint32_t database;
	} rows[] = {
		{NULL, "p w\"@:/#%", "AUTH p w\"@:/#%", 0}, {"me", "secret", "AUTH me secret", 3}, {"me", NULL, NULL, 15}, {"", "", NULL, 0}};
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.username = rows[_i].user, .password = rows[_i].password, .database = rows[_i].database});
	for (int i = 0; i < 2; i++) {
		char select[32];
		get(&a, "k");
		connected();
		if (rows[_i].auth) {
			heard(rows[_i].auth);
			answer(NEAP_REDIS_STATUS, "OK");
		}
		if (rows[_i].database) {
			(void)snprintf(select, sizeof select, "SELECT %u", rows[_i].database);
			heard(select);
			answer(NEAP_REDIS_STATUS, "OK");
		}
		heard("PING");
		answer(NEAP_REDIS_STATUS, "PONG");
		heard("GET k");
		answer(NEAP_REDIS_STRING, "v");
		expect(&a, 0, "v");
		drop_wire(wire(), "Connection reset by peer");
		pass(100 * MS);
	}
	close_rig();
}
END_TEST

/* A definite no ends the calls that wait, with what to do; the connection is tried again all the same. */
START_TEST(a_server_that_will_have_nothing_of_us)
{
	struct asked a = {0}, b = {0};
	open_rig(&(struct neap_redis_options){.password = "secret", .database = 99});
	get(&a, "k");
	get(&b, "k");
	connected();
	answer(NEAP_REDIS_ERROR, "WRONGPASS invalid username-password pair or user is disabled.");
	expect(&a, NEAP_EREJECTED, "redis://10.0.0.1:6379: AUTH: \"WRONGPASS");
	expect(&b, NEAP_EREJECTED, "check MC_REDIS_USERNAME and MC_REDIS_PASSWORD");
	ck_assert_ptr_null(strstr(a.why, "secret"));
	ck_assert(!wire()->open);
	get(&a, "k"); /* this one waits: somebody may put it right */
	pass(100 * MS);
	connected();
	answer(NEAP_REDIS_STATUS, "OK");
	answer(NEAP_REDIS_ERROR, "ERR DB index is out of range");
	expect(&a, NEAP_EREJECTED, "check MC_REDIS_DB_INDEX");
	get(&a, "k");
	pass(200 * MS);
	connected();
	answer(NEAP_REDIS_STATUS, "OK");
	answer(NEAP_REDIS_STATUS, "OK");
	answer(NEAP_REDIS_ERROR, "NOAUTH Authentication required.");
	expect(&a, NEAP_EREJECTED, "MC_REDIS_PASSWORD");
	close_rig();
}
END_TEST

/* Not now is not no: calls wait for the next attempt, until their deadline. */
START_TEST(a_server_that_is_not_ready)
{
	struct asked a = {0}, b = {0};
	open_rig(&(struct neap_redis_options){0});
	get(&a, "k");
	connected();
	answer(NEAP_REDIS_ERROR, "LOADING Redis is loading the dataset in memory");
	ck_assert_int_eq(a.times, 0);
	pass(100 * MS);
	get_ready();
	heard("GET k");
	answer(NEAP_REDIS_STRING, "v");
	expect(&a, 0, "v");
	get(&a, "k");
	heard("GET k");
	answer(NEAP_REDIS_ERROR, "LOADING Redis is loading the dataset in memory"); /* an error reply repeats nothing */
	expect(&a, NEAP_EAGAIN, "it is reading its data back in");
	ck_assert(wire()->open);
	drop_wire(wire(), "Server closed the connection");
	get(&b, "k");
	for (int i = 0; i < 40; i++) {
		pass(75 * MS);
		if (wire()->open)
			drop_wire(wire(), "Connection refused");
	}
	expect(&b, NEAP_ETIMEDOUT, "not connected within 3000 ms; last: cannot connect to 10.0.0.1:6379: Connection refused");
	close_rig();
}
END_TEST

START_TEST(every_wait_ends)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.password = "p", .database = 1, .reply_timeout_ns = 100 * MS, .connect_timeout_ns = 100 * MS,
	                                      .pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	for (int reached = 0; reached < 4; reached++) {
		struct neap_redis_wire *this = wire();
		for (int i = 0; i < reached; i++) {
			if (i == 0)
				connected();
			else
				answer(NEAP_REDIS_STATUS, "OK");
		}
		ck_assert(this->open);
		pass(100 * MS);
		ck_assert(!this->open);
		pass(20 * MS);
		ck_assert_ptr_ne(this, wire());
	}
	ck_assert_int_eq(a.times, 0);
	pass(3000 * MS);
	expect(&a, NEAP_ETIMEDOUT, "not connected within 3000 ms");
	close_rig();
}
END_TEST

/* It breaks at every point. */
START_TEST(broken_anywhere)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.password = "p", .database = 1, .pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	for (int reached = 0; reached < 4; reached++) {
		for (int i = 0; i < reached; i++) {
			if (i == 0)
				connected();
			else
				answer(NEAP_REDIS_STATUS, "OK");
		}
		drop_wire(wire(), "Connection reset by peer");
		pass(20 * MS);
	}
	/* nor can anything be said */
	rig.refuse_command = 1;
	connected();
	ck_assert(!wire()->open);
	rig.refuse_command = 0;
	rig.refuse_connect = 1;
	pass(20 * MS);
	rig.refuse_connect = 0;
	ck_assert_int_eq(a.times, 0);
	pass(20 * MS);
	connected();
	answer(NEAP_REDIS_INTEGER, NULL); /* nor is it a Redis server */
	ck_assert(!wire()->open);
	close_rig();
}
END_TEST

/* --- names ------------------------------------------------------------------------------------------------------------------ */

static void resolved(int error, uint32_t count)
{
	struct neap_sockaddr addresses[2];
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", 6379, &addresses[0]), 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("::2", 6379, &addresses[1]), 0);
	script_names_answer(&rig.names, error, addresses, count);
	turn();
}

/* Failures before a connection that was well for long make no pause longer. */
START_TEST(a_long_life)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){0});
	get(&a, "k");
	for (int i = 0; i < 8; i++) {
		drop_wire(wire(), "Connection refused");
		pass(6300 * MS);
	}
	get(&a, "k");
	get_ready();
	answer(NEAP_REDIS_STRING, "v");
	expect(&a, 0, "v");
	pass(5001 * MS);
	uint32_t count = rig.wire_count;
	drop_wire(wire(), "Connection reset by peer");
	pass(64 * MS);
	ck_assert_uint_eq(rig.wire_count, count + 1);
	drop_wire(wire(), "Connection refused");
	pass(64 * MS);
	ck_assert_uint_eq(rig.wire_count, count + 2);
	close_rig();
}
END_TEST

START_TEST(names_and_their_addresses)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.server = {.host = "redis.test", .port = 6379, .has_port = true}, .connect_timeout_ns = 100 * MS});
	rig.names.unresolvable = true;
	get(&a, "k");
	rig.names.unresolvable = false;
	pass(100 * MS);
	resolved(NEAP_EDNS, 0);
	pass(200 * MS);
	ck_assert(rig.names.resolving);
	pass(100 * MS); /* no answer */
	ck_assert(!rig.names.resolving);
	pass(400 * MS);
	resolved(0, 2);
	ck_assert_str_eq(wire()->address, "10.0.0.2 6379");
	pass(100 * MS); /* the first address is a black hole */
	ck_assert_str_eq(wire()->address, "::2 6379");
	drop_wire(wire(), "Connection refused");
	pass(800 * MS);
	resolved(0, 2);
	drop_wire(wire(), "Connection refused");
	ck_assert_str_eq(wire()->address, "::2 6379");
	get_ready();
	heard("GET k");
	answer(NEAP_REDIS_STRING, "v");
	expect(&a, 0, "v");
	close_rig();
}
END_TEST

/* --- commands and lost connections ------------------------------------------------------------------------------------------ */

START_TEST(repeated_once)
{
	struct asked a = {0}, b = {0};
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	get_ready();
	heard("GET k");
	drop_wire(wire(), "Server closed the connection");
	get(&b, "l");
	pass(20 * MS);
	get_ready();
	heard("GET k");
	heard("GET l");
	ck_assert_int_eq(a.times + b.times, 0);
	drop_wire(wire(), "Server closed the connection");
	expect(&a, NEAP_EPEER, "the connection ended: Server closed the connection");
	pass(20 * MS);
	get_ready();
	heard("GET l");
	answer(NEAP_REDIS_STRING, "w");
	expect(&b, 0, "w");
	close_rig();
}
END_TEST

/* A reply that does not come: the connection is given up, what waited behind it is sent on another one. */
START_TEST(a_silent_server)
{
	struct asked a = {0}, b = {0};
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	get_ready();
	pass(1000 * MS);
	get(&b, "l");
	pass(2000 * MS);
	expect(&a, NEAP_ETIMEDOUT, "no reply within 3000 ms");
	ck_assert_int_eq(b.times, 0);
	pass(20 * MS);
	get_ready();
	heard("GET l");
	answer(NEAP_REDIS_STRING, "w");
	expect(&b, 0, "w");
	close_rig();
}
END_TEST

START_TEST(canceled)
{
	struct asked a = {0}, b = {0}, c = {0}, d = {0};
	struct neap_backend *backend;
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	backend = rig.backend;
	ck_assert_int_eq(try_get(&a, "k"), 0);
	backend->ops->cancel(backend, a.call); /* before it has begun */
	get(&a, "k");
	backend->ops->cancel(backend, a.call); /* while it waits for the connection */
	backend->ops->cancel(backend, a.call);
	get(&b, "l");
	get_ready();
	heard("GET l");
	backend->ops->cancel(backend, b.call); /* while it waits for its reply, which is not taken for another's */
	backend->ops->cancel(backend, b.call);
	get(&c, "m");
	answer(NEAP_REDIS_STRING, "of l");
	answer(NEAP_REDIS_STRING, "of m");
	expect(&c, 0, "of m");
	get(&b, "l");
	backend->ops->cancel(backend, b.call);
	drop_wire(wire(), "Server closed the connection"); /* nor is it sent again */
	pass(20 * MS);
	get_ready();
	ck_assert_uint_eq(wire()->seen, wire()->count);
	get(&d, "n");
	backend->ops->cancel(backend, d.call);
	pass(3000 * MS); /* its reply does not come */
	ck_assert(!wire()->open);
	ck_assert_int_eq(a.times + b.times + d.times, 0);
	close_rig();
}
END_TEST

START_TEST(unasked)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	get_ready();
	answer(NEAP_REDIS_STRING, "v");
	answer(NEAP_REDIS_STRING, "and another");
	ck_assert(!wire()->open);
	close_rig();
}
END_TEST

static void destroy_backend(struct asked *asked)
{
	(void)asked;
	rig.backend->ops->destroy(rig.backend);
}

static void ask_again(struct asked *asked)
{
	asked->then = NULL;
	ck_assert_int_eq(try_get(asked, "again"), 0);
}

START_TEST(callbacks_may_do_anything)
{
	struct asked a = {0}, b = {0};
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	get(&b, "l");
	get_ready();
	a.then = ask_again;
	answer(NEAP_REDIS_STRING, "v");
	b.then = destroy_backend;
	answer(NEAP_REDIS_STRING, "w");
	ck_assert_int_eq(b.times, 1);
	ck_assert_int_eq(a.times, 0);
	rig.backend = NULL;
	close_rig();
	/* refused ones that ask again wait for the next attempt; and one that ends it all in the middle of them */
	open_rig(&(struct neap_redis_options){.password = "p", .pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	get(&b, "l");
	connected();
	a.then = ask_again;
	b.then = destroy_backend;
	answer(NEAP_REDIS_ERROR, "WRONGPASS");
	ck_assert_int_eq(a.times, 0);
	ck_assert_int_eq(b.times, 1);
	rig.backend = NULL;
	close_rig();
}
END_TEST

/* The end comes in every state of a connection. */
START_TEST(ended_anywhere)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.server = {.host = "redis.test", .port = 6379, .has_port = true}, .password = "p", .database = 1});
	if (_i > 0)
		get(&a, "k");
	if (_i > 1)
		resolved(_i == 8 ? NEAP_EDNS : 0, 1);
	if (_i > 2 && _i < 8)
		connected();
	for (int i = 4; i <= _i && i < 6 && _i < 8; i++)
		answer(NEAP_REDIS_STATUS, "OK");
	if (_i == 6 || _i == 7) {
		answer(NEAP_REDIS_STATUS, "PONG");
		heard("AUTH p");
	}
	if (_i == 7)
		drop_wire(wire(), "Server closed the connection");
	rig.backend->ops->destroy(rig.backend);
	ck_assert_int_eq(rig.backend->ops->get(rig.backend, "k", MS, answered, &a, &a.call), NEAP_ECLOSED);
	rig.backend->ops->destroy(rig.backend);
	rig.backend = NULL;
	close_rig();
	ck_assert_int_eq(a.times, 0);
}
END_TEST

/* --- being told of changes --------------------------------------------------------------------------------------------------- */

static int notices;

static void changed(struct neap_backend_watch *watch)
{
	(void)watch;
	notices++;
}

static struct neap_redis_wire *begin_tracking(void)
{
	struct neap_redis_wire *tracker = wire();
	connected();
	heard("CLIENT ID");
	answer_on(tracker, NEAP_REDIS_INTEGER, NULL, 77);
	heard("SUBSCRIBE __redis__:invalidate");
	tracker->events->subscribed(tracker->user);
	turn();
	return tracker;
}

START_TEST(told_of_changes)
{
	struct asked a = {0};
	struct neap_backend_watch watch = {.changed = changed}, other = {.changed = changed};
	struct neap_backend *b;
	notices = 0;
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	b = rig.backend;
	get(&a, "k");
	get_ready();
	struct neap_redis_wire *commands = wire();
	heard("GET k");
	answer(NEAP_REDIS_STRING, "v");
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), NEAP_EAGAIN); /* begins with this */
	turn();
	struct neap_redis_wire *tracker = begin_tracking();
	heard_on(commands, "CLIENT TRACKING ON REDIRECT 77 NOLOOP");
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), NEAP_EAGAIN);
	answer_on(commands, NEAP_REDIS_STATUS, "OK", 0);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	ck_assert_int_eq(b->ops->watch(b, "l", &other), 0);
	tracker->events->invalidated(tracker->user, "m", 1);
	ck_assert_int_eq(notices, 0);
	tracker->events->invalidated(tracker->user, "k", 1);
	ck_assert_int_eq(notices, 1);
	tracker->events->invalidated(tracker->user, "k", 1); /* once */
	ck_assert_int_eq(notices, 1);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	tracker->events->invalidated(tracker->user, NULL, 0); /* the server lost everything */
	ck_assert_int_eq(notices, 3);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	neap_backend_unwatch(&watch);
	/* either connection gone: nobody can tell any more */
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	drop_wire(tracker, "Server closed the connection");
	ck_assert_int_eq(notices, 4);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), NEAP_EAGAIN);
	pass(20 * MS);
	tracker = begin_tracking();
	heard_on(commands, "CLIENT TRACKING ON REDIRECT 77 NOLOOP");
	answer_on(commands, NEAP_REDIS_STATUS, "OK", 0);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	drop_wire(commands, "Server closed the connection");
	ck_assert_int_eq(notices, 5);
	pass(20 * MS);
	get_ready();
	heard("CLIENT TRACKING ON REDIRECT 77 NOLOOP");
	drop_wire(wire(), "Server closed the connection"); /* lost with its connection, and not repeated: the next one has another */
	pass(20 * MS);
	get_ready();
	heard("CLIENT TRACKING ON REDIRECT 77 NOLOOP");
	ck_assert_uint_eq(wire()->seen, wire()->count);
	answer_on(tracker, NEAP_REDIS_STATUS, "OK", 0); /* nothing is asked there */
	ck_assert(!tracker->open);
	close_rig();
}
END_TEST

static struct neap_redis_wire *watch_begun(struct neap_redis_wire **commands_p)
{
	struct asked a = {0};
	struct neap_backend_watch watch = {.changed = changed};
	get(&a, "k");
	get_ready();
	*commands_p = wire();
	heard("GET k");
	answer(NEAP_REDIS_STRING, "v");
	ck_assert_int_eq(rig.backend->ops->watch(rig.backend, "k", &watch), NEAP_EAGAIN);
	turn();
	struct neap_redis_wire *tracker = begin_tracking();
	heard_on(*commands_p, "CLIENT TRACKING ON REDIRECT 77 NOLOOP");
	answer_on(*commands_p, NEAP_REDIS_STATUS, "OK", 0);
	return tracker;
}

/* A server forgets that we have read what we change ourselves, and tells nobody. */
START_TEST(what_we_change_ourselves)
{
	struct asked a = {0}, full[8] = {0};
	struct neap_backend_watch watch = {.changed = changed}, other = {.changed = changed};
	struct neap_backend_set set = {.key = "k", .value = "w", .length = 1, .create = true};
	struct neap_redis_wire *commands;
	notices = 0;
	open_rig(&(struct neap_redis_options){0});
	struct neap_backend *b = rig.backend;
	(void)watch_begun(&commands);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	ck_assert_int_eq(b->ops->watch(b, "l", &other), 0);
	ck_assert_int_eq(b->ops->set(b, &set, 3000 * MS, answered, &a, &a.call), 0);
	turn();
	heard_on(commands, "SET k w NX");
	answer_on(commands, NEAP_REDIS_NIL, NULL, 0); /* nothing has changed */
	ck_assert_int_eq(notices, 0);
	ck_assert_int_eq(b->ops->set(b, &set, 3000 * MS, answered, &a, &a.call), 0);
	turn();
	heard_on(commands, "SET k w NX");
	answer_on(commands, NEAP_REDIS_STATUS, "OK", 0);
	ck_assert_int_eq(notices, 1);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	ck_assert_int_eq(b->ops->remove(b, "k", 3000 * MS, answered, &a, &a.call), 0);
	turn();
	heard_on(commands, "DEL k");
	answer_on(commands, NEAP_REDIS_INTEGER, NULL, 1);
	ck_assert_int_eq(notices, 2);
	/* a lease that begins anew: the key is read again, if anybody watches it */
	ck_assert_int_eq(b->ops->touch(b, "k", 5000 * MS, 3000 * MS, answered, &a, &a.call), 0);
	turn();
	heard_on(commands, "PEXPIRE k 5000");
	answer_on(commands, NEAP_REDIS_INTEGER, NULL, 1);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), 0);
	ck_assert_int_eq(b->ops->touch(b, "k", 5000 * MS, 3000 * MS, answered, &a, &a.call), 0);
	turn();
	heard_on(commands, "PEXPIRE k 5000");
	heard_on(commands, "EXISTS k");
	answer_on(commands, NEAP_REDIS_INTEGER, NULL, 1);
	answer_on(commands, NEAP_REDIS_INTEGER, NULL, 1);
	ck_assert_int_eq(notices, 2);
	/* and if it cannot be read, nobody knows any more */
	for (int i = 0; i < 7; i++)
		ck_assert_int_eq(try_get(&full[i], "m"), 0);
	ck_assert_int_eq(b->ops->touch(b, "k", 5000 * MS, 3000 * MS, answered, &a, &a.call), 0);
	ck_assert_int_eq(notices, 2); /* not from inside */
	turn();
	ck_assert_int_eq(notices, 4);
	close_rig();
}
END_TEST

START_TEST(a_server_that_does_not_tell)
{
	struct asked a = {0};
	struct neap_backend_watch watch = {.changed = changed};
	struct neap_backend *b;
	notices = 0;
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS, .reply_timeout_ns = 100 * MS});
	b = rig.backend;
	get(&a, "k");
	get_ready();
	struct neap_redis_wire *commands = wire();
	answer(NEAP_REDIS_STRING, "v");
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), NEAP_EAGAIN);
	turn();
	connected();
	answer(NEAP_REDIS_ERROR, "NOPERM this user has no permissions to run the 'client|id' command");
	ck_assert(!wire()->open);
	pass(20 * MS);
	connected();
	answer_on(wire(), NEAP_REDIS_INTEGER, NULL, 77);
	pass(100 * MS); /* the subscription is not confirmed */
	ck_assert(!wire()->open);
	pass(20 * MS);
	connected();
	answer_on(wire(), NEAP_REDIS_INTEGER, NULL, 77);
	drop_wire(wire(), "NOPERM");
	pass(20 * MS);
	struct neap_backend_set set = {.key = "k", .value = "v", .length = 1};
	ck_assert_int_eq(b->ops->set(b, &set, 3000 * MS, answered, &a, &a.call), 0);
	turn();
	struct neap_redis_wire *tracker = begin_tracking();
	answer_on(commands, NEAP_REDIS_ERROR, "READONLY You can't write against a read only replica.", 0); /* not what was asked last */
	ck_assert(!commands->open && tracker->open);
	pass(20 * MS);
	get_ready();
	commands = wire();
	heard("CLIENT TRACKING ON REDIRECT 77 NOLOOP");
	answer_on(commands, NEAP_REDIS_ERROR, "ERR The client ID you want redirect to does not exist", 0); /* that connection broke unnoticed */
	ck_assert(!tracker->open);
	pass(20 * MS);
	tracker = begin_tracking();
	answer_on(commands, NEAP_REDIS_ERROR, "ERR Unknown subcommand or wrong number of arguments for 'TRACKING'", 0);
	ck_assert(!tracker->open);
	ck_assert_int_eq(b->ops->watch(b, "k", &watch), NEAP_EAGAIN);
	ck_assert(commands->open);
	close_rig();
	/* the end while it is being made ready */
	open_rig(&(struct neap_redis_options){0});
	ck_assert_int_eq(rig.backend->ops->watch(rig.backend, "k", &watch), NEAP_EAGAIN);
	turn();
	connected();
	answer_on(wire(), NEAP_REDIS_INTEGER, NULL, 77);
	close_rig();
	ck_assert_int_eq(notices, 0);
}
END_TEST

/* --- what replies mean --------------------------------------------------------------------------------------------------------- */

START_TEST(error_replies)
{
	static const struct {
		const char *text;
		int error;
		bool reconnect;
		const char *said;
	} rows[] = {
		{"NOAUTH Authentication required.", NEAP_EREJECTED, true, "MC_REDIS_PASSWORD"},
		{"READONLY You can't write against a read only replica.", NEAP_EREJECTED, true, "primary"},
		{"MOVED 3999 127.0.0.1:6381", NEAP_ENOTSUP, false, "Cluster"},
		{"ASK 3999 127.0.0.1:6381", NEAP_ENOTSUP, false, "Cluster"},
		{"CLUSTERDOWN Hash slot not served", NEAP_ENOTSUP, false, "Cluster"},
		{"LOADING Redis is loading the dataset in memory", NEAP_EAGAIN, false, "wait"},
		{"BUSY Redis is busy running a script.", NEAP_EAGAIN, false, "wait"},
		{"OOM command not allowed when used memory > 'maxmemory'.", NEAP_ELIMIT, false, "maxmemory"},
		{"NOPERM this user has no permissions", NEAP_EREJECTED, false, "ACL"},
		{"ERR Client sent AUTH, but no password is set", NEAP_EREJECTED, true, "unset"},
		{"ERR AUTH <password> called without any password configured", NEAP_EREJECTED, true, "unset"},
		{"ERR something \x01 else", NEAP_EREJECTED, false, "\"ERR something ? else\""},
		{"ERR The client ID you want redirect to does not exist", NEAP_EAGAIN, false, "has ended"},
		{"LOADINGS are not that", NEAP_EREJECTED, false, "LOADINGS"},
		{"", NEAP_EREJECTED, false, "\"\""},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char why[300];
		struct neap_redis_reply reply = {.kind = NEAP_REDIS_ERROR, .text = rows[i].text, .length = strlen(rows[i].text)};
		struct neap_redis_verdict verdict = neap_redis_classify(&reply, why, sizeof why);
		ck_assert_msg(verdict.error == rows[i].error && verdict.reconnect == rows[i].reconnect, "%s: %d", rows[i].text, verdict.error);
		ck_assert_msg(strstr(why, rows[i].said) != NULL, "%s", why);
	}
}
END_TEST

/* A reply that says that another connection may do better. */
START_TEST(another_connection_may_do_better)
{
	struct asked a = {0};
	open_rig(&(struct neap_redis_options){.pause_min_ns = 10 * MS, .pause_max_ns = 10 * MS});
	get(&a, "k");
	get_ready();
	answer(NEAP_REDIS_ERROR, "NOAUTH Authentication required.");
	expect(&a, NEAP_EREJECTED, "MC_REDIS_PASSWORD");
	ck_assert(!wire()->open);
	pass(20 * MS);
	get_ready();
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("redis");
	TCase *cases[] = {tcase_create("commands"), tcase_create("connections"), tcase_create("changes")};
	tcase_add_test(cases[0], commands_and_their_answers);
	tcase_add_test(cases[0], what_is_refused_at_the_door);
	tcase_add_test(cases[0], repeated_once);
	tcase_add_test(cases[0], a_silent_server);
	tcase_add_test(cases[0], canceled);
	tcase_add_test(cases[0], unasked);
	tcase_add_test(cases[0], callbacks_may_do_anything);
	tcase_add_test(cases[0], error_replies);
	tcase_add_test(cases[0], another_connection_may_do_better);
	tcase_add_loop_test(cases[1], auth_and_select_on_each_connection, 0, 4);
	tcase_add_test(cases[1], a_server_that_will_have_nothing_of_us);
	tcase_add_test(cases[1], a_server_that_is_not_ready);
	tcase_add_test(cases[1], every_wait_ends);
	tcase_add_test(cases[1], broken_anywhere);
	tcase_add_test(cases[1], a_long_life);
	tcase_add_test(cases[1], names_and_their_addresses);
	tcase_add_loop_test(cases[1], ended_anywhere, 0, 9);
	tcase_add_test(cases[2], told_of_changes);
	tcase_add_test(cases[2], what_we_change_ourselves);
	tcase_add_test(cases[2], a_server_that_does_not_tell);
	for (int i = 0; i < 3; i++) {
		tcase_set_timeout(cases[i], 120);
		suite_add_tcase(suite, cases[i]);
	}
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
