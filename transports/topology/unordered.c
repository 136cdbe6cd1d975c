/* How a hash map of libstdc++ is walked, which is how Mooncake's readers number the devices of a matrix (te spec 2.4). It depends on
 * nothing but the keys and the order in which they came: the hash has a constant seed, and bucket counts grow by a fixed list. The
 * unit test holds it against the real container. */
#include "transports/topology/topology.h"
#include <string.h>

#define NONE UINT16_MAX
#define HEAD (UINT16_MAX - 1)
#define BUCKETS_MAX 541u

_Static_assert(NEAP_TOPOLOGY_ROWS_MAX <= BUCKETS_MAX, "as many keys as the last count of buckets takes");

struct walk {
	uint64_t hashes[NEAP_TOPOLOGY_ROWS_MAX];
	uint16_t next[NEAP_TOPOLOGY_ROWS_MAX];
	uint16_t first;
	uint16_t before[BUCKETS_MAX]; /* of each bucket: who stands before its first key; HEAD: nobody; NONE: it is empty */
	uint32_t buckets;
};

/* --- its hash: MurmurHash64A, seed 0xc70f6907 */

static uint64_t shift_mix(uint64_t value)
{
	return value ^ value >> 47;
}

/* Up to 8 bytes, little-endian. */
static uint64_t load(const unsigned char *bytes, size_t length)
{
	uint64_t value = 0;
	for (size_t i = 0; i < length; i++)
		value |= (uint64_t)bytes[i] << 8 * i;
	return value;
}

static uint64_t hash_text(const char *text)
{
	const uint64_t factor = UINT64_C(0xc6a4a7935bd1e995);
	const unsigned char *bytes = (const unsigned char *)text;
	size_t length = strlen(text), at = 0;
	uint64_t hash = UINT64_C(0xc70f6907) ^ length * factor;
	for (; at + 8 <= length; at += 8)
		hash = (hash ^ shift_mix(load(bytes + at, 8) * factor) * factor) * factor;
	if (at < length)
		hash = (hash ^ load(bytes + at, length - at)) * factor;
	return shift_mix(shift_mix(hash) * factor);
}

/* --- its list: one for all buckets. A key goes to the front of its bucket; the first of a bucket goes to the front of all */

static uint16_t *after(struct walk *walk, uint16_t key)
{
	return key == HEAD ? &walk->first : &walk->next[key];
}

static uint32_t bucket_of(const struct walk *walk, uint16_t key)
{
	return (uint32_t)(walk->hashes[key] % walk->buckets);
}

static void insert(struct walk *walk, uint16_t key)
{
	uint16_t *before = &walk->before[bucket_of(walk, key)];
	if (*before != NONE) {
		walk->next[key] = *after(walk, *before);
		*after(walk, *before) = key;
		return;
	}
	walk->next[key] = walk->first;
	walk->first = key;
	if (walk->next[key] != NONE)
		walk->before[bucket_of(walk, walk->next[key])] = key;
	*before = HEAD;
}

/* With more buckets all keys are inserted anew, in the order of the walk. */
static void grow(struct walk *walk, uint32_t buckets)
{
	uint16_t key = walk->first;
	walk->buckets = buckets;
	walk->first = NONE;
	memset(walk->before, 0xff, sizeof walk->before);
	while (key != NONE) {
		uint16_t next = walk->next[key];
		insert(walk, key);
		key = next;
	}
}

void neap_unordered_walk(const char *const *keys, uint32_t count, uint32_t *order)
{
	static const uint16_t bucket_counts[] = {13, 29, 59, 127, 257, BUCKETS_MAX};
	struct walk walk = {.first = NONE};
	uint32_t grown = 0, at = 0;
	for (uint32_t i = 0; i < count; i++) {
		walk.hashes[i] = hash_text(keys[i]);
		if (i == walk.buckets)
			grow(&walk, bucket_counts[grown++]);
		insert(&walk, (uint16_t)i);
	}
	for (uint16_t key = walk.first; key != NONE; key = walk.next[key])
		order[at++] = key;
}
