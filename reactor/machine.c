/* Machines on a reactor: the dispatcher's memory, classes with their counters, and state timeouts on the wheel. */
#include "reactor/inside.h"

static struct neap_timer *timer_of(const struct neap_machine_kind *kind, struct neap_machine *machine)
{
	return (struct neap_timer *)(void *)((char *)machine + kind->timer_offset);
}

static void timed_out(struct neap_timer *timer, void *user)
{
	(void)timer;
	/* No machine's events are queued while timers fire, so the state that timed out is the state that is told. */
	neap_step(user, 0, 0);
}

static void arm_timeout(void *host, struct neap_machine *machine, uint8_t timeout_class)
{
	struct neap_reactor *reactor = host;
	const struct neap_reactor_class *class_ = (const struct neap_reactor_class *)(const void *)machine->class_;
	const struct neap_machine_kind *kind = class_->kind;
	if (kind->timer_offset == 0)
		return;
	struct neap_timer *timer = timer_of(kind, machine);
	uint64_t due_ns = timeout_class ? kind->due_ns(machine, timeout_class, neap_now(reactor)) : UINT64_MAX;
	if (due_ns == UINT64_MAX)
		neap_wheel_cancel(&reactor->wheel, timer);
	else
		neap_timer_set(reactor, timer, due_ns, timed_out, machine);
}

static void on_impossible(void *host, struct neap_machine *machine, uint8_t event)
{
	const struct neap_reactor *reactor = host;
	const struct neap_reactor_class *class_ = (const struct neap_reactor_class *)(const void *)machine->class_;
	const struct neap_fsm *fsm = machine->class_->fsm;
	neap_log(reactor, NEAP_LOG_ERROR, "machine", "%s#%u in %s met %s, which cannot happen there: it is closed", fsm->name,
	         machine->id, neap_machine_state_name(machine), fsm->event_names[event]);
	if (class_->kind->broken)
		class_->kind->broken(machine, event);
}

int neap_machines_open(struct neap_reactor *reactor)
{
	uint32_t count = reactor->options.trace_records;
	struct neap_dispatcher *dispatcher = &reactor->dispatcher;
	reactor->posted = neap_allocate(reactor, NEAP_POSTED_COUNT * sizeof *reactor->posted);
	reactor->records = neap_allocate(reactor, 2 * (size_t)count * sizeof *reactor->records);
	if (!reactor->posted || !reactor->records)
		return NEAP_ENOMEM;
	struct neap_dispatch_host host = {.arm_timeout = arm_timeout, .on_impossible = on_impossible, .host = reactor};
	int error = neap_dispatcher_init(dispatcher, reactor->posted, NEAP_POSTED_COUNT, &host);
	if (!error)
		error = neap_trace_ring_init(&dispatcher->control_ring, reactor->records, count);
	if (!error)
		error = neap_trace_ring_init(&dispatcher->data_ring, reactor->records + count, count);
	return error;
}

static size_t class_bytes(const struct neap_fsm *fsm)
{
	return sizeof(struct neap_reactor_class) + (size_t)fsm->state_count * fsm->event_count * sizeof(uint64_t);
}

void neap_machines_close(struct neap_reactor *reactor)
{
	struct neap_dispatcher *dispatcher = &reactor->dispatcher;
	for (uint32_t i = 0; i < dispatcher->class_count; i++)
		neap_release(reactor, dispatcher->classes[i], class_bytes(dispatcher->classes[i]->fsm));
	neap_release(reactor, reactor->records, 2 * (size_t)reactor->options.trace_records * sizeof *reactor->records);
	neap_release(reactor, reactor->posted, NEAP_POSTED_COUNT * sizeof *reactor->posted);
}

int neap_reactor_class_of(struct neap_reactor *reactor, const struct neap_machine_kind *kind, struct neap_reactor_class **class_p)
{
	struct neap_dispatcher *dispatcher = &reactor->dispatcher;
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		if (dispatcher->classes[i]->fsm != kind->fsm)
			continue;
		*class_p = (struct neap_reactor_class *)(void *)dispatcher->classes[i];
		return NEAP_OK;
	}
	if (kind->timer_offset != 0 && !kind->due_ns)
		return NEAP_EINVAL;
	struct neap_reactor_class *class_ = neap_allocate(reactor, class_bytes(kind->fsm));
	if (!class_)
		return NEAP_ENOMEM;
	class_->kind = kind;
	class_->reactor = reactor;
	int error = neap_machine_class_init(&class_->class_, dispatcher, kind->fsm, kind->actions, kind->invariant, class_->hits);
	if (error) {
		neap_release(reactor, class_, class_bytes(kind->fsm));
		return error;
	}
	*class_p = class_;
	return NEAP_OK;
}
