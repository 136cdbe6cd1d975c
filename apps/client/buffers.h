/* Memory that values pass through between local connections and the store: one registered range, given out in chunks. Pure. */
#ifndef APPS_CLIENT_BUFFERS_H
#define APPS_CLIENT_BUFFERS_H

#include <neap/store.h>

#define CLIENT_CHUNK_BYTES (UINT64_C(64) << 10)

struct client_buffers {
	unsigned char *memory;
	uint8_t *used; /* by chunk; chunk_count of them */
	uint32_t chunk_count, free_count;
};

struct client_pieces { /* of one value, in order; together as long as it is */
	struct neap_slice_of slices[NEAP_STORE_SLICES_MAX];
	uint32_t count;
	uint64_t bytes;
};

/* `used`: bytes / CLIENT_CHUNK_BYTES of them, zeroed. */
void client_buffers_open(struct client_buffers *buffers, void *memory, uint64_t bytes, uint8_t *used);
/* False: not so much is free, or in too many pieces. One piece when there is one. */
bool client_buffers_take(struct client_buffers *buffers, uint64_t bytes, struct client_pieces *pieces);
void client_buffers_give(struct client_buffers *buffers, struct client_pieces *pieces);

/* The longest piece of memory from `offset` on, at most `length`; *length_p says how long. */
unsigned char *client_pieces_at(const struct client_pieces *pieces, uint64_t offset, uint64_t length, uint64_t *length_p);
void client_pieces_write(const struct client_pieces *pieces, uint64_t offset, const void *bytes, uint64_t length);
void client_pieces_read(const struct client_pieces *pieces, uint64_t offset, void *bytes, uint64_t length);
uint32_t client_pieces_crc(const struct client_pieces *pieces, uint64_t length);

#endif
