/* The handshake service over real sockets: what peers get, what strangers get, and that nobody delays anybody. */
#include "metadata/handshake.h"
#include "metadata/descriptor.h"
#include "tests/support/fdcheck.h"
#include "tests/support/raw_peer.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define SHORT_NS UINT64_C(150000000)

static struct {
	struct neap_reactor *reactor;
	struct neap_handshake_service *service;
	struct neap_handshake_caller *caller;
	uint16_t port;
	int fds_before;
	struct fdcheck fds;
	/* what the handlers do */
	const char *descriptor;
	size_t descriptor_length; /* of x's when there is no text */
	int notify_answer, connection_answer;
	bool destroy_in_handler, later;
	uint64_t ticket; /* of the last connection request */
	const char *reply_msg;
	char notified[64];
	int describes, notifies, connections;
	int warnings;
} rig;

static void on_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user;
	(void)message;
	rig.warnings += level <= NEAP_LOG_WARNING && strcmp(component, "handshake") == 0;
}

static void in_handler(void)
{
	if (rig.destroy_in_handler)
		neap_handshake_service_destroy(rig.service);
}

static char *describe(void *user, size_t *length_p)
{
	char *text;
	ck_assert_ptr_eq(user, &rig);
	rig.describes++;
	in_handler();
	if (rig.descriptor) {
		*length_p = strlen(rig.descriptor);
		return strdup(rig.descriptor);
	}
	if (rig.descriptor_length == 0)
		return NULL;
	text = malloc(rig.descriptor_length);
	memset(text, 'x', rig.descriptor_length);
	*length_p = rig.descriptor_length;
	return text;
}

static int notify(void *user, const char *name, const char *message)
{
	(void)user;
	rig.notifies++;
	(void)snprintf(rig.notified, sizeof rig.notified, "%s|%s", name, message);
	in_handler();
	return rig.notify_answer;
}

static int connection(void *user, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	(void)user;
	rig.connections++;
	rig.ticket = ticket;
	in_handler();
	if (rig.later)
		return NEAP_HANDSHAKE_LATER;
	reply->local_nic_path = strdup(request->peer_nic_path);
	reply->qp_nums[0] = 9;
	reply->qp_count = 1;
	reply->has_ready_ack = true;
	if (rig.reply_msg)
		reply->reply_msg = strdup(rig.reply_msg);
	return rig.connection_answer;
}

static struct neap_sockaddr loopback(uint16_t port)
{
	struct neap_sockaddr address;
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", port, &address), 0);
	return address;
}

static void open_rig(const struct neap_handshake_service_options *options, bool with_connection)
{
	struct neap_handshake_handlers handlers = {describe, notify, with_connection ? connection : NULL, &rig};
	struct neap_reactor_options reactor_options = {.log = on_log};
	struct neap_sockaddr address = loopback(0);
	int system_errno;
	char why[200];
	memset(&rig, 0, sizeof rig);
	rig.fds_before = fdcheck_count();
	fdcheck_begin(&rig.fds);
	ck_assert_int_eq(neap_reactor_create(&rig.reactor, &reactor_options), 0);
	int error = neap_handshake_service_create(&rig.service, rig.reactor, &address, 0, 0, options, &handlers, &system_errno, why,
	                                          sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	ck_assert_int_eq(neap_handshake_caller_create(&rig.caller, rig.reactor, 64, 0, NULL), 0);
	rig.port = neap_handshake_service_port(rig.service);
	ck_assert_uint_ne(rig.port, 0);
}

static void close_rig(void)
{
	fdcheck_assert(&rig.fds);
	neap_handshake_service_destroy(rig.destroy_in_handler ? NULL : rig.service);
	neap_handshake_caller_destroy(rig.caller);
	drive_to_end(rig.reactor);
	ck_assert_int_eq(fdcheck_count(), rig.fds_before);
}

static struct neap_handshake_service_stats stats(void)
{
	struct neap_handshake_service_stats stats;
	neap_handshake_service_stats(rig.service, &stats);
	return stats;
}

static bool sessions_are(void *user)
{
	return stats().sessions == *(const uint32_t *)user;
}

static bool sessions_at_most(void *user)
{
	return stats().sessions <= *(const uint32_t *)user;
}

static void await_no_sessions(void)
{
	uint32_t none = 0;
	ck_assert_msg(drive_all_until(&rig.reactor, 1, sessions_are, &none, 5000), "%u sessions are left", stats().sessions);
}

/* The frame around a text; returns its size. */
static size_t frame(char *bytes, int type, const char *json)
{
	size_t length = strlen(json), head = neap_frame_head((uint8_t *)bytes, type, type < 0, length);
	memcpy(bytes + head, json, length);
	return head + length;
}

/* Sends the bytes; wants exactly these back, then the server's half-close, then closes itself. */
static void exchange(const void *request, size_t request_length, const void *reply, size_t reply_length)
{
	struct raw_peer peer;
	raw_connect(&peer, rig.port, 0);
	raw_send(&peer, request, request_length);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000));
	ck_assert_msg(!peer.reset, "reset");
	ck_assert_msg(peer.have == reply_length && memcmp(peer.bytes, reply, reply_length) == 0, "got %zu bytes: %.*s", peer.have,
	              peer.have > 9 ? (int)peer.have - 9 : 0, peer.bytes + 9);
	raw_close(&peer);
	await_no_sessions();
}

