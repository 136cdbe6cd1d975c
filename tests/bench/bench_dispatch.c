/* bench_dispatch [REPETITIONS]: nanoseconds a transition with trace and counters on, and what an empty turn of a reactor costs.
 *
 *   step:    neap_step on an idle dispatcher, as an I/O handler does
 *   queued:  neap_post and neap_dispatch in batches of 64
 *   chain:   each action posts the next event, as machines that talk to each other do
 *   timeout: a state with a timeout: the timer is moved at each transition
 *   turn:    neap_reactor_run_once with nothing to do (EVENT, one look into the epoll set) */
#include <neap/fsm.h>
#include "reactor/core.h"
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#define FSM_DEFINE
#define FSM ping
#define FSM_PURPOSE "does nothing, often"
#define FSM_TIMEOUTS(T) T(LONG)
#define FSM_STATES(S)                                \
	S(LEFT, WORK, NONE, "a HIT")                     \
	S(RIGHT, WORK, NONE, "a HIT")                    \
	S(TIMED, WAIT, LONG, "an ARM")                   \
	S(OVER, FINAL, NONE, "nothing")
#define FSM_EVENTS(E) E(HIT) E(CHAIN) E(ARM)
#define FSM_ACTIONS(A) A(count) A(chain)
#define FSM_ROWS(R)                                                               \
	R(LEFT,  NEVER,          GO(RIGHT, count), GO(RIGHT, chain), GO(TIMED, count)) \
	R(RIGHT, NEVER,          GO(LEFT, count),  GO(LEFT, chain),  GO(TIMED, count)) \
	R(TIMED, GO(OVER, none), GO(LEFT, count),  SKIP,             GO(TIMED, count)) \
	R(OVER,  SKIP,           SKIP,             SKIP,             SKIP)
#include "fsm/declare.h"

#define OPERATIONS 2000000u
#define BATCH 64u
#define REPETITIONS_MAX 64u

enum { STEP, QUEUED, CHAIN, TIMEOUT, TURN, WORKLOADS };
static const char *const workload_names[] = {"step", "queued", "chain", "timeout", "turn"};

struct object {
	struct neap_machine machine;
	struct neap_timer timer;
	uint64_t counted;
};

static void do_count(struct neap_machine *machine, uint64_t argument)
{
	((struct object *)machine)->counted += argument;
}

static void do_chain(struct neap_machine *machine, uint64_t argument)
{
	if (argument > 0)
		neap_post(machine, ping_on_CHAIN, argument - 1);
}

static neap_action_func *const actions[] = {[ping_do_count] = do_count, [ping_do_chain] = do_chain};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)machine;
	(void)timeout_class;
	return now_ns + UINT64_C(5000000000);
}

static double cpu_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

static double run(struct neap_reactor *reactor, struct object *object, int workload)
{
	struct neap_machine *machine = &object->machine;
	struct neap_dispatcher *dispatcher = neap_reactor_dispatcher(reactor);
	uint32_t operations = workload == TURN ? OPERATIONS / 10 : OPERATIONS;
	double begin_ns = cpu_ns();
	if (workload == STEP)
		for (uint32_t i = 0; i < operations; i++)
			neap_step(machine, ping_on_HIT, i);
	else if (workload == QUEUED)
		for (uint32_t i = 0; i < operations; i += BATCH) {
			for (uint32_t j = 0; j < BATCH; j++)
				neap_post(machine, ping_on_HIT, j);
			neap_dispatch(dispatcher, 0);
		}
	else if (workload == CHAIN)
		neap_step(machine, ping_on_CHAIN, operations - 1);
	else if (workload == TIMEOUT)
		for (uint32_t i = 0; i < operations; i++)
			neap_step(machine, ping_on_ARM, i);
	else
		for (uint32_t i = 0; i < operations; i++)
			neap_reactor_run_once(reactor, NULL);
	double spent = (cpu_ns() - begin_ns) / operations;
	if (workload == TIMEOUT)
		neap_step(machine, ping_on_HIT, 0);
	return spent;
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
	static const struct neap_machine_kind kind = {
		.fsm = &neap_fsm_ping, .actions = actions, .timer_offset = NEAP_TIMER_OFFSET(struct object), .due_ns = due_ns};
	struct neap_reactor_class *class_;
	static struct object object;
	unsigned long repetitions = argc > 1 ? strtoul(argv[1], NULL, 10) : 7;
	struct neap_reactor *reactor;
	if (repetitions < 1 || repetitions > REPETITIONS_MAX) {
		fprintf(stderr, "usage: bench_dispatch [REPETITIONS (1..%u)]\n", REPETITIONS_MAX);
		return 2;
	}
	int error = neap_reactor_create(&reactor, NULL);
	if (!error)
		error = neap_reactor_class_of(reactor, &kind, &class_);
	if (error) {
		fprintf(stderr, "bench_dispatch: %s\n", neap_error_text(error));
		return 1;
	}
	neap_machine_begin(&object.machine, &class_->class_);
	double spent[WORKLOADS][REPETITIONS_MAX];
	for (uint32_t i = 0; i < repetitions; i++)
		for (int workload = 0; workload < WORKLOADS; workload++)
			spent[workload][i] = run(reactor, &object, workload);
	printf("%-9s %8s %8s\n", "workload", "ns", "best");
	for (int workload = 0; workload < WORKLOADS; workload++) {
		qsort(spent[workload], repetitions, sizeof spent[workload][0], by_value);
		printf("%-9s %8.2f %8.2f\n", workload_names[workload], spent[workload][repetitions / 2], spent[workload][0]);
	}
	neap_machine_end(&object.machine);
	return neap_reactor_destroy(reactor) == NEAP_OK ? 0 : 1;
}
