#include "store/tier/config.h"
#include "metadata/json.h"
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define TIB (UINT64_C(1) << 40)
#define PLACE_MAX 96u
#define SHOWN_MAX 40u

struct reader {
	struct neap_json json;
	struct neap_tier_config *config;
	size_t error_at;  /* when an error of ours was noted: where the value begins */
	bool ours;
	char text[512];   /* of the reader: place and error */
};

enum field_type { SIZE, COUNT, INTEGER, REAL, CHOICE, WORD, TAGS, IGNORED };
enum { OF_DRAM = 1, OF_STORAGE = 2, OF_ALL = 3, REQUIRED = 4, DIRECTORY = 8 };

/* A key, where its value goes and what it may be. */
struct field {
	const char *key;
	enum field_type type;
	size_t offset;
	double min, max;
	const char *const *choices; /* NULL-terminated; what is stored is the index */
	uint32_t flags;
	uint32_t size;              /* WORD: room for it */
	const char *hint;
};

/* --- errors and warnings with their place ----------------------------------------------------------------------------- */

static void line_and_column(const char *text, size_t at, unsigned *line_p, unsigned *column_p)
{
	*line_p = *column_p = 1;
	for (size_t i = 0; i < at; i++) {
		bool newline = text[i] == '\n';
		*line_p += newline;
		*column_p = newline ? 1 : *column_p + 1;
	}
}

/* Noted for the value that begins at `at`. Always false. */
NEAP_PRINTF(4, 5) static bool fail_at(struct reader *reader, size_t at, int error, const char *format, ...)
{
	char text[320];
	va_list list;
	va_start(list, format);
	vsnprintf(text, sizeof text, format, list);
	va_end(list);
	if (!reader->json.error) {
		reader->error_at = at;
		reader->ours = true;
	}
	return neap_json_fail(&reader->json, error, "%s", text);
}

/* Each key once, however many tiers have it. */
static void warn(struct reader *reader, size_t at, const char *key, const char *text)
{
	struct neap_tier_config *config = reader->config;
	char shown[SHOWN_MAX], told[SHOWN_MAX + 32];
	unsigned line, column;
	line_and_column(reader->json.text, at, &line, &column);
	neap_json_printable(key, strlen(key), shown, sizeof shown);
	snprintf(told, sizeof told, ": %s: ", shown);
	for (uint32_t i = 0; i < config->warning_count; i++)
		if (strstr(config->warnings[i], told))
			return;
	if (config->warning_count == NEAP_CONFIG_WARNINGS_MAX) {
		config->warnings_left_out++;
		return;
	}
	snprintf(config->warnings[config->warning_count++], NEAP_CONFIG_WARNING_SIZE, "line %u, column %u%s%s", line, column, told,
	         text);
}

/* Where the value that comes next begins. */
static size_t value_at(struct reader *reader)
{
	(void)neap_json_kind(&reader->json);
	return reader->json.at;
}

/* --- values ----------------------------------------------------------------------------------------------------------- */

static const char *hint(const struct field *field, char *text, size_t size)
{
	if (field->hint)
		snprintf(text, size, "; %s", field->hint);
	else
		text[0] = '\0';
	return text;
}

static bool fail_range(struct reader *reader, size_t at, const struct field *field, const char *is, const char *what)
{
	char tip[96], range[96];
	if (field->max >= 1.8e19)
		snprintf(range, sizeof range, "of at least %.10g", field->min);
	else
		snprintf(range, sizeof range, "from %.10g to %.10g", field->min, field->max);
	return fail_at(reader, at, NEAP_EJSON, "is %s and must be %s %s%s", is, what, range, hint(field, tip, sizeof tip));
}

/* The number's own text, cut when it is a long one. */
static bool number_text(struct reader *reader, char text[SHOWN_MAX], bool *integer_p)
{
	struct neap_json *json = &reader->json;
	size_t begin = json->at;
	if (!neap_json_skip(json))
		return false;
	size_t length = json->at - begin;
	neap_json_printable(json->text + begin, length, text, SHOWN_MAX);
	*integer_p = length < SHOWN_MAX && !strpbrk(text, ".eE");
	return true;
}

