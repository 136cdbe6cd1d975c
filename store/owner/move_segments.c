/* The segments of accessors that moves go to, kept open between them: opening one is a handshake. Bounded, and closed when nobody has
 * needed them for a while, so that accessors that come and go do not fill the engine. */
#include "store/owner/inside.h"
#include <string.h>

static uint64_t hash_of(const struct neap_owner *owner, const char *name)
{
	return neap_key_hash(&owner->secret, name, (uint32_t)strlen(name));
}

int neap_move_segments_create(struct neap_owner *owner)
{
	owner->segments = neap_allocate(owner->reactor, owner->options.segments_max * sizeof *owner->segments);
	return owner->segments ? NEAP_OK : NEAP_ENOMEM;
}

static void close_segment(struct neap_owner *owner, struct neap_move_segment *segment)
{
	segment->open = false;
	(void)neap_segment_close(owner->engine, segment->id);
}

void neap_move_segments_destroy(struct neap_owner *owner)
{
	if (!owner->segments)
		return;
	for (uint32_t i = 0; i < owner->options.segments_max; i++)
		if (owner->segments[i].open)
			close_segment(owner, &owner->segments[i]);
	neap_release(owner->reactor, owner->segments, owner->options.segments_max * sizeof *owner->segments);
}

void neap_move_segments_look(struct neap_owner *owner)
{
	uint64_t now_ns = neap_now(owner->reactor);
	for (uint32_t i = 0; i < owner->options.segments_max; i++) {
		struct neap_move_segment *segment = &owner->segments[i];
		if (segment->open && segment->moves == 0 && now_ns - segment->used_ns >= owner->options.segment_idle_ns)
			close_segment(owner, segment);
	}
}

struct neap_move_segment *neap_move_segment_take(struct neap_owner *owner, const char *name)
{
	uint64_t hash = hash_of(owner, name);
	for (uint32_t i = 0; i < owner->options.segments_max; i++) {
		struct neap_move_segment *segment = &owner->segments[i];
		if (!segment->open || segment->name_hash != hash || strcmp(segment->name, name) != 0)
			continue;
		segment->moves++;
		return segment;
	}
	return NULL;
}

struct neap_move_segment *neap_move_segment_keep(struct neap_owner *owner, const char *name, neap_segment_id id)
{
	struct neap_move_segment *same = neap_move_segment_take(owner, name), *place = NULL;
	if (same) { /* another move has opened it meanwhile */
		(void)neap_segment_close(owner->engine, id);
		return same;
	}
	for (uint32_t i = 0; i < owner->options.segments_max; i++) {
		struct neap_move_segment *segment = &owner->segments[i];
		if (segment->moves == 0 && (!place || !segment->open || (place->open && segment->used_ns < place->used_ns)))
			place = segment;
	}
	if (!place)
		return NULL;
	if (place->open)
		close_segment(owner, place);
	*place = (struct neap_move_segment){
		.name_hash = hash_of(owner, name), .id = id, .moves = 1, .open = true};
	memcpy(place->name, name, strlen(name));
	return place;
}

void neap_move_segment_leave(struct neap_owner *owner, struct neap_move_segment *segment)
{
	segment->moves--;
	segment->used_ns = neap_now(owner->reactor);
}
