/* What transports tell about slices, and how it reaches the user.
 *
 * A transport may speak from inside an action, hundreds of slices at once, where the dispatcher takes 16 events at most. So ends and
 * releases go through a list that is worked off outside of actions, a bounded number a turn; the beginning of a slice is only noted
 * and dispatched with the next event of that slice. */
#include "transports/batch_fsm.h"
#include "transports/engine_state.h"
#include "transports/slice_fsm.h"

#define REPORTS_A_PIECE 256u

struct neap_slice_extra *neap_slice_extra(struct neap_engine *engine, const struct neap_slice *slice)
{
	return &engine->extras[neap_pool_index(&engine->slices, slice)];
}

static bool in_action(struct neap_engine *engine)
{
	const struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(engine->reactor);
	return dispatcher->running || neap_dispatcher_pending(dispatcher) > 0;
}

static struct neap_engine *engine_of(const struct neap_slice *slice)
{
	return slice->segment->engine;
}

static void catch_up(struct neap_slice *slice, struct neap_slice_extra *extra)
{
	uint8_t late = extra->late;
	extra->late = NEAP_LATE_NONE;
	if (late == NEAP_LATE_BEGUN)
		neap_step(&slice->machine, slice_on_BEGUN, 0);
	else if (late == NEAP_LATE_REQUEUED)
		neap_step(&slice->machine, slice_on_REQUEUED, 0);
}

/* `opposite`: what has not been dispatched yet and is undone by this. */
static void tell(struct neap_slice *slice, uint8_t event, uint8_t late, uint8_t opposite)
{
	struct neap_engine *engine = engine_of(slice);
	struct neap_slice_extra *extra = neap_slice_extra(engine, slice);
	if (!in_action(engine)) {
		catch_up(slice, extra);
		neap_step(&slice->machine, event, 0);
	} else {
		extra->late = extra->late == opposite ? NEAP_LATE_NONE : late;
	}
}

void neap_slice_begun(struct neap_slice *slice)
{
	tell(slice, slice_on_BEGUN, NEAP_LATE_BEGUN, NEAP_LATE_REQUEUED);
}

void neap_slice_requeued(struct neap_slice *slice)
{
	tell(slice, slice_on_REQUEUED, NEAP_LATE_REQUEUED, NEAP_LATE_BEGUN);
}

static void enlist(struct neap_engine *engine, struct neap_slice *slice, struct neap_slice_extra *extra)
{
	extra->flags |= NEAP_SLICE_LISTED;
	slice->next = NULL;
	*engine->ended.tail = slice;
	engine->ended.tail = &slice->next;
	if (!engine->work.queued)
		neap_engine_wake(engine);
}

bool neap_slice_is_reported(const struct neap_slice *slice)
{
	return slice->machine.state == slice_HELD || slice->machine.state == slice_DONE;
}

void neap_slice_ended(struct neap_slice *slice)
{
	struct neap_engine *engine = engine_of(slice);
	struct neap_slice_extra *extra = neap_slice_extra(engine, slice);
	if (extra->flags & NEAP_SLICE_LISTED || neap_slice_is_reported(slice)) {
		neap_log(engine->reactor, NEAP_LOG_ERROR, "engine", "a transport ended slice %u twice; the first outcome stands",
		         slice->machine.id);
		return;
	}
	enlist(engine, slice, extra);
}

void neap_slice_released(struct neap_slice *slice)
{
	struct neap_engine *engine = engine_of(slice);
	struct neap_slice_extra *extra = neap_slice_extra(engine, slice);
	extra->flags |= NEAP_SLICE_RELEASED;
	if (!(extra->flags & NEAP_SLICE_LISTED))
		enlist(engine, slice, extra);
}

const struct neap_grant_token *neap_slice_grant(const struct neap_slice *slice)
{
	return slice->grant ? neap_pool_at(&engine_of(slice)->tokens, slice->grant - 1) : NULL;
}