static bool fail_type(struct reader *reader, size_t at, const char *wanted, const struct field *field)
{
	static const char *const names[] = {"", "an object", "an array", "a string", "a number", "a boolean", "null"};
	enum neap_json_kind kind = neap_json_kind(&reader->json);
	char tip[96];
	if (kind == NEAP_JSON_BAD) {
		(void)neap_json_skip(&reader->json); /* says what is wrong */
		return false;
	}
	return fail_at(reader, at, NEAP_EJSON, "is %s and must be %s%s", names[kind], wanted, hint(field, tip, sizeof tip));
}

static bool take_u64(struct reader *reader, const struct field *field, const char *what, uint64_t *value_p)
{
	size_t at = value_at(reader);
	char text[SHOWN_MAX];
	bool integer;
	if (neap_json_kind(&reader->json) != NEAP_JSON_NUMBER)
		return fail_type(reader, at, what, field);
	if (!number_text(reader, text, &integer))
		return false;
	uint64_t value;
	if (!integer || text[0] == '-' || !neap_size_parse(text, &value) || (double)value < field->min || (double)value > field->max)
		return fail_range(reader, at, field, text, what);
	*value_p = value;
	return true;
}

static bool take_size(struct reader *reader, const struct field *field, uint64_t *value_p)
{
	size_t at = value_at(reader), length = 0;
	char text[SHOWN_MAX], shown[SHOWN_MAX + 2];
	uint64_t value;
	if (neap_json_kind(&reader->json) != NEAP_JSON_STRING)
		return take_u64(reader, field, "a size in bytes", value_p);
	if (!neap_json_short_string(&reader->json, text, sizeof text, &length))
		return false;
	if (length >= sizeof text || !neap_size_parse(text, &value))
		return fail_at(reader, at, NEAP_EJSON, "is \"%s\" and must be a size such as \"4GB\", \"512 MiB\" or a number of bytes",
		               length >= sizeof text ? "..." : neap_json_printable(text, length, shown, sizeof shown));
	if ((double)value < field->min || (value != NEAP_CAPACITY_INFINITE && (double)value > field->max)) {
		snprintf(shown, sizeof shown, "\"%s\"", text);
		return fail_range(reader, at, field, shown, "a size in bytes");
	}
	*value_p = value;
	return true;
}

static bool take_real(struct reader *reader, const struct field *field, double *value_p)
{
	size_t at = value_at(reader);
	char text[SHOWN_MAX];
	bool integer;
	if (neap_json_kind(&reader->json) != NEAP_JSON_NUMBER)
		return fail_type(reader, at, "a number", field);
	if (!number_text(reader, text, &integer))
		return false;
	double value = strtod(text, NULL);
	if (!isfinite(value) || value < field->min || value > field->max)
		return fail_range(reader, at, field, text, "a number");
	*value_p = value;
	return true;
}

static bool take_integer(struct reader *reader, const struct field *field, int32_t *value_p)
{
	size_t at = value_at(reader);
	char text[SHOWN_MAX];
	bool integer;
	if (neap_json_kind(&reader->json) != NEAP_JSON_NUMBER)
		return fail_type(reader, at, "an integer", field);
	if (!number_text(reader, text, &integer))
		return false;
	double value = integer ? strtod(text, NULL) : 0;
	if (!integer || value < field->min || value > field->max)
		return fail_range(reader, at, field, text, "an integer");
	*value_p = (int32_t)value;
	return true;
}