static void exchange_json(int type, const char *request, const char *reply)
{
	char bytes[2048], wanted[2048];
	size_t length = frame(bytes, type, request), wanted_length = frame(wanted, type, reply);
	exchange(bytes, length, wanted, wanted_length);
}

#define EMPTY_CONNECTION                                                                                                           \
	"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_"   \
	"msg\":\"\"}\n"

/* --- the vectors captured from the reference ---------------------------------------------------------------------- */

START_TEST(vectors)
{
	static const char probe[] = "\x03\0\0\0\0\0\0\0\x03{}", probe_reply[] = "\x16\0\0\0\0\0\0\0\x03{\"status\":\"success\"}\n";
	static const char notify_reply[] = "\x24\0\0\0\0\0\0\0\x02{\"name\":\"\",\"notify_msg\":\"success\"}\n";
	static const char connection_reply[] = "\x6f\0\0\0\0\0\0\0\0" EMPTY_CONNECTION,
	                  old_reply[] = "\x6e\0\0\0\0\0\0\0" EMPTY_CONNECTION;
	static const char request[] = "{\"local_nic_path\":\"a@b\",\"peer_nic_path\":\"c@d\",\"qp_num\":[1,2],\"reply_msg\":\"\"}\n";
	char bytes[512];

	open_rig(NULL, false);
	exchange(probe, sizeof probe - 1, probe_reply, sizeof probe_reply - 1);
	exchange(bytes, frame(bytes, NEAP_HANDSHAKE_NOTIFY, "{\"name\":\"n\",\"notify_msg\":\"m\"}\n"), notify_reply,
	         sizeof notify_reply - 1);
	ck_assert_str_eq(rig.notified, "n|m");
	exchange(bytes, frame(bytes, NEAP_HANDSHAKE_CONNECTION, request), connection_reply, sizeof connection_reply - 1);
	exchange(bytes, frame(bytes, -1, request), old_reply, sizeof old_reply - 1);
	ck_assert_uint_eq(stats().served, 4);
	ck_assert_uint_eq(stats().notifies, 1);
	ck_assert_uint_eq(stats().refused, 0);
	ck_assert_int_eq(rig.warnings, 0);
	close_rig();
}
END_TEST

#define DESCRIPTOR                                                                                                                 \
	"{\"buffers\":[{\"addr\":140121395429376,\"length\":268435456,\"name\":\"127.0.0.1:15882\"}],\"name\":\"127.0.0.1:15882\","    \
	"\"protocol\":"                                                                                                                \
	"\"tcp\",\"tcp_data_port\":15781,\"tcp_proto_version\":2,\"timestamp\":\"2026-08-22 10:00:00.000001\"}"

START_TEST(metadata)
{
	open_rig(NULL, false);
	exchange_json(NEAP_HANDSHAKE_METADATA, "{}", "null\n");
	rig.descriptor = DESCRIPTOR;
	exchange_json(NEAP_HANDSHAKE_METADATA, "{}", DESCRIPTOR "\n"); /* the newline is ours to add */
	rig.descriptor = DESCRIPTOR "\n";
	exchange_json(NEAP_HANDSHAKE_METADATA, DESCRIPTOR "\n", DESCRIPTOR "\n");
	ck_assert_uint_eq(strlen(DESCRIPTOR "\n") + 1, 0xd3);
	ck_assert_int_eq(rig.describes, 3);
	close_rig();
}
END_TEST

/* A full queue is said the way clients of the reference understand it. */
START_TEST(notify_refused)
{
	open_rig(NULL, false);
	rig.notify_answer = NEAP_EAGAIN;
	exchange_json(NEAP_HANDSHAKE_NOTIFY, "{\"name\":\"n\",\"notify_msg\":\"m\"}", "{\"name\":\"\",\"notify_msg\":\"\"}\n");
	ck_assert_uint_eq(stats().notifies, 0);
	close_rig();
}
END_TEST

