/* A trace to be printed, wherever it lies: in a dispatcher's rings or in a dump. Internal to fsm/. */
#ifndef NEAP_FSM_TRACE_VIEW_H
#define NEAP_FSM_TRACE_VIEW_H

#include <neap/fsm.h>

enum { NEAP_TRACE_CONTROL, NEAP_TRACE_DATA, NEAP_TRACE_RINGS };

struct neap_trace_view {
	const struct neap_dispatcher *dispatcher; /* or NULL, then: */
	const uint8_t *classes, *names, *strings, *records[NEAP_TRACE_RINGS];
	uint32_t class_count;
	uint32_t record_count[NEAP_TRACE_RINGS]; /* still there; 0 is the oldest */
	uint64_t written[NEAP_TRACE_RINGS];      /* since the start */
};

void neap_trace_view_of(struct neap_trace_view *view, const struct neap_dispatcher *dispatcher);
/* NEAP_EPROTO unless every count, offset, name and record of the dump is sound. */
int neap_trace_view_load(struct neap_trace_view *view, const void *dump, size_t length);

struct neap_trace_record neap_trace_view_record(const struct neap_trace_view *view, unsigned ring, uint32_t at);
const char *neap_trace_view_class(const struct neap_trace_view *view, unsigned class_index);
const char *neap_trace_view_state(const struct neap_trace_view *view, unsigned class_index, unsigned state);
const char *neap_trace_view_event(const struct neap_trace_view *view, unsigned class_index, unsigned event);
bool neap_trace_view_is_final(const struct neap_trace_view *view, unsigned class_index, unsigned state);

/* Both rings as one, oldest first; at equal times the control ring first. */
struct neap_trace_cursor {
	const struct neap_trace_view *view;
	uint32_t at[NEAP_TRACE_RINGS]; /* the next of each ring */
	unsigned ring;                 /* of the record answered last */
};
bool neap_trace_next(struct neap_trace_cursor *cursor, struct neap_trace_record *record_p);

int neap_trace_view_text(const struct neap_trace_view *view, neap_write_func *write, void *user);
int neap_trace_view_chrome(const struct neap_trace_view *view, neap_write_func *write, void *user);

#endif
