/* The RDMA transport: makes its parts, chooses between them and the TCP inside for each request, and ends them in order.
 *
 * Making it does not fail for want of devices: whatever is missing, the engine has TCP, and the log says why. Devices open while it already
 * serves, and come and go after that; nothing here waits for them. The end goes from the top down: initiator, endpoints, memory, devices,
 * helper. Each is bounded by drain_timeout_ms but for what the kernel was asked (docs/RDMA.md). TCP ends beside it. */
#include "transports/rdma/rdma_inside.h"
#include <stdio.h>
#include <string.h>

#define JOBS_A_DEVICE 2u
#define LOOK_AGAIN_NS UINT64_C(2000000000) /* between two looks at a peer without devices, while there are requests for it */

static struct neap_rdma *rdma_of(struct neap_transport *transport)
{
	return (struct neap_rdma *)(void *)transport;
}

static const struct neap_rdma *reader_of(const struct neap_transport *transport)
{
	return (const struct neap_rdma *)(const void *)transport;
}

uint32_t neap_rdma_jobs_max(const struct neap_engine_options *options, uint32_t devices)
{
	return JOBS_A_DEVICE * devices + NEAP_RDMA_ENDPOINT_JOBS + neap_rdma_ranges_max(options);
}

uint32_t neap_rdma_ranges_max(const struct neap_engine_options *options)
{
	return 2 * options->regions_max + 1;
}

/* --- where requests go */

static bool has_devices(const struct neap_descriptor *descriptor)
{
	return descriptor->protocol == NEAP_PROTOCOL_RDMA && descriptor->device_count > 0;
}

/* Neap peers serve TCP beside their devices. */
static bool has_tcp(const struct neap_descriptor *descriptor)
{
	return descriptor->protocol == NEAP_PROTOCOL_TCP || (descriptor->neap.present && descriptor->tcp_data_port > 0);
}

static bool reaches(const struct neap_transport *transport, const struct neap_descriptor *descriptor)
{
	return reader_of(transport)->initiator && has_devices(descriptor);
}

static bool goes_over_devices(const struct neap_rdma *rdma, const struct neap_segment *segment)
{
	const struct neap_descriptor *descriptor = segment->snapshot->descriptor;
	return rdma->initiator && has_devices(descriptor) && (rdma->usable || !has_tcp(descriptor));
}

static const char *protocol(const struct neap_transport *transport, const struct neap_segment *segment)
{
	return goes_over_devices(reader_of(transport), segment) ? "rdma" : "tcp";
}

/* Where there is no TCP the initiator has it in any case, and says what is wrong with it. */
static bool slice_goes_over_devices(const struct neap_rdma *rdma, const struct neap_segment *segment, const struct neap_slice *slice)
{
	if (!has_tcp(segment->snapshot->descriptor))
		return true;
	if (slice->grant && (rdma->view->options->plain_only || !neap_rdma_slice_is_lent(segment, slice)))
		return false;
	return slice->length == 0 || neap_rdma_is_on_devices(rdma, slice->source, slice->length);
}

struct share {
	struct neap_slice *first, **tail;
	uint32_t count;
};

static void put(struct share *share, struct neap_slice *slice)
{
	*share->tail = slice;
	share->tail = &slice->next;
	share->count++;
}

/* A Neap peer whose devices were not there yet when its descriptor was read may have them by now. */
static void look_for_devices(const struct neap_rdma *rdma, struct neap_segment *segment)
{
	const struct neap_descriptor *descriptor = segment->snapshot->descriptor;
	uint64_t now_ns = neap_now(rdma->reactor);
	if (!rdma->initiator || rdma->usable == 0 || !descriptor->neap.present || has_devices(descriptor) ||
	    now_ns < segment->looked_ns + LOOK_AGAIN_NS)
		return;
	segment->looked_ns = now_ns;
	neap_segment_look_again(segment);
}

static void submit(struct neap_transport *transport, struct neap_segment *segment, struct neap_slice *first, uint32_t count)
{
	struct neap_rdma *rdma = rdma_of(transport);
	struct share ours = {.tail = &ours.first}, others = {.tail = &others.first};
	if (!goes_over_devices(rdma, segment)) {
		rdma->tcp->ops->submit(rdma->tcp, segment, first, count);
		look_for_devices(rdma, segment);
		return;
	}
	for (struct neap_slice *slice = first, *next; count > 0; slice = next, count--) {
		next = slice->next;
		put(slice_goes_over_devices(rdma, segment, slice) ? &ours : &others, slice);
	}
	*ours.tail = *others.tail = NULL;
	if (others.count)
		rdma->tcp->ops->submit(rdma->tcp, segment, others.first, others.count);
	if (ours.count)
		neap_rdma_initiator_submit(rdma->initiator, segment, ours.first, ours.count);
}

