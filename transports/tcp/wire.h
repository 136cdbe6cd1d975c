/* The bytes of the TCP data plane. docs/WIRE.md "TCP data plane" has the tables; this header has the encoders. Pure.
 *
 * Plain (Mooncake) framing: 24-byte header, payload; v2 answers each request with an 8-byte status.
 * Neap level 1: a hello on connect, then frames that carry a vector of up to 256 requests ahead of their payloads. Answers are the
 * same in shape as plain v2: an 8-byte status word per request, in request order, followed by the payload of a successful READ.
 * When both asked for checksums, every payload in either direction is followed by an 8-byte trailer {u32 crc32c, u32 0}. */
#ifndef NEAP_TRANSPORTS_TCP_WIRE_H
#define NEAP_TRANSPORTS_TCP_WIRE_H

#include "transports/checksum.h"
#include <neap/engine.h>
#include <stdint.h>
#include <string.h>

/* --- plain ------------------------------------------------------------------------------------------------------------------- */

#define NEAP_PLAIN_HEADER_BYTES 24u
#define NEAP_STATUS_BYTES 8u
#define NEAP_PLAIN_ACKNOWLEDGED 0x80u      /* opcode bit: v2 */
#define NEAP_PLAIN_MAGIC 0x4D435456u       /* "MCTV", high half of a status */
enum { NEAP_PLAIN_OK = 0, NEAP_PLAIN_REJECTED = 1 };

/* --- Neap level -------------------------------------------------------------------------------------------------------------- */

#define NEAP_HELLO_OPCODE 0x81u            /* in a plain header with size 0 and addr = "NEAP" | level << 32 */
#define NEAP_WIRE_MAGIC 0x5041454Eu        /* bytes N E A P */
#define NEAP_WIRE_LEVEL 1u
#define NEAP_HELLO_BYTES 96u               /* plain header 24, body 72 */
#define NEAP_HELLO_REPLY_BYTES 40u
#define NEAP_FRAME_MAGIC 0x5152504Eu       /* bytes N P R Q */
#define NEAP_FRAME_HEAD_BYTES 16u
#define NEAP_ENTRY_BYTES 24u
#define NEAP_TOKEN_BYTES 32u
#define NEAP_TRAILER_BYTES 8u
#define NEAP_FRAME_ENTRIES_MAX 256u
#define NEAP_FRAME_BYTES_MAX (NEAP_FRAME_HEAD_BYTES + NEAP_FRAME_ENTRIES_MAX * (NEAP_ENTRY_BYTES + NEAP_TOKEN_BYTES))
#define NEAP_WORD_MAGIC 0x504Eu            /* bytes N P in a status word */

enum neap_hello_code {
	NEAP_HELLO_OK = 0,
	NEAP_HELLO_OTHER_INSTANCE = 2, /* the expected instance is not this process: read the descriptor again */
	NEAP_HELLO_LEVEL = 3,          /* no common level */
	NEAP_HELLO_BUSY = 4,           /* sessions_max reached */
	NEAP_HELLO_MALFORMED = 5,
};
enum { NEAP_HELLO_CHECKSUM = 1 };

enum neap_word_code { /* of a request at the Neap level */
	NEAP_WORD_OK = 0,
	NEAP_WORD_REJECTED = 1,  /* not inside one open region */
	NEAP_WORD_GRANT = 2,     /* the grant does not allow it */
	NEAP_WORD_CHECKSUM = 3,  /* the payload arrived damaged; its bytes may be stored */
	NEAP_WORD_MALFORMED = 4, /* length 0, unknown opcode */
	NEAP_WORD_REVOKED = 5,   /* the memory or grant ended while its payload arrived; its front may be stored */
};

struct neap_plain_header {
	uint64_t size, address;
	uint8_t opcode;
};

