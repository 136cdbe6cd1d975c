/* The life of a batch after submit: accounts, deadline, cancel, callbacks, polling, giving back. */
#include "transports/batch_fsm.h"
#include "transports/engine_state.h"
#include "transports/slice_fsm.h"

/* A batch may have a hundred thousand requests: whatever walks over them does so in pieces. */
#define CANCELS_A_PIECE 256u
#define GIVES_A_PIECE 1024u

static struct neap_batch *batch_of(struct neap_engine *engine, neap_batch_id id)
{
	struct neap_batch *batch = neap_pool_find(&engine->batches, id);
	return batch && !batch->giving ? batch : NULL;
}

static struct neap_slice *slice_at(const struct neap_batch *batch, uint32_t index)
{
	return neap_pool_at(&batch->engine->slices, neap_batch_index_get(batch, index));
}

static struct neap_batch *batch_of_machine(const struct neap_machine *machine)
{
	return (struct neap_batch *)(void *)((unsigned char *)(uintptr_t)machine - offsetof(struct neap_batch, machine));
}

uint64_t neap_batch_due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	const struct neap_batch *batch = batch_of_machine(machine);
	return batch->deadline_ns ? batch->deadline_ns : UINT64_MAX;
}

/* --- the walk that cancels what is left */

static void walk_begin(struct neap_batch *batch, enum neap_status status)
{
	struct neap_engine *engine = batch->engine;
	batch->wanted_status = (uint8_t)status;
	batch->cursor = 0;
	batch->walking = true;
	batch->walk_next = engine->walks;
	if (batch->walk_next)
		batch->walk_next->walk_slot = &batch->walk_next;
	batch->walk_slot = &engine->walks;
	engine->walks = batch;
	neap_engine_wake(engine);
}

static void walk_end(struct neap_batch *batch)
{
	if (!batch->walking)
		return;
	batch->walking = false;
	*batch->walk_slot = batch->walk_next;
	if (batch->walk_next)
		batch->walk_next->walk_slot = batch->walk_slot;
}

static void walk_on(struct neap_batch *batch)
{
	for (uint32_t i = 0; i < CANCELS_A_PIECE && batch->cursor < batch->summary.total; i++)
		neap_slice_cancel(batch->engine, slice_at(batch, batch->cursor++), batch->wanted_status);
	if (batch->cursor == batch->summary.total)
		walk_end(batch);
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	walk_begin(batch_of_machine(machine), NEAP_TIMEOUT);
}

static void do_cancel(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	walk_begin(batch_of_machine(machine), NEAP_CANCELED);
}

neap_action_func *const neap_batch_actions[] = {
	[batch_do_expire] = do_expire,
	[batch_do_cancel] = do_cancel,
};

/* --- giving back */

static void give_slice(struct neap_engine *engine, struct neap_slice *slice)
{
	if (slice->grant)
		neap_pool_give(&engine->tokens, neap_pool_at(&engine->tokens, slice->grant - 1));
	neap_pool_give(&engine->slices, slice);
}

/* True: the batch itself is given back too. */
static bool give_some(struct neap_batch *batch)
{
	struct neap_engine *engine = batch->engine;
	for (uint32_t i = 0; i < GIVES_A_PIECE && batch->cursor < batch->summary.total; i++)
		give_slice(engine, slice_at(batch, batch->cursor++));
	if (batch->cursor < batch->summary.total)
		return false;
	neap_batch_index_end(batch);
	neap_release(engine->reactor, batch->notify_text, batch->notify_bytes);
	batch->notify_text = NULL;
	neap_machine_end(&batch->machine);
	neap_pool_give(&engine->batches, batch);
	return true;
}

static void give_begin(struct neap_batch *batch)
{
	struct neap_engine *engine = batch->engine;
	walk_end(batch);
	batch->giving = true;
	batch->cursor = 0;
	if (give_some(batch))
		return;
	batch->sweep_next = engine->sweeps;
	engine->sweeps = batch;
	neap_engine_wake(engine);
}

bool neap_batches_tend(struct neap_engine *engine)
{
	if (engine->walks)
		walk_on(engine->walks);
	struct neap_batch *sweep = engine->sweeps;
	if (sweep) {
		struct neap_batch *next = sweep->sweep_next;
		if (give_some(sweep))
			engine->sweeps = next;
	}
	return engine->walks || engine->sweeps;
}

void neap_batches_free_all(struct neap_engine *engine)
{
	uint32_t index = 0;
	for (struct neap_batch *batch; (batch = neap_pool_next(&engine->batches, &index)) != NULL;) {
		neap_release(engine->reactor, batch->notify_text, batch->notify_bytes);
		batch->notify_text = NULL;
		neap_machine_end(&batch->machine);
	}
}

/* --- accounts */

