/* The serving half against a raw client: plain framing. Each test runs over loopback sockets and over memory streams. */
#include "tests/support/session_peer.h"

#include <check.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static struct session_rig rig;
static struct peer peer, *current = &peer; /* a stream keeps its place: peers are not copied */
static unsigned char buffer[8 * 1024 * 1024];

static void begin(int kind)
{
	session_rig_open(&rig, (enum session_rig_kind)kind);
	session_rig_start(&rig);
	peer_open(&peer, &rig);
}

static void end(void)
{
	peer_close(&peer, false);
	session_rig_close(&rig);
}

static struct wire_bytes out(void)
{
	return (struct wire_bytes){.at = buffer, .size = sizeof buffer};
}

static uint64_t at(int region, uint64_t offset)
{
	return (uint64_t)(uintptr_t)rig.region[region] + offset;
}

static unsigned char *pattern(size_t length, unsigned seed)
{
	static unsigned char bytes[6 * 1024 * 1024];
	ck_assert_uint_le(length, sizeof bytes);
	for (size_t i = 0; i < length; i++)
		bytes[i] = (unsigned char)(i * 13 + seed + (i >> 8));
	return bytes;
}

static void send_plain(unsigned opcode, uint64_t address, uint64_t size, const void *payload, size_t length)
{
	struct wire_bytes w = out();
	wire_plain(&w, size, address, opcode);
	if (length)
		wire_put(&w, payload, length);
	peer_send(current, w.at, w.length);
}

/* --- what was captured from the reference ---------------------------------------------------------------------------------- */

START_TEST(v2_write_of_eight_bytes)
{
	begin(_i);
	unsigned char bytes[32] = "\x08\x00\x00\x00\x00\x00\x00\x00........\x81\x00\x00\x00\x00\x00\x00\x00" "ABCDEFGH";
	uint64_t address = at(RIG_OPEN_A, 4096);
	memcpy(bytes + 8, &address, 8);
	peer_send(&peer, bytes, 32);
	peer_expect(&peer, "\x00\x00\x00\x00\x56\x54\x43\x4d", 8);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A] + 4096, "ABCDEFGH", 8);
	bytes[16] = 0x80;
	peer_send(&peer, bytes, 24);
	peer_expect(&peer, "\x00\x00\x00\x00\x56\x54\x43\x4d" "ABCDEFGH", 16);
	ck_assert_uint_eq(rig.stats.requests_served, 2);
	ck_assert_uint_eq(rig.stats.bytes_served_written, 8);
	ck_assert_uint_eq(rig.stats.bytes_served_read, 8);
	end();
}
END_TEST

