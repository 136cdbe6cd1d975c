/* The directory: one fetch for many lookups, a cache that knows how old it is, "missing" and "unreachable" kept apart; and the P2P
 * back-end with a real service behind it. */
#include "metadata/directory.h"
#include "tests/support/drive.h"
#include "tests/support/fdcheck.h"
#include "tests/support/script_backend.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define SECOND_NS UINT64_C(1000000000)
#define SHORT_NS UINT64_C(20000000)
#define LONG_NS UINT64_C(60000000000) /* so that a slow machine does not end what the test wants to end */
#define NAMES_MAX 4
#define DOCUMENT(port) "{\"buffers\":[],\"name\":\"self\",\"protocol\":\"tcp\",\"tcp_data_port\":" #port "}\n"

/* --- a back-end that does as it is told --------------------------------------------------------------------------- */

struct fake {
	struct neap_backend backend;
	int refuse; /* get fails at once */
	int fetches, cancels;
	struct {
		neap_handshake_done_func *done;
		void *user;
		char name[64];
	} pending[16];
};

static uint64_t rig_timeout_ns;

static int fake_get(struct neap_backend *backend, const char *name, uint64_t timeout_ns, neap_backend_done_func *done, void *user,
                    uint64_t *call_p)
{
	struct fake *fake = (struct fake *)(void *)backend;
	ck_assert_uint_eq(timeout_ns, rig_timeout_ns);
	if (fake->refuse)
		return fake->refuse;
	int i = fake->fetches++;
	fake->pending[i].done = done;
	fake->pending[i].user = user;
	(void)snprintf(fake->pending[i].name, sizeof fake->pending[i].name, "%s", name);
	*call_p = (uint64_t)i + 1;
	return 0;
}

static void fake_cancel(struct neap_backend *backend, uint64_t call)
{
	struct fake *fake = (struct fake *)(void *)backend;
	ck_assert(call > 0 && call <= (uint64_t)fake->fetches && fake->pending[call - 1].done);
	fake->pending[call - 1].done = NULL;
	fake->cancels++;
}

/* As P2P is: names are addresses, and nothing is stored. */
static const struct neap_backend_ops fake_ops = {.get = fake_get, .cancel = fake_cancel};

static struct {
	struct neap_reactor *reactor;
	struct neap_directory *directory;
	struct fake fake;
	int fds_before;
} rig;

struct asked {
	struct neap_lookup lookup;
	bool done;
	int error;
	struct neap_snapshot *snapshot; /* kept */
	char why[400];
	void (*then)(struct asked *asked);
};

static void found(void *user, int error, struct neap_snapshot *snapshot, const char *why)
{
	struct asked *asked = user;
	ck_assert(!asked->done && (error == 0) == (snapshot != NULL));
	asked->done = true;
	asked->error = error;
	asked->snapshot = snapshot ? neap_snapshot_keep(snapshot) : NULL;
	(void)snprintf(asked->why, sizeof asked->why, "%s", why);
	if (asked->then)
		asked->then(asked);
}

static void open_rig_with(uint64_t timeout_ns)
{
	rig_timeout_ns = timeout_ns;
	memset(&rig, 0, sizeof rig);
	rig.fake.backend = (struct neap_backend){.ops = &fake_ops, .scheme = "fake"};
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	ck_assert_int_eq(neap_directory_create(&rig.directory, rig.reactor, &rig.fake.backend, NULL, NAMES_MAX, timeout_ns), 0);
}

static void open_rig(void)
{
	open_rig_with(LONG_NS);
}

static void close_rig(void)
{
	neap_directory_destroy(rig.directory);
	drive_to_end(rig.reactor);
}

static int try_ask(struct asked *asked, const char *name, uint64_t not_before_ns)
{
	*asked = (struct asked){.then = asked->then};
	int error = neap_directory_lookup(rig.directory, name, not_before_ns, &asked->lookup, found, asked);
	ck_assert(!asked->done);
	return error;
}

