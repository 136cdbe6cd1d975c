/* What users do: fetches through the directory, calls to the back-end, changes of documents; and what they are told. */
#include "tests/sim/md_inside.h"
#include <stdio.h>
#include <string.h>

#define SLACK_NS (60 * MS) /* timers, turns of one event, hosts that wake late */
#define LATE_NS UINT64_C(60000000000)

static struct md_op *take_op(struct md_node *node, enum md_op_kind kind, uint32_t name)
{
	struct md_world *world = node->world;
	for (uint32_t i = 0; i < MD_OPS_MAX; i++) {
		struct md_op *op = &world->ops[i];
		if (op->used)
			continue;
		*op = (struct md_op){.world = world, .node = node, .kind = (uint8_t)kind, .name = (uint8_t)name, .used = true};
		op->began_ns = world->sim->now_ns;
		op->paused_ns = world->paused_ns[node->place];
		world->issued++;
		return op;
	}
	return NULL;
}

/* Fetches end with their directory; a call goes on until it is canceled. */
void md_ops_gone(struct md_node *node)
{
	for (uint32_t i = 0; i < MD_OPS_MAX; i++) {
		struct md_op *op = &node->world->ops[i];
		if (!op->used || op->node != node)
			continue;
		if (op->kind == MD_CALL && node->up)
			node->backend->ops->cancel(node->backend, op->call);
		op->used = false;
	}
}

bool md_idle(struct md_world *world)
{
	for (uint32_t i = 0; i < MD_OPS_MAX; i++)
		if (world->ops[i].used && !world->ops[i].ended)
			return false;
	return true;
}

/* --- whether it ended, once, in time ---------------------------------------------------------------------------------------------- */

static const char *text_of(const struct md_op *op)
{
	return op->world->names[op->name].text;
}

static uint64_t latest_ns(const struct md_op *op)
{
	return op->deadline_ns + SLACK_NS + (op->world->paused_ns[op->node->place] - op->paused_ns);
}

static void check_end(struct md_op *op, uint64_t now_ns)
{
	if (op->ended)
		md_violation(op->world, "node %u: the %s of '%s' ended twice", op->node->node->number, op->kind == MD_FETCH ? "fetch" : "call",
		             text_of(op));
	if (now_ns > latest_ns(op))
		md_violation(op->world, "node %u: the %s of '%s' ended %llu ms after its deadline", op->node->node->number,
		             op->kind == MD_FETCH ? "fetch" : "call", text_of(op), (unsigned long long)((now_ns - op->deadline_ns) / MS));
}

/* False: its end is swallowed, as a sabotage. */
static bool end_op(struct md_op *op)
{
	struct md_world *world = op->world;
	if (md_sabotage(world, MD_SABOTAGE_NEVER_END))
		return false;
	check_end(op, world->sim->now_ns + (md_sabotage(world, MD_SABOTAGE_END_LATE) ? LATE_NS : 0));
	op->ended = true;
	if (md_sabotage(world, MD_SABOTAGE_END_TWICE))
		check_end(op, world->sim->now_ns);
	op->used = false;
	return true;
}

void md_check_overdue(struct md_world *world)
{
	for (uint32_t i = 0; i < MD_OPS_MAX; i++) {
		const struct md_op *op = &world->ops[i];
		if (op->used && !op->ended && world->sim->now_ns > latest_ns(op) + SLACK_NS)
			md_violation(world, "node %u: the %s of '%s' has not ended although its deadline has passed", op->node->node->number,
			             op->kind == MD_FETCH ? "fetch" : "call", text_of(op));
	}
	for (uint32_t i = 0; i < world->life_count; i++)
		md_node_check_leaving(world->lives[i]);
}

/* --- fetches ---------------------------------------------------------------------------------------------------------------------- */

/* What a fetch brought, as its user sees it. */
struct brought {
	int error;
	uint64_t version;
	struct neap_host_port owner;
	char name[64];
};

static void sabotage(const struct md_op *op, struct brought *brought)
{
	struct md_world *world = op->world;
	if (brought->error)
		return;
	if (md_sabotage(world, MD_SABOTAGE_HIDE_NAME))
		brought->error = NEAP_EMETADATA;
	else if (md_sabotage(world, MD_SABOTAGE_OTHER_NAME))
		(void)snprintf(brought->name, sizeof brought->name, "another");
	else if (md_sabotage(world, MD_SABOTAGE_OLD_DOCUMENT))
		brought->version = 0;
	else if (md_sabotage(world, MD_SABOTAGE_OTHER_OWNER))
		brought->owner.port++;
}