static bool fail_choice(struct reader *reader, size_t at, const struct field *field, const char *is)
{
	char list[160] = "", shown[SHOWN_MAX], tip[96];
	for (size_t i = 0, to = 0; field->choices[i] && to < sizeof list; i++)
		to += (size_t)snprintf(list + to, sizeof list - to, "%s\"%s\"", i == 0 ? "" : ", ", field->choices[i]);
	return fail_at(reader, at, NEAP_EJSON, "is \"%s\" and must be one of %s%s",
	               neap_json_printable(is, strlen(is), shown, sizeof shown), list, hint(field, tip, sizeof tip));
}

static bool take_choice(struct reader *reader, const struct field *field, int *value_p)
{
	size_t at = value_at(reader);
	char text[SHOWN_MAX];
	if (neap_json_kind(&reader->json) != NEAP_JSON_STRING)
		return fail_type(reader, at, "a string", field);
	if (!neap_json_short_string(&reader->json, text, sizeof text, NULL))
		return false;
	for (int i = 0; field->choices[i]; i++)
		if (strcmp(field->choices[i], text) == 0) {
			*value_p = i;
			return true;
		}
	return fail_choice(reader, at, field, text);
}

static bool take_word(struct reader *reader, const struct field *field, char *value)
{
	size_t at = value_at(reader), length = 0;
	if (neap_json_kind(&reader->json) != NEAP_JSON_STRING)
		return fail_type(reader, at, "a string", field);
	if (!neap_json_short_string(&reader->json, value, field->size, &length))
		return false;
	if (length >= field->size)
		return fail_at(reader, at, NEAP_ELIMIT, "has %zu bytes and may have %u", length, field->size - 1);
	if (field->flags & DIRECTORY && value[0] != '/')
		return fail_at(reader, at, NEAP_EJSON, "must be an absolute path; begin it with /");
	return true;
}

static bool take_tags(struct reader *reader, struct neap_tier_settings *tier)
{
	static const struct field a_tag = {.key = "tags", .type = WORD, .size = NEAP_TAG_SIZE, .hint = "such as \"fast\""};
	size_t at = value_at(reader);
	tier->tag_count = 0;
	if (neap_json_kind(&reader->json) != NEAP_JSON_ARRAY)
		return fail_type(reader, at, "an array of strings", &a_tag);
	if (!neap_json_enter_array(&reader->json))
		return false;
	while (neap_json_next_item(&reader->json)) {
		at = value_at(reader);
		if (tier->tag_count == NEAP_TAGS_MAX)
			return fail_at(reader, at, NEAP_ELIMIT, "a tier has at most %u tags", NEAP_TAGS_MAX);
		if (!take_word(reader, &a_tag, tier->tags[tier->tag_count]))
			return false;
		tier->tag_count++;
	}
	return !reader->json.error;
}

static bool take_value(struct reader *reader, const struct field *field, void *object)
{
	void *value = (char *)object + field->offset;
	switch (field->type) {
	case SIZE: return take_size(reader, field, value);
	case COUNT: return take_u64(reader, field, "a number", value);
	case INTEGER: return take_integer(reader, field, value);
	case REAL: return take_real(reader, field, value);
	case CHOICE: return take_choice(reader, field, value);
	case WORD: return take_word(reader, field, value);
	case TAGS: return take_tags(reader, object);
	case IGNORED: break;
	}
	return neap_json_skip(&reader->json);
}

/* --- objects ---------------------------------------------------------------------------------------------------------- */

struct given {
	uint32_t seen;                /* bit per field */
	size_t at[32];                /* where its key stands */
	size_t begin;                 /* of the object */
};

static const struct field *find_field(const struct field *fields, uint32_t count, const char *key, uint32_t *index_p)
{
	for (*index_p = 0; *index_p < count; ++*index_p)
		if (strcmp(fields[*index_p].key, key) == 0)
			return &fields[*index_p];
	return NULL;
}

