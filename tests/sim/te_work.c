/* What users of the engines do: batches of reads and writes, cancels, deadlines, polling, notify messages. */
#include "tests/sim/te_inside.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- operations -------------------------------------------------------------------------------------------------------------- */

static struct te_operation *operation_take(struct te_world *world, const struct te_node *node, uint32_t core, const struct te_node *target)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct te_operation *op = &world->operations[i];
		if (op->used)
			continue;
		*op = (struct te_operation){.used = true, .initiator = node->index, .initiator_incarnation = node->incarnation, .core = core,
		                            .target = target->index, .target_incarnation = target->incarnation};
		world->used_operations++;
		return op;
	}
	return NULL;
}

static void recycle(struct te_world *world, struct te_operation *op)
{
	free(op->before);
	free(op->after);
	if (op->seat)
		te_buffer_give(op);
	else
		free(op->local);
	free(op->poison);
	free(op->frozen);
	op->used = false;
	world->used_operations--;
}

static void *copy_of(const void *bytes, size_t length)
{
	void *copy = malloc(length ? length : 1);
	if (!copy)
		abort();
	if (bytes)
		memcpy(copy, bytes, length);
	return copy;
}

bool te_work_pending(const struct te_world *world, uint32_t node, uint32_t incarnation)
{
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		const struct te_operation *op = &world->operations[i];
		if (op->used && !op->ended && op->initiator == node && op->initiator_incarnation == incarnation)
			return true;
	}
	return false;
}

void te_sweep(struct te_world *world, bool all)
{
	if (!all && world->used_operations < OPERATIONS_MAX / 2)
		return;
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++) {
		struct te_operation *op = &world->operations[i];
		if (!op->used || !op->ended || op->held)
			continue;
		if (memcmp(op->local, op->poison, op->request.length) != 0)
			te_violation(world, "a buffer changed after its operation had completed");
		recycle(world, op);
	}
}

/* --- ends ----------------------------------------------------------------------------------------------------------------------- */

static void end_operation(struct te_world *world, struct te_operation *op, const struct neap_outcome *outcome)
{
	struct te_node *initiator = &world->nodes[op->initiator];
	op->ended = true;
	if (initiator->incarnation == op->initiator_incarnation)
		initiator->inflight--;
	te_log(world, op, outcome);
	te_count(world, op, outcome);
	te_check_end(world, op, outcome);
	te_aims_ended(world, op);
	if (outcome->cause == NEAP_CAUSE_OTHER_INSTANCE || (outcome->cause == NEAP_CAUSE_RANGE_NOT_REMOTE && op->piece))
		initiator->cores[op->core].links[op->target].phase = LINK_CLOSED;
	bool may_come_later = op->request.opcode == NEAP_WRITE && outcome->effect == NEAP_EFFECT_UNKNOWN && outcome->status != NEAP_FAILED;
	if (op->hope == HOPE_NO_SUCCESS && may_come_later && te_is_current(world, op->target, op->target_incarnation))
		world->nodes[op->target].visits[op->initiator].stale = true;
	op->piece = NULL;
}

static void on_request(void *user, neap_batch_id id, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct te_batch *batch = user;
	struct te_world *world = batch->world;
	struct te_operation *op = request_user;
	if (!op->used || op->ended || !batch->used || index >= batch->count || batch->operations[index] != op) {
		te_violation(world, "an operation completed twice, or that of another batch");
		return;
	}
	if (batch->id != id && batch->id != NEAP_INVALID_BATCH)
		te_violation(world, "a completion names another batch");
	if (te_sabotage(world, TE_SABOTAGE_NEVER_COMPLETE))
		return;
	batch->outcomes[index] = *outcome;
	batch->operations[index] = NULL;
	batch->ended++;
	op->held = outcome->buffer == NEAP_BUFFER_HELD;
	batch->held += op->held;
	world->result->sometimes.buffer_held += op->held;
	batch->completed += outcome->status == NEAP_COMPLETED;
	if (batch->note != UINT32_MAX && batch->completed == batch->count)
		world->notes[batch->note].allowed = true;
	end_operation(world, op, outcome);
	if (te_sabotage(world, TE_SABOTAGE_COMPLETE_TWICE))
		on_request(user, id, index, request_user, outcome);
}

