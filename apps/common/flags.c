#include "apps/common/flags.h"
#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HELP_COLUMN 34
#ifndef PACKAGE_VERSION
#define PACKAGE_VERSION "unbuilt"
#endif

void app_error(const struct app_program *program, const char *format, ...)
{
	char line[2048];
	va_list arguments;
	va_start(arguments, format);
	vsnprintf(line, sizeof line, format, arguments);
	va_end(arguments);
	fprintf(stderr, "%s: %s\n", program->name, line);
}

/* --- sizes and lists --------------------------------------------------------------------------------------- */

static bool number_parse(const char *text, uint64_t *value_p, const char **end_p)
{
	if (!isdigit((unsigned char)text[0]))
		return false;
	char *end;
	errno = 0;
	unsigned long long value = strtoull(text, &end, 10);
	if (errno)
		return false;
	*value_p = value;
	*end_p = end;
	return true;
}

bool app_size_parse(const char *text, uint64_t *bytes_p)
{
	const char *end;
	uint64_t value;
	if (!number_parse(text, &value, &end))
		return false;
	static const char units[] = "KMGT";
	const char *unit = *end ? strchr(units, toupper((unsigned char)*end)) : NULL;
	unsigned shift = unit ? (unsigned)(unit - units + 1) * 10 : 0;
	end += unit != NULL;
	bool whole = !*end || !strcasecmp(end, "B") || (unit && !strcasecmp(end, "iB"));
	if (!whole || (shift && value >> (64 - shift)))
		return false;
	*bytes_p = value << shift;
	return true;
}

const char *app_size_format(uint64_t bytes, char *text, size_t size)
{
	static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
	unsigned unit = 0;
	while (unit < 4 && bytes >= 1024 && bytes % 1024 == 0) {
		bytes /= 1024;
		unit++;
	}
	snprintf(text, size, "%llu %s", (unsigned long long)bytes, units[unit]);
	return text;
}

static bool in_list(const char *list, char separator, const char *word, size_t length)
{
	while (list) {
		const char *end = strchr(list, separator);
		size_t item = end ? (size_t)(end - list) : strlen(list);
		if (item == length && !memcmp(list, word, length))
			return true;
		list = end ? end + 1 : NULL;
	}
	return false;
}

bool app_list_has(const char *list, const char *word)
{
	return in_list(list, ',', word, strlen(word));
}

/* --- help -------------------------------------------------------------------------------------------------- */

static const char *argument_word(const struct app_flag *flag)
{
	switch (flag->type) {
	case APP_FLAG_TEXT: return "=TEXT";
	case APP_FLAG_CHOICE:
	case APP_FLAG_CHOICES: return NULL; /* the choices themselves */
	case APP_FLAG_SIZE: return "=BYTES";
	case APP_FLAG_SIZES: return flag->choices ? flag->choices : "=BYTES,...";
	case APP_FLAG_NUMBER: return "=N";
	case APP_FLAG_SECONDS: return flag->choices ? flag->choices : "=SECONDS"; /* "=MINUTES": another unit */
	case APP_FLAG_SWITCH: return "";
	}
	return "";
}

static void default_text(const struct app_flag *flag, char *text, size_t size)
{
	text[0] = 0;
	switch (flag->type) {
	case APP_FLAG_TEXT:
	case APP_FLAG_CHOICE:
	case APP_FLAG_CHOICES:
		if (*(const char **)flag->value)
			snprintf(text, size, "%s", *(const char **)flag->value);
		break;
	case APP_FLAG_SIZE: app_size_format(*(uint64_t *)flag->value, text, size); break;
	case APP_FLAG_SIZES: {
		const struct app_sizes *sizes = flag->value;
		size_t length = 0;
		for (uint32_t i = 0; i < sizes->count && length < size; i++) {
			char one[32];
			length += (size_t)snprintf(text + length, size - length, "%s%s", i ? ", " : "",
			                           app_size_format(sizes->values[i], one, sizeof one));
		}
		break;
	}
	case APP_FLAG_NUMBER: snprintf(text, size, "%llu", (unsigned long long)*(uint64_t *)flag->value); break;
	case APP_FLAG_SECONDS: snprintf(text, size, "%g", *(double *)flag->value); break;
	case APP_FLAG_SWITCH: break;
	}
}