START_TEST(connections)
{
	open_rig(NULL, true);
	static const char filled[] =
		"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"p\",\"payload\":\"\",\"peer_nic_path\":\"\","
		"\"qp_num\":[9],\"ready_ack\":false,\"reply_msg\":\"%s\"}\n";
	char wanted[300];
	(void)snprintf(wanted, sizeof wanted, filled, "");
	exchange_json(NEAP_HANDSHAKE_CONNECTION, "{\"peer_nic_path\":\"p\",\"ready_ack\":1}", wanted);
	rig.connection_answer = NEAP_ENODEV;
	(void)snprintf(wanted, sizeof wanted, filled, "no such device");
	exchange_json(NEAP_HANDSHAKE_CONNECTION, "{\"peer_nic_path\":\"p\"}", wanted);
	rig.reply_msg = "Local RDMA context not found";
	(void)snprintf(wanted, sizeof wanted, filled, rig.reply_msg);
	exchange_json(-1, "{\"peer_nic_path\":\"p\"}", wanted);
	ck_assert_int_eq(rig.connections, 3);
	/* values that cannot be are answered in words, without asking the handler */
	exchange_json(
		NEAP_HANDSHAKE_CONNECTION, "{\"local_lid\":65536}",
		"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_path\":\"\",\"qp_num\":[],"
		"\"reply_msg\":\"local_lid: is 65536, at most 65535 is possible\"}\n");
	ck_assert_int_eq(rig.connections, 3);
	close_rig();
}
END_TEST

/* --- answers that come later */

static bool asked(void *user)
{
	(void)user;
	return rig.ticket != 0;
}

/* A request that the handler keeps. */
static void ask(struct raw_peer *peer)
{
	static const char request[] = "{\"peer_nic_path\":\"p\"}";
	char bytes[100];
	rig.later = true;
	rig.ticket = 0;
	raw_connect(peer, rig.port, 0);
	raw_send(peer, bytes, frame(bytes, NEAP_HANDSHAKE_CONNECTION, request));
	ck_assert(drive_all_until(&rig.reactor, 1, asked, NULL, 5000));
}

static const struct neap_connection_message kept_reply = {.reply_msg = (char *)(uintptr_t)"later"};
static const char kept_text[] = "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_path\":\"\","
								"\"qp_num\":[],\"reply_msg\":\"later\"}\n";

START_TEST(answered_later)
{
	struct raw_peer peer;
	char wanted[300];
	open_rig(NULL, true);
	ask(&peer);
	drive_for(rig.reactor, 20);
	ck_assert_uint_eq(stats().sessions, 1);
	ck_assert_uint_eq(stats().served, 0);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), 0);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), NEAP_ESTALE); /* once */
	size_t length = frame(wanted, NEAP_HANDSHAKE_CONNECTION, kept_text);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000));
	ck_assert(peer.have == length && memcmp(peer.bytes, wanted, length) == 0);
	raw_close(&peer);
	await_no_sessions();
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), NEAP_ESTALE);
	ck_assert_int_eq(neap_handshake_answer(rig.service, 0, &kept_reply), NEAP_ESTALE);
	close_rig();
}
END_TEST

START_TEST(never_answered)
{
	struct raw_peer peer;
	open_rig(&(struct neap_handshake_service_options){.answer_timeout_ns = SHORT_NS}, true);
	ask(&peer);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000));
	ck_assert_uint_eq(peer.have, 0);
	raw_close(&peer);
	await_no_sessions();
	ck_assert_uint_eq(stats().refused, 1);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), NEAP_ESTALE);
	close_rig();
}
END_TEST

/* The peer has left meanwhile: found out when it is answered. */
START_TEST(answered_to_nobody)
{
	struct raw_peer peer;
	open_rig(NULL, true);
	ask(&peer);
	raw_reset(&peer);
	drive_for(rig.reactor, 20);
	ck_assert_uint_eq(stats().sessions, 1);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), 0);
	await_no_sessions();
	close_rig();
}
END_TEST

/* What cannot be encoded is no answer. */
START_TEST(answered_with_nonsense)
{
	static const struct neap_connection_message nonsense = {.reply_msg = (char *)(uintptr_t)"\xff"};
	struct raw_peer peer;
	open_rig(NULL, true);
	ask(&peer);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &nonsense), NEAP_EINVAL);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000));
	ck_assert_uint_eq(peer.have, 0);
	raw_close(&peer);
	await_no_sessions();
	close_rig();
}
END_TEST

START_TEST(destroyed_while_it_is_answered)
{
	struct raw_peer peer;
	open_rig(NULL, true);
	ask(&peer);
	neap_handshake_service_destroy(rig.service);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), NEAP_ESTALE);
	rig.destroy_in_handler = true; /* it is gone */
	raw_close(&peer);
	close_rig();
}
END_TEST