START_TEST(rejected_v2_says_so_and_ends)
{
	begin(_i);
	send_plain(0x80, 0, 8, NULL, 0);
	peer_expect(&peer, "\x01\x00\x00\x00\x56\x54\x43\x4d", 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	ck_assert_uint_eq(rig.stats.requests_refused, 1);
	end();
}
END_TEST

/* The body of a rejected WRITE is many times what sockets hold: the status must still be readable. */
START_TEST(rejected_write_with_a_long_body)
{
	begin(_i);
	send_plain(0x81, at(RIG_CLOSED, 0), 5 * 1024 * 1024, pattern(5 * 1024 * 1024, 1), 5 * 1024 * 1024);
	peer_expect(&peer, PEER_REJECTED, 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

START_TEST(hello_to_a_plain_only_server_pattern)
{
	begin(_i);
	/* size 0, opcode 0x81, another address than ours, 32 more bytes */
	unsigned char bytes[56] = {0};
	bytes[16] = 0x81;
	bytes[8] = 'X';
	peer_send(&peer, bytes, sizeof bytes);
	peer_expect(&peer, PEER_REJECTED, 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

START_TEST(pipelined_writes_and_reads)
{
	begin(_i);
	struct wire_bytes w = out();
	for (unsigned i = 0; i < 3; i++) {
		wire_plain(&w, 5, at(RIG_OPEN_A, i * 5), 0x81);
		wire_put(&w, &"helloworldagain"[i * 5], 5);
	}
	wire_plain(&w, 15, at(RIG_OPEN_A, 0), 0x80);
	wire_plain(&w, 4, at(RIG_OPEN_A, 3), 0x80);
	peer_send(&peer, w.at, w.length);
	for (unsigned i = 0; i < 4; i++)
		peer_expect(&peer, PEER_OK, 8);
	peer_expect(&peer, "helloworldagain", 15);
	peer_expect(&peer, PEER_OK "lowo", 12);
	end();
}
END_TEST

/* v1 has no answer to a WRITE: a READ of the range's end behind it is the acknowledgement; and versions mix on one connection. */
START_TEST(versions_mix)
{
	begin(_i);
	struct wire_bytes w = out();
	wire_plain(&w, 4096, at(RIG_OPEN_A, 0), 1);
	wire_put(&w, pattern(4096, 3), 4096);
	wire_plain(&w, 1, at(RIG_OPEN_A, 4095), 0);
	wire_plain(&w, 3, at(RIG_OPEN_B, 7), 0x81);
	wire_put(&w, "abc", 3);
	wire_plain(&w, 3, at(RIG_OPEN_B, 7), 0);
	wire_plain(&w, 2, at(RIG_OPEN_B, 8), 0x80);
	peer_send(&peer, w.at, w.length);
	peer_expect(&peer, pattern(4096, 3) + 4095, 1);
	peer_expect(&peer, PEER_OK "abc" PEER_OK "bc", 21);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A], pattern(4096, 3), 4096);
	/* a v1 WRITE leaves the connection open */
	send_plain(1, at(RIG_OPEN_A, 100), 2, "zz", 2);
	peer_expect_silence(&peer);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A] + 100, "zz", 2);
	end();
}
END_TEST

START_TEST(any_opcode_but_write_reads)
{
	static const unsigned opcodes[] = {0x00, 0x02, 0x7f, 0x80, 0x82, 0xff, 0xfe, 0x40};
	begin(_i);
	memcpy(rig.region[RIG_OPEN_B], "data", 4);
	for (size_t i = 0; i < sizeof opcodes / sizeof opcodes[0]; i++) {
		send_plain(opcodes[i], at(RIG_OPEN_B, 0), 4, NULL, 0);
		if (opcodes[i] & 0x80)
			peer_expect(&peer, PEER_OK, 8);
		peer_expect(&peer, "data", 4);
	}
	peer_expect_silence(&peer);
	end();
}
END_TEST

/* --- ranges ------------------------------------------------------------------------------------------------------------- */

struct bad_range {
	const char *what;
	int region;
	uint64_t offset; /* from the region's start; region -1: absolute */
	uint64_t size;
};

static const struct bad_range bad_ranges[] = {
	{"nothing", RIG_OPEN_A, 0, 0},
	{"address 0", -1, 0, 8},
	{"one byte before", RIG_OPEN_A, (uint64_t)-1, 8},
	{"just before", RIG_OPEN_A, (uint64_t)-8, 8},
	{"one byte too many", RIG_OPEN_B, 1, SESSION_RIG_REGION},
	{"just after", RIG_OPEN_B, SESSION_RIG_REGION, 1},
	{"wraps around", RIG_OPEN_A, 16, UINT64_MAX - 8},
	{"wraps around to itself", RIG_OPEN_A, 0, UINT64_MAX},
	{"2^63", RIG_OPEN_A, 0, UINT64_C(1) << 63},
	{"at the top", -1, UINT64_MAX, 1},
	{"closed", RIG_CLOSED, 0, 8},
	{"grant only", RIG_GRANTED, 0, 8},
	{"two touching regions", RIG_OPEN_A, SESSION_RIG_REGION - 4, 8},
	{"the guard page between", RIG_OPEN_B, SESSION_RIG_REGION + 8, 8},
};

static void try_bad_range(const struct bad_range *bad, unsigned opcode)
{
	uint64_t refused = rig.stats.requests_refused;
	peer_open(&peer, &rig);
	uint64_t address = bad->region < 0 ? bad->offset : at(bad->region, bad->offset);
	send_plain(opcode, address, bad->size, "12345678", (opcode & 0x7f) == 1 && bad->size ? 8 : 0);
	if (opcode & 0x80)
		peer_expect(&peer, PEER_REJECTED, 8);
	/* An end of file behind a v1 WRITE is how old servers say "stored": refused it must be a reset. */
	ck_assert_msg(peer_wait_end(&peer) == (opcode == 1 ? PEER_RESET : PEER_FIN), "%s, opcode %02x", bad->what, opcode);
	ck_assert_uint_eq(rig.stats.requests_refused, refused + 1);
	peer_close(&peer, false);
}

START_TEST(ranges_are_checked)
{
	static const unsigned opcodes[] = {0, 1, 0x80, 0x81, 0x7f, 0xff};
	session_rig_open(&rig, (enum session_rig_kind)_i);
	session_rig_start(&rig);
	session_rig_fill(&rig);
	for (size_t i = 0; i < sizeof bad_ranges / sizeof bad_ranges[0]; i++)
		for (size_t k = 0; k < sizeof opcodes / sizeof opcodes[0]; k++)
			try_bad_range(&bad_ranges[i], opcodes[k]);
	for (int region = 0; region < RIG_REGIONS; region++)
		for (size_t i = 0; region != RIG_CLOSED && i < SESSION_RIG_REGION; i++)
			if (rig.region[region][i] != (unsigned char)(i * 7 + (size_t)region))
				ck_abort_msg("byte %zu of region %d was written", i, region);
	session_rig_close(&rig);
}
END_TEST

START_TEST(touching_regions_work_each_by_itself)
{
	begin(_i);
	send_plain(0x81, at(RIG_OPEN_A, SESSION_RIG_REGION - 4), 4, "left", 4);
	send_plain(0x81, at(RIG_OPEN_B, 0), 5, "right", 5);
	peer_expect(&peer, PEER_OK PEER_OK, 16);
	ck_assert_mem_eq(rig.region[RIG_OPEN_B] - 4, "leftright", 9);
	end();
}
END_TEST

START_TEST(unregistered_a_moment_before)
{
	begin(_i);
	send_plain(0x81, at(RIG_OPEN_A, 0), 4, "once", 4);
	peer_expect(&peer, PEER_OK, 8);
	ck_assert_int_eq(neap_registry_unregister(rig.registry, rig.ids[RIG_OPEN_A], NULL, NULL), NEAP_OK);
	send_plain(0x81, at(RIG_OPEN_A, 0), 4, "late", 4);
	peer_expect(&peer, PEER_REJECTED, 8);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A], "once", 4);
	end();
}
END_TEST