static void ask(struct asked *asked, const char *name, uint64_t not_before_ns)
{
	asked->then = NULL;
	ck_assert_int_eq(try_ask(asked, name, not_before_ns), 0);
}

static bool turned(void *user)
{
	return --*(int *)user < 0;
}

static void few_turns(void)
{
	int turns = 4;
	(void)drive_all_until(&rig.reactor, 1, turned, &turns, 20);
}

static void tell(int fetch, int error, const char *json, const char *why)
{
	neap_handshake_done_func *done = rig.fake.pending[fetch].done;
	ck_assert_ptr_nonnull(done);
	rig.fake.pending[fetch].done = NULL;
	done(rig.fake.pending[fetch].user, error, json, json ? strlen(json) : 0, why);
	few_turns();
}

static uint64_t now(void)
{
	return neap_reactor_now_ns(rig.reactor);
}

static void drop(struct asked *asked)
{
	neap_snapshot_drop(asked->snapshot);
	asked->snapshot = NULL;
}

/* --- sharing and caching ------------------------------------------------------------------------------------------ */

START_TEST(lookups_share_a_fetch)
{
	struct asked a[3], other;
	open_rig();
	for (int i = 0; i < 3; i++)
		ask(&a[i], "a", 0);
	ask(&other, "b", 0);
	few_turns();
	ck_assert_int_eq(rig.fake.fetches, 2);
	tell(0, 0, DOCUMENT(1), "");
	for (int i = 0; i < 3; i++) {
		ck_assert(a[i].done && a[i].error == 0);
		ck_assert_ptr_eq(a[i].snapshot, a[0].snapshot);
	}
	ck_assert(!other.done);
	ck_assert_uint_eq(neap_directory_fetches(rig.directory), 2);
	/* the snapshot outlives what the directory knows, and the directory */
	neap_directory_forget(rig.directory, "a");
	ck_assert_int_eq(a[0].snapshot->descriptor->tcp_data_port, 1);
	for (int i = 0; i < 3; i++)
		drop(&a[i]);
	close_rig();
	ck_assert(!other.done);
}
END_TEST

START_TEST(the_cache_knows_its_age)
{
	struct asked a, b, c;
	open_rig();
	ask(&a, "a", 0);
	few_turns();
	uint64_t early_ns = now();
	tell(0, 0, DOCUMENT(1), "");
	ck_assert_uint_le(a.snapshot->fetched_ns, early_ns);
	/* old enough for this one */
	ask(&b, "a", a.snapshot->fetched_ns);
	few_turns();
	ck_assert(b.done && b.snapshot == a.snapshot);
	ck_assert_int_eq(rig.fake.fetches, 1);
	/* this one wants newer; one that comes while it is fetched and wants newer still needs another */
	drive_for(rig.reactor, 3);
	ask(&c, "a", now());
	few_turns();
	ck_assert(!c.done);
	ck_assert_int_eq(rig.fake.fetches, 2);
	drop(&b);
	drive_for(rig.reactor, 3);
	ask(&b, "a", UINT64_MAX);
	few_turns();
	ck_assert_int_eq(rig.fake.fetches, 2);
	tell(1, 0, DOCUMENT(2), "");
	ck_assert(c.done && !b.done);
	ck_assert_int_eq(c.snapshot->descriptor->tcp_data_port, 2);
	ck_assert_int_eq(rig.fake.fetches, 3);
	tell(2, 0, DOCUMENT(3), "");
	ck_assert(b.done);
	ck_assert_int_eq(b.snapshot->descriptor->tcp_data_port, 3);
	drop(&a);
	drop(&b);
	drop(&c);
	close_rig();
}
END_TEST

