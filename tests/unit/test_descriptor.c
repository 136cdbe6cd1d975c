/* Segment descriptors: what others publish is read, what they could not read is never written, and nothing bad gets in. */
#include "metadata/descriptor.h"
#include "metadata/json.h"
#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

/* As captured from the reference, but for wrapping. */
static const char tcp_text[] =
	"{\"buffers\":[{\"addr\":140121395429376,\"length\":67108864,\"name\":\"node-a:15882\"}],\"name\":\"node-a:15882\","
	"\"protocol\":\"tcp\",\"tcp_data_port\":15781,\"tcp_proto_version\":2,\"timestamp\":\"2026-08-22 10:00:00.000001\"}";
static const char rdma_text[] =
	"{\"buffers\":[{\"addr\":139637976727552,\"length\":1073741824,\"lkey\":[8193,8194],\"name\":\"cpu:0\",\"rkey\":[8193,8194]}],"
	"\"devices\":[{\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:00:05\",\"lid\":0,\"name\":\"mlx5_0\"},"
	"{\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:00:01:05\",\"lid\":0,\"name\":\"mlx5_1\"}],\"name\":\"node-a:15882\","
	"\"priority_matrix\":{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]],\"cpu:1\":[[\"mlx5_1\"],[\"mlx5_0\"]]},\"protocol\":\"rdma\","
	"\"tcp_data_port\":0,\"tcp_proto_version\":1,\"timestamp\":\"2026-08-22 10:00:00.000001\"}";
/* 2026-08-22 10:00:00.000001 where the clock shows UTC */
#define STAMP UINT64_C(1787392800000001)

static char why[256];

/* From an allocation of exactly its size, so that a read past the end is seen by the address sanitizer. */
static int decode(const char *text, struct neap_descriptor **descriptor_p)
{
	size_t length = strlen(text);
	char *copy = malloc(length ? length : 1);
	memcpy(copy, text, length);
	int error = neap_descriptor_decode(copy, length, descriptor_p, why, sizeof why);
	free(copy);
	ck_assert_msg((error == 0) == (*descriptor_p != NULL), "error %d and descriptor %p", error, (void *)*descriptor_p);
	return error;
}

static struct neap_descriptor *good(const char *text)
{
	struct neap_descriptor *descriptor;
	int error = decode(text, &descriptor);
	ck_assert_msg(error == 0, "%.200s: %s", text, why);
	return descriptor;
}

static void refused(int wanted, const char *place, const char *text)
{
	struct neap_descriptor *descriptor;
	int error = decode(text, &descriptor);
	ck_assert_msg(error == wanted, "%.200s: error %d, wanted %d (%s)", text, error, wanted, why);
	ck_assert_msg(strncmp(why, place, strlen(place)) == 0, "%.200s: '%s' does not begin with '%s'", text, why, place);
}

