#include "tests/support/fake_transport.h"
#include "transports/engine_state.h"

static struct fake_transport *fake_of(struct neap_transport *transport)
{
	return (struct fake_transport *)(void *)transport;
}

struct fake_transport *fake_transport_of(struct neap_engine *engine)
{
	return fake_of(engine->remote);
}

static void take_out(struct fake_transport *fake, struct neap_slice *slice)
{
	if (slice->previous)
		slice->previous->next = slice->next;
	else
		fake->first = slice->next;
	if (slice->next)
		slice->next->previous = slice->previous;
	else
		fake->last = slice->previous;
	slice->next = slice->previous = NULL;
	fake->count--;
}

struct neap_slice *fake_slice(struct fake_transport *fake, uint32_t n)
{
	struct neap_slice *slice = fake->first;
	while (slice && n-- > 0)
		slice = slice->next;
	return slice;
}

void fake_end(struct fake_transport *fake, struct neap_slice *slice, enum neap_status status, enum neap_effect effect,
              enum neap_cause cause, uint64_t bytes, bool held)
{
	take_out(fake, slice);
	neap_outcome_set(&slice->outcome, status, effect, cause, 0, bytes);
	if (held) {
		slice->outcome.buffer = NEAP_BUFFER_HELD;
		fake->held[fake->held_count++] = slice;
	}
	neap_slice_ended(slice);
}

void fake_complete(struct fake_transport *fake, struct neap_slice *slice)
{
	fake_end(fake, slice, NEAP_COMPLETED, NEAP_EFFECT_ALL, NEAP_CAUSE_NONE, slice->length, false);
}

void fake_complete_all(struct fake_transport *fake)
{
	while (fake->first)
		fake_complete(fake, fake->first);
}

void fake_release(struct fake_transport *fake, struct neap_slice *slice)
{
	for (uint32_t i = 0; i < fake->held_count; i++)
		if (fake->held[i] == slice)
			fake->held[i] = fake->held[--fake->held_count];
	neap_slice_released(slice);
}

static void submit(struct neap_transport *transport, struct neap_segment *segment, struct neap_slice *first, uint32_t count)
{
	struct fake_transport *fake = fake_of(transport);
	(void)segment;
	fake->submits++;
	for (struct neap_slice *slice = first, *next; slice; slice = next) {
		next = slice->next;
		slice->previous = fake->last;
		slice->next = NULL;
		if (fake->last)
			fake->last->next = slice;
		else
			fake->first = slice;
		fake->last = slice;
	}
	fake->count += count;
}

static uint32_t room(struct neap_transport *transport, const struct neap_segment *segment)
{
	(void)segment;
	return fake_of(transport)->room;
}

static void cancel(struct neap_transport *transport, struct neap_slice *slice)
{
	struct fake_transport *fake = fake_of(transport);
	fake->cancels++;
	if (fake->answer == FAKE_LATER)
		return;
	enum neap_cause cause = slice->cancel_status == NEAP_TIMEOUT ? NEAP_CAUSE_BATCH_DEADLINE : NEAP_CAUSE_CANCELED_BY_USER;
	fake_end(fake, slice, slice->cancel_status, NEAP_EFFECT_NONE, cause, 0, fake->answer == FAKE_HOLDING);
}

static void end_segment(struct fake_transport *fake, const struct neap_segment *segment, enum neap_cause cause)
{
	for (struct neap_slice *slice = fake->first, *next; slice; slice = next) {
		next = slice->next;
		if (!segment || slice->segment == segment)
			fake_end(fake, slice, NEAP_CANCELED, NEAP_EFFECT_UNKNOWN, cause, 0, false);
	}
	for (uint32_t i = fake->held_count; i-- > 0;)
		if (!segment || fake->held[i]->segment == segment)
			fake_release(fake, fake->held[i]);
}

static void forget(struct neap_transport *transport, struct neap_segment *segment)
{
	struct fake_transport *fake = fake_of(transport);
	if (fake->answer == FAKE_LATER) {
		fake->forgetting = segment;
		return;
	}
	end_segment(fake, segment, NEAP_CAUSE_SEGMENT_CLOSED);
	neap_segment_forgotten(segment);
}

void fake_forgotten(struct fake_transport *fake)
{
	struct neap_segment *segment = fake->forgetting;
	fake->forgetting = NULL;
	end_segment(fake, segment, NEAP_CAUSE_SEGMENT_CLOSED);
	neap_segment_forgotten(segment);
}

static void describe(struct neap_transport *transport, struct neap_descriptor *descriptor)
{
	(void)transport;
	descriptor->tcp_data_port = 9;
	descriptor->tcp_proto_version = 2;
}

void fake_close_now(struct fake_transport *fake)
{
	end_segment(fake, NULL, NEAP_CAUSE_ENGINE_CLOSED);
	neap_engine_transport_closed(fake->base.engine, &fake->base);
}

static void close(struct neap_transport *transport)
{
	struct fake_transport *fake = fake_of(transport);
	fake->closing = true;
	if (!fake->slow_close)
		fake_close_now(fake);
}

static void destroy(struct neap_transport *transport)
{
	neap_release(transport->engine->reactor, transport, sizeof(struct fake_transport));
}

static const struct neap_transport_ops fake_ops = {
	.name = "fake",
	.submit = submit,
	.room = room,
	.cancel = cancel,
	.forget = forget,
	.describe = describe,
	.close = close,
	.destroy = destroy,
};

int fake_transport_make(struct neap_transport **transport_p, struct neap_engine *engine, char *why, size_t why_size)
{
	struct fake_transport *fake = neap_allocate(engine->reactor, sizeof *fake);
	(void)why;
	(void)why_size;
	if (!fake)
		return NEAP_ENOMEM;
	fake->base = (struct neap_transport){.ops = &fake_ops, .engine = engine};
	fake->room = UINT32_MAX;
	*transport_p = &fake->base;
	return NEAP_OK;
}
