/* Requests of a process to its own memory: memmove in bounded chunks, each after a look whether the range is still registered, and its
 * grant, if there is one, still stands.
 *
 * Overlap is honoured as one memmove would: the copy runs from the end that the other range does not reach first. A copy in that
 * direction which stops midway has stored the tail, which no outcome can say: its effect is UNKNOWN. */
#include "transports/engine_state.h"
#include <string.h>

#define CHUNK_BYTES (256u * 1024u)
#define PIECE_BYTES (1024u * 1024u)
#define PIECE_SLICES 256u

struct local_transport {
	struct neap_transport base;
	struct neap_slice *first, *last; /* linked both ways; the first one is being copied */
	uint32_t count;
	struct neap_access_ref ref;      /* of the first one */
	bool begun;                      /* the first one was checked */
	bool closing;
	struct neap_ready ready;
};

static struct local_transport *local_of(struct neap_transport *transport)
{
	return (struct local_transport *)(void *)transport;
}

static struct neap_reactor *reactor_of(const struct local_transport *local)
{
	return local->base.engine->reactor;
}

static unsigned char *target_of(const struct neap_slice *slice)
{
	return (unsigned char *)(uintptr_t)slice->address;
}

/* From the end: the destination lies above the source and reaches into it. */
static bool from_end(const struct neap_slice *slice)
{
	uintptr_t target = (uintptr_t)slice->address, source = (uintptr_t)slice->source;
	uintptr_t to = slice->opcode == NEAP_WRITE ? target : source, from = slice->opcode == NEAP_WRITE ? source : target;
	return to > from && to - from < slice->length;
}

/* --- the queue */

static void take_out(struct local_transport *local, struct neap_slice *slice)
{
	if (slice == local->first)
		local->begun = false;
	if (slice->previous)
		slice->previous->next = slice->next;
	else
		local->first = slice->next;
	if (slice->next)
		slice->next->previous = slice->previous;
	else
		local->last = slice->previous;
	slice->next = slice->previous = NULL;
	local->count--;
}

static void end(struct local_transport *local, struct neap_slice *slice, enum neap_status status, enum neap_cause cause)
{
	enum neap_effect effect = NEAP_EFFECT_ALL;
	uint64_t bytes = slice->length;
	if (status != NEAP_COMPLETED) {
		effect = slice->moved == 0 ? NEAP_EFFECT_NONE : from_end(slice) ? NEAP_EFFECT_UNKNOWN : NEAP_EFFECT_PARTIAL;
		bytes = effect == NEAP_EFFECT_PARTIAL ? slice->moved : 0;
	}
	take_out(local, slice);
	neap_outcome_set(&slice->outcome, status, effect, cause, 0, bytes);
	neap_slice_ended(slice);
}

static void submit(struct neap_transport *transport, struct neap_segment *segment, struct neap_slice *first, uint32_t count)
{
	struct local_transport *local = local_of(transport);
	(void)segment;
	for (struct neap_slice *slice = first, *next; slice; slice = next) {
		next = slice->next;
		slice->previous = local->last;
		slice->next = NULL;
		if (local->last)
			local->last->next = slice;
		else
			local->first = slice;
		local->last = slice;
	}
	local->count += count;
	neap_ready_again(reactor_of(local), &local->ready);
}

static uint32_t room(struct neap_transport *transport, const struct neap_segment *segment)
{
	(void)segment;
	return transport->engine->options.requests_max - local_of(transport)->count;
}

static enum neap_cause cause_of(enum neap_status status)
{
	return status == NEAP_TIMEOUT ? NEAP_CAUSE_BATCH_DEADLINE : NEAP_CAUSE_CANCELED_BY_USER;
}

static void cancel(struct neap_transport *transport, struct neap_slice *slice)
{
	end(local_of(transport), slice, slice->cancel_status, cause_of(slice->cancel_status));
}

static void forget(struct neap_transport *transport, struct neap_segment *segment)
{
	struct local_transport *local = local_of(transport);
	for (struct neap_slice *slice = local->first, *next; slice; slice = next) {
		next = slice->next;
		if (slice->segment == segment)
			end(local, slice, NEAP_CANCELED, NEAP_CAUSE_SEGMENT_CLOSED);
	}
	neap_segment_forgotten(segment);
}

/* --- copying */