/* The buffer of one that was held is the user's now. */
static void on_released(void *user, neap_batch_id id, uint32_t index, void *request_user)
{
	struct te_batch *batch = user;
	struct te_world *world = batch->world;
	struct te_operation *op = request_user;
	(void)id;
	if (!op->used || !op->held || op->batch_index != index) {
		te_violation(world, "a buffer was given back that was not held");
		return;
	}
	te_log_event(world, "buffer of batch %u.%u is released", op->batch, index);
	op->held = false;
	if (world->options.rdma.mistake == SIM_MISTAKE_gives_buffers && memcmp(op->local, op->poison, op->request.length) != 0)
		te_violation(world, "a buffer that was given back too early has changed");
	te_poison(world, op);
	if (batch->used && batch->serial == op->batch_serial)
		batch->held--;
}

static void check_polled(struct te_batch *batch, struct neap_engine *engine)
{
	struct te_world *world = batch->world;
	for (uint32_t i = 0; i < batch->count; i++) {
		struct neap_outcome outcome;
		bool ended = !batch->operations[i];
		int error = neap_batch_status(engine, batch->id, i, &outcome);
		if (error)
			te_violation(world, "polling a kept batch: %s", neap_error_name(error));
		else if (ended && (outcome.status != batch->outcomes[i].status || outcome.effect != batch->outcomes[i].effect ||
		                   outcome.bytes != batch->outcomes[i].bytes))
			te_violation(world, "a polled status %u is not the one that was told, %u", outcome.status, batch->outcomes[i].status);
	}
	world->result->sometimes.batch_polled++;
}

static void look_at_batch(struct sim *sim, void *user, uint64_t argument);

static void free_batch(struct te_batch *batch, struct neap_engine *engine)
{
	struct neap_outcome outcome;
	check_polled(batch, engine);
	int error = neap_batch_free(engine, batch->id);
	if (batch->held) {
		if (error != NEAP_EBUSY)
			te_violation(batch->world, "a batch with held buffers may be freed");
		sim_after(batch->world->sim, 50 * MS, look_at_batch, batch, batch->serial);
		return;
	}
	if (error)
		te_violation(batch->world, "a finished batch cannot be freed: %s", neap_error_name(error));
	else if (neap_batch_status(engine, batch->id, 0, &outcome) != NEAP_ESTALE)
		te_violation(batch->world, "a freed batch still answers");
	batch->used = false;
}

static struct neap_engine *engine_of(const struct te_batch *batch)
{
	return te_is_current(batch->world, batch->initiator, batch->initiator_incarnation)
	               ? batch->world->nodes[batch->initiator].cores[batch->core].engine : NULL;
}

/* Polls a batch, before or after its end; after the end it is freed. */
static void look_at_batch(struct sim *sim, void *user, uint64_t argument)
{
	struct te_batch *batch = user;
	struct te_world *world = batch->world;
	if (!batch->used || batch->serial != argument || world->closing)
		return;
	struct neap_engine *engine = engine_of(batch);
	if (!engine) {
		batch->used = !batch->told;
		return;
	}
	if (!te_node_awake(&world->nodes[batch->initiator], batch->core)) {
		sim_after(sim, 100 * MS, look_at_batch, batch, argument);
		return;
	}
	if (batch->told) {
		free_batch(batch, engine);
	} else {
		check_polled(batch, engine);
		if (neap_batch_free(engine, batch->id) != NEAP_EBUSY)
			te_violation(world, "a batch with pending requests may be freed");
	}
}

static void on_batch(void *user, neap_batch_id id, const struct neap_batch_summary *summary)
{
	(void)id;
	struct te_batch *batch = user;
	struct te_world *world = batch->world;
	if (!batch->used || batch->told || batch->ended != batch->count)
		te_violation(world, "a batch ended twice, or before its requests");
	if (summary->total != batch->count || summary->completed != batch->completed ||
	    summary->completed + summary->failed + summary->timed_out + summary->canceled != batch->count)
		te_violation(world, "a batch's summary does not add up");
	batch->told = true;
	struct neap_engine *engine = engine_of(batch);
	if (!batch->keep || !engine)
		batch->used = false;
	else if (batch->serial % 2) /* from within the callback */
		free_batch(batch, engine);
	else
		sim_after(world->sim, 1 + sim_random_below(te_workload(world), 20 * MS), look_at_batch, batch, batch->serial);
}