static void check_found(const struct md_op *op, const struct brought *brought)
{
	struct md_world *world = op->world;
	const char *how = op->watched ? "a watched fetch" : "a fetch";
	if (strcmp(brought->name, text_of(op)) != 0)
		md_violation(world, "node %u: a fetch of '%s' brought the document of '%s'", op->node->node->number, text_of(op), brought->name);
	else if (!md_truth_was_version(world, op->name, brought->version, op->since_ns))
		md_violation(world, "node %u: %s of '%s' brought version %llu, which was not there while it ran", op->node->node->number, how,
		             text_of(op), (unsigned long long)brought->version);
	else if (!md_truth_was_owner(world, op->name, &brought->owner, op->since_ns))
		md_violation(world, "node %u: %s of '%s' brought %s:%u as its owner, which was not there while it ran", op->node->node->number, how,
		             text_of(op), brought->owner.host, brought->owner.port);
}

static void check_brought(const struct md_op *op, const struct brought *brought, const char *why)
{
	struct md_world *world = op->world;
	bool missing = brought->error == NEAP_EMETADATA;
	if (!brought->error)
		check_found(op, brought);
	else if (op->must_find)
		md_violation(world, "node %u: a fetch of '%s' failed although everything has healed: %s", op->node->node->number, text_of(op), why);
	if (missing && !md_truth_was_missing(world, op->name, MD_DOCUMENT, op->missing_since_ns) &&
	    !md_truth_was_missing(world, op->name, MD_OWNER, op->missing_since_ns))
		md_violation(world, "node %u: a fetch said that there is no '%s', and it was there all the while: %s", op->node->node->number,
		             text_of(op), why);
}

static void count_fetch(struct md_op *op, const struct brought *brought)
{
	struct md_result *result = op->world->result;
	result->found += !brought->error;
	result->missing += brought->error == NEAP_EMETADATA;
	result->failed += brought->error && brought->error != NEAP_EMETADATA;
	result->sometimes.found += !brought->error;
	result->sometimes.found_watched += !brought->error && op->watched;
	result->sometimes.missing += brought->error == NEAP_EMETADATA;
	result->sometimes.unreachable += brought->error && brought->error != NEAP_EMETADATA;
	result->sometimes.worked_after_faults += !brought->error && op->world->calm;
}

static void found(void *user, int error, struct neap_snapshot *snapshot, const char *why)
{
	struct md_op *op = user;
	struct md_world *world = op->world;
	struct brought brought = {.error = error};
	if (!error) {
		brought.version = snapshot->descriptor->neap.version;
		brought.owner = snapshot->owner;
		(void)snprintf(brought.name, sizeof brought.name, "%s", snapshot->descriptor->name);
		world->result->sometimes.served_from_cache += op->watched && snapshot->fetched_ns < op->began_ns;
	}
	md_log(world, "node %u: '%s' is version %llu of port %u: %s", op->node->node->number, text_of(op), (unsigned long long)brought.version,
	       brought.owner.port, error ? why : "found");
	sim_fold(world->sim, (uint64_t)(-(int64_t)error) << 32 | brought.version);
	sabotage(op, &brought);
	if (!end_op(op))
		return;
	count_fetch(op, &brought);
	check_brought(op, &brought, why);
}

/* What a process does to its own keys itself it need not be told. */
static bool may_be_its_own_doing(const struct md_node *node, uint32_t name)
{
	const struct md_world *world = node->world;
	const struct md_state *document = md_truth_now(world, name, MD_DOCUMENT), *address = md_truth_now(world, name, MD_OWNER);
	bool its_document = !document->there || md_node_wrote(node, document->version);
	return world->name_of[node->place] == name && (its_document || !address->there || md_same_address(&address->owner, &node->address));
}

/* As old as a notice is under way. */
static uint64_t oldest_cached_ns(const struct md_node *node, uint32_t name)
{
	uint64_t now_ns = node->world->sim->now_ns, notice_ns = md_store_notice_ns(node->world);
	return notice_ns > now_ns || may_be_its_own_doing(node, name) ? 0 : now_ns - notice_ns;
}

/* A lookup may have to wait for the end of a fetch that began before it, and then for its own. */
void md_fetch(struct md_node *node, uint32_t name, uint64_t not_before_ns, bool watched, bool must_find)
{
	struct md_world *world = node->world;
	uint64_t now_ns = world->sim->now_ns;
	uint64_t fetch_ns = world->options.timeout_ms * MS + MD_GRACE_NS;
	struct md_op *op = take_op(node, MD_FETCH, name);
	if (!op)
		return;
	op->watched = op->lookup.watched_will_do = watched;
	op->must_find = must_find;
	op->deadline_ns = now_ns + 2 * fetch_ns;
	op->missing_since_ns = not_before_ns;
	op->since_ns = watched ? oldest_cached_ns(node, name) : not_before_ns;
	if (op->since_ns > not_before_ns)
		op->since_ns = not_before_ns;
	int error = neap_directory_lookup(node->directory, world->names[name].text, not_before_ns, &op->lookup, found, op);
	if (error)
		md_violation(world, "node %u: a lookup is refused: %s", node->node->number, neap_error_text(error));
}

