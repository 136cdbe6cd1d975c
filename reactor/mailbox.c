#include "reactor/mailbox.h"

void neap_mailbox_init(struct neap_mailbox *mailbox, struct neap_letter *letters, uint32_t count)
{
	mailbox->letters = letters;
	mailbox->mask = count - 1;
	mailbox->head = 0;
	atomic_init(&mailbox->tail, 0);
	for (uint32_t i = 0; i < count; i++)
		atomic_init(&letters[i].sequence, i);
}

int neap_mailbox_put(struct neap_mailbox *mailbox, neap_message_func *run, void *argument)
{
	uint32_t at = atomic_load_explicit(&mailbox->tail, memory_order_relaxed);
	for (;;) {
		struct neap_letter *letter = &mailbox->letters[at & mailbox->mask];
		uint32_t sequence = atomic_load_explicit(&letter->sequence, memory_order_acquire);
		int32_t ahead = (int32_t)(sequence - at);
		if (ahead < 0)
			return NEAP_EAGAIN;
		if (ahead > 0) {
			at = atomic_load_explicit(&mailbox->tail, memory_order_relaxed);
		} else if (atomic_compare_exchange_weak_explicit(&mailbox->tail, &at, at + 1, memory_order_relaxed, memory_order_relaxed)) {
			letter->run = run;
			letter->argument = argument;
			atomic_store_explicit(&letter->sequence, at + 1, memory_order_release);
			return NEAP_OK;
		}
	}
}

bool neap_mailbox_empty(const struct neap_mailbox *mailbox)
{
	const struct neap_letter *letter = &mailbox->letters[mailbox->head & mailbox->mask];
	return atomic_load_explicit(&letter->sequence, memory_order_acquire) != mailbox->head + 1;
}

bool neap_mailbox_take(struct neap_mailbox *mailbox, neap_message_func **run_p, void **argument_p)
{
	if (neap_mailbox_empty(mailbox))
		return false;
	struct neap_letter *letter = &mailbox->letters[mailbox->head & mailbox->mask];
	*run_p = letter->run;
	*argument_p = letter->argument;
	atomic_store_explicit(&letter->sequence, mailbox->head + mailbox->mask + 1, memory_order_release);
	mailbox->head++;
	return true;
}
