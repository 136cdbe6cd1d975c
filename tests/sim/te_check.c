/* The shadow model: what memory may hold, and what may be said of it. */
#include "tests/sim/te_inside.h"

#include <stdlib.h>
#include <string.h>

/* --- patterns ---------------------------------------------------------------------------------------------------------------- */

static uint64_t word_of(uint64_t version, uint64_t at)
{
	uint64_t x = (version * 0x9E3779B97F4A7C15u) ^ (at * 0xC2B2AE3D27D4EB4Fu);
	x = (x ^ (x >> 31)) * 0xD6E8FEB86659FD93u;
	return (x ^ (x >> 29)) | 0x0101010101010101u; /* no byte is zero: untouched memory shows */
}

void te_fill(unsigned char *memory, size_t length, uint64_t version)
{
	for (size_t i = 0; i < length; i += 8) {
		uint64_t word = word_of(version, i);
		memcpy(memory + i, &word, length - i < 8 ? length - i : 8);
	}
}

/* `from` is a multiple of 8. */
bool te_is_filled(const unsigned char *memory, size_t from, size_t to, uint64_t version)
{
	for (size_t i = from; i < to; i += 8) {
		uint64_t word = word_of(version, i);
		if (memcmp(memory + i, &word, to - i < 8 ? to - i : 8) != 0)
			return false;
	}
	return true;
}

uint64_t te_hash(const unsigned char *memory, size_t length)
{
	uint64_t hash = length, word = 0;
	for (size_t i = 0; i + 8 <= length; i += 8) {
		memcpy(&word, memory + i, 8);
		hash = (hash ^ word) * 0x9E3779B97F4A7C15u;
		hash ^= hash >> 32;
	}
	word = 0;
	memcpy(&word, memory + length - length % 8, length % 8);
	return (hash ^ word) * 0x9E3779B97F4A7C15u;
}

/* --- outcomes ------------------------------------------------------------------------------------------------------------------- */

static bool is_write(const struct te_operation *op)
{
	return op->request.opcode == NEAP_WRITE;
}

static void check_shape(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	bool over = world->closing || !te_is_current(world, op->initiator, op->initiator_incarnation);
	if (outcome->status < NEAP_CANCELED || outcome->status > NEAP_FAILED)
		te_violation(world, "completion with status %u", outcome->status);
	if (outcome->status == NEAP_COMPLETED && (outcome->effect != NEAP_EFFECT_ALL || outcome->bytes != op->request.length))
		te_violation(world, "COMPLETED with effect %u of %lu bytes", outcome->effect, (unsigned long)outcome->bytes);
	if (outcome->status == NEAP_CANCELED && !op->cancel_asked && !op->segment_closed && !over)
		te_violation(world, "CANCELED, but nobody canceled (cause %u)", outcome->cause);
	if (outcome->cause == NEAP_CAUSE_BATCH_DEADLINE && !op->deadline)
		te_violation(world, "a deadline nobody set");
	if (outcome->cause == NEAP_CAUSE_INTERNAL)
		te_violation(world, "internal cause");
	if (outcome->buffer != NEAP_BUFFER_YOURS && (!op->seat || outcome->status == NEAP_COMPLETED))
		te_violation(world, "TCP and local transports never hold a buffer, nor does one that is done");
	if (outcome->effect == NEAP_EFFECT_PARTIAL && (outcome->bytes == 0 || outcome->bytes > op->request.length))
		te_violation(world, "PARTIAL with %lu bytes of %lu", (unsigned long)outcome->bytes, (unsigned long)op->request.length);
	if (op->hope == HOPE_NO_SUCCESS && (outcome->status == NEAP_COMPLETED || outcome->effect == NEAP_EFFECT_PARTIAL))
		te_violation(world, "%s of node %u in %s of node %u, which was not permitted: status %u effect %u", is_write(op) ? "write" : "read",
		             op->initiator, op->where, op->target, outcome->status, outcome->effect);
}