/* One that waits for its answer makes room as others do. */
START_TEST(the_oldest_is_one_that_waits)
{
	struct raw_peer peer, other;
	open_rig(&(struct neap_handshake_service_options){.sessions_max = 2}, true);
	ask(&peer);
	uint64_t ticket = rig.ticket;
	ask(&other);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000));
	ck_assert_int_eq(neap_handshake_answer(rig.service, ticket, &kept_reply), NEAP_ESTALE);
	ck_assert_int_eq(neap_handshake_answer(rig.service, rig.ticket, &kept_reply), 0);
	ck_assert(raw_await_end(rig.reactor, &other, 5000));
	ck_assert_uint_gt(other.have, 0);
	raw_close(&peer);
	raw_close(&other);
	await_no_sessions();
	close_rig();
}
END_TEST

/* --- how bytes may come ------------------------------------------------------------------------------------------- */

static bool turned(void *user)
{
	return --*(int *)user < 0;
}

static void few_turns(void)
{
	int turns = 4;
	(void)drive_all_until(&rig.reactor, 1, turned, &turns, 20);
}

START_TEST(every_split)
{
	char bytes[64];
	size_t length = frame(bytes, NEAP_HANDSHAKE_PROBE, "{}");
	open_rig(NULL, false);
	for (size_t at = 1; at < length; at++) {
		struct raw_peer peer;
		raw_connect(&peer, rig.port, 0);
		raw_send(&peer, bytes, at);
		few_turns();
		raw_send(&peer, bytes + at, length - at);
		ck_assert(raw_await(rig.reactor, &peer, 8 + 0x16, 5000));
		raw_close(&peer);
	}
	struct raw_peer peer;
	raw_connect(&peer, rig.port, 0);
	for (size_t at = 0; at < length; at++) {
		raw_send(&peer, bytes + at, 1);
		few_turns();
	}
	ck_assert(raw_await(rig.reactor, &peer, 8 + 0x16, 5000));
	raw_close(&peer);
	await_no_sessions();
	ck_assert_uint_eq(stats().served, length);
	close_rig();
}
END_TEST

/* The peer half-closes after its request, or sends more than was asked for: the reply comes whole. */
START_TEST(half_close_and_extra_bytes)
{
	char bytes[4096];
	struct raw_peer peer;
	size_t length = frame(bytes, NEAP_HANDSHAKE_PROBE, "{}");
	open_rig(NULL, false);
	raw_connect(&peer, rig.port, 0);
	raw_send(&peer, bytes, length);
	ck_assert_int_eq(shutdown(peer.fd, SHUT_WR), 0);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000) && peer.have == 8 + 0x16 && !peer.reset);
	raw_close(&peer);
	await_no_sessions();
	memset(bytes + length, 'x', 2000);
	raw_connect(&peer, rig.port, 0);
	raw_send(&peer, bytes, length + 1000);
	few_turns();
	raw_send(&peer, bytes + length, 1000);
	ck_assert(raw_await_end(rig.reactor, &peer, 5000) && peer.have == 8 + 0x16 && !peer.reset);
	raw_close(&peer);
	await_no_sessions();
	close_rig();
}
END_TEST

/* --- strangers ---------------------------------------------------------------------------------------------------- */

/* Closed without a byte, at once. */
static void refused(const void *bytes, size_t length)
{
	struct raw_peer peer;
	uint64_t before = stats().refused;
	raw_connect(&peer, rig.port, 0);
	raw_send(&peer, bytes, length);
	ck_assert_msg(raw_await_end(rig.reactor, &peer, 2000), "still open: %.60s", length > 9 ? (const char *)bytes + 9 : "");
	ck_assert_msg(peer.have == 0, "answered: %.60s", length > 9 ? (const char *)bytes + 9 : "");
	raw_close(&peer);
	await_no_sessions();
	ck_assert_uint_eq(stats().refused, before + 1);
}

START_TEST(strangers)
{
	static const struct {
		const char *bytes;
		size_t length;
	} rows[] = {
#define BYTES(text) {text, sizeof text - 1}
		BYTES("GET / HTTP/1.1\r\nHost: a\r\n\r\n"),
		BYTES("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 ClientHello and so on"),
		BYTES("\0\0\0\0\0\0\0\0"),
		BYTES("\x01\0\0\0\0\0\0\0{"),
		BYTES("\x01\0\0\0\0\0\0\0\x03"),
		BYTES("\x01\0\0\0\0\0\0\0\xff"),
		BYTES("\x01\0\x10\0\0\0\0\0"),
		BYTES("\0\0\0\0\0\0\0\x80"),
		BYTES("\xff\xff\xff\xff\xff\xff\xff\xff"),
		BYTES("\x03\0\0\0\0\0\0\0\x04{}"),
		BYTES("\x03\0\0\0\0\0\0\0\x80{}"),
		BYTES("\x03\0\0\0\0\0\0\0\xfe{}"),
		BYTES("\x03\0\0\0\0\0\0\0\xff{}"),
#undef BYTES
	};
	open_rig(NULL, false);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(rows[i].bytes, rows[i].length);
	ck_assert_int_eq(rig.describes + rig.notifies, 0);
	close_rig();
}
END_TEST

