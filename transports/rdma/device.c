/* RDMA devices on the reactor. Jobs are two a device, and the helper does them in order: so a device can be told to close while it is
 * still being opened or looked at, and what is open by then is closed. */
#include "transports/rdma/device.h"
#include "transports/rdma/device_fsm.h"
#include <stdio.h>
#include <string.h>

struct neap_rdma_devices {
	struct neap_reactor *reactor;
	const struct neap_verbs *verbs;
	struct neap_helper *helper;
	struct neap_topology *topology;
	struct neap_rdma_options options;
	struct neap_rdma_listener listener;
	struct neap_dependent dependent;
	struct neap_ready ended; /* all are GONE: the owner is told from a turn */
	struct neap_reap reap;
	bool closing;
	uint32_t count, open; /* open: not GONE */
	struct neap_rdma_device list[];
};

static struct neap_rdma_device *device_of(const struct neap_machine *machine)
{
	return (struct neap_rdma_device *)(uintptr_t)((const char *)machine - offsetof(struct neap_rdma_device, machine));
}

static void changed(struct neap_rdma_device *device)
{
	const struct neap_rdma_listener *listener = &device->devices->listener;
	if (device->usable)
		neap_topology_regain(device->devices->topology, device->index);
	else
		neap_topology_lose(device->devices->topology, device->index, "not usable at present");
	listener->changed(listener->user, device);
}

/* Said once, however often it is found. */
static void set_unusable(struct neap_rdma_device *device, const char *why)
{
	device->usable = false;
	if (strcmp(device->why, why) == 0)
		return;
	snprintf(device->why, sizeof device->why, "%s", why);
	neap_log(device->devices->reactor, device->devices->options.quiet ? NEAP_LOG_INFO : NEAP_LOG_WARNING, "rdma", "%s", why);
}

static void set_usable(struct neap_rdma_device *device)
{
	char gid[NEAP_GID_TEXT_SIZE];
	neap_gid_format(device->view.gid.gid, gid);
	device->usable = true;
	device->why[0] = '\0';
	neap_log(device->devices->reactor, NEAP_LOG_INFO, "rdma", "%s: port %u, GID index %u, %s", device->name, device->view.port_number,
	         device->view.gid.index, gid);
}

/* --- on the helper */

static void run_look(struct neap_helper_job *job)
{
	struct neap_rdma_device *device = (struct neap_rdma_device *)(void *)((char *)job - offsetof(struct neap_rdma_device, look_job));
	const struct neap_rdma_devices *devices = device->devices;
	struct neap_rdma_handle *handle = &device->job_handle;
	char *why = device->job_why;
	bool opening = !handle->context;
	device->job_error = opening ? neap_rdma_open(devices->verbs, device->name, devices->options.wants.cq_entries, handle, why,
	                                             sizeof device->job_why)
	                            : NEAP_OK;
	if (device->job_error)
		return;
	device->job_error = neap_rdma_look(devices->verbs, handle, device->name, &device->job_wants, &device->job_view, why,
	                                   sizeof device->job_why);
	if (opening && device->job_error == NEAP_ECONTEXT)
		(void)neap_rdma_shut(devices->verbs, handle); /* nothing stands on it yet */
}

static void run_shut(struct neap_helper_job *job)
{
	struct neap_rdma_device *device = (struct neap_rdma_device *)(void *)((char *)job - offsetof(struct neap_rdma_device, shut_job));
	device->shut_error = neap_rdma_shut(device->devices->verbs, &device->job_handle);
}

/* --- events from facts */

/* A device without a port is open and may get one; what did not answer is not worth keeping. */
static uint8_t verdict(const struct neap_rdma_device *device)
{
	if (device->changes != device->changes_asked)
		return rdma_device_on_OUTDATED;
	if (!device->job_error)
		return rdma_device_on_USABLE;
	return device->job_error == NEAP_ENODEV && device->job_handle.context ? rdma_device_on_UNUSABLE : rdma_device_on_FAILED;
}

static void look_done(struct neap_helper_job *job)
{
	struct neap_rdma_device *device = (struct neap_rdma_device *)(void *)((char *)job - offsetof(struct neap_rdma_device, look_job));
	neap_step(&device->machine, verdict(device), (uint64_t)-(int64_t)device->job_error);
}

static void shut_done(struct neap_helper_job *job)
{
	struct neap_rdma_device *device = (struct neap_rdma_device *)(void *)((char *)job - offsetof(struct neap_rdma_device, shut_job));
	if (device->shut_error)
		neap_log(device->devices->reactor, NEAP_LOG_ERROR, "rdma", "%s: cannot be closed; it stays open until the process ends",
		         device->name);
	neap_step(&device->machine, rdma_device_on_CLOSED, 0);
}

