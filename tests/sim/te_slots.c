/* Memory that comes and goes under load: a region that is registered and unregistered, and ranges that are lent by grants. When the
 * library says `released` or `ended` the memory has other content at once: whoever reads it late delivers that, whoever writes it late
 * changes it. */
#include "tests/sim/te_inside.h"

#include <stdlib.h>
#include <string.h>

static struct te_call *call_take(struct te_node *node, uint32_t slot)
{
	for (uint32_t i = 0; i < CALLS_MAX; i++) {
		struct te_call *call = &node->world->calls[i];
		if (call->used)
			continue;
		*call = (struct te_call){.world = node->world, .node = node->index, .incarnation = node->incarnation, .slot = slot, .used = true};
		return call;
	}
	return NULL;
}

bool te_calls_owed(const struct te_world *world)
{
	for (uint32_t i = 0; i < CALLS_MAX; i++)
		if (world->calls[i].used && te_is_current(world, world->calls[i].node, world->calls[i].incarnation))
			return true;
	return false;
}

void te_piece_detach(struct te_piece *piece)
{
	if (piece->under_way)
		piece->under_way->piece = NULL;
	piece->under_way = NULL;
}

void te_slot_take_back(struct te_world *world, struct te_slot *slot)
{
	struct te_piece *piece = &slot->piece;
	struct te_operation *op = piece->under_way;
	slot->stale |= op || piece->tainted;
	if (op) {
		op->frozen = malloc(piece->bytes);
		if (!op->frozen)
			abort();
		memcpy(op->frozen, piece->memory, piece->bytes);
	} else {
		te_check_piece(world, piece, "a slot that is taken back");
	}
	te_piece_detach(piece);
	slot->version = UINT64_C(1) << 50 | ++world->slot_version;
	te_fill(piece->memory, piece->bytes, slot->version);
	memcpy(piece->expected, piece->memory, piece->bytes);
	te_untaint(piece);
	slot->phase = SLOT_AWAY;
	if (te_sabotage(world, TE_SABOTAGE_TOUCH_TAKEN_BACK))
		piece->memory[piece->bytes - 1] ^= 0x40;
}

/* `ended` and `released`. */
static void given_back(void *user)
{
	struct te_call *call = user;
	struct te_world *world = call->world;
	struct te_node *node = &world->nodes[call->node];
	if (!call->used) {
		te_violation(world, "ended or released was called twice");
		return;
	}
	call->used = false;
	te_log_event(world, "node %u.%u has slot %u back", call->node, call->incarnation, call->slot);
	if (!te_is_current(world, call->node, call->incarnation) || world->closing)
		return;
	if (call->slot < NODES_MAX) {
		te_slot_take_back(world, &node->loans[call->slot]);
		return;
	}
	for (uint32_t i = 0; i < world->options.nodes; i++)
		te_slot_take_back(world, &node->visits[i]);
	node->visit_phase = SLOT_AWAY;
}

static bool is_short(const struct te_node *node, int error)
{
	return error == NEAP_ENOMEM && node->world->options.faults_memory;
}

static int register_slots(struct te_node *node, struct te_slot *slots, enum neap_access access, neap_region_id *id_p)
{
	char why[256];
	struct neap_memory memory = {.address = slots[0].piece.memory, .length = (uint64_t)slots[0].piece.bytes * node->world->options.nodes,
	                             .location = "cpu:0", .access = access};
	int error = neap_memory_register(node->cores[0].engine, &memory, 1, id_p, why, sizeof(why));
	if (error && !is_short(node, error))
		te_violation(node->world, "slots of node %u: %s", node->index, why);
	return error;
}

void te_slots_begin(struct te_node *node)
{
	for (uint32_t i = 0; i < node->world->options.nodes; i++) {
		te_slot_take_back(node->world, &node->visits[i]);
		te_slot_take_back(node->world, &node->loans[i]);
	}
	(void)register_slots(node, node->loans, NEAP_GRANT_ONLY, &node->loan_region);
}

/* An OPEN region at the same address again is, to a request that has waited so long, the same region. So it is not had again while one
 * waits; and what one whose end is unknown has sent may come in the next visit, but not between the two. */
static bool is_still_asked_for(const struct te_node *node, const struct te_operation *op)
{
	return op->used && !op->ended && (op->frozen || op->hope == HOPE_NO_SUCCESS) && op->target == node->index && !op->request.grant;
}

/* Over devices it is had again now and then nevertheless: keys are others, and what was under way under old ones must not land. Of the
 * requests themselves, which are repeated under new keys, no more is asked than that they end. */