/* What is refused does not undo what was asked before on the connection: those answers come first. */
START_TEST(answers_before_a_refusal_are_delivered)
{
	begin(_i);
	session_rig_fill(&rig);
	struct wire_bytes w = out();
	wire_plain(&w, 100000, at(RIG_OPEN_B, 0), 0x80);
	wire_plain(&w, 2, at(RIG_OPEN_A, 0), 0x81);
	wire_put(&w, "ok", 2);
	wire_plain(&w, 2, 0, 0x81);
	wire_put(&w, "no", 2);
	wire_plain(&w, 2, at(RIG_OPEN_A, 8), 0x81);
	wire_put(&w, "no", 2);
	peer_send(&peer, w.at, w.length);
	peer_expect(&peer, PEER_OK, 8);
	peer_expect(&peer, rig.region[RIG_OPEN_B], 100000);
	peer_expect(&peer, PEER_OK PEER_REJECTED, 16);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A], "ok", 2);
	ck_assert_uint_eq(rig.region[RIG_OPEN_A][8], 8 * 7);
	end();
}
END_TEST

/* --- pieces ------------------------------------------------------------------------------------------------------------- */

static struct wire_bytes conversation(void)
{
	struct wire_bytes w = out();
	wire_plain(&w, 10, at(RIG_OPEN_A, 0), 0x81);
	wire_put(&w, pattern(10, 9), 10);
	wire_plain(&w, 3, at(RIG_OPEN_A, 5), 0);
	wire_plain(&w, 40000, at(RIG_OPEN_A, 64), 1);
	wire_put(&w, pattern(40000, 2), 40000);
	wire_plain(&w, 10, at(RIG_OPEN_A, 0), 0x80);
	return w;
}