START_TEST(unreachable_keeps_and_missing_forgets)
{
	struct asked a, b;
	open_rig();
	ask(&a, "a", 0);
	few_turns();
	tell(0, 0, DOCUMENT(1), "");
	drop(&a);
	drive_for(rig.reactor, 2);
	ask(&a, "a", now());
	few_turns();
	tell(1, NEAP_ESOCKET, NULL, "connection refused");
	ck_assert(a.done && a.error == NEAP_ESOCKET);
	ck_assert_str_eq(a.why, "segment 'a': connection refused");
	ask(&b, "a", 0);
	few_turns();
	ck_assert(b.done && b.error == 0); /* still known */
	drop(&b);
	/* a document that cannot be read says nothing about the old one */
	drive_for(rig.reactor, 2);
	ask(&a, "a", now());
	few_turns();
	tell(2, 0, "{\"protocol\":\"tcp\"}", "");
	ck_assert(a.done && a.error == NEAP_EJSON);
	ck_assert_str_eq(a.why, "segment 'a': document: has no name");
	ask(&b, "a", 0);
	few_turns();
	ck_assert(b.done && b.error == 0);
	drop(&b);
	/* but this one is gone */
	drive_for(rig.reactor, 2);
	ask(&a, "a", now());
	few_turns();
	tell(3, 0, "null\n", "");
	ck_assert(a.done && a.error == NEAP_EMETADATA);
	ask(&b, "a", 0);
	few_turns();
	ck_assert(!b.done);
	ck_assert_int_eq(rig.fake.fetches, 5);
	tell(4, NEAP_EMETADATA, NULL, "");
	ck_assert(b.done && b.error == NEAP_EMETADATA);
	close_rig();
}
END_TEST

START_TEST(a_bad_matrix_is_left_out)
{
	struct asked a;
	open_rig();
	ask(&a, "a", 0);
	few_turns();
	tell(0, 0, "{\"protocol\":\"rdma\",\"name\":\"n\",\"priority_matrix\":7}", "");
	ck_assert(a.done && a.error == 0);
	drop(&a);
	close_rig();
}
END_TEST

/* --- a back-end that stores --------------------------------------------------------------------------------------- */

#define RAM_A "mooncake/c1/ram/a"
#define RPC_A "mooncake/c1/rpc_meta/a"
#define ADDRESS(port) "{\"ip_or_host_name\":\"10.0.0.9\",\"rpc_port\":" #port "}\n"

static struct script_backend script;

static void open_store_rig(void)
{
	memset(&rig, 0, sizeof rig);
	script_backend_open(&script, NEAP_BACKEND_STORES | NEAP_BACKEND_WATCHES);
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	ck_assert_int_eq(neap_directory_create(&rig.directory, rig.reactor, &script.base, "c1", NAMES_MAX, LONG_NS), 0);
}

static void reply(const char *key, int error, const char *value)
{
	script_backend_answer(script_backend_expect(&script, "get", key), error, value);
	few_turns();
}

START_TEST(a_store_is_asked_for_both)
{
	struct asked a, b;
	open_store_rig();
	ask(&a, "//a", 0); /* leading slashes are passed over, as peers do */
	few_turns();
	ck_assert_uint_eq(script_backend_pending(&script), 2);
	reply(RAM_A, 0, DOCUMENT(1));
	ck_assert(!a.done);
	reply(RPC_A, 0, ADDRESS(7));
	ck_assert(a.done && a.error == 0);
	ck_assert_str_eq(a.snapshot->owner.host, "10.0.0.9");
	ck_assert_uint_eq(a.snapshot->owner.port, 7);
	ck_assert_int_eq(a.snapshot->descriptor->tcp_data_port, 1);
	drop(&a);
	/* the other way round, with a name that has a slash in it */
	ask(&b, "a/b", 0);
	few_turns();
	script_backend_answer(&script.calls[3], 0, ADDRESS(8));
	reply("mooncake/c1/a/b", 0, DOCUMENT(2));
	ck_assert(b.done && b.error == 0 && b.snapshot->owner.port == 8);
	drop(&b);
	ck_assert_int_eq(try_ask(&b, "///", 0), 0);
	few_turns();
	ck_assert(b.done && b.error == NEAP_EINVAL);
	close_rig();
}
END_TEST

