/* The dispatcher writes a transition into the trace and then calls its action through the class's table. Here that table is replaced by
 * one whose every entry, that of "no action" too, looks at the record just written and then calls what the table had: so the library has
 * nothing to ask at a transition. */
#include "apps/common/stop_at.h"
#include <limits.h>
#include <neap/fsm.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
	struct ev_loop *loop;
	const struct neap_fsm *fsm;
	neap_action_func *const *actions; /* the class's own */
	neap_action_func *watched[UCHAR_MAX + 1];
	ev_prepare turn_over;
	uint64_t left; /* entries until then */
	uint8_t wanted; /* state */
	bool after_turn;
	int number;
} stop;

static void on_turn_over(struct ev_loop *loop, ev_prepare *watcher, int events)
{
	(void)loop, (void)watcher, (void)events;
	(void)raise(stop.number);
}

static void arrive(void)
{
	if (!stop.after_turn) {
		(void)raise(stop.number);
		return;
	}
	/* Behind all that the loop has still to call, among it the rest of this turn; the loop may not come round again. */
	ev_prepare_init(&stop.turn_over, on_turn_over);
	ev_set_priority(&stop.turn_over, EV_MINPRI);
	ev_feed_event(stop.loop, &stop.turn_over, EV_CUSTOM);
}

static void on_transition(struct neap_machine *machine, uint64_t argument)
{
	const struct neap_trace_ring *ring = machine->class_->ring;
	const struct neap_trace_record *record = &ring->records[(ring->count - 1) & ring->mask];
	neap_action_func *action = stop.actions[neap_fsm_cell(stop.fsm, record->from, record->event)->action];
	if (record->to == stop.wanted && record->from != stop.wanted && stop.left && --stop.left == 0)
		arrive();
	if (action)
		action(machine, argument);
}

static struct neap_machine_class *find_class(const struct neap_dispatcher *dispatcher, const char *name, size_t length)
{
	for (uint32_t i = 0; i < dispatcher->class_count; i++) {
		const char *known = dispatcher->classes[i]->fsm->name;
		if (strlen(known) == length && memcmp(known, name, length) == 0)
			return dispatcher->classes[i];
	}
	return NULL;
}

static bool find_state(const struct neap_fsm *fsm, const char *name, size_t length)
{
	for (stop.wanted = 0; stop.wanted < fsm->state_count; stop.wanted++) {
		const char *known = fsm->states[stop.wanted].name;
		if (strlen(known) == length && memcmp(known, name, length) == 0)
			return true;
	}
	return false;
}

/* What follows the state's name. */
static bool parse_rest(const char *text)
{
	char *end = "";
	stop.after_turn = *text == '+';
	text += stop.after_turn;
	stop.left = 1;
	if (*text == ':' && text[1] >= '1' && text[1] <= '9')
		stop.left = strtoull(text + 1, &end, 10);
	else if (*text)
		return false;
	return !*end;
}

static bool watch(const struct app_program *program, const struct app_host *host, const char *variable, const char *text)
{
	size_t machine = strcspn(text, "."), state = text[machine] ? strcspn(text + machine + 1, "+:") : 0;
	const char *state_name = text + machine + 1;
	if (!state || !parse_rest(state_name + state)) {
		app_error(program, "%s=%s is not valid; allowed: MACHINE.STATE, MACHINE.STATE:N, MACHINE.STATE+, MACHINE.STATE+:N", variable, text);
		return false;
	}
	struct neap_machine_class *class_ = find_class(neap_reactor_dispatcher(host->reactor), text, machine);
	if (!class_ || !find_state(class_->fsm, state_name, state)) {
		app_error(program, "%s=%s: this process has no such %s; `neap-fsm list` and `neap-fsm show MACHINE` name them", variable, text,
		          class_ ? "state" : "machine");
		return false;
	}
	stop.loop = host->loop;
	stop.fsm = class_->fsm;
	stop.actions = class_->actions;
	for (size_t i = 0; i < sizeof stop.watched / sizeof stop.watched[0]; i++)
		stop.watched[i] = on_transition;
	class_->actions = stop.watched;
	return true;
}

int app_stop_at(const struct app_program *program, struct app_host *host)
{
	const char *stop_at = getenv("NEAP_STOP_AT"), *kill_at = getenv("NEAP_KILL_AT");
	bool stops = stop_at && *stop_at, kills = kill_at && *kill_at;
	if (stops && kills) {
		app_error(program, "NEAP_STOP_AT and NEAP_KILL_AT are both set; one process can do one of them");
		return APP_USAGE;
	}
	stop.number = stops ? SIGSTOP : SIGKILL;
	if ((stops || kills) && !watch(program, host, stops ? "NEAP_STOP_AT" : "NEAP_KILL_AT", stops ? stop_at : kill_at))
		return APP_USAGE;
	return -1;
}
