/* Watched descriptors: a table of slots with generations over the epoll set. Level-triggered. A simulated reactor asks its net instead of
 * the kernel, in the order of slots. */
#include "reactor/inside.h"
#include "reactor/net.h"
#include <errno.h>

static bool has_none(const struct neap_reactor *reactor)
{
	return reactor->simulated && !reactor->options.net->descriptor_ready;
}

int neap_watches_open(struct neap_reactor *reactor)
{
	reactor->watch_free = NEAP_NO_SLOT;
	if (has_none(reactor))
		return NEAP_OK;
	reactor->watches = neap_allocate(reactor, reactor->options.descriptors_max * sizeof *reactor->watches);
	return reactor->watches ? NEAP_OK : NEAP_ENOMEM;
}

void neap_watches_close(struct neap_reactor *reactor)
{
	neap_release(reactor, reactor->watches, reactor->options.descriptors_max * sizeof *reactor->watches);
}

static uint32_t take_slot(struct neap_reactor *reactor)
{
	uint32_t slot = reactor->watch_free;
	if (slot != NEAP_NO_SLOT)
		reactor->watch_free = reactor->watches[slot].next_free;
	else if (reactor->watch_fresh < reactor->options.descriptors_max)
		slot = reactor->watch_fresh++;
	else
		return NEAP_NO_SLOT;
	/* Never 0: an event of a watch cannot be taken for one of the reactor's own. */
	if (++reactor->watches[slot].generation == 0)
		reactor->watches[slot].generation = 1;
	reactor->watch_used++;
	return slot;
}

static void give_slot(struct neap_reactor *reactor, uint32_t slot)
{
	reactor->watches[slot].watch = NULL;
	reactor->watches[slot].next_free = reactor->watch_free;
	reactor->watch_free = slot;
	reactor->watch_used--;
}

static int control(struct neap_reactor *reactor, const struct neap_watch *watch, int operation, unsigned wanted)
{
	struct epoll_event event = {
		.events = (wanted & NEAP_READABLE ? (uint32_t)(EPOLLIN | EPOLLRDHUP) : 0) | (wanted & NEAP_WRITABLE ? (uint32_t)EPOLLOUT : 0),
		.data.u64 = (uint64_t)watch->generation << 32 | watch->slot,
	};
	if (reactor->simulated)
		return NEAP_OK;
	reactor->stats.system_calls++;
	if (epoll_ctl(reactor->epoll_fd, operation, watch->fd, &event) == 0)
		return NEAP_OK;
	return errno == ENOSPC || errno == ENOMEM ? NEAP_ELIMIT : NEAP_ESOCKET;
}

int neap_watch_start(struct neap_reactor *reactor, struct neap_watch *watch, int fd, unsigned wanted,
                     void (*ready)(struct neap_watch *watch, unsigned ready))
{
	if (has_none(reactor))
		return NEAP_ENOTSUP;
	uint32_t slot = take_slot(reactor);
	if (slot == NEAP_NO_SLOT)
		return NEAP_ELIMIT;
	*watch = (struct neap_watch){.fd = fd, .slot = slot, .generation = reactor->watches[slot].generation, .ready = ready};
	reactor->watches[slot].watch = watch;
	int error = neap_watch_want(reactor, watch, wanted);
	if (error) {
		give_slot(reactor, slot);
		watch->generation = 0;
	}
	return error;
}

/* With nothing wanted the descriptor leaves the set: a hang-up cannot be masked and would wake the host for ever. */
int neap_watch_want(struct neap_reactor *reactor, struct neap_watch *watch, unsigned wanted)
{
	if (watch->generation == 0)
		return NEAP_ESTALE;
	if (wanted == watch->wanted)
		return NEAP_OK;
	int operation = wanted == 0 ? EPOLL_CTL_DEL : watch->wanted == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD;
	int error = control(reactor, watch, operation, wanted);
	if (!error || operation == EPOLL_CTL_DEL)
		watch->wanted = wanted;
	return error;
}

void neap_watch_stop(struct neap_reactor *reactor, struct neap_watch *watch)
{
	if (watch->generation == 0)
		return;
	(void)neap_watch_want(reactor, watch, 0);
	give_slot(reactor, watch->slot);
	watch->generation = 0;
}

void neap_watch_dispatch(struct neap_reactor *reactor, const struct epoll_event *event)
{
	uint32_t slot = (uint32_t)event->data.u64, generation = (uint32_t)(event->data.u64 >> 32);
	struct neap_watch *watch = reactor->watches[slot].watch;
	if (!watch || watch->generation != generation) {
		reactor->stats.stale_events++;
		return;
	}
	unsigned ready = (event->events & EPOLLIN ? NEAP_READABLE : 0u) | (event->events & EPOLLOUT ? NEAP_WRITABLE : 0u);
	ready &= watch->wanted;
	/* A handler of this batch may have changed its mind about this one. */
	if (watch->wanted) {
		ready |= event->events & EPOLLHUP || (event->events & EPOLLRDHUP && watch->wanted & NEAP_READABLE) ? NEAP_HANGUP : 0u;
		ready |= event->events & EPOLLERR ? NEAP_ERROR_READY : 0u;
	}
	if (ready)
		watch->ready(watch, ready);
}

struct neap_watch *neap_watch_simulated(const struct neap_reactor *reactor, uint32_t *slot, unsigned *ready_p)
{
	struct neap_net *net = reactor->options.net;
	while (*slot < reactor->watch_fresh) {
		struct neap_watch *watch = reactor->watches[(*slot)++].watch;
		*ready_p = watch && watch->wanted ? watch->wanted & net->descriptor_ready(net, watch->fd) : 0;
		if (*ready_p)
			return watch;
	}
	return NULL;
}