START_TEST(half_of_it_is_not_there)
{
	struct asked a;
	open_store_rig();
	ask(&a, "a", 0);
	few_turns();
	reply(RAM_A, 0, DOCUMENT(1));
	reply(RPC_A, NEAP_EMETADATA, NULL);
	ck_assert(a.done && a.error == NEAP_EMETADATA);
	ck_assert_msg(strstr(a.why, "segment 'a': script://test: there is none of this name, or its owner's address") == a.why, "%s", a.why);
	ask(&a, "a", 0);
	few_turns();
	reply(RAM_A, NEAP_EMETADATA, NULL);
	ck_assert(a.done && a.error == NEAP_EMETADATA);
	ck_assert_str_eq(a.why, "segment 'a': script://test: there is none of this name");
	ck_assert_uint_eq(script.canceled, 1);
	ask(&a, "a", 0);
	few_turns();
	reply(RAM_A, 0, DOCUMENT(1));
	reply(RPC_A, 0, "{}");
	ck_assert(a.done && a.error == NEAP_EADDRESS);
	/* the second one cannot even be asked for */
	script.refuse = NEAP_EAGAIN;
	script.refuse_after = 2;
	ask(&a, "a", 0);
	few_turns();
	ck_assert(a.done && a.error == NEAP_EAGAIN);
	ck_assert_uint_eq(script_backend_pending(&script), 0);
	close_rig();
}
END_TEST

/* What the back-end watches is still right; a notice, or a reason to doubt, has it read again. */
START_TEST(what_is_watched_need_not_be_read)
{
	struct asked a;
	open_store_rig();
	ask(&a, "a", 0);
	few_turns();
	reply(RAM_A, 0, DOCUMENT(1));
	reply(RPC_A, 0, ADDRESS(7));
	drop(&a);
	drive_for(rig.reactor, 2);
	a.then = NULL;
	a = (struct asked){.lookup = {.watched_will_do = true}};
	ck_assert_int_eq(neap_directory_lookup(rig.directory, "a", now(), &a.lookup, found, &a), 0);
	few_turns();
	ck_assert(a.done && a.error == 0 && script_backend_pending(&script) == 0);
	drop(&a);
	neap_watches_tell(&script.watches, RPC_A, strlen(RPC_A));
	a = (struct asked){.lookup = {.watched_will_do = true}};
	ck_assert_int_eq(neap_directory_lookup(rig.directory, "a", now(), &a.lookup, found, &a), 0);
	few_turns();
	ck_assert(!a.done);
	/* a change while it is being read: the answer serves those who asked before, and nobody later */
	neap_watches_tell(&script.watches, RAM_A, strlen(RAM_A));
	reply(RAM_A, 0, DOCUMENT(2));
	reply(RPC_A, 0, ADDRESS(7));
	ck_assert(a.done && a.error == 0);
	drop(&a);
	drive_for(rig.reactor, 2);
	script.no_watch = NEAP_EAGAIN;
	for (int i = 0; i < 2; i++) { /* nor what cannot be watched */
		a = (struct asked){.lookup = {.watched_will_do = true}};
		ck_assert_int_eq(neap_directory_lookup(rig.directory, "a", now(), &a.lookup, found, &a), 0);
		few_turns();
		ck_assert(!a.done);
		reply(RAM_A, 0, DOCUMENT(3));
		reply(RPC_A, 0, ADDRESS(7));
		ck_assert(a.done && a.snapshot->descriptor->tcp_data_port == 3);
		drop(&a);
		drive_for(rig.reactor, 2);
	}
	/* unreachable: what was known stays, though nobody vouches for it */
	ask(&a, "a", now());
	few_turns();
	reply(RAM_A, 0, DOCUMENT(4));
	reply(RPC_A, NEAP_ESOCKET, NULL);
	ck_assert(a.done && a.error == NEAP_ESOCKET);
	ask(&a, "a", 0);
	few_turns();
	ck_assert(a.done && a.error == 0 && a.snapshot->descriptor->tcp_data_port == 3);
	drop(&a);
	close_rig();
}
END_TEST

