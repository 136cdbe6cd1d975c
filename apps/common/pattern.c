#include "apps/common/pattern.h"
#include <string.h>

#define SECTOR 512u

struct sector {
	unsigned char bytes[SECTOR];
};

static uint64_t mix(uint64_t x)
{
	x += 0x9E3779B97F4A7C15u;
	x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
	x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
	return x ^ (x >> 31);
}

static void sector_of_seed(struct sector *sector, uint64_t seed)
{
	for (uint64_t i = 0; i < SECTOR / 8; i++) {
		uint64_t word = mix(seed * 64 + i);
		memcpy(sector->bytes + i * 8, &word, 8);
	}
}

static void sector_number(struct sector *sector, uint64_t number, uint64_t seed)
{
	uint64_t word = mix(number ^ mix(seed));
	memcpy(sector->bytes, &word, 8);
}

static uint64_t piece(uint64_t offset, uint64_t length)
{
	uint64_t rest = SECTOR - offset % SECTOR;
	return rest < length ? rest : length;
}

void app_pattern_fill(void *memory, uint64_t offset, uint64_t length, uint64_t seed)
{
	struct sector sector;
	unsigned char *to = memory;
	sector_of_seed(&sector, seed);
	while (length) {
		uint64_t n = piece(offset, length);
		sector_number(&sector, offset / SECTOR, seed);
		memcpy(to, sector.bytes + offset % SECTOR, n);
		to += n;
		offset += n;
		length -= n;
	}
}

uint64_t app_pattern_check(const void *memory, uint64_t offset, uint64_t length, uint64_t seed)
{
	struct sector sector;
	const unsigned char *from = memory;
	sector_of_seed(&sector, seed);
	while (length) {
		uint64_t n = piece(offset, length);
		sector_number(&sector, offset / SECTOR, seed);
		const unsigned char *expected = sector.bytes + offset % SECTOR;
		if (memcmp(from, expected, n)) {
			while (*from == *expected)
				from++, expected++;
			return (uint64_t)(from - (const unsigned char *)memory);
		}
		from += n;
		offset += n;
		length -= n;
	}
	return UINT64_MAX;
}

/* memory[0] is zero and memory equals itself moved by one: memcmp is faster than any loop here. */
uint64_t app_zero_check(const void *memory, uint64_t length)
{
	const unsigned char *bytes = memory;
	if (!length || (!bytes[0] && !memcmp(bytes, bytes + 1, length - 1)))
		return UINT64_MAX;
	uint64_t i = 0;
	while (!bytes[i])
		i++;
	return i;
}
