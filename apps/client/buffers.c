#include "apps/client/buffers.h"
#include "transports/checksum.h"
#include <string.h>

void client_buffers_open(struct client_buffers *buffers, void *memory, uint64_t bytes, uint8_t *used)
{
	uint32_t chunks = (uint32_t)(bytes / CLIENT_CHUNK_BYTES);
	*buffers = (struct client_buffers){.memory = memory, .used = used, .chunk_count = chunks, .free_count = chunks};
}

static uint32_t chunks_of(uint64_t bytes)
{
	return (uint32_t)((bytes + CLIENT_CHUNK_BYTES - 1) / CLIENT_CHUNK_BYTES);
}

/* The free run that begins at or behind `from`: its length, 0 when there is none. */
static uint32_t next_run(const struct client_buffers *buffers, uint32_t from, uint32_t *start_p)
{
	while (from < buffers->chunk_count && buffers->used[from])
		from++;
	*start_p = from;
	while (from < buffers->chunk_count && !buffers->used[from])
		from++;
	return from - *start_p;
}

/* The smallest run that holds `want`; else the longest there is. */
static uint32_t best_run(const struct client_buffers *buffers, uint32_t want, uint32_t *start_p)
{
	uint32_t best = 0, start = 0;
	for (uint32_t length; (length = next_run(buffers, start, &start)); start += length) {
		bool better = best < want ? length > best : length >= want && length < best;
		if (!better)
			continue;
		best = length;
		*start_p = start;
	}
	return best;
}

bool client_buffers_take(struct client_buffers *buffers, uint64_t bytes, struct client_pieces *pieces)
{
	*pieces = (struct client_pieces){.count = 0};
	if (!bytes || bytes > buffers->free_count * CLIENT_CHUNK_BYTES)
		return false;
	while (pieces->bytes < bytes && pieces->count < NEAP_STORE_SLICES_MAX) {
		uint64_t left = bytes - pieces->bytes;
		uint32_t want = chunks_of(left), start = 0, run = best_run(buffers, want, &start);
		uint32_t taken = run < want ? run : want;
		uint64_t length = taken * CLIENT_CHUNK_BYTES < left ? taken * CLIENT_CHUNK_BYTES : left;
		memset(buffers->used + start, 1, taken);
		buffers->free_count -= taken;
		pieces->slices[pieces->count++] =
			(struct neap_slice_of){.address = buffers->memory + start * CLIENT_CHUNK_BYTES, .length = length};
		pieces->bytes += length;
	}
	if (pieces->bytes == bytes)
		return true;
	client_buffers_give(buffers, pieces);
	return false;
}

void client_buffers_give(struct client_buffers *buffers, struct client_pieces *pieces)
{
	for (uint32_t i = 0; i < pieces->count; i++) {
		uint64_t offset = (uint64_t)((unsigned char *)pieces->slices[i].address - buffers->memory);
		uint32_t chunks = chunks_of(pieces->slices[i].length);
		memset(buffers->used + offset / CLIENT_CHUNK_BYTES, 0, chunks);
		buffers->free_count += chunks;
	}
	pieces->count = 0;
	pieces->bytes = 0;
}

unsigned char *client_pieces_at(const struct client_pieces *pieces, uint64_t offset, uint64_t length, uint64_t *length_p)
{
	for (uint32_t i = 0; i < pieces->count; i++) {
		const struct neap_slice_of *slice = &pieces->slices[i];
		if (offset < slice->length) {
			uint64_t rest = slice->length - offset;
			*length_p = rest < length ? rest : length;
			return (unsigned char *)slice->address + offset;
		}
		offset -= slice->length;
	}
	*length_p = 0;
	return NULL;
}

void client_pieces_write(const struct client_pieces *pieces, uint64_t offset, const void *bytes, uint64_t length)
{
	const unsigned char *from = bytes;
	uint64_t n;
	for (; length; from += n, offset += n, length -= n) {
		unsigned char *to = client_pieces_at(pieces, offset, length, &n);
		if (!to)
			return;
		memcpy(to, from, n);
	}
}

void client_pieces_read(const struct client_pieces *pieces, uint64_t offset, void *bytes, uint64_t length)
{
	unsigned char *to = bytes;
	uint64_t n;
	for (; length; to += n, offset += n, length -= n) {
		const unsigned char *from = client_pieces_at(pieces, offset, length, &n);
		if (!from)
			return;
		memcpy(to, from, n);
	}
}

uint32_t client_pieces_crc(const struct client_pieces *pieces, uint64_t length)
{
	uint32_t crc = 0;
	for (uint32_t i = 0; i < pieces->count && length; i++) {
		uint64_t n = pieces->slices[i].length < length ? pieces->slices[i].length : length;
		crc = neap_crc32c(crc, pieces->slices[i].address, n);
		length -= n;
	}
	return crc;
}
