/* Batches: operations of the usual kind, so many at once. The callers' list says what is still to be started, so a batch of any length
 * costs one object and a slot for each operation under way. */
#include "store/accessor/inside.h"

#define STARTS_MAX 64u /* a run, of one batch */

static void leave_queue(struct accessor_batch *batch)
{
	struct neap_accessor *accessor = batch->accessor;
	if (!batch->queued)
		return;
	*(batch->previous ? &batch->previous->next : &accessor->batch_first) = batch->next;
	*(batch->next ? &batch->next->previous : &accessor->batch_last) = batch->previous;
	batch->queued = false;
}

static void enqueue(struct accessor_batch *batch)
{
	struct neap_accessor *accessor = batch->accessor;
	if (batch->queued)
		return;
	batch->previous = accessor->batch_last;
	batch->next = NULL;
	*(accessor->batch_last ? &accessor->batch_last->next : &accessor->batch_first) = batch;
	accessor->batch_last = batch;
	batch->queued = true;
}

static void join_queue(struct accessor_batch *batch)
{
	enqueue(batch);
	neap_ready_again(batch->accessor->reactor, &batch->accessor->pump);
}

/* One item has its outcome. The batch may be gone afterwards. */
static void item_ended(struct accessor_batch *batch, uint32_t index, const struct neap_store_outcome *outcome)
{
	struct neap_accessor *accessor = batch->accessor;
	batch->ended++;
	batch->succeeded += outcome->status == NEAP_STORE_SUCCESS;
	if (batch->options.done)
		batch->options.done(batch->options.user, index, batch->items[index].user, outcome);
	if (batch->ended < batch->count) {
		if (batch->started < batch->count)
			join_queue(batch);
		return;
	}
	struct neap_store_batch_options options = batch->options;
	uint32_t succeeded = batch->succeeded, count = batch->count;
	leave_queue(batch);
	neap_pool_give(&accessor->batches, batch);
	if (options.finished)
		options.finished(options.user, succeeded, count);
	neap_ready_again(accessor->reactor, &accessor->pump);
}

static void slot_ended(struct accessor_slot *slot, const struct neap_store_outcome *outcome)
{
	struct accessor_batch *batch = slot->batch;
	uint32_t index = slot->index;
	neap_pool_give(&batch->accessor->slots, slot);
	batch->running--;
	item_ended(batch, index, outcome);
}

static void done(void *user, const struct neap_store_outcome *outcome)
{
	struct accessor_slot *slot = user;
	slot->operation = 0;
	if (!outcome->held) {
		slot_ended(slot, outcome);
		return;
	}
	slot->outcome = *outcome; /* told when the slices are free */
	slot->outcome.place = NULL;
	slot->outcome.unsettled = NULL;
	if (outcome->unsettled) {
		slot->unsettled = *outcome->unsettled;
		slot->outcome.unsettled = &slot->unsettled;
	}
	slot->outcome.held = false;
	slot->outcome.why = "the transport held the buffers for a while";
}

static void released(void *user)
{
	struct accessor_slot *slot = user;
	slot_ended(slot, &slot->outcome);
}

static int start_item(struct accessor_batch *batch, uint32_t index)
{
	struct neap_accessor *accessor = batch->accessor;
	const struct neap_batch_item *item = &batch->items[index];
	uint64_t now_ns = neap_now(accessor->reactor);
	struct accessor_slot *slot = neap_pool_take(&accessor->slots);
	int error;
	if (!slot)
		return NEAP_EAGAIN;
	*slot = (struct accessor_slot){.batch = batch, .index = index};
	if (batch->get) {
		struct neap_get_options options = batch->options.get;
		options.deadline_ns = batch->deadline_ns - now_ns;
		options.released = released;
		error = neap_accessor_get(accessor, &item->key, item->slices, item->count, &options, done, slot, &slot->operation);
	} else {
		struct neap_put_options options = batch->options.put;
		options.deadline_ns = batch->deadline_ns - now_ns;
		options.released = released;
		error = neap_accessor_put(accessor, &item->key, item->slices, item->count, &options, done, slot, &slot->operation);
	}
	if (error)
		neap_pool_give(&accessor->slots, slot);
	else
		batch->running++;
	return error;
}