static bool read_member(struct reader *reader, const struct field *fields, uint32_t count, void *object, struct given *given)
{
	struct neap_json *json = &reader->json;
	const struct neap_json_frame *frame = &json->frames[json->depth - 1];
	size_t key_at = (size_t)(frame->key - json->text) - 1;
	uint32_t index;
	const struct field *field = find_field(fields, count, json->key, &index);
	if (!field) {
		char shown[SHOWN_MAX];
		warn(reader, key_at, neap_json_printable(frame->key, frame->key_length, shown, sizeof shown), "unknown key, ignored");
		return neap_json_skip(json);
	}
	if (given->seen >> index & 1)
		return fail_at(reader, key_at, NEAP_EJSON, "is given twice; remove one of them");
	given->seen |= 1u << index;
	given->at[index] = key_at;
	if (field->type == IGNORED)
		warn(reader, key_at, field->key, field->hint);
	return take_value(reader, field, object);
}

static bool read_object(struct reader *reader, const struct field *fields, uint32_t count, void *object, struct given *given)
{
	static const struct field an_object = {.key = ""};
	*given = (struct given){.begin = value_at(reader)};
	if (neap_json_kind(&reader->json) != NEAP_JSON_OBJECT)
		return fail_type(reader, given->begin, "an object", &an_object);
	if (!neap_json_enter_object(&reader->json))
		return false;
	while (neap_json_next_key(&reader->json))
		if (!read_member(reader, fields, count, object, given))
			return false;
	return !reader->json.error;
}

/* --- tiers ------------------------------------------------------------------------------------------------------------ */

static const char *const tier_kinds[] = {"DRAM", "STORAGE", "DISK", NULL};
static const char *const allocators[] = {"OFFSET", "CACHELIB", NULL};
static const char *const page_kinds[] = {"transparent", "no", "reserved", NULL};
static const char *const storage_backends[] = {"bucket_storage_backend", NULL};

/* What a tier's object may say. `tier` first, so that offsets are the same. */
struct tier_object {
	struct neap_tier_settings tier;
	int kind, allocator, pages, backend;
};

#define IN_TIER(member) offsetof(struct tier_object, tier.member)
#define ANY_SIZE 1, 1.8446744073709552e19

static const struct field tier_fields[] = {
	{"type", CHOICE, offsetof(struct tier_object, kind), 0, 0, tier_kinds, OF_ALL | REQUIRED, 0,
	 "other kinds are not in this build"},
	{"capacity", SIZE, IN_TIER(capacity), ANY_SIZE, NULL, OF_ALL | REQUIRED, 0, "write a size such as \"4GB\""},
	{"priority", INTEGER, IN_TIER(priority), -2147483648.0, 2147483647.0, NULL, OF_ALL | REQUIRED, 0, "higher means preferred"},
	{"tags", TAGS, 0, 0, 0, NULL, OF_ALL, 0, NULL},
	{"allocator_type", CHOICE, offsetof(struct tier_object, allocator), 0, 0, allocators, OF_DRAM, 0, NULL},
	{"numa_node", INTEGER, IN_TIER(numa_node), -2147483648.0, 1023, NULL, OF_DRAM, 0, "leave it out for any node"},
	{"huge_pages", CHOICE, offsetof(struct tier_object, pages), 0, 0, page_kinds, OF_DRAM, 0, NULL},
	{"slab_size", SIZE, IN_TIER(slab_bytes), 2097152, 67108864, NULL, OF_DRAM, 0, "a power of two"},
	{"staging_buffer_capacity", SIZE, IN_TIER(staging_buffer_capacity), 1048576, 1.1e12, NULL, OF_STORAGE, 0, NULL},
	{"batch_size_threshold", SIZE, IN_TIER(batch_size_threshold), ANY_SIZE, NULL, OF_STORAGE, 0, NULL},
	{"batch_count_threshold", COUNT, IN_TIER(batch_count_threshold), 1, 1e9, NULL, OF_STORAGE, 0, NULL},
	{"storage_backend_type", CHOICE, offsetof(struct tier_object, backend), 0, 0, storage_backends, OF_STORAGE, 0, NULL},
	{"storage_filepath", WORD, IN_TIER(storage_filepath), 0, 0, NULL, OF_STORAGE | DIRECTORY, NEAP_TIER_PATH_SIZE,
	 "the directory it may use for itself"},
	{"total_size_limit", SIZE, IN_TIER(total_size_limit), 1048576, 1.8446744073709552e19, NULL, OF_STORAGE, 0, NULL},
	{"bucket_size_limit", SIZE, IN_TIER(bucket_size_limit), 1048576, 1.1e12, NULL, OF_STORAGE, 0, NULL},
	{"bucket_keys_limit", COUNT, IN_TIER(bucket_keys_limit), 1, 1e9, NULL, OF_STORAGE, 0, NULL},
};
#define TIER_FIELDS (sizeof tier_fields / sizeof *tier_fields)

