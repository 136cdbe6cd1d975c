/* Handshake frames and the messages in them. */
#include "metadata/handshake.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LIMIT 4096u

static char why[256];

/* Feeds the bytes in pieces of the given sizes, the last one for all the rest; each from memory of exactly its size. */
static enum neap_frame_state feed(struct neap_frame_reader *reader, const void *bytes, size_t length, size_t first, size_t second,
                                  size_t *used_p)
{
	enum neap_frame_state state = NEAP_FRAME_MORE;
	size_t at = 0;
	for (int i = 0; at < length && state == NEAP_FRAME_MORE; i++) {
		size_t piece = i == 0 ? first : i == 1 ? second : length - at, used;
		if (piece > length - at)
			piece = length - at;
		char *copy = malloc(piece ? piece : 1);
		memcpy(copy, (const char *)bytes + at, piece);
		state = neap_frame_reader_feed(reader, copy, piece, &used, why, sizeof why);
		free(copy);
		ck_assert_uint_le(used, piece);
		if (state == NEAP_FRAME_MORE)
			ck_assert_uint_eq(used, piece);
		at += used;
	}
	*used_p = at;
	return state;
}

/* As captured: the reply to a probe. */
static const char probe_reply[] = "\x16\0\0\0\0\0\0\0\x03{\"status\":\"success\"}\n";

START_TEST(takes_every_split)
{
	size_t length = sizeof probe_reply - 1;
	for (size_t first = 0; first <= length; first++)
		for (size_t second = 0; first + second <= length; second++) {
			struct neap_frame_reader reader;
			const char *json;
			size_t json_length, used;
			bool old;
			neap_frame_reader_init(&reader, LIMIT);
			ck_assert_int_eq(feed(&reader, probe_reply, length, first, second, &used), NEAP_FRAME_DONE);
			ck_assert_uint_eq(used, length);
			ck_assert_int_eq(neap_frame_type(&reader, &old, &json, &json_length), NEAP_HANDSHAKE_PROBE);
			ck_assert(!old && json_length == 21 && memcmp(json, "{\"status\":\"success\"}\n", 21) == 0);
			neap_frame_reader_reset(&reader);
		}
}
END_TEST

START_TEST(leaves_what_follows)
{
	char two[2 * sizeof probe_reply];
	struct neap_frame_reader reader;
	size_t used;
	memcpy(two, probe_reply, sizeof probe_reply - 1);
	memcpy(two + sizeof probe_reply - 1, "extra", 5);
	neap_frame_reader_init(&reader, LIMIT);
	ck_assert_int_eq(feed(&reader, two, sizeof probe_reply + 4, 3, 100, &used), NEAP_FRAME_DONE);
	ck_assert_uint_eq(used, sizeof probe_reply - 1);
	neap_frame_reader_reset(&reader);
	ck_assert_ptr_null(reader.body);
	ck_assert_uint_eq(reader.head_have, 0);
}
END_TEST

START_TEST(checks_the_length)
{
	static const struct {
		uint64_t length;
		bool good;
	} rows[] = {
		{0, false},
		{1, true},
		{LIMIT, true},
		{LIMIT + 1, false},
		{UINT64_C(1) << 20, false},
		{UINT64_C(1) << 32, false},
		{(UINT64_C(1) << 32) + 1, false},
		{UINT64_C(1) << 63, false},
		{UINT64_MAX, false},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_frame_reader reader;
		uint8_t head[9];
		size_t used;
		ck_assert_uint_eq(neap_frame_head(head, 0, true, rows[i].length), 8);
		neap_frame_reader_init(&reader, LIMIT);
		enum neap_frame_state state = feed(&reader, head, 8, 8, 0, &used);
		ck_assert_int_eq(state, rows[i].good ? NEAP_FRAME_MORE : NEAP_FRAME_BAD);
		if (!rows[i].good)
			ck_assert_ptr_nonnull(strstr(why, "4096"));
		ck_assert_ptr_null(reader.body); /* nothing for what is only announced */
		neap_frame_reader_reset(&reader);
	}
}
END_TEST