static void forget_refused(struct neap_rdma_device *device)
{
	device->refused_count = 0;
	device->gids_spent = false;
}

/* A port that is down is told at once, and why is found out by the look that follows; what came up, or moved, is looked at first. */
static void on_change(struct neap_rdma_device *device, const struct neap_verbs_event *event)
{
	device->changes++;
	if (event->kind == NEAP_VERBS_ADDRESS_CHANGE)
		forget_refused(device);
	if (event->kind == NEAP_VERBS_PORT_ERROR && device->usable && event->port == device->view.port_number) {
		device->usable = false;
		snprintf(device->why, sizeof device->why, "%s: port %u went down", device->name, event->port);
		changed(device);
	}
	neap_step(&device->machine, rdma_device_on_CHANGED, event->kind);
}

static void on_event(struct neap_rdma_device *device, const struct neap_verbs_event *event)
{
	switch (event->kind) {
	case NEAP_VERBS_PORT_ACTIVE:
	case NEAP_VERBS_PORT_ERROR:
	case NEAP_VERBS_ADDRESS_CHANGE:
		on_change(device, event);
		break;
	case NEAP_VERBS_DEVICE_FATAL:
	case NEAP_VERBS_CQ_ERROR:
		neap_step(&device->machine, rdma_device_on_FATAL, event->kind);
		break;
	case NEAP_VERBS_QP_FATAL: /* the endpoint learns it from its completions */
	case NEAP_VERBS_OTHER:
		break;
	}
}

static void on_readable(struct neap_watch *watch, unsigned ready)
{
	struct neap_rdma_device *device = (struct neap_rdma_device *)(void *)((char *)watch - offsetof(struct neap_rdma_device, watch));
	struct neap_verbs_event event;
	int answer = 1;
	(void)ready;
	while (!device->letting_go && (answer = device->devices->verbs->ops->next_event(device->handle.context, &event)) > 0)
		on_event(device, &event);
	if (answer < 0 && !device->letting_go)
		neap_step(&device->machine, rdma_device_on_FATAL, NEAP_VERBS_DEVICE_FATAL);
}

/* --- actions */

static void do_look(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	(void)argument;
	device->changes_asked = device->changes;
	device->job_wants = device->devices->options.wants;
	device->job_wants.refused_count = device->refused_count;
	memcpy(device->job_wants.refused, device->refused, sizeof device->refused);
	neap_helper_submit(device->devices->helper, &device->look_job);
}

static void do_open(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	device->letting_go = false;
	forget_refused(device);
	device->job_handle = (struct neap_rdma_handle){0};
	do_look(machine, argument);
}

/* Not while the helper is at something else. */
static void do_complain(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	const struct neap_helper *helper = device->devices->helper;
	uint64_t ns = neap_helper_runs_ns(helper, &device->look_job) + neap_helper_runs_ns(helper, &device->shut_job);
	(void)argument;
	if (ns < device->devices->options.slow_ns)
		return;
	neap_log(device->devices->reactor, NEAP_LOG_WARNING, "rdma", "%s: the kernel has not answered for %llu ms; waiting on", device->name,
	         (unsigned long long)(ns / 1000000));
}

/* One address was to be replaced by another. */
static void say_other_gid(const struct neap_rdma_device *device)
{
	const struct neap_gid_entry *before = &device->view.gid, *now = &device->job_view.gid;
	char before_text[NEAP_GID_TEXT_SIZE], now_text[NEAP_GID_TEXT_SIZE];
	if (device->refused_count == 0 || memcmp(before->gid, now->gid, sizeof before->gid) == 0)
		return;
	neap_gid_format(before->gid, before_text);
	neap_gid_format(now->gid, now_text);
	neap_log(device->devices->reactor, NEAP_LOG_WARNING, "rdma",
	         "%s: queue pairs cannot be connected with GID index %u, %s: index %u, %s is tried (MC_GID_INDEX fixes one)", device->name,
	         before->index, before_text, now->index, now_text);
}

/* What the helper has seen counts from here on. */
static void do_tell(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	device->settled = true;
	if (argument == 0 && device->view.port_number == device->job_view.port_number)
		say_other_gid(device);
	device->view = device->job_view;
	if (argument == 0)
		set_usable(device);
	else
		set_unusable(device, device->job_why);
	changed(device);
}

