#include "store/key_hash.h"
#include <string.h>

void neap_key_secret_draw(struct neap_key_secret *secret, const struct neap_reactor *reactor)
{
	secret->words[0] = neap_random_u64(reactor);
	secret->words[1] = neap_random_u64(reactor);
}

static uint64_t rotate(uint64_t value, unsigned by)
{
	return value << by | value >> (64 - by);
}

static void mix(uint64_t v[4])
{
	v[0] += v[1];
	v[2] += v[3];
	v[1] = rotate(v[1], 13) ^ v[0];
	v[3] = rotate(v[3], 16) ^ v[2];
	v[0] = rotate(v[0], 32) + v[3];
	v[2] += v[1];
	v[3] = rotate(v[3], 21) ^ v[0];
	v[1] = rotate(v[1], 17) ^ v[2];
	v[2] = rotate(v[2], 32);
}

uint64_t neap_key_hash(const struct neap_key_secret *secret, const void *bytes, uint32_t length)
{
	const unsigned char *from = bytes;
	uint64_t v[4] = {secret->words[0] ^ UINT64_C(0x736f6d6570736575), secret->words[1] ^ UINT64_C(0x646f72616e646f6d),
	                 secret->words[0] ^ UINT64_C(0x6c7967656e657261), secret->words[1] ^ UINT64_C(0x7465646279746573)};
	uint32_t at = 0;
	for (; length - at >= 8; at += 8) {
		uint64_t word;
		memcpy(&word, from + at, 8);
		v[3] ^= word;
		mix(v);
		v[0] ^= word;
	}
	uint64_t word = 0;
	if (length > at)
		memcpy(&word, from + at, length - at);
	word |= (uint64_t)length << 56;
	v[3] ^= word;
	mix(v);
	v[0] ^= word;
	v[2] ^= 0xff;
	for (int i = 0; i < 3; i++)
		mix(v);
	return v[0] ^ v[1] ^ v[2] ^ v[3];
}