START_TEST(grows_with_what_arrived)
{
	struct neap_frame_reader reader;
	uint32_t limit = NEAP_HANDSHAKE_LENGTH_MAX;
	char *bytes = calloc(1, 100000);
	uint8_t head[9];
	size_t used;
	(void)neap_frame_head(head, 0, true, limit);
	neap_frame_reader_init(&reader, limit);
	ck_assert_int_eq(neap_frame_reader_feed(&reader, head, 8, &used, why, sizeof why), NEAP_FRAME_MORE);
	ck_assert_int_eq(neap_frame_reader_feed(&reader, bytes, 1, &used, why, sizeof why), NEAP_FRAME_MORE);
	ck_assert_uint_le(reader.body_capacity, 4096);
	ck_assert_int_eq(neap_frame_reader_feed(&reader, bytes, 100000, &used, why, sizeof why), NEAP_FRAME_MORE);
	ck_assert_uint_le(reader.body_capacity, 200004);
	/* the owner's budget ends it */
	reader.capacity_max = reader.body_capacity;
	enum neap_frame_state state = NEAP_FRAME_MORE;
	for (int i = 0; i < 3 && state == NEAP_FRAME_MORE; i++)
		state = neap_frame_reader_feed(&reader, bytes, 100000, &used, why, sizeof why);
	ck_assert_int_eq(state, NEAP_FRAME_BAD);
	ck_assert_ptr_nonnull(strstr(why, "no room"));
	neap_frame_reader_reset(&reader);
	free(bytes);
}
END_TEST

START_TEST(tells_the_type)
{
	static const struct {
		uint8_t first;
		int type;
		bool old;
	} rows[] = {{0, 0, false},  {1, 1, false},   {2, 2, false},     {3, 3, false},     {4, 0, true},
	            {'{', 0, true}, {0x7f, 0, true}, {0x80, -1, false}, {0xfe, -1, false}, {0xff, -1, false}};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_frame_reader reader;
		char bytes[11] = {3, 0, 0, 0, 0, 0, 0, 0, (char)rows[i].first, '{', '}'};
		const char *json;
		size_t used, json_length;
		bool old;
		neap_frame_reader_init(&reader, LIMIT);
		ck_assert_int_eq(feed(&reader, bytes, 11, 11, 0, &used), NEAP_FRAME_DONE);
		ck_assert_int_eq(neap_frame_type(&reader, &old, &json, &json_length), rows[i].type);
		ck_assert_int_eq(old, rows[i].old);
		ck_assert_uint_eq(json_length, old ? 3 : 2);
		neap_frame_reader_reset(&reader);
	}
}
END_TEST

START_TEST(writes_heads)
{
	uint8_t head[9];
	ck_assert_uint_eq(neap_frame_head(head, NEAP_HANDSHAKE_PROBE, false, 2), 9);
	ck_assert_mem_eq(head, "\x03\0\0\0\0\0\0\0\x03", 9);
	ck_assert_uint_eq(neap_frame_head(head, NEAP_HANDSHAKE_CONNECTION, true, 0x10203), 8);
	ck_assert_mem_eq(head, "\x03\x02\x01\0\0\0\0\0", 8);
}
END_TEST

/* --- notify ------------------------------------------------------------------------------------------------------- */

START_TEST(notify_round_trip)
{
	struct neap_notify_message message;
	char *json;
	size_t length;
	ck_assert_int_eq(neap_notify_encode("", "success", &json, &length), 0);
	ck_assert_str_eq(json, "{\"name\":\"\",\"notify_msg\":\"success\"}\n");
	ck_assert_uint_eq(length, 0x24 - 1);
	free(json);
	ck_assert_int_eq(neap_notify_encode("a \"b\"", "x\ny\xc3\xbc", &json, &length), 0);
	ck_assert_int_eq(neap_notify_decode(json, length, &message, why, sizeof why), 0);
	ck_assert_str_eq(message.name, "a \"b\"");
	ck_assert_str_eq(message.message, "x\ny\xc3\xbc");
	neap_notify_free(&message);
	free(json);
	ck_assert_int_eq(neap_notify_encode("a", "\xff", &json, &length), NEAP_EINVAL);
	ck_assert_ptr_null(json);
}
END_TEST

