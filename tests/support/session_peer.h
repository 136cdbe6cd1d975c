/* A raw client of the rig's server: over a loopback socket or a memory stream, as the rig is. It knows bytes only. Every wait
 * runs the rig's reactor and fails the Check test after PEER_WAIT_MS. */
#ifndef SUPPORT_SESSION_PEER_H
#define SUPPORT_SESSION_PEER_H

#include "tests/support/session_rig.h"
#include "tests/support/wire_client.h"

#define PEER_WAIT_MS 5000u
#define PEER_OK "\x00\x00\x00\x00\x56\x54\x43\x4d"
#define PEER_REJECTED "\x01\x00\x00\x00\x56\x54\x43\x4d"

struct peer {
	struct session_rig *rig;
	struct memory_pair pair;
	int fd; /* -1: memory */
};

void peer_open(struct peer *peer, struct session_rig *rig);
void peer_send(struct peer *peer, const void *bytes, size_t length);
/* As much as goes without waiting. */
size_t peer_send_some(struct peer *peer, const void *bytes, size_t length);
void peer_take(struct peer *peer, void *bytes, size_t length);
/* Exactly these bytes come next. */
void peer_expect(struct peer *peer, const void *bytes, size_t length);
/* Nothing is to be read now and the connection is open. */
void peer_expect_silence(struct peer *peer);

enum peer_end { PEER_FIN, PEER_RESET };
/* Waits until the server has closed; bytes before that fail the test. */
enum peer_end peer_wait_end(struct peer *peer);
void peer_half_close(struct peer *peer);
void peer_close(struct peer *peer, bool abortive);

/* Says hello as `client`, on `lane`, and expects it to be taken; returns the fenced lane. */
uint64_t peer_hello(struct peer *peer, const char *client, uint64_t lane, uint64_t fence, uint32_t flags);
/* The 40 bytes of the answer whatever they say; code in the return. */
uint32_t peer_hello_code(struct peer *peer, const struct wire_hello *hello);
/* A status word of the Neap level comes next. */
void peer_expect_word(struct peer *peer, uint32_t code);
/* The same `count` times. */
void peer_expect_words(struct peer *peer, uint32_t code, unsigned count);

#endif