static void do_begin(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	const struct neap_verbs *verbs = device->devices->verbs;
	device->handle = device->job_handle;
	int fd = verbs->ops->event_fd(device->handle.context);
	if (neap_watch_start(device->devices->reactor, &device->watch, fd, NEAP_READABLE, on_readable)) {
		snprintf(device->job_why, sizeof device->job_why, "%s: its events cannot be watched: raise descriptors_max", device->name);
		(void)neap_post_first(machine, rdma_device_on_FATAL, NEAP_VERBS_OTHER);
		return;
	}
	do_tell(machine, argument);
}

static void do_report(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	(void)argument;
	device->settled = true;
	set_unusable(device, device->job_why);
	changed(device);
}

/* Nothing new begins on it; who stands on it is told. */
static void let_go(struct neap_rdma_device *device, const char *why)
{
	if (device->watch.ready)
		neap_watch_stop(device->devices->reactor, &device->watch);
	device->watch.ready = NULL;
	device->letting_go = true;
	if (why)
		set_unusable(device, why);
	device->usable = false;
	device->users++; /* so that listeners may let go from inside */
	changed(device);
	neap_rdma_device_unuse(device);
}

static void do_lose(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	char why[NEAP_RDMA_WHY_SIZE];
	if (argument == NEAP_VERBS_OTHER || argument == (uint64_t)-NEAP_ECONTEXT) /* the look itself says what is wrong */
		snprintf(why, sizeof why, "%s", device->job_why);
	else
		snprintf(why, sizeof why, "%s: the device failed (%s); it is closed and tried again", device->name,
		         argument == NEAP_VERBS_CQ_ERROR ? "a completion queue overran" : "fatal error or removal");
	let_go(device, why);
}

static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	let_go(device_of(machine), NULL);
}

static void do_shut(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	(void)argument;
	device->handle = (struct neap_rdma_handle){0};
	neap_helper_submit(device->devices->helper, &device->shut_job);
}

/* Closed; the timeout of AWAY tries again. What is written in `why` stays said. */
static void do_rest(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	device_of(machine)->letting_go = false;
}

static void reap(struct neap_reap *reap)
{
	struct neap_rdma_devices *devices = (struct neap_rdma_devices *)(void *)((char *)reap - offsetof(struct neap_rdma_devices, reap));
	size_t bytes = sizeof *devices + devices->count * sizeof devices->list[0];
	neap_reactor_detach(devices->reactor, &devices->dependent);
	neap_release(devices->reactor, devices, bytes);
}

static void run_ended(struct neap_ready *ready)
{
	struct neap_rdma_devices *devices = (struct neap_rdma_devices *)(void *)((char *)ready - offsetof(struct neap_rdma_devices, ended));
	neap_reap_later(devices->reactor, &devices->reap);
	devices->listener.closed(devices->listener.user);
}

static void do_bury(struct neap_machine *machine, uint64_t argument)
{
	struct neap_rdma_device *device = device_of(machine);
	(void)argument;
	device->usable = false;
	neap_machine_end(machine);
	if (--device->devices->open == 0)
		neap_ready_again(device->devices->reactor, &device->devices->ended);
}

static neap_action_func *const actions[] = {
	[rdma_device_do_open] = do_open,
	[rdma_device_do_complain] = do_complain,
	[rdma_device_do_begin] = do_begin,
	[rdma_device_do_report] = do_report,
	[rdma_device_do_look] = do_look,
	[rdma_device_do_tell] = do_tell,
	[rdma_device_do_lose] = do_lose,
	[rdma_device_do_leave] = do_leave,
	[rdma_device_do_shut] = do_shut,
	[rdma_device_do_rest] = do_rest,
	[rdma_device_do_bury] = do_bury,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_rdma_options *options = &device_of(machine)->devices->options;
	return now_ns + (timeout_class == rdma_device_timeout_RETRY ? options->retry_ns : options->slow_ns);
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_rdma_device *device = device_of(machine);
	(void)event;
	snprintf(device->why, sizeof device->why, "%s: %s", device->name, neap_error_text(NEAP_EINTERNAL));
	device->usable = false;
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_rdma_device *device = device_of(machine);
	(void)from;
	if (device->usable && !device->handle.context)
		return "usable, and not open";
	if (machine->state == rdma_device_AWAY && device->users)
		return "somebody stands on a device that is closed";
	return NULL;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_rdma_device,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_rdma_device),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls */

static bool takes_part(const struct neap_topology_device *device)
{
	return !device->unusable || strcmp(device->unusable, NEAP_TOPOLOGY_NO_PORT) == 0;
}

