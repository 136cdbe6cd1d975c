/* Command-line flags of the programs: a table says what there is, one parser and one help text serve all programs.
 *
 * `--flag=value` and `--flag value` both work, `-` and `_` in names are the same. A switch is `--flag` or `--flag=true|false`. */
#ifndef APPS_COMMON_FLAGS_H
#define APPS_COMMON_FLAGS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What programs exit with. */
enum app_exit {
	APP_OK = 0,
	APP_FAILED = 1, /* transfers failed or bytes differ */
	APP_USAGE = 2,  /* a flag or variable is wrong */
	APP_START = 3,  /* could not start: port, memory, file, peer */
};

#define APP_LIST_MAX 32u

struct app_sizes { /* a list of sizes: "4K,64K,1M" */
	uint64_t values[APP_LIST_MAX];
	uint32_t count;
};

enum app_flag_type {
	APP_FLAG_TEXT,    /* const char * */
	APP_FLAG_CHOICE,  /* const char *: one of `choices`, separated by | */
	APP_FLAG_CHOICES, /* const char *: a comma list of them */
	APP_FLAG_SIZE,    /* uint64_t: bytes, with K, M, G, T (powers of 1024) */
	APP_FLAG_SIZES,   /* struct app_sizes */
	APP_FLAG_NUMBER,  /* uint64_t */
	APP_FLAG_SECONDS, /* double */
	APP_FLAG_SWITCH,  /* bool */
};

struct app_flag {
	const char *name;
	enum app_flag_type type;
	void *value;         /* holds the default; NULL text means "not given" */
	const char *choices; /* CHOICE, CHOICES; SIZES: how the help writes the value, when not bytes */
	uint64_t min, max;   /* of numbers, sizes and whole seconds; max 0 means no limit */
	const char *help;    /* one sentence, no full stop */
};

/* A flag of another program of this kind, known here so that its users hear what becomes of it instead of "unknown flag". */
struct app_foreign_flag {
	const char *name;
	bool is_switch;
	const char *refusal; /* why it is an error here (false, 0 and an empty value never are); NULL: ignored with a warning */
};

struct app_words { /* what is no flag */
	const char **items;
	size_t max, count;
	bool only; /* "--" was seen */
};

struct app_program {
	const char *name;
	const char *purpose;  /* a sentence */
	const char *examples; /* lines for --help */
	const struct app_flag *flags;
	size_t flag_count;
	const struct app_foreign_flag *foreign;
	size_t foreign_count;
	const char *failure;     /* what exit status 1 means; NULL: transfers failed or bytes differ */
	const char *environment; /* "NEAP_X_": each flag can be given as the variable NEAP_X_FLAG too; flags win. NULL: none */
	const char *usage;       /* what follows the name; NULL: "[--flag=value ...]" */
	const char *exit_status; /* of one that has others than most; NULL: those of enum app_exit */
	struct app_words *words; /* where they go; NULL: there may be none. What follows "--" is no flag */
};

/* Sets the values. Returns -1 to go on, or an exit code: after --help (0), --version (0) or a wrong flag, which has been
 * explained on stderr. */
int app_flags_parse(const struct app_program *program, int argc, char **argv);

/* "64K" to 65536. False when it is not a size. */
bool app_size_parse(const char *text, uint64_t *bytes_p);
/* 65536 to "64 KiB", 1000 to "1000 B". Returns `text`. */
const char *app_size_format(uint64_t bytes, char *text, size_t size);
/* True when the comma list `list` has `word`. */
bool app_list_has(const char *list, const char *word);

/* One line to stderr: "neap-bench: ...". Say what is wrong, what is allowed, and what to do. */
void app_error(const struct app_program *program, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