static const struct neap_tier_settings tier_defaults = {
	.numa_node = -1,
	.staging_buffer_capacity = 128 * MIB,
	.batch_size_threshold = 64 * MIB,
	.batch_count_threshold = 1000,
	.total_size_limit = 2 * TIB,
	.bucket_size_limit = 256 * MIB,
	.bucket_keys_limit = 500,
	.storage_filepath = "/data/file_storage",
};

static bool check_presence(struct reader *reader, const struct given *given, enum neap_tier_kind kind)
{
	uint32_t mine = kind == NEAP_TIER_DRAM ? OF_DRAM : OF_STORAGE;
	for (uint32_t i = 0; i < TIER_FIELDS; i++) {
		const struct field *field = &tier_fields[i];
		bool seen = given->seen >> i & 1;
		char tip[96];
		if (!seen && field->flags & REQUIRED)
			return fail_at(reader, given->begin, NEAP_EJSON, "has no \"%s\", which each tier needs%s", field->key,
			               hint(field, tip, sizeof tip));
		if (seen && !(field->flags & mine))
			warn(reader, given->at[i], field->key,
			     kind == NEAP_TIER_DRAM ? "has no effect on a DRAM tier" : "has no effect on a STORAGE tier");
	}
	return true;
}

static bool check_tier(struct reader *reader, const struct tier_object *object, const struct given *given)
{
	const struct neap_tier_settings *tier = &object->tier;
	if (!check_presence(reader, given, tier->kind))
		return false;
	if (tier->kind == NEAP_TIER_DRAM && tier->capacity == NEAP_CAPACITY_INFINITE)
		return fail_at(reader, given->begin, NEAP_EJSON, "has an infinite capacity, and DRAM is not; write a size such as \"4GB\"");
	if (tier->slab_bytes & (tier->slab_bytes - 1))
		return fail_at(reader, given->begin, NEAP_EJSON,
		               "has a slab_size of %llu, and it must be a power of two from 2 MiB to 64 MiB",
		               (unsigned long long)tier->slab_bytes);
	if (tier->kind == NEAP_TIER_STORAGE && tier->bucket_size_limit > tier->total_size_limit)
		return fail_at(reader, given->begin, NEAP_EJSON, "has a bucket_size_limit above its total_size_limit; lower it");
	if (object->allocator == 1)
		warn(reader, given->begin, "allocator_type", "CACHELIB is not in this build, OFFSET is used");
	return true;
}

static bool read_tier(struct reader *reader)
{
	struct neap_tier_config *config = reader->config;
	struct tier_object object = {.tier = tier_defaults};
	struct given given;
	if (config->tier_count == NEAP_TIERS_MAX)
		return fail_at(reader, value_at(reader), NEAP_ELIMIT, "there are more than %u tiers; merge some", NEAP_TIERS_MAX);
	if (!read_object(reader, tier_fields, TIER_FIELDS, &object, &given))
		return false;
	object.tier.kind = object.kind == 0 ? NEAP_TIER_DRAM : NEAP_TIER_STORAGE;
	object.tier.pages = (enum neap_pages)object.pages;
	if (!check_tier(reader, &object, &given))
		return false;
	config->tiers[config->tier_count++] = object.tier;
	return true;
}

