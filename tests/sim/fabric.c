/* Devices of a simulated cluster. */
#include "tests/sim/fabric.h"
#include "transports/engine_state.h"
#include "transports/rdma/rdma_inside.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define HELPER_NS_MAX (2 * MS)
#define DESTROYS_MAY_FAIL 2u /* after the third time a queue pair is left to the end of the process */

static struct sim_random *chance(const struct sim_fabric *fabric)
{
	return &fabric->sim->random[SIM_FAULTS];
}

/* --- the network ------------------------------------------------------------------------------------------------------------- */

static void run_fabric(struct sim *sim, void *user, uint64_t sequence)
{
	struct sim_fabric *fabric = user;
	(void)sim;
	if (sequence != fabric->sequence)
		return; /* an earlier one was put in its place */
	fabric->armed = false;
	sim_verbs_run(&fabric->verbs);
}

static uint64_t fabric_now_ns(void *user)
{
	return ((struct sim_fabric *)user)->sim->now_ns;
}

static void fabric_wake_at(void *user, uint64_t at_ns)
{
	struct sim_fabric *fabric = user;
	struct sim *sim = fabric->sim;
	if (fabric->armed && fabric->armed_ns <= at_ns)
		return;
	fabric->armed = true;
	fabric->armed_ns = at_ns;
	sim_at(sim, at_ns > sim->now_ns ? at_ns : sim->now_ns, run_fabric, fabric, ++fabric->sequence);
}

static unsigned descriptor_ready(struct neap_net *net, int fd)
{
	const struct sim_node *node = (const struct sim_node *)(void *)net;
	const struct sim_fabric *fabric = node->sim->user;
	return sim_verbs_ready(&fabric->verbs, fd);
}

/* Devices that meet serve and send different numbers of READs at once. */
static const uint32_t reads_at_once[4] = {16, 4, 16, 1};

static void add_devices(struct sim_fabric *fabric, uint32_t hosts, uint32_t least, uint32_t most)
{
	for (uint32_t i = 0; i < hosts; i++) {
		uint32_t count = least + (uint32_t)sim_random_below(chance(fabric), most - least + 1);
		fabric->first[i] = fabric->verbs.device_count;
		fabric->count[i] = count;
		for (uint32_t k = 0; k < count; k++) {
			char name[NEAP_TOPOLOGY_NAME_SIZE];
			snprintf(name, sizeof(name), "h%ud%u", i, k);
			struct sim_device *device = sim_verbs_add(&fabric->verbs, name);
			device->limits.read_target_max = reads_at_once[(i + k) % 4];
		}
	}
}

struct sim_fabric *sim_fabric_new(struct sim *sim, uint32_t hosts, uint32_t devices_min, uint32_t devices_max)
{
	struct sim_fabric *fabric = calloc(1, sizeof(*fabric));
	if (!fabric || hosts > SIM_FABRIC_HOSTS_MAX)
		abort();
	fabric->sim = sim;
	fabric->clock = (struct sim_verbs_clock){.now_ns = fabric_now_ns, .wake_at = fabric_wake_at, .user = fabric};
	sim_verbs_begin_with(&fabric->verbs, &fabric->clock, sim_random_next(chance(fabric)));
	sim->user = fabric;
	sim->descriptor_ready = descriptor_ready;
	add_devices(fabric, hosts, devices_min, devices_max);
	return fabric;
}

const char *sim_fabric_left(const struct sim_fabric *fabric, char *why, size_t why_size)
{
	if (fabric->verbs.overruns)
		snprintf(why, why_size, "%u completions did not fit their queue", fabric->verbs.overruns);
	else if (fabric->verbs.refused_sends)
		snprintf(why, why_size, "%u sends did not fit their queue pair", fabric->verbs.refused_sends);
	else if (fabric->verbs.objects)
		snprintf(why, why_size, "%u objects of verbs are left", fabric->verbs.objects);
	else
		return NULL;
	return why;
}