static char *encode(const struct neap_descriptor *descriptor, size_t *length_p)
{
	char *text;
	int error = neap_descriptor_encode(descriptor, STAMP, false, SIZE_MAX, &text, length_p, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
	ck_assert_uint_eq(strlen(text), *length_p);
	return text;
}

START_TEST(reads_tcp)
{
	struct neap_descriptor *d = good(tcp_text);
	ck_assert_str_eq(d->name, "node-a:15882");
	ck_assert_int_eq(d->protocol, NEAP_PROTOCOL_TCP);
	ck_assert_int_eq(d->tcp_data_port, 15781);
	ck_assert_int_eq(d->tcp_proto_version, 2);
	ck_assert_str_eq(d->timestamp, "2026-08-22 10:00:00.000001");
	ck_assert_uint_eq(d->buffer_count, 1);
	ck_assert_uint_eq(d->buffers[0].address, UINT64_C(140121395429376));
	ck_assert_uint_eq(d->buffers[0].length, 67108864);
	ck_assert_str_eq(d->buffers[0].name, "node-a:15882");
	ck_assert(!d->neap.present && !d->rdma_server_name);
	neap_descriptor_free(d);
}
END_TEST

START_TEST(reads_rdma)
{
	struct neap_descriptor *d = good(rdma_text);
	static const uint8_t gid[16] = {[10] = 0xff, 0xff, 10, 0, 1, 5};
	ck_assert_int_eq(d->protocol, NEAP_PROTOCOL_RDMA);
	ck_assert_uint_eq(d->buffers[0].key_count, 2);
	ck_assert_uint_eq(d->buffers[0].rkeys[1], 8194);
	ck_assert_uint_eq(d->buffers[0].lkeys[0], 8193);
	ck_assert_uint_eq(d->device_count, 2);
	ck_assert_str_eq(d->devices[1].name, "mlx5_1");
	ck_assert_mem_eq(d->devices[1].gid, gid, 16);
	ck_assert_uint_eq(d->priority_count, 2);
	ck_assert_str_eq(d->priority[1].location, "cpu:1");
	ck_assert_str_eq(d->priority[1].preferred[0], "mlx5_1");
	ck_assert_str_eq(d->priority[1].available[0], "mlx5_0");
	neap_descriptor_free(d);
}
END_TEST

/* The descriptor a one-NIC target sent under Soft-RoCE, and the smallest one an initiator accepted. */
START_TEST(reads_captured)
{
	struct neap_descriptor *d = good(
		"{\"buffers\":[{\"addr\":140442779779072,\"length\":100663296,\"lkey\":[636],\"name\":\"cpu:0\",\"rkey\":[636]}],"
		"\"devices\":[{"
		"\"gid\":\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01\",\"lid\":0,\"name\":\"rxe0\"}],\"name\":\"10.77.0.1:15270\","
		"\"priority_matrix\":{\"cpu:0\":[[\"rxe0\"],[]],\"cpu:1\":[[\"rxe0\"],[]],\"cuda:0\":[[\"rxe0\"],[]],\"maca:0\":[[\"rxe0\"]"
		",[]],"
		"\"musa:0\":[[\"rxe0\"],[]]},\"protocol\":\"rdma\",\"tcp_data_port\":0,\"tcp_proto_version\":1,\"timestamp\":\"2026-11-29 "
		"15:03:45.702878\"}\n");
	ck_assert_uint_eq(d->priority_count, 5);
	ck_assert_uint_eq(d->priority[2].available_count, 0);
	neap_descriptor_free(d);
	d = good("{\"buffers\":[],\"devices\":[],\"name\":\"a\",\"priority_matrix\":null,\"protocol\":\"rdma\"}");
	ck_assert_int_eq(d->tcp_proto_version, 1);
	ck_assert_int_eq(d->tcp_data_port, 0);
	neap_descriptor_free(d);
}
END_TEST

START_TEST(writes_the_same_bytes)
{
	static const char *const texts[] = {tcp_text, rdma_text};
	for (int i = 0; i < 2; i++) {
		struct neap_descriptor *d = good(texts[i]);
		size_t length;
		char *text = encode(d, &length);
		ck_assert_str_eq(text, texts[i]);
		free(text);
		neap_descriptor_free(d);
	}
}
END_TEST

START_TEST(writes_a_newline_and_empty_lists)
{
	struct neap_descriptor d = {.name = (char *)"n", .protocol = NEAP_PROTOCOL_RDMA, .tcp_proto_version = 1};
	char *text;
	size_t length;
	ck_assert_int_eq(neap_descriptor_encode(&d, STAMP, true, 1000, &text, &length, NULL, 0), 0);
	ck_assert_str_eq(
		text, "{\"buffers\":[],\"devices\":[],\"name\":\"n\",\"priority_matrix\":null,\"protocol\":\"rdma\",\"tcp_data_port\":0,"
	          "\"tcp_proto_version\":1,\"timestamp\":\"2026-08-22 10:00:00.000001\"}\n");
	free(text);
	uint32_t rkeys[] = {7};
	struct neap_buffer_desc buffers[] = {{1, 1, (char *)"*", rkeys, NULL, 1}, {3, 1, (char *)"*", NULL, NULL, 0}};
	struct neap_device_desc devices[] = {{(char *)"x", 65535, {0xfe, [15] = 1}}};
	d.buffers = buffers;
	d.devices = devices;
	d.buffer_count = 2;
	d.device_count = 1;
	d.rdma_server_name = (char *)"r";
	text = encode(&d, &length);
	ck_assert_ptr_nonnull(strstr(text, "[{\"addr\":1,\"length\":1,\"lkey\":[0],\"name\":\"*\",\"rkey\":[7]},"
	                                   "{\"addr\":3,\"length\":1,\"lkey\":[],\"name\":\"*\",\"rkey\":[]}]"));
	ck_assert_ptr_nonnull(strstr(text, "\"gid\":\"fe:00:00:00:00:00:00:00:00:00:00:00:00:00:00:01\",\"lid\":65535,"));
	ck_assert_ptr_nonnull(strstr(text, "\"protocol\":\"rdma\",\"rdma_server_name\":\"r\",\"tcp_data_port\""));
	struct neap_descriptor *back = good(text);
	ck_assert_uint_eq(back->buffers[1].key_count, 0);
	ck_assert_str_eq(back->rdma_server_name, "r");
	neap_descriptor_free(back);
	free(text);
}
END_TEST

START_TEST(carries_the_neap_key)
{
	struct neap_descriptor d = {.name = (char *)"n", .tcp_proto_version = 2, .tcp_data_port = 1};
	size_t length;
	d.neap = (struct neap_capability){.present = true,
	                                  .level = 1,
	                                  .flags = NEAP_CAP_CHECKSUM | NEAP_CAP_GRANTS | NEAP_CAP_FENCE,
	                                  .ports = {4000, 4001},
	                                  .port_count = 2,
	                                  .version = UINT64_MAX};
	for (int i = 0; i < 16; i++) {
		d.neap.instance[i] = (uint8_t)(i * 17);
		d.neap.boot[i] = (uint8_t)(255 - i);
	}
	char *text = encode(&d, &length);
	ck_assert_ptr_nonnull(
		strstr(text, "\"name\":\"n\",\"neap\":{\"boot\":\"fffefdfcfbfaf9f8f7f6f5f4f3f2f1f0\",\"caps\":[\"checksum\",\"fence\","
	                 "\"grants\"],\"instance\":\"00112233445566778899aabbccddeeff\",\"level\":1,\"ports\":[4000,4001],"
	                 "\"version\":18446744073709551615},\"protocol\":\"tcp\""));
	struct neap_descriptor *back = good(text);
	ck_assert_mem_eq(back->neap.instance, d.neap.instance, 16);
	ck_assert_mem_eq(back->neap.boot, d.neap.boot, 16);
	ck_assert_uint_eq(back->neap.flags, d.neap.flags);
	ck_assert_uint_eq(back->neap.ports[1], 4001);
	ck_assert_uint_eq(back->neap.version, UINT64_MAX);
	neap_descriptor_free(back);
	free(text);
}
END_TEST

#define TCP(rest) "{\"name\":\"n\",\"protocol\":\"tcp\"," rest "}"
#define RDMA(rest)                                                                                                                 \
	"{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:1\"}]," rest "}"
#define GID "\"gid\":\"0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:1\""

START_TEST(refuses_each_broken_rule)
{
	static const struct {
		int error;
		const char *place, *text;
	} rows[] = {
		{NEAP_EJSON, "document: ", "[]"},
		{NEAP_EJSON, "document: ", "null"},
		{NEAP_EJSON, "document: ", "\"text\""},
		{NEAP_EJSON, "document: has no protocol", "{}"},
		{NEAP_EJSON, "document: has no name", "{\"protocol\":\"tcp\"}"},
		{NEAP_EJSON, "document: has no name", "{\"protocol\":\"tcp\",\"name\":null}"},
		{NEAP_EJSON, "name: is empty", "{\"protocol\":\"tcp\",\"name\":\"\"}"},
		{NEAP_EJSON, "name: is a number and must be a string", "{\"protocol\":\"tcp\",\"name\":1}"},
		{NEAP_EJSON, "name: is an object", "{\"protocol\":\"tcp\",\"name\":{}}"},
		{NEAP_EJSON, "protocol: is a number", "{\"protocol\":3,\"name\":\"n\"}"},
		{NEAP_EJSON, "protocol: is null", "{\"protocol\":null,\"name\":\"n\"}"},
		{NEAP_EJSON, "protocol[1]: is a number", "{\"protocol\":[\"tcp\",1],\"name\":\"n\"}"},
		{NEAP_EJSON, "tcp_data_port: is 65536", TCP("\"tcp_data_port\":65536")},
		{NEAP_EJSON, "tcp_data_port: is -1", TCP("\"tcp_data_port\":-1")},
		{NEAP_EJSON, "tcp_data_port: is 1.0", TCP("\"tcp_data_port\":1.0")},
		{NEAP_EJSON, "tcp_data_port: is a string", TCP("\"tcp_data_port\":\"1\"")},
		{NEAP_EJSON, "tcp_proto_version: is 2147483648", TCP("\"tcp_proto_version\":2147483648")},
		{NEAP_EJSON, "tcp_proto_version: is 1e2", TCP("\"tcp_proto_version\":1e2")},
		{NEAP_EJSON, "timestamp: is an array", TCP("\"timestamp\":[]")},
		{NEAP_EJSON, "buffers: is an object", TCP("\"buffers\":{}")},
		{NEAP_EJSON, "buffers[0]: is null", TCP("\"buffers\":[null]")},
		{NEAP_EJSON, "buffers[1]: has no name",
	     TCP("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"b\"},{\"addr\":1,\"length\":1}]")},
		{NEAP_EJSON, "buffers[0]: has no addr", TCP("\"buffers\":[{\"length\":1,\"name\":\"b\"}]")},
		{NEAP_EJSON, "buffers[0]: has no length", TCP("\"buffers\":[{\"addr\":1,\"name\":\"b\",\"length\":null}]")},
		{NEAP_EJSON, "buffers[0].name: is empty", TCP("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"\"}]")},
		{NEAP_EJSON, "buffers[0].addr: is 0", TCP("\"buffers\":[{\"addr\":0,\"length\":1,\"name\":\"b\"}]")},
		{NEAP_EJSON, "buffers[0].length: is 0", TCP("\"buffers\":[{\"addr\":1,\"length\":0,\"name\":\"b\"}]")},
		{NEAP_EJSON, "buffers[0].addr: is a string", TCP("\"buffers\":[{\"addr\":\"0x1000\",\"length\":1,\"name\":\"b\"}]")},
		{NEAP_EJSON, "buffers[0].addr: is a boolean", TCP("\"buffers\":[{\"addr\":true,\"length\":1,\"name\":\"b\"}]")},
		{NEAP_EJSON, "buffers[0].addr: is 18446744073709551616",
	     TCP("\"buffers\":[{\"addr\":18446744073709551616,\"length\":1,\"name\":\"b\"}]")},
		{NEAP_EJSON, "buffers[0]: goes past", TCP("\"buffers\":[{\"addr\":18446744073709551615,\"length\":2,\"name\":\"b\"}]")},
		{NEAP_EJSON, "devices: is a string", "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":\"d\"}"},
		{NEAP_EJSON, "devices[0]: has no gid", "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\"}]}"},
		{NEAP_EJSON, "devices[0]: has no name", "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{" GID "}]}"},
		{NEAP_EJSON, "devices[0].name: is empty", "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"\"," GID "}]}"},
		{NEAP_EJSON, "devices[0].gid: must be",
	     "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"zz\"}]}"},
		{NEAP_EJSON, "devices[0].gid: must be",
	     "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"\"}]}"},
		{NEAP_EJSON, "devices[0].gid: must be",
	     "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":\"::ffff:10.0.0.1\"}]}"},
		{NEAP_EJSON, "devices[0].gid: is a number",
	     "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"gid\":1}]}"},
		{NEAP_EJSON, "devices[0].lid: is 65536",
	     "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[{\"name\":\"d\",\"lid\":65536," GID "}]}"},
		{NEAP_EJSON, "buffers[0]: has 1 rkeys and 0 lkeys",
	     RDMA("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"*\",\"rkey\":[1]}]")},
		{NEAP_EJSON, "document: buffers[0].rkey has 2 keys for 1 devices",
	     RDMA("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"*\",\"rkey\":[1,2],\"lkey\":[1,2]}]")},
		{NEAP_EJSON, "buffers[0].rkey[0]: is 4294967296",
	     RDMA("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"*\",\"rkey\":[4294967296]}]")},
		{NEAP_EJSON, "buffers[0].rkey[0]: is a string",
	     RDMA("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"*\",\"rkey\":[\"1\"]}]")},
		{NEAP_EJSON, "buffers[0].lkey: is a number", RDMA("\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"*\",\"lkey\":1}]")},
		{NEAP_EJSON, "rdma_server_name: is a number", RDMA("\"rdma_server_name\":1")},
		{NEAP_EJSON, "neap: is an array", TCP("\"neap\":[]")},
		{NEAP_EJSON, "neap: has no instance", TCP("\"neap\":{\"level\":1}")},
		{NEAP_EJSON, "neap: has no level", TCP("\"neap\":{\"instance\":\"00112233445566778899aabbccddeeff\"}")},
		{NEAP_EJSON, "neap.level: is 0", TCP("\"neap\":{\"level\":0}")},
		{NEAP_EJSON, "neap.instance: must be", TCP("\"neap\":{\"instance\":\"00112233445566778899aabbccddeef\"}")},
		{NEAP_EJSON, "neap.instance: must be", TCP("\"neap\":{\"instance\":\"00112233445566778899aabbccddeeffa\"}")},
		{NEAP_EJSON, "neap.boot: must be", TCP("\"neap\":{\"boot\":\"g0112233445566778899aabbccddeeff\"}")},
		{NEAP_EJSON, "neap.ports[0]: is 0", TCP("\"neap\":{\"ports\":[0]}")},
		{NEAP_EJSON, "neap.caps[0]: is a number", TCP("\"neap\":{\"caps\":[1]}")},
		{NEAP_EJSON, "neap.version: is a string", TCP("\"neap\":{\"version\":\"1\"}")},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		refused(rows[i].error, rows[i].place, rows[i].text);
}
END_TEST

START_TEST(refuses_bad_json)
{
	static const char *const texts[] = {
		"",
		" ",
		"{",
		"{\"",
		"{\"name\"",
		"{\"name\":",
		"{\"name\":}",
		"{\"name\":\"a\"",
		"{\"name\":\"a\",}",
		"{,}",
		"{\"a\" 1}",
		"{1:2}",
		"{\"a\":1}x",
		"{\"a\":1}}",
		"{\"a\":[1,]}",
		"{\"a\":[1 2]}",
		"{\"a\":[}",
		"{'a':1}",
		"{\"a\":NaN}",
		"{\"a\":Infinity}",
		"{\"a\":-}",
		"{\"a\":01}",
		"{\"a\":1.}",
		"{\"a\":.5}",
		"{\"a\":1e}",
		"{\"a\":1e+}",
		"{\"a\":+1}",
		"{\"a\":tru}",
		"{\"a\":nul}",
		"{\"a\":falsy}",
		"{\"a\":\"\\x\"}",
		"{\"a\":\"\\u12\"}",
		"{\"a\":\"\\u12g4\"}",
		"{\"a\":\"\\ud800\"}",
		"{\"a\":\"\\ud800\\u0041\"}",
		"{\"a\":\"\\udc00\"}",
		"{\"a\":\"\\ud800x\"}",
		"{\"a\":\"\\u0000\"}",
		"{\"a\":\"\n\"}",
		"{\"a\":\"\x01\"}",
		"{\"a\":\"\xff\"}",
		"{\"a\":\"\xc0\x80\"}",
		"{\"a\":\"\xe0\x80\x80\"}",
		"{\"a\":\"\xed\xa0\x80\"}",
		"{\"a\":\"\xf4\x90\x80\x80\"}",
		"{\"a\":\"\xc3\"}",
		"{\"a\":\"\xf0\x9f\x98\"}",
		"{\"a\":\"\\",
		"// x\n{}",
		"{}/**/",
		"\xef\xbb\xbf{}",
	};
	for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
		struct neap_descriptor *descriptor;
		ck_assert_msg(decode(texts[i], &descriptor) == NEAP_EJSON, "accepted: %s", texts[i]);
		ck_assert_msg(why[0], "no reason for: %s", texts[i]);
	}
	struct neap_descriptor *descriptor;
	ck_assert_int_eq(neap_descriptor_decode("{}\0", 3, &descriptor, why, sizeof why), NEAP_EJSON);
	ck_assert_int_eq(neap_descriptor_decode("{", 1, &descriptor, NULL, 0), NEAP_EJSON);
}
END_TEST

/* A text is refused at every length but its own: no prefix is taken for the whole, none is read past. */
START_TEST(refuses_every_prefix)
{
	static const char *const texts[] = {tcp_text, rdma_text};
	for (int i = 0; i < 2; i++)
		for (size_t length = 0; length < strlen(texts[i]); length++) {
			char *copy = malloc(length ? length : 1);
			struct neap_descriptor *descriptor;
			memcpy(copy, texts[i], length);
			ck_assert_int_eq(neap_descriptor_decode(copy, length, &descriptor, why, sizeof why), NEAP_EJSON);
			free(copy);
		}
}
END_TEST

START_TEST(refuses_other_protocols_by_name)
{
	static const char *const names[] = {"barex", "efa",  "cxi",  "ub",      "nccl",         "ascend", "nvlink", "nvlink_intra",
	                                    "hip",   "maca", "musa", "ubshmem", "sunrise_link", "cxl",    "nvmeof"};
	char text[300], place[64];
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		(void)snprintf(text, sizeof text,
		               "{\"buffers\":[{\"file_path\":\"/x\",\"rkey\":[99999999999]}],\"name\":\"n\",\"protocol\":\"%s\"}",
		               names[i]);
		(void)snprintf(place, sizeof place, "protocol: %s is not supported (", names[i]);
		refused(NEAP_ENOTSUP, place, text);
	}
	refused(NEAP_ENOTSUP, "protocol: 'quux' is not a protocol", "{\"protocol\":\"quux\"}");
	refused(NEAP_ENOTSUP, "protocol: 'TCP' is not a protocol", "{\"protocol\":\"TCP\"}");
	refused(NEAP_ENOTSUP, "protocol: 'a?\? ' is not a protocol", "{\"protocol\":\"a\\n\\u007f \"}");
	refused(NEAP_ENOTSUP, "protocol: '' is not a protocol",
	        "{\"protocol\":\"a name so long that nobody would think of calling a protocol by it\"}");
	refused(NEAP_ENOTSUP, "protocol: a descriptor of several protocols (cxl, tcp) is",
	        "{\"protocol\":[\"cxl\",\"tcp\"],\"buffers\":[1]}");
	refused(NEAP_ENOTSUP, "protocol: a descriptor of several protocols () is", "{\"protocol\":[]}");
}
END_TEST