/* A block is in a region that is there as long as its process, and known to others unless a device has refused to register it. (A WRITE that is
 * to be placed needs memory of the library's own, too, which may not be had for a moment.) */
static void check_refusal(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	bool refused = outcome->cause == NEAP_CAUSE_REFUSED_BY_PEER || outcome->cause == NEAP_CAUSE_RANGE_NOT_REMOTE ||
	               outcome->cause == NEAP_CAUSE_GRANT_REFUSED || outcome->cause == NEAP_CAUSE_LOCAL_MEMORY;
	if (!world->fabric || world->options.rdma.faults_calls || !refused || strcmp(op->where, "a block") != 0 || !op->piece || world->closing)
		return;
	if (op->request.placed && outcome->cause == NEAP_CAUSE_LOCAL_MEMORY && world->options.faults_memory)
		return;
	if (te_is_current(world, op->target, op->target_incarnation) && te_is_current(world, op->initiator, op->initiator_incarnation))
		te_violation(world, "%s %u->%u in a block that is there and permitted: refused with status %u cause %u", is_write(op) ? "write" : "read",
		             op->initiator, op->target, outcome->status, outcome->cause);
}

/* Each byte of the piece, as the effect says. */
static void check_target(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	const unsigned char *have = op->frozen ? op->frozen : op->target_memory;
	uint64_t bytes = outcome->effect == NEAP_EFFECT_PARTIAL ? outcome->bytes : 0;
	if (memcmp(have, outcome->effect == NEAP_EFFECT_ALL ? op->after : op->before, op->bytes) == 0)
		return;
	for (uint32_t i = 0; i < op->bytes; i++) {
		bool inside = i >= op->offset && i < op->offset + op->request.length;
		bool new_wanted = inside && (outcome->effect == NEAP_EFFECT_ALL || i < op->offset + bytes);
		bool either = inside && outcome->effect == NEAP_EFFECT_UNKNOWN;
		if (have[i] == (new_wanted ? op->after[i] : op->before[i]) || (either && have[i] == op->after[i]))
			continue;
		te_violation(world, "write %u->%u in %s%s, byte %u of [%u,+%lu): effect %u status %u cause %u, but the byte is %s", op->initiator,
		             op->target, op->where, op->frozen ? " (taken back)" : "", i, op->offset, (unsigned long)op->request.length,
		             outcome->effect, outcome->status, outcome->cause,
		             have[i] == op->after[i] ? "new" : have[i] == op->before[i] ? "old" : "neither");
		return;
	}
}

/* What a read has left in the local buffer; `poison` still holds what was there before. */
static void check_local(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	const unsigned char *from = op->before + op->offset;
	size_t length = op->request.length, bytes = length;
	if (outcome->effect == NEAP_EFFECT_UNKNOWN)
		return;
	if (outcome->effect != NEAP_EFFECT_ALL)
		bytes = outcome->effect == NEAP_EFFECT_PARTIAL ? outcome->bytes : 0;
	if (memcmp(op->local, from, bytes) != 0)
		te_violation(world, "read %u<-%u in %s%s: status %u effect %u of %zu bytes, but they are other ones", op->initiator, op->target,
		             op->where, op->frozen ? " (taken back)" : "", outcome->status, outcome->effect, bytes);
	else if (memcmp(op->local + bytes, op->poison + bytes, length - bytes) != 0)
		te_violation(world, "read %u<-%u in %s: status %u effect %u of %zu bytes, but there are more", op->initiator, op->target, op->where,
		             outcome->status, outcome->effect, bytes);
}