static void move_chunk(struct neap_slice *slice, uint64_t bytes)
{
	uint64_t at = from_end(slice) ? slice->length - slice->moved - bytes : slice->moved;
	if (slice->opcode == NEAP_WRITE)
		memmove(target_of(slice) + at, slice->source + at, bytes);
	else
		memmove(slice->source + at, target_of(slice) + at, bytes);
	slice->moved += bytes;
}

/* What this process says to itself needs no grant, but one that is given counts: whoever lent the memory may take it back. */
static enum neap_cause check(struct local_transport *local, const struct neap_slice *slice)
{
	struct neap_engine *engine = local->base.engine;
	const struct neap_grant_token *token = neap_slice_grant(slice);
	unsigned right = slice->opcode == NEAP_WRITE ? NEAP_MAY_WRITE : NEAP_MAY_READ;
	if (!token || slice->length == 0)
		return neap_registry_check_local(engine->registry, slice->address, slice->length, &local->ref) ? NEAP_CAUSE_RANGE_NOT_REMOTE
		                                                                                                : NEAP_CAUSE_NONE;
	return neap_registry_check_grant(engine->registry, token, slice->address, slice->length, right, engine->view.instance, &local->ref)
	           ? NEAP_CAUSE_GRANT_REFUSED
	           : NEAP_CAUSE_NONE;
}

/* The first slice's next chunks, until it has ended or the budget is used up. */
static void copy(struct local_transport *local, uint64_t *budget)
{
	struct neap_slice *slice = local->first;
	struct neap_registry *registry = local->base.engine->registry;
	enum neap_cause refused = local->begun ? NEAP_CAUSE_NONE : check(local, slice);
	if (refused != NEAP_CAUSE_NONE) {
		end(local, slice, NEAP_FAILED, refused);
		return;
	}
	if (!local->begun)
		neap_slice_begun(slice);
	local->begun = true;
	while (slice->moved < slice->length && *budget > 0) {
		uint64_t bytes = slice->length - slice->moved;
		if (bytes > CHUNK_BYTES)
			bytes = CHUNK_BYTES;
		if (!neap_access_live(registry, &local->ref)) {
			end(local, slice, NEAP_FAILED, slice->grant ? NEAP_CAUSE_GRANT_REFUSED : NEAP_CAUSE_RANGE_NOT_REMOTE);
			return;
		}
		move_chunk(slice, bytes);
		*budget -= bytes < *budget ? bytes : *budget;
	}
	if (slice->moved == slice->length)
		end(local, slice, NEAP_COMPLETED, NEAP_CAUSE_NONE);
}

static void run(struct neap_ready *ready)
{
	struct local_transport *local = (struct local_transport *)(void *)((unsigned char *)ready - offsetof(struct local_transport, ready));
	uint64_t budget = PIECE_BYTES;
	if (local->closing) {
		neap_engine_transport_closed(local->base.engine, &local->base);
		return;
	}
	for (uint32_t i = 0; i < PIECE_SLICES && local->first && budget > 0; i++)
		copy(local, &budget);
	if (local->first)
		neap_ready_again(reactor_of(local), &local->ready);
}

/* --- life */

static void describe(struct neap_transport *transport, struct neap_descriptor *descriptor)
{
	(void)transport;
	(void)descriptor;
}

static void close(struct neap_transport *transport)
{
	struct local_transport *local = local_of(transport);
	local->closing = true;
	while (local->first)
		end(local, local->first, NEAP_CANCELED, NEAP_CAUSE_ENGINE_CLOSED);
	neap_ready_again(reactor_of(local), &local->ready);
}

static void destroy(struct neap_transport *transport)
{
	struct local_transport *local = local_of(transport);
	struct neap_reactor *reactor = reactor_of(local);
	neap_ready_cancel(reactor, &local->ready);
	neap_release(reactor, local, sizeof *local);
}

static const struct neap_transport_ops local_ops = {
	.name = "local",
	.submit = submit,
	.room = room,
	.cancel = cancel,
	.forget = forget,
	.describe = describe,
	.close = close,
	.destroy = destroy,
};

int neap_local_transport_create(struct neap_transport **transport_p, struct neap_engine *engine)
{
	struct local_transport *local = neap_allocate(engine->reactor, sizeof *local);
	if (!local)
		return NEAP_ENOMEM;
	local->base = (struct neap_transport){.ops = &local_ops, .engine = engine};
	local->ready.run = run;
	*transport_p = &local->base;
	return NEAP_OK;
}
