/* The trace ring and its dump.
 *
 * A dump, little-endian:
 *     0  8 bytes "NEAPTRC1"      8  u64 length of the whole      16  u64 FNV-1a of all that follows
 *    24  u32 classes   28  u32 control records   32  u32 data records   36  u32 bytes of strings
 *    40  u64 control records ever written        48  u64 data records ever written
 *    56  for each class 12 bytes: u32 name, u32 first entry in the names that follow, u16 states, u16 events
 *        for each class its states, then its events: u32 name | state kind << 24
 *        strings, each ended by a zero byte; a name is an offset in here
 *        32 bytes a record, control first, oldest first */
#include "fsm/sink.h"
#include "fsm/trace_view.h"
#include <string.h>

#define HEADER_BYTES 56u
#define CLASS_BYTES 12u
#define RECORD_BYTES 32u
#define STRINGS_MAX 0xffffffu

static const char magic[8] = "NEAPTRC1";

int neap_trace_ring_init(struct neap_trace_ring *ring, struct neap_trace_record *records, uint32_t count)
{
	if (!records || count == 0 || (count & (count - 1)) != 0)
		return NEAP_EINVAL;
	*ring = (struct neap_trace_ring){.records = records, .mask = count - 1};
	return NEAP_OK;
}

/* --- little-endian ------------------------------------------------------------------------------------------------------ */

static void put(uint8_t *at, unsigned bytes, uint64_t value)
{
	for (unsigned i = 0; i < bytes; i++)
		at[i] = (uint8_t)(value >> 8 * i);
}

static uint64_t get(const uint8_t *at, unsigned bytes)
{
	uint64_t value = 0;
	for (unsigned i = 0; i < bytes; i++)
		value |= (uint64_t)at[i] << 8 * i;
	return value;
}

static uint16_t get16(const uint8_t *at)
{
	return (uint16_t)get(at, 2);
}

static uint32_t get32(const uint8_t *at)
{
	return (uint32_t)get(at, 4);
}

static void put_record(uint8_t *at, const struct neap_trace_record *record)
{
	put(at, 8, record->now_ns);
	put(at + 8, 8, record->argument);
	put(at + 16, 4, record->machine_id);
	put(at + 20, 2, record->class_index);
	put(at + 22, 2, record->generation);
	at[24] = record->kind;
	at[25] = record->from;
	at[26] = record->event;
	at[27] = record->to;
	put(at + 28, 4, record->sequence);
}

static struct neap_trace_record get_record(const uint8_t *at)
{
	return (struct neap_trace_record){
		.now_ns = get(at, 8),
		.argument = get(at + 8, 8),
		.machine_id = get32(at + 16),
		.class_index = get16(at + 20),
		.generation = get16(at + 22),
		.kind = at[24],
		.from = at[25],
		.event = at[26],
		.to = at[27],
		.sequence = get32(at + 28),
	};
}

/* --- the view ------------------------------------------------------------------------------------------------------------- */

void neap_trace_view_of(struct neap_trace_view *view, const struct neap_dispatcher *dispatcher)
{
	*view = (struct neap_trace_view){.dispatcher = dispatcher, .class_count = dispatcher->class_count};
	const struct neap_trace_ring *rings[] = {&dispatcher->control_ring, &dispatcher->data_ring};
	for (unsigned i = 0; i < NEAP_TRACE_RINGS; i++) {
		uint64_t slots = rings[i]->records ? (uint64_t)rings[i]->mask + 1 : 0;
		view->written[i] = rings[i]->count;
		view->record_count[i] = (uint32_t)(rings[i]->count < slots ? rings[i]->count : slots);
	}
}

struct neap_trace_record neap_trace_view_record(const struct neap_trace_view *view, unsigned ring, uint32_t at)
{
	if (!view->dispatcher)
		return get_record(view->records[ring] + (size_t)at * RECORD_BYTES);
	const struct neap_trace_ring *live = ring == NEAP_TRACE_DATA ? &view->dispatcher->data_ring : &view->dispatcher->control_ring;
	return live->records[(live->count - view->record_count[ring] + at) & live->mask];
}

static const uint8_t *class_entry(const struct neap_trace_view *view, unsigned class_index)
{
	return view->classes + (size_t)class_index * CLASS_BYTES;
}

static uint32_t name_entry(const struct neap_trace_view *view, unsigned class_index, unsigned index)
{
	return get32(view->names + ((size_t)get32(class_entry(view, class_index) + 4) + index) * 4);
}