static void expect_conversation(void)
{
	peer_expect(&peer, PEER_OK, 8);
	peer_expect(&peer, pattern(10, 9) + 5, 3);
	peer_expect(&peer, PEER_OK, 8);
	peer_expect(&peer, pattern(10, 9), 10);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A] + 64, pattern(40000, 2), 40000);
}

START_TEST(byte_by_byte)
{
	begin(_i);
	struct wire_bytes w = conversation();
	for (size_t i = 0; i < 200; i++)
		peer_send(&peer, w.at + i, 1);
	peer_send(&peer, w.at + 200, w.length - 400);
	for (size_t i = w.length - 200; i < w.length; i++)
		peer_send(&peer, w.at + i, 1);
	expect_conversation();
	end();
}
END_TEST

START_TEST(every_split)
{
	begin(_i);
	struct wire_bytes w = conversation();
	for (size_t cut = 0; cut <= w.length; cut += cut < 100 || cut + 100 > w.length ? 1 : 997) {
		memset(rig.region[RIG_OPEN_A], 0, 65536);
		peer_send(&peer, w.at, cut);
		peer_send(&peer, w.at + cut, w.length - cut);
		expect_conversation();
	}
	end();
}
END_TEST

START_TEST(small_pieces)
{
	begin(_i);
	struct wire_bytes w = conversation();
	static const size_t pieces[] = {1, 2, 3, 7, 23, 24, 25, 47, 1000, 4097};
	for (size_t p = 0; p < sizeof pieces / sizeof pieces[0]; p++) {
		if (pieces[p] < 7 && _i == SESSION_RIG_SOCKETS)
			continue;
		memset(rig.region[RIG_OPEN_A], 0, 65536);
		for (size_t i = 0; i < w.length; i += pieces[p])
			peer_send(&peer, w.at + i, pieces[p] < w.length - i ? pieces[p] : w.length - i);
		expect_conversation();
	}
	end();
}
END_TEST

/* The server's own calls move little at a time: its vectors, carries and trailers start and end anywhere. */
START_TEST(small_calls)
{
	static const size_t limits[] = {1, 5, 24, 100, 4096};
	for (size_t k = 0; k < sizeof limits / sizeof limits[0]; k++) {
		begin(SESSION_RIG_VIRTUAL);
		peer.pair.ends[0].call_max = limits[k];
		struct wire_bytes w = conversation();
		peer_send(&peer, w.at, w.length);
		expect_conversation();
		end();
	}
}
END_TEST

START_TEST(small_budget)
{
	begin(_i);
	rig.bytes_budget = 1;
	struct wire_bytes w = conversation();
	peer_send(&peer, w.at, w.length);
	expect_conversation();
	end();
}
END_TEST

/* --- size ----------------------------------------------------------------------------------------------------------------- */

START_TEST(sizes_both_ways)
{
	static const size_t sizes[] = {1, 7, 4096, 32767, 32768, 65536, 262120, 262144, 262145, 1048576, 3000000};
	begin(_i);
	for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
		unsigned char *payload = pattern(sizes[i], (unsigned)i);
		for (unsigned round = 0; round < 3; round++) {
			send_plain(0x81, at(RIG_OPEN_A, 11 * i), sizes[i], payload, sizes[i]);
			peer_expect(&peer, PEER_OK, 8);
		}
		ck_assert_mem_eq(rig.region[RIG_OPEN_A] + 11 * i, payload, sizes[i]);
		send_plain(0x80, at(RIG_OPEN_A, 11 * i), sizes[i], NULL, 0);
		peer_expect(&peer, PEER_OK, 8);
		peer_expect(&peer, payload, sizes[i]);
	}
	end();
}
END_TEST