START_TEST(notify_rules)
{
	static const struct {
		int error;
		const char *text, *name, *message;
	} rows[] = {
		{0, "{}", "", ""},
		{0, "{\"name\":null,\"notify_msg\":\"m\",\"x\":[{}]}", "", "m"},
		{0, "{\"name\":\"a\",\"name\":\"b\"}", "b", ""},
		{NEAP_EJSON, "{\"name\":{}}", 0, 0},
		{NEAP_EJSON, "{\"name\":\"a\",\"notify_msg\":1}", 0, 0},
		{NEAP_EJSON, "{\"notify_msg\":[\"a\"]}", 0, 0},
		{NEAP_EJSON, "{\"notify_msg\":\"a\\u0000b\"}", 0, 0},
		{NEAP_EJSON, "{\"name\":\"a\"", 0, 0},
		{NEAP_EJSON, "{\"name\":\"a\"}}", 0, 0},
		{NEAP_EJSON, "[]", 0, 0},
		{NEAP_EJSON, "null", 0, 0},
		{NEAP_EJSON, "", 0, 0},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_notify_message message;
		int error = neap_notify_decode(rows[i].text, strlen(rows[i].text), &message, why, sizeof why);
		ck_assert_msg(error == rows[i].error, "%s: %d %s", rows[i].text, error, why);
		if (error) {
			ck_assert(!message.name && !message.message && why[0]);
			continue;
		}
		ck_assert_str_eq(message.name, rows[i].name);
		ck_assert_str_eq(message.message, rows[i].message);
		neap_notify_free(&message);
	}
}
END_TEST

/* --- connection --------------------------------------------------------------------------------------------------- */

static const char empty_connection[] = "{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"payload\":\"\",\"peer_nic_"
                                       "path\":\"\",\"qp_num\":[],\"reply_msg\":\"\"}\n";
static const char captured_connection[] =
	"{\"local_gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:02\",\"local_lid\":0,\"local_nic_path\":\"10.77.0.2:15709@"
	"rxe1\","
	"\"payload\":\"\",\"peer_nic_path\":\"10.77.0.1:15270@rxe0\",\"qp_num\":[17,18],\"ready_ack\":false,\"reply_msg\":\"\"}\n";

START_TEST(connection_vectors)
{
	struct neap_connection_message message = {0};
	char *json;
	size_t length;
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), 0);
	ck_assert_str_eq(json, empty_connection);
	ck_assert_uint_eq(length, 0x6e);
	free(json);
	ck_assert_int_eq(neap_connection_decode(captured_connection, strlen(captured_connection), &message, why, sizeof why), 0);
	ck_assert_str_eq(message.local_nic_path, "10.77.0.2:15709@rxe1");
	ck_assert_str_eq(message.peer_nic_path, "10.77.0.1:15270@rxe0");
	ck_assert(message.has_gid && message.local_gid[15] == 2 && message.has_ready_ack && !message.ready_ack);
	ck_assert_uint_eq(message.qp_count, 2);
	ck_assert_uint_eq(message.qp_nums[1], 18);
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), 0);
	ck_assert_str_eq(json, captured_connection);
	ck_assert_uint_eq(length, 0xdd - 1);
	free(json);
	message.ready_ack = true;
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), 0);
	ck_assert_uint_eq(length, 0xdc - 1);
	free(json);
	message.qp_count = NEAP_QPS_MAX + 1;
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), NEAP_EINVAL);
	neap_connection_free(&message);
}
END_TEST