const char *neap_trace_view_class(const struct neap_trace_view *view, unsigned class_index)
{
	if (view->dispatcher)
		return view->dispatcher->classes[class_index]->fsm->name;
	return (const char *)view->strings + get32(class_entry(view, class_index));
}

const char *neap_trace_view_state(const struct neap_trace_view *view, unsigned class_index, unsigned state)
{
	if (view->dispatcher)
		return view->dispatcher->classes[class_index]->fsm->states[state].name;
	return (const char *)view->strings + (name_entry(view, class_index, state) & STRINGS_MAX);
}

const char *neap_trace_view_event(const struct neap_trace_view *view, unsigned class_index, unsigned event)
{
	if (view->dispatcher)
		return view->dispatcher->classes[class_index]->fsm->event_names[event];
	unsigned states = get16(class_entry(view, class_index) + 8);
	return (const char *)view->strings + (name_entry(view, class_index, states + event) & STRINGS_MAX);
}

bool neap_trace_view_is_final(const struct neap_trace_view *view, unsigned class_index, unsigned state)
{
	if (view->dispatcher)
		return view->dispatcher->classes[class_index]->fsm->states[state].kind == NEAP_STATE_FINAL;
	return name_entry(view, class_index, state) >> 24 == NEAP_STATE_FINAL;
}

bool neap_trace_next(struct neap_trace_cursor *cursor, struct neap_trace_record *record_p)
{
	const struct neap_trace_view *view = cursor->view;
	bool control = cursor->at[NEAP_TRACE_CONTROL] < view->record_count[NEAP_TRACE_CONTROL];
	bool data = cursor->at[NEAP_TRACE_DATA] < view->record_count[NEAP_TRACE_DATA];
	struct neap_trace_record records[NEAP_TRACE_RINGS];
	if (!control && !data)
		return false;
	if (control)
		records[NEAP_TRACE_CONTROL] = neap_trace_view_record(view, NEAP_TRACE_CONTROL, cursor->at[NEAP_TRACE_CONTROL]);
	if (data)
		records[NEAP_TRACE_DATA] = neap_trace_view_record(view, NEAP_TRACE_DATA, cursor->at[NEAP_TRACE_DATA]);
	cursor->ring = NEAP_TRACE_CONTROL;
	if (!control || (data && records[NEAP_TRACE_DATA].now_ns < records[NEAP_TRACE_CONTROL].now_ns))
		cursor->ring = NEAP_TRACE_DATA;
	cursor->at[cursor->ring]++;
	*record_p = records[cursor->ring];
	return true;
}

/* --- writing a dump --------------------------------------------------------------------------------------------------------- */

struct totals {
	size_t names, string_bytes;
};

static struct totals count_names(const struct neap_dispatcher *dispatcher)
{
	struct totals totals = {0, 0};
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		const struct neap_fsm *fsm = dispatcher->classes[i]->fsm;
		totals.names += (size_t)fsm->state_count + fsm->event_count;
		totals.string_bytes += strlen(fsm->name) + 1;
		for (unsigned s = 0; s < fsm->state_count; s++)
			totals.string_bytes += strlen(fsm->states[s].name) + 1;
		for (unsigned e = 0; e < fsm->event_count; e++)
			totals.string_bytes += strlen(fsm->event_names[e]) + 1;
	}
	return totals;
}

static void put_number(struct neap_sink *sink, unsigned bytes, uint64_t value)
{
	uint8_t text[8];
	put(text, bytes, value);
	neap_sink_bytes(sink, text, bytes);
}

static void put_name_entry(struct neap_sink *sink, size_t *offset, const char *name, unsigned kind)
{
	put_number(sink, 4, *offset | (uint64_t)kind << 24);
	*offset += strlen(name) + 1;
}

/* Strings lie in the order: each class's name, its states, its events. */
static void put_classes(struct neap_sink *sink, const struct neap_dispatcher *dispatcher)
{
	size_t offset = 0, first = 0;
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		const struct neap_fsm *fsm = dispatcher->classes[i]->fsm;
		put_number(sink, 4, offset);
		put_number(sink, 4, first);
		put_number(sink, 2, fsm->state_count);
		put_number(sink, 2, fsm->event_count);
		first += (size_t)fsm->state_count + fsm->event_count;
		offset += strlen(fsm->name) + 1;
		for (unsigned s = 0; s < fsm->state_count; s++)
			offset += strlen(fsm->states[s].name) + 1;
		for (unsigned e = 0; e < fsm->event_count; e++)
			offset += strlen(fsm->event_names[e]) + 1;
	}
	offset = 0;
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		const struct neap_fsm *fsm = dispatcher->classes[i]->fsm;
		offset += strlen(fsm->name) + 1;
		for (unsigned s = 0; s < fsm->state_count; s++)
			put_name_entry(sink, &offset, fsm->states[s].name, fsm->states[s].kind);
		for (unsigned e = 0; e < fsm->event_count; e++)
			put_name_entry(sink, &offset, fsm->event_names[e], 0);
	}
}

