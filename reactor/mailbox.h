/* A bounded ring from many threads to one: messages to a reactor. No locks: a producer claims a cell by compare-and-swap and publishes
 * it by its sequence number. */
#ifndef NEAP_REACTOR_MAILBOX_H
#define NEAP_REACTOR_MAILBOX_H

#include <neap/reactor.h>
#include <stdatomic.h>

struct neap_letter {
	_Atomic uint32_t sequence; /* position: free for it; position + 1: holds its message */
	neap_message_func *run;
	void *argument;
};

struct neap_mailbox {
	struct neap_letter *letters; /* mask + 1 */
	uint32_t mask;
	_Alignas(64) _Atomic uint32_t tail; /* next position to claim; producers */
	_Alignas(64) uint32_t head;         /* next position to take; the owner alone */
};

/* `letters` is the caller's, a power-of-two count of at least 2. */
void neap_mailbox_init(struct neap_mailbox *mailbox, struct neap_letter *letters, uint32_t count);

/* Any thread. NEAP_EAGAIN when full. */
int neap_mailbox_put(struct neap_mailbox *mailbox, neap_message_func *run, void *argument);

/* Owner only. False: nothing published. A message that is claimed but not yet published holds back those behind it. */
bool neap_mailbox_take(struct neap_mailbox *mailbox, neap_message_func **run_p, void **argument_p);
bool neap_mailbox_empty(const struct neap_mailbox *mailbox);

#endif
