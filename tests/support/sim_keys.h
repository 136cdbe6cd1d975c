/* What a simulated server has stored: values under keys, some of which end by themselves. */
#ifndef SUPPORT_SIM_KEYS_H
#define SUPPORT_SIM_KEYS_H

#include "tests/sim/sim.h"

struct sim_key {
	struct sim_key *next;
	char *key, *value; /* the value with a NUL behind it */
	size_t length;
	uint64_t stamp;   /* of its last change */
	uint64_t ends_ns; /* 0: never */
};

struct sim_keys {
	struct sim *sim;
	struct sim_key *first;
	uint64_t stamp, ended; /* how many have ended by themselves */
	/* Each change, at its moment; value NULL: it is gone. May be NULL */
	void (*changed)(void *user, const char *key, const char *value, size_t length);
	void *user;
	/* It has ended by itself. May be NULL */
	void (*expired)(struct sim_keys *keys, const char *key);
};

const struct sim_key *sim_keys_find(const struct sim_keys *keys, const char *key);
void sim_keys_set(struct sim_keys *keys, const char *key, const char *value, size_t length, uint64_t ends_ns);
/* False: there is none. */
bool sim_keys_end_at(struct sim_keys *keys, const char *key, uint64_t ends_ns);
bool sim_keys_remove(struct sim_keys *keys, const char *key);
void sim_keys_wipe(struct sim_keys *keys);
/* Without a word to anybody. */
void sim_keys_release(struct sim_keys *keys);

#endif