START_TEST(every_wait_ends)
{
	struct asked a;
	open_rig_with(SHORT_NS);
	ask(&a, "a", 0);
	ck_assert(drive_until(rig.reactor, &a.done, 5000)); /* the back-end never answers */
	ck_assert_int_eq(a.error, NEAP_ETIMEDOUT);
	ck_assert_int_eq(rig.fake.cancels, 1);
	/* and one that cannot even begin */
	rig.fake.refuse = NEAP_EADDRESS;
	ask(&a, "a", 0);
	few_turns();
	ck_assert(a.done && a.error == NEAP_EADDRESS);
	ck_assert_str_eq(a.why, "segment 'a': a host or port is malformed");
	close_rig();
}
END_TEST

/* --- bounds and life ---------------------------------------------------------------------------------------------- */

START_TEST(names_are_bounded)
{
	struct asked a[NAMES_MAX + 1];
	char name[NEAP_NAME_MAX + 2];
	open_rig();
	for (int i = 0; i < NAMES_MAX; i++) {
		(void)snprintf(name, sizeof name, "n%d", i);
		ask(&a[i], name, 0);
	}
	a[NAMES_MAX].then = NULL;
	ck_assert_int_eq(try_ask(&a[NAMES_MAX], "another", 0), NEAP_ELIMIT);
	few_turns();
	for (int i = 0; i < NAMES_MAX; i++) {
		tell(i, 0, DOCUMENT(1), "");
		drop(&a[i]);
	}
	ask(&a[0], "n0", 0); /* used again, so n1 is the oldest now */
	few_turns();
	ck_assert(a[0].done && rig.fake.fetches == NAMES_MAX);
	drop(&a[0]);
	ask(&a[NAMES_MAX], "another", 0);
	few_turns();
	tell(NAMES_MAX, 0, DOCUMENT(2), "");
	drop(&a[NAMES_MAX]);
	ask(&a[0], "n0", 0);
	ask(&a[2], "n2", 0);
	few_turns();
	ck_assert(a[0].done && a[2].done && rig.fake.fetches == NAMES_MAX + 1);
	ask(&a[1], "n1", 0);
	few_turns();
	ck_assert(!a[1].done && rig.fake.fetches == NAMES_MAX + 2);
	drop(&a[0]);
	drop(&a[2]);
	ck_assert_int_eq(try_ask(&a[0], "", 0), NEAP_EINVAL);
	memset(name, 'x', sizeof name - 1);
	name[sizeof name - 1] = '\0';
	ck_assert_int_eq(try_ask(&a[0], name, 0), NEAP_EINVAL);
	close_rig();
}
END_TEST

START_TEST(cancel)
{
	struct asked a, b;
	open_rig();
	ask(&a, "a", 0);
	ask(&b, "a", 0);
	neap_directory_lookup_cancel(rig.directory, &a.lookup);
	neap_directory_lookup_cancel(rig.directory, &a.lookup);
	few_turns();
	ck_assert_int_eq(rig.fake.fetches, 1);
	ask(&a, "a", 0);
	neap_directory_lookup_cancel(rig.directory, &a.lookup);
	tell(0, 0, DOCUMENT(1), "");
	ck_assert(!a.done && b.done);
	drop(&b);
	ask(&a, "c", 0);
	neap_directory_lookup_cancel(rig.directory, &a.lookup);
	few_turns();
	ck_assert_int_eq(rig.fake.fetches, 1); /* nobody asks any more */
	close_rig();
}
END_TEST

