/* The processes: starting, changing, dying, leaving. */
#include "tests/sim/md_inside.h"
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NAMES_MAX 16u
#define PROBES_MAX 8u

/* --- what it tells of itself ---------------------------------------------------------------------------------------------------- */

static char *describe(void *user, size_t *length_p)
{
	struct md_node *node = user;
	struct md_world *world = node->world;
	char why[200], *text = NULL, name[32];
	(void)snprintf(name, sizeof name, "%s", world->names[world->name_of[node->place]].text);
	struct neap_descriptor descriptor = {.name = name, .tcp_data_port = 16000, .tcp_proto_version = 2};
	descriptor.neap.present = true;
	descriptor.neap.level = 1;
	descriptor.neap.version = node->version;
	memcpy(descriptor.neap.instance, node->instance, sizeof node->instance);
	if (neap_descriptor_encode(&descriptor, 0, true, 65536, &text, length_p, why, sizeof why))
		md_violation(world, "a document cannot be made: %s", why);
	node->described = node->version;
	return text;
}

/* Who asks for it itself is shown it as it is; only what is written counts as told. */
static char *show(void *user, size_t *length_p)
{
	struct md_node *node = user;
	uint64_t described = node->described;
	char *text = describe(node, length_p);
	node->described = described;
	return text;
}

static bool is_old(void *user)
{
	const struct md_node *node = user;
	return node->described != node->version;
}

static void told(void *user, int error, const char *why)
{
	struct md_node *node = user;
	struct md_world *world = node->world;
	md_log(world, "node %u: %s%s%s", node->node->number, error ? neap_error_name(error) : "published", error ? ": " : "", why);
	sim_fold(world->sim, (uint64_t)(-(int64_t)error) << 8 | node->place);
	node->told = error;
	world->result->sometimes.published += error == NEAP_OK;
	world->result->sometimes.taken += error == NEAP_ETAKEN;
	world->result->sometimes.in_the_way += error != NEAP_OK && error != NEAP_ETAKEN;
}

static void take_version(struct md_node *node)
{
	struct md_world *world = node->world;
	node->version = ++world->versions;
	world->writers[node->version % MD_VERSIONS_MAX] = (uint8_t)node->life;
}

bool md_node_wrote(const struct md_node *node, uint64_t version)
{
	return node->world->writers[version % MD_VERSIONS_MAX] == node->life;
}

void md_node_change(struct md_node *node, bool quietly)
{
	struct md_world *world = node->world;
	take_version(node);
	md_log(world, "node %u: version %" PRIu64 "%s", node->node->number, node->version, quietly ? ", quietly" : "");
	if (!quietly)
		neap_publisher_changed(node->publisher);
	world->result->sometimes.changed++;
	world->result->sometimes.changed_quietly += quietly;
}

/* --- starting ------------------------------------------------------------------------------------------------------------------- */

static int start_service(struct md_node *node)
{
	struct neap_handshake_handlers handlers = {.describe = show, .user = node};
	struct neap_handshake_service_options options = {.sessions_max = 16};
	struct neap_sockaddr address;
	int system_errno;
	char why[300];
	(void)neap_sockaddr_from_numeric(node->address.host, node->address.port, &address);
	return neap_handshake_service_create(&node->service, node->node->reactor, &address, 0, 0, &options, &handlers, &system_errno, why,
	                                     sizeof why);
}

static int start_publisher(struct md_node *node)
{
	struct md_world *world = node->world;
	const struct md_options *o = &world->options;
	struct neap_publisher_options options = {.backend = node->backend,
	                                         .caller = node->caller,
	                                         .cluster = o->cluster ? "east" : NULL,
	                                         .name = world->names[world->name_of[node->place]].text,
	                                         .address = node->address,
	                                         .timeout_ns = o->timeout_ms * MS,
	                                         .refresh_ns = o->refresh_ms * MS,
	                                         .lease_ns = o->lease_ms * MS,
	                                         .describe = describe,
	                                         .is_old = is_old,
	                                         .instance = node->instance,
	                                         .told = told,
	                                         .user = node};
	return neap_publisher_create(&node->publisher, node->node->reactor, &options);
}

static int start_parts(struct md_node *node)
{
	struct md_world *world = node->world;
	struct neap_reactor *reactor = node->node->reactor;
	int error = md_store_open(node);
	if (!error)
		error = neap_handshake_caller_create(&node->caller, reactor, PROBES_MAX, 0, NULL);
	if (!error)
		error = start_service(node);
	if (!error)
		error = neap_directory_create(&node->directory, reactor, node->backend, world->options.cluster ? "east" : NULL, NAMES_MAX,
		                              world->options.timeout_ms * MS);
	return error ? error : start_publisher(node);
}

