#include "transports/rdma/queue.h"
#include "transports/rdma/queue_fsm.h"
#include <string.h>

#define POLL_AT_ONCE 64u

static struct neap_rdma_queue *queue_of(const struct neap_machine *machine)
{
	return (struct neap_rdma_queue *)(uintptr_t)((const char *)machine - offsetof(struct neap_rdma_queue, machine));
}

/* --- completions */

static uint32_t poll(struct neap_poller *poller, uint32_t max)
{
	struct neap_rdma_queue *queue = (struct neap_rdma_queue *)(void *)((char *)poller - offsetof(struct neap_rdma_queue, poller));
	struct neap_verbs_completion completions[POLL_AT_ONCE];
	uint32_t taken = 0;
	if (queue->users == 0) /* nobody has ever posted to it, or nobody is left who did */
		return 0;
	while (taken < max) {
		uint32_t wanted = max - taken < POLL_AT_ONCE ? max - taken : POLL_AT_ONCE;
		int count = queue->verbs->ops->poll_cq(queue->device->handle.cq, completions, wanted);
		if (count <= 0) /* an error is the device's: its event says so */
			break;
		taken += (uint32_t)count;
		queue->listener.completed(queue->listener.user, queue, completions, (uint32_t)count);
		if ((uint32_t)count < wanted)
			break;
	}
	return taken;
}

static void arm(struct neap_poller *poller)
{
	struct neap_rdma_queue *queue = (struct neap_rdma_queue *)(void *)((char *)poller - offsetof(struct neap_rdma_queue, poller));
	if (queue->users > 0)
		(void)queue->verbs->ops->arm_cq(queue->device->handle.cq);
}

/* The device woke us; the completions themselves are polled in every turn. */
static void woken(struct neap_watch *watch, unsigned ready)
{
	struct neap_rdma_queue *queue = (struct neap_rdma_queue *)(void *)((char *)watch - offsetof(struct neap_rdma_queue, watch));
	(void)ready;
	(void)queue->verbs->ops->take_wakeups(queue->device->handle.channel);
}

/* --- on and off its device */

/* Outside of actions: there may be thousands of endpoints to be told. */
static void run_news(struct neap_ready *ready)
{
	struct neap_rdma_queue *queue = (struct neap_rdma_queue *)(void *)((char *)ready - offsetof(struct neap_rdma_queue, news));
	queue->listener.changed(queue->listener.user, queue);
}

static bool has_moved(const struct neap_rdma_queue *queue)
{
	const struct neap_rdma_view *view = &queue->device->view;
	return view->port_number != queue->port_number || view->gid.index != queue->gid.index ||
	       memcmp(view->gid.gid, queue->gid.gid, sizeof queue->gid.gid) != 0;
}

static void look(struct neap_rdma_queue *queue)
{
	bool usable = queue->attached && queue->device->usable && !queue->device->letting_go;
	bool moved = usable && has_moved(queue), tell = usable != queue->usable || moved;
	queue->usable = usable;
	if (moved) {
		queue->port_number = queue->device->view.port_number;
		queue->gid = queue->device->view.gid;
		queue->gid_proven = false;
		queue->view_changes++;
	}
	if (tell)
		neap_ready_again(queue->reactor, &queue->news);
}

static void do_attach(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_queue *queue = queue_of(machine);
	(void)argument;
	queue->entries = queue->device->handle.cq_entries;
	queue->owed = 0;
	queue->attached = true;
	neap_rdma_device_use(queue->device);
	neap_poller_add(queue->reactor, &queue->poller);
	look(queue);
}

static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_queue *queue = queue_of(machine);
	(void)argument;
	look(queue);
	if (queue->users == 0)
		(void)neap_post_first(machine, rdma_queue_on_FREE, 0);
}

static void do_detach(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_queue *queue = queue_of(machine);
	(void)argument;
	neap_watch_stop(queue->reactor, &queue->watch);
	neap_poller_remove(queue->reactor, &queue->poller);
	queue->attached = false;
	neap_rdma_device_unuse(queue->device);
}

static neap_action_func *const actions[] = {
	[rdma_queue_do_attach] = do_attach,
	[rdma_queue_do_leave] = do_leave,
	[rdma_queue_do_detach] = do_detach,
};

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_rdma_queue *queue = queue_of(machine);
	queue->usable = false;
	neap_log(queue->reactor, NEAP_LOG_ERROR, "rdma", "%s: its completion queue met %s, which cannot happen", queue->device->name,
	         machine->class_->fsm->event_names[event]);
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_rdma_queue *queue = queue_of(machine);
	(void)from;
	if (machine->state == rdma_queue_AWAY && (queue->users || queue->owed))
		return "somebody is on a queue that has no device";
	return queue->owed > queue->entries ? "more is owed than the queue holds" : NULL;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_rdma_queue,
	.actions = actions,
	.invariant = invariant,
	.broken = broken,
};

/* --- calls */

int neap_rdma_queue_begin(struct neap_rdma_queue *queue, struct neap_reactor *reactor, const struct neap_verbs *verbs,
                          struct neap_rdma_device *device, const struct neap_rdma_queue_listener *listener)
{
	struct neap_reactor_class *class_;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	*queue = (struct neap_rdma_queue){.reactor = reactor, .verbs = verbs, .device = device, .listener = *listener};
	queue->poller.poll = poll;
	queue->poller.arm = arm;
	queue->news.run = run_news;
	neap_machine_begin(&queue->machine, &class_->class_);
	return NEAP_OK;
}

/* Without its channel watched nobody would wake us: the device is not used then. */
static bool watch(struct neap_rdma_queue *queue)
{
	int fd = queue->verbs->ops->channel_fd(queue->device->handle.channel);
	int error = neap_watch_start(queue->reactor, &queue->watch, fd, NEAP_READABLE, woken);
	if (error)
		neap_log(queue->reactor, NEAP_LOG_WARNING, "rdma", "%s: its completions cannot be watched: raise descriptors_max",
		         queue->device->name);
	return !error;
}

void neap_rdma_queue_device_changed(struct neap_rdma_queue *queue)
{
	const struct neap_rdma_device *device = queue->device;
	if (device->letting_go)
		neap_step(&queue->machine, rdma_queue_on_LEAVE, 0);
	else if (queue->attached)
		look(queue);
	else if (device->handle.context && watch(queue))
		neap_step(&queue->machine, rdma_queue_on_OPEN, 0);
}

void neap_rdma_queue_end(struct neap_rdma_queue *queue)
{
	neap_ready_cancel(queue->reactor, &queue->news);
	neap_step(&queue->machine, rdma_queue_on_END, 0);
	neap_machine_end(&queue->machine);
}

void neap_rdma_queue_use(struct neap_rdma_queue *queue)
{
	queue->users++;
}

void neap_rdma_queue_unuse(struct neap_rdma_queue *queue)
{
	if (--queue->users == 0 && queue->machine.state == rdma_queue_LEAVING)
		neap_step(&queue->machine, rdma_queue_on_FREE, 0);
}

uint32_t neap_rdma_queue_take(struct neap_rdma_queue *queue, uint32_t wanted)
{
	uint32_t left = queue->entries - queue->owed, taken = wanted < left ? wanted : left;
	queue->owed += taken;
	return taken;
}

void neap_rdma_queue_give(struct neap_rdma_queue *queue, uint32_t count)
{
	queue->owed -= count;
}