/* The piece is idle again. FAILED says that no further byte will come, so even of an unknown content it is known that it stays. */
static void settle(struct te_piece *piece, const struct te_operation *op, const struct neap_outcome *outcome)
{
	piece->under_way = NULL;
	if (!is_write(op) || outcome->effect == NEAP_EFFECT_NONE)
		return;
	if (outcome->effect == NEAP_EFFECT_UNKNOWN && outcome->status != NEAP_FAILED)
		te_taint(piece, op->after);
	else
		memcpy(piece->expected, piece->memory, piece->bytes);
}

static void sabotage_before(struct te_world *world, struct te_operation *op, struct neap_outcome *outcome)
{
	if (outcome->status != NEAP_COMPLETED || !op->piece || op->request.length == 0)
		return;
	if (is_write(op) && te_sabotage(world, TE_SABOTAGE_CORRUPT_TARGET))
		op->target_memory[op->offset] ^= 0x40;
	if (!is_write(op) && te_sabotage(world, TE_SABOTAGE_CORRUPT_LOCAL))
		op->local[op->request.length - 1] ^= 0x40;
	if (is_write(op) && memcmp(op->before, op->after, op->bytes) != 0 && te_sabotage(world, TE_SABOTAGE_WRONG_EFFECT)) {
		outcome->status = NEAP_FAILED;
		outcome->effect = NEAP_EFFECT_NONE;
	}
}

void te_check_end(struct te_world *world, struct te_operation *op, const struct neap_outcome *given)
{
	struct neap_outcome outcome = *given;
	if (!op->request.placed) /* such a one is COMPLETED when it is there */
		te_fabric_place(world, op);
	world->result->sometimes.placed_late += op->request.placed && outcome.status == NEAP_COMPLETED;
	sabotage_before(world, op, &outcome);
	check_shape(world, op, &outcome);
	check_refusal(world, op, &outcome);
	if (op->hope == HOPE_ANY && op->before && !op->came_again) {
		if (is_write(op))
			check_target(world, op, &outcome);
		else
			check_local(world, op, &outcome);
	}
	if (op->piece)
		settle(op->piece, op, &outcome);
	if (op->piece && !op->piece->tainted && te_sabotage(world, TE_SABOTAGE_LATE_WRITE))
		op->piece->memory[0] ^= 0x40;
	if (te_sabotage(world, TE_SABOTAGE_TOUCH_GUARD))
		world->nodes[op->target].memory[1] ^= 0x40;
	if (!op->held || world->options.rdma.mistake == SIM_MISTAKE_gives_buffers)
		te_poison(world, op);
	if (op->request.length > 0 && !op->held && te_sabotage(world, TE_SABOTAGE_TOUCH_RETURNED))
		op->local[0] ^= 0x40;
}

/* The buffer is the user's again: whoever still reads it sends poison, whoever still writes it is seen at the end. */
void te_poison(struct te_world *world, struct te_operation *op)
{
	te_fill(op->local, op->request.length, UINT64_C(0xDEAD0000) + world->issued);
	memcpy(op->poison, op->local, op->request.length);
}

/* --- pieces ------------------------------------------------------------------------------------------------------------------- */

void te_taint(struct te_piece *piece, const unsigned char *other)
{
	te_untaint(piece);
	piece->tainted = true;
	if (!other)
		return;
	piece->other = malloc(piece->bytes);
	if (!piece->other)
		abort();
	memcpy(piece->other, other, piece->bytes);
}

void te_untaint(struct te_piece *piece)
{
	free(piece->other);
	piece->other = NULL;
	piece->tainted = false;
}

/* What is written late is what was written: neither a buffer that has other content by now, nor something else. */
static bool is_mixture(const struct te_piece *piece)
{
	for (uint32_t i = 0; piece->other && i < piece->bytes; i++)
		if (piece->memory[i] != piece->expected[i] && piece->memory[i] != piece->other[i])
			return false;
	return true;
}

