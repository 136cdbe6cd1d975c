/* The directory in this process: serves a single node and tests as it is, and a master's calls from outside. Everything it knows is
 * soft state in bounded tables; no call does more in a turn than its slice. Owner thread only. */
#ifndef NEAP_STORE_LOCAL_H
#define NEAP_STORE_LOCAL_H

#include "store/directory/key_directory.h"

struct neap_local_directory;

/* Zero means the default. */
struct neap_local_directory_options {
	uint32_t keys_max;        /* 1 Mi */
	uint32_t replicas_max;    /* keys_max and a quarter */
	uint32_t long_keys_cells; /* 60 bytes each, for what is longer than 42 bytes of a key; keys_max */
	uint32_t key_length_max;  /* 1024; at most 4096 */
	uint32_t clients_max, segments_max, segments_per_client_max; /* 1024, 4096, 16 */
	uint32_t calls_max;       /* under way at once; 4096 */
	uint32_t batch_max;       /* items of a call; 2000 */
	uint32_t lists_max;       /* regular expressions at work at once; 8 */
	uint32_t slice;           /* work of a turn, about 100 to 300 ns each; 512 */
	uint32_t max_client_per_key; /* 1; UINT32_MAX: any number */
	uint32_t client_ttl_ms;   /* silent that long: disconnected; 10000 */
	uint32_t crashed_ttl_ms;  /* silent that long: crashed; 3 times client_ttl_ms; not less than client_ttl_ms */
	uint32_t announce_timeout_ms; /* after the recovery, for those that registered with values to announce them; 60000 */
	uint32_t call_timeout_ms; /* of calls without a deadline; 5000 */
	uint64_t epoch;           /* greater than that of each directory before it; 0: the time of day in microseconds */
	bool first;               /* there was none before it: nothing is recovered */
	/* A client counts as crashed: whoever has connections of it can let go of them. From a turn; must not call the directory; may be
	 * NULL. */
	void (*crashed)(void *user, struct neap_key_client client);
	void *user;
};

struct neap_local_directory_stats {
	uint64_t keys, replicas, lost; /* now. lost: replicas whose owners were not first and have not let go yet */
	uint32_t clients, healthy, owing; /* owing: a full announcement */
	uint64_t registered, recovered, suspected, crashed, left, replaced;
	uint64_t calls, refused, timed_out; /* since the start */
	uint64_t given_up; /* announcements that the recovery did not wait for any longer */
	bool recovering, sweeping;
};

/* NEAP_EINVAL (why says what and the allowed range), NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_local_directory_create(struct neap_local_directory **directory_p, struct neap_reactor *reactor,
                                const struct neap_local_directory_options *options, char *why, size_t why_size);

/* Calls under way end with NEAP_ECLOSED in this or the next turn; then the memory goes. */
void neap_local_directory_destroy(struct neap_local_directory *directory);

const struct neap_key_directory *neap_local_directory_face(struct neap_local_directory *directory);
void neap_local_directory_stats(const struct neap_local_directory *directory, struct neap_local_directory_stats *stats_p);

/* All segments of those who are registered, from inside the call. For who shows them: it takes as long as there are many. */
void neap_local_directory_segments(const struct neap_local_directory *directory,
                                   void (*each)(void *user, struct neap_key_client client, const struct neap_key_segment *segment,
                                                enum neap_key_status status),
                                   void *user);

/* NULL: the tables are as they should be. Walks everything: for tests. */
const char *neap_local_directory_check(const struct neap_local_directory *directory);

#endif
