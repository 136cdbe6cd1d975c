/* "Has this value become known to the directory?" Whoever has to tell a value's writer that it is there asks it of whoever announces
 * values, who answers at once or later. */
#ifndef NEAP_STORE_SETTLE_H
#define NEAP_STORE_SETTLE_H

#include <neap/store.h>

#define NEAP_SETTLE_ROOM 192u
#define NEAP_SETTLING 1

struct neap_settle {
	struct neap_key key; /* stays until the end */
	uint32_t tier;       /* index */
	uint64_t generation;
	uint64_t deadline_ns; /* absolute: by then there is an answer */
	/* Once, from a turn, after an answer of NEAP_SETTLING. OK; NEAP_ETIMEDOUT (not yet); REPLICA_NUM_EXCEEDED (another owner had the key
	 * first, with a value that is not known to differ), OBJECT_ALREADY_EXISTS (with another one), others: refused, the value goes;
	 * OBJECT_NOT_FOUND (it is gone again); NEAP_ECLOSED. */
	void (*settled)(struct neap_settle *settle, int result);
	union {
		uint64_t align;
		unsigned char bytes[NEAP_SETTLE_ROOM];
	} room; /* the answerer's, zeroed */
};

/* NEAP_SETTLING, or the result at once. */
typedef int neap_settle_func(void *user, struct neap_settle *settle);
/* Whether it is settled already: until then nobody reads it. It may be a second version of its key, and go again. */
typedef bool neap_settled_func(void *user, const struct neap_key *key, uint32_t tier, uint64_t generation);

#endif