/* Nobody knows yet which of the two will have them. */
static uint32_t room(struct neap_transport *transport, const struct neap_segment *segment)
{
	const struct neap_rdma *rdma = rdma_of(transport);
	uint32_t over_tcp = rdma->tcp->ops->room(rdma->tcp, segment);
	if (!goes_over_devices(rdma, segment))
		return over_tcp;
	uint32_t over_devices = neap_rdma_initiator_room(rdma->initiator, segment);
	return over_devices < over_tcp ? over_devices : over_tcp;
}

static void cancel(struct neap_transport *transport, struct neap_slice *slice)
{
	struct neap_rdma *rdma = rdma_of(transport);
	if (slice->transport_phase & NEAP_RDMA_PLACE)
		neap_rdma_initiator_cancel(rdma->initiator, slice);
	else
		rdma->tcp->ops->cancel(rdma->tcp, slice);
}

static void forgotten(void *user, struct neap_segment *segment)
{
	(void)user;
	neap_segment_forgotten(segment);
}

static void forget(struct neap_transport *transport, struct neap_segment *segment)
{
	struct neap_rdma *rdma = rdma_of(transport);
	segment->holders = rdma->initiator ? 2 : 1;
	rdma->tcp->ops->forget(rdma->tcp, segment);
	if (rdma->initiator)
		neap_rdma_initiator_forget(rdma->initiator, segment, forgotten, NULL);
}

/* --- what peers read, and ask */

static void describe(struct neap_transport *transport, struct neap_descriptor *descriptor)
{
	struct neap_rdma *rdma = rdma_of(transport);
	rdma->tcp->ops->describe(rdma->tcp, descriptor);
}

static void document_bytes(const struct neap_transport *transport, uint64_t *fixed_p, uint64_t *each_p, uint64_t *piece_bytes_p)
{
	const struct neap_rdma *rdma = reader_of(transport);
	if (!rdma->ending)
		neap_rdma_publish_bytes(rdma, fixed_p, each_p, piece_bytes_p);
}

static int publish(struct neap_transport *transport, struct neap_descriptor *descriptor, bool buffers, char *why, size_t why_size)
{
	return neap_rdma_publish(rdma_of(transport), descriptor, buffers, why, why_size);
}

static void unpublish(struct neap_transport *transport, struct neap_descriptor *descriptor)
{
	neap_rdma_unpublish(rdma_of(transport), descriptor);
}

static void settle(struct neap_transport *transport, uint32_t slot, struct neap_settle_call *call)
{
	struct neap_rdma *rdma = rdma_of(transport);
	if (rdma->kept)
		neap_rdma_regions_settle(rdma, slot, call);
	else
		neap_settle_answer(call, NEAP_OK, NULL);
}

static int asked(struct neap_transport *transport, uint64_t ticket, const struct neap_connection_message *request,
                 struct neap_connection_message *reply)
{
	return neap_rdma_lanes_asked(rdma_of(transport), ticket, request, reply);
}

/* --- devices that come and go */

static bool is_open(const struct neap_rdma_device *device)
{
	return device->handle.context && !device->letting_go;
}

static void count_devices(struct neap_rdma *rdma)
{
	rdma->usable = 0;
	rdma->open = 0;
	rdma->settled = true;
	for (uint32_t i = 0; i < rdma->device_count; i++) {
		const struct neap_rdma_device *device = neap_rdma_devices_at(rdma->devices, i);
		rdma->usable += device->usable;
		rdma->open |= (uint64_t)is_open(device) << i;
		rdma->settled &= device->settled;
	}
}

/* Once, until one can be used again; each device has its own reasons in the log. */
static void say_without_devices(struct neap_rdma *rdma)
{
	if (rdma->said_none)
		return;
	rdma->said_none = true;
	neap_log(rdma->reactor, rdma->insists ? NEAP_LOG_WARNING : NEAP_LOG_INFO, "rdma",
	         "no RDMA device can be used (%s%s): all goes over TCP until one can", neap_rdma_devices_at(rdma->devices, 0)->why,
	         rdma->device_count > 1 ? ", and others" : "");
}