void sim_fabric_free(struct sim_fabric *fabric)
{
	for (struct sim_seat *seat; (seat = fabric->seats);) {
		fabric->seats = seat->next;
		neap_topology_free(seat->topology);
		free(seat);
	}
	fabric->verbs.objects = fabric->verbs.overruns = 0; /* they have been told of */
	sim_verbs_end(&fabric->verbs);
	free(fabric);
}

/* --- a process on it ---------------------------------------------------------------------------------------------------------- */

static void signaled(void *user)
{
	const struct sim_seat *seat = user;
	if (seat->node && seat->node->reactor)
		sim_node_wake(seat->node);
}

/* Each device is near one of two NUMA nodes. */
static void add_row(struct neap_topology *topology, uint32_t numa)
{
	char location[NEAP_TOPOLOGY_LOCATION_SIZE];
	snprintf(location, sizeof(location), "cpu:%u", numa);
	struct neap_topology_row *row = neap_topology_add_row(topology, location);
	for (uint32_t pass = 0; pass < 2; pass++)
		for (uint32_t i = 0; i < topology->device_count; i++) {
			if ((i % 2 == numa) != (pass == 0))
				continue;
			row->order[row->count++] = (uint8_t)i;
			row->preferred += pass == 0;
		}
}

struct sim_seat *sim_seat_new(struct sim_fabric *fabric, uint32_t host, struct sim_node *node)
{
	struct sim_seat *seat = calloc(1, sizeof(*seat));
	if (!seat)
		abort();
	uint32_t first = fabric->first[host], count = fabric->count[host];
	seat->fabric = fabric;
	seat->next = fabric->seats;
	fabric->seats = seat;
	seat->node = node;
	seat->devices = count;
	seat->topology = neap_topology_new();
	for (uint32_t i = 0; i < count; i++)
		neap_topology_add_device(seat->topology, fabric->verbs.devices[first + i].name);
	for (uint32_t numa = 0; numa < 2; numa++)
		add_row(seat->topology, numa);
	sim_process_begin(&seat->process, &fabric->verbs, ((1u << count) - 1) << first, signaled, seat);
	sim_helper_begin(&seat->helper, sim_node_reactor(node), 1 + sim_random_below(chance(fabric), HELPER_NS_MAX));
	return seat;
}

void sim_seat_kill(struct sim_seat *seat)
{
	if (!seat->process.dead)
		sim_process_kill(&seat->process);
}

void sim_seat_let_go(struct sim_seat *seat)
{
	if (seat->helper.held && seat->node->reactor)
		sim_helper_hold(&seat->helper, false);
}

static struct sim_seat *seat_of_engine; /* that is being made; NULL: it joins one */

static int make_transport(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size)
{
	struct sim_seat *seat = seat_of_engine;
	struct neap_rdma_surroundings surroundings = {0};
	if (seat)
		surroundings = (struct neap_rdma_surroundings){.verbs = &seat->process.verbs, .topology = seat->topology, .helper = &seat->helper.base};
	return neap_rdma_transport_create_in(transport_p, engine, &surroundings, why, why_size);
}

int sim_seat_make_engine(struct sim_seat *seat, struct neap_engine **engine_p, struct neap_engine_options *options, char *why,
                         size_t why_size)
{
	seat_of_engine = seat;
	int error = neap_engine_create_with(engine_p, sim_node_reactor(seat->node), options, make_transport, why, why_size);
	seat_of_engine = NULL;
	return error;
}

struct neap_rdma *sim_seat_transport(const struct neap_engine *engine)
{
	struct neap_transport *remote = engine ? engine->remote : NULL;
	if (!remote || strcmp(remote->ops->name, "rdma") != 0)
		return NULL;
	struct neap_rdma *rdma = (struct neap_rdma *)(void *)remote;
	return rdma->ending ? NULL : rdma;
}

/* --- what goes wrong ----------------------------------------------------------------------------------------------------------------- */

static void port_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_fabric *fabric = user;
	(void)sim;
	if (!fabric->healed)
		sim_verbs_set_port(&fabric->verbs, &fabric->verbs.devices[argument], NEAP_PORT_ACTIVE);
}