static bool read_tiers(struct reader *reader, size_t *at_p)
{
	static const struct field list = {.key = "tiers",
	                                  .hint = "such as [{\"type\": \"DRAM\", \"capacity\": \"4GB\", \"priority\": 10}]"};
	*at_p = value_at(reader);
	if (neap_json_kind(&reader->json) != NEAP_JSON_ARRAY)
		return fail_type(reader, *at_p, "an array of tiers", &list);
	if (!neap_json_enter_array(&reader->json))
		return false;
	while (neap_json_next_item(&reader->json))
		if (!read_tier(reader))
			return false;
	return !reader->json.error;
}

/* --- scheduler -------------------------------------------------------------------------------------------------------- */

static const char *const scheduler_types[] = {"event_driven", "legacy", NULL};
static const char *const role_modes[] = {"auto", "manual", NULL};

struct scheduler_object {
	struct neap_scheduler_settings scheduler;
	int type, role_mode;
};

#define IN_SCHEDULER(member) offsetof(struct scheduler_object, scheduler.member)
#define OLD "of the legacy scheduler, which is not in this build; ignored"

static const struct field scheduler_fields[] = {
	{"type", CHOICE, offsetof(struct scheduler_object, type), 0, 0, scheduler_types, 0, 0, NULL},
	{"policy", IGNORED, 0, 0, 0, NULL, 0, 0, "SIEVE is the only policy; ignored"},
	{"tier_role_mode", CHOICE, offsetof(struct scheduler_object, role_mode), 0, 0, role_modes, 0, 0, NULL},
	{"fast_tier_tag", WORD, IN_SCHEDULER(fast_tier_tag), 0, 0, NULL, 0, NEAP_TAG_SIZE, NULL},
	{"slow_tier_tag", WORD, IN_SCHEDULER(slow_tier_tag), 0, 0, NULL, 0, NEAP_TAG_SIZE, NULL},
	{"thread_count", COUNT, IN_SCHEDULER(thread_count), 1, 64, NULL, 0, 0, NULL},
	{"queue_capacity", COUNT, IN_SCHEDULER(queue_capacity), 1, 1048576, NULL, 0, 0, NULL},
	{"loop_interval_ms", COUNT, IN_SCHEDULER(loop_interval_ms), 1, 3600000, NULL, 0, 0, NULL},
	{"hot_key_num", COUNT, IN_SCHEDULER(hot_key_num), 0, 1e9, NULL, 0, 0, "0 means all"},
	{"evict_watermark_low", REAL, IN_SCHEDULER(watermark_low), 0.01, 1, NULL, 0, 0, NULL},
	{"evict_watermark_high", REAL, IN_SCHEDULER(watermark_high), 0.01, 1, NULL, 0, 0, NULL},
	{"limit_watermark", REAL, IN_SCHEDULER(watermark_limit), 0.01, 1, NULL, 0, 0, NULL},
	{"evict_rate_k", REAL, IN_SCHEDULER(evict_rate_k), 0, 1000, NULL, 0, 0, NULL},
	{"evict_load_window_s", REAL, IN_SCHEDULER(evict_load_window_s), 0.001, 3600, NULL, 0, 0, NULL},
	{"offload_freq_threshold", COUNT, IN_SCHEDULER(offload_freq_threshold), 0, 15, NULL, 0, 0, NULL},
	{"onboard_freq_threshold", COUNT, IN_SCHEDULER(onboard_freq_threshold), 0, 15, NULL, 0, 0, NULL},
	{"onboard_fast_threshold", REAL, IN_SCHEDULER(onboard_fast_threshold), 0, 1, NULL, 0, 0, NULL},
	{"sketch_capacity", COUNT, IN_SCHEDULER(sketch_capacity), 16, 1073741824, NULL, 0, 0, NULL},
	{"candidate_scan_limit", COUNT, IN_SCHEDULER(candidate_scan_limit), 0, 1e9, NULL, 0, 0, "0 means no limit"},
	{"band_warm_threshold", COUNT, IN_SCHEDULER(band_warm), 1, 15, NULL, 0, 0, NULL},
	{"band_hot_threshold", COUNT, IN_SCHEDULER(band_hot), 1, 15, NULL, 0, 0, NULL},
	{"band_veryhot_threshold", COUNT, IN_SCHEDULER(band_veryhot), 1, 15, NULL, 0, 0, NULL},
	{"eviction_mode", IGNORED, 0, 0, 0, NULL, 0, 0, OLD},
	{"stats_shards", IGNORED, 0, 0, 0, NULL, 0, 0, OLD},
	{"stats_snapshot_limit", IGNORED, 0, 0, 0, NULL, 0, 0, OLD},
	{"promotion_threshold", IGNORED, 0, 0, 0, NULL, 0, 0, OLD},
	{"high_watermark", IGNORED, 0, 0, 0, NULL, 0, 0, OLD},
	{"low_watermark", IGNORED, 0, 0, 0, NULL, 0, 0, OLD},
};
#define SCHEDULER_FIELDS (sizeof scheduler_fields / sizeof *scheduler_fields)
_Static_assert(SCHEDULER_FIELDS <= 32 && TIER_FIELDS <= 32, "a bit for each");

