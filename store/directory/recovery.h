/* Whether the directory may say that something does not exist. Machine: directory_life. Owner thread only. */
#ifndef NEAP_STORE_RECOVERY_H
#define NEAP_STORE_RECOVERY_H

#include "reactor/core.h"

struct neap_recovery {
	struct neap_machine machine;
	struct neap_timer timer;
	uint64_t recovery_ns, announcements_ns;
	uint32_t owing; /* clients that owe a full announcement */
	uint64_t given_up; /* clients whose announcement was not waited for any longer */
};

/* `empty`: there was no directory before this one, so nothing can be missing. NEAP_ELIMIT, NEAP_ENOMEM. Memory is zeroed by the
 * caller before the first begin. */
int neap_recovery_begin(struct neap_recovery *recovery, struct neap_reactor *reactor, bool empty, uint64_t recovery_ns,
                        uint64_t announcements_ns);
void neap_recovery_end(struct neap_recovery *recovery);

/* A client owes a full announcement; has made it, or is gone. */
void neap_recovery_owes(struct neap_recovery *recovery);
void neap_recovery_paid(struct neap_recovery *recovery);

/* True while a miss says nothing. */
bool neap_recovering(const struct neap_recovery *recovery);

#endif