START_TEST(bad_documents)
{
	static const struct {
		int type;
		const char *json;
	} rows[] = {
		{NEAP_HANDSHAKE_PROBE, "null"},
		{NEAP_HANDSHAKE_PROBE, "[]"},
		{NEAP_HANDSHAKE_PROBE, "{"},
		{NEAP_HANDSHAKE_PROBE, "{}x"},
		{NEAP_HANDSHAKE_PROBE, " "},
		{NEAP_HANDSHAKE_PROBE, "{\"a\":NaN}"},
		{NEAP_HANDSHAKE_METADATA, "[]"},
		{NEAP_HANDSHAKE_METADATA, "\"a\""},
		{NEAP_HANDSHAKE_METADATA, "{\"a\":\"\xff\"}"},
		{NEAP_HANDSHAKE_NOTIFY, "[]"},
		{NEAP_HANDSHAKE_NOTIFY, "{\"name\":{}}"},
		{NEAP_HANDSHAKE_NOTIFY, "{\"name\":1}"},
		{NEAP_HANDSHAKE_NOTIFY, "{\"notify_msg\":[]}"},
		{NEAP_HANDSHAKE_NOTIFY, "{\"name\":\"a\",\"name\":7}"},
		{NEAP_HANDSHAKE_CONNECTION, "[]"},
		{NEAP_HANDSHAKE_CONNECTION, "7"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"payload\":{}}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"local_nic_path\":1}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"peer_nic_path\":[]}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"reply_msg\":{}}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"qp_num\":[-1]}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"qp_num\":[\"1\"]}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"qp_num\":7}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"local_gid\":7}"},
		{NEAP_HANDSHAKE_CONNECTION, "{\"qp_num\":[NaN]}"},
		{-1, "{\"payload\":[]}"},
		{-1, "{"},
	};
	static char deep[100100], bytes[100200];
	open_rig(NULL, true);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(bytes, frame(bytes, rows[i].type, rows[i].json));
	memset(deep, '[', 100000);
	for (int type = 0; type <= 3; type++)
		refused(bytes, frame(bytes, type, deep));
	ck_assert_int_eq(rig.describes + rig.notifies + rig.connections, 0);
	ck_assert_int_eq(rig.warnings, 0);
	close_rig();
}
END_TEST

/* Half a header, nothing at all, a byte now and then: the deadline is for the whole request and does not move. */
START_TEST(request_deadline)
{
	struct neap_handshake_service_options options = {.request_timeout_ns = SHORT_NS};
	struct raw_peer silent, half, slow;
	open_rig(&options, false);
	raw_connect(&silent, rig.port, 0);
	raw_connect(&half, rig.port, 0);
	raw_connect(&slow, rig.port, 0);
	uint64_t start_ns = drive_now_ns();
	raw_send(&half, "\x10\0\0", 3);
	raw_send(&slow, "\xff\0\0\0\0\0\0\0\x02", 9);
	int sent = 0;
	while (!slow.ended && !slow.reset && sent < 1000) {
		raw_send(&slow, "{", 1);
		sent++;
		drive_for(rig.reactor, 10);
		raw_take(&slow);
	}
	ck_assert(slow.ended || slow.reset);
	ck_assert_int_gt(sent, 0); /* and did not put it off: it would be at that still */
	ck_assert(raw_await_end(rig.reactor, &silent, 2000) && silent.have == 0);
	ck_assert(raw_await_end(rig.reactor, &half, 2000) && half.have == 0);
	uint64_t took_ns = drive_now_ns() - start_ns;
	ck_assert_msg(took_ns >= SHORT_NS, "took %llu ms", (unsigned long long)took_ns / 1000000);
	ck_assert_uint_eq(stats().refused, 3);
	raw_close(&silent);
	raw_close(&half);
	raw_close(&slow);
	close_rig();
}
END_TEST

/* Gone before the request was whole: not even a refusal. */
START_TEST(peer_leaves_early)
{
	struct raw_peer peer;
	open_rig(NULL, false);
	raw_connect(&peer, rig.port, 0);
	raw_send(&peer, "\x10\0\0", 3);
	few_turns();
	raw_close(&peer);
	await_no_sessions();
	raw_connect(&peer, rig.port, 0);
	few_turns();
	ck_assert_uint_eq(stats().sessions, 1);
	raw_reset(&peer);
	await_no_sessions();
	ck_assert_uint_eq(stats().refused, 1);
	close_rig();
}
END_TEST

