#include "tests/support/lane_fuzz.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct conversation {
	struct session_rig *rig;
	struct memory_pair pair;
	uint32_t chance;
	bool region_gone;
	size_t appetite; /* bytes of answers still to be taken: keeps one input from costing a second */
};

static uint32_t next(struct conversation *talk)
{
	talk->chance ^= talk->chance << 13;
	talk->chance ^= talk->chance >> 17;
	talk->chance ^= talk->chance << 5;
	return talk->chance;
}

static void take_answers(struct conversation *talk, size_t most)
{
	static unsigned char bytes[64 * 1024];
	if (most > talk->appetite)
		most = talk->appetite;
	while (most > 0) {
		ssize_t n = memory_end_read(&talk->pair.ends[1], bytes, most < sizeof bytes ? most : sizeof bytes);
		if (n <= 0)
			return;
		most -= (size_t)n;
		talk->appetite -= (size_t)n;
	}
}

static void take_region(struct conversation *talk)
{
	struct session_rig *rig = talk->rig;
	if (talk->region_gone || neap_registry_unregister(rig->registry, rig->ids[RIG_OPEN_B], NULL, NULL) != NEAP_OK)
		return;
	talk->region_gone = true;
	session_rig_pass(rig, 20);
	if (!neap_registry_idle(rig->registry))
		abort();
	memset(rig->region[RIG_OPEN_B], SESSION_RIG_GUARD, rig->region_bytes);
}

static void give_region_back(struct conversation *talk)
{
	struct session_rig *rig = talk->rig;
	char why[128] = "";
	if (!talk->region_gone)
		return;
	for (size_t i = 0; i < rig->region_bytes; i++)
		if (rig->region[RIG_OPEN_B][i] != SESSION_RIG_GUARD) {
			fprintf(stderr, "byte %zu was written after its memory was taken back\n", i);
			abort();
		}
	struct neap_memory memory = {.address = rig->region[RIG_OPEN_B], .length = rig->region_bytes, .location = "*"};
	if (neap_registry_register(rig->registry, &memory, 1, &rig->ids[RIG_OPEN_B], why, sizeof why) != NEAP_OK) {
		fprintf(stderr, "cannot register again: %s\n", why);
		abort();
	}
}

/* Between two pieces: mostly nothing. */
static void meanwhile(struct conversation *talk, unsigned mood)
{
	uint32_t what = next(talk) % 64;
	if (mood & 1)
		take_answers(talk, SIZE_MAX);
	if (what == 0)
		session_rig_pass(talk->rig, next(talk) % 400);
	else if (what == 1 && (mood & 2))
		take_region(talk);
	else if (what < 12)
		take_answers(talk, next(talk) % 5000);
	session_rig_settle(talk->rig);
}

static void say(struct conversation *talk, const uint8_t *data, size_t size, unsigned mood)
{
	static const uint16_t longest[8] = {1, 3, 24, 40, 100, 500, 5000, 65535};
	size_t at = 0;
	unsigned stuck = 0;
	while (at < size && stuck < 4) {
		size_t piece = 1 + next(talk) % longest[mood >> 2 & 7];
		ssize_t n = memory_end_write(&talk->pair.ends[1], data + at, piece < size - at ? piece : size - at);
		if (n < 0 && n != -EAGAIN)
			return;
		at += n > 0 ? (size_t)n : 0;
		stuck = n > 0 ? 0 : stuck + 1;
		if (stuck > 1)
			take_answers(talk, SIZE_MAX);
		meanwhile(talk, mood);
	}
}

static void finish(struct conversation *talk, unsigned mood)
{
	struct memory_end *ours = &talk->pair.ends[1];
	if (mood & 0x20)
		ours->base.ops->shutdown_write(&ours->base);
	session_rig_settle(talk->rig);
	if (mood & 0x40)
		for (uint64_t before = UINT64_MAX; ours->read_bytes != before; session_rig_settle(talk->rig)) {
			before = ours->read_bytes;
			take_answers(talk, SIZE_MAX);
		}
	neap_stream_close(&ours->base, mood & 0x80);
	session_rig_pass(talk->rig, 1000); /* no deadline is longer */
	if (neap_tcp_server_sessions(talk->rig->server) != 0 || !talk->pair.ends[0].closed) {
		fprintf(stderr, "a session outlives its connection\n");
		abort();
	}
	give_region_back(talk);
	memory_pair_release(&talk->pair);
	session_rig_check_guards(talk->rig);
}

void lane_fuzz_run(struct session_rig *rig, const uint8_t *data, size_t size, const void *prefix, size_t prefix_length,
                   size_t prefix_answer)
{
	static const uint32_t calls[4] = {UINT32_MAX, 15, 300, 3000}, queues[4] = {300, 2000, 16 * 1024, 128 * 1024};
	if (size < LANE_FUZZ_CONTROL)
		return;
	struct conversation talk = {.rig = rig, .chance = 1u + data[1], .appetite = 300 * 1000};
	unsigned mood = data[0];
	rig->options.checksum = data[2] & 1;
	rig->bytes_budget = data[2] & 2 ? 1u + 20u * data[3] : 0;
	memory_pair_open(&talk.pair, rig->reactor, queues[data[2] >> 2 & 3]);
	(void)neap_tcp_server_serve(rig->server, &talk.pair.ends[0].base);
	for (size_t at = 0; at < prefix_length; session_rig_settle(rig)) {
		ssize_t n = memory_end_write(&talk.pair.ends[1], (const char *)prefix + at, prefix_length - at);
		at += n > 0 ? (size_t)n : 0;
	}
	take_answers(&talk, prefix_answer);
	talk.pair.ends[0].call_max = calls[data[2] >> 4 & 3];
	say(&talk, data + LANE_FUZZ_CONTROL, size - LANE_FUZZ_CONTROL, mood);
	finish(&talk, mood);
}
