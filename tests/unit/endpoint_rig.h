/* What the suites about endpoints share: two processes on one reactor and one simulated fabric, each with a device, a helper, a handshake
 * service and caller, and a piece of memory that the other may reach. */
#ifndef UNIT_ENDPOINT_RIG_H
#define UNIT_ENDPOINT_RIG_H

#include "transports/rdma/endpoint_inside.h"
#include "reactor/inside.h"
#include "tests/support/paired_net.h"
#include "tests/support/sim_inside.h"
#include "tests/unit/rdma_rig.h"

#define MEMORY_BYTES 65536u
#define SENT_MAX 4096u

struct node {
	const char *nic;
	char server[64];
	uint16_t port;
	uint8_t instance[16];
	struct sim_helper helper;
	struct neap_topology *topology;
	struct neap_rdma_devices *devices;
	struct neap_rdma_queue queue;
	struct neap_rdma_endpoints *endpoints;
	struct neap_handshake_service *service;
	struct neap_handshake_caller *caller;
	bool begun, devices_closed, endpoints_closed;
	bool deaf; /* requests are kept, and never answered */
	int (*instead)(struct node *node, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply);
	uint32_t requests, answers;
	char last_answer[512]; /* its reply_msg */
	struct neap_connection_message kept_answer; /* the last one, without its texts */
	unsigned char *memory;
	struct neap_verbs_mr *mr;
	struct neap_verbs_keys keys;
};

struct user {
	struct neap_rdma_endpoint_user base; /* first */
	uint32_t usable, room, leaving, gone, turns;
	uint8_t cause;
	char why[NEAP_RDMA_WHY_SIZE];
	bool fence; /* asks for it when it hears LEAVING */
	void (*then)(struct user *user, enum neap_rdma_news news);
};

struct sent {
	struct neap_rdma_endpoint *endpoint; /* NULL: over */
	uint32_t length;
	enum neap_verbs_status status;
	bool completed;
};

static struct node nodes[2];
static struct paired_net net;
static struct neap_rdma_endpoint_options endpoint_options;
static struct sent sents[SENT_MAX];
static uint32_t sent_count, completed_well, completed_badly;

static inline struct node *other_of(const struct node *node)
{
	return &nodes[node == &nodes[0]];
}

/* --- what users hear */

static inline void told(struct neap_rdma_endpoint_user *base, enum neap_rdma_news news)
{
	struct user *user = (struct user *)(void *)base;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	switch (news) {
	case NEAP_RDMA_USABLE: user->usable++; break;
	case NEAP_RDMA_ROOM: user->room++; break;
	case NEAP_RDMA_TURN: user->turns++; break;
	case NEAP_RDMA_LEAVING:
		user->leaving++;
		user->cause = base->endpoint->cause;
		base->endpoint->wants_fence |= user->fence;
		(void)snprintf(user->why, sizeof user->why, "%s", base->endpoint->why);
		break;
	case NEAP_RDMA_GONE:
		user->gone++;
		ck_assert_ptr_null(base->endpoint);
		ck_assert_uint_eq(user->gone, user->leaving);
		break;
	}
	if (user->then)
		user->then(user, news);
}

static inline void user_begin(struct user *user)
{
	*user = (struct user){.base.told = told};
}

/* --- one process */

static inline void completed(void *at, struct neap_rdma_queue *queue, const struct neap_verbs_completion *completions, uint32_t count)
{
	(void)at;
	(void)queue;
	for (uint32_t i = 0; i < count; i++) {
		struct sent *sent = &sents[completions[i].id];
		ck_assert(!sent->completed);
		ck_assert_ptr_nonnull(sent->endpoint);
		sent->completed = true;
		sent->status = completions[i].status;
		*(sent->status ? &completed_badly : &completed_well) += 1;
		if (sent->status != NEAP_WC_SUCCESS)
			neap_rdma_endpoint_retire(sent->endpoint, NEAP_CAUSE_PEER_RESET, "a send failed");
		neap_rdma_endpoint_completed(sent->endpoint, completions[i].qp_number);
		sent->endpoint = NULL;
	}
}

static inline void queue_changed(void *at, struct neap_rdma_queue *queue)
{
	struct node *node = at;
	if (node->endpoints && !node->endpoints_closed)
		ck_assert_int_eq(neap_rdma_endpoints_queue_changed(node->endpoints, queue), NEAP_OK);
}

static inline void device_changed(void *at, struct neap_rdma_device *device)
{
	struct node *node = at;
	(void)device;
	if (node->begun)
		neap_rdma_queue_device_changed(&node->queue);
}

static inline void devices_closed(void *at)
{
	((struct node *)at)->devices_closed = true;
}

static inline void endpoints_closed(void *at)
{
	((struct node *)at)->endpoints_closed = true;
}