/* --- replies nobody takes ----------------------------------------------------------------------------------------- */

START_TEST(reply_deadlines)
{
	struct neap_handshake_service_options options = {.reply_timeout_ns = SHORT_NS, .length_max = 8u << 20};
	struct raw_peer slow, staying;
	char bytes[64];
	size_t length = frame(bytes, NEAP_HANDSHAKE_METADATA, "{}");
	open_rig(&options, false);
	rig.descriptor_length = 6u << 20; /* more than the sockets' buffers take */
	raw_connect(&slow, rig.port, 4096);
	raw_send(&slow, bytes, length);
	few_turns();
	ck_assert_uint_eq(stats().sessions, 1);
	await_no_sessions();
	ck_assert_uint_eq(stats().refused, 1);
	ck_assert_uint_eq(stats().served, 0);
	raw_close(&slow);

	/* took the reply, does not close */
	rig.descriptor_length = 0;
	uint64_t start_ns = drive_now_ns();
	raw_connect(&staying, rig.port, 0);
	raw_send(&staying, bytes, length);
	ck_assert(raw_await_end(rig.reactor, &staying, 2000) && staying.have == 14);
	ck_assert_uint_eq(stats().sessions, 1);
	await_no_sessions();
	ck_assert_uint_ge(drive_now_ns() - start_ns, SHORT_NS);
	ck_assert_uint_eq(stats().refused, 1);
	raw_close(&staying);
	close_rig();
}
END_TEST

START_TEST(peer_resets_within_the_reply)
{
	struct neap_handshake_service_options options = {.reply_timeout_ns = UINT64_C(60000000000), .length_max = 8u << 20};
	struct raw_peer peer;
	char bytes[64];
	open_rig(&options, false);
	rig.descriptor_length = 6u << 20;
	raw_connect(&peer, rig.port, 4096);
	raw_send(&peer, bytes, frame(bytes, NEAP_HANDSHAKE_METADATA, "{}"));
	few_turns();
	ck_assert_uint_eq(stats().sessions, 1);
	raw_reset(&peer);
	await_no_sessions();
	ck_assert_uint_eq(stats().refused, 1);
	close_rig();
}
END_TEST

START_TEST(large_reply_arrives)
{
	struct neap_handshake_service_options options = {.length_max = 2u << 20};
	struct raw_peer peer;
	char bytes[64];
	open_rig(&options, false);
	rig.descriptor_length = (2u << 20) - 2000;
	raw_connect(&peer, rig.port, 65536);
	raw_send(&peer, bytes, frame(bytes, NEAP_HANDSHAKE_METADATA, "{}"));
	ck_assert(raw_await_end(rig.reactor, &peer, 10000));
	ck_assert_uint_eq(peer.have, 9 + rig.descriptor_length + 1);
	ck_assert(peer.bytes[8] == 1 && peer.bytes[9] == 'x' && peer.bytes[peer.have - 2] == 'x' && peer.bytes[peer.have - 1] == '\n');
	raw_close(&peer);
	/* one that peers would refuse is not sent, and we hear of it */
	rig.descriptor_length = 2u << 20;
	refused(bytes, frame(bytes, NEAP_HANDSHAKE_METADATA, "{}"));
	ck_assert_int_eq(rig.warnings, 1);
	close_rig();
}
END_TEST

/* --- many --------------------------------------------------------------------------------------------------------- */

struct asked {
	bool done;
	int error;
};

static void answered(void *user, int error, const char *json, size_t length, const char *why)
{
	struct asked *asked = user;
	asked->done = true;
	asked->error = error;
	ck_assert_msg(error == 0, "%s", why);
	ck_assert(length == 21 && memcmp(json, "{\"status\":\"success\"}\n", 21) == 0);
}

static uint64_t cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* How long an honest call takes, both ends being in this process. *cpu_ns_p: in processor time, which other load leaves alone. */
static uint64_t probe_ns(uint64_t *cpu_ns_p)
{
	struct neap_host_port peer = {.host = "127.0.0.1", .port = rig.port, .has_port = true};
	struct asked asked = {0};
	uint64_t call, start_ns = drive_now_ns(), start_cpu_ns = cpu_ns();
	ck_assert_int_eq(neap_handshake_call(rig.caller, &peer, NEAP_HANDSHAKE_PROBE, "{}", 2, 5000000000u, answered, &asked, &call),
	                 0);
	ck_assert(!asked.done);
	ck_assert(drive_until(rig.reactor, &asked.done, 6000));
	*cpu_ns_p = cpu_ns() - start_cpu_ns;
	return drive_now_ns() - start_ns;
}

static int by_value(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;
	return *x < *y ? -1 : *x > *y;
}

