/* What must hold when the faults have ended, after a bounded time. */
#include "tests/sim/md_inside.h"
#include <stdio.h>

/* A line that has fallen silent takes 30 s to be noticed; then pauses of 5 s, leases, looks now and then, and all that once more. */
#define HEALING_NS (120000 * MS)

static bool idle(void *user)
{
	return md_idle(user);
}

static void end_all(struct md_world *world)
{
	uint64_t longest_ns = 2 * (world->options.timeout_ms * MS + MD_GRACE_NS) + 1000 * MS;
	if (world->result->ok && !sim_run_until(world->sim, idle, world, longest_ns))
		md_violation(world, "a fetch or a call did not end although everything has healed");
	md_check_overdue(world);
}

/* --- who is published --------------------------------------------------------------------------------------------------------------- */

/* The one that says it is published. *claims_p: how many say so; *living_p: how many there are. */
static struct md_node *owner_of(struct md_world *world, uint32_t name, uint32_t *claims_p, uint32_t *living_p)
{
	struct md_node *owner = NULL;
	*claims_p = *living_p = 0;
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		struct md_node *node = world->places[i];
		if (world->name_of[i] != name || !md_node_is_here(node))
			continue;
		(*living_p)++;
		if (node->told != NEAP_OK)
			continue;
		(*claims_p)++;
		owner = node;
	}
	return owner;
}

static bool is_stored(const struct md_world *world, uint32_t name, const struct md_node *owner)
{
	const struct md_state *document = md_truth_now(world, name, MD_DOCUMENT), *address = md_truth_now(world, name, MD_OWNER);
	return document->there && document->version == owner->version && address->there && md_same_address(&address->owner, &owner->address);
}

/* Whoever is not the owner of its name knows it. */
static bool others_know(const struct md_world *world, uint32_t name, const struct md_node *owner)
{
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		const struct md_node *node = world->places[i];
		if (world->name_of[i] == name && md_node_is_here(node) && node != owner && node->told != NEAP_ETAKEN)
			return false;
	}
	return true;
}

static bool name_is_settled(struct md_world *world, uint32_t name)
{
	uint32_t claims, living;
	const struct md_node *owner = owner_of(world, name, &claims, &living);
	bool gone = !md_truth_now(world, name, MD_DOCUMENT)->there && !md_truth_now(world, name, MD_OWNER)->there;
	if (living == 0) /* what a crash has left behind goes when there are leases; what somebody else has put there stays */
		return gone || !world->options.lease_ms || world->options.faults_edit;
	return claims == 1 && is_stored(world, name, owner) && others_know(world, name, owner);
}

static bool settled(void *user)
{
	struct md_world *world = user;
	if (!world->result->ok)
		return true;
	memory_store_expire(&world->memory, world->sim->now_ns);
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (world->places[i]->up && world->places[i]->leaving)
			return false;
	for (uint32_t i = 0; i < world->name_count; i++)
		if (!name_is_settled(world, i))
			return false;
	return world->coming == 0;
}

static void tell_unsettled(struct md_world *world, const char *when)
{
	for (uint32_t i = 0; i < world->name_count && world->result->ok; i++) {
		uint32_t claims, living;
		const struct md_node *owner = owner_of(world, i, &claims, &living);
		const struct md_state *document = md_truth_now(world, i, MD_DOCUMENT), *address = md_truth_now(world, i, MD_OWNER);
		if (name_is_settled(world, i))
			continue;
		md_violation(world, "%s '%s' has %u living processes, %u of which say that they are published%s%u; stored are version %lld and port %d",
		             when, world->names[i].text, living, claims, owner ? ", with version " : ", ", owner ? (unsigned)owner->version : 0u,
		             document->there ? (long long)document->version : -1ll, address->there ? (int)address->owner.port : -1);
	}
	if (world->result->ok)
		md_violation(world, "%s a process is still coming or leaving", when);
}

static void settle(struct md_world *world, const char *when)
{
	if (world->result->ok && !sim_run_until(world->sim, settled, world, HEALING_NS))
		tell_unsettled(world, when);
}

/* --- what users find ----------------------------------------------------------------------------------------------------------------- */

/* What a process writes itself its back-end need not tell it. */
static void fetch_all(struct md_world *world, bool watched)
{
	for (uint32_t name = 0; name < world->name_count; name++) {
		uint32_t claims, living;
		const struct md_node *owner = owner_of(world, name, &claims, &living);
		for (uint32_t i = 0; i < world->options.nodes; i++)
			if (md_node_is_here(world->places[i]) && owner && !(watched && owner == world->places[i]))
				md_fetch(world->places[i], name, world->sim->now_ns, watched, true);
	}
	end_all(world);
}

static void change_all(struct md_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (md_node_is_here(world->places[i]) && world->places[i]->told == NEAP_OK)
			md_node_change(world->places[i], false);
}

/* Some process watches the name of another. */
static bool somebody_watches(struct md_world *world)
{
	uint32_t living = 0, owners = 0;
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		living += md_node_is_here(world->places[i]);
		owners += md_node_is_here(world->places[i]) && world->places[i]->told == NEAP_OK;
	}
	return md_store_tells(world) && owners > 0 && living > 1;
}

