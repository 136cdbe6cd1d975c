/* Host and port texts: a table of good ones, a table of bad ones, and what is done with them. */
#include "reactor/address.h"

#include <arpa/inet.h>
#include <check.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DEFAULT_PORT 12001

struct good {
	const char *text, *host, *formatted;
	uint16_t port;
	bool has_port, is_v6;
};

static const struct good goods[] = {
	{"localhost", "localhost", "localhost:12001", 12001, false, false},
	{"localhost:80", "localhost", "localhost:80", 80, true, false},
	{"a-b_c.example.com:65535", "a-b_c.example.com", "a-b_c.example.com:65535", 65535, true, false},
	{"host.", "host.", "host.:12001", 12001, false, false},
	{"1host:1", "1host", "1host:1", 1, true, false},
	{"10.0.0.5x:1", "10.0.0.5x", "10.0.0.5x:1", 1, true, false},
	{"127.0.0.1", "127.0.0.1", "127.0.0.1:12001", 12001, false, false},
	{"127.0.0.1:00080", "127.0.0.1", "127.0.0.1:80", 80, true, false},
	{"0.0.0.0:1", "0.0.0.0", "0.0.0.0:1", 1, true, false},
	{"::", "::", "[::]:12001", 12001, false, true},
	{"::1", "::1", "[::1]:12001", 12001, false, true},
	{"[::1]", "::1", "[::1]:12001", 12001, false, true},
	{"[::1]:9000", "::1", "[::1]:9000", 9000, true, true},
	{"::1:9000", "::1:9000", "[::1:9000]:12001", 12001, false, true},
	{"fe80::1%eth0", "fe80::1%eth0", "[fe80::1%eth0]:12001", 12001, false, true},
	{"[fe80::1%lo]:1", "fe80::1%lo", "[fe80::1%lo]:1", 1, true, true},
	{"[fe80::1%2]:1", "fe80::1%2", "[fe80::1%2]:1", 1, true, true},
	{"[::ffff:127.0.0.1]:1", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:1", 1, true, true},
	{"::ffff:127.0.0.1", "::ffff:127.0.0.1", "[::ffff:127.0.0.1]:12001", 12001, false, true},
	{"2001:db8::1", "2001:db8::1", "[2001:db8::1]:12001", 12001, false, true},
	{"[2001:DB8:0:0:0:0:0:1]:15000", "2001:DB8:0:0:0:0:0:1", "[2001:DB8:0:0:0:0:0:1]:15000", 15000, true, true},
};

START_TEST(good_address)
{
	const struct good *good = &goods[_i];
	struct neap_host_port parsed = {0}, again = {0};
	char why[160] = "", text[NEAP_ADDRESS_TEXT_MAX], second[NEAP_ADDRESS_TEXT_MAX];

	ck_assert_msg(neap_host_port_parse(good->text, DEFAULT_PORT, &parsed, why, sizeof(why)) == 0, "%s: %s", good->text, why);
	ck_assert_str_eq(parsed.host, good->host);
	ck_assert_uint_eq(parsed.port, good->port);
	ck_assert_int_eq(parsed.has_port, good->has_port);
	ck_assert_int_eq(parsed.is_v6, good->is_v6);
	ck_assert_int_eq(neap_host_port_format(&parsed, text, sizeof(text)), (int)strlen(good->formatted));
	ck_assert_str_eq(text, good->formatted);

	ck_assert_int_eq(neap_host_port_parse(text, 1, &again, why, sizeof(why)), 0);
	ck_assert_str_eq(again.host, parsed.host);
	ck_assert_uint_eq(again.port, parsed.port);
	ck_assert_int_gt(neap_host_port_format(&again, second, sizeof(second)), 0);
	ck_assert_str_eq(second, text);
	ck_assert_int_eq(neap_host_port_format(&parsed, text, strlen(good->formatted)), NEAP_EINVAL);
}
END_TEST

/* `says`: what the sentence must have, so that a person can act on it. */
static const struct {
	const char *text, *says;
} bads[] = {
	{"", "empty"},
	{"[", "close"},
	{"[]", "nothing between"},
	{"[]:1", "nothing between"},
	{"[::1", "close"},
	{"[::1]x:1", "behind its bracket"},
	{"[::1]]", "behind its bracket"},
	{"[::1]:", "without a port"},
	{"[::1]:0", "1 to 65535"},
	{"[::1]:70000", "1 to 65535"},
	{"[::1]:12a", "not a number"},
	{"[[::1]]:1", "not an IPv6 address"},
	{"[127.0.0.1]:1", "not an IPv6 address"},
	{"[host]:1", "not an IPv6 address"},
	{"[fe80::1%]:1", "without a scope"},
	{"fe80::1%", "without a scope"},
	{"fe80::1%eth0:80", "[v6%scope]:port"},
	{"fe80::1%averyverylongname0", "interface name"},
	{"fe80::1%et/h0", "interface name"},
	{"host%eth0:1", "'%'"},
	{"::1]:1", "several colons"},
	{"::1]", "several colons"},
	{"host]:1", "']'"},
	{"host:", "without a port"},
	{":1", "no host"},
	{":", "no host"},
	{"host:0", "1 to 65535"},
	{"host:65536", "1 to 65535"},
	{"host:99999999999999999999", "1 to 65535"},
	{"host:000080", "1 to 65535"},
	{"host:abc", "not a number"},
	{"host:8o", "not a number"},
	{"host:+80", "not a number"},
	{"host:-1", "not a number"},
	{"host:80/path", "not a number"},
	{"host:1:2", "several colons"},
	{"1:2:3:4:5:6:7:8:9", "several colons"},
	{"::1::1", "several colons"},
	{"tcp://host:1", "several colons"},
	{"host/path", "'/'"},
	{"user@host", "'@'"},
	{"ho st", "0x20"},
	{" host", "0x20"},
	{"host\n", "0x0a"},
	{"host:80\n", "0x0a"},
	{"h\xc3\xb6st:1", "0xc3"},
	{"\x7f", "0x7f"},
	{"a..b", "empty part"},
	{".a", "empty part"},
	{".", "empty part"},
	{"256.1.1.1", "four numbers"},
	{"1.2.3:80", "four numbers"},
	{"127.1", "four numbers"},
	{"1.2.3.4.5", "four numbers"},
	{"12345", "four numbers"},
	{"1.2.3.4.", "four numbers"},
	{"host.12", "four numbers"},
};

START_TEST(bad_address)
{
	struct neap_host_port parsed, before;
	char why[200] = "";

	memset(&parsed, 0x5a, sizeof(parsed));
	before = parsed;
	ck_assert_msg(neap_host_port_parse(bads[_i].text, DEFAULT_PORT, &parsed, why, sizeof(why)) == NEAP_EADDRESS,
	              "\"%s\" was taken as %s", bads[_i].text, parsed.host);
	ck_assert_msg(strstr(why, bads[_i].says) != NULL, "\"%s\": the sentence is \"%s\", without \"%s\"", bads[_i].text, why,
	              bads[_i].says);
	ck_assert_mem_eq(&parsed, &before, sizeof(parsed)); /* never a default instead */
	for (const char *c = why; *c; c++)
		ck_assert_msg(*c >= ' ' && *c <= '~', "the sentence for entry %d carries byte 0x%02x", _i, (unsigned)(unsigned char)*c);
	ck_assert_int_eq(neap_host_port_parse(bads[_i].text, DEFAULT_PORT, &parsed, NULL, 0), NEAP_EADDRESS);
}
END_TEST

static int parse_repeated(const char *before, char c, size_t count, const char *after, char *why, size_t size)
{
	struct neap_host_port parsed;
	char text[1024];
	size_t at = strlen(before);
	strcpy(text, before);
	memset(text + at, c, count);
	strcpy(text + at + count, after);
	return neap_host_port_parse(text, 1, &parsed, why, size);
}

START_TEST(lengths)
{
	struct neap_host_port parsed;
	char why[200], text[512], formatted[NEAP_ADDRESS_TEXT_MAX];

	ck_assert_int_eq(parse_repeated("", 'a', 300, "", why, sizeof(why)), NEAP_EADDRESS);
	ck_assert_ptr_nonnull(strstr(why, "limit"));
	ck_assert_int_eq(parse_repeated("[", ':', 300, "]", why, sizeof(why)), NEAP_EADDRESS);
	ck_assert_int_eq(parse_repeated("[::1", '0', 300, "]:1", why, sizeof(why)), NEAP_EADDRESS);
	ck_assert_int_eq(parse_repeated("fe80::1%", '1', 300, "", why, sizeof(why)), NEAP_EADDRESS);
	ck_assert_int_eq(parse_repeated("", 'a', 64, "", why, sizeof(why)), NEAP_EADDRESS);
	ck_assert_ptr_nonnull(strstr(why, "63"));
	ck_assert_int_eq(parse_repeated("", 'a', 63, "", why, sizeof(why)), 0);

	/* The longest host there is, four labels of 63 in 255 bytes, with a port. */
	memset(text, 'x', sizeof(text));
	text[63] = text[127] = text[191] = '.';
	strcpy(text + 255, ":65535");
	ck_assert_int_eq(neap_host_port_parse(text, 1, &parsed, why, sizeof(why)), 0);
	ck_assert_uint_eq(strlen(parsed.host), NEAP_HOST_MAX - 1);
	ck_assert_int_eq(neap_host_port_format(&parsed, formatted, sizeof(formatted)), 261);
	ck_assert_str_eq(formatted, text);
	text[255] = '.';
	text[256] = 'y';
	text[257] = '\0';
	ck_assert_int_eq(neap_host_port_parse(text, 1, &parsed, why, sizeof(why)), NEAP_EADDRESS);

	/* A small buffer for the sentence is not overrun. */
	char small[8] = "1234567";
	ck_assert_int_eq(neap_host_port_parse("host:abc", 1, &parsed, small, 4), NEAP_EADDRESS);
	ck_assert_uint_eq(strlen(small), 3);
	ck_assert_str_eq(small + 4, "567");
}
END_TEST

/* Whatever the bytes: an answer, and what is taken formats and parses to itself. */
START_TEST(random_bytes)
{
	static const char alphabet[] = "::[]%.0123456789abcfx-_ \n\x80";
	srand(7);
	for (int round = 0; round < 200000; round++) {
		char text[24], first[NEAP_ADDRESS_TEXT_MAX], second[NEAP_ADDRESS_TEXT_MAX];
		struct neap_host_port parsed, again;
		size_t length = (size_t)rand() % (sizeof(text) - 1);
		for (size_t i = 0; i < length; i++)
			text[i] = alphabet[(size_t)rand() % (sizeof(alphabet) - 1)];
		text[length] = '\0';
		if (neap_host_port_parse(text, 7, &parsed, NULL, 0) != 0)
			continue;
		ck_assert_int_gt(neap_host_port_format(&parsed, first, sizeof(first)), 0);
		ck_assert_msg(neap_host_port_parse(first, 8, &again, NULL, 0) == 0, "%s gave %s, which is refused", text, first);
		ck_assert_int_gt(neap_host_port_format(&again, second, sizeof(second)), 0);
		ck_assert_str_eq(first, second);
	}
}
END_TEST

static const struct {
	const char *host, *formatted;
	bool loopback, wildcard;
} numerics[] = {
	{"127.0.0.1", "127.0.0.1:80", true, false},
	{"127.255.0.9", "127.255.0.9:80", true, false},
	{"128.0.0.1", "128.0.0.1:80", false, false},
	{"0.0.0.0", "0.0.0.0:80", false, true},
	{"::", "[::]:80", false, true},
	{"::1", "[::1]:80", true, false},
	{"::2", "[::2]:80", false, false},
	{"::ffff:127.0.0.1", "[::ffff:127.0.0.1]:80", true, false},
	{"::ffff:0.0.0.0", "[::ffff:0.0.0.0]:80", false, true},
	{"::ffff:10.0.0.1", "[::ffff:10.0.0.1]:80", false, false},
	{"fe80::1%7", "[fe80::1%7]:80", false, false},
	{"2001:0DB8::0001", "[2001:db8::1]:80", false, false},
};

START_TEST(numeric)
{
	struct neap_sockaddr address = {0}, other = {0};
	char text[NEAP_ADDRESS_TEXT_MAX];

	ck_assert_int_eq(neap_sockaddr_from_numeric(numerics[_i].host, 80, &address), 0);
	ck_assert_int_eq(neap_sockaddr_format(&address, text, sizeof(text)), (int)strlen(numerics[_i].formatted));
	ck_assert_str_eq(text, numerics[_i].formatted);
	ck_assert_int_eq(neap_sockaddr_format(&address, text, strlen(numerics[_i].formatted)), NEAP_EINVAL);
	ck_assert_int_eq(neap_sockaddr_is_loopback(&address), numerics[_i].loopback);
	ck_assert_int_eq(neap_sockaddr_is_wildcard(&address), numerics[_i].wildcard);
	ck_assert_uint_eq(neap_sockaddr_port(&address), 80);

	for (size_t i = 0; i < sizeof(numerics) / sizeof(*numerics); i++) {
		ck_assert_int_eq(neap_sockaddr_from_numeric(numerics[i].host, 80, &other), 0);
		ck_assert_int_eq(neap_sockaddr_equal(&address, &other), i == (size_t)_i);
	}
	other = address;
	neap_sockaddr_set_port(&other, 81);
	ck_assert_uint_eq(neap_sockaddr_port(&other), 81);
	ck_assert(!neap_sockaddr_equal(&address, &other));
}
END_TEST

START_TEST(numeric_refused)
{
	static const char *const names[] = {"", "localhost", "1.2.3", "::g", "fe80::1%", "fe80::1%nosuchif0", "fe80::1%0",
	                                    "fe80::1%99999999999", "[::1]", "::1 ", "127.0.0.1%lo"};
	struct neap_sockaddr address;
	for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
		ck_assert_msg(neap_sockaddr_from_numeric(names[i], 1, &address) == NEAP_EADDRESS, "%s", names[i]);
}
END_TEST

START_TEST(scope_by_name)
{
	struct neap_sockaddr address;
	ck_assert_int_eq(neap_sockaddr_from_numeric("fe80::1%lo", 1, &address), 0);
	ck_assert_uint_eq(address.v6.sin6_scope_id, if_nametoindex("lo"));
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("address");
	TCase *texts = tcase_create("texts"), *numbers = tcase_create("numbers");
	tcase_add_loop_test(texts, good_address, 0, sizeof(goods) / sizeof(*goods));
	tcase_add_loop_test(texts, bad_address, 0, sizeof(bads) / sizeof(*bads));
	tcase_add_test(texts, lengths);
	tcase_add_test(texts, random_bytes);
	tcase_add_loop_test(numbers, numeric, 0, sizeof(numerics) / sizeof(*numerics));
	tcase_add_test(numbers, numeric_refused);
	tcase_add_test(numbers, scope_by_name);
	suite_add_tcase(suite, texts);
	suite_add_tcase(suite, numbers);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
