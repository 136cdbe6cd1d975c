/* The store as an etcd cluster: how it is reached, and what goes wrong in it alone. */
#include "tests/sim/md_inside.h"
#include "metadata/etcd.h"
#include <stdio.h>
#include <string.h>

/* The longest that a stream which ends is being taken up again before everybody is told: a token, the word that it has begun, each twice. */
#define RESUMING_NS (10000 * MS)

void md_etcd_init(struct md_world *world)
{
	struct sim_etcd_server *etcd = &world->etcd;
	sim_etcd_server_init(etcd, world->sim, 0);
	etcd->password = world->options.password ? MD_SECRET : NULL;
	etcd->overwrites = world->options.sabotage == MD_SABOTAGE_OVERWRITE;
	etcd->state.changed = md_truth_changed;
	etcd->state.user = world;
}

int md_etcd_open(struct md_node *node)
{
	const struct md_world *world = node->world;
	char connection[100] = "etcd://", why[200];
	for (uint32_t i = 0; i < world->etcd.member_count; i++) {
		size_t length = strlen(connection);
		(void)snprintf(connection + length, sizeof connection - length, "%s10.9.9.%u:2379", i ? "," : "", i + 1);
	}
	struct neap_backend_options options = {.connection = connection, .calls_max = 64};
	if (world->options.password) {
		options.etcd_username = "neap";
		options.etcd_password = MD_SECRET;
	}
	sim_http_driver_init(&node->http, (struct sim_http_server *)(uintptr_t)&world->etcd.members[0].http, node->node);
	return neap_etcd_create(&node->backend, node->node->reactor, &options, &node->http.driver, why, sizeof why);
}

static uint64_t slowest_ns(const struct md_world *world)
{
	uint64_t slowest_ns = 0;
	for (uint32_t i = 0; i < world->etcd.member_count; i++) {
		const struct sim_etcd_member *member = &world->etcd.members[i];
		const struct sim_server *server = &member->http.server;
		uint64_t ns = server->delay_max_ns + (server->lag_per_mille ? server->lag_max_ns : 0) + member->lag_ns;
		slowest_ns = ns > slowest_ns ? ns : slowest_ns;
	}
	return slowest_ns;
}

/* A stream that was taken up in a life of the cluster that had overtaken it has missed something, and cannot know: no word on the wire tells
 * one life from another. */
uint64_t md_etcd_notice_ns(const struct md_world *world)
{
	const struct md_options *o = &world->options;
	uint64_t usual_ns = slowest_ns(world) + 20 * MS + 100 * world->sim->host.latency_max_ns;
	if (world->calm)
		return usual_ns;
	if (world->etcd.overtaken)
		return UINT64_MAX;
	uint64_t silence_ns = o->faults_silent || o->faults_dark ? SIM_KEEPALIVE_NS : 0;
	uint64_t still_ns = o->faults_still ? o->fault_max_ms * MS : 0;
	return usual_ns + silence_ns + still_ns + (o->fault_period_ms ? RESUMING_NS : 0);
}

uint32_t md_etcd_exchanges(const struct md_world *world)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < world->etcd.member_count; i++)
		count += world->etcd.members[i].http.exchanges;
	return count;
}

uint32_t md_etcd_open_ends(const struct md_world *world, const struct sim_node *node)
{
	uint32_t count = 0;
	for (uint32_t i = 0; i < world->etcd.member_count; i++)
		count += sim_server_lines_of(&world->etcd.members[i].http.server, node);
	return count;
}

/* --- faults -------------------------------------------------------------------------------------------------------------------- */

static void start_member(struct sim *sim, void *user, uint64_t index)
{
	struct md_world *world = user;
	(void)sim;
	if (!world->etcd.members[index].http.server.down || world->memory.down) /* it comes back with all of them */
		return;
	md_log(world, "member %u starts again", (unsigned)index);
	sim_etcd_member_start(&world->etcd.members[index]);
}