static void fail_item(struct accessor_batch *batch, uint32_t index, int error)
{
	struct neap_store_outcome outcome = {.status = NEAP_STORE_FAILED, .error = error, .why = "the item was not begun",
	                                     .stopped = error == NEAP_ETIMEDOUT || error == NEAP_ECANCELED};
	item_ended(batch, index, &outcome);
}

/* Starts what may be started. True: there is more to do now. */
static bool run(struct accessor_batch *batch)
{
	struct neap_accessor *accessor = batch->accessor;
	for (uint32_t i = 0; i < STARTS_MAX; i++) {
		if (batch->started == batch->count)
			return false;
		uint32_t index = batch->started;
		bool last = index + 1 == batch->count && batch->running == 0; /* its end is the batch's */
		int error = NEAP_OK;
		if (batch->canceled || accessor->closing)
			error = NEAP_ECANCELED;
		else if (neap_now(accessor->reactor) >= batch->deadline_ns)
			error = NEAP_ETIMEDOUT;
		else if (batch->running >= batch->options.concurrency)
			return false;
		if (!error)
			error = start_item(batch, index);
		if (error == NEAP_EAGAIN) {
			enqueue(batch); /* others have the room: their end wakes the pump */
			return false;
		}
		batch->started++;
		if (error)
			fail_item(batch, index, error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : error);
		if (error && last)
			return false;
	}
	return true;
}

void accessor_batches_run(struct neap_accessor *accessor)
{
	uint32_t rounds = accessor->batches.used;
	while (rounds-- > 0 && accessor->batch_first) {
		struct accessor_batch *batch = accessor->batch_first;
		leave_queue(batch);
		if (run(batch))
			join_queue(batch);
	}
}

void accessor_batches_cancel(struct neap_accessor *accessor)
{
	struct accessor_batch *batch;
	for (uint32_t index = 0; (batch = neap_pool_next(&accessor->batches, &index)) != NULL;) {
		batch->canceled = true;
		join_queue(batch);
	}
}

static int begin(struct neap_accessor *accessor, const struct neap_batch_item *items, uint32_t count,
                 const struct neap_store_batch_options *options, bool get, uint64_t *batch_p)
{
	uint64_t now_ns = neap_now(accessor->reactor), deadline_ns = get ? options->get.deadline_ns : options->put.deadline_ns;
	deadline_ns = deadline_ns ? deadline_ns : accessor->options.deadline_ns;
	if (accessor->closing)
		return NEAP_ECLOSED;
	if (count == 0 || !items || deadline_ns >= UINT64_MAX - now_ns)
		return NEAP_EINVAL;
	struct accessor_batch *batch = neap_pool_take(&accessor->batches);
	if (!batch)
		return NEAP_EAGAIN;
	*batch = (struct accessor_batch){.accessor = accessor, .items = items, .options = *options, .count = count, .get = get,
	                                 .deadline_ns = now_ns + deadline_ns};
	batch->options.concurrency = options->concurrency ? options->concurrency : 64;
	join_queue(batch);
	if (batch_p)
		*batch_p = neap_pool_handle(&accessor->batches, batch);
	return NEAP_OK;
}

int neap_accessor_put_batch(struct neap_accessor *accessor, const struct neap_batch_item *items, uint32_t count,
                            const struct neap_store_batch_options *options, uint64_t *batch_p)
{
	return begin(accessor, items, count, options, false, batch_p);
}

int neap_accessor_get_batch(struct neap_accessor *accessor, const struct neap_batch_item *items, uint32_t count,
                            const struct neap_store_batch_options *options, uint64_t *batch_p)
{
	return begin(accessor, items, count, options, true, batch_p);
}

void neap_accessor_cancel_batch(struct neap_accessor *accessor, uint64_t handle)
{
	struct accessor_batch *batch = neap_pool_find(&accessor->batches, handle);
	struct accessor_slot *slot;
	if (!batch)
		return;
	batch->canceled = true;
	join_queue(batch);
	for (uint32_t index = 0; (slot = neap_pool_next(&accessor->slots, &index)) != NULL;)
		if (slot->batch == batch && slot->operation)
			neap_accessor_cancel(accessor, slot->operation);
}
