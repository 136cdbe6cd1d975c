/* From pattern to positions (Glushkov's construction) and the walk along a key. */
#include "store/directory/match.h"
#include <neap/error.h>
#include <stdio.h>
#include <string.h>

#define WORK_MAX 4096u /* atoms looked at while repeats are written out */
#define FOREVER UINT32_MAX

/* A part of the pattern: the positions it can begin and end with. */
struct part {
	struct neap_match_set first, last;
	bool nullable;
};

struct parse {
	struct neap_match *match;
	const char *pattern;
	size_t length, at;
	uint32_t depth, work;
	int error;
	char *why;
	size_t why_size;
};

static struct part alternation(struct parse *parse);

/* --- sets ------------------------------------------------------------------------------------------------------------- */

static void unite(struct neap_match_set *set, const struct neap_match_set *with)
{
	for (uint32_t i = 0; i < NEAP_MATCH_WORDS; i++)
		set->words[i] |= with->words[i];
}

static void include(struct neap_match_set *set, uint32_t position)
{
	set->words[position / 64] |= UINT64_C(1) << position % 64;
}

/* After each position of `from` may come each of `to`. */
static void connect(struct parse *parse, const struct neap_match_set *from, const struct neap_match_set *to)
{
	for (uint32_t i = 0; i < NEAP_MATCH_WORDS; i++)
		for (uint64_t word = from->words[i]; word; word &= word - 1)
			unite(&parse->match->follow[i * 64 + (uint32_t)__builtin_ctzll(word)], to);
}

/* --- reading ---------------------------------------------------------------------------------------------------------- */

static void refuse(struct parse *parse, int error, size_t at, const char *reason)
{
	if (!parse->error && parse->why_size)
		(void)snprintf(parse->why, parse->why_size, "position %zu: %s", at + 1, reason);
	if (!parse->error)
		parse->error = error;
}

static int peek(const struct parse *parse)
{
	return parse->error || parse->at == parse->length ? -1 : (unsigned char)parse->pattern[parse->at];
}

static bool take(struct parse *parse, char wanted)
{
	if (peek(parse) != wanted)
		return false;
	parse->at++;
	return true;
}

static uint32_t position(struct parse *parse, size_t at)
{
	if (parse->match->positions == NEAP_MATCH_POSITIONS) {
		refuse(parse, NEAP_ELIMIT, at, "the pattern has more than 256 positions when its repeats are written out");
		return 0;
	}
	return parse->match->positions++;
}

static struct part single(uint32_t position_)
{
	struct part part = {0};
	include(&part.first, position_);
	part.last = part.first;
	return part;
}

/* --- characters ------------------------------------------------------------------------------------------------------- */

/* 256 bytes as a set. */
struct bytes {
	uint64_t words[4];
};

static void add_range(struct bytes *bytes, unsigned from, unsigned to)
{
	for (unsigned byte = from; byte <= to; byte++)
		bytes->words[byte / 64] |= UINT64_C(1) << byte % 64;
}

static void add_all(struct bytes *bytes, const struct bytes *more, bool inverted)
{
	for (int i = 0; i < 4; i++)
		bytes->words[i] |= inverted ? ~more->words[i] : more->words[i];
}

static int hex_digit(int character)
{
	if (character >= '0' && character <= '9')
		return character - '0';
	character |= 32;
	return character >= 'a' && character <= 'f' ? character - 'a' + 10 : -1;
}

/* \xHH, behind the x. */
static int hex(struct parse *parse, size_t at)
{
	int value = 0;
	for (int i = 0; i < 2; i++) {
		int digit = hex_digit(peek(parse));
		if (digit < 0) {
			refuse(parse, NEAP_EINVAL, at, "\\x needs two hexadecimal digits");
			return 0;
		}
		value = value * 16 + digit;
		parse->at++;
	}
	return value;
}

/* Behind a backslash. One byte is answered, or -1: a class was added to `bytes`. */
static int escape(struct parse *parse, struct bytes *bytes)
{
	static const char names[] = "nrtfv0", values[] = "\n\r\t\f\v\0";
	size_t at = parse->at - 1;
	int name = peek(parse);
	struct bytes class_ = {{0}};
	if (name < 0) {
		refuse(parse, NEAP_EINVAL, at, "a backslash at the end");
		return 0;
	}
	parse->at++;
	const char *known = name ? memchr(names, name, sizeof names - 1) : NULL;
	if (known)
		return (unsigned char)values[known - names];
	if (name == 'x')
		return hex(parse, at);
	bool letter = (name | 32) >= 'a' && (name | 32) <= 'z';
	if (!letter && (name < '1' || name > '9'))
		return name;
	switch (name | 32) {
	case 'd':
		add_range(&class_, '0', '9');
		break;
	case 'w':
		add_range(&class_, '0', '9');
		add_range(&class_, 'A', 'Z');
		add_range(&class_, 'a', 'z');
		add_range(&class_, '_', '_');
		break;
	case 's':
		add_range(&class_, '\t', '\r');
		add_range(&class_, ' ', ' ');
		break;
	default:
		refuse(parse, NEAP_EINVAL, at,
		       letter ? (name | 32) == 'b' ? "\\b and \\B are not supported" : "an escape that is not known"
		              : "back-references are not regular; they are not supported");
		return 0;
	}
	add_all(bytes, &class_, name < 'a');
	return -1;
}