START_TEST(ignores_what_it_does_not_know)
{
	struct neap_descriptor *d = good(" {\"future\":{\"a\":[1,-2.5e10,true,null,{\"b\":18446744073709551999}]},\"protocol\":\"tcp\","
	                                 "\"devices\":7,\"priority_matrix\":7,"
	                                 "\"rdma_server_name\":7,\"buffers\":[{\"addr\":18446744073709551615,\"length\":1,\"name\":"
	                                 "\"b\",\"rkey\":\"?\",\"x\":{}}],\"name\":"
	                                 "\"n\",\"tcp_data_port\":null,\"tcp_proto_version\":null,\"timestamp\":\"a timestamp of some "
	                                 "later release, in full\"} \r\n\t");
	ck_assert_uint_eq(d->buffers[0].address, UINT64_MAX);
	ck_assert_int_eq(d->tcp_proto_version, 1);
	ck_assert_str_eq(d->timestamp, "");
	neap_descriptor_free(d);
	d = good(
		TCP("\"neap\":{\"instance\":\"00112233445566778899aabbccddeeff\",\"level\":7,\"caps\":[\"warp\",\"grants\",\"a longer name "
	        "than any capability has\"],\"more\":[]}"));
	ck_assert_uint_eq(d->neap.level, 7);
	ck_assert_uint_eq(d->neap.flags, NEAP_CAP_GRANTS);
	neap_descriptor_free(d);
}
END_TEST

