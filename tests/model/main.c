/* neap-model: explores the store's owner and accessor together. docs/MODEL.md.
 *
 * Exit: 0 nothing was violated; 1 something was, and the shortest way to it was printed; 2 wrong use, or not explored to the end. */
#include "tests/model/world.h"
#include <getopt.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define QUICK_LESS 1u /* fault in each scenario */

struct arguments {
	struct setting setting;
	const char *replay;
	uint64_t states_max;
	bool quick, cells, list, all, mutants;
	uint8_t faults; /* 0: as the scenario says */
};

static void usage(FILE *out)
{
	fprintf(out, "neap-model [--quick] [--scenario NAME] [--without PROTECTION[,...]] [--all] [--faults N] [--cells] [--states-max N]\n"
	             "neap-model --replay FILE\n"
	             "neap-model --mutants [--quick]\n"
	             "neap-model --list\n\n"
	             "Explores every schedule of small scenarios through the store's machine tables. --without takes a protection away, in the\n"
	             "scenario that shows its need (--all: in every scenario, or --scenario), prints the shortest way to what breaks, and\n"
	             "exits with 1. --replay follows such a way again. --cells lists the cells of the tables that no scenario takes.\n"
	             "--mutants lets one transition after the other be ignored, and names those of which nothing notices.\n");
}

static void list(void)
{
	printf("scenarios\n");
	for (uint32_t i = 0; i < scenario_count; i++) {
		printf("  %-18s %s\n%21s", scenarios[i].name, scenarios[i].text, "");
		for (uint32_t k = 0; k < BUDGETS; k++)
			if (scenarios[i].budgets[k])
				printf("%s %u;", budget_names[k], scenarios[i].budgets[k]);
		printf(" attempts %u\n", scenarios[i].attempts);
	}
	printf("protections (and the scenario that shows the need)\n");
	for (uint32_t i = 0; i < PROTECTIONS; i++)
		printf("  %-26s %s (%s)\n", protection_texts[i].name, protection_texts[i].text, protection_texts[i].scenario);
	printf("invariants\n");
	for (uint32_t i = 0; i < invariant_count; i++)
		printf("  %-6s %s\n", invariant_texts[i].name, invariant_texts[i].text);
}

static const struct scenario *scenario_find(const char *name)
{
	for (uint32_t i = 0; i < scenario_count; i++)
		if (strcmp(scenarios[i].name, name) == 0)
			return &scenarios[i];
	fprintf(stderr, "neap-model: there is no scenario '%s'; --list names them\n", name);
	exit(2);
}

/* Names with commas between them. */
static void take_away(struct arguments *arguments, char *names)
{
	char *rest = names;
	for (char *name = strtok_r(names, ",", &rest); name; name = strtok_r(NULL, ",", &rest)) {
		uint32_t i = 0;
		while (i < PROTECTIONS && strcmp(protection_texts[i].name, name) != 0)
			i++;
		if (i == PROTECTIONS) {
			fprintf(stderr, "neap-model: there is no protection '%s'; --list names them\n", name);
			exit(2);
		}
		arguments->setting.without[i] = true;
		if (!arguments->setting.scenario && !arguments->all)
			arguments->setting.scenario = scenario_find(protection_texts[i].scenario);
	}
}

static void read_arguments(struct arguments *arguments, int argc, char **argv)
{
	static const struct option options[] = {
		{"quick", no_argument, NULL, 'q'},         {"scenario", required_argument, NULL, 's'}, {"without", required_argument, NULL, 'w'},
		{"all", no_argument, NULL, 'a'},           {"cells", no_argument, NULL, 'c'},          {"states-max", required_argument, NULL, 'm'},
		{"replay", required_argument, NULL, 'r'},  {"list", no_argument, NULL, 'l'},           {"help", no_argument, NULL, 'h'},
		{"faults", required_argument, NULL, 'f'},  {"mutants", no_argument, NULL, 'u'},
		{0},
	};
	char *without = NULL, *end;
	int option;
	while ((option = getopt_long(argc, argv, "h", options, NULL)) != -1) {
		switch (option) {
		case 'q': arguments->quick = true; break;
		case 's': arguments->setting.scenario = scenario_find(optarg); break;
		case 'w': without = optarg; break;
		case 'a': arguments->all = true; break;
		case 'c': arguments->cells = true; break;
		case 'm':
			arguments->states_max = strtoull(optarg, &end, 10);
			if (*end || arguments->states_max == 0 || arguments->states_max > UINT32_MAX / 2) {
				fprintf(stderr, "neap-model: --states-max is a number from 1 to %u\n", UINT32_MAX / 2);
				exit(2);
			}
			break;
		case 'f':
			arguments->faults = (uint8_t)strtoul(optarg, &end, 10);
			if (*end || arguments->faults == 0 || arguments->faults > 9) {
				fprintf(stderr, "neap-model: --faults is a number from 1 to 9\n");
				exit(2);
			}
			break;
		case 'u': arguments->mutants = true; break;
		case 'r': arguments->replay = optarg; break;
		case 'l': arguments->list = true; break;
		case 'h': usage(stdout); exit(0);
		default: usage(stderr); exit(2);
		}
	}
	if (optind < argc) {
		usage(stderr);
		exit(2);
	}
	if (without)
		take_away(arguments, without);
}