static void help(const struct app_program *program)
{
	printf("usage: %s %s\n%s\n\n", program->name, program->usage ? program->usage : "[--flag=value ...]", program->purpose);
	for (size_t i = 0; i < program->flag_count; i++) {
		const struct app_flag *flag = &program->flags[i];
		const char *word = argument_word(flag);
		char left[160], value[160];
		snprintf(left, sizeof left, "--%s%s%s", flag->name, word ? word : "=", word ? "" : flag->choices);
		printf("  %-*s", HELP_COLUMN, left);
		if (strlen(left) > HELP_COLUMN)
			printf("\n  %-*s", HELP_COLUMN, "");
		default_text(flag, value, sizeof value);
		printf(" %s", flag->help);
		if (value[0])
			printf(" (default: %s)", value);
		putchar('\n');
	}
	printf("  %-*s this text\n  %-*s the version\n", HELP_COLUMN, "--help", HELP_COLUMN, "--version");
	if (program->examples)
		printf("\n%s", program->examples);
	if (program->exit_status)
		printf("\nExit status: %s.\n", program->exit_status);
	else
		printf("\nExit status: 0 success, 1 %s, 2 a wrong flag, 3 could not start.\n",
		       program->failure ? program->failure : "transfers failed or bytes differ");
}

/* --- parsing ----------------------------------------------------------------------------------------------- */

static bool same_name(const char *a, const char *b, size_t b_length)
{
	size_t i = 0;
	for (; i < b_length && a[i]; i++) {
		char x = a[i] == '-' ? '_' : a[i], y = b[i] == '-' ? '_' : b[i];
		if (x != y)
			return false;
	}
	return i == b_length && !a[i];
}

/* Edit distance of short words, for "did you mean". */
static size_t distance(const char *a, const char *b, size_t b_length)
{
	size_t row[64];
	if (b_length >= 64)
		return 64;
	for (size_t j = 0; j <= b_length; j++)
		row[j] = j;
	for (size_t i = 0; a[i]; i++) {
		size_t diagonal = row[0];
		row[0] = i + 1;
		for (size_t j = 0; j < b_length; j++) {
			size_t best = diagonal + (a[i] != b[j]);
			diagonal = row[j + 1];
			if (row[j] + 1 < best)
				best = row[j] + 1;
			if (row[j + 1] + 1 < best)
				best = row[j + 1] + 1;
			row[j + 1] = best;
		}
	}
	return row[b_length];
}

static int unknown_flag(const struct app_program *program, const char *name, size_t length)
{
	const char *nearest = NULL;
	size_t best = 4;
	for (size_t i = 0; i < program->flag_count; i++) {
		size_t d = distance(program->flags[i].name, name, length);
		if (d < best) {
			best = d;
			nearest = program->flags[i].name;
		}
	}
	if (nearest)
		app_error(program, "unknown flag --%.*s; did you mean --%s? `%s --help` lists all", (int)length, name, nearest,
		          program->name);
	else
		app_error(program, "unknown flag --%.*s; `%s --help` lists all", (int)length, name, program->name);
	return APP_USAGE;
}

/* Flags have lower-case names, variables of the environment upper-case ones. */
static int bad_value(const struct app_program *program, const struct app_flag *flag, const char *value, const char *allowed)
{
	app_error(program, "%s%s=%s is not valid; allowed: %s", isupper((unsigned char)flag->name[0]) ? "" : "--", flag->name, value, allowed);
	return APP_USAGE;
}

