/* Submitting: everything is looked at before anything is taken, so that all requests are accepted or none. */
#include "transports/batch_fsm.h"
#include "transports/engine_state.h"
#include "transports/slice_fsm.h"
#include <string.h>

#define NOTIFY_TEXT_MAX (1024u * 1024u)

/* The segments of one call, chained through their submit fields. */
struct sorting {
	struct neap_segment *segments;
	struct neap_segment *last; /* of the request before: usually the same */
	neap_segment_id last_id;
	uint32_t tokens;
};

static struct neap_segment *segment_of(struct neap_engine *engine, struct sorting *sorting, neap_segment_id id)
{
	if (sorting->last && sorting->last_id == id)
		return sorting->last;
	struct neap_segment *segment = neap_segment_find(engine, id);
	if (!segment)
		return NULL;
	if (segment->submit_count == 0) {
		segment->submit_next = sorting->segments;
		segment->submit_first = NULL;
		segment->submit_tail = &segment->submit_first;
		sorting->segments = segment;
	}
	sorting->last = segment;
	sorting->last_id = id;
	return segment;
}

static int check_request(struct neap_engine *engine, struct sorting *sorting, const struct neap_request *request)
{
	if (!request->source || (unsigned)request->opcode > NEAP_WRITE || request->length > UINT64_MAX - (uintptr_t)request->source ||
	    request->length > UINT64_MAX - request->target_offset)
		return NEAP_EINVAL;
	struct neap_segment *segment = segment_of(engine, sorting, request->segment);
	if (!segment)
		return NEAP_ESTALE;
	segment->submit_count++;
	sorting->tokens += request->grant != NULL;
	return NEAP_OK;
}

static bool text_fits(const char *name, const char *message)
{
	return strnlen(name, NOTIFY_TEXT_MAX) + strnlen(message, NOTIFY_TEXT_MAX) < NOTIFY_TEXT_MAX;
}

static int check_options(const struct neap_batch_options *options)
{
	if (!options)
		return NEAP_OK;
	if (!options->notify_name != !options->notify_message)
		return NEAP_EINVAL;
	return !options->notify_name || text_fits(options->notify_name, options->notify_message) ? NEAP_OK : NEAP_EINVAL;
}

static uint32_t left_in(const struct neap_pool *pool)
{
	return pool->capacity - pool->used;
}

static int check_room(struct neap_engine *engine, const struct sorting *sorting, uint32_t count)
{
	if (left_in(&engine->slices) < count || left_in(&engine->batches) == 0 || left_in(&engine->pages) < neap_batch_pages(count) ||
	    left_in(&engine->tokens) < sorting->tokens)
		return NEAP_EAGAIN;
	for (struct neap_segment *segment = sorting->segments; segment; segment = segment->submit_next)
		if (segment->transport->ops->room(segment->transport, segment) < segment->submit_count)
			return NEAP_EAGAIN;
	return NEAP_OK;
}

static int check_all(struct neap_engine *engine, struct sorting *sorting, const struct neap_request *requests, size_t count,
                     const struct neap_batch_options *options)
{
	if (count == 0 || !requests)
		return NEAP_EINVAL;
	if (count > engine->options.requests_max)
		return NEAP_ETOOMANY;
	int error = check_options(options);
	for (size_t i = 0; !error && i < count; i++)
		error = check_request(engine, sorting, &requests[i]);
	return error ? error : check_room(engine, sorting, (uint32_t)count);
}

static void forget_sorting(struct sorting *sorting)
{
	for (struct neap_segment *segment = sorting->segments; segment; segment = segment->submit_next)
		segment->submit_count = 0;
}

static int copy_notify(struct neap_batch *batch, const struct neap_batch_options *options)
{
	size_t name_bytes = strlen(options->notify_name) + 1, bytes = name_bytes + strlen(options->notify_message) + 1;
	batch->notify_text = neap_allocate(batch->engine->reactor, bytes);
	if (!batch->notify_text)
		return NEAP_ENOMEM;
	batch->notify_bytes = (uint32_t)bytes;
	batch->notify_name_bytes = (uint32_t)name_bytes;
	memcpy(batch->notify_text, options->notify_name, name_bytes);
	memcpy(batch->notify_text + name_bytes, options->notify_message, bytes - name_bytes);
	return NEAP_OK;
}