struct neap_hello {
	uint32_t level;             /* client's highest */
	uint32_t flags;
	uint8_t client[16];         /* instance ids */
	uint8_t expected_server[16];
	uint64_t lane;              /* unique in the client's instance */
	uint64_t fence_lane;        /* an older lane of the same client that must be dead before the reply; 0: none */
	uint32_t core;
};

struct neap_hello_reply {
	uint32_t code;              /* enum neap_hello_code */
	uint8_t server[16];
	uint32_t level, flags;      /* agreed */
	uint64_t fenced_lane;       /* = fence_lane when that lane is dead for good */
};

struct neap_frame_head {
	uint32_t count, grant_count; /* entries 1..256; tokens 0..256 */
};

struct neap_entry {
	uint64_t address, length;
	uint8_t opcode;
	uint16_t grant; /* index of its token + 1; 0: none */
};

static inline void neap_put16(unsigned char *p, uint16_t v) { memcpy(p, &v, 2); }
static inline void neap_put32(unsigned char *p, uint32_t v) { memcpy(p, &v, 4); }
static inline void neap_put64(unsigned char *p, uint64_t v) { memcpy(p, &v, 8); }
static inline uint16_t neap_get16(const unsigned char *p) { uint16_t v; memcpy(&v, p, 2); return v; }
static inline uint32_t neap_get32(const unsigned char *p) { uint32_t v; memcpy(&v, p, 4); return v; }
static inline uint64_t neap_get64(const unsigned char *p) { uint64_t v; memcpy(&v, p, 8); return v; }
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "The wire is little-endian and so are the hosts Neap supports."
#endif

static inline void neap_plain_header_put(unsigned char p[NEAP_PLAIN_HEADER_BYTES], uint64_t size, uint64_t address, uint8_t opcode)
{
	neap_put64(p, size);
	neap_put64(p + 8, address);
	neap_put64(p + 16, opcode); /* seven zero bytes of padding */
}
static inline struct neap_plain_header neap_plain_header_get(const unsigned char p[NEAP_PLAIN_HEADER_BYTES])
{
	return (struct neap_plain_header){.size = neap_get64(p), .address = neap_get64(p + 8), .opcode = p[16]};
}
static inline uint64_t neap_plain_status(uint32_t code)
{
	return (uint64_t)NEAP_PLAIN_MAGIC << 32 | code;
}
static inline uint64_t neap_word_status(uint32_t code)
{
	return (uint64_t)NEAP_WORD_MAGIC << 16 | code;
}
static inline bool neap_is_hello(const struct neap_plain_header *header)
{
	return header->size == 0 && header->opcode == NEAP_HELLO_OPCODE && (uint32_t)header->address == NEAP_WIRE_MAGIC;
}

/* wire.c */
void neap_hello_put(unsigned char p[NEAP_HELLO_BYTES], const struct neap_hello *hello);
/* From the 96 bytes. NEAP_EPROTO when a reserved field is not as level 1 says, or the lane id is 0. */
int neap_hello_get(const unsigned char p[NEAP_HELLO_BYTES], struct neap_hello *hello_p);
void neap_hello_reply_put(unsigned char p[NEAP_HELLO_REPLY_BYTES], const struct neap_hello_reply *reply);
/* NEAP_ENOTSUP: a plain server's status frame begins here; NEAP_EPROTO: neither. Needs only the first 8 bytes to tell. */
int neap_hello_reply_get(const unsigned char p[NEAP_HELLO_REPLY_BYTES], struct neap_hello_reply *reply_p);
void neap_frame_head_put(unsigned char p[NEAP_FRAME_HEAD_BYTES], const struct neap_frame_head *head);
int neap_frame_head_get(const unsigned char p[NEAP_FRAME_HEAD_BYTES], struct neap_frame_head *head_p);
void neap_entry_put(unsigned char p[NEAP_ENTRY_BYTES], const struct neap_entry *entry);
void neap_entry_get(const unsigned char p[NEAP_ENTRY_BYTES], struct neap_entry *entry_p);

#endif