static void put_strings(struct neap_sink *sink, const struct neap_dispatcher *dispatcher)
{
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		const struct neap_fsm *fsm = dispatcher->classes[i]->fsm;
		neap_sink_bytes(sink, fsm->name, strlen(fsm->name) + 1);
		for (unsigned s = 0; s < fsm->state_count; s++)
			neap_sink_bytes(sink, fsm->states[s].name, strlen(fsm->states[s].name) + 1);
		for (unsigned e = 0; e < fsm->event_count; e++)
			neap_sink_bytes(sink, fsm->event_names[e], strlen(fsm->event_names[e]) + 1);
	}
}

/* All after the checksum. */
static void put_body(struct neap_sink *sink, const struct neap_trace_view *view, const struct totals *totals)
{
	put_number(sink, 4, view->class_count);
	put_number(sink, 4, view->record_count[NEAP_TRACE_CONTROL]);
	put_number(sink, 4, view->record_count[NEAP_TRACE_DATA]);
	put_number(sink, 4, totals->string_bytes);
	put_number(sink, 8, view->written[NEAP_TRACE_CONTROL]);
	put_number(sink, 8, view->written[NEAP_TRACE_DATA]);
	put_classes(sink, view->dispatcher);
	put_strings(sink, view->dispatcher);
	for (unsigned ring = 0; ring < NEAP_TRACE_RINGS; ring++)
		for (uint32_t i = 0; i < view->record_count[ring]; i++) {
			uint8_t bytes[RECORD_BYTES];
			struct neap_trace_record record = neap_trace_view_record(view, ring, i);
			put_record(bytes, &record);
			neap_sink_bytes(sink, bytes, sizeof bytes);
		}
}

static uint64_t hash_on(uint64_t hash, const void *bytes, size_t length)
{
	const uint8_t *at = bytes;
	while (length--)
		hash = (hash ^ *at++) * 0x100000001b3u;
	return hash;
}

#define HASH_START 0xcbf29ce484222325u

struct measure {
	uint64_t hash, length;
};

static int measure(void *user, const void *bytes, size_t length)
{
	struct measure *so_far = user;
	so_far->hash = hash_on(so_far->hash, bytes, length);
	so_far->length += length;
	return NEAP_OK;
}

/* Twice the same body: once to know its hash, once to write it, so that no memory is needed. */
int neap_trace_write_dump(const struct neap_dispatcher *dispatcher, neap_write_func *write, void *user)
{
	struct neap_trace_view view;
	struct totals totals = count_names(dispatcher);
	struct measure measured = {.hash = HASH_START};
	struct neap_sink sink;
	if (totals.string_bytes > STRINGS_MAX)
		return NEAP_ELIMIT;
	neap_trace_view_of(&view, dispatcher);
	neap_sink_begin(&sink, measure, &measured);
	put_body(&sink, &view, &totals);
	(void)neap_sink_end(&sink);

	neap_sink_begin(&sink, write, user);
	neap_sink_bytes(&sink, magic, sizeof magic);
	put_number(&sink, 8, 24 + measured.length);
	put_number(&sink, 8, measured.hash);
	put_body(&sink, &view, &totals);
	return neap_sink_end(&sink);
}

/* --- reading a dump ----------------------------------------------------------------------------------------------------------- */

