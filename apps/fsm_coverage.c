#include "apps/fsm_coverage.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static int find_name(const char *name, const char *const *names, unsigned count)
{
	for (unsigned i = 0; i < count; i++)
		if (strcmp(name, names[i]) == 0)
			return (int)i;
	return -1;
}

static int find_state(const char *name, const struct neap_fsm *fsm)
{
	for (unsigned i = 0; i < fsm->state_count; i++)
		if (strcmp(name, fsm->states[i].name) == 0)
			return (int)i;
	return -1;
}

/* Lines of machines that are not in the catalog (a test's own) are passed over; NULL on success, else what is wrong. */
static const char *add_line(const char *line, const struct neap_fsm *const *machines, size_t count, uint64_t **hits)
{
	char machine[80], state[80], event[80];
	uint64_t taken;
	int end = 0;
	if (sscanf(line, "%79s %79s %79s %" SCNu64 "%n", machine, state, event, &taken, &end) != 4 || line[end] != '\n')
		return "is not `machine STATE EVENT count`";
	for (size_t i = 0; i < count; i++) {
		const struct neap_fsm *fsm = machines[i];
		if (strcmp(fsm->name, machine) != 0)
			continue;
		int s = find_state(state, fsm), e = find_name(event, fsm->event_names, fsm->event_count);
		if (s < 0 || e < 0)
			return "names a state or event that the machine does not have: recorded by an older build?";
		hits[i][(size_t)s * fsm->event_count + (size_t)e] += taken;
	}
	return NULL;
}

static int read_lines(FILE *file, const struct neap_fsm *const *machines, size_t count, uint64_t **hits, FILE *out)
{
	char line[512];
	for (unsigned number = 1; fgets(line, sizeof line, file); number++) {
		const char *wrong = add_line(line, machines, count, hits);
		if (wrong) {
			fprintf(out, "line %u %s: %s", number, wrong, line);
			return -1;
		}
	}
	return 0;
}

static unsigned print_untaken(const struct neap_fsm *fsm, const uint64_t *hits, uint8_t kind, const char *title, FILE *out)
{
	unsigned untaken = 0;
	for (uint8_t s = 0; s < fsm->state_count; s++)
		for (uint8_t e = 0; e < fsm->event_count; e++) {
			const struct neap_cell *cell = neap_fsm_cell(fsm, s, e);
			bool hit = hits[(size_t)s * fsm->event_count + e] != 0;
			if (cell->kind != kind || hit != (kind == NEAP_CELL_IMPOSSIBLE))
				continue;
			untaken++;
			fprintf(out, "    %s: %s x %s", title, fsm->states[s].name, fsm->event_names[e]);
			if (kind == NEAP_CELL_GO)
				fprintf(out, " -> %s", fsm->states[cell->next].name);
			fprintf(out, "\n");
		}
	return untaken;
}

static int report(const struct neap_fsm *const *machines, size_t count, uint64_t **hits, FILE *out)
{
	unsigned all = 0, all_go = 0;
	for (size_t i = 0; i < count; i++) {
		const struct neap_fsm *fsm = machines[i];
		unsigned go = 0, taken = 0;
		for (size_t cell = 0; cell < (size_t)fsm->state_count * fsm->event_count; cell++)
			if (fsm->cells[cell].kind == NEAP_CELL_GO) {
				go++;
				taken += hits[i][cell] != 0;
			}
		fprintf(out, "%s: %u of %u transitions taken\n", fsm->name, taken, go);
		all += print_untaken(fsm, hits[i], NEAP_CELL_GO, "never taken", out);
		all += print_untaken(fsm, hits[i], NEAP_CELL_IMPOSSIBLE, "impossible, yet hit", out);
		(void)print_untaken(fsm, hits[i], NEAP_CELL_IGNORE, "ignored, never seen", out);
		all_go += go;
	}
	fprintf(out, "%zu machines, %u transitions, %u faults\n", count, all_go, all);
	return (int)all;
}

int fsm_coverage(FILE *file, const struct neap_fsm *const *machines, size_t count, FILE *out)
{
	uint64_t **hits = calloc(count ? count : 1, sizeof *hits);
	int result = -1;
	bool enough = hits != NULL;
	for (size_t i = 0; enough && i < count; i++) {
		hits[i] = calloc((size_t)machines[i]->state_count * machines[i]->event_count, sizeof **hits);
		enough = hits[i] != NULL;
	}
	if (!enough)
		fprintf(out, "out of memory\n");
	else if (read_lines(file, machines, count, hits, out) == 0)
		result = report(machines, count, hits, out);
	for (size_t i = 0; hits && i < count; i++)
		free(hits[i]);
	free(hits);
	return result;
}