/* --- notify messages ---------------------------------------------------------------------------------------------------------------- */

static struct te_note *note_take(struct te_world *world, const struct te_node *node, const struct te_node *target)
{
	if (world->note_count == NOTES_MAX)
		return NULL;
	struct te_note *note = &world->notes[world->note_count++];
	*note = (struct te_note){.sender = node->index, .sender_incarnation = node->incarnation, .target = target->index,
	                         .target_incarnation = target->incarnation};
	return note;
}

static void note_sent(void *user, int error, const char *why)
{
	(void)why;
	struct te_note *note = user;
	note->sent_told = true;
	note->sent_error = error;
}

static void notes_arrived(void *user)
{
	struct te_node *node = user;
	struct te_world *world = node->world;
	struct neap_notify got;
	if (!node->up)
		return;
	while (neap_notify_take(node->cores[0].engine, &got) > 0) {
		unsigned long number = strtoul(got.message, NULL, 10);
		struct te_note *note = number < world->note_count ? &world->notes[number] : NULL;
		if (!note || strcmp(got.name, "sim") != 0 || note->target != node->index || !note->allowed || note->received++)
			te_violation(world, "a notify message that nobody sent, or sent once");
		world->result->sometimes.notified++;
	}
}

void te_notify_watch(struct te_node *node)
{
	neap_notify_watch(node->cores[0].engine, notes_arrived, node);
}

bool te_notes_owed(const struct te_world *world)
{
	for (uint32_t i = 0; i < world->note_count; i++) {
		const struct te_note *note = &world->notes[i];
		if (!note->of_batch && !note->sent_told && te_is_current(world, note->sender, note->sender_incarnation))
			return true;
	}
	return false;
}

/* When nothing is under way any more: what was said to be sent has come. */
void te_check_notes(struct te_world *world)
{
	for (uint32_t i = 0; i < world->note_count; i++) {
		const struct te_note *note = &world->notes[i];
		bool same = te_is_current(world, note->target, note->target_incarnation);
		world->result->sometimes.notify_failed += note->sent_told && note->sent_error;
		if (note->sent_told && !note->sent_error && same && !note->received)
			te_violation(world, "a notify message was said to be sent, but did not come");
	}
}

static void send_note(struct te_node *node, uint32_t core, struct te_node *target)
{
	struct te_world *world = node->world;
	struct te_link *link = &node->cores[core].links[target->index];
	if (link->phase != LINK_OPEN || link->peer_incarnation != target->incarnation)
		return;
	struct te_note *note = note_take(world, node, target);
	if (!note)
		return;
	char message[16];
	snprintf(message, sizeof(message), "%u", world->note_count - 1);
	note->allowed = true;
	int error = neap_notify_send(node->cores[core].engine, link->segment, "sim", message, note_sent, note);
	if (error)
		note_sent(note, error, NULL);
}

/* --- what to do --------------------------------------------------------------------------------------------------------------------- */

/* Fills in a request on `bytes` at `memory`. A piece has its content remembered; without one nothing is known of it. */
static void prepare(struct te_operation *op, struct te_piece *piece, unsigned char *memory, uint32_t bytes, bool write)
{
	op->piece = piece;
	op->target_memory = memory;
	op->bytes = bytes;
	op->request.opcode = write ? NEAP_WRITE : NEAP_READ;
	op->request.user = op;
	if (piece) {
		op->before = copy_of(piece->expected, bytes);
		op->after = copy_of(piece->expected, bytes);
		piece->under_way = op;
	}
}

static void choose_range(struct te_world *world, struct te_operation *op)
{
	struct sim_random *random = te_workload(world);
	op->offset = (uint32_t)sim_random_below(random, op->bytes);
	uint64_t length = 1 + sim_random_below(random, op->bytes - op->offset);
	if (op->hope == HOPE_ANY && sim_random_chance(random, 30))
		length = 0;
	if (op->bytes == BULK_BYTES) { /* all of it, or there would be nothing to cut */
		op->offset = 0;
		length = op->bytes;
	}
	te_aims_range(world, op, &length);
	op->local = te_buffer_take(&world->nodes[op->initiator], op, length);
	if (!op->local)
		op->local = copy_of(NULL, length);
	te_fill(op->local, length, UINT64_C(1) << 40 | world->issued << 8 | op->batch_index);
	op->poison = copy_of(op->local, length);
	if (op->request.opcode == NEAP_WRITE && op->after)
		memcpy(op->after + op->offset, op->local, length);
	op->request.source = op->local;
	op->request.target_offset = (uint64_t)(uintptr_t)(op->target_memory + op->offset);
	op->request.length = length;
	op->request.placed = world->fabric && sim_random_chance(random, world->options.rdma.placed_per_mille);
}

