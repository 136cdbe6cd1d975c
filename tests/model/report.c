/* What is printed: a way to a violation that can be followed again, and which cells of the tables were taken. */
#include "tests/model/world.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_note(void *user, const char *text)
{
	(void)user;
	printf("           %s\n", text);
}

static bool in_wrong_end(const struct step *step)
{
	if (!step->wrong)
		return false;
	printf("violated: %s: %s\n", step->invariant, step->wrong);
	return true;
}

static void print_event(uint32_t number, const struct world *world, const struct event *event)
{
	char text[200];
	event_text(world, event, text, sizeof text);
	printf("%4u  %s %u %u  # %s\n", number, event_name(event->kind), event->a, event->b, text);
}

void report_trace(const struct setting *setting, const struct result *result)
{
	static struct cell_counts ignored;
	struct world world;
	struct step step = {.world = &world, .setting = setting, .note = print_note};
	printf("scenario %s\n", setting->scenario->name);
	for (uint32_t i = 0; i < PROTECTIONS; i++)
		if (setting->without[i])
			printf("without %s\n", protection_texts[i].name);
	printf("faults %u\n", setting->scenario->budgets[FAULTS]);
	tables_begin(setting, &ignored);
	world_begin(&world, setting);
	for (uint32_t i = 0; i < result->trace_length; i++) {
		print_event(i + 1, &world, &result->trace[i]);
		event_apply(&step, &result->trace[i]);
	}
	printf("violated: %s: %s\n", result->invariant, result->wrong);
}

/* --- replay */

static bool is_possible(const struct world *world, const struct setting *setting, const struct event *event)
{
	struct event events[128];
	uint32_t count = events_of(world, setting, events, 128);
	for (uint32_t i = 0; i < count && i < 128; i++)
		if (events[i].kind == event->kind && events[i].a == event->a && events[i].b == event->b)
			return true;
	return false;
}

static void read_setting(struct setting *setting, struct scenario *scenario, const char *line)
{
	char name[64];
	unsigned faults;
	if (sscanf(line, "scenario %63s", name) == 1)
		for (uint32_t i = 0; i < scenario_count; i++)
			if (strcmp(scenarios[i].name, name) == 0) {
				*scenario = scenarios[i];
				setting->scenario = scenario;
			}
	if (sscanf(line, "faults %u", &faults) == 1 && faults < 10)
		scenario->budgets[FAULTS] = (uint8_t)faults;
	if (sscanf(line, "without %63s", name) == 1)
		for (uint32_t i = 0; i < PROTECTIONS; i++)
			if (strcmp(protection_texts[i].name, name) == 0)
				setting->without[i] = true;
}

static int replay_file(FILE *file, const char *path)
{
	static struct cell_counts ignored;
	struct setting setting = {0};
	struct scenario scenario;
	struct world world;
	struct step step = {.world = &world, .setting = &setting, .note = print_note};
	char line[400], name[64];
	unsigned number, a, b, done = 0;
	while (fgets(line, sizeof line, file)) {
		read_setting(&setting, &scenario, line);
		if (sscanf(line, "%u %63s %u %u", &number, name, &a, &b) != 4)
			continue;
		if (!setting.scenario) {
			fprintf(stderr, "neap-model: %s: a line 'scenario NAME' comes before the events\n", path);
			return 2;
		}
		if (done++ == 0) {
			tables_begin(&setting, &ignored);
			world_begin(&world, &setting);
		}
		struct event event = {.kind = (uint8_t)event_find(name), .a = (uint8_t)a, .b = (uint8_t)b};
		if (event_find(name) < 0 || !is_possible(&world, &setting, &event)) {
			fprintf(stderr, "neap-model: %s: event %u, '%s %u %u', is not possible there\n", path, number, name, a, b);
			return 2;
		}
		print_event(number, &world, &event);
		step.wrong = NULL;
		event_apply(&step, &event);
		if (in_wrong_end(&step))
			return 1;
	}
	printf("%u events, nothing violated\n", done);
	return 0;
}

int replay(const char *path)
{
	FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
	if (!file) {
		fprintf(stderr, "neap-model: %s: %s\n", path, strerror(errno));
		return 2;
	}
	int status = replay_file(file, path);
	if (file != stdin)
		fclose(file);
	return status;
}

/* --- cells */

void report_cells(const struct cell_counts *counts, bool missing)
{
	for (uint32_t i = 0; i < TABLES; i++) {
		const struct neap_fsm *fsm = tables[i];
		uint32_t go = 0, taken = 0;
		for (uint32_t cell = 0; cell < (uint32_t)fsm->state_count * fsm->event_count; cell++) {
			if (fsm->cells[cell].kind == NEAP_CELL_IMPOSSIBLE)
				continue;
			go++;
			taken += counts->hits[i][cell] > 0;
		}
		printf("cells %-13s %u of %u taken\n", fsm->name, taken, go);
		for (uint32_t cell = 0; missing && cell < (uint32_t)fsm->state_count * fsm->event_count; cell++)
			if (fsm->cells[cell].kind != NEAP_CELL_IMPOSSIBLE && counts->hits[i][cell] == 0)
				printf("      not %s %s%s\n", fsm->states[cell / fsm->event_count].name, fsm->event_names[cell % fsm->event_count],
				       fsm->cells[cell].kind == NEAP_CELL_IGNORE ? " (ignored)" : "");
	}
}