static inline void answer_kept(void *at, uint64_t ticket, const struct neap_connection_message *reply)
{
	struct node *node = at;
	node->answers++;
	(void)snprintf(node->last_answer, sizeof node->last_answer, "%s", reply->reply_msg);
	node->kept_answer = *reply;
	(void)neap_handshake_answer(node->service, ticket, reply);
}

static inline int on_connection(void *at, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	struct node *node = at;
	node->requests++;
	if (node->deaf || !node->endpoints || node->endpoints_closed)
		return NEAP_HANDSHAKE_LATER;
	if (node->instead)
		return node->instead(node, ticket, request, reply);
	return neap_rdma_endpoints_asked(node->endpoints, ticket, request, reply);
}

static inline void node_live(struct node *node)
{
	const struct neap_rdma_answers answers = {answer_kept, node};
	node->instance[15]++;
	node->endpoints_closed = false;
	ck_assert_int_eq(neap_rdma_endpoints_create(rig.reactor, &rig.sim.verbs, &node->helper.base, node->caller, &answers, node->server, node->instance,
	                                            &endpoint_options, &node->endpoints), NEAP_OK);
	if (node->queue.usable)
		ck_assert_int_eq(neap_rdma_endpoints_queue_changed(node->endpoints, &node->queue), NEAP_OK);
}

static inline void node_serve(struct node *node)
{
	const struct neap_handshake_handlers handlers = {.connection = on_connection, .user = node};
	struct neap_sockaddr address;
	char why[200];
	int system_errno;
	ck_assert_int_eq(neap_sockaddr_from_numeric("127.0.0.1", node->port, &address), 0);
	ck_assert_int_eq(neap_handshake_service_create(&node->service, rig.reactor, &address, 0, 0, NULL, &handlers, &system_errno, why, sizeof why),
	                 NEAP_OK);
}

static inline void node_begin(struct node *node, const char *nic, uint16_t port)
{
	const struct neap_rdma_options wants = {.retry_ns = 100 * MS, .wants = {.cq_entries = 300}};
	const struct neap_rdma_listener listener = {device_changed, devices_closed, node};
	const struct neap_rdma_queue_listener hears = {completed, queue_changed, node};
	*node = (struct node){.nic = nic, .port = port, .instance = {(uint8_t)port}};
	(void)snprintf(node->server, sizeof node->server, "127.0.0.1:%u", port);
	sim_helper_begin(&node->helper, rig.reactor, MS);
	node->topology = neap_topology_new();
	(void)neap_topology_add_device(node->topology, nic);
	ck_assert_int_eq(neap_rdma_devices_open(rig.reactor, &rig.sim.verbs, &node->helper.base, node->topology, &wants, &listener, &node->devices),
	                 NEAP_OK);
	ck_assert_int_eq(neap_rdma_queue_begin(&node->queue, rig.reactor, &rig.sim.verbs, neap_rdma_devices_at(node->devices, 0), &hears), NEAP_OK);
	node->begun = true;
	ck_assert_int_eq(neap_handshake_caller_create(&node->caller, rig.reactor, 64, 0, NULL), NEAP_OK);
	node_live(node);
	node_serve(node);
	node->memory = calloc(1, MEMORY_BYTES);
}

/* Memory for sends, once the device is open. */
static inline void node_register(struct node *node)
{
	ck_assert(node->queue.usable);
	ck_assert_int_eq(rig.sim.ops.register_memory(node->queue.device->handle.pd, node->memory, MEMORY_BYTES,
	                                             NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_READ, &node->mr, &node->keys), 0);
}

static inline void node_deregister(struct node *node)
{
	if (node->mr)
		ck_assert_int_eq(rig.sim.ops.deregister_memory(node->mr), 0);
	node->mr = NULL;
}

/* Its process ends: its endpoints are destroyed, and nobody is told. */
static inline void node_die(struct node *node)
{
	neap_rdma_endpoints_close(node->endpoints, endpoints_closed, node);
	for (int i = 0; i < 1000 && !node->endpoints_closed; i++)
		rig_pass(MS);
	ck_assert(node->endpoints_closed);
	node->endpoints = NULL;
}

static inline void node_restart(struct node *node)
{
	node_die(node);
	node_live(node);
}

static inline void node_end(struct node *node)
{
	sim_helper_hold(&node->helper, false);
	if (node->endpoints)
		node_die(node);
	node_deregister(node);
	neap_handshake_service_destroy(node->service);
	neap_handshake_caller_destroy(node->caller);
	neap_rdma_devices_close(node->devices);
	for (int i = 0; i < 1000 && !node->devices_closed; i++)
		rig_pass(MS);
	ck_assert(node->devices_closed);
	neap_rdma_queue_end(&node->queue);
	neap_helper_end(&node->helper.base);
	neap_topology_free(node->topology);
	free(node->memory);
}

/* --- both */