static void device_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_fabric *fabric = user;
	(void)sim;
	sim_verbs_regain(&fabric->verbs.devices[argument]);
}

static void cable_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_verbs *verbs = &((struct sim_fabric *)user)->verbs;
	(void)sim;
	sim_verbs_cut(verbs, &verbs->devices[argument >> 8], &verbs->devices[argument & 0xff], false);
}

static void helper_is_back(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_seat *seat = user;
	(void)sim, (void)argument;
	if (!seat->process.dead)
		sim_seat_let_go(seat);
}

void sim_fabric_port_down(struct sim_fabric *fabric, uint32_t device, uint64_t ns)
{
	sim_verbs_set_port(&fabric->verbs, &fabric->verbs.devices[device], NEAP_PORT_DOWN);
	sim_after(fabric->sim, ns, port_is_back, fabric, device);
	fabric->seen.port_down++;
}

void sim_fabric_device_gone(struct sim_fabric *fabric, uint32_t device, uint64_t ns)
{
	struct sim_verbs *verbs = &fabric->verbs;
	if (sim_random_chance(chance(fabric), 500))
		sim_verbs_lose(verbs, &verbs->devices[device]);
	else
		sim_verbs_vanish(verbs, &verbs->devices[device]);
	sim_after(fabric->sim, ns, device_is_back, fabric, device);
	fabric->seen.device_lost++;
}

void sim_fabric_cut(struct sim_fabric *fabric, uint32_t a, uint32_t b, uint64_t ns)
{
	struct sim_verbs *verbs = &fabric->verbs;
	if (a == b)
		return;
	sim_verbs_cut(verbs, &verbs->devices[a], &verbs->devices[b], true);
	sim_after(fabric->sim, ns, cable_is_back, fabric, (uint64_t)a << 8 | b);
	fabric->seen.cable_cut++;
}

static void call_fails(struct sim_fabric *fabric)
{
	static const struct {
		enum sim_call call;
		int error;
		uint32_t within;
	} calls[] = {
		{SIM_POST_SEND, -ENOMEM, 40},   {SIM_POST_SEND, -EINVAL, 40},  {SIM_MODIFY_QP, -EINVAL, 8},    {SIM_MODIFY_QP, -ETIMEDOUT, 8},
		{SIM_CREATE_QP, -ENOMEM, 4},    {SIM_REGISTER, -ENOMEM, 4},    {SIM_DEREGISTER, -EIO, 4},      {SIM_CREATE_CQ, -ENOMEM, 2},
		{SIM_CREATE_CHANNEL, -EMFILE, 2}, {SIM_QUERY_PORT, -EIO, 3},   {SIM_QUERY_GIDS, -EIO, 3},      {SIM_OPEN, -EIO, 2},
		{SIM_DESTROY_QP, -EIO, 4},      {SIM_ALLOCATE_PD, -ENOMEM, 2}, {SIM_QUERY_DEVICE, -EIO, 2},    {SIM_LIST, -EIO, 2},
	};
	uint32_t which = (uint32_t)sim_random_below(chance(fabric), sizeof(calls) / sizeof(calls[0]));
	if (calls[which].call == SIM_DESTROY_QP && fabric->destroys_failed++ >= DESTROYS_MAY_FAIL)
		return;
	sim_verbs_fail(&fabric->verbs, calls[which].call, 1 + (uint32_t)sim_random_below(chance(fabric), calls[which].within),
	               calls[which].error);
	fabric->seen.call_failed++;
}

void sim_fabric_helper_stalls(struct sim_fabric *fabric, struct sim_seat *seat, uint64_t ns)
{
	if (!seat)
		return;
	sim_helper_hold(&seat->helper, true);
	sim_after(fabric->sim, ns, helper_is_back, seat, 0);
	fabric->seen.helper_stalled++;
}

static void connections_retire(struct sim_fabric *fabric, const struct neap_engine *engine)
{
	struct neap_rdma *rdma = sim_seat_transport(engine);
	if (!rdma)
		return;
	neap_rdma_transport_retire_endpoints(&rdma->base);
	fabric->seen.connections_retired++;
}

