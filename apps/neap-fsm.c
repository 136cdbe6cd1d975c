/* neap-fsm: the machines of the library as lists, pictures, checks, coverage and traces. */
#include "apps/fsm_coverage.h"
#include "fsm/tables.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
	"usage: neap-fsm COMMAND\n"
	"\n"
	"  list               every machine: its size and what it is for\n"
	"  show NAME          one machine: its states, what each waits for, and what each event does\n"
	"  dot NAME           the same as a picture for Graphviz (neap-fsm dot NAME | dot -Tsvg)\n"
	"  mermaid NAME       the same as a Mermaid state diagram\n"
	"  json               all machines as JSON\n"
	"  docs DIRECTORY     one Markdown page a machine and an index\n"
	"  check              holds every table to the rules of docs/FSM.md; exit 1 when one is broken\n"
	"  coverage FILE      what the tests recorded in FILE (NEAP_COVERAGE); exit 1 when a transition was never taken\n"
	"  trace FILE [--chrome]\n"
	"                     a trace dump as text, or as trace-event JSON for chrome://tracing or ui.perfetto.dev\n"
	"  --help             this text\n"
	"  --version          the version\n"
	"\n"
	"Exit status: 0 all is well, 1 a check failed, a transition was never taken or a dump is damaged, 2 a wrong command or file.\n";

static const struct neap_fsm *const *machines;
static size_t machine_count;

static int to_file(void *user, const void *bytes, size_t length)
{
	return fwrite(bytes, 1, length, user) == length ? NEAP_OK : NEAP_ESOCKET;
}

/* Answers the exit status. */
static int written(int error, const char *where)
{
	if (!error && fflush(stdout) == 0)
		return 0;
	fprintf(stderr, "neap-fsm: cannot write %s: %s\n", where, errno ? strerror(errno) : neap_error_text(error));
	return 1;
}

static const struct neap_fsm *find(const char *name)
{
	for (size_t i = 0; i < machine_count; i++)
		if (strcmp(machines[i]->name, name) == 0)
			return machines[i];
	fprintf(stderr, "neap-fsm: there is no machine %s; `neap-fsm list` names them\n", name);
	return NULL;
}

typedef int write_one_func(const struct neap_fsm *fsm, neap_write_func *write, void *user);

static int print_one(const char *name, write_one_func *write_one)
{
	const struct neap_fsm *fsm = find(name);
	return fsm ? written(write_one(fsm, to_file, stdout), "the output") : 2;
}

/* --- docs ------------------------------------------------------------------------------------------------------------------- */

static FILE *open_page(const char *directory, const char *name)
{
	char path[4096];
	int length = snprintf(path, sizeof path, "%s/%s.md", directory, name);
	FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "w") : NULL;
	if (!file)
		fprintf(stderr, "neap-fsm: cannot write %s: %s\n", path, strerror(errno));
	return file;
}

static int close_page(FILE *file, int error)
{
	if (fclose(file) != 0 || error) {
		fprintf(stderr, "neap-fsm: cannot write a page: %s\n", strerror(errno));
		return 1;
	}
	return 0;
}

static int docs(const char *directory)
{
	FILE *file = open_page(directory, "README");
	if (!file || close_page(file, neap_fsm_write_index(machines, machine_count, to_file, file)))
		return 1;
	for (size_t i = 0; i < machine_count; i++) {
		file = open_page(directory, machines[i]->name);
		if (!file || close_page(file, neap_fsm_write_page(machines[i], to_file, file)))
			return 1;
	}
	return 0;
}

/* --- check, coverage, trace ---------------------------------------------------------------------------------------------------- */

static void found(void *user, enum neap_fsm_fault fault, const char *message)
{
	(void)user;
	(void)fault;
	printf("%s\n", message);
}

static int check(void)
{
	unsigned faults = neap_fsm_check_all(machines, machine_count, found, NULL);
	printf("%zu machines, %u faults\n", machine_count, faults);
	return faults ? 1 : 0;
}

static FILE *open_input(const char *path)
{
	FILE *file = fopen(path, "rb");
	if (!file)
		fprintf(stderr, "neap-fsm: cannot read %s: %s\n", path, strerror(errno));
	return file;
}

static int coverage(const char *path)
{
	FILE *file = open_input(path);
	if (!file)
		return 2;
	int faults = fsm_coverage(file, machines, machine_count, stdout);
	fclose(file);
	return faults < 0 ? 2 : faults ? 1 : 0;
}

/* The whole file; NULL with a message when it cannot be read. */
static void *read_all(const char *path, size_t *length_p)
{
	FILE *file = open_input(path);
	if (!file)
		return NULL;
	size_t length = 0, size = 0;
	char *bytes = NULL;
	for (;;) {
		if (length == size) {
			size = size ? size * 2 : 1 << 16;
			char *grown = realloc(bytes, size);
			if (!grown)
				break;
			bytes = grown;
		}
		size_t got = fread(bytes + length, 1, size - length, file);
		length += got;
		if (got == 0)
			break;
	}
	if (ferror(file) || length == size) {
		fprintf(stderr, "neap-fsm: cannot read %s: %s\n", path, strerror(errno));
		free(bytes);
		bytes = NULL;
	}
	fclose(file);
	*length_p = length;
	return bytes;
}

static int trace(const char *path, int chrome)
{
	size_t length;
	void *dump = read_all(path, &length);
	if (!dump)
		return 2;
	int error = neap_trace_decode(dump, length, chrome, to_file, stdout);
	free(dump);
	if (error == NEAP_EPROTO) {
		fprintf(stderr, "neap-fsm: %s is not a whole trace dump\n", path);
		return 1;
	}
	return written(error, "the output");
}

/* --- main ------------------------------------------------------------------------------------------------------------------------ */

static int run_with_argument(const char *command, const char *argument)
{
	if (strcmp(command, "show") == 0)
		return print_one(argument, neap_fsm_write_text);
	if (strcmp(command, "dot") == 0)
		return print_one(argument, neap_fsm_write_dot);
	if (strcmp(command, "mermaid") == 0)
		return print_one(argument, neap_fsm_write_mermaid);
	if (strcmp(command, "docs") == 0)
		return docs(argument);
	if (strcmp(command, "coverage") == 0)
		return coverage(argument);
	if (strcmp(command, "trace") == 0)
		return trace(argument, 0);
	return -1;
}

static int run_alone(const char *command)
{
	if (strcmp(command, "list") == 0)
		return written(neap_fsm_write_list(machines, machine_count, to_file, stdout), "the output");
	if (strcmp(command, "json") == 0)
		return written(neap_fsm_write_json(machines, machine_count, to_file, stdout), "the output");
	if (strcmp(command, "check") == 0)
		return check();
	if (strcmp(command, "help") == 0 || strcmp(command, "--help") == 0 || strcmp(command, "-h") == 0) {
		fputs(usage, stdout);
		return 0;
	}
	if (strcmp(command, "--version") == 0) {
		printf("neap-fsm %s\n", PACKAGE_VERSION);
		return 0;
	}
	return -1;
}

int main(int argc, char **argv)
{
	int status = -1;
	machines = neap_fsm_catalog(&machine_count);
	if (argc == 2)
		status = run_alone(argv[1]);
	else if (argc == 3)
		status = run_with_argument(argv[1], argv[2]);
	else if (argc == 4 && strcmp(argv[1], "trace") == 0 && strcmp(argv[3], "--chrome") == 0)
		status = trace(argv[2], 1);
	if (status < 0) {
		fputs(usage, stderr);
		status = 2;
	}
	return status;
}