START_TEST(connection_rules)
{
	static const struct {
		int error;
		const char *text;
	} rows[] = {
		{0, "{}"},
		{0, "{\"local_lid\":\"x\",\"ready_ack\":null,\"payload\":null,\"qp_num\":null,\"local_gid\":null,\"reply_msg\":null,\"peer_"
	        "nic_path\":null}"},
		{0, "{\"local_lid\":65535,\"qp_num\":[16777215,0],\"extra\":{}}"},
		{0, "{\"ready_ack\":\"true\"}"},
		{0, "{\"ready_ack\":1}"},
		{NEAP_EINVAL, "{\"local_lid\":65536}"},
		{NEAP_EINVAL, "{\"qp_num\":[16777216]}"},
		{0, "{\"local_gid\":\"zz\"}"}, /* the rest of the message says what to answer */
		{0, "{\"local_gid\":\"::ffff:10.77.0.2\"}"},
		{0, "{\"neap\":null}"},
		{0, "{\"neap\":{\"instance\":\"00112233445566778899aabbccddeeff\",\"later\":[1]}}"},
		{NEAP_EINVAL, "{\"neap\":{}}"},
		{NEAP_EINVAL, "{\"neap\":{\"instance\":\"00112233445566778899AABBCCDDEEFF\"}}"},
		{NEAP_EINVAL, "{\"neap\":{\"instance\":\"0011\"}}"},
		{NEAP_EINVAL, "{\"neap\":{\"psn\":[16777216]}}"},
		{NEAP_EINVAL, "{\"neap\":{\"mtu\":4294967296}}"},
		{NEAP_EINVAL, "{\"neap\":{\"address\":\"10.0.0.2\"}}"},
		{NEAP_EINVAL, "{\"neap\":{\"address\":\"\"}}"},
		{NEAP_EINVAL, "{\"neap\":{\"address\":\"host:0\"}}"},
		{NEAP_EJSON, "{\"neap\":{\"address\":1}}"},
		{NEAP_EJSON, "{\"neap\":1}"},
		{NEAP_EJSON, "{\"neap\":[]}"},
		{NEAP_EJSON, "{\"neap\":{\"psn\":3}}"},
		{NEAP_EJSON, "{\"neap\":{\"epoch\":-1}}"},
		{NEAP_EJSON, "{\"neap\":{\"retire\":1}}"},
		{NEAP_EJSON, "{\"neap\":{\"instance\":5}}"},
		{NEAP_EJSON, "{\"local_gid\":1}"},
		{NEAP_EJSON, "{\"local_gid\":\"zz\",\"qp_num\":[1}"},
		{NEAP_EJSON, "{\"qp_num\":[-1]}"},
		{NEAP_EJSON, "{\"qp_num\":[\"1\"]}"},
		{NEAP_EJSON, "{\"qp_num\":[1.5]}"},
		{NEAP_EJSON, "{\"qp_num\":{}}"},
		{NEAP_EJSON, "{\"payload\":{}}"},
		{NEAP_EJSON, "{\"local_nic_path\":[]}"},
		{NEAP_EJSON, "{\"peer_nic_path\":1}"},
		{NEAP_EJSON, "{\"reply_msg\":true}"},
		{NEAP_EJSON, "{\"qp_num\":[NaN]}"},
		{NEAP_EJSON, "[]"},
		{NEAP_EJSON, ""},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		struct neap_connection_message message;
		int error = neap_connection_decode(rows[i].text, strlen(rows[i].text), &message, why, sizeof why);
		ck_assert_msg(error == rows[i].error, "%s: %d %s", rows[i].text, error, why);
		if (error) {
			ck_assert(!message.payload && !message.reply_msg && why[0]);
			continue;
		}
		ck_assert(message.payload && message.reply_msg && message.local_nic_path && message.peer_nic_path);
		ck_assert(!message.ready_ack && !message.has_gid);
		neap_connection_free(&message);
	}
}
END_TEST

static const char connection_of_neap[] =
	"{\"local_gid\":\"\",\"local_lid\":0,\"local_nic_path\":\"\",\"neap\":{\"depth\":256,\"epoch\":18446744073709551615,"
	"\"instance\":\"00112233445566778899aabbccddeeff\",\"mtu\":4096,\"psn\":[1,16777215],\"retire\":true},\"payload\":\"\","
	"\"peer_nic_path\":\"\",\"qp_num\":[],\"reply_msg\":\"\"}\n";

START_TEST(fences_and_reads_are_told_when_there_are_any)
{
	struct neap_connection_message message, copy;
	char *json;
	size_t length;
	ck_assert_int_eq(neap_connection_decode(connection_of_neap, strlen(connection_of_neap), &message, why, sizeof why), 0);
	ck_assert_uint_eq(message.neap.reads, 0);
	message.neap.fence = 4000000000u;
	message.neap.reads = 7;
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), 0);
	ck_assert_ptr_nonnull(strstr(json, "\"epoch\":18446744073709551615,\"fence\":4000000000,\"instance\""));
	ck_assert_ptr_nonnull(strstr(json, "16777215],\"reads\":7,\"retire\""));
	ck_assert_int_eq(neap_connection_decode(json, length, &copy, why, sizeof why), 0);
	ck_assert_uint_eq(copy.neap.fence, 4000000000u);
	ck_assert_uint_eq(copy.neap.reads, 7);
	neap_connection_free(&copy);
	neap_connection_free(&message);
	free(json);
}
END_TEST

START_TEST(where_the_sender_takes_handshakes)
{
	static const char *const texts[] = {"10.0.0.2:7000", "[fe80::1%eth0]:1", "a.host:65535"};
	struct neap_connection_message message, copy;
	char *json, told[64];
	size_t length;
	ck_assert_int_eq(neap_connection_decode(connection_of_neap, strlen(connection_of_neap), &message, why, sizeof why), 0);
	ck_assert_str_eq(message.neap.address.host, "");
	ck_assert_int_eq(neap_host_port_parse(texts[_i], 0, &message.neap.address, why, sizeof why), 0);
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), 0);
	(void)snprintf(told, sizeof told, "\"neap\":{\"address\":\"%s\",\"depth\"", texts[_i]);
	ck_assert_ptr_nonnull(strstr(json, told));
	ck_assert_int_eq(neap_connection_decode(json, length, &copy, why, sizeof why), 0);
	ck_assert_str_eq(copy.neap.address.host, message.neap.address.host);
	ck_assert_uint_eq(copy.neap.address.port, message.neap.address.port);
	neap_connection_free(&copy);
	neap_connection_free(&message);
	free(json);
}
END_TEST

