/* One turn: every source gets its share of the budget, machines run after each piece of work, and at the end the turn decides whether
 * the host may sleep. */
#include "reactor/inside.h"

#define EVENTS_MAX 256u
#define TURN_NS 2000000u
#define POLLED_MAX 32u
#define DISPATCHED_MAX 4096u /* machine events after one piece of work; more than that is a loop of machines, cut into turns */
#define TIMERS_TOUCHED_MAX 4096u /* by one turn, due ones and those that only move down a level */
#define LOG_INTERVAL_NS 1000000000u

/* --- the budget and the watch over long turns */

/* Asked when there is work: false ends the source's share, and the turn will answer MORE. */
static bool may_go_on(struct neap_reactor *reactor)
{
	if (reactor->turn.left > 0)
		return true;
	reactor->turn.exhausted = true;
	return false;
}

/* Machines first: a later piece of work finds their queue empty. */
static void settle(struct neap_reactor *reactor)
{
	neap_dispatch(&reactor->dispatcher, DISPATCHED_MAX);
	if (neap_dispatcher_pending(&reactor->dispatcher) > 0)
		reactor->turn.left = 0;
}

static void note_longest(struct neap_reactor *reactor, const char *what, uint64_t took_ns)
{
	struct neap_turn *turn = &reactor->turn;
	const struct neap_dispatcher *dispatcher = &reactor->dispatcher;
	turn->longest_ns = took_ns;
	turn->longest_what = what;
	const struct neap_machine *machine = dispatcher->transitions != turn->transitions ? dispatcher->last : NULL;
	turn->longest_fsm = machine ? machine->class_->fsm : NULL;
	turn->longest_id = machine ? machine->id : 0;
	turn->longest_event = dispatcher->last_event;
}

/* A piece of work is done. */
static void account(struct neap_reactor *reactor, const char *what, uint32_t events)
{
	struct neap_turn *turn = &reactor->turn;
	settle(reactor);
	turn->done++;
	turn->left -= events < turn->left ? events : turn->left;
	reactor->stats.events += events;
	if (!turn->timed)
		return;
	uint64_t clock_ns = reactor->options.clock.now_ns(reactor->options.clock.user);
	if (clock_ns - turn->unit_ns > turn->longest_ns)
		note_longest(reactor, what, clock_ns - turn->unit_ns);
	turn->transitions = reactor->dispatcher.transitions;
	turn->unit_ns = clock_ns;
	if (clock_ns - turn->begun_ns >= turn->budget.ns_max)
		turn->left = 0;
}

static void report_long_turn(struct neap_reactor *reactor, uint64_t took_ns)
{
	const struct neap_turn *turn = &reactor->turn;
	const struct neap_fsm *fsm = turn->longest_fsm;
	enum neap_log_level level = took_ns >= 10 * reactor->options.long_turn_ns ? NEAP_LOG_WARNING : NEAP_LOG_INFO;
	reactor->stats.long_turns++;
	if (reactor->long_log_ns && reactor->now_ns - reactor->long_log_ns < LOG_INTERVAL_NS)
		return;
	reactor->long_log_ns = reactor->now_ns;
	if (fsm)
		neap_log(reactor, level, "reactor", "a turn took %llu us; longest: %llu us in %s, machine %s#%u on %s",
		         (unsigned long long)(took_ns / 1000), (unsigned long long)(turn->longest_ns / 1000), turn->longest_what,
		         fsm->name, turn->longest_id, fsm->event_names[turn->longest_event]);
	else
		neap_log(reactor, level, "reactor", "a turn took %llu us; longest: %llu us in %s", (unsigned long long)(took_ns / 1000),
		         (unsigned long long)(turn->longest_ns / 1000), turn->longest_what);
}

/* --- the look that timers wait for */

static void look_begin(struct neap_reactor *reactor)
{
	reactor->look = (struct neap_look){
		.begun_ns = reactor->now_ns,
		.messages = atomic_load_explicit(&reactor->mailbox.tail, memory_order_relaxed),
		.ready_round = ++reactor->ready_round,
		.descriptors = reactor->watch_used,
	};
}

static bool timers_due(const struct neap_reactor *reactor)
{
	return neap_wheel_due(&reactor->wheel, reactor->now_ns);
}

/* A flood ends neither: only what there was at the begin is counted. Pollers have no say: they are asked in each turn, and what they still
 * have cannot be counted. */
static bool look_done(const struct neap_reactor *reactor)
{
	const struct neap_look *look = &reactor->look;
	const struct neap_mailbox *mailbox = &reactor->mailbox;
	return look->descriptors == 0 && (!reactor->ready || (int32_t)(reactor->ready->round - look->ready_round) >= 0) &&
	       (neap_mailbox_empty(mailbox) || (int32_t)(mailbox->head - look->messages) >= 0);
}