static bool may_come_again(struct te_node *node)
{
	struct te_world *world = node->world;
	bool daring = world->fabric && sim_random_chance(te_chance(world), 300);
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct te_operation *op = &world->operations[i];
		if (!is_still_asked_for(node, op))
			continue;
		if (!daring)
			return false;
		op->came_again = true;
		op->hope = HOPE_ANY;
		node->visits[op->initiator].stale = true;
		world->result->sometimes.region_came_again++;
	}
	return true;
}

static void turn_visits(struct te_node *node)
{
	if (node->visit_phase == SLOT_AWAY) {
		if (!may_come_again(node))
			return;
		for (uint32_t i = 0; i < node->world->options.nodes; i++)
			te_check_piece(node->world, &node->visits[i].piece, "a slot for visits that was taken back");
		if (register_slots(node, node->visits, NEAP_OPEN, &node->visit_region) != NEAP_OK)
			return;
		node->visit_phase = SLOT_THERE;
		for (uint32_t i = 0; i < node->world->options.nodes; i++)
			if (node->visits[i].stale)
				te_taint(&node->visits[i].piece, NULL);
	} else if (node->visit_phase == SLOT_THERE) {
		struct te_call *call = call_take(node, NODES_MAX);
		if (!call)
			return;
		int error = neap_memory_unregister(node->cores[0].engine, node->visit_region, given_back, call);
		if (!error)
			node->visit_phase = SLOT_ENDING;
		else
			call->used = false;
		if (error && error != NEAP_EBUSY && !is_short(node, error))
			te_violation(node->world, "unregister: %s", neap_error_name(error));
	}
}

static void lend(struct te_node *node, struct te_slot *slot, uint32_t borrower)
{
	struct te_world *world = node->world;
	struct sim_random *random = te_chance(world);
	const struct te_node *other = &world->nodes[borrower];
	bool any = sim_random_chance(random, 300);
	slot->rights = 1 + (unsigned)sim_random_below(random, 3);
	slot->for_incarnation = any ? UINT32_MAX : other->incarnation;
	int error = neap_grant_create(node->cores[0].engine, slot->piece.memory, slot->piece.bytes, slot->rights, any ? NULL : other->instance,
	                              &slot->token);
	te_log_event(world, "node %u lends to %u%s, rights %u: %s", node->index, borrower, any ? " or anybody" : "", slot->rights,
	             neap_error_name(error));
	if (!error)
		slot->phase = SLOT_THERE;
	else if (!is_short(node, error))
		te_violation(world, "grant: %s", neap_error_name(error));
}

static void turn_loan(struct te_node *node, uint32_t borrower)
{
	struct te_slot *slot = &node->loans[borrower];
	if (borrower == node->index || slot->phase == SLOT_ENDING)
		return;
	if (slot->phase == SLOT_AWAY) {
		if (node->world->nodes[borrower].up)
			lend(node, slot, borrower);
		return;
	}
	struct te_call *call = call_take(node, borrower);
	if (!call)
		return;
	int error = neap_grant_end(node->cores[0].engine, &slot->token, given_back, call);
	te_log_event(node->world, "node %u ends what it lent to %u: %s", node->index, borrower, neap_error_name(error));
	if (!error)
		slot->phase = SLOT_ENDING;
	else
		call->used = false;
	if (error && !is_short(node, error))
		te_violation(node->world, "end of a grant: %s", neap_error_name(error));
	else if (!error && neap_grant_end(node->cores[0].engine, &slot->token, NULL, NULL) != NEAP_ESTALE)
		te_violation(node->world, "a grant was ended twice");
}

void te_slots_end_loans(struct te_world *world)
{
	for (uint32_t i = 0; i < world->options.nodes; i++)
		for (uint32_t k = 0; world->nodes[i].up && k < world->options.nodes; k++)
			if (world->nodes[i].loans[k].phase == SLOT_THERE)
				turn_loan(&world->nodes[i], k);
}

void te_slots_turn(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	struct sim_random *random = te_chance(world);
	if (!world->faults || !world->result->ok)
		return;
	struct te_node *node = &world->nodes[sim_random_below(random, world->options.nodes)];
	uint32_t what = (uint32_t)sim_random_below(random, 2 * world->options.nodes);
	if (node->up && te_node_awake(node, 0)) {
		if (what < world->options.nodes)
			turn_loan(node, what);
		else
			turn_visits(node);
	}
	sim_after(sim, 1 + sim_random_below(random, 2 * world->options.slot_period_ms * MS), te_slots_turn, world, argument);
}