/* One end of a range, or a class; -1: a class. */
static int class_item(struct parse *parse, struct bytes *bytes)
{
	size_t at = parse->at;
	int character = peek(parse);
	parse->at++;
	if (character == '\\')
		return escape(parse, bytes);
	int next = peek(parse);
	if (character == '[' && (next == ':' || next == '.' || next == '='))
		refuse(parse, NEAP_EINVAL, at, "named classes are not supported; write \\d, \\w, \\s or a range");
	return character;
}

/* Behind the opening bracket. */
static struct bytes class_(struct parse *parse)
{
	size_t at = parse->at - 1;
	struct bytes bytes = {{0}}, inverted = {{0}};
	bool invert = take(parse, '^');
	while (!take(parse, ']')) {
		if (peek(parse) < 0) {
			refuse(parse, NEAP_EINVAL, at, "the class has no end");
			return bytes;
		}
		size_t item_at = parse->at;
		int from = class_item(parse, &bytes), to = from;
		if (from < 0)
			continue;
		if (peek(parse) == '-' && parse->at + 1 < parse->length && parse->pattern[parse->at + 1] != ']') {
			parse->at++;
			to = class_item(parse, &bytes);
		}
		if (to < from)
			refuse(parse, NEAP_EINVAL, item_at, "a range that ends before it begins");
		else
			add_range(&bytes, (unsigned)from, (unsigned)to);
	}
	if (!invert)
		return bytes;
	add_all(&inverted, &bytes, true);
	return inverted;
}

static struct part character(struct parse *parse, const struct bytes *bytes, size_t at)
{
	uint32_t here = position(parse, at);
	for (unsigned byte = 0; byte < 256 && !parse->error; byte++)
		if (bytes->words[byte / 64] >> byte % 64 & 1)
			include(&parse->match->takes[byte], here);
	return single(here);
}

/* --- structure -------------------------------------------------------------------------------------------------------- */

static struct part assertion(struct parse *parse, size_t at, struct neap_match_set *set, uint32_t *count)
{
	uint32_t here = position(parse, at);
	include(set, here);
	++*count;
	return single(here);
}

static struct part group(struct parse *parse, size_t at)
{
	if (take(parse, '?') && !take(parse, ':')) {
		refuse(parse, NEAP_EINVAL, at, "only (?: may begin with a question mark; look-around is not supported");
		return (struct part){0};
	}
	if (++parse->depth > NEAP_MATCH_DEPTH_MAX) {
		refuse(parse, NEAP_ELIMIT, at, "groups are nested more than 32 deep");
		return (struct part){0};
	}
	struct part part = alternation(parse);
	parse->depth--;
	if (!take(parse, ')'))
		refuse(parse, NEAP_EINVAL, at, "the group has no end");
	return part;
}

static struct part atom(struct parse *parse)
{
	size_t at = parse->at;
	struct bytes bytes = {{0}};
	int first = peek(parse), byte = first;
	if (++parse->work > WORK_MAX)
		refuse(parse, NEAP_ELIMIT, at, "the pattern is too large when its repeats are written out");
	if (parse->error)
		return (struct part){0};
	parse->at++;
	if (first == '(')
		return group(parse, at);
	if (first == '^')
		return assertion(parse, at, &parse->match->begins, &parse->match->begin_count);
	if (first == '$')
		return assertion(parse, at, &parse->match->ends, &parse->match->end_count);
	if (first == '*' || first == '+' || first == '?' || first == '{')
		refuse(parse, NEAP_EINVAL, at, "nothing to repeat");
	if (first == '[') {
		bytes = class_(parse);
		return character(parse, &bytes, at);
	}
	if (first == '\\')
		byte = escape(parse, &bytes);
	if (first == '.') {
		add_range(&bytes, '\n', '\n');
		add_range(&bytes, '\r', '\r');
		struct bytes line = bytes;
		bytes = (struct bytes){{0}};
		add_all(&bytes, &line, true);
	} else if (byte >= 0) {
		add_range(&bytes, (unsigned)byte, (unsigned)byte);
	}
	return character(parse, &bytes, at);
}

static struct part concatenate(struct parse *parse, struct part left, struct part right)
{
	connect(parse, &left.last, &right.first);
	if (left.nullable)
		unite(&left.first, &right.first);
	if (right.nullable)
		unite(&right.last, &left.last);
	left.last = right.last;
	left.nullable = left.nullable && right.nullable;
	return left;
}

static uint32_t number(struct parse *parse, size_t at)
{
	uint32_t value = 0;
	bool any = false;
	for (int digit; (digit = peek(parse)) >= '0' && digit <= '9'; any = true, parse->at++)
		if ((value = value * 10 + (uint32_t)digit - '0') > NEAP_MATCH_REPEAT_MAX)
			refuse(parse, NEAP_ELIMIT, at, "a repeat of more than 255");
	if (!any)
		refuse(parse, NEAP_EINVAL, at, "a repeat needs numbers: {n}, {n,} or {n,m}");
	return value;
}