/* Short times, so that what is waited for is seen. */
static inline void begin_seeded(uint64_t seed)
{
	endpoint_options = (struct neap_rdma_endpoint_options){
		.endpoints_max = 8,
		.depth = 8,
		.handshake_timeout_ns = 300 * MS,
		.ack_timeout_ns = 500 * MS,
		.progress_timeout_ns = 400 * MS,
		.drain_timeout_ns = 200 * MS,
		.slow_ns = 50 * MS,
		.stay_ns = 1,
		.idle_ns = 1,
		.timeout = 10,
	};
	rig_begin();
	paired_net_begin(&net, rig.reactor, seed);
	rig.sim.random = seed;
	sent_count = completed_well = completed_badly = 0;
	memset(sents, 0, sizeof sents);
	node_begin(&nodes[0], "rxe0", 7000);
	node_begin(&nodes[1], "rxe1", 7001);
	rig_pass(10 * MS);
	ck_assert(nodes[0].queue.usable && nodes[1].queue.usable);
}

static inline void begin(void)
{
	begin_seeded(7);
}

static inline void end(void)
{
	node_end(&nodes[0]);
	node_end(&nodes[1]);
	rig_pass(10 * MS);
	paired_net_end(&net);
	for (uint32_t i = 0; i < sent_count; i++)
		sents[i].endpoint = NULL;
	rig_end();
}

static inline struct neap_rdma_target target_of(const struct node *node)
{
	struct neap_rdma_target target = {
		.server = node->server, .nic = node->nic, .address = {.host = "127.0.0.1", .port = node->port, .has_port = true}, .is_neap = true};
	memcpy(target.gid, node->queue.gid.gid, sizeof target.gid);
	memcpy(target.instance, node->instance, sizeof target.instance);
	return target;
}

static inline int try_use(struct node *node, struct user *user)
{
	const struct neap_rdma_target target = target_of(other_of(node));
	user_begin(user);
	return neap_rdma_endpoint_use(node->endpoints, &node->queue, &target, &user->base);
}

static inline void use(struct node *node, struct user *user)
{
	ck_assert_int_eq(try_use(node, user), NEAP_OK);
	ck_assert_ptr_nonnull(user->base.endpoint);
}

static inline uint8_t state_of(const struct user *user)
{
	return user->base.endpoint->machine.state;
}

static inline void ck_state(const struct user *user, uint8_t state)
{
	ck_assert_msg(state_of(user) == state, "%s, not %s", neap_machine_state_name(&user->base.endpoint->machine),
	              neap_fsm_rdma_endpoint.states[state].name);
}

/* Time passes until the endpoint is there. */
static inline void until(const struct user *user, uint8_t state)
{
	for (int i = 0; i < 100000 && user->base.endpoint && state_of(user) != state; i++)
		rig_pass(MS / 10);
	ck_assert_ptr_nonnull(user->base.endpoint);
	ck_state(user, state);
}

static inline void until_gone(const struct user *user)
{
	for (int i = 0; i < 5000 && user->gone == 0; i++)
		rig_pass(MS);
	ck_assert_uint_eq(user->gone, 1);
}

/* The only endpoint of a process that does not leave; NULL: none. */
static inline struct rdma_endpoint *sole(const struct node *node)
{
	ck_assert_uint_le(node->endpoints->staying, 1);
	return node->endpoints->newest;
}

static inline uint32_t post(struct node *node, struct user *user, uint32_t count, enum neap_verbs_opcode opcode, uint32_t length)
{
	struct neap_verbs_send sends[64];
	const struct node *to = other_of(node);
	ck_assert_uint_le(count, 64);
	for (uint32_t i = 0; i < count; i++) {
		sents[sent_count + i] = (struct sent){.endpoint = user->base.endpoint, .length = length};
		sends[i] = (struct neap_verbs_send){.id = sent_count + i, .opcode = opcode, .length = length, .lkey = node->keys.lkey, .rkey = to->keys.rkey,
		                                    .local = (uint64_t)(uintptr_t)node->memory, .remote = (uint64_t)(uintptr_t)to->memory};
	}
	uint32_t posted = neap_rdma_endpoint_post(user->base.endpoint, sends, count);
	sent_count += posted;
	return posted;
}

/* A transfer through it, there and seen. */
static inline void ck_carries(struct node *node, struct user *user)
{
	uint32_t well = completed_well;
	if (!nodes[0].mr)
		node_register(&nodes[0]);
	if (!nodes[1].mr)
		node_register(&nodes[1]);
	memset(node->memory, 0x5a, 3000);
	memset(other_of(node)->memory, 0, 3000);
	ck_assert_uint_eq(post(node, user, 4, NEAP_VERBS_WRITE, 3000), 4);
	ck_assert_uint_eq(user->base.endpoint->owed, 4);
	rig_pass(20 * MS);
	ck_assert_uint_eq(completed_well, well + 4);
	ck_assert_uint_eq(user->base.endpoint->owed, 0);
	ck_assert_mem_eq(node->memory, other_of(node)->memory, 3000);
}

#endif