/* Up to when timers may fire. Those of an earlier look may go on while the next one is under way. */
static uint64_t timers_until(struct neap_reactor *reactor)
{
	struct neap_look *look = &reactor->look;
	bool done = look_done(reactor);
	look->held = !done && timers_due(reactor);
	if (look->held)
		return reactor->wheel.turn_ns;
	return done ? look->begun_ns : reactor->now_ns; /* the latter: none is due */
}

/* --- the sources */

static void run_mailbox(struct neap_reactor *reactor)
{
	neap_message_func *run;
	void *argument;
	while (!neap_mailbox_empty(&reactor->mailbox) && may_go_on(reactor)) {
		if (!neap_mailbox_take(&reactor->mailbox, &run, &argument))
			return;
		run(argument);
		reactor->stats.messages++;
		account(reactor, "a message", 1);
	}
}

static void run_pollers(struct neap_reactor *reactor)
{
	for (uint32_t i = reactor->poller_count; i > 0 && reactor->pollers && may_go_on(reactor); i--) {
		struct neap_poller *poller = reactor->poller_next ? reactor->poller_next : reactor->pollers;
		uint32_t most = reactor->turn.left < POLLED_MAX ? reactor->turn.left : POLLED_MAX;
		reactor->poller_next = poller->next;
		uint32_t polled = poller->poll(poller, most);
		if (polled == 0)
			continue;
		account(reactor, "a completion poller", polled);
		if (polled >= most)
			reactor->turn.exhausted = true;
	}
}

static void run_timers(struct neap_reactor *reactor)
{
	uint32_t work = TIMERS_TOUCHED_MAX;
	neap_wheel_turn(&reactor->wheel, timers_until(reactor));
	/* What is left over shows in timers_due. */
	while (reactor->turn.left > 0) {
		struct neap_timer *timer = neap_wheel_take(&reactor->wheel, &work);
		if (!timer)
			return;
		reactor->stats.timers_fired++;
		timer->fire(timer, timer->user);
		account(reactor, "a timer", 1);
	}
}

/* Each of those queued now runs once; what is queued meanwhile has this round's number and waits for the next, also when one of the others
 * was canceled. */
static void run_queued(struct neap_reactor *reactor)
{
	uint32_t round = ++reactor->ready_round;
	while (reactor->ready && reactor->ready->round != round && may_go_on(reactor)) {
		struct neap_ready *ready = reactor->ready;
		neap_ready_cancel(reactor, ready);
		ready->run(ready);
		account(reactor, "a ready source", 1);
	}
}

/* Twice a turn: what they queue runs in the same turn, so that an answer, its callback, and the request that the callback makes cost the
 * host one call. Not more often: what always queues itself again waits for the next turn. Nobody runs again after its end: the dead are
 * reaped in between. */
static void run_ready(struct neap_reactor *reactor)
{
	if (!reactor->ready || !may_go_on(reactor))
		return;
	if (reactor->reaps)
		neap_reap_now(reactor);
	run_queued(reactor);
}

static void take_batch(struct neap_reactor *reactor)
{
	if (reactor->batch_at == reactor->batch_count && !reactor->batch_given) {
		if (!may_go_on(reactor))
			return;
		int count = epoll_wait(reactor->epoll_fd, reactor->batch, NEAP_BATCH_MAX, 0);
		reactor->stats.system_calls++;
		reactor->batch_at = 0;
		reactor->batch_count = count > 0 ? (uint32_t)count : 0; /* interrupted: no event */
		reactor->look.fresh = true;
	}
	reactor->batch_given = false;
}

static void serve_batch(struct neap_reactor *reactor)
{
	struct neap_look *look = &reactor->look;
	while (reactor->batch_at < reactor->batch_count && may_go_on(reactor)) {
		const struct epoll_event *event = &reactor->batch[reactor->batch_at++];
		if (event->data.u64 >> 32 == 0) {
			neap_wake_seen(reactor, event->data.u64);
			continue;
		}
		neap_watch_dispatch(reactor, event);
		look->descriptors -= look->descriptors > 0; /* the kernel has all others before it has this one again */
		account(reactor, "a descriptor's handler", 1);
	}
	if (reactor->batch_at == reactor->batch_count && reactor->batch_count < NEAP_BATCH_MAX && look->fresh)
		look->descriptors = 0;
}

static void run_simulated_watches(struct neap_reactor *reactor)
{
	struct neap_look *look = &reactor->look;
	uint32_t slot = 0;
	unsigned ready;
	struct neap_watch *watch;
	while ((watch = neap_watch_simulated(reactor, &slot, &ready)) && may_go_on(reactor)) {
		watch->ready(watch, ready);
		look->descriptors -= look->descriptors > 0;
		account(reactor, "a descriptor's handler", 1);
	}
	if (!watch)
		look->descriptors = 0;
}