static void device_changed(void *user, struct neap_rdma_device *device)
{
	struct neap_rdma *rdma = user;
	uint64_t was_open = rdma->open;
	bool was_settled = rdma->settled;
	count_devices(rdma);
	neap_rdma_regions_look(rdma);
	neap_rdma_lanes_device_changed(rdma, device);
	neap_rdma_regions_devices_changed(rdma, (rdma->open & ~was_open) || rdma->settled != was_settled);
	if (rdma->usable)
		rdma->said_none = false;
	else if (rdma->settled && !rdma->ending)
		say_without_devices(rdma);
	if (!rdma->ending)
		neap_engine_reach_changed(rdma->base.engine);
}

/* --- the end */

static void half_closed(void *user)
{
	struct neap_rdma *rdma = user;
	if (--rdma->open_halves == 0)
		neap_engine_transport_closed(rdma->base.engine, &rdma->base);
}

static void devices_closed(void *user)
{
	struct neap_rdma *rdma = user;
	neap_rdma_lanes_free(rdma);
	rdma->devices = NULL;
	rdma->usable = 0;
	rdma->open = 0;
	if (rdma->closing)
		half_closed(rdma);
}

static void memory_closed(void *user)
{
	struct neap_rdma *rdma = user;
	rdma->memory = NULL;
	neap_rdma_grants_fenced_all(rdma);
	neap_rdma_devices_close(rdma->devices);
}

static void lanes_closed(struct neap_rdma *rdma)
{
	if (rdma->memory)
		neap_rdma_memory_close(rdma->memory, memory_closed, rdma);
	else
		neap_rdma_devices_close(rdma->devices);
}

static void close_both(struct neap_transport *transport)
{
	struct neap_rdma *rdma = rdma_of(transport);
	bool was_ending = rdma->ending;
	rdma->closing = rdma->ending = true;
	rdma->open_halves = 2;
	neap_rdma_regions_stop(rdma);
	rdma->tcp->ops->close(rdma->tcp);
	if (!rdma->devices)
		half_closed(rdma);
	else if (!was_ending)
		neap_rdma_lanes_close(rdma, lanes_closed);
}

/* All but TCP, which may go on without us. */
static void destroy_parts(struct neap_rdma *rdma)
{
	if (rdma->initiator)
		neap_rdma_initiator_destroy(rdma->initiator);
	neap_rdma_regions_free(rdma);
	if (rdma->helper && rdma->owns_helper)
		neap_helper_end(rdma->helper);
	if (rdma->owns_topology)
		neap_topology_free(rdma->topology);
	neap_release(rdma->reactor, rdma, sizeof *rdma);
}

/* Devices are closed, or were never opened. */
static void destroy(struct neap_transport *transport)
{
	struct neap_rdma *rdma = rdma_of(transport);
	rdma->tcp->ops->destroy(rdma->tcp);
	destroy_parts(rdma);
}

static const struct neap_transport_ops rdma_ops = {
	.name = "rdma",
	.device = neap_rdma_device_info,
	.rdma_stats = neap_rdma_fill_stats,
	.submit = submit,
	.room = room,
	.cancel = cancel,
	.forget = forget,
	.describe = describe,
	.close = close_both,
	.destroy = destroy,
	.reaches = reaches,
	.protocol = protocol,
	.document_bytes = document_bytes,
	.publish = publish,
	.unpublish = unpublish,
	.settle = settle,
	.asked = asked,
};

/* --- making it */

static void say_warnings(const struct neap_rdma *rdma)
{
	const struct neap_topology *topology = rdma->topology;
	for (uint32_t i = 0; i < topology->warning_count; i++)
		neap_log(rdma->reactor, rdma->insists ? NEAP_LOG_WARNING : NEAP_LOG_INFO, "topology", "%s", topology->warnings[i]);
}

/* Why no device of a machine takes part. */
static void explain_none(const struct neap_topology *topology, char *why, size_t why_size)
{
	if (topology->device_count == 0)
		(void)snprintf(why, why_size, "this machine has no RDMA device (rdma link show)");
	else
		(void)snprintf(why, why_size, "of %u RDMA devices none takes part (%s: %s)", topology->device_count,
		               topology->devices[0].name, topology->devices[0].unusable);
}