START_TEST(takes_the_last_of_duplicates)
{
	struct neap_descriptor *d =
		good("{\"protocol\":\"nvmeof\",\"name\":\"a\",\"name\":\"b\",\"protocol\":\"rdma\",\"buffers\":[{\"addr\":1,\"length\":1,"
	         "\"name\":\"x\"},"
	         "{\"addr\":1,\"length\":1,\"name\":\"x\"}],\"buffers\":[{\"addr\":1,\"addr\":2,\"length\":9,\"name\":\"y\",\"name\":"
	         "\"z\",\"rkey\":[1,2],"
	         "\"rkey\":[3],\"lkey\":[3]}],\"devices\":[],\"devices\":[{\"name\":\"c\",\"name\":\"d\"," GID
	         "}],\"priority_matrix\":{\"l\":[[\"q\"],[]],"
	         "\"l\":[[],[\"d\"]]},\"rdma_server_name\":\"s\",\"rdma_server_name\":\"\",\"neap\":{\"instance\":"
	         "\"00112233445566778899aabbccddeeff\","
	         "\"level\":1,\"ports\":[1]},\"neap\":{\"instance\":\"00112233445566778899aabbccddeeff\",\"level\":1}}");
	ck_assert_str_eq(d->name, "b");
	ck_assert_uint_eq(d->buffer_count, 1);
	ck_assert_uint_eq(d->buffers[0].address, 2);
	ck_assert_str_eq(d->buffers[0].name, "z");
	ck_assert_uint_eq(d->buffers[0].rkeys[0], 3);
	ck_assert_str_eq(d->devices[0].name, "d");
	ck_assert_uint_eq(d->priority_count, 1);
	ck_assert_uint_eq(d->priority[0].preferred_count, 0);
	ck_assert_str_eq(d->priority[0].available[0], "d");
	ck_assert_ptr_null(d->rdma_server_name);
	ck_assert_uint_eq(d->neap.port_count, 0);
	neap_descriptor_free(d);
}
END_TEST