static void add(struct neap_rdma_devices *devices, uint32_t index, struct neap_reactor_class *class_)
{
	struct neap_rdma_device *device = &devices->list[devices->count++];
	*device = (struct neap_rdma_device){
		.devices = devices,
		.index = index,
		.name = devices->topology->devices[index].name,
		.look_job = {.run = run_look, .done = look_done},
		.shut_job = {.run = run_shut, .done = shut_done},
	};
	devices->open++;
	neap_topology_lose(devices->topology, index, "not opened yet");
	neap_machine_begin(&device->machine, &class_->class_);
	(void)neap_post(&device->machine, rdma_device_on_OPEN, 0);
}

static void stop(struct neap_dependent *dependent)
{
	struct neap_rdma_devices *devices =
		(struct neap_rdma_devices *)(void *)((char *)dependent - offsetof(struct neap_rdma_devices, dependent));
	if (!devices->options.owner_closes)
		neap_rdma_devices_close(devices);
}

uint32_t neap_rdma_devices_wanted(const struct neap_topology *topology)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < topology->device_count; i++)
		count += takes_part(&topology->devices[i]);
	return count;
}

int neap_rdma_devices_open(struct neap_reactor *reactor, const struct neap_verbs *verbs, struct neap_helper *helper,
                           struct neap_topology *topology, const struct neap_rdma_options *options,
                           const struct neap_rdma_listener *listener, struct neap_rdma_devices **devices_p)
{
	struct neap_reactor_class *class_;
	uint32_t count = neap_rdma_devices_wanted(topology);
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error)
		return error;
	struct neap_rdma_devices *devices = neap_allocate(reactor, sizeof *devices + count * sizeof devices->list[0]);
	if (!devices)
		return NEAP_ENOMEM;
	*devices = (struct neap_rdma_devices){
		.reactor = reactor,
		.verbs = verbs,
		.helper = helper,
		.topology = topology,
		.options = *options,
		.listener = *listener,
		.dependent = {.what = "RDMA devices", .stop = stop},
		.ended.run = run_ended,
		.reap.reap = reap,
	};
	if (!devices->options.retry_ns)
		devices->options.retry_ns = NEAP_RDMA_RETRY_NS;
	if (!devices->options.slow_ns)
		devices->options.slow_ns = NEAP_RDMA_SLOW_NS;
	neap_reactor_attach(reactor, &devices->dependent);
	for (uint32_t i = 0; i < topology->device_count; i++)
		if (takes_part(&topology->devices[i]))
			add(devices, i, class_);
	neap_reactor_touch(reactor);
	*devices_p = devices;
	return NEAP_OK;
}

void neap_rdma_devices_close(struct neap_rdma_devices *devices)
{
	if (devices->closing)
		return;
	devices->closing = true;
	for (uint32_t i = 0; i < devices->count; i++)
		(void)neap_post(&devices->list[i].machine, rdma_device_on_CLOSE, 0);
	if (devices->count == 0)
		neap_ready_again(devices->reactor, &devices->ended);
	neap_reactor_touch(devices->reactor);
}

uint32_t neap_rdma_devices_count(const struct neap_rdma_devices *devices)
{
	return devices->count;
}

struct neap_rdma_device *neap_rdma_devices_at(struct neap_rdma_devices *devices, uint32_t index)
{
	return &devices->list[index];
}

struct neap_rdma_device *neap_rdma_devices_find(struct neap_rdma_devices *devices, const char *name)
{
	for (uint32_t i = 0; i < devices->count; i++)
		if (strcmp(devices->list[i].name, name) == 0)
			return &devices->list[i];
	return NULL;
}

/* Where no other does either, it is the best one again. */
void neap_rdma_device_next_gid(struct neap_rdma_device *device)
{
	if (device->gids_spent || device->devices->options.wants.gid_fixed || !device->usable)
		return;
	device->gids_spent = device->refused_count == NEAP_RDMA_GID_TRIES;
	if (device->gids_spent)
		device->refused_count = 0;
	else
		memcpy(device->refused[device->refused_count++], device->view.gid.gid, sizeof device->refused[0]);
	device->changes++;
	neap_step(&device->machine, rdma_device_on_CHANGED, NEAP_VERBS_ADDRESS_CHANGE);
}

void neap_rdma_device_use(struct neap_rdma_device *device)
{
	device->users++;
}

void neap_rdma_device_unuse(struct neap_rdma_device *device)
{
	if (--device->users == 0 && device->letting_go)
		neap_step(&device->machine, rdma_device_on_FREE, 0);
}