START_TEST(many_small_requests_in_one_go)
{
	begin(_i);
	struct wire_bytes w = out();
	unsigned char *payload = pattern(4096, 5);
	for (unsigned i = 0; i < 900; i++) {
		wire_plain(&w, 4096, at(RIG_OPEN_A, (i % 1000) * 4096), 0x81);
		payload[0] = (unsigned char)i;
		wire_put(&w, payload, 4096);
	}
	for (unsigned i = 0; i < 3000; i++)
		wire_plain(&w, 1, at(RIG_OPEN_A, (i % 900) * 4096), i % 3 ? 0x80 : 0);
	peer_send(&peer, w.at, w.length);
	for (unsigned i = 0; i < 900; i++)
		peer_expect(&peer, PEER_OK, 8);
	for (unsigned i = 0; i < 3000; i++) {
		if (i % 3)
			peer_expect(&peer, PEER_OK, 8);
		peer_expect(&peer, rig.region[RIG_OPEN_A] + (i % 900) * 4096, 1);
		ck_assert_uint_eq(rig.region[RIG_OPEN_A][(i % 900) * 4096], (unsigned char)(i % 900));
	}
	end();
}
END_TEST

/* One request of 4.5 GiB. The same 60 MiB lie behind it over and over: 4 GiB is no multiple of that, so an offset cut to 32 bits
 * would store in the wrong place. Each MiB carries its number. */
#define HUGE_PIECE (UINT64_C(1) << 20)
#define HUGE_SLOTS 60u
#define HUGE_PIECES 4620u

