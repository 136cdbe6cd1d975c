/* A trace dump from a stranger. The length and the hash in front are made right, so that what lies behind them is reached. */
#include <neap/trace.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int drop(void *user, const void *bytes, size_t length)
{
	*(size_t *)user += length + (length ? *(const uint8_t *)bytes : 0);
	return NEAP_OK;
}

static void put(uint8_t *at, uint64_t value)
{
	for (int i = 0; i < 8; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	size_t length = size + 24, sum = 0;
	uint64_t hash = 0xcbf29ce484222325u;
	uint8_t *dump = malloc(length);
	if (!dump)
		return 0;
	for (size_t i = 0; i < size; i++)
		hash = (hash ^ data[i]) * 0x100000001b3u;
	memcpy(dump, "NEAPTRC1", 8);
	put(dump + 8, length);
	put(dump + 16, hash);
	if (size)
		memcpy(dump + 24, data, size);
	(void)neap_trace_decode(dump, length, 0, drop, &sum);
	(void)neap_trace_decode(dump, length, 1, drop, &sum);
	free(dump);
	return 0;
}
