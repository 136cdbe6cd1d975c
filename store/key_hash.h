/* Hashes of keys for the tables of one process: with a secret, so that nobody can choose keys that collide. */
#ifndef NEAP_STORE_KEY_HASH_H
#define NEAP_STORE_KEY_HASH_H

#include "reactor/core.h"

struct neap_key_secret {
	uint64_t words[2];
};

void neap_key_secret_draw(struct neap_key_secret *secret, const struct neap_reactor *reactor);

/* SipHash-1-3 (Aumasson and Bernstein, 2012). Differs between processes and between secrets. Any thread. */
uint64_t neap_key_hash(const struct neap_key_secret *secret, const void *bytes, uint32_t length);

#endif