static int find_devices(struct neap_rdma *rdma, char *why, size_t why_size)
{
	const struct neap_engine_options *options = rdma->view->options;
	int error = NEAP_OK;
	if (!rdma->topology) {
		error = neap_topology_discover("/sys", options->device_filter, &rdma->topology, why, why_size);
		rdma->owns_topology = true;
		if (!error && options->topology_file)
			error = neap_topology_read_file(rdma->topology, options->topology_file, why, why_size);
		if (!error)
			say_warnings(rdma);
	}
	if (!error && neap_rdma_devices_wanted(rdma->topology) == 0) {
		explain_none(rdma->topology, why, why_size);
		return NEAP_ENODEV;
	}
	return error;
}

static int open_devices(struct neap_rdma *rdma)
{
	const struct neap_rdma_engine_options *given = rdma->options;
	const struct neap_rdma_options options = {
		.wants = {.port = given->port, .gid_fixed = given->gid_fixed, .gid_index = given->gid_index, .cq_entries = given->completions_max},
		.quiet = !rdma->insists,
		.owner_closes = true,
	};
	const struct neap_rdma_listener listener = {.changed = device_changed, .closed = devices_closed, .user = rdma};
	int error = neap_rdma_devices_open(rdma->reactor, rdma->verbs, rdma->helper, rdma->topology, &options, &listener, &rdma->devices);
	if (!error)
		rdma->device_count = neap_rdma_devices_count(rdma->devices);
	return error;
}

static int begin(struct neap_rdma *rdma, const struct neap_rdma_surroundings *surroundings, char *why, size_t why_size)
{
	rdma->verbs = surroundings->verbs ? surroundings->verbs : &neap_verbs_system;
	rdma->topology = surroundings->topology;
	rdma->helper = surroundings->helper;
	int error = find_devices(rdma, why, why_size);
	if (!error && !rdma->helper) {
		rdma->owns_helper = true;
		error = neap_helper_begin(rdma->reactor, neap_rdma_jobs_max(rdma->view->options, neap_rdma_devices_wanted(rdma->topology)),
		                          &rdma->helper, why, why_size);
	}
	if (!error)
		error = open_devices(rdma);
	if (!error)
		error = neap_rdma_regions_begin(rdma);
	if (!error)
		error = neap_rdma_lanes_begin(rdma);
	return error;
}

static void say_none(struct neap_reactor *reactor, bool insists, int error, const char *why)
{
	neap_log(reactor, insists ? NEAP_LOG_WARNING : NEAP_LOG_INFO, "rdma", "no RDMA: %s: all goes over TCP",
	         *why ? why : neap_error_text(error));
}

static bool wants_devices(const struct neap_engine_core_view *view, const struct neap_rdma_surroundings *surroundings)
{
	const struct neap_engine_options *options = view->options;
	bool played = surroundings->verbs && surroundings->topology && surroundings->helper;
	return strcmp(options->protocol, "tcp") != 0 && !options->rdma.force_tcp && view->core_index == 0 &&
	       (played || !neap_reactor_simulated(view->reactor));
}

int neap_rdma_transport_create_in(struct neap_transport **transport_p, struct neap_engine *engine,
                                  const struct neap_rdma_surroundings *surroundings, char *why, size_t why_size)
{
	const struct neap_engine_core_view *view = neap_engine_view(engine);
	char reason[NEAP_RDMA_WHY_SIZE] = "";
	int error = neap_tcp_transport_create(transport_p, engine, why, why_size);
	if (error || !wants_devices(view, surroundings))
		return error;
	bool insists = strcmp(view->options->protocol, "rdma") == 0;
	struct neap_rdma *rdma = neap_allocate(view->reactor, sizeof *rdma);
	if (!rdma) {
		say_none(view->reactor, insists, NEAP_ENOMEM, "");
		return NEAP_OK;
	}
	rdma->base = (struct neap_transport){.ops = &rdma_ops, .engine = engine};
	rdma->tcp = *transport_p;
	rdma->view = view;
	rdma->options = &view->options->rdma;
	rdma->reactor = view->reactor;
	rdma->insists = insists;
	rdma->plain = true;
	error = begin(rdma, surroundings, reason, sizeof reason);
	if (error)
		say_none(view->reactor, insists, error, reason);
	if (!rdma->devices) {
		destroy_parts(rdma);
		return NEAP_OK;
	}
	rdma->tcp->closed = half_closed;
	rdma->tcp->closed_user = rdma;
	*transport_p = &rdma->base;
	/* What is open takes turns to close. */
	rdma->ending = error != 0;
	if (error)
		neap_rdma_lanes_close(rdma, lanes_closed);
	return NEAP_OK;
}

int neap_rdma_transport_create(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_rdma_surroundings system = {0};
	return neap_rdma_transport_create_in(transport_p, engine, &system, why, why_size);
}