static int out_of_range(const struct app_program *program, const struct app_flag *flag, const char *value)
{
	char low[32], high[32], allowed[96];
	bool bytes = flag->type == APP_FLAG_SIZE || (flag->type == APP_FLAG_SIZES && !flag->choices); /* "=N,..." are counts */
	if (bytes) {
		app_size_format(flag->min, low, sizeof low);
		app_size_format(flag->max, high, sizeof high);
	} else {
		snprintf(low, sizeof low, "%llu", (unsigned long long)flag->min);
		snprintf(high, sizeof high, "%llu", (unsigned long long)flag->max);
	}
	if (flag->max)
		snprintf(allowed, sizeof allowed, "%s to %s", low, high);
	else
		snprintf(allowed, sizeof allowed, "%s or more", low);
	return bad_value(program, flag, value, allowed);
}

static bool in_range(const struct app_flag *flag, uint64_t value)
{
	return value >= flag->min && (!flag->max || value <= flag->max);
}

static int set_sizes(const struct app_program *program, const struct app_flag *flag, const char *value)
{
	struct app_sizes *sizes = flag->value;
	char copy[512];
	if ((size_t)snprintf(copy, sizeof copy, "%s", value) >= sizeof copy)
		return bad_value(program, flag, value, "a shorter list");
	sizes->count = 0;
	for (char *item = copy; item;) {
		char *comma = strchr(item, ',');
		if (comma)
			*comma++ = 0;
		uint64_t bytes;
		if (!app_size_parse(item, &bytes))
			return bad_value(program, flag, value, "sizes such as 4096, 64K, 1M, separated by commas");
		if (!in_range(flag, bytes))
			return out_of_range(program, flag, item);
		if (sizes->count == APP_LIST_MAX)
			return bad_value(program, flag, value, "at most 32 sizes");
		sizes->values[sizes->count++] = bytes;
		item = comma;
	}
	return -1;
}

static int set_choices(const struct app_program *program, const struct app_flag *flag, const char *value)
{
	for (const char *item = value; item;) {
		const char *comma = flag->type == APP_FLAG_CHOICES ? strchr(item, ',') : NULL;
		size_t length = comma ? (size_t)(comma - item) : strlen(item);
		if (!in_list(flag->choices, '|', item, length))
			return bad_value(program, flag, value, flag->choices);
		item = comma ? comma + 1 : NULL;
	}
	*(const char **)flag->value = value;
	return -1;
}

static int set_seconds(const struct app_program *program, const struct app_flag *flag, const char *value)
{
	char *end;
	errno = 0;
	double seconds = strtod(value, &end);
	if (!*value || *end || errno || !(seconds >= 0 && seconds <= 1e9))
		return bad_value(program, flag, value, flag->choices ? "a number such as 0.5 or 10" : "seconds such as 0.5 or 10");
	if (seconds < (double)flag->min || (flag->max && seconds > (double)flag->max))
		return out_of_range(program, flag, value);
	*(double *)flag->value = seconds;
	return -1;
}

static int set(const struct app_program *program, const struct app_flag *flag, const char *value)
{
	uint64_t number;
	const char *end;
	switch (flag->type) {
	case APP_FLAG_TEXT: *(const char **)flag->value = value; return -1;
	case APP_FLAG_CHOICE:
	case APP_FLAG_CHOICES: return set_choices(program, flag, value);
	case APP_FLAG_SIZES: return set_sizes(program, flag, value);
	case APP_FLAG_SECONDS: return set_seconds(program, flag, value);
	case APP_FLAG_SIZE:
		if (!app_size_parse(value, &number))
			return bad_value(program, flag, value, "a size such as 4096, 64K, 1M or 2G");
		break;
	case APP_FLAG_NUMBER:
		if (!number_parse(value, &number, &end) || *end)
			return out_of_range(program, flag, value);
		break;
	case APP_FLAG_SWITCH:
		if (strcmp(value, "true") && strcmp(value, "false") && strcmp(value, "1") && strcmp(value, "0"))
			return bad_value(program, flag, value, "true or false");
		*(bool *)flag->value = *value == 't' || *value == '1';
		return -1;
	}
	if (!in_range(flag, number))
		return out_of_range(program, flag, value);
	*(uint64_t *)flag->value = number;
	return -1;
}