START_TEST(what_neap_peers_add)
{
	struct neap_connection_message message;
	char *json;
	size_t length;
	ck_assert_int_eq(neap_connection_decode(connection_of_neap, strlen(connection_of_neap), &message, why, sizeof why), 0);
	ck_assert(message.neap.present && message.neap.retire);
	ck_assert_uint_eq(message.neap.instance[15], 0xff);
	ck_assert_uint_eq(message.neap.mtu_bytes, 4096);
	ck_assert_uint_eq(message.neap.depth, 256);
	ck_assert_uint_eq(message.neap.epoch, UINT64_MAX);
	ck_assert_uint_eq(message.neap.psn_count, 2);
	ck_assert_uint_eq(message.neap.psns[1], 0xffffff);
	ck_assert_uint_eq(message.neap.fence, 0);
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), 0);
	ck_assert_str_eq(json, connection_of_neap);
	free(json);
	message.neap.psn_count = NEAP_QPS_MAX + 1;
	ck_assert_int_eq(neap_connection_encode(&message, &json, &length), NEAP_EINVAL);
	neap_connection_free(&message);
}
END_TEST

START_TEST(a_gid_that_is_none)
{
	static const char text[] = "{\"local_gid\":\"zz\"}", other[] = "{\"local_gid\":\"zz\",\"local_gid\":\"\"}";
	struct neap_connection_message message;
	ck_assert_int_eq(neap_connection_decode(text, strlen(text), &message, why, sizeof why), 0);
	ck_assert_str_eq(message.bad_gid, "zz");
	neap_connection_free(&message);
	ck_assert_int_eq(neap_connection_decode(other, strlen(other), &message, why, sizeof why), 0);
	ck_assert_str_eq(message.bad_gid, "");
	neap_connection_free(&message);
}
END_TEST

START_TEST(connection_limits)
{
	for (uint32_t count = NEAP_QPS_MAX; count <= NEAP_QPS_MAX + 1; count++) {
		struct neap_connection_message message;
		char text[2048] = "{\"qp_num\":[1";
		for (uint32_t i = 1; i < count; i++)
			strcat(text, ",1");
		strcat(text, "]}");
		int error = neap_connection_decode(text, strlen(text), &message, why, sizeof why);
		ck_assert_int_eq(error, count > NEAP_QPS_MAX ? NEAP_EINVAL : 0);
		neap_connection_free(&message);
	}
	char text[1200] = "{\"peer_nic_path\":\"";
	struct neap_connection_message message;
	memset(text + strlen(text), 'x', 1100);
	strcat(text, "\"}");
	ck_assert_int_eq(neap_connection_decode(text, strlen(text), &message, why, sizeof why), NEAP_ELIMIT);
	char many[4096] = "{\"neap\":{\"psn\":[1";
	for (uint32_t i = 0; i < NEAP_QPS_MAX; i++)
		strcat(many, ",1");
	strcat(many, "]}}");
	ck_assert_int_eq(neap_connection_decode(many, strlen(many), &message, why, sizeof why), NEAP_EINVAL);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("frame");
	TCase *frames = tcase_create("frames"), *messages = tcase_create("messages");
	tcase_add_test(frames, takes_every_split);
	tcase_add_test(frames, leaves_what_follows);
	tcase_add_test(frames, checks_the_length);
	tcase_add_test(frames, grows_with_what_arrived);
	tcase_add_test(frames, tells_the_type);
	tcase_add_test(frames, writes_heads);
	tcase_add_test(messages, notify_round_trip);
	tcase_add_test(messages, notify_rules);
	tcase_add_test(messages, connection_vectors);
	tcase_add_test(messages, connection_rules);
	tcase_add_test(messages, connection_limits);
	tcase_add_test(messages, what_neap_peers_add);
	tcase_add_loop_test(messages, where_the_sender_takes_handshakes, 0, 3);
	tcase_add_test(messages, fences_and_reads_are_told_when_there_are_any);
	tcase_add_test(messages, a_gid_that_is_none);
	suite_add_tcase(suite, frames);
	suite_add_tcase(suite, messages);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