static bool draw_write(struct te_world *world)
{
	return sim_random_chance(te_workload(world), world->fabric ? 1000 - world->options.rdma.read_per_mille : 600);
}

static bool is_free(struct te_world *world, const struct te_piece *piece, const char *where)
{
	if (piece->under_way || piece->tainted)
		return false;
	te_check_piece(world, piece, where);
	return true;
}

/* Registered and unregistered again and again. While it is away nothing can succeed; it does not come again while one tries. */
static bool choose_visit(struct te_world *world, struct te_operation *op, struct te_node *target)
{
	struct te_slot *slot = &target->visits[op->initiator];
	op->where = "a slot for visits";
	if (target->visit_phase != SLOT_THERE) {
		if (target->visit_phase != SLOT_AWAY || !sim_random_chance(te_workload(world), 300))
			return false;
		op->hope = HOPE_NO_SUCCESS;
		prepare(op, NULL, slot->piece.memory, slot->piece.bytes, sim_random_chance(te_workload(world), 500));
		return true;
	}
	if (!is_free(world, &slot->piece, op->where))
		return false;
	prepare(op, &slot->piece, slot->piece.memory, slot->piece.bytes, draw_write(world));
	return true;
}

/* Reached by grants alone: with the right one, and in all the ways that must not work. */
static bool choose_loan(struct te_world *world, struct te_operation *op, struct te_node *target)
{
	struct sim_random *random = te_workload(world);
	struct te_slot *slot = &target->loans[op->initiator];
	const struct te_node *node = &world->nodes[op->initiator];
	bool write = draw_write(world);
	bool permitted = slot->phase == SLOT_THERE && (slot->rights & (write ? NEAP_MAY_WRITE : NEAP_MAY_READ)) && !node->dialect &&
	                 (slot->for_incarnation == UINT32_MAX || slot->for_incarnation == node->incarnation);
	op->where = "a slot for loans";
	op->token = slot->token;
	op->request.grant = &op->token;
	if (permitted && !sim_random_chance(random, 100)) {
		if (!is_free(world, &slot->piece, op->where))
			return false;
		prepare(op, &slot->piece, slot->piece.memory, slot->piece.bytes, write);
		return true;
	}
	op->hope = HOPE_NO_SUCCESS;
	if (permitted && sim_random_chance(random, 500)) { /* no grant at all */
		op->request.grant = NULL;
	} else if (permitted) { /* that of somebody else, for memory of somebody else */
		slot = &target->loans[(op->initiator + 1) % world->options.nodes];
		if (slot->phase == SLOT_THERE && slot->for_incarnation == UINT32_MAX)
			return false;
		op->token = slot->token;
	}
	if (world->fabric && op->request.grant) /* docs/SIM.md: over devices its keys alone permit */
		return false;
	prepare(op, NULL, slot->piece.memory, slot->piece.bytes, write);
	return true;
}

static bool choose_block(struct te_world *world, struct te_operation *op, struct te_node *target)
{
	/* the last block is kept for the time after the faults: others may be of unknown content for ever */
	uint32_t last = world->options.blocks_per_stripe - 1;
	uint32_t number = world->remote_only ? last : (uint32_t)sim_random_below(te_workload(world), last);
	struct te_piece *piece = te_block(target, op->initiator, te_aims_block(world, op, number));
	op->where = "a block";
	if (!is_free(world, piece, op->where))
		return false;
	prepare(op, piece, piece->memory, piece->bytes, draw_write(world));
	return true;
}

static bool choose(struct te_world *world, struct te_operation *op, struct te_node *target)
{
	const struct te_options *options = &world->options;
	struct sim_random *random = te_workload(world);
	bool local = op->initiator == op->target;
	if (!world->remote_only && local && target->bulk.bytes && sim_random_chance(random, options->bulk_per_mille)) {
		op->where = "the bulk";
		if (!is_free(world, &target->bulk, op->where))
			return false;
		prepare(op, &target->bulk, target->bulk.memory, target->bulk.bytes, sim_random_chance(random, 500));
		return true;
	}
	if (!world->remote_only && sim_random_chance(random, options->slot_per_mille))
		return local || sim_random_chance(random, 500) ? choose_visit(world, op, target) : choose_loan(world, op, target);
	return choose_block(world, op, target);
}