/* A cached document is as good as a read one once the notices have come. */
static void check_watches(struct md_world *world)
{
	bool redis = world->options.kind == MD_REDIS, etcd = world->options.kind == MD_ETCD;
	if ((redis || etcd) && somebody_watches(world) && md_sabotage(world, MD_SABOTAGE_MISS_NOTICE))
		world->redis.deaf = world->etcd.deaf = true;
	if (etcd && somebody_watches(world) && md_sabotage(world, MD_SABOTAGE_DROP_CHANGE))
		world->etcd.drops++;
	for (int round = 0; round < 2 && world->result->ok; round++) {
		change_all(world);
		settle(world, "after a change");
		sim_run_for(world->sim, 2 * md_store_notice_ns(world));
		fetch_all(world, true);
	}
}

/* What somebody takes away the publisher puts there again when it is told, long before it would look. */
static void check_repairs(struct md_world *world)
{
	uint64_t repair_ns = 20 * md_store_notice_ns(world);
	for (uint32_t name = 0; name < world->name_count && md_store_tells(world) && world->result->ok; name++) {
		uint32_t claims, living;
		if (!owner_of(world, name, &claims, &living) || living > 1) /* another may be quicker, and then they have to talk */
			continue;
		md_store_put(world, world->names[name].keys[MD_OWNER].text, NULL);
		if (!sim_run_until(world->sim, settled, world, repair_ns))
			tell_unsettled(world, "soon after its address was taken away");
		MD_SEEN(world, repaired);
	}
}

/* The same soon after the connections were lost: everybody has begun to watch again. */
static void check_repairs_after_restart(struct md_world *world)
{
	bool etcd = world->options.kind == MD_ETCD;
	if ((world->options.kind != MD_REDIS && !etcd) || !world->result->ok)
		return;
	md_store_stop(world);
	if (etcd) /* members come back within seconds, not at once; and perhaps with nothing */
		sim_run_for(world->sim, 1000 * MS);
	md_store_start(world, etcd && world->options.faults_wipe);
	sim_run_for(world->sim, 3000 * MS);
	settle(world, "after a restart");
	check_repairs(world);
}

/* A store that has lost everything is filled again: when it is told, or at the next look; whoever shares a name has to talk first. */
static void check_refill(struct md_world *world)
{
	uint64_t refill_ns = (2 * (uint64_t)world->options.refresh_ms + 4 * world->options.timeout_ms + 2000) * MS;
	if (!world->result->ok)
		return;
	md_store_wipe(world);
	if (!sim_run_until(world->sim, settled, world, refill_ns))
		tell_unsettled(world, "two looks after the store had lost everything");
	sim_run_for(world->sim, 2 * md_store_notice_ns(world));
	fetch_all(world, true);
}

/* --- who leaves ------------------------------------------------------------------------------------------------------------------------ */

static bool has_left(void *user)
{
	const struct md_node *node = user;
	return node->left;
}

static void leave(struct md_world *world, struct md_node *node)
{
	uint32_t claims, living, name = world->name_of[node->place];
	bool owned = node->told == NEAP_OK;
	md_node_leave(node);
	if (!sim_run_until(world->sim, has_left, node, HEALING_NS))
		md_violation(world, "node %u does not get to leave", node->node->number);
	md_node_check_leaving(node);
	(void)owner_of(world, name, &claims, &living);
	if (owned && living == 0 && md_sabotage(world, MD_SABOTAGE_LEAVE_BEHIND))
		md_store_put(world, world->names[name].keys[MD_OWNER].text, "{\"ip_or_host_name\":\"10.0.0.99\",\"rpc_port\":1}");
	if (owned && living == 0 && (md_truth_now(world, name, MD_DOCUMENT)->there || md_truth_now(world, name, MD_OWNER)->there))
		md_violation(world, "'%s' is still published after its only process has left", world->names[name].text);
	world->result->sometimes.took_over += owned && living > 0;
	settle(world, "after one has left");
}

/* --- all of it ------------------------------------------------------------------------------------------------------------------------- */

static void unpublish(struct sim *sim, void *user, uint64_t argument)
{
	struct md_world *world = user;
	md_store_put(world, world->names[argument].keys[MD_DOCUMENT].text, NULL);
	if (world->result->ok)
		sim_after(sim, MS, unpublish, world, argument);
}

static void unpublish_one(struct md_world *world)
{
	for (uint32_t name = 0; name < world->name_count; name++) {
		uint32_t claims, living;
		if (owner_of(world, name, &claims, &living) && md_sabotage(world, MD_SABOTAGE_UNPUBLISH))
			unpublish(world->sim, world, name);
	}
}

static void two_owners(struct md_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++)
		if (md_node_is_here(world->places[i]) && world->places[i]->told == NEAP_ETAKEN && md_sabotage(world, MD_SABOTAGE_TWO_OWNERS))
			world->places[i]->told = NEAP_OK;
}

void md_calm(struct md_world *world)
{
	md_end_faults(world);
	end_all(world);
	settle(world, "long after everything has healed");
	sim_run_for(world->sim, SIM_KEEPALIVE_NS); /* what fell silent last is noticed */
	world->calm = true;
	two_owners(world);
	unpublish_one(world);
	settle(world, "after it was settled");
	sim_run_for(world->sim, 2 * world->options.refresh_ms * MS);
	if (world->result->ok && !settled(world))
		tell_unsettled(world, "although it was settled");
	fetch_all(world, false);
	check_watches(world);
	check_repairs(world);
	check_repairs_after_restart(world);
	check_refill(world);
	for (uint32_t i = 0; i < world->options.nodes && world->result->ok; i++)
		if (md_node_is_here(world->places[i]))
			leave(world, world->places[i]);
}
