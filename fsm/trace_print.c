/* A trace as text and as Chrome trace-event JSON. */
#include "fsm/sink.h"
#include "fsm/trace_view.h"
#include <inttypes.h>

/* --- text ------------------------------------------------------------------------------------------------------------------- */

static void text_record(struct neap_sink *sink, const struct neap_trace_view *view, const struct neap_trace_record *record)
{
	unsigned class_ = record->class_index;
	const char *from = neap_trace_view_state(view, class_, record->from);
	const char *event = neap_trace_view_event(view, class_, record->event);
	neap_sink_format(sink, "%" PRIu64 ".%09" PRIu64 " %s#%" PRIu32 ".%u ", record->now_ns / 1000000000,
	                 record->now_ns % 1000000000, neap_trace_view_class(view, class_), record->machine_id, record->generation);
	switch ((enum neap_trace_kind)record->kind) {
	case NEAP_TRACE_GO:
		neap_sink_format(sink, "%s -%s-> %s", from, event, neap_trace_view_state(view, class_, record->to));
		break;
	case NEAP_TRACE_IGNORED:
		neap_sink_format(sink, "%s ignored %s", from, event);
		break;
	case NEAP_TRACE_STALE:
		neap_sink_format(sink, "%s stale %s", from, event);
		break;
	case NEAP_TRACE_IMPOSSIBLE:
		neap_sink_format(sink, "%s IMPOSSIBLE %s", from, event);
		break;
	case NEAP_TRACE_RELATE:
		neap_sink_format(sink, "%s parent of %s#%" PRIu32 "\n", from, neap_trace_view_class(view, (unsigned)(record->argument >> 32)),
		                 (uint32_t)record->argument);
		return;
	}
	neap_sink_format(sink, " 0x%" PRIx64 "\n", record->argument);
}

int neap_trace_view_text(const struct neap_trace_view *view, neap_write_func *write, void *user)
{
	static const char *const ring_names[NEAP_TRACE_RINGS] = {"control", "data-path"};
	struct neap_sink sink;
	struct neap_trace_cursor cursor = {.view = view};
	struct neap_trace_record record;
	neap_sink_begin(&sink, write, user);
	for (unsigned ring = 0; ring < NEAP_TRACE_RINGS; ring++)
		if (view->written[ring] > view->record_count[ring])
			neap_sink_format(&sink, "# %" PRIu64 " older %s records were overwritten\n",
			                 view->written[ring] - view->record_count[ring], ring_names[ring]);
	while (neap_trace_next(&cursor, &record))
		text_record(&sink, view, &record);
	return neap_sink_end(&sink);
}

/* --- Chrome trace events: a process per machine type, a thread per instance, a slice per state ---------------------------------- */

static bool is_go_of(const struct neap_trace_record *record, unsigned class_index, uint32_t machine_id)
{
	return record->kind == NEAP_TRACE_GO && record->class_index == class_index && record->machine_id == machine_id;
}

/* When the machine moved next, looking from the cursor on. Without memory for all machines this is a search: quick for machines that
 * move often, the length of the ring for those that never move again. */
static bool next_move(const struct neap_trace_cursor *cursor, unsigned class_index, uint32_t machine_id, uint64_t *when_p)
{
	for (unsigned ring = 0; ring < NEAP_TRACE_RINGS; ring++)
		for (uint32_t i = cursor->at[ring]; i < cursor->view->record_count[ring]; i++) {
			struct neap_trace_record record = neap_trace_view_record(cursor->view, ring, i);
			if (is_go_of(&record, class_index, machine_id)) {
				*when_p = record.now_ns;
				return true;
			}
		}
	return false;
}

static uint64_t last_moment(const struct neap_trace_view *view)
{
	uint64_t last = 0;
	for (unsigned ring = 0; ring < NEAP_TRACE_RINGS; ring++)
		if (view->record_count[ring]) {
			uint64_t here = neap_trace_view_record(view, ring, view->record_count[ring] - 1).now_ns;
			last = here > last ? here : last;
		}
	return last;
}

static void chrome_head(struct neap_sink *sink, char phase, unsigned class_index, uint32_t machine_id, uint64_t when_ns)
{
	neap_sink_format(sink, ",\n{\"ph\":\"%c\",\"pid\":%u,\"tid\":%" PRIu32 ",\"ts\":%" PRIu64 ".%03u", phase, class_index + 1,
	                 machine_id, when_ns / 1000, (unsigned)(when_ns % 1000));
}

static void chrome_name(struct neap_sink *sink, const char *name)
{
	neap_sink_text(sink, ",\"name\":");
	neap_sink_json(sink, name);
}