START_TEST(idle_connections_delay_nobody)
{
	enum { IDLE = 1000, CALLS = 200 };
	static struct raw_peer idle[IDLE];
	uint64_t took_ns[CALLS], cpu[CALLS];
	ck_assert_msg(raw_descriptors() > 2 * IDLE + 100, "too few descriptors allowed here");
	struct neap_handshake_service_options options = {.request_timeout_ns = UINT64_C(60000000000)};
	open_rig(&options, false);
	for (int i = 0; i < IDLE; i++) {
		raw_connect(&idle[i], rig.port, 0);
		if (i % 100 == 99) { /* the backlog is 128 */
			uint32_t wanted = (uint32_t)i + 1;
			ck_assert(drive_all_until(&rig.reactor, 1, sessions_are, &wanted, 5000));
		}
	}
	for (int i = 0; i < CALLS; i++)
		took_ns[i] = probe_ns(&cpu[i]);
	qsort(took_ns, CALLS, sizeof *took_ns, by_value);
	qsort(cpu, CALLS, sizeof *cpu, by_value);
	printf("beside %u idle connections: p50 %.2f ms, p99 %.2f ms, p99 of processor time %.2f ms\n", stats().sessions,
	       (double)took_ns[CALLS / 2] / 1e6, (double)took_ns[CALLS * 99 / 100] / 1e6, (double)cpu[CALLS * 99 / 100] / 1e6);
	uint32_t wanted = IDLE;
	ck_assert(drive_all_until(&rig.reactor, 1, sessions_are, &wanted, 5000));
	ck_assert_uint_lt(took_ns[CALLS / 2], UINT64_C(50000000));
	ck_assert_uint_lt(cpu[CALLS * 99 / 100], UINT64_C(50000000));
	for (int i = 0; i < IDLE; i++)
		raw_close(&idle[i]);
	await_no_sessions();
	close_rig();
}
END_TEST

/* All places taken by silent ones: the oldest of them goes. */
START_TEST(the_oldest_makes_room)
{
	struct neap_handshake_service_options options = {.sessions_max = 4};
	struct raw_peer peers[8];
	open_rig(&options, false);
	for (int i = 0; i < 8; i++) {
		raw_connect(&peers[i], rig.port, 0);
		few_turns();
	}
	ck_assert_uint_eq(stats().sessions, 3);
	ck_assert_uint_eq(stats().refused, 5);
	uint64_t cpu;
	(void)probe_ns(&cpu);
	for (int i = 0; i < 8; i++) {
		raw_take(&peers[i]);
		ck_assert_int_eq(peers[i].ended, i < 6);
		raw_close(&peers[i]);
	}
	await_no_sessions();
	close_rig();
}
END_TEST

/* Requests that all announce and send much: what is held stays bounded, and honest calls are served meanwhile. */
START_TEST(memory_is_bounded)
{
	enum { PEERS = 80, EACH = 1000000 };
	static struct raw_peer peers[PEERS];
	char *bulk = calloc(1, EACH), head[9];
	open_rig(NULL, false);
	(void)neap_frame_head((uint8_t *)head, NEAP_HANDSHAKE_NOTIFY, false, EACH + 10);
	for (int i = 0; i < PEERS; i++) {
		raw_connect(&peers[i], rig.port, 0);
		raw_send(&peers[i], head, 9);
		for (size_t sent = 0; sent < EACH;) {
			ssize_t n = send(peers[i].fd, bulk + sent, EACH - sent, MSG_NOSIGNAL);
			if (n < 0 && errno != EAGAIN)
				break;
			sent += n > 0 ? (size_t)n : 0;
			few_turns();
		}
	}
	/* 64 MiB are 67 such requests */
	uint32_t most = 67;
	ck_assert(drive_all_until(&rig.reactor, 1, sessions_at_most, &most, 5000));
	drive_for(rig.reactor, 20);
	ck_assert_uint_ge(stats().sessions, 50);
	ck_assert_uint_eq(stats().refused, PEERS - stats().sessions);
	for (int i = 0; i < PEERS; i++)
		raw_close(&peers[i]);
	await_no_sessions();
	uint64_t cpu;
	(void)probe_ns(&cpu);
	free(bulk);
	close_rig();
}
END_TEST

/* --- life --------------------------------------------------------------------------------------------------------- */

START_TEST(destroyed_by_its_handlers)
{
	for (int type = NEAP_HANDSHAKE_CONNECTION; type <= NEAP_HANDSHAKE_NOTIFY; type++) {
		struct raw_peer peer, idle;
		char bytes[64];
		open_rig(NULL, true);
		rig.destroy_in_handler = true;
		rig.descriptor = DESCRIPTOR;
		raw_connect(&idle, rig.port, 0);
		raw_connect(&peer, rig.port, 0);
		raw_send(&peer, bytes, frame(bytes, type, "{}"));
		ck_assert(raw_await_end(rig.reactor, &peer, 5000) && peer.have == 0);
		ck_assert(raw_await_end(rig.reactor, &idle, 5000) && idle.have == 0);
		raw_close(&peer);
		raw_close(&idle);
		close_rig();
	}
}
END_TEST

