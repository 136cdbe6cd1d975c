/* Timers on a reactor's wheel, for applications and for the rooms above. */
#include "reactor/inside.h"

void neap_timer_set(struct neap_reactor *reactor, struct neap_timer *timer, uint64_t due_ns,
                    void (*fire)(struct neap_timer *timer, void *user), void *user)
{
	timer->fire = fire;
	timer->user = user;
	neap_wheel_start(&reactor->wheel, timer, due_ns);
	if (!reactor->in_turn && due_ns < reactor->armed_deadline_ns)
		neap_reactor_touch(reactor);
}

int neap_timer_start(struct neap_reactor *reactor, struct neap_timer *timer, uint64_t due_ns,
                     void (*fire)(struct neap_timer *timer, void *user), void *user)
{
	int error = neap_reactor_check_inline(reactor);
	if (error)
		return error;
	neap_timer_set(reactor, timer, due_ns, fire, user);
	return NEAP_OK;
}

void neap_timer_cancel(struct neap_reactor *reactor, struct neap_timer *timer)
{
	if (neap_reactor_check_inline(reactor) == NEAP_OK)
		neap_wheel_cancel(&reactor->wheel, timer);
}
