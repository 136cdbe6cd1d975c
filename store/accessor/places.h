/* Where values are and where they may go: what the accessor wants to know of the directory. Whoever knows implements it. */
#ifndef NEAP_STORE_ACCESSOR_PLACES_H
#define NEAP_STORE_ACCESSOR_PLACES_H

#include "reactor/address.h"
#include "store/owner/owner.h"
#include "store/settle.h"

#define NEAP_ROUTES_MAX 4u /* owners tried for one operation */

struct neap_route {
	struct neap_place place;
	uint64_t size, generation; /* of a replica; 0: not known */
	bool has_tier;             /* of a candidate */
	uint32_t tier;
};

/* `error`: 0 with at least one route, the best first; else a number of neap/store_error.h and `why`. Routes beyond NEAP_ROUTES_MAX are not
 * looked at. Valid during the call. A question for candidates may be answered OBJECT_ALREADY_EXISTS with the routes of the replicas that
 * there are. */
typedef void neap_placed_func(void *user, uint64_t question, int error, const struct neap_route *routes, uint32_t count, const char *why);

/* Both questions are answered once, from inside the call or later, with `user` and `question` as given. Nobody has to answer by a
 * certain time, and an answer that nobody waits for any more is harmless, until neap_accessor_close has called `closed`. */
struct neap_places {
	void (*write_candidates)(void *directory, const struct neap_key *key, uint64_t size, neap_placed_func *answered, void *user,
	                         uint64_t question);
	void (*replicas)(void *directory, const struct neap_key *key, neap_placed_func *answered, void *user, uint64_t question);
	/* The owner itself has shown that this route is wrong: it has no such value, another size, or is another process by now. */
	void (*report_stale)(void *directory, const struct neap_key *key, const struct neap_route *route);
	/* For an accessor with an owner in its own process. Whether a value is to stay here, if it can, without a question to the directory. */
	bool (*stays_here)(void *directory, const struct neap_key *key, uint64_t size);
	neap_settle_func *settle; /* of a value that was put here. NULL: nobody has to know */
	neap_settled_func *settled; /* a value that is here is to be read. NULL: every one is */
	void (*forget)(void *directory, struct neap_settle *settle); /* no answer is wanted any more */
	void *directory;
};

#endif