/* The devices are of use without it, so only the matrix goes, and `why` tells. */
START_TEST(leaves_out_a_bad_matrix)
{
	static const char *const matrices[] = {
		"7",
		"[]",
		"{\"l\":7}",
		"{\"l\":[]}",
		"{\"l\":[[\"d\"]]}",
		"{\"l\":[[\"d\"],[],[]]}",
		"{\"l\":[[\"d\"],7]}",
		"{\"l\":[[7],[]]}",
		"{\"l\":[[\"d\"],[\"\"]]}",
		"{\"ok\":[[\"d\"],[]],\"l\":[[\"d\"],{}]}",
	};
	for (size_t i = 0; i < sizeof matrices / sizeof *matrices; i++) {
		char text[400];
		(void)snprintf(text, sizeof text, RDMA("\"priority_matrix\":%s,\"tcp_data_port\":5"), matrices[i]);
		struct neap_descriptor *d = good(text);
		ck_assert_uint_eq(d->priority_count, 0);
		ck_assert_int_eq(d->tcp_data_port, 5);
		ck_assert_msg(strncmp(why, "priority_matrix", 15) == 0, "%s: %s", matrices[i], why);
		neap_descriptor_free(d);
	}
	neap_descriptor_free(good(tcp_text));
	ck_assert_str_eq(why, "");
}
END_TEST

/* --- limits ------------------------------------------------------------------------------------------------------- */

static char *repeated(const char *before, const char *item, uint32_t count, const char *after)
{
	size_t size = strlen(before) + (strlen(item) + 1) * count + strlen(after) + 1, at;
	char *text = malloc(size);
	at = (size_t)sprintf(text, "%s", before);
	for (uint32_t i = 0; i < count; i++)
		at += (size_t)sprintf(text + at, "%s%s", i ? "," : "", item);
	(void)sprintf(text + at, "%s", after);
	return text;
}

static void limit(const char *place, const char *before, const char *item, uint32_t most, const char *after)
{
	for (uint32_t count = most; count <= most + 1; count++) {
		char *text = repeated(before, item, count, after);
		if (count == most)
			neap_descriptor_free(good(text));
		else
			refused(NEAP_ELIMIT, place, text);
		free(text);
	}
}