bool md_etcd_stop_one(struct md_world *world, uint64_t ns)
{
	struct sim_etcd_server *etcd = &world->etcd;
	uint64_t index = sim_random_below(md_chance(world), etcd->member_count);
	bool one = sim_random_chance(md_chance(world), 700), softly = sim_random_chance(md_chance(world), 500);
	if (etcd->member_count == 1 || !one)
		return false;
	if (etcd->members[index].http.server.down)
		return true;
	md_log(world, "member %u ends", (unsigned)index);
	sim_etcd_member_stop(&etcd->members[index], softly);
	sim_after(world->sim, ns, start_member, world, index);
	MD_SEEN(world, member_stopped);
	return true;
}

void md_etcd_lose_leader(struct md_world *world)
{
	if (world->options.kind != MD_ETCD || world->memory.down)
		return;
	md_log(world, "the cluster has no leader");
	sim_etcd_server_lose_leader(&world->etcd, md_a_while_ns(world));
	MD_SEEN(world, leaderless);
}

void md_etcd_compact(struct md_world *world)
{
	if (world->options.kind != MD_ETCD)
		return;
	sim_etcd_compact(&world->etcd.state);
	MD_SEEN(world, compacted);
}

void md_etcd_change_users(struct md_world *world)
{
	if (world->options.kind != MD_ETCD || !world->options.password)
		return;
	if (sim_random_chance(md_chance(world), 500))
		sim_etcd_server_forget_tokens(&world->etcd);
	else
		sim_etcd_server_change_users(&world->etcd);
	MD_SEEN(world, users_changed);
}

void md_etcd_tear(struct md_world *world)
{
	world->etcd.tears = world->options.kind == MD_ETCD;
}

void md_etcd_refuse(struct md_world *world)
{
	static const struct {
		long status;
		int code;
		const char *said;
	} refusals[] = {{503, 14, "etcdserver: request timed out"}, {429, 8, "etcdserver: mvcc: database space exceeded"},
	                {403, 7, "etcdserver: permission denied"}, {429, 8, "etcdserver: too many requests"}};
	if (world->options.kind != MD_ETCD)
		return;
	uint64_t which = sim_random_below(md_chance(world), sizeof refusals / sizeof *refusals);
	world->etcd.refusal = refusals[which].said;
	world->etcd.refusal_status = refusals[which].status;
	world->etcd.refusal_code = refusals[which].code;
	if (!world->options.password || !sim_random_chance(md_chance(world), 300))
		return;
	world->etcd.password = "another";
	sim_etcd_server_change_users(&world->etcd);
	MD_SEEN(world, locked_out);
}

/* --- healing ------------------------------------------------------------------------------------------------------------------- */

void md_etcd_light(struct md_world *world)
{
	for (uint32_t i = 0; i < world->etcd.member_count; i++)
		world->etcd.members[i].http.server.dark = false;
}

void md_etcd_serve(struct md_world *world)
{
	world->etcd.password = world->options.password ? MD_SECRET : NULL;
	world->etcd.refusal = NULL;
}

void md_etcd_heal(struct md_world *world)
{
	struct sim_etcd_server *etcd = &world->etcd;
	for (uint32_t i = 0; i < etcd->member_count; i++) {
		struct sim_server *server = &etcd->members[i].http.server;
		if (server->down)
			sim_etcd_member_start(&etcd->members[i]);
		server->still_until_ns = 0;
		server->lag_per_mille = 0;
		etcd->members[i].lag_ns = 0;
	}
	md_etcd_light(world);
	etcd->tears = false;
	sim_etcd_server_lose_leader(etcd, 0);
}

void md_etcd_count(struct md_world *world)
{
	struct md_sometimes *sometimes = &world->result->sometimes;
	const struct sim_etcd_server *etcd = &world->etcd;
	for (uint32_t i = 0; i < etcd->member_count; i++) {
		sometimes->lost += etcd->members[i].http.server.lost;
		sometimes->repeated += etcd->members[i].http.server.repeated;
	}
	sometimes->notified += etcd->told;
	sometimes->lease_ended += etcd->state.leases_ended;
	sometimes->resumed_compacted += etcd->compacted;
	sometimes->token_refused += etcd->refused_tokens;
	sometimes->token_expired += etcd->expired_tokens;
	sometimes->stream_resumed += etcd->resumed;
	sometimes->stream_resumed_before += etcd->resumed_before;
	sometimes->stream_overtaken += etcd->overtaken;
	sometimes->stream_torn += etcd->torn;
	world->result->sabotaged |= etcd->overwritten > 0;
}
