/* JSON from outside, read in place: no tree, no recursion, no memory but for the strings one asks for. And its writer.
 *
 * A reader of our own because addresses and lengths are unsigned 64-bit numbers, which the usual C libraries refuse (the whole
 * document with them) or round, and because a tree costs many times the text a stranger sent.
 *
 * The reader is strict (RFC 8259; UTF-8 checked; no NUL in strings). Its first error sticks, with the place in it:
 * "buffers[3].addr: must be a number". Pure but for malloc. Any thread. */
#ifndef NEAP_METADATA_JSON_H
#define NEAP_METADATA_JSON_H

#include <neap/error.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define NEAP_JSON_DEPTH 32u   /* containers inside each other */
#define NEAP_JSON_KEY_MAX 48u /* keys we ask for are shorter; a longer one reads as "" */

enum neap_json_kind {
	NEAP_JSON_BAD, /* end of text or no value */
	NEAP_JSON_OBJECT,
	NEAP_JSON_ARRAY,
	NEAP_JSON_STRING,
	NEAP_JSON_NUMBER,
	NEAP_JSON_BOOL,
	NEAP_JSON_NULL,
};

/* One container the reader is inside of. */
struct neap_json_frame {
	const char *key; /* of the member being read, as in the text */
	uint32_t key_length;
	uint32_t index; /* members or items begun, counted from 1 */
	bool is_array;
};

struct neap_json {
	const char *text;
	size_t length, at;
	uint32_t depth, depth_max;
	int error;                   /* the first one */
	char key[NEAP_JSON_KEY_MAX]; /* after neap_json_next_key */
	struct neap_json_frame frames[NEAP_JSON_DEPTH];
	char *why;
	size_t why_size;
};

/* `why` may be NULL. */
void neap_json_init(struct neap_json *json, const char *text, size_t length, char *why, size_t why_size);

/* Of the value that comes next. */
enum neap_json_kind neap_json_kind(struct neap_json *json);

/* Each consumes one value and answers true, or notes an error and answers false. Type and range are part of the question. */
bool neap_json_enter_object(struct neap_json *json);
bool neap_json_next_key(struct neap_json *json); /* false: the object has ended, or an error */
bool neap_json_enter_array(struct neap_json *json);
bool neap_json_next_item(struct neap_json *json);
bool neap_json_u64(struct neap_json *json, uint64_t min, uint64_t max, uint64_t *value_p);
bool neap_json_bool(struct neap_json *json, bool *value_p);
/* Heap, NUL-terminated. NEAP_ELIMIT when longer than max bytes. An earlier *text_p is freed: of duplicate keys the last wins. */
bool neap_json_string(struct neap_json *json, size_t max, char **text_p);
/* Into `text`, cut to "" when it does not fit; *length_p (may be NULL) is the full length. */
bool neap_json_short_string(struct neap_json *json, char *text, size_t size, size_t *length_p);
bool neap_json_skip(struct neap_json *json);

/* True when null came, which is consumed: most fields take it for absent. */
bool neap_json_null(struct neap_json *json);

/* Nothing but white space is left. */
bool neap_json_finish(struct neap_json *json);

/* Notes an error at the present place, unless there is one. Always false. */
bool neap_json_fail(struct neap_json *json, int error, const char *format, ...) NEAP_PRINTF(3, 4);

/* A peer's text made fit for a message: printable ASCII, cut with "..". Returns `out`. */
const char *neap_json_printable(const char *text, size_t length, char *out, size_t size);

/* --- writing: compact, non-ASCII as \uXXXX ------------------------------------------------------------------------ */

/* Beyond max nothing is stored but all is counted, so that a refusal can name the size. */
struct neap_json_writer {
	char *text; /* heap */
	size_t length, capacity, max;
	bool no_memory;
};
void neap_json_writer_init(struct neap_json_writer *writer, size_t max, size_t expected);
void neap_json_put(struct neap_json_writer *writer, const char *bytes, size_t length);
void neap_json_put_text(struct neap_json_writer *writer, const char *text);
void neap_json_put_u64(struct neap_json_writer *writer, uint64_t value);
/* With quotes. False: not UTF-8 (nothing that can be sent). NULL is "". */
bool neap_json_put_string(struct neap_json_writer *writer, const char *text);
/* NEAP_ENOMEM, NEAP_ELIMIT, or 0 and the NUL-terminated text, the caller's to free(). */
int neap_json_writer_take(struct neap_json_writer *writer, char **text_p, size_t *length_p);
void neap_json_writer_drop(struct neap_json_writer *writer);

#endif