/* Each at its bound and one past it. */
START_TEST(keeps_its_text_limits)
{
	static const struct {
		const char *place, *before, *after;
		size_t most;
	} rows[] = {
		{"name: has 513 bytes", "{\"protocol\":\"tcp\",\"name\":\"", "\"}", NEAP_NAME_MAX},
		{"buffers[0].name: has 513", "{\"protocol\":\"tcp\",\"name\":\"n\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"",
	     "\"}]}", NEAP_NAME_MAX},
		{"buffers[0].name: has 257", "{\"protocol\":\"rdma\",\"name\":\"n\",\"buffers\":[{\"addr\":1,\"length\":1,\"name\":\"",
	     "\"}]}", NEAP_LOCATION_MAX},
		{"devices[0].name: has 513", "{\"protocol\":\"rdma\",\"name\":\"n\",\"devices\":[{" GID ",\"name\":\"", "\"}]}",
	     NEAP_NAME_MAX},
		{"rdma_server_name: has 513", "{\"protocol\":\"rdma\",\"name\":\"n\",\"rdma_server_name\":\"", "\"}", NEAP_NAME_MAX},
	};
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		for (size_t more = 0; more < 2; more++) {
			char text[1024], filler[600];
			memset(filler, 'x', sizeof filler);
			(void)snprintf(text, sizeof text, "%s%.*s%s", rows[i].before, (int)(rows[i].most + more), filler, rows[i].after);
			if (more)
				refused(NEAP_ELIMIT, rows[i].place, text);
			else
				neap_descriptor_free(good(text));
		}
}
END_TEST

START_TEST(keeps_its_list_limits)
{
	static const char id[] =
		"{\"name\":\"n\",\"protocol\":\"tcp\",\"neap\":{\"instance\":\"00112233445566778899aabbccddeeff\",\"level\":1,\"ports\":[";
	limit("devices[64]: more than 64", "{\"name\":\"n\",\"protocol\":\"rdma\",\"devices\":[", "{\"name\":\"d\"," GID "}",
	      NEAP_DEVICES_MAX, "]}");
	limit("neap.ports[64]: more than 64", id, "1", NEAP_CORES_MAX, "]}}");
	limit("buffers[1048576]: more than 1048576", "{\"name\":\"n\",\"protocol\":\"tcp\",\"buffers\":[",
	      "{\"addr\":1,\"length\":1,\"name\":\"b\"}", NEAP_BUFFERS_MAX, "]}");
	/* nesting: a value inside 31 containers inside the document */
	for (uint32_t depth = 31; depth <= 32; depth++) {
		char text[200] = "{\"name\":\"n\",\"protocol\":\"tcp\",\"x\":";
		for (uint32_t i = 0; i < depth; i++)
			strcat(text, "[");
		for (uint32_t i = 0; i < depth; i++)
			strcat(text, "]");
		strcat(text, "}");
		if (depth == 31)
			neap_descriptor_free(good(text));
		else
			refused(NEAP_ELIMIT, "x[0][0]", text);
	}
	char *deep = malloc(100006);
	memset(deep, '[', 100005);
	memcpy(deep, "{\"x\":", 5);
	deep[100005] = '\0';
	refused(NEAP_ELIMIT, "x[0][0]", deep);
	ck_assert_int_eq(neap_json_prescan(deep + 5, 100000, NEAP_DEPTH_MAX, why, sizeof why), NEAP_ELIMIT);
	free(deep);
	ck_assert_int_eq(neap_json_prescan("[[]]", 4, 2, why, sizeof why), 0);
	ck_assert_int_eq(neap_json_prescan("[[]]", 4, 1, why, sizeof why), NEAP_ELIMIT);
	ck_assert_int_eq(neap_json_prescan("[1] 2", 5, 2, why, sizeof why), NEAP_EJSON);
}
END_TEST

START_TEST(refuses_to_write_what_nobody_reads)
{
	struct neap_buffer_desc buffer = {.address = 1, .length = 1, .name = (char *)"b"};
	struct neap_descriptor d = {.name = (char *)"n", .buffers = &buffer, .buffer_count = 1, .tcp_proto_version = 2};
	char *text, long_name[NEAP_NAME_MAX + 2];
	size_t length;
	memset(long_name, 'x', sizeof long_name - 1);
	long_name[sizeof long_name - 1] = '\0';

#define REFUSED(wanted, place, set, reset)                                                                                         \
	do {                                                                                                                           \
		set;                                                                                                                       \
		ck_assert_int_eq(neap_descriptor_encode(&d, STAMP, false, SIZE_MAX, &text, &length, why, sizeof why), wanted);             \
		ck_assert_ptr_null(text);                                                                                                  \
		ck_assert_msg(strncmp(why, place, strlen(place)) == 0, "'%s' does not begin with '%s'", why, place);                       \
		reset;                                                                                                                     \
	} while (0)
	REFUSED(NEAP_EINVAL, "buffers[0]", buffer.address = 0, buffer.address = 1);
	REFUSED(NEAP_EINVAL, "buffers[0]", buffer.length = 0, buffer.length = 1);
	REFUSED(NEAP_EINVAL, "buffers[0]", buffer.address = UINT64_MAX; buffer.length = 2, buffer.address = buffer.length = 1);
	REFUSED(NEAP_EINVAL, "buffers[0]: 1 keys for 0", buffer.key_count = 1, buffer.key_count = 0);
	REFUSED(NEAP_EINVAL, "buffers[0].name: is empty", buffer.name = (char *)"", buffer.name = (char *)"b");
	REFUSED(NEAP_EINVAL, "buffers[0].name: is not UTF-8", buffer.name = (char *)"\xff", buffer.name = (char *)"b");
	REFUSED(NEAP_ELIMIT, "name: has 513", d.name = long_name, d.name = (char *)"n");
	REFUSED(NEAP_EINVAL, "name: is empty", d.name = NULL, d.name = (char *)"n");
	REFUSED(NEAP_EINVAL, "tcp_data_port 65536", d.tcp_data_port = 65536, d.tcp_data_port = 0);
	REFUSED(NEAP_EINVAL, "tcp_data_port 0 or tcp_proto_version -1", d.tcp_proto_version = -1, d.tcp_proto_version = 1);
	REFUSED(NEAP_EINVAL, "neap: level", d.neap.present = true, d.neap.present = false);
	REFUSED(NEAP_ELIMIT, "1048577 buffers", d.buffer_count = NEAP_BUFFERS_MAX + 1, d.buffer_count = 1);
	d.protocol = NEAP_PROTOCOL_RDMA;
	REFUSED(NEAP_ELIMIT, "65 devices", d.device_count = 65, d.device_count = 0);
	struct neap_priority_row row = {.location = (char *)""};
	d.priority = &row;
	REFUSED(NEAP_EINVAL, "priority_matrix: is empty", d.priority_count = 1, d.priority_count = 0);
#undef REFUSED
}
END_TEST