static const struct neap_scheduler_settings scheduler_defaults = {
	.thread_count = 2,
	.queue_capacity = 1024,
	.loop_interval_ms = 1000,
	.hot_key_num = 2000,
	.watermark_low = 0.70,
	.watermark_high = 0.90,
	.watermark_limit = 0.95,
	.evict_rate_k = 1.0,
	.evict_load_window_s = 2.0,
	.offload_freq_threshold = 2,
	.onboard_freq_threshold = 4,
	.onboard_fast_threshold = 0.50,
	.sketch_capacity = 65536,
	.candidate_scan_limit = 4096,
	.band_warm = 3,
	.band_hot = 8,
	.band_veryhot = 15,
};

static bool read_scheduler(struct reader *reader, size_t *at_p)
{
	struct scheduler_object object = {.scheduler = scheduler_defaults};
	struct neap_scheduler_settings *it = &object.scheduler;
	struct given given;
	*at_p = value_at(reader);
	if (!read_object(reader, scheduler_fields, SCHEDULER_FIELDS, &object, &given))
		return false;
	if (object.type == 1)
		warn(reader, given.at[0], "type", "the legacy scheduler is not in this build, the event_driven one is used");
	if (it->watermark_low > it->watermark_high || it->watermark_high > it->watermark_limit)
		return fail_at(reader, given.begin, NEAP_EJSON,
		               "evict_watermark_low %g, evict_watermark_high %g and limit_watermark %g must not fall", it->watermark_low,
		               it->watermark_high, it->watermark_limit);
	if (it->band_warm >= it->band_hot || it->band_hot >= it->band_veryhot)
		return fail_at(reader, given.begin, NEAP_EJSON,
		               "band_warm_threshold, band_hot_threshold and band_veryhot_threshold must rise");
	it->role_mode = (enum neap_tier_role_mode)object.role_mode;
	reader->config->scheduler = *it;
	return true;
}

const struct neap_tier_settings *neap_tier_config_tagged(const struct neap_tier_config *config, const char *tag)
{
	const struct neap_tier_settings *best = NULL;
	for (uint32_t i = 0; i < config->tier_count; i++)
		for (uint32_t t = 0; t < config->tiers[i].tag_count; t++)
			if (strcmp(config->tiers[i].tags[t], tag) == 0 && (!best || config->tiers[i].priority > best->priority))
				best = &config->tiers[i];
	return best;
}