/* One batch a turn. More when timers wait for what the kernel may have beyond it. */
static void run_watches(struct neap_reactor *reactor)
{
	if (reactor->simulated) {
		run_simulated_watches(reactor);
		return;
	}
	do {
		take_batch(reactor);
		serve_batch(reactor);
	} while (reactor->look.descriptors > 0 && reactor->turn.left > 0 && timers_due(reactor));
	/* The kernel may have more than fitted. */
	if (reactor->batch_count == NEAP_BATCH_MAX)
		reactor->turn.exhausted = true;
}

static void run_sources(struct neap_reactor *reactor)
{
	/* Timers after all by which an answer can come: to a host that was away, what waited meanwhile is there, not late. Ready sources before
	 * them and behind: most are made ready by what came before, and so run in the same turn. */
	static void (*const sources[])(struct neap_reactor *) = {run_mailbox, run_pollers, run_watches, run_ready, run_timers, run_ready};
	const uint32_t count = sizeof sources / sizeof sources[0];
	for (uint32_t i = 0; i < count; i++)
		sources[(reactor->first_source + i) % count](reactor);
	/* When the budget ended this turn, another source comes first in the next. */
	reactor->first_source = reactor->turn.left == 0 ? (reactor->first_source + 1) % count : 0;
}

void neap_reap_now(struct neap_reactor *reactor)
{
	struct neap_reap *reap = reactor->reaps;
	reactor->reaps = NULL;
	reactor->reap_tail = &reactor->reaps;
	while (reap) {
		struct neap_reap *next = reap->next;
		reap->queued = false;
		reap->reap(reap);
		reap = next;
	}
	/* The machine that ran last may have been one of them. */
	reactor->dispatcher.last = NULL;
	reactor->turn.transitions = reactor->dispatcher.transitions;
}

/* --- the end of a turn */

static bool work_left(struct neap_reactor *reactor)
{
	return reactor->turn.exhausted || reactor->batch_at < reactor->batch_count ||
	       neap_dispatcher_pending(&reactor->dispatcher) > 0 || reactor->ready || reactor->reaps ||
	       !neap_mailbox_empty(&reactor->mailbox) || timers_due(reactor);
}

/* Devices are asked to wake us, then looked at once more: what came in between would not. True: something came. */
static bool arm_pollers(struct neap_reactor *reactor)
{
	uint64_t done = reactor->turn.done;
	for (struct neap_poller *poller = reactor->pollers; poller; poller = poller->next)
		if (poller->arm)
			poller->arm(poller);
	reactor->turn.left = reactor->turn.budget.events_max;
	if (reactor->pollers)
		run_pollers(reactor);
	return reactor->turn.done != done;
}

static int decide(struct neap_reactor *reactor)
{
	bool left = work_left(reactor);
	if (reactor->stopping && !reactor->dependents && !left) {
		reactor->stopped = true;
		return NEAP_RUN_STOPPED;
	}
	if (reactor->options.mode == NEAP_MODE_BUSY)
		return NEAP_RUN_MORE;
	if (reactor->turn.done > 0)
		reactor->progress_ns = reactor->now_ns;
	if (reactor->options.mode == NEAP_MODE_ADAPTIVE && reactor->now_ns - reactor->progress_ns < reactor->options.spin_ns)
		left = true;
	if (left || arm_pollers(reactor) || !neap_wake_arm(reactor)) {
		neap_wake_keep(reactor);
		return NEAP_RUN_MORE;
	}
	return NEAP_RUN_ARMED;
}

static void begin(struct neap_reactor *reactor, uint64_t now_ns, uint64_t clock_ns, const struct neap_budget *budget)
{
	struct neap_turn *turn = &reactor->turn;
	reactor->in_turn = true;
	/* Sequentially consistent: what this turn reads is read after others can see that it runs. */
	atomic_store(&reactor->turn_counter, atomic_load_explicit(&reactor->turn_counter, memory_order_relaxed) + 1);
	neap_wake_begin_turn(reactor);
	if (now_ns > reactor->now_ns)
		reactor->now_ns = now_ns;
	reactor->dispatcher.now_ns = reactor->now_ns;
	*turn = (struct neap_turn){
		.budget = budget ? *budget : (struct neap_budget){0},
		.timed = clock_ns != 0,
		.begun_ns = clock_ns,
		.unit_ns = clock_ns,
		.transitions = reactor->dispatcher.transitions,
	};
	if (!turn->budget.events_max)
		turn->budget.events_max = EVENTS_MAX;
	if (!turn->budget.bytes_max)
		turn->budget.bytes_max = NEAP_BYTES_BUDGET;
	if (!turn->budget.ns_max)
		turn->budget.ns_max = TURN_NS;
	turn->left = turn->budget.events_max;
	if (!reactor->look.held)
		look_begin(reactor);
	reactor->stats.turns++;
}