START_TEST(names_both_figures_at_the_limit)
{
	struct neap_descriptor *d = good(tcp_text);
	size_t size = strlen(tcp_text) + 1, length;
	char *text, wanted[64];
	ck_assert_int_eq(neap_descriptor_encode(d, STAMP, true, size, &text, &length, why, sizeof why), 0);
	ck_assert_uint_eq(length, size);
	free(text);
	ck_assert_int_eq(neap_descriptor_encode(d, STAMP, true, size - 1, &text, &length, why, sizeof why), NEAP_ELIMIT);
	ck_assert_ptr_null(text);
	(void)snprintf(wanted, sizeof wanted, "%zu bytes (1 buffers) and the limit is %zu", size, size - 1);
	ck_assert_ptr_nonnull(strstr(why, wanted));
	neap_descriptor_free(d);
}
END_TEST

/* --- names -------------------------------------------------------------------------------------------------------- */

START_TEST(carries_odd_names)
{
	static const char *const names[] = {
		"a b",
		"a%b",
		"a%00b",
		"a+b",
		"a&b",
		"a#b",
		"a?b",
		"a/b",
		"..",
		"\"",
		"\\",
		"a\nb",
		"\t\r\b\f",
		"\x01\x1f\x7f",
		"\xc3\xbc",
		"\xe2\x82\xac",
		"\xf0\x9f\x8c\x8a",
		"\xef\xbf\xbf",
		"\xed\x9f\xbf",
		"[::1]:15000",
		"fe80::1%eth0",
	};
	for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
		struct neap_descriptor d = {.name = (char *)names[i], .tcp_proto_version = 2};
		size_t length;
		char *text = encode(&d, &length);
		for (size_t k = 0; k < length; k++)
			ck_assert_msg(text[k] >= 0x20 && (unsigned char)text[k] < 0x80, "byte %02x in %s", (unsigned char)text[k], text);
		struct neap_descriptor *back = good(text);
		ck_assert_str_eq(back->name, names[i]);
		neap_descriptor_free(back);
		free(text);
	}
	struct neap_descriptor *d = good("{\"pr\\u006ftocol\":\"t\\u0063p\",\"name\":\"\\u00FC\\uD83C\\udf0a\\/\xc3\xbc\"}");
	ck_assert_str_eq(d->name, "\xc3\xbc\xf0\x9f\x8c\x8a/\xc3\xbc");
	neap_descriptor_free(d);
}
END_TEST

START_TEST(escapes_like_the_reference)
{
	struct neap_descriptor d = {.name = (char *)"\x1b/\xc3\xbc\xf0\x9f\x8c\x8a\"", .tcp_proto_version = 2};
	size_t length;
	char *text = encode(&d, &length);
	ck_assert_ptr_nonnull(strstr(text, "\"name\":\"\\u001b/\\u00fc\\ud83c\\udf0a\\\"\""));
	free(text);
}
END_TEST

START_TEST(knows_gids)
{
	uint8_t gid[16];
	char text[48];
	ck_assert(neap_gid_parse("FE:80:0:0:0:0:0:00:0:0:0:0:a:4D:0:2", gid));
	neap_gid_format(gid, text);
	ck_assert_str_eq(text, "fe:80:00:00:00:00:00:00:00:00:00:00:0a:4d:00:02");
	static const char *const bad[] = {"",
	                                  "zz",
	                                  "0:0",
	                                  "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0",
	                                  "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:0",
	                                  "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:000",
	                                  "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:",
	                                  ":0:0:0:0:0:0:0:0:0:0:0:0:0:0:0",
	                                  "0 0:0:0:0:0:0:0:0:0:0:0:0:0:0:0",
	                                  "::ffff:10.77.0.2",
	                                  "0:0:0:0:0:0:0:0:0:0:0:0:0:0:0:g"};
	for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
		ck_assert_msg(!neap_gid_parse(bad[i], gid), "accepted: %s", bad[i]);
}
END_TEST

/* --- ranges ------------------------------------------------------------------------------------------------------- */