void te_check_piece(struct te_world *world, const struct te_piece *piece, const char *where)
{
	if (!piece->tainted && memcmp(piece->memory, piece->expected, piece->bytes) != 0)
		te_violation(world, "bytes of %s at %p changed while nothing was under way there", where, (void *)piece->memory);
	else if (piece->tainted && !is_mixture(piece))
		te_violation(world, "%s at %p, whose last write has an unknown end, holds bytes that it never had to write", where,
		             (void *)piece->memory);
}

static void check_idle(struct te_world *world, const struct te_piece *piece, const char *where)
{
	if (!piece->under_way)
		te_check_piece(world, piece, where);
}

void te_check_node(struct te_world *world, struct te_node *node)
{
	uint64_t version = (uint64_t)node->index << 32 | node->incarnation;
	size_t end = node->memory_bytes, low = (end - GUARD_BYTES + 7) & ~(size_t)7;
	if (!te_is_filled(node->memory, 0, GUARD_BYTES, version) || !te_is_filled(node->memory, low, end, version))
		te_violation(world, "a byte outside the registered region of node %u was changed", node->index);
	if (node->gone) {
		if (node->hashed && te_node_hash(node) != node->memory_hash)
			te_violation(world, "memory of node %u.%u changed after it was gone", node->index, node->incarnation);
		return;
	}
	for (uint32_t i = 0; i < world->options.nodes * world->options.blocks_per_stripe; i++)
		check_idle(world, &node->blocks[i], "a block");
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		check_idle(world, &node->visits[i].piece, "a slot for visits");
		check_idle(world, &node->loans[i].piece, "a slot for loans");
	}
}

/* --- what has been seen ------------------------------------------------------------------------------------------------------------ */

static void count_repeats(struct te_world *world, const struct te_operation *op)
{
	const struct te_node *node = &world->nodes[op->initiator];
	bool neap = op->initiator != op->target && !node->dialect && !world->nodes[op->target].dialect;
	if (!op->alone || !is_write(op) || !neap || !te_is_current(world, op->initiator, op->initiator_incarnation))
		return;
	struct neap_engine_stats stats;
	neap_engine_stats(node->cores[op->core].engine, &stats);
	world->result->sometimes.fenced_repeat += stats.requests_repeated != op->repeated_before;
}

void te_count(struct te_world *world, const struct te_operation *op, const struct neap_outcome *outcome)
{
	struct te_sometimes *seen = &world->result->sometimes;
	bool write = is_write(op);
	if (outcome->status == NEAP_COMPLETED) {
		world->result->completed++;
		write ? seen->write_completed++ : seen->read_completed++;
		op->initiator == op->target ? seen->local_transfer++ : seen->remote_completed++;
		seen->grant_used += op->request.grant != NULL;
		count_repeats(world, op);
	} else {
		world->result->failed++;
	}
	if (write && outcome->effect == NEAP_EFFECT_UNKNOWN) {
		world->result->unknown++;
		seen->write_effect_unknown++;
	}
	seen->write_failed_no_effect += write && outcome->status == NEAP_FAILED && outcome->effect == NEAP_EFFECT_NONE;
	seen->timed_out += outcome->status == NEAP_TIMEOUT;
	seen->refused_by_peer += outcome->cause == NEAP_CAUSE_REFUSED_BY_PEER;
	seen->grant_refused += outcome->cause == NEAP_CAUSE_GRANT_REFUSED;
	seen->range_refused_after_restart += outcome->cause == NEAP_CAUSE_RANGE_NOT_REMOTE;
	seen->local_partial += op->initiator == op->target && outcome->effect == NEAP_EFFECT_PARTIAL;
	seen->segment_closed += outcome->cause == NEAP_CAUSE_SEGMENT_CLOSED;
	if (outcome->status == NEAP_CANCELED && op->cancel_asked)
		outcome->effect == NEAP_EFFECT_NONE ? seen->canceled_queued++ : seen->canceled_under_way++;
	if (op->frozen && outcome->status != NEAP_COMPLETED)
		op->request.grant ? seen->revoked_under_way++ : seen->released_under_load++;
}