/* False: there is no quantifier. */
static bool quantifier(struct parse *parse, uint32_t *least, uint32_t *most)
{
	size_t at = parse->at;
	*least = 0;
	*most = FOREVER;
	if (take(parse, '+')) {
		*least = 1;
	} else if (take(parse, '?')) {
		*most = 1;
	} else if (take(parse, '{')) {
		*least = *most = number(parse, at);
		if (take(parse, ','))
			*most = peek(parse) == '}' ? FOREVER : number(parse, at);
		if (!take(parse, '}'))
			refuse(parse, NEAP_EINVAL, at, "the repeat has no end");
		if (*most < *least)
			refuse(parse, NEAP_EINVAL, at, "a repeat whose second number is smaller than its first");
	} else if (!take(parse, '*')) {
		return false;
	}
	(void)take(parse, '?'); /* lazy or not makes no difference to whether it matches */
	return true;
}

/* The atom again, from where it stands in the pattern. */
static struct part copy(struct parse *parse, size_t from)
{
	size_t back = parse->at;
	parse->at = from;
	struct part part = atom(parse);
	parse->at = back;
	return part;
}

static struct part term(struct parse *parse)
{
	size_t from = parse->at;
	bool bare = peek(parse) == '^' || peek(parse) == '$';
	struct part part = atom(parse), all = part;
	uint32_t least, most;
	size_t at = parse->at;
	if (parse->error || !quantifier(parse, &least, &most))
		return part;
	if (bare)
		refuse(parse, NEAP_EINVAL, at, "^ and $ cannot be repeated");
	if (most == 0)
		return (struct part){.nullable = true};
	if (least == 0)
		all.nullable = true;
	uint32_t copies = most == FOREVER ? (least ? least : 1) : most;
	for (uint32_t i = 1; i < copies && !parse->error; i++) {
		part = copy(parse, from);
		struct part more = part;
		if (i >= least)
			more.nullable = true;
		all = concatenate(parse, all, more);
	}
	if (most == FOREVER)
		connect(parse, &part.last, &part.first);
	return all;
}

static struct part sequence(struct parse *parse)
{
	struct part part = {.nullable = true};
	for (int next; (next = peek(parse)) >= 0 && next != '|' && next != ')';)
		part = concatenate(parse, part, term(parse));
	return part;
}

static struct part alternation(struct parse *parse)
{
	struct part part = sequence(parse);
	while (take(parse, '|')) {
		struct part other = sequence(parse);
		unite(&part.first, &other.first);
		unite(&part.last, &other.last);
		part.nullable = part.nullable || other.nullable;
	}
	return part;
}

int neap_match_compile(struct neap_match *match, const char *pattern, size_t length, char *why, size_t why_size)
{
	struct parse parse = {.match = match, .pattern = pattern, .length = length, .why = why, .why_size = why_size};
	memset(match, 0, sizeof *match);
	if (length > NEAP_MATCH_LENGTH_MAX)
		refuse(&parse, NEAP_ELIMIT, NEAP_MATCH_LENGTH_MAX, "the pattern is longer than 1024 bytes");
	struct part part = alternation(&parse);
	if (!parse.error && parse.at < length)
		refuse(&parse, NEAP_EINVAL, parse.at, "a ) without its (");
	match->first = part.first;
	match->last = part.last;
	match->empty = part.nullable;
	return parse.error;
}

/* --- matching --------------------------------------------------------------------------------------------------------- */

/* One symbol further; true when a match is complete. A match may begin anywhere, so `first` is always open. */
static bool advance(const struct neap_match *match, struct neap_match_set *now, const struct neap_match_set *takes,
                    uint64_t *steps_p)
{
	struct neap_match_set next = match->first;
	uint64_t steps = 1, ended = 0;
	for (uint32_t i = 0; i < NEAP_MATCH_WORDS; i++)
		for (uint64_t word = now->words[i]; word; word &= word - 1, steps++)
			unite(&next, &match->follow[i * 64 + (uint32_t)__builtin_ctzll(word)]);
	for (uint32_t i = 0; i < NEAP_MATCH_WORDS; i++) {
		now->words[i] = next.words[i] & takes->words[i];
		ended |= now->words[i] & match->last.words[i];
	}
	*steps_p += steps;
	return ended != 0;
}

bool neap_match_run(const struct neap_match *match, const char *text, size_t length, uint64_t *steps_p)
{
	struct neap_match_set now = {{0}};
	++*steps_p;
	if (match->empty)
		return true;
	/* As many beginnings as there are ^, so that several may follow one another. */
	for (uint32_t i = 0; i < match->begin_count; i++)
		if (advance(match, &now, &match->begins, steps_p))
			return true;
	for (size_t i = 0; i < length; i++)
		if (advance(match, &now, &match->takes[(unsigned char)text[i]], steps_p))
			return true;
	for (uint32_t i = 0; i < match->end_count; i++)
		if (advance(match, &now, &match->ends, steps_p))
			return true;
	return false;
}