/* Names are C identifiers; whatever else is in there could mean something to a viewer or a terminal. */
static bool is_name_byte(uint8_t c)
{
	return c == 0 || c == '_' || (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

static bool names_are_sound(const struct neap_trace_view *view, size_t names, size_t string_bytes)
{
	size_t first = 0;
	if (string_bytes && view->strings[string_bytes - 1] != 0)
		return false;
	for (size_t i = 0; i < string_bytes; i++)
		if (!is_name_byte(view->strings[i]))
			return false;
	for (uint32_t i = 0; i < view->class_count; i++) {
		const uint8_t *entry = class_entry(view, i);
		size_t here = (size_t)get16(entry + 8) + get16(entry + 10);
		if (get32(entry) >= string_bytes || get32(entry + 4) != first || get16(entry + 8) == 0 || get16(entry + 10) == 0)
			return false;
		first += here;
	}
	if (first != names)
		return false;
	for (size_t i = 0; i < names; i++)
		if ((get32(view->names + i * 4) & STRINGS_MAX) >= string_bytes)
			return false;
	return true;
}

static bool record_is_sound(const struct neap_trace_view *view, const struct neap_trace_record *record)
{
	if (record->kind < NEAP_TRACE_GO || record->kind > NEAP_TRACE_RELATE || record->class_index >= view->class_count)
		return false;
	const uint8_t *entry = class_entry(view, record->class_index);
	uint16_t states = get16(entry + 8), events = get16(entry + 10);
	if (record->from >= states || record->to >= states || record->event >= events)
		return false;
	return record->kind != NEAP_TRACE_RELATE || record->argument >> 32 < view->class_count;
}

static size_t names_of_classes(const struct neap_trace_view *view)
{
	size_t names = 0;
	for (uint32_t i = 0; i < view->class_count; i++)
		names += (size_t)get16(class_entry(view, i) + 8) + get16(class_entry(view, i) + 10);
	return names;
}

/* Everything up to the records lies within `length`, and the records fill the rest exactly. */
static bool layout(struct neap_trace_view *view, const uint8_t *dump, size_t length)
{
	size_t at = HEADER_BYTES, string_bytes = get32(dump + 36);
	view->class_count = get32(dump + 24);
	if (view->class_count > NEAP_CLASSES_MAX || view->class_count * (size_t)CLASS_BYTES > length - at || string_bytes > STRINGS_MAX)
		return false;
	view->classes = dump + at;
	at += view->class_count * (size_t)CLASS_BYTES;
	size_t names = names_of_classes(view);
	if (names * 4 > length - at)
		return false;
	view->names = dump + at;
	at += names * 4;
	if (string_bytes > length - at)
		return false;
	view->strings = dump + at;
	at += string_bytes;
	for (unsigned ring = 0; ring < NEAP_TRACE_RINGS; ring++) {
		view->record_count[ring] = get32(dump + 28 + 4 * ring);
		view->written[ring] = get(dump + 40 + 8 * ring, 8);
		view->records[ring] = dump + at;
		if ((size_t)view->record_count[ring] * RECORD_BYTES > length - at || view->written[ring] < view->record_count[ring])
			return false;
		at += (size_t)view->record_count[ring] * RECORD_BYTES;
	}
	return at == length && names_are_sound(view, names, string_bytes);
}

int neap_trace_view_load(struct neap_trace_view *view, const void *dump, size_t length)
{
	const uint8_t *bytes = dump;
	*view = (struct neap_trace_view){0};
	if (length < HEADER_BYTES || memcmp(bytes, magic, sizeof magic) != 0 || get(bytes + 8, 8) != length ||
	    get(bytes + 16, 8) != hash_on(HASH_START, bytes + 24, length - 24) || !layout(view, bytes, length))
		return NEAP_EPROTO;
	for (unsigned ring = 0; ring < NEAP_TRACE_RINGS; ring++)
		for (uint32_t i = 0; i < view->record_count[ring]; i++) {
			struct neap_trace_record record = neap_trace_view_record(view, ring, i);
			if (!record_is_sound(view, &record))
				return NEAP_EPROTO;
		}
	return NEAP_OK;
}

/* --- the public face ------------------------------------------------------------------------------------------------------------ */

int neap_trace_write_text(const struct neap_dispatcher *dispatcher, neap_write_func *write, void *user)
{
	struct neap_trace_view view;
	neap_trace_view_of(&view, dispatcher);
	return neap_trace_view_text(&view, write, user);
}

int neap_trace_write_chrome(const struct neap_dispatcher *dispatcher, neap_write_func *write, void *user)
{
	struct neap_trace_view view;
	neap_trace_view_of(&view, dispatcher);
	return neap_trace_view_chrome(&view, write, user);
}

int neap_trace_decode(const void *dump, size_t length, int chrome, neap_write_func *write, void *user)
{
	struct neap_trace_view view;
	int error = neap_trace_view_load(&view, dump, length);
	if (error)
		return error;
	return chrome ? neap_trace_view_chrome(&view, write, user) : neap_trace_view_text(&view, write, user);
}