static struct scenario as_asked(const struct arguments *arguments, const struct scenario *scenario)
{
	struct scenario changed = *scenario;
	if (arguments->quick)
		changed.budgets[FAULTS] = (uint8_t)(changed.budgets[FAULTS] - QUICK_LESS);
	if (arguments->faults)
		changed.budgets[FAULTS] = arguments->faults;
	return changed;
}

static int run(const struct arguments *arguments, const struct scenario *scenario, struct cell_counts *counts, struct result *sum)
{
	struct setting setting = arguments->setting;
	struct result result;
	struct scenario changed = as_asked(arguments, scenario);
	setting.scenario = &changed;
	tables_begin(&setting, counts);
	explore(&setting, arguments->states_max, &result);
	printf("%-18s %9" PRIu64 " states %10" PRIu64 " transitions, depth %3u, %6.2f s, %4zu MiB%s\n", scenario->name, result.states,
	       result.transitions, result.depth, result.seconds, result.bytes >> 20,
	       result.violated ? ", violated" : result.complete ? "" : ", not all: --states-max");
	fflush(stdout);
	sum->states += result.states;
	sum->transitions += result.transitions;
	sum->seconds += result.seconds;
	if (sum->bytes < result.bytes)
		sum->bytes = result.bytes;
	if (result.violated)
		report_trace(&setting, &result);
	free(result.trace);
	return result.violated ? 1 : result.complete ? 0 : 2;
}

/* Small scenarios first: most is noticed there. */
static bool mutant_is_noticed(const struct arguments *arguments, uint8_t table, uint8_t cell, struct cell_counts *counts)
{
	struct setting setting = {.has_mutant = true, .mutant_table = table, .mutant_cell = cell};
	for (uint32_t i = scenario_count; i > 0; i--) {
		struct scenario scenario = as_asked(arguments, &scenarios[i - 1]);
		struct result result;
		setting.scenario = &scenario;
		tables_begin(&setting, counts);
		explore(&setting, arguments->states_max, &result);
		free(result.trace);
		if (result.violated)
			return true;
	}
	return false;
}

static int run_mutants(const struct arguments *arguments)
{
	static struct cell_counts counts;
	uint32_t all = 0, noticed = 0;
	for (uint8_t table = 0; table < TABLES; table++) {
		const struct neap_fsm *fsm = tables[table];
		for (uint8_t cell = 0; cell < fsm->state_count * fsm->event_count; cell++) {
			if (fsm->cells[cell].kind != NEAP_CELL_GO)
				continue;
			all++;
			bool seen = mutant_is_noticed(arguments, table, cell, &counts);
			noticed += seen;
			if (!seen)
				printf("not noticed: %s %s %s\n", fsm->name, fsm->states[cell / fsm->event_count].name,
				       fsm->event_names[cell % fsm->event_count]);
			fflush(stdout);
		}
	}
	printf("%u of %u transitions cannot be ignored unnoticed\n", noticed, all);
	return 0;
}

int main(int argc, char **argv)
{
	static struct cell_counts counts;
	struct arguments arguments = {.states_max = 20000000};
	struct result sum = {0};
	int worst = 0;
	read_arguments(&arguments, argc, argv);
	const char *share = getenv("NEAP_SIM_SECONDS"); /* what ./run check gives to runs that can be shorter */
	if (argc == 1 && share && strtoul(share, NULL, 10) < 25)
		arguments.quick = true;
	if (arguments.list) {
		list();
		return 0;
	}
	if (arguments.mutants)
		return run_mutants(&arguments);
	if (arguments.replay)
		return replay(arguments.replay);
	for (uint32_t i = 0; i < scenario_count && worst != 1; i++) {
		const struct scenario *scenario = &scenarios[i];
		if (arguments.setting.scenario && arguments.setting.scenario != scenario)
			continue;
		int status = run(&arguments, scenario, &counts, &sum);
		worst = status == 1 || worst == 0 ? status : worst;
	}
	printf("%" PRIu64 " states, %" PRIu64 " transitions, %.1f s, %zu MiB at most\n", sum.states, sum.transitions, sum.seconds, sum.bytes >> 20);
	if (worst != 1)
		report_cells(&counts, arguments.cells);
	return worst;
}