void sim_fabric_fault(struct sim_fabric *fabric, const struct sim_fabric_faults *may, struct sim_seat *seat,
                      const struct neap_engine *engine)
{
	struct sim_random *random = chance(fabric);
	uint32_t device = (uint32_t)sim_random_below(random, fabric->verbs.device_count);
	uint32_t other = (uint32_t)sim_random_below(random, fabric->verbs.device_count);
	uint64_t ns = 1 + sim_random_below(random, sim_random_chance(random, 700) ? 20 * MS : 2000 * MS);
	switch (sim_random_below(random, 7)) {
	case 0:
		if (may->port)
			sim_fabric_port_down(fabric, device, ns);
		break;
	case 1:
		if (may->device && sim_random_chance(random, 200)) /* it is tried again after 5 s alone */
			sim_fabric_device_gone(fabric, device, ns);
		break;
	case 2:
		if (may->cable)
			sim_fabric_cut(fabric, device, other, ns);
		break;
	case 3:
		if (may->calls)
			call_fails(fabric);
		break;
	case 4:
		if (may->helper)
			sim_fabric_helper_stalls(fabric, seat, ns);
		break;
	case 5:
		if (may->retire)
			connections_retire(fabric, engine);
		break;
	default:
		if (may->late) {
			fabric->verbs.latency_max_ns = UINT64_C(1000) << sim_random_below(random, 14);
			fabric->verbs.stray_max_ns = sim_random_chance(random, 500) ? UINT64_C(1000) << sim_random_below(random, 21) : 0;
		}
		break;
	}
}

/* --- in the end ------------------------------------------------------------------------------------------------------------------------ */

void sim_fabric_heal(struct sim_fabric *fabric)
{
	struct sim_verbs *verbs = &fabric->verbs;
	fabric->healed = true;
	memset(verbs->fail_in, 0, sizeof(verbs->fail_in));
	verbs->latency_max_ns = UINT64_C(50000);
	for (uint32_t i = 0; i < verbs->device_count; i++) {
		for (uint32_t k = 0; k < i; k++)
			sim_verbs_cut(verbs, &verbs->devices[i], &verbs->devices[k], false);
		sim_verbs_regain(&verbs->devices[i]);
		sim_verbs_set_port(verbs, &verbs->devices[i], NEAP_PORT_ACTIVE);
	}
}

const char *sim_seat_healed(const struct sim_seat *seat, const struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_rdma *rdma = sim_seat_transport(engine);
	if (!rdma)
		return NULL;
	if (rdma->usable != seat->devices) {
		snprintf(why, why_size, "it has %u of its %u devices back after everything has healed", rdma->usable, seat->devices);
		return why;
	}
	for (uint32_t i = 0; i < engine->options.regions_max; i++)
		if (rdma->kept[i].wanted && !rdma->kept[i].on_devices && !rdma->kept[i].refused) {
			snprintf(why, why_size, "a region of it is not on its devices after everything has healed");
			return why;
		}
	return NULL;
}

static bool stats_of(const struct neap_engine *engine, struct neap_rdma_initiator_stats *stats_p)
{
	const struct neap_rdma *rdma = sim_seat_transport(engine);
	if (!rdma || !rdma->initiator)
		return false;
	neap_rdma_initiator_stats(rdma->initiator, stats_p);
	return true;
}

const char *sim_seat_idle(const struct neap_engine *engine, char *why, size_t why_size)
{
	struct neap_rdma_initiator_stats stats;
	if (!stats_of(engine, &stats) || (stats.requests == 0 && stats.pieces == 0))
		return NULL;
	snprintf(why, why_size, "it is idle, and has %u requests and %u pieces under way", stats.requests, stats.pieces);
	return why;
}

uint64_t sim_seat_posted(const struct neap_engine *engine)
{
	struct neap_rdma_initiator_stats stats;
	return stats_of(engine, &stats) ? stats.pieces_posted : 0;
}