static void chrome_arguments(struct neap_sink *sink, const char *event, const struct neap_trace_record *record)
{
	neap_sink_text(sink, ",\"args\":{\"event\":");
	neap_sink_json(sink, event);
	neap_sink_format(sink, ",\"argument\":\"0x%" PRIx64 "\",\"generation\":%u}}", record->argument, record->generation);
}

static void chrome_go(struct neap_sink *sink, const struct neap_trace_cursor *cursor, const struct neap_trace_record *record,
                      uint64_t last_ns)
{
	const struct neap_trace_view *view = cursor->view;
	unsigned class_ = record->class_index;
	bool final = neap_trace_view_is_final(view, class_, record->to);
	if (record->from == 0) {
		neap_sink_format(sink, ",\n{\"ph\":\"M\",\"pid\":%u,\"tid\":%" PRIu32 ",\"name\":\"thread_name\",\"args\":{\"name\":\"%s %" PRIu32
		                       "\"}}", class_ + 1, record->machine_id, neap_trace_view_class(view, class_), record->machine_id);
	}
	uint64_t until = last_ns;
	chrome_head(sink, final ? 'i' : 'X', class_, record->machine_id, record->now_ns);
	if (final) {
		neap_sink_text(sink, ",\"s\":\"t\"");
	} else {
		(void)next_move(cursor, class_, record->machine_id, &until);
		uint64_t lasted = until > record->now_ns ? until - record->now_ns : 0;
		neap_sink_format(sink, ",\"dur\":%" PRIu64 ".%03u", lasted / 1000, (unsigned)(lasted % 1000));
	}
	chrome_name(sink, neap_trace_view_state(view, class_, record->to));
	chrome_arguments(sink, neap_trace_view_event(view, class_, record->event), record);
}

/* Events that moved nothing are marks on the machine's track. */
static void chrome_mark(struct neap_sink *sink, const struct neap_trace_view *view, const struct neap_trace_record *record)
{
	const char *what = record->kind == NEAP_TRACE_IGNORED ? "ignored" : record->kind == NEAP_TRACE_STALE ? "stale" : "IMPOSSIBLE";
	const char *event = neap_trace_view_event(view, record->class_index, record->event);
	chrome_head(sink, 'i', record->class_index, record->machine_id, record->now_ns);
	neap_sink_format(sink, ",\"s\":\"t\",\"name\":\"%s %s\"", what, event);
	chrome_arguments(sink, event, record);
}

/* An arrow from the parent, now, to the child's next move. */
static void chrome_relate(struct neap_sink *sink, const struct neap_trace_cursor *cursor, const struct neap_trace_record *record,
                          unsigned arrow)
{
	unsigned child_class = (unsigned)(record->argument >> 32);
	uint32_t child_id = (uint32_t)record->argument;
	uint64_t when = record->now_ns;
	(void)next_move(cursor, child_class, child_id, &when);
	chrome_head(sink, 's', record->class_index, record->machine_id, record->now_ns);
	neap_sink_format(sink, ",\"id\":%u,\"cat\":\"relate\",\"name\":\"parent of\"}", arrow);
	chrome_head(sink, 'f', child_class, child_id, when);
	neap_sink_format(sink, ",\"bp\":\"e\",\"id\":%u,\"cat\":\"relate\",\"name\":\"parent of\"}", arrow);
}

int neap_trace_view_chrome(const struct neap_trace_view *view, neap_write_func *write, void *user)
{
	struct neap_sink sink;
	struct neap_trace_cursor cursor = {.view = view};
	struct neap_trace_record record;
	uint64_t last_ns = last_moment(view);
	unsigned arrows = 0;
	neap_sink_begin(&sink, write, user);
	neap_sink_text(&sink, "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n{\"ph\":\"M\",\"pid\":0,\"name\":\"process_name\","
	                      "\"args\":{\"name\":\"neap\"}}");
	for (uint32_t i = 0; i < view->class_count; i++)
		neap_sink_format(&sink, ",\n{\"ph\":\"M\",\"pid\":%" PRIu32 ",\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", i + 1,
		                 neap_trace_view_class(view, i));
	while (!sink.error && neap_trace_next(&cursor, &record)) {
		if (record.kind == NEAP_TRACE_GO)
			chrome_go(&sink, &cursor, &record, last_ns);
		else if (record.kind == NEAP_TRACE_RELATE)
			chrome_relate(&sink, &cursor, &record, ++arrows);
		else
			chrome_mark(&sink, view, &record);
	}
	neap_sink_text(&sink, "\n]}\n");
	return neap_sink_end(&sink);
}