/* A link that leads to the present incarnation; else it is opened, and there will be another time. */
static bool link_is_good(struct te_node *node, uint32_t core, const struct te_node *target)
{
	struct te_link *link = &node->cores[core].links[target->index];
	if (target == node)
		return !node->world->remote_only;
	if (link->phase == LINK_CLOSED)
		te_link_open(node, core, target->index);
	if (link->phase != LINK_OPEN)
		return false;
	if (link->peer_incarnation != target->incarnation)
		link->phase = LINK_CLOSED;
	return link->phase == LINK_OPEN;
}

static bool add_operation(struct te_batch *batch, struct te_node *node)
{
	struct te_world *world = batch->world;
	struct te_node *target = &world->nodes[sim_random_below(te_workload(world), world->options.nodes)];
	if (world->fabric && target == node && sim_random_chance(te_workload(world), 800)) /* no device has to do with that */
		target = &world->nodes[(node->index + 1) % world->options.nodes];
	if (!target->blocks || !link_is_good(node, batch->core, target))
		return false;
	struct te_operation *op = operation_take(world, node, batch->core, target);
	if (!op)
		return false;
	op->batch = (uint32_t)(batch - world->batches);
	op->batch_index = batch->count;
	op->batch_serial = batch->serial;
	if (!choose(world, op, target)) {
		recycle(world, op);
		return false;
	}
	choose_range(world, op);
	op->request.segment = target == node ? NEAP_LOCAL_SEGMENT : node->cores[batch->core].links[target->index].segment;
	batch->operations[batch->count++] = op;
	return true;
}

static void drop_batch(struct te_batch *batch)
{
	for (uint32_t i = 0; i < batch->count; i++) {
		if (batch->operations[i]->piece)
			batch->operations[i]->piece->under_way = NULL;
		recycle(batch->world, batch->operations[i]);
	}
	batch->used = false;
}

static int submit(struct te_batch *batch, struct te_node *node, bool deadline)
{
	struct te_world *world = batch->world;
	struct neap_request requests[BATCH_REQUESTS_MAX];
	char message[16] = "";
	for (uint32_t i = 0; i < batch->count; i++)
		requests[i] = batch->operations[i]->request;
	uint32_t target = batch->operations[0]->target;
	if (target != node->index && sim_random_chance(te_workload(world), world->options.notify_per_mille)) {
		struct te_note *note = note_take(world, node, &world->nodes[target]);
		if (note) {
			note->of_batch = true;
			batch->note = world->note_count - 1;
			snprintf(message, sizeof(message), "%u", batch->note);
		}
	}
	struct neap_batch_options options = {
		.on_request = on_request,
		.on_batch = on_batch,
		.on_released = on_released,
		.user = batch,
		.keep = batch->keep,
		.deadline_ns = deadline ? world->sim->now_ns + sim_random_below(te_workload(world), 300 * MS) : 0,
		.notify_name = *message ? "sim" : NULL,
		.notify_message = *message ? message : NULL,
	};
	return neap_submit(node->cores[batch->core].engine, requests, batch->count, &options, &batch->id);
}

static void cancel_later(struct sim *sim, void *user, uint64_t argument)
{
	(void)sim;
	struct te_batch *batch = user;
	struct te_world *world = batch->world;
	uint32_t index = (uint32_t)(argument & 0xff);
	if (!batch->used || batch->told || batch->serial != argument >> 8)
		return;
	struct neap_engine *engine = engine_of(batch);
	if (!engine || batch->ended == batch->count)
		return;
	for (uint32_t i = 0; i < batch->count; i++)
		if (batch->operations[i] && (index >= batch->count || i == index))
			batch->operations[i]->cancel_asked = true;
	int error = index >= batch->count ? neap_batch_cancel(engine, batch->id) : neap_request_cancel(engine, batch->id, index);
	if (error)
		te_violation(world, "cancel in a pending batch: %s", neap_error_name(error));
}