/* True when the name is one of those flags; *result_p is then -1 or an exit code. */
static bool set_foreign(const struct app_program *program, char **argv, int argc, int *i, const char *name, size_t length, int *result_p)
{
	const struct app_foreign_flag *flag = NULL;
	for (size_t f = 0; f < program->foreign_count && !flag; f++)
		if (same_name(program->foreign[f].name, name, length))
			flag = &program->foreign[f];
	if (!flag)
		return false;
	const char *value = name[length] == '=' ? name + length + 1 : flag->is_switch ? "true" : *i + 1 < argc ? argv[++*i] : "";
	bool off = !*value || !strcmp(value, "0") || !strcmp(value, "false");
	*result_p = -1;
	if (flag->refusal && !off) {
		app_error(program, "--%s=%s is not possible here: %s", flag->name, value, flag->refusal);
		*result_p = APP_USAGE;
	} else if (!flag->refusal) {
		app_error(program, "--%s has no meaning here and is ignored", flag->name);
	}
	return true;
}

static int parse_environment(const struct app_program *program)
{
	for (size_t f = 0; program->environment && f < program->flag_count; f++) {
		char variable[96];
		int length = snprintf(variable, sizeof variable, "%s%s", program->environment, program->flags[f].name);
		for (int i = 0; i < length && i < (int)sizeof variable; i++)
			variable[i] = (char)toupper((unsigned char)variable[i]);
		const char *value = getenv(variable);
		struct app_flag flag = program->flags[f];
		flag.name = variable;
		int result = value && *value ? set(program, &flag, value) : -1;
		if (result >= 0)
			return result;
	}
	return -1;
}

static int take_word(const struct app_program *program, const char *word)
{
	struct app_words *words = program->words;
	if (words && words->count < words->max) {
		words->items[words->count++] = word;
		return -1;
	}
	if (words)
		app_error(program, "%s is one word too many; `%s --help` tells what there may be", word, program->name);
	else
		app_error(program, "%s is not a flag; flags look like --name=value, `%s --help` lists them", word, program->name);
	return APP_USAGE;
}

static int parse_one(const struct app_program *program, char **argv, int argc, int *i)
{
	const char *argument = argv[*i];
	bool only_words = program->words && program->words->only;
	if (program->words && !only_words && !strcmp(argument, "--")) {
		program->words->only = true;
		return -1;
	}
	if (only_words || argument[0] != '-' || !argument[1])
		return take_word(program, argument);
	const char *name = argument + (argument[1] == '-' ? 2 : 1);
	const char *equals = strchr(name, '=');
	size_t length = equals ? (size_t)(equals - name) : strlen(name);
	if (same_name("help", name, length) || same_name("h", name, length)) {
		help(program);
		return APP_OK;
	}
	if (same_name("version", name, length)) {
		printf("%s %s\n", program->name, PACKAGE_VERSION);
		return APP_OK;
	}
	for (size_t f = 0; f < program->flag_count; f++) {
		const struct app_flag *flag = &program->flags[f];
		if (!same_name(flag->name, name, length))
			continue;
		if (equals)
			return set(program, flag, equals + 1);
		if (flag->type == APP_FLAG_SWITCH)
			return set(program, flag, "true");
		if (*i + 1 >= argc) {
			app_error(program, "--%s needs a value: %s", flag->name, flag->help);
			return APP_USAGE;
		}
		return set(program, flag, argv[++*i]);
	}
	int result;
	return set_foreign(program, argv, argc, i, name, length, &result) ? result : unknown_flag(program, name, length);
}

int app_flags_parse(const struct app_program *program, int argc, char **argv)
{
	int result = parse_environment(program);
	for (int i = 1; i < argc && result < 0; i++)
		result = parse_one(program, argv, argc, &i);
	return result;
}