/* Tags name tiers of this document, the fast one with the higher priority. */
static bool check_roles(struct reader *reader, size_t at)
{
	const struct neap_tier_config *config = reader->config;
	const struct neap_scheduler_settings *scheduler = &config->scheduler;
	if (scheduler->role_mode != NEAP_ROLES_MANUAL)
		return true;
	const struct neap_tier_settings *fast = neap_tier_config_tagged(config, scheduler->fast_tier_tag);
	const struct neap_tier_settings *slow = neap_tier_config_tagged(config, scheduler->slow_tier_tag);
	if (!fast)
		return fail_at(reader, at, NEAP_EJSON, "no tier has the fast_tier_tag \"%s\"; add it to the tags of one",
		               scheduler->fast_tier_tag);
	if (!slow && scheduler->slow_tier_tag[0])
		return fail_at(reader, at, NEAP_EJSON, "no tier has the slow_tier_tag \"%s\"; add it to the tags of one",
		               scheduler->slow_tier_tag);
	if (slow && slow->priority >= fast->priority)
		return fail_at(reader, at, NEAP_EJSON, "the slow tier's priority %d is not below the fast one's %d", (int)slow->priority,
		               (int)fast->priority);
	return true;
}

/* --- the document ----------------------------------------------------------------------------------------------------- */

static bool read_document(struct reader *reader)
{
	struct neap_json *json = &reader->json;
	size_t tiers_at = SIZE_MAX, scheduler_at = SIZE_MAX, begin = value_at(reader);
	bool ok = true;
	if (!neap_json_enter_object(json))
		return false;
	while (ok && neap_json_next_key(json)) {
		size_t key_at = (size_t)(json->frames[0].key - json->text) - 1;
		bool is_tiers = strcmp(json->key, "tiers") == 0;
		if ((is_tiers ? tiers_at : strcmp(json->key, "scheduler") == 0 ? scheduler_at : SIZE_MAX) != SIZE_MAX)
			return fail_at(reader, key_at, NEAP_EJSON, "is given twice; remove one of them");
		if (is_tiers) {
			ok = read_tiers(reader, &tiers_at);
		} else if (strcmp(json->key, "scheduler") == 0) {
			ok = read_scheduler(reader, &scheduler_at);
		} else {
			char shown[SHOWN_MAX];
			warn(reader, key_at, neap_json_printable(json->frames[0].key, json->frames[0].key_length, shown, sizeof shown),
			     "unknown key, ignored");
			ok = neap_json_skip(json);
		}
	}
	if (!ok || !neap_json_finish(json))
		return false;
	if (reader->config->tier_count == 0)
		return fail_at(reader, tiers_at == SIZE_MAX ? begin : tiers_at, NEAP_EJSON,
		               "\"tiers\" is missing or empty; write [{\"type\": \"DRAM\", \"capacity\": \"4GB\", \"priority\": 10}]");
	return check_roles(reader, scheduler_at == SIZE_MAX ? begin : scheduler_at);
}

int neap_tier_config_read(const char *text, size_t length, struct neap_tier_config *config, char *why, size_t why_size)
{
	struct reader reader = {.config = config};
	unsigned line, column;
	*config = (struct neap_tier_config){.scheduler = scheduler_defaults};
	if (why_size > 0)
		why[0] = '\0';
	if (length > NEAP_CONFIG_LENGTH_MAX) {
		snprintf(why, why_size, "a tier configuration of %zu bytes; at most %u are read", length, NEAP_CONFIG_LENGTH_MAX);
		return NEAP_ELIMIT;
	}
	neap_json_init(&reader.json, text, length, reader.text, sizeof reader.text);
	if (read_document(&reader))
		return NEAP_OK;
	line_and_column(text, reader.ours ? reader.error_at : reader.json.at, &line, &column);
	snprintf(why, why_size, "line %u, column %u: %s", line, column, reader.text);
	return reader.json.error == NEAP_ELIMIT ? NEAP_ELIMIT : NEAP_EJSON;
}

bool neap_tier_config_is_inline(const char *text)
{
	return text[strspn(text, " \t\r\n")] == '{';
}