static void watch_batch(struct te_batch *batch, struct te_node *node)
{
	struct te_world *world = batch->world;
	struct sim_random *random = te_workload(world);
	bool bulk = batch->operations[0]->bytes == BULK_BYTES;
	if (bulk || sim_random_chance(random, world->options.cancel_per_mille)) { /* local copies take microseconds */
		uint64_t delay_ns = sim_random_below(random, bulk ? 300000 : 20 * MS);
		sim_after(world->sim, delay_ns, cancel_later, batch, (uint64_t)batch->serial << 8 | sim_random_below(random, batch->count + 1));
	}
	if (batch->keep && sim_random_chance(random, 500))
		sim_after(world->sim, sim_random_below(random, 20 * MS), look_at_batch, batch, batch->serial);
	struct te_operation *first = batch->operations[0];
	bool alone = node->inflight == batch->count && batch->count == 1;
	for (uint32_t i = 0; i < OPERATIONS_MAX; i++)
		if (world->operations[i].used && world->operations[i].initiator == node->index && world->operations[i].core == batch->core)
			world->operations[i].alone = false;
	if (!alone)
		return;
	struct neap_engine_stats stats;
	neap_engine_stats(node->cores[batch->core].engine, &stats);
	first->alone = true;
	first->repeated_before = stats.requests_repeated;
}

static struct te_batch *batch_take(struct te_world *world, const struct te_node *node, uint32_t core)
{
	for (uint32_t i = 0; i < BATCHES_MAX; i++) {
		struct te_batch *batch = &world->batches[i];
		if (batch->used)
			continue;
		*batch = (struct te_batch){.world = world, .used = true, .id = NEAP_INVALID_BATCH, .initiator = node->index, .core = core,
		                           .initiator_incarnation = node->incarnation, .serial = ++world->batch_serial, .note = UINT32_MAX};
		return batch;
	}
	return NULL;
}

static void issue(struct te_world *world, struct te_node *node, uint32_t core)
{
	struct sim_random *random = te_workload(world);
	struct te_batch *batch = batch_take(world, node, core);
	if (!batch)
		return;
	uint32_t wanted = 1 + (uint32_t)sim_random_below(random, world->options.batch_max);
	for (uint32_t i = 0; i < wanted; i++)
		(void)add_operation(batch, node);
	if (batch->count == 0) {
		batch->used = false;
		return;
	}
	batch->keep = sim_random_chance(random, world->options.keep_per_mille);
	bool deadline = sim_random_chance(random, world->options.deadline_per_mille);
	for (uint32_t i = 0; i < batch->count; i++)
		batch->operations[i]->deadline = deadline;
	int error = submit(batch, node, deadline);
	if (error) {
		bool no_text = error == NEAP_ENOMEM && world->options.faults_memory && batch->note != UINT32_MAX;
		if (error != NEAP_EAGAIN && error != NEAP_ESTALE && !no_text)
			te_violation(world, "submit: %s", neap_error_name(error));
		for (uint32_t i = 0; i < batch->count && error == NEAP_ESTALE; i++)
			node->cores[core].links[batch->operations[i]->target] = (struct te_link){0};
		drop_batch(batch);
		return;
	}
	for (uint32_t i = 0; i < batch->count; i++)
		te_log(world, batch->operations[i], NULL);
	world->issued += batch->count;
	node->inflight += batch->count;
	world->result->sometimes.batch_of_several += batch->count > 1;
	watch_batch(batch, node);
}

void te_work(struct sim *sim, void *user, uint64_t argument)
{
	struct te_world *world = user;
	struct sim_random *random = te_workload(world);
	if (!world->result->ok)
		return;
	te_sweep(world, false);
	struct te_node *node = &world->nodes[sim_random_below(random, world->options.nodes)];
	uint32_t core = node->core_count > 1 ? (uint32_t)sim_random_below(random, node->core_count) : 0;
	if (node->up && te_node_awake(node, core) && node->inflight < world->options.inflight_max && world->issuing) {
		issue(world, node, core);
		struct te_node *target = &world->nodes[sim_random_below(random, world->options.nodes)];
		if (target != node && sim_random_chance(random, world->options.notify_per_mille))
			send_note(node, core, target);
	}
	if (world->issuing && world->issued < world->options.operations)
		sim_after(sim, 1 + sim_random_below(random, UINT64_C(2000) * world->options.work_period_us), te_work, world, argument);
	else
		world->issuing = false;
}