static struct asked second, third;

static void cancel_second(struct asked *asked)
{
	(void)asked;
	neap_directory_lookup_cancel(rig.directory, &second.lookup);
	ask(&third, "a", UINT64_MAX);
}

static void destroy(struct asked *asked)
{
	(void)asked;
	neap_directory_destroy(rig.directory);
	rig.directory = NULL;
}

START_TEST(callbacks_may_do_anything)
{
	struct asked a;
	open_rig();
	ask(&a, "a", 0);
	a.then = cancel_second;
	ask(&second, "a", 0);
	few_turns();
	drive_for(rig.reactor, 2);
	tell(0, 0, DOCUMENT(1), "");
	ck_assert(a.done && !second.done && !third.done);
	ck_assert_int_eq(rig.fake.fetches, 2);
	drop(&a);
	third.then = destroy;
	ask(&a, "a", UINT64_MAX);
	ask(&second, "b", 0);
	few_turns();
	ck_assert_int_eq(rig.fake.fetches, 3);
	tell(1, 0, DOCUMENT(2), "");
	ck_assert(third.done && third.error == 0 && !a.done && !second.done);
	ck_assert_int_eq(third.snapshot->descriptor->tcp_data_port, 2);
	ck_assert_int_eq(rig.fake.cancels, 1); /* of b */
	drop(&third);
	close_rig();
}
END_TEST

/* --- P2P ---------------------------------------------------------------------------------------------------------- */

struct owner {
	struct neap_handshake_service *service;
	const char *descriptor;
};

static char *describe(void *user, size_t *length_p)
{
	const struct owner *owner = user;
	if (!owner->descriptor)
		return NULL;
	*length_p = strlen(owner->descriptor);
	return strdup(owner->descriptor);
}

static uint16_t open_owner(struct owner *owner, uint16_t port)
{
	struct neap_handshake_handlers handlers = {.describe = describe, .user = owner};
	struct neap_sockaddr address;
	int system_errno;
	char why[200];
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", port, &address), 0);
	int error = neap_handshake_service_create(&owner->service, rig.reactor, &address, 0, 0, NULL, &handlers, &system_errno, why,
	                                          sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	return neap_handshake_service_port(owner->service);
}

static void await(struct asked *asked)
{
	ck_assert(drive_until(rig.reactor, &asked->done, 5000));
}

static char *self(void *user, size_t *length_p)
{
	size_t length = *(const size_t *)user;
	char *text = malloc(length + 1);
	memset(text, ' ', length);
	memcpy(text, "{}", 2);
	*length_p = length;
	return text;
}

/* Opened by its address, whatever it calls itself; restarted at the same port it is found again; gone it is unreachable. */
START_TEST(p2p)
{
	struct neap_handshake_caller *caller;
	struct neap_backend *backend;
	struct fdcheck fds;
	struct owner owner = {.descriptor = DOCUMENT(1)};
	struct asked a;
	char name[32];
	size_t self_length = 2;

	memset(&rig, 0, sizeof rig);
	int before = fdcheck_count();
	fdcheck_begin(&fds);
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, NULL), 0);
	uint16_t port = open_owner(&owner, 0);
	ck_assert_int_eq(neap_handshake_caller_create(&caller, rig.reactor, 8, 0, NULL), 0);
	ck_assert_int_eq(neap_p2p_backend_create(&backend, caller, self, &self_length), 0);
	ck_assert_int_eq(neap_directory_create(&rig.directory, rig.reactor, backend, NULL, NAMES_MAX, SECOND_NS), 0);
	(void)snprintf(name, sizeof name, "127.0.0.1:%u", port);

	ask(&a, name, 0);
	await(&a);
	ck_assert_msg(a.error == 0, "%s", a.why);
	ck_assert_str_eq(a.snapshot->descriptor->name, "self");
	ck_assert_str_eq(a.snapshot->owner.host, "127.0.0.1");
	ck_assert_uint_eq(a.snapshot->owner.port, port);
	drop(&a);

	neap_handshake_service_destroy(owner.service);
	few_turns();
	ask(&a, name, now());
	await(&a);
	ck_assert_int_eq(a.error, NEAP_ESOCKET);
	ck_assert_ptr_nonnull(strstr(a.why, name));
	ask(&a, name, 0);
	await(&a);
	ck_assert_int_eq(a.error, 0);
	drop(&a);

	owner.descriptor = DOCUMENT(2);
	self_length = 100000; /* not sent: "{}" is */
	(void)open_owner(&owner, port);
	ask(&a, name, now());
	await(&a);
	ck_assert_int_eq(a.snapshot->descriptor->tcp_data_port, 2);
	drop(&a);
	owner.descriptor = NULL;
	ask(&a, name, now());
	await(&a);
	ck_assert_int_eq(a.error, NEAP_EMETADATA);

	ask(&a, "[::1", 0);
	await(&a);
	ck_assert_int_eq(a.error, NEAP_EADDRESS);
	ck_assert_msg(strlen(a.why) > strlen("segment '[::1': "), "%s", a.why);
	ask(&a, name, now());
	few_turns(); /* under way when all goes */
	neap_directory_destroy(rig.directory);
	backend->ops->destroy(backend);
	neap_handshake_caller_destroy(caller);
	neap_handshake_service_destroy(owner.service);
	fdcheck_assert(&fds);
	drive_to_end(rig.reactor);
	ck_assert_int_eq(fdcheck_count(), before);
}
END_TEST