void neap_batch_account(struct neap_batch *batch, const struct neap_outcome *outcome)
{
	batch->left--;
	if (outcome->buffer == NEAP_BUFFER_HELD)
		batch->held++;
	if (outcome->status == NEAP_COMPLETED) {
		batch->summary.completed++;
		batch->summary.bytes += outcome->bytes;
	} else if (outcome->status == NEAP_TIMEOUT) {
		batch->summary.timed_out++;
	} else if (outcome->status == NEAP_CANCELED) {
		batch->summary.canceled++;
	} else {
		batch->summary.failed++;
	}
}

static void send_notify(struct neap_batch *batch)
{
	if (!batch->notify_text || batch->summary.completed != batch->summary.total)
		return;
	int error = neap_notify_begin_send(batch->engine, batch->notify_segment, batch->notify_text,
	                                   batch->notify_text + batch->notify_name_bytes, NULL, NULL);
	if (error)
		neap_log(batch->engine->reactor, NEAP_LOG_WARNING, "engine", "the notify of a completed batch was not sent: %s",
		         neap_error_text(error));
}

static void all_ended(struct neap_batch *batch)
{
	uint8_t event = batch->held ? batch_on_ENDED_HELD : batch->keep ? batch_on_ENDED_KEPT : batch_on_ENDED;
	walk_end(batch);
	neap_step(&batch->machine, event, 0);
	send_notify(batch);
	struct neap_batch_summary summary = batch->summary;
	bool keep = batch->keep, held = batch->held > 0;
	if (batch->on_batch)
		batch->on_batch(batch->user, batch->handle, &summary);
	/* A kept one may be gone by now: the callee was allowed to free it. */
	if (!keep && !held)
		give_begin(batch);
}

static void all_released(struct neap_batch *batch)
{
	neap_step(&batch->machine, batch->keep ? batch_on_RELEASED_KEPT : batch_on_RELEASED, 0);
	if (!batch->keep)
		give_begin(batch);
}

void neap_batch_settle(struct neap_batch *batch)
{
	if (batch->machine.state == batch_HOLDING)
		all_released(batch);
	else
		all_ended(batch);
}

/* --- questions and orders */

int neap_batch_ask_status(struct neap_engine *engine, neap_batch_id id, uint32_t index, struct neap_outcome *outcome_p)
{
	struct neap_batch *batch = batch_of(engine, id);
	if (!batch)
		return NEAP_ESTALE;
	if (index >= batch->summary.total)
		return NEAP_EINVAL;
	const struct neap_slice *slice = slice_at(batch, index);
	if (neap_slice_is_reported(slice)) {
		*outcome_p = slice->outcome;
		return NEAP_OK;
	}
	bool begun = slice->machine.state != slice_QUEUED || neap_slice_extra(engine, slice)->late == NEAP_LATE_BEGUN;
	*outcome_p = (struct neap_outcome){.status = begun ? NEAP_PENDING : NEAP_WAITING, .effect = NEAP_EFFECT_UNKNOWN,
	                                   .buffer = NEAP_BUFFER_HELD};
	return NEAP_OK;
}

int neap_batch_ask_summary(struct neap_engine *engine, neap_batch_id id, struct neap_batch_summary *summary_p, bool *finished_p)
{
	const struct neap_batch *batch = batch_of(engine, id);
	if (!batch)
		return NEAP_ESTALE;
	if (summary_p)
		*summary_p = batch->summary;
	if (finished_p)
		*finished_p = batch->machine.state != batch_NEW && batch->machine.state != batch_RUNNING &&
		              batch->machine.state != batch_CANCELING;
	return NEAP_OK;
}

int neap_batch_ask_cancel(struct neap_engine *engine, neap_batch_id id)
{
	struct neap_batch *batch = batch_of(engine, id);
	if (!batch)
		return NEAP_ESTALE;
	/* Also when it is submitted and canceled within one action, and the machine has still to hear of both. */
	if (batch->machine.state == batch_NEW || batch->machine.state == batch_RUNNING)
		neap_step(&batch->machine, batch_on_CANCEL, 0);
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}

int neap_batch_ask_cancel_one(struct neap_engine *engine, neap_batch_id id, uint32_t index)
{
	struct neap_batch *batch = batch_of(engine, id);
	if (!batch)
		return NEAP_ESTALE;
	if (index >= batch->summary.total)
		return NEAP_EINVAL;
	neap_slice_cancel(engine, slice_at(batch, index), NEAP_CANCELED);
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}

int neap_batch_ask_free(struct neap_engine *engine, neap_batch_id id)
{
	struct neap_batch *batch = batch_of(engine, id);
	/* GONE: from its own on_batch; it goes by itself. */
	if (!batch || batch->machine.state == batch_GONE)
		return NEAP_ESTALE;
	if (batch->machine.state != batch_FINISHED)
		return NEAP_EBUSY;
	neap_step(&batch->machine, batch_on_FREE, 0);
	give_begin(batch);
	return NEAP_OK;
}
