/* An encoder of the TCP data plane that shares nothing with the library's: written from the tables of docs/WIRE.md, byte by
 * byte. */
#ifndef SUPPORT_WIRE_CLIENT_H
#define SUPPORT_WIRE_CLIENT_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct wire_bytes {
	unsigned char *at;
	size_t length, size;
};

static inline void wire_put(struct wire_bytes *w, const void *bytes, size_t length)
{
	if (length > w->size - w->length)
		__builtin_trap();
	memcpy(w->at + w->length, bytes, length);
	w->length += length;
}

static inline void wire_number(struct wire_bytes *w, uint64_t value, unsigned bytes)
{
	for (unsigned i = 0; i < bytes; i++) {
		unsigned char byte = (unsigned char)(i < 8 ? value >> (8 * i) : 0);
		wire_put(w, &byte, 1);
	}
}

/* u64 size, u64 address, u8 opcode, 7 bytes of anything: some senders leave memory there. */
static inline void wire_plain(struct wire_bytes *w, uint64_t size, uint64_t address, unsigned opcode)
{
	wire_number(w, size, 8);
	wire_number(w, address, 8);
	wire_number(w, opcode, 1);
	wire_put(w, "\xaa\xaa\xaa\xaa\xaa\xaa\xaa", 7);
}

struct wire_hello {
	const char *client, *server; /* 16 bytes each */
	uint64_t lane, fence;
	uint32_t level, core, flags;
};

static inline void wire_hello(struct wire_bytes *w, const struct wire_hello *hello)
{
	wire_number(w, 0, 8);
	wire_put(w, "NEAP", 4);
	wire_number(w, hello->level, 4);
	wire_number(w, 0x81, 8);
	wire_put(w, hello->client, 16);
	wire_put(w, hello->server, 16);
	wire_number(w, hello->lane, 8);
	wire_number(w, hello->fence, 8);
	wire_number(w, hello->core, 4);
	wire_number(w, hello->flags, 4);
	wire_number(w, 0, 16);
}

static inline void wire_frame(struct wire_bytes *w, uint32_t count, uint32_t grants)
{
	wire_put(w, "NPRQ", 4);
	wire_number(w, count, 4);
	wire_number(w, grants, 4);
	wire_number(w, 0, 4);
}

static inline void wire_entry(struct wire_bytes *w, unsigned opcode, uint64_t address, uint64_t length, unsigned grant)
{
	wire_number(w, address, 8);
	wire_number(w, length, 8);
	wire_number(w, opcode, 4);
	wire_number(w, grant, 4);
}

/* Bitwise, from the polynomial: no table, no instruction, nothing shared. */
static inline uint32_t wire_crc32c(const unsigned char *bytes, size_t length)
{
	uint32_t crc = 0xFFFFFFFFu;
	for (size_t i = 0; i < length; i++) {
		crc ^= bytes[i];
		for (int bit = 0; bit < 8; bit++)
			crc = (crc >> 1) ^ (0x82F63B78u & (0u - (crc & 1u)));
	}
	return ~crc;
}

static inline void wire_trailer(struct wire_bytes *w, const unsigned char *payload, size_t length)
{
	wire_number(w, wire_crc32c(payload, length), 4);
	wire_number(w, 0, 4);
}

#endif