void neap_slice_cancel(struct neap_engine *engine, struct neap_slice *slice, enum neap_status status)
{
	struct neap_slice_extra *extra = neap_slice_extra(engine, slice);
	bool cancelable = slice->machine.state == slice_QUEUED || slice->machine.state == slice_UNDER_WAY;
	if (extra->flags & NEAP_SLICE_LISTED || !cancelable || slice->cancel_status)
		return;
	catch_up(slice, extra);
	slice->cancel_status = (uint8_t)status;
	neap_step(&slice->machine, slice_on_CANCEL, 0);
}

static void do_ask_cancel(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	struct neap_slice *slice = (struct neap_slice *)(void *)((unsigned char *)machine - offsetof(struct neap_slice, machine));
	struct neap_transport *transport = slice->segment->transport;
	transport->ops->cancel(transport, slice);
}

neap_action_func *const neap_slice_actions[] = {
	[slice_do_ask_cancel] = do_ask_cancel,
};

/* --- reports */

/* The buffer is the user's again and the transport knows the slice no more. */
static void let_go(struct neap_engine *engine, struct neap_slice *slice, struct neap_slice_extra *extra)
{
	neap_registry_unuse(engine->registry, engine->core_index, extra->use);
	extra->use = 0;
	engine->pending--;
	neap_segment_slice_done(slice->segment);
}

static void count(struct neap_engine *engine, const struct neap_slice *slice)
{
	const struct neap_outcome *outcome = &slice->outcome;
	struct neap_engine_stats *stats = &engine->stats;
	if (outcome->status == NEAP_COMPLETED) {
		stats->requests_completed++;
		if (slice->opcode == NEAP_WRITE)
			stats->bytes_written += outcome->bytes;
		else
			stats->bytes_read += outcome->bytes;
	} else if (outcome->status == NEAP_TIMEOUT) {
		stats->requests_timed_out++;
	} else if (outcome->status == NEAP_CANCELED) {
		stats->requests_canceled++;
	} else {
		stats->requests_failed++;
	}
}

static void report_end(struct neap_engine *engine, struct neap_slice *slice, struct neap_slice_extra *extra)
{
	struct neap_batch *batch = neap_pool_at(&engine->batches, slice->batch);
	/* Released before anybody heard that it was held. */
	if (extra->flags & NEAP_SLICE_RELEASED)
		slice->outcome.buffer = NEAP_BUFFER_YOURS;
	bool held = slice->outcome.buffer == NEAP_BUFFER_HELD;
	catch_up(slice, extra);
	neap_step(&slice->machine, held ? slice_on_ENDED_HELD : slice_on_ENDED, 0);
	count(engine, slice);
	neap_batch_account(batch, &slice->outcome);
	if (!held)
		let_go(engine, slice, extra);
	struct neap_outcome outcome = slice->outcome;
	if (batch->on_request)
		batch->on_request(batch->user, batch->handle, slice->index, slice->user, &outcome);
	if (batch->left == 0)
		neap_batch_settle(batch);
}

static void report_release(struct neap_engine *engine, struct neap_slice *slice, struct neap_slice_extra *extra)
{
	struct neap_batch *batch = neap_pool_at(&engine->batches, slice->batch);
	neap_step(&slice->machine, slice_on_RELEASED, 0);
	slice->outcome.buffer = NEAP_BUFFER_YOURS;
	let_go(engine, slice, extra);
	batch->held--;
	if (batch->on_released)
		batch->on_released(batch->user, batch->handle, slice->index, slice->user);
	if (batch->left == 0 && batch->held == 0)
		neap_batch_settle(batch);
}

bool neap_slices_tend(struct neap_engine *engine)
{
	for (uint32_t i = 0; i < REPORTS_A_PIECE && engine->ended.first; i++) {
		struct neap_slice *slice = engine->ended.first;
		struct neap_slice_extra *extra = neap_slice_extra(engine, slice);
		engine->ended.first = slice->next;
		if (!slice->next)
			engine->ended.tail = &engine->ended.first;
		extra->flags &= (uint8_t)~NEAP_SLICE_LISTED;
		if (slice->machine.state == slice_HELD)
			report_release(engine, slice, extra);
		else
			report_end(engine, slice, extra);
	}
	return engine->ended.first != NULL;
}