/* --- calls to the back-end, as programs make them ---------------------------------------------------------------------------------- */

static void answered(void *user, int error, const char *value, size_t length, const char *why)
{
	struct md_op *op = user;
	struct md_world *world = op->world;
	(void)value;
	sim_fold(world->sim, (uint64_t)(-(int64_t)error) << 32 | length);
	md_log(world, "node %u: a call about '%s': %s", op->node->node->number, text_of(op), error ? why : "answered");
	if (!end_op(op))
		return;
	MD_SEEN(world, called);
	world->result->sometimes.call_failed += error && error != NEAP_EMETADATA;
	if (error == NEAP_EMETADATA && !md_truth_was_missing(world, op->name, (enum md_part)op->part, op->began_ns))
		md_violation(world, "node %u: a call said that '%s' is not there, and it was", op->node->node->number, text_of(op));
}

static void call(struct md_node *node, uint32_t name)
{
	struct md_world *world = node->world;
	struct sim_random *random = md_chance(world);
	uint64_t timeout_ns = (1 + sim_random_below(random, 2 * world->options.timeout_ms)) * MS;
	bool gets = sim_random_chance(random, 600), cancels = sim_random_chance(random, world->options.cancel_per_mille);
	uint64_t cancel_after_ns = sim_random_below(random, timeout_ns);
	struct md_op *op = take_op(node, MD_CALL, name);
	if (!op)
		return;
	op->part = sim_random_chance(random, 500) ? MD_DOCUMENT : MD_OWNER;
	op->deadline_ns = op->began_ns + timeout_ns;
	const char *key = world->names[name].keys[op->part].text;
	const struct neap_backend_ops *ops = node->backend->ops;
	int error = gets ? ops->get(node->backend, key, timeout_ns, answered, op, &op->call)
	                 : ops->touch(node->backend, key, 0, timeout_ns, answered, op, &op->call);
	if (error)
		op->used = false;
	if (error || !cancels || cancel_after_ns > timeout_ns / 3)
		return;
	ops->cancel(node->backend, op->call);
	op->used = false;
	MD_SEEN(world, canceled);
}

static void cancel_a_fetch(struct md_node *node)
{
	struct md_world *world = node->world;
	for (uint32_t i = 0; i < MD_OPS_MAX; i++) {
		struct md_op *op = &world->ops[i];
		if (!op->used || op->ended || op->kind != MD_FETCH || op->node != node)
			continue;
		neap_directory_lookup_cancel(node->directory, &op->lookup);
		op->used = false;
		MD_SEEN(world, canceled);
		return;
	}
}

/* --- the work ---------------------------------------------------------------------------------------------------------------------- */

static void work_once(struct md_world *world, struct md_node *node)
{
	const struct md_options *o = &world->options;
	struct sim_random *random = &world->sim->random[SIM_WORKLOAD];
	uint32_t name = (uint32_t)sim_random_below(random, world->name_count);
	uint64_t age_ns = sim_random_chance(random, o->relaxed_per_mille) ? sim_random_below(random, 5000 * MS) : 0;
	bool watched = sim_random_chance(random, o->watched_per_mille), quietly = sim_random_chance(random, 200);
	if (sim_random_chance(random, o->change_per_mille))
		md_node_change(node, quietly);
	else if (sim_random_chance(random, o->call_per_mille))
		call(node, name);
	else if (sim_random_chance(random, o->cancel_per_mille))
		cancel_a_fetch(node);
	else
		md_fetch(node, name, world->sim->now_ns - (age_ns < world->sim->now_ns ? age_ns : 0), watched, false);
}

void md_work(struct sim *sim, void *user, uint64_t argument)
{
	struct md_world *world = user;
	if (!world->issuing || !world->result->ok)
		return;
	struct md_node *node = world->places[sim_random_below(&sim->random[SIM_WORKLOAD], world->options.nodes)];
	if (md_node_is_awake(node))
		work_once(world, node);
	md_check_overdue(world);
	world->issuing = world->issued < world->options.operations;
	sim_after(sim, 1 + sim_random_below(&sim->random[SIM_WORKLOAD], 2000 * (uint64_t)world->options.work_period_us), md_work, world, argument);
}