/* --- names -------------------------------------------------------------------------------------------------------- */

START_TEST(p2p_names)
{
	static const struct {
		const char *local, *name; /* NULL: refused */
	} rows[] = {
		{"127.0.0.1", "127.0.0.1:15234"},
		{"127.0.0.1:12345", "127.0.0.1:15234"},
		{"node-a", "node-a:15234"},
		{"node-a:1", "node-a:15234"},
		{"::1", "[::1]:15234"},
		{"[::1]", "[::1]:15234"},
		{"[::1]:9000", "[::1]:15234"},
		{"::1:9000", "[::1:9000]:15234"},
		{"fe80::1%eth0", "[fe80::1%eth0]:15234"},
		{"[fe80::1%lo]:1", "[fe80::1%lo]:15234"},
		{"", NULL},
		{"[", NULL},
		{"[]:1", NULL},
		{"[::1]x:1", NULL},
		{"host:", NULL},
		{":1", NULL},
		{"host:0", NULL},
		{"host:65536", NULL},
		{"host:abc", NULL},
		{"host:1:2", NULL},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		char name[NEAP_ADDRESS_TEXT_MAX], why[200] = "";
		int error = neap_p2p_name(rows[i].local, 15234, name, sizeof name, why, sizeof why);
		ck_assert_msg((error == 0) == (rows[i].name != NULL), "%s: %d %s", rows[i].local, error, why);
		if (rows[i].name)
			ck_assert_str_eq(name, rows[i].name);
		else
			ck_assert_msg(why[0], "%s: no reason", rows[i].local);
	}
	char name[8], why[200] = "";
	ck_assert_int_lt(neap_p2p_name("127.0.0.1", 1, name, sizeof name, why, sizeof why), 0);
	ck_assert_msg(why[0], "no reason");
}
END_TEST