static void end(struct neap_reactor *reactor)
{
	const struct neap_turn *turn = &reactor->turn;
	uint64_t took_ns = turn->unit_ns - turn->begun_ns;
	if (took_ns > reactor->stats.longest_turn_ns)
		reactor->stats.longest_turn_ns = took_ns;
	if (took_ns > reactor->options.long_turn_ns)
		report_long_turn(reactor, took_ns);
	atomic_store_explicit(&reactor->turn_counter, atomic_load_explicit(&reactor->turn_counter, memory_order_relaxed) + 1,
	                      memory_order_release);
	reactor->in_turn = false;
}

int neap_turn_may_begin(struct neap_reactor *reactor)
{
	if (neap_reactor_forked(reactor))
		return NEAP_EFORKED;
	if (!reactor->owner_ran && !reactor->in_turn) {
		reactor->owner = neap_thread();
		reactor->owner_ran = true;
	}
	if (reactor->owner != neap_thread())
		return NEAP_ETHREAD;
	return reactor->in_turn ? NEAP_EREENTERED : NEAP_OK;
}

int neap_turn_run(struct neap_reactor *reactor, uint64_t now_ns, uint64_t clock_ns, const struct neap_budget *budget)
{
	if (reactor->stopped)
		return NEAP_RUN_STOPPED;
	begin(reactor, now_ns, clock_ns, budget);
	uint32_t pending = neap_dispatcher_pending(&reactor->dispatcher);
	if (pending > 0)
		account(reactor, "queued events", 0);
	run_sources(reactor);
	if (reactor->reaps)
		neap_reap_now(reactor);
	settle(reactor);
	int answer = decide(reactor);
	end(reactor);
	return answer;
}

int neap_reactor_run_once(struct neap_reactor *reactor, const struct neap_budget *budget)
{
	int error = neap_turn_may_begin(reactor);
	if (error)
		return error;
	if (reactor->simulated && !reactor->own_clock)
		return NEAP_ENOTSUP;
	uint64_t now_ns = neap_reactor_refresh(reactor);
	return neap_turn_run(reactor, now_ns, reactor->simulated ? 0 : now_ns, budget);
}

int neap_reactor_run_at(struct neap_reactor *reactor, uint64_t now_ns, const struct neap_budget *budget)
{
	int error = neap_turn_may_begin(reactor);
	if (error)
		return error;
	uint64_t clock_ns = reactor->simulated ? 0 : reactor->options.clock.now_ns(reactor->options.clock.user);
	return neap_turn_run(reactor, now_ns, clock_ns, budget);
}

/* --- queues that feed a turn */

void neap_ready_again(struct neap_reactor *reactor, struct neap_ready *ready)
{
	if (ready->queued)
		return;
	ready->queued = true;
	ready->next = NULL;
	ready->slot = reactor->ready_tail;
	*reactor->ready_tail = ready;
	reactor->ready_tail = &ready->next;
	ready->round = reactor->ready_round;
	neap_reactor_touch(reactor);
}

void neap_ready_cancel(struct neap_reactor *reactor, struct neap_ready *ready)
{
	if (!ready->queued)
		return;
	ready->queued = false;
	*ready->slot = ready->next;
	if (ready->next)
		ready->next->slot = ready->slot;
	else
		reactor->ready_tail = ready->slot;
}

void neap_reap_later(struct neap_reactor *reactor, struct neap_reap *reap)
{
	if (reap->queued)
		return;
	reap->queued = true;
	reap->next = NULL;
	*reactor->reap_tail = reap;
	reactor->reap_tail = &reap->next;
	neap_reactor_touch(reactor);
}

void neap_poller_add(struct neap_reactor *reactor, struct neap_poller *poller)
{
	poller->next = reactor->pollers;
	if (poller->next)
		poller->next->slot = &poller->next;
	poller->slot = &reactor->pollers;
	reactor->pollers = poller;
	reactor->poller_count++;
	neap_reactor_touch(reactor);
}

void neap_poller_remove(struct neap_reactor *reactor, struct neap_poller *poller)
{
	if (!poller->slot)
		return;
	if (reactor->poller_next == poller)
		reactor->poller_next = poller->next;
	*poller->slot = poller->next;
	if (poller->next)
		poller->next->slot = poller->slot;
	poller->slot = NULL;
	reactor->poller_count--;
}
