/* How the local directory does each call; local.c has the queues. */
#ifndef NEAP_STORE_LOCAL_CALLS_H
#define NEAP_STORE_LOCAL_CALLS_H

#include "store/directory/candidates.h"
#include "store/directory/local.h"
#include "store/directory/match.h"

/* What a call may still do this turn: items, clients looked at, steps of a matcher by 64. */
#define NEAP_LOCAL_MORE 1 /* not through: go on next turn */
#define NEAP_LOCAL_SLOW 2 /* go on beside the others, not before them */

struct neap_call_queue {
	struct neap_key_call *first, *last;
};

struct neap_local_directory {
	struct neap_reactor *reactor;
	struct neap_key_directory face;
	struct neap_local_directory_options options; /* filled in */
	struct neap_recovery recovery;
	struct neap_clients clients;
	struct neap_routes routes;
	struct neap_pool matches; /* one for each regular expression at work */
	struct neap_candidate_pick *picks;
	/* urgent: what keeps clients alive never waits behind data. slow: walks over tables, in turn with one another. */
	struct neap_call_queue urgent, normal, slow;
	struct neap_ready ready;
	struct neap_reap reap;
	struct neap_dependent dependent;
	uint32_t calls;
	uint64_t calls_begun, calls_refused, calls_timed_out;
	bool closing;
	char key[4096]; /* of the moment */
};

/* 0 or an error: it has ended. Or NEAP_LOCAL_MORE, NEAP_LOCAL_SLOW. `*work_p` is lowered by what it cost. */
int neap_local_run(struct neap_local_directory *local, struct neap_key_call *call, uint32_t *work_p);

/* What the call holds of the directory's, when it ends in any way. */
void neap_local_let_go(struct neap_local_directory *local, struct neap_key_call *call);

#endif