START_TEST(store_keys)
{
	static const struct {
		const char *cluster, *name, *segment, *rpc;
	} rows[] = {
		{NULL, "nodeA", "mooncake/ram/nodeA", "mooncake/rpc_meta/nodeA"},
		{"", "nodeA:23456", "mooncake/ram/nodeA:23456", "mooncake/rpc_meta/nodeA:23456"},
		{"c1", "nodeA", "mooncake/c1/ram/nodeA", "mooncake/c1/rpc_meta/nodeA"},
		{"c1/", "nodeA", "mooncake/c1/ram/nodeA", "mooncake/c1/rpc_meta/nodeA"},
		{"c1", "a/b", "mooncake/c1/a/b", "mooncake/c1/rpc_meta/a/b"},
		{NULL, "a b%?#", "mooncake/ram/a b%?#", "mooncake/rpc_meta/a b%?#"},
	};
	char key[64];
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_assert_int_eq(neap_directory_segment_key(rows[i].cluster, rows[i].name, key, sizeof key), 0);
		ck_assert_str_eq(key, rows[i].segment);
		ck_assert_int_eq(neap_directory_rpc_key(rows[i].cluster, rows[i].name, key, sizeof key), 0);
		ck_assert_str_eq(key, rows[i].rpc);
	}
	ck_assert_int_eq(neap_directory_segment_key(NULL, "", key, sizeof key), NEAP_EINVAL);
	ck_assert_int_eq(neap_directory_rpc_key(NULL, "nodeA", key, 23), NEAP_ELIMIT);
	ck_assert_int_eq(neap_directory_rpc_key(NULL, "nodeA", key, 24), 0);
}
END_TEST

START_TEST(schemes)
{
	static const struct {
		const char *connection;
		int error;
		const char *scheme;
	} rows[] = {
		{"P2PHANDSHAKE", 0, "P2PHANDSHAKE"},      {"p2phandshake", NEAP_EINVAL, NULL},
		{"127.0.0.1:2379", 0, "etcd"},            {"etcd://a,b,c", 0, "etcd"},
		{"redis://h:1", 0, "redis"},              {"http://h:8080/metadata", 0, "http"},
		{"https://h/m", 0, "https"},              {"HTTP://h", NEAP_EINVAL, NULL},
		{"rediss://h", NEAP_ENOTSUP, "rediss"},   {"", NEAP_EINVAL, NULL},
		{"x://me:secret@h", NEAP_EINVAL, NULL},   {"me:secret@h:2379", 0, "etcd"},
		{"zookeeper://h", NEAP_EINVAL, NULL},     {"://", NEAP_EINVAL, NULL},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		const char *scheme;
		char why[300] = "";
		ck_assert_int_eq(neap_backend_scheme(rows[i].connection, &scheme, why, sizeof why), rows[i].error);
		if (rows[i].scheme)
			ck_assert_str_eq(scheme, rows[i].scheme);
		else
			ck_assert_ptr_null(scheme);
		if (rows[i].error)
			ck_assert_msg(strstr(why, "this build has P2PHANDSHAKE, etcd, redis, http and https") != NULL, "%s: %s", rows[i].connection, why);
		ck_assert_ptr_null(strstr(why, "secret"));
	}
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("directory");
	TCase *cache = tcase_create("cache"), *life = tcase_create("bounds and life"), *names = tcase_create("p2p and names");
	tcase_add_test(cache, lookups_share_a_fetch);
	tcase_add_test(cache, the_cache_knows_its_age);
	tcase_add_test(cache, unreachable_keeps_and_missing_forgets);
	tcase_add_test(cache, a_bad_matrix_is_left_out);
	tcase_add_test(cache, every_wait_ends);
	tcase_add_test(life, names_are_bounded);
	tcase_add_test(life, cancel);
	tcase_add_test(life, callbacks_may_do_anything);
	tcase_add_test(names, p2p);
	tcase_add_test(names, p2p_names);
	tcase_add_test(names, store_keys);
	tcase_add_test(names, schemes);
	TCase *stores = tcase_create("stores");
	tcase_add_test(stores, a_store_is_asked_for_both);
	tcase_add_test(stores, half_of_it_is_not_there);
	tcase_add_test(stores, what_is_watched_need_not_be_read);
	TCase *cases[] = {cache, life, names, stores};
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