/* Everything but the machine and the timer, which know their own past. */
static void reset(struct neap_batch *batch, struct neap_engine *engine, const struct neap_batch_options *options)
{
	batch->engine = engine;
	batch->deadline_ns = options ? options->deadline_ns : 0;
	batch->on_request = options ? options->on_request : NULL;
	batch->on_batch = options ? options->on_batch : NULL;
	batch->on_released = options ? options->on_released : NULL;
	batch->user = options ? options->user : NULL;
	batch->keep = !options || options->keep;
	batch->handle = neap_pool_handle(&engine->batches, batch);
	batch->summary = (struct neap_batch_summary){0};
	batch->notify_text = NULL;
	batch->walking = batch->giving = false;
	batch->wanted_status = 0;
	batch->held = batch->cursor = batch->depth = 0;
}

static void fill_slice(struct neap_engine *engine, struct neap_slice *slice, const struct neap_request *request,
                       struct neap_segment *segment)
{
	neap_machine_begin(&slice->machine, &engine->classes.slice->class_);
	slice->next = slice->previous = NULL;
	slice->source = request->source;
	slice->address = request->target_offset;
	slice->length = request->length;
	slice->moved = 0;
	slice->segment = segment;
	slice->user = request->user;
	slice->grant = 0;
	slice->opcode = (uint8_t)request->opcode;
	slice->attempts = slice->transport_phase = slice->cancel_status = 0;
	slice->placed = request->placed && request->opcode == NEAP_WRITE;
	slice->outcome = (struct neap_outcome){.status = NEAP_WAITING};
	slice->transport_lane = NULL;
	slice->transport_word = 0;
	if (request->grant) {
		struct neap_grant_token *token = neap_pool_take(&engine->tokens);
		*token = *request->grant;
		slice->grant = neap_pool_index(&engine->tokens, token) + 1;
	}
	*neap_slice_extra(engine, slice) = (struct neap_slice_extra){
		.use = request->length == 0 ? 0
		                            : neap_registry_use(engine->registry, engine->core_index, &engine->use_cache,
		                                                (uintptr_t)request->source, request->length)};
}

static void take_requests(struct neap_engine *engine, struct neap_batch *batch, struct sorting *sorting,
                          const struct neap_request *requests, uint32_t count)
{
	uint32_t batch_index = neap_pool_index(&engine->batches, batch);
	neap_batch_index_begin(batch, count);
	/* Between turns another core's registry could change under a lookup. */
	if (engine->home != engine)
		neap_registry_enter(engine->registry, engine->core_index);
	for (uint32_t i = 0; i < count; i++) {
		struct neap_segment *segment = segment_of(engine, sorting, requests[i].segment);
		struct neap_slice *slice = neap_pool_take(&engine->slices);
		fill_slice(engine, slice, &requests[i], segment);
		slice->batch = batch_index;
		slice->index = i;
		neap_batch_index_set(batch, i, neap_pool_index(&engine->slices, slice));
		*segment->submit_tail = slice;
		segment->submit_tail = &slice->next;
	}
	if (engine->home != engine)
		neap_registry_leave(engine->registry, engine->core_index);
}

static void hand_over(struct neap_engine *engine, struct sorting *sorting)
{
	for (struct neap_segment *segment = sorting->segments; segment; segment = segment->submit_next) {
		uint32_t count = segment->submit_count;
		segment->submit_count = 0;
		segment->slices += count;
		engine->pending += count;
		segment->transport->ops->submit(segment->transport, segment, segment->submit_first, count);
	}
}

int neap_batch_submit(struct neap_engine *engine, const struct neap_request *requests, size_t count,
                      const struct neap_batch_options *options, neap_batch_id *batch_p)
{
	struct sorting sorting = {0};
	if (batch_p)
		*batch_p = NEAP_INVALID_BATCH;
	if (!neap_engine_is_running(engine))
		return NEAP_ECLOSED;
	int error = check_all(engine, &sorting, requests, count, options);
	if (error) {
		forget_sorting(&sorting);
		return error;
	}
	struct neap_batch *batch = neap_pool_take(&engine->batches);
	reset(batch, engine, options);
	if (options && options->notify_name) {
		batch->notify_segment = requests[0].segment;
		error = copy_notify(batch, options);
	}
	if (error) {
		neap_pool_give(&engine->batches, batch);
		forget_sorting(&sorting);
		return error;
	}
	batch->left = batch->summary.total = (uint32_t)count;
	neap_machine_begin(&batch->machine, &engine->classes.batch->class_);
	neap_step(&batch->machine, batch_on_SUBMITTED, 0);
	take_requests(engine, batch, &sorting, requests, (uint32_t)count);
	engine->stats.requests_submitted += count;
	hand_over(engine, &sorting);
	if (batch_p)
		*batch_p = batch->handle;
	neap_reactor_touch(engine->reactor);
	return NEAP_OK;
}