START_TEST(knows_what_it_covers)
{
	static const struct {
		uint64_t address, length;
		bool covered;
	} rows[] = {
		{0, 0, false},
		{0, 1, false},
		{999, 1, false},
		{1000, 0, true},
		{1000, 1, true},
		{1000, 100, true},
		{1000, 101, false},
		{1050, 50, true},
		{1099, 1, true},
		{1099, 2, false},
		{1100, 0, true},
		{1100, 1, false},
		{1101, 0, false},
		{999, 2, false},
		/* touching buffers are two */
		{2000, 100, true},
		{2100, 100, true},
		{2050, 100, false},
		/* one inside another */
		{3000, 1000, true},
		{3100, 50, true},
		{3150, 200, true},
		{3900, 101, false},
		/* at the very end of the address space */
		{UINT64_MAX, 1, true},
		{UINT64_MAX, 2, false},
		{UINT64_MAX - 9, 10, true},
		{UINT64_MAX - 9, 11, false},
		{UINT64_MAX - 10, 1, false},
		{1000, UINT64_MAX, false},
		{UINT64_MAX, UINT64_MAX, false},
	};
	struct neap_descriptor *d = good(TCP(
		"\"buffers\":[{\"addr\":18446744073709551606,\"length\":10,\"name\":\"b\"},{\"addr\":3100,\"length\":10,\"name\":\"b\"},"
		"{\"addr\":1000,\"length\":100,\"name\":\"b\"},{\"addr\":2100,\"length\":100,\"name\":\"b\"},{\"addr\":2000,\"length\":100,"
		"\"name\":"
		"\"b\"},{\"addr\":3000,\"length\":1000,\"name\":\"b\"}]"));
	struct neap_descriptor by_hand = *d;
	by_hand.range_starts = by_hand.range_ends = NULL;
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		ck_assert_msg(neap_descriptor_covers(d, rows[i].address, rows[i].length) == rows[i].covered, "row %zu", i);
		ck_assert_msg(neap_descriptor_covers(&by_hand, rows[i].address, rows[i].length) == rows[i].covered, "row %zu by hand", i);
	}
	neap_descriptor_free(d);
	d = good(TCP("\"buffers\":[]"));
	ck_assert(!neap_descriptor_covers(d, 1, 1));
	neap_descriptor_free(d);
}
END_TEST

/* --- size --------------------------------------------------------------------------------------------------------- */

static double cpu_ms(void)
{
	struct timespec now;
	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e3 + (double)now.tv_nsec / 1e6;
}

/* 20,000 ranges of 4 KiB on 4 devices: linear, and far under a second (a debug build with sanitizers included). */
START_TEST(is_fast_with_20000_buffers)
{
	enum { COUNT = 20000 };
	struct neap_device_desc devices[4];
	uint32_t keys[4] = {4000000001u, 4000000002u, 4000000003u, 4000000004u};
	char names[4][8];
	struct neap_buffer_desc *buffers = calloc(COUNT, sizeof *buffers);
	struct neap_descriptor d = {.name = (char *)"10.0.0.1:15000",
	                            .protocol = NEAP_PROTOCOL_RDMA,
	                            .devices = devices,
	                            .device_count = 4,
	                            .buffers = buffers,
	                            .buffer_count = COUNT,
	                            .tcp_proto_version = 1},
	                       *back;
	for (int i = 0; i < 4; i++) {
		(void)snprintf(names[i], sizeof names[i], "mlx5_%d", i);
		devices[i] = (struct neap_device_desc){.name = names[i]};
	}
	for (uint32_t i = 0; i < COUNT; i++)
		buffers[i] = (struct neap_buffer_desc){.address = UINT64_C(0x7f0000000000) + 8192 * i,
		                                       .length = 4096,
		                                       .name = (char *)"cpu:0",
		                                       .rkeys = keys,
		                                       .lkeys = keys,
		                                       .key_count = 4};
	double start = cpu_ms();
	size_t length;
	char *text = encode(&d, &length);
	double encoded = cpu_ms();
	ck_assert_int_eq(neap_descriptor_decode(text, length, &back, why, sizeof why), 0);
	double decoded = cpu_ms();
	uint32_t right = 0;
	for (uint32_t i = 0; i < COUNT; i++)
		right += neap_descriptor_covers(back, buffers[i].address, 4096) && !neap_descriptor_covers(back, buffers[i].address, 4097);
	double covered = cpu_ms();
	ck_assert_uint_eq(right, COUNT);
	printf("20000 buffers x 4 devices: %zu bytes, encode %.1f ms, decode %.1f ms, 40000 range checks %.1f ms\n", length,
	       encoded - start, decoded - encoded, covered - decoded);
	ck_assert_uint_eq(back->buffer_count, COUNT);
	ck_assert(covered - start < 1000);
	char *again = encode(back, &length);
	ck_assert_str_eq(again, text);
	free(again);
	free(text);
	free(buffers);
	neap_descriptor_free(back);
}
END_TEST

int main(void)
{
	(void)setenv("TZ", "UTC", 1);
	Suite *suite = suite_create("descriptor");
	TCase *reads = tcase_create("read and write"), *rules = tcase_create("rules"), *limits = tcase_create("limits");
	tcase_add_test(reads, reads_tcp);
	tcase_add_test(reads, reads_rdma);
	tcase_add_test(reads, reads_captured);
	tcase_add_test(reads, writes_the_same_bytes);
	tcase_add_test(reads, writes_a_newline_and_empty_lists);
	tcase_add_test(reads, carries_the_neap_key);
	tcase_add_test(reads, carries_odd_names);
	tcase_add_test(reads, escapes_like_the_reference);
	tcase_add_test(reads, knows_gids);
	tcase_add_test(reads, knows_what_it_covers);
	tcase_add_test(rules, refuses_each_broken_rule);
	tcase_add_test(rules, refuses_bad_json);
	tcase_add_test(rules, refuses_every_prefix);
	tcase_add_test(rules, refuses_other_protocols_by_name);
	tcase_add_test(rules, ignores_what_it_does_not_know);
	tcase_add_test(rules, takes_the_last_of_duplicates);
	tcase_add_test(rules, leaves_out_a_bad_matrix);
	tcase_add_test(rules, refuses_to_write_what_nobody_reads);
	tcase_add_test(limits, keeps_its_text_limits);
	tcase_add_test(limits, keeps_its_list_limits);
	tcase_add_test(limits, names_both_figures_at_the_limit);
	tcase_add_test(limits, is_fast_with_20000_buffers);
	tcase_set_timeout(limits, 30);
	suite_add_tcase(suite, reads);
	suite_add_tcase(suite, rules);
	suite_add_tcase(suite, limits);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