static void close_parts(struct md_node *node)
{
	neap_publisher_destroy(node->publisher);
	neap_directory_destroy(node->directory);
	if (node->service)
		neap_handshake_service_destroy(node->service);
	if (node->backend)
		node->backend->ops->destroy(node->backend);
	if (node->caller)
		neap_handshake_caller_destroy(node->caller);
	node->publisher = NULL;
	node->directory = NULL;
	node->service = NULL;
	node->backend = NULL;
	node->caller = NULL;
}

bool md_node_start(struct md_world *world, uint32_t place, uint32_t host, uint16_t port)
{
	struct md_node *node = calloc(1, sizeof *node);
	if (!node)
		abort();
	world->lives[world->life_count++] = world->places[place] = node;
	node->world = world;
	node->place = place;
	node->told = 1;
	node->life = world->life_count;
	take_version(node);
	node->instance[0] = (uint8_t)node->life;
	node->node = sim_node_create(world->sim, host);
	node->address = (struct neap_host_port){.port = port, .has_port = true};
	sim_node_address(node->node, node->address.host, sizeof node->address.host);
	if (world->faults && world->options.faults_memory && sim_random_chance(md_chance(world), 400))
		node->node->fail_allocation_at = node->node->allocations + sim_random_below(md_chance(world), 16);
	int error = start_parts(node);
	bool out_of_memory = node->node->fail_allocation_at < node->node->allocations;
	if (error && !out_of_memory)
		md_violation(world, "a node cannot start: %s", neap_error_text(error));
	world->result->sometimes.memory_failed_at_start += error != 0;
	if (error)
		close_parts(node);
	md_log(world, "node %u starts at %s:%u as %s, version %" PRIu64, node->node->number, node->address.host, port,
	       world->names[world->name_of[place]].text, node->version);
	node->up = !error;
	return node->up;
}

/* --- ending --------------------------------------------------------------------------------------------------------------------- */

void md_node_crash(struct md_node *node, bool host_dies)
{
	struct md_world *world = node->world;
	md_log(world, "node %u crashes", node->node->number);
	node->up = false;
	md_ops_gone(node);
	md_store_died(world, node->node, host_dies);
	sim_node_crash(node->node, host_dies);
	MD_SEEN(world, crashed);
	world->result->sometimes.host_died += host_dies;
}

static void end_process(struct sim *sim, void *user, uint64_t argument)
{
	struct md_node *node = user;
	(void)sim;
	(void)argument;
	close_parts(node);
	node->up = false;
}

/* From a turn: what is left of it is closed later. */
static void withdrawn(void *user)
{
	struct md_node *node = user;
	sim_after(node->world->sim, MS, end_process, node, 0);
	md_log(node->world, "node %u has left", node->node->number);
	if (node->left)
		md_violation(node->world, "node %u was told twice that it has withdrawn", node->node->number);
	node->left = true;
}

void md_node_leave(struct md_node *node)
{
	md_log(node->world, "node %u leaves", node->node->number);
	md_ops_gone(node);
	neap_directory_destroy(node->directory);
	node->directory = NULL;
	node->leaving = true;
	node->leaving_since_ns = node->world->sim->now_ns;
	node->paused_before_ns = node->world->paused_ns[node->place];
	neap_publisher_withdraw(node->publisher, withdrawn, node);
}

/* What the publisher's header promises: three times the timeout of a call. */
void md_node_check_leaving(const struct md_node *node)
{
	struct md_world *world = node->world;
	uint64_t longest_ns = 3 * (world->options.timeout_ms * MS + MD_GRACE_NS) + (world->paused_ns[node->place] - node->paused_before_ns);
	if (node->leaving && !node->left && world->sim->now_ns > node->leaving_since_ns + longest_ns)
		md_violation(world, "node %u has not withdrawn in three times its timeout", node->node->number);
}

bool md_node_is_awake(const struct md_node *node)
{
	return md_node_is_here(node) && !(node->node->paused && node->world->sim->now_ns < node->node->paused_until_ns);
}

static void close_node(struct sim_node *sim_node, void *user)
{
	(void)sim_node;
	close_parts(user);
}

void md_node_finish(struct md_node *node)
{
	struct md_world *world = node->world;
	size_t left = sim_node_finish(node->node, close_node, node);
	uint32_t lines = md_store_open_ends(world, node->node);
	if (md_sabotage(world, MD_SABOTAGE_LEAK))
		left = 1;
	if (left || lines)
		md_violation(world, "node %u leaves %zu bytes and %u connections", node->node->number, left, lines);
}