START_TEST(destroyed_between_turns)
{
	struct neap_handshake_service_options options = {.length_max = 8u << 20};
	struct raw_peer receiving, replying, lingering;
	char bytes[64];
	open_rig(&options, false);
	raw_connect(&lingering, rig.port, 0);
	raw_send(&lingering, bytes, frame(bytes, NEAP_HANDSHAKE_PROBE, "{}"));
	ck_assert(raw_await_end(rig.reactor, &lingering, 5000));
	rig.descriptor_length = 6u << 20;
	raw_connect(&replying, rig.port, 4096);
	raw_send(&replying, bytes, frame(bytes, NEAP_HANDSHAKE_METADATA, "{}"));
	raw_connect(&receiving, rig.port, 0);
	raw_send(&receiving, "\x10", 1);
	few_turns();
	ck_assert_uint_eq(stats().sessions, 3);
	neap_handshake_service_destroy(rig.service);
	rig.service = NULL;
	few_turns();
	raw_close(&receiving);
	raw_close(&replying);
	raw_close(&lingering);
	close_rig();
}
END_TEST

START_TEST(binds_and_keeps_its_port)
{
	struct neap_handshake_handlers handlers = {.user = &rig};
	struct neap_handshake_service *first, *second;
	struct neap_sockaddr address = loopback(0);
	int system_errno;
	char why[200];
	open_rig(NULL, false);
	ck_assert_int_eq(
		neap_handshake_service_create(&first, rig.reactor, &address, 15000, 17000, NULL, &handlers, &system_errno, why, sizeof why),
		0);
	uint16_t port = neap_handshake_service_port(first);
	ck_assert(port >= 15000 && port <= 17000);
	ck_assert_int_eq(
		neap_handshake_service_create(&second, rig.reactor, &address, port, port, NULL, &handlers, &system_errno, why, sizeof why),
		NEAP_ESOCKET);
	ck_assert_ptr_null(second);
	ck_assert_ptr_nonnull(strstr(why, "no port from"));
	address = loopback(port);
	ck_assert_int_eq(
		neap_handshake_service_create(&second, rig.reactor, &address, 0, 0, NULL, &handlers, &system_errno, why, sizeof why),
		NEAP_ESOCKET);
	ck_assert_ptr_nonnull(strstr(why, "Address already in use"));
	neap_handshake_service_destroy(first);
	few_turns();
	/* at once again, on the same port */
	ck_assert_int_eq(
		neap_handshake_service_create(&second, rig.reactor, &address, 0, 0, NULL, &handlers, &system_errno, why, sizeof why), 0);
	ck_assert_uint_eq(neap_handshake_service_port(second), port);
	neap_handshake_service_destroy(second);
	close_rig();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("handshake");
	TCase *replies = tcase_create("replies"), *strange = tcase_create("strangers"), *many = tcase_create("many"),
	      *life = tcase_create("life"), *later = tcase_create("later");
	tcase_add_test(replies, vectors);
	tcase_add_test(replies, metadata);
	tcase_add_test(replies, notify_refused);
	tcase_add_test(replies, connections);
	tcase_add_test(later, answered_later);
	tcase_add_test(later, never_answered);
	tcase_add_test(later, answered_to_nobody);
	tcase_add_test(later, answered_with_nonsense);
	tcase_add_test(later, destroyed_while_it_is_answered);
	tcase_add_test(later, the_oldest_is_one_that_waits);
	tcase_add_test(replies, every_split);
	tcase_add_test(replies, half_close_and_extra_bytes);
	tcase_add_test(replies, reply_deadlines);
	tcase_add_test(replies, peer_resets_within_the_reply);
	tcase_add_test(replies, large_reply_arrives);
	tcase_add_test(strange, strangers);
	tcase_add_test(strange, bad_documents);
	tcase_add_test(strange, request_deadline);
	tcase_add_test(strange, peer_leaves_early);
	tcase_add_test(many, idle_connections_delay_nobody);
	tcase_add_test(many, the_oldest_makes_room);
	tcase_add_test(many, memory_is_bounded);
	tcase_add_test(life, destroyed_by_its_handlers);
	tcase_add_test(life, destroyed_between_turns);
	tcase_add_test(life, binds_and_keeps_its_port);
	TCase *cases[] = {replies, later, strange, many, life};
	for (int i = 0; i < 5; i++) {
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