static unsigned char *map_huge(void)
{
	int fd = memfd_create("huge", MFD_CLOEXEC);
	ck_assert_int_eq(ftruncate(fd, HUGE_SLOTS * HUGE_PIECE), 0);
	unsigned char *huge = mmap(NULL, HUGE_PIECES * HUGE_PIECE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	ck_assert_ptr_ne(huge, MAP_FAILED);
	for (uint64_t i = 0; i < HUGE_PIECES; i += HUGE_SLOTS)
		ck_assert_ptr_ne(mmap(huge + i * HUGE_PIECE, HUGE_SLOTS * HUGE_PIECE, PROT_READ | PROT_WRITE,
		                      MAP_SHARED | MAP_FIXED | MAP_POPULATE, fd, 0), MAP_FAILED);
	close(fd);
	return huge;
}

static void write_huge(uint64_t address)
{
	unsigned char *payload = pattern(HUGE_PIECE, 77);
	send_plain(0x81, address, HUGE_PIECES * HUGE_PIECE, NULL, 0);
	for (uint64_t i = 0; i < HUGE_PIECES; i++) {
		memcpy(payload, &i, sizeof i);
		peer_send(&peer, payload, HUGE_PIECE);
	}
	peer_expect(&peer, PEER_OK, 8);
}

static void read_huge(uint64_t address)
{
	unsigned char *payload = pattern(HUGE_PIECE, 77);
	send_plain(0x80, address, HUGE_PIECES * HUGE_PIECE, NULL, 0);
	peer_expect(&peer, PEER_OK, 8);
	for (uint64_t i = 0; i < HUGE_PIECES; i++) {
		uint64_t number, last = HUGE_PIECES - HUGE_SLOTS + i % HUGE_SLOTS;
		peer_take(&peer, buffer, HUGE_PIECE);
		memcpy(&number, buffer, sizeof number);
		ck_assert_uint_eq(number, last);
		ck_assert_int_eq(memcmp(buffer + 8, payload + 8, HUGE_PIECE - 8), 0);
	}
	peer_expect_silence(&peer);
}

START_TEST(more_than_four_gib)
{
	if (!getenv("NEAP_TEST_FULL"))
		return;
	begin(SESSION_RIG_SOCKETS);
	unsigned char *huge = map_huge();
	struct neap_memory memory = {.address = huge, .length = HUGE_PIECES * HUGE_PIECE, .location = "*", .access = NEAP_OPEN};
	neap_region_id id;
	ck_assert_int_eq(neap_registry_register(rig.registry, &memory, 1, &id, NULL, 0), NEAP_OK);
	write_huge((uint64_t)(uintptr_t)huge);
	read_huge((uint64_t)(uintptr_t)huge);
	ck_assert_uint_eq(rig.stats.bytes_served_written, HUGE_PIECES * HUGE_PIECE);
	ck_assert_uint_eq(rig.stats.bytes_served_read, HUGE_PIECES * HUGE_PIECE);
	ck_assert_int_eq(neap_registry_unregister(rig.registry, id, NULL, NULL), NEAP_OK);
	end();
	munmap(huge, HUGE_PIECES * HUGE_PIECE);
}
END_TEST

/* --- ends ----------------------------------------------------------------------------------------------------------------- */

START_TEST(reset_in_the_middle_of_a_payload)
{
	begin(_i);
	send_plain(0x81, at(RIG_OPEN_A, 0), 100000, pattern(50000, 8), 50000);
	peer_close(&peer, true);
	session_rig_pass(&rig, 20);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
	ck_assert_mem_eq(rig.region[RIG_OPEN_A], pattern(50000, 8), 49000);
	session_rig_close(&rig);
}
END_TEST

START_TEST(end_of_file_in_the_middle_of_a_payload)
{
	begin(_i);
	send_plain(0x81, at(RIG_OPEN_A, 0), 100000, pattern(50000, 8), 50000);
	peer_half_close(&peer);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

/* A peer that has nothing more to ask still gets what it asked for. */
START_TEST(half_close_after_the_requests)
{
	begin(_i);
	session_rig_fill(&rig);
	struct wire_bytes w = out();
	for (unsigned i = 0; i < 700; i++)
		wire_plain(&w, 2000, at(RIG_OPEN_A, i), 0x80);
	peer_send(&peer, w.at, w.length);
	peer_half_close(&peer);
	for (unsigned i = 0; i < 700; i++) {
		peer_expect(&peer, PEER_OK, 8);
		peer_expect(&peer, rig.region[RIG_OPEN_A] + i, 2000);
	}
	ck_assert_int_eq(peer_wait_end(&peer), PEER_FIN);
	end();
}
END_TEST

START_TEST(sessions_are_bounded)
{
	static struct peer peers[17];
	session_rig_open(&rig, (enum session_rig_kind)_i);
	session_rig_start(&rig);
	for (unsigned i = 0; i < 16; i++) {
		peer_open(&peers[i], &rig);
		session_rig_settle(&rig);
	}
	session_rig_pass(&rig, 5);
	ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 16);
	peer_open(&peers[16], &rig);
	ck_assert_int_eq(peer_wait_end(&peers[16]), PEER_RESET);
	ck_assert_uint_eq(rig.stats.sessions_refused, 1);
	peer_close(&peers[16], false);
	/* one goes, one may come */
	peer_close(&peers[3], false);
	session_rig_pass(&rig, 5);
	peer_open(&peers[3], &rig);
	current = &peers[3];
	send_plain(0x81, at(RIG_OPEN_A, 0), 2, "ok", 2);
	peer_expect(&peers[3], PEER_OK, 8);
	for (unsigned i = 0; i < 16; i++)
		peer_close(&peers[i], false);
	session_rig_close(&rig);
}
END_TEST

START_TEST(closing_with_sessions_of_every_kind)
{
	static struct peer idle, fresh;
	begin(_i);
	peer_open(&idle, &rig);
	peer_open(&fresh, &rig);
	current = &idle;
	send_plain(0x81, at(RIG_OPEN_A, 0), 2, "ok", 2);
	peer_expect(&idle, PEER_OK, 8);
	current = &peer;
	send_plain(0x81, at(RIG_OPEN_A, 0), 100, "part", 4);
	session_rig_pass(&rig, 5);
	session_rig_stop(&rig);
	ck_assert_int_eq(peer_wait_end(&peer), PEER_RESET);
	ck_assert_int_eq(peer_wait_end(&idle), PEER_FIN);
	ck_assert_int_eq(peer_wait_end(&fresh), PEER_RESET);
	peer_close(&idle, false);
	peer_close(&fresh, false);
	end();
}
END_TEST

/* Registered and then unmapped, which is the user's mistake: it costs the connection, not the process. */
START_TEST(registered_but_not_mapped)
{
	for (unsigned opcode = 0x80; opcode <= 0x81; opcode++) {
		begin(SESSION_RIG_SOCKETS);
		uint64_t place = at(RIG_OPEN_B, 0);
		ck_assert_int_eq(mprotect((void *)(uintptr_t)place, 1 << 20, PROT_NONE), 0);
		unsigned char head[24];
		struct wire_bytes w = {.at = head, .size = sizeof head};
		wire_plain(&w, 100000, place, opcode);
		peer_send(&peer, head, sizeof head);
		session_rig_pass(&rig, 5); /* the header alone: the payload will go straight to its place */
		if (opcode == 0x81)
			(void)peer_send_some(&peer, buffer, 100000);
		for (unsigned i = 0; i < 1000 && neap_tcp_server_sessions(rig.server) > 0; i++)
			session_rig_pass(&rig, 1);
		ck_assert_uint_eq(neap_tcp_server_sessions(rig.server), 0);
		ck_assert_int_eq(mprotect((void *)(uintptr_t)place, 1 << 20, PROT_READ | PROT_WRITE), 0);
		end();
	}
}
END_TEST

static void add_both(TCase *tcase, const TTest *test)
{
	tcase_add_loop_test(tcase, test, SESSION_RIG_SOCKETS, SESSION_RIG_VIRTUAL + 1);
}

static Suite *make_suite(void)
{
	Suite *suite = suite_create("session");
	TCase *vectors = tcase_create("vectors"), *ranges = tcase_create("ranges"), *pieces = tcase_create("pieces");
	TCase *sizes = tcase_create("sizes"), *ends = tcase_create("ends");
	add_both(vectors, v2_write_of_eight_bytes);
	add_both(vectors, rejected_v2_says_so_and_ends);
	add_both(vectors, rejected_write_with_a_long_body);
	add_both(vectors, hello_to_a_plain_only_server_pattern);
	add_both(vectors, pipelined_writes_and_reads);
	add_both(vectors, versions_mix);
	add_both(vectors, any_opcode_but_write_reads);
	add_both(ranges, ranges_are_checked);
	add_both(ranges, touching_regions_work_each_by_itself);
	add_both(ranges, unregistered_a_moment_before);
	add_both(ranges, answers_before_a_refusal_are_delivered);
	add_both(pieces, byte_by_byte);
	add_both(pieces, every_split);
	add_both(pieces, small_pieces);
	tcase_add_test(pieces, small_calls);
	add_both(pieces, small_budget);
	add_both(sizes, sizes_both_ways);
	add_both(sizes, many_small_requests_in_one_go);
	tcase_add_test(sizes, more_than_four_gib);
	add_both(ends, reset_in_the_middle_of_a_payload);
	add_both(ends, end_of_file_in_the_middle_of_a_payload);
	add_both(ends, half_close_after_the_requests);
	add_both(ends, sessions_are_bounded);
	tcase_add_test(ends, registered_but_not_mapped);
	add_both(ends, closing_with_sessions_of_every_kind);
	TCase *const all[] = {vectors, ranges, pieces, sizes, ends};
	for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
		tcase_set_timeout(all[i], 60);
		suite_add_tcase(suite, all[i]);
	}
	tcase_set_timeout(sizes, 600); /* NEAP_TEST_FULL moves 9 GiB */
	return suite;
}

int main(void)
{
	SRunner *runner = srunner_create(make_suite());
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
