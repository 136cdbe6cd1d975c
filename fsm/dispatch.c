/* The dispatcher: the only place that writes a machine's state.
 *
 * Run to completion: an event is taken from the front of one FIFO, looked up, traced, the state is written, the timeout of the
 * new state is armed, the action runs. Actions post; they never dispatch. */
#include <assert.h>
#include <neap/fsm.h>

/* Room kept for what actions post while an event from outside is being worked off. */
#define QUEUE_HEADROOM (2 * NEAP_POSTS_PER_ACTION)

/* Of a machine. */
#define FLAG_BROKEN 1u /* the host was told that it met an impossible event */
#define FLAG_TIMED 2u  /* its state has a timeout class */

static bool is_power_of_two(uint32_t n)
{
	return n != 0 && (n & (n - 1)) == 0;
}

int neap_dispatcher_init(struct neap_dispatcher *dispatcher, struct neap_posted *queue, uint32_t queue_count,
                         const struct neap_dispatch_host *host)
{
	if (!is_power_of_two(queue_count) || queue_count < 64)
		return NEAP_EINVAL;
	dispatcher->queue = queue;
	dispatcher->queue_mask = queue_count - 1;
	dispatcher->head = dispatcher->tail = 0;
	dispatcher->running = false;
	dispatcher->class_count = 0;
	dispatcher->transitions = dispatcher->ignored = dispatcher->stale = dispatcher->impossible = 0;
	dispatcher->last = NULL;
	dispatcher->host = host ? *host : (struct neap_dispatch_host){0};
	return NEAP_OK;
}

int neap_machine_class_init(struct neap_machine_class *class_, struct neap_dispatcher *dispatcher, const struct neap_fsm *fsm,
                            neap_action_func *const *actions, neap_invariant_func *invariant, uint64_t *hits)
{
	if (dispatcher->class_count == NEAP_CLASSES_MAX)
		return NEAP_ELIMIT;
	for (uint8_t i = 1; i < fsm->action_count; i++)
		if (!actions[i])
			return NEAP_EINVAL;
	*class_ = (struct neap_machine_class){
		.fsm = fsm,
		.actions = actions,
		.invariant = invariant,
		.hits = hits,
		.ring = fsm->data_path ? &dispatcher->data_ring : &dispatcher->control_ring,
		.dispatcher = dispatcher,
		.index = (uint16_t)dispatcher->class_count,
	};
	dispatcher->classes[dispatcher->class_count++] = class_;
	return NEAP_OK;
}

void neap_machine_begin(struct neap_machine *machine, struct neap_machine_class *class_)
{
	machine->class_ = class_;
	machine->id = ++class_->last_id;
	machine->generation++;
	machine->state = 0;
	machine->flags = 0;
}

static void arm_timeout(struct neap_dispatcher *dispatcher, struct neap_machine *machine, uint8_t timeout_class)
{
	machine->flags = (uint8_t)(timeout_class ? machine->flags | FLAG_TIMED : machine->flags & ~FLAG_TIMED);
	if (dispatcher->host.arm_timeout)
		dispatcher->host.arm_timeout(dispatcher->host.host, machine, timeout_class);
}

void neap_machine_end(struct neap_machine *machine)
{
	if (machine->flags & FLAG_TIMED)
		arm_timeout(machine->class_->dispatcher, machine, 0);
	machine->generation++;
}

/* Inline: a transition costs a few nanoseconds, a call would be a good part of it. */
#define ALWAYS_INLINE inline __attribute__((always_inline))

static ALWAYS_INLINE void trace(const struct neap_machine *machine, const struct neap_dispatcher *dispatcher, uint8_t kind,
                                uint8_t event, uint8_t to, uint64_t argument)
{
	struct neap_trace_ring *ring = machine->class_->ring;
	struct neap_trace_record *record = &ring->records[ring->count & ring->mask];
	record->now_ns = dispatcher->now_ns;
	record->argument = argument;
	record->machine_id = machine->id;
	record->class_index = machine->class_->index;
	record->generation = machine->generation;
	record->kind = kind;
	record->from = machine->state;
	record->event = event;
	record->to = to;
	record->sequence = (uint32_t)ring->count;
	ring->count++;
}

void neap_trace_relate(const struct neap_machine *parent, const struct neap_machine *child)
{
	trace(parent, parent->class_->dispatcher, NEAP_TRACE_RELATE, 0, parent->state,
	      (uint64_t)child->class_->index << 32 | child->id);
}

/* A cell that cannot be reached was reached: a bug here or in a neighbour. Debug builds stop so that it is seen; production closes
 * this one object and goes on. */
static __attribute__((noinline, cold)) void impossible(struct neap_dispatcher *dispatcher, struct neap_machine *machine,
                                                       uint8_t event, uint64_t argument)
{
	dispatcher->impossible++;
	trace(machine, dispatcher, NEAP_TRACE_IMPOSSIBLE, event, machine->state, argument);
	assert(false && "impossible event: see the last record of the trace ring");
	if (machine->flags & FLAG_BROKEN)
		return;
	machine->flags |= FLAG_BROKEN;
	if (dispatcher->host.on_impossible)
		dispatcher->host.on_impossible(dispatcher->host.host, machine, event);
}

static __attribute__((noinline)) void ignored(struct neap_dispatcher *dispatcher, const struct neap_machine *machine, uint8_t event,
                                              uint64_t argument)
{
	dispatcher->ignored++;
	trace(machine, dispatcher, NEAP_TRACE_IGNORED, event, machine->state, argument);
}

static ALWAYS_INLINE void run_one(struct neap_dispatcher *dispatcher, struct neap_machine *machine, uint8_t event,
                                  uint64_t argument)
{
	struct neap_machine_class *class_ = machine->class_;
	const struct neap_fsm *fsm = class_->fsm;
	uint8_t from = machine->state;
	size_t at = (size_t)from * fsm->event_count + event;
	const struct neap_cell *cell = &fsm->cells[at];

	class_->hits[at]++;
	if (cell->kind == NEAP_CELL_GO) {
		dispatcher->transitions++;
		trace(machine, dispatcher, NEAP_TRACE_GO, event, cell->next, argument);
		machine->state = cell->next;
		if (cell->timeout_class | (machine->flags & FLAG_TIMED))
			arm_timeout(dispatcher, machine, cell->timeout_class);
		neap_action_func *action = class_->actions[cell->action];
		if (action) {
			dispatcher->last = machine;
			dispatcher->last_event = event;
			action(machine, argument);
		}
#ifndef NDEBUG
		const char *wrong = class_->invariant ? class_->invariant(machine, from) : NULL;
		(void)wrong;
		assert(!wrong && "a machine's invariant does not hold: see `wrong`");
#endif
	} else if (cell->kind == NEAP_CELL_IGNORE) {
		ignored(dispatcher, machine, event, argument);
	} else {
		impossible(dispatcher, machine, event, argument);
	}
}

uint32_t neap_dispatch(struct neap_dispatcher *dispatcher, uint32_t limit)
{
	if (dispatcher->running)
		return 0;
	uint32_t done = 0;
	dispatcher->running = true;
	while (dispatcher->head != dispatcher->tail && (limit == 0 || done < limit)) {
		struct neap_posted posted = dispatcher->queue[dispatcher->head++ & dispatcher->queue_mask];
		if (posted.generation != posted.machine->generation) {
			dispatcher->stale++;
			trace(posted.machine, dispatcher, NEAP_TRACE_STALE, posted.event, posted.machine->state, posted.argument);
		} else {
			run_one(dispatcher, posted.machine, posted.event, posted.argument);
		}
		done++;
	}
	dispatcher->running = false;
	return done;
}

/* Outside actions the headroom is kept free by running what is queued; inside one, the headroom is what the action may use. */
static int make_room(struct neap_dispatcher *dispatcher)
{
	uint32_t capacity = dispatcher->queue_mask + 1;
	if (!dispatcher->running && neap_dispatcher_pending(dispatcher) + QUEUE_HEADROOM >= capacity)
		neap_dispatch(dispatcher, 0);
	if (neap_dispatcher_pending(dispatcher) == capacity) {
		assert(false && "an action posts more than NEAP_POSTS_PER_ACTION");
		return NEAP_EAGAIN;
	}
	return NEAP_OK;
}

int neap_post(struct neap_machine *machine, uint8_t event, uint64_t argument)
{
	struct neap_dispatcher *dispatcher = machine->class_->dispatcher;
	int error = make_room(dispatcher);
	if (error)
		return error;
	dispatcher->queue[dispatcher->tail++ & dispatcher->queue_mask] =
		(struct neap_posted){.machine = machine, .argument = argument, .generation = machine->generation, .event = event};
	return NEAP_OK;
}

int neap_post_first(struct neap_machine *machine, uint8_t event, uint64_t argument)
{
	struct neap_dispatcher *dispatcher = machine->class_->dispatcher;
	int error = make_room(dispatcher);
	if (error)
		return error;
	dispatcher->queue[--dispatcher->head & dispatcher->queue_mask] =
		(struct neap_posted){.machine = machine, .argument = argument, .generation = machine->generation, .event = event};
	return NEAP_OK;
}

void neap_step(struct neap_machine *machine, uint8_t event, uint64_t argument)
{
	struct neap_dispatcher *dispatcher = machine->class_->dispatcher;
	if (dispatcher->running || dispatcher->head != dispatcher->tail) {
		(void)neap_post(machine, event, argument);
	} else {
		dispatcher->running = true;
		run_one(dispatcher, machine, event, argument);
		dispatcher->running = false;
	}
	if (dispatcher->head != dispatcher->tail)
		neap_dispatch(dispatcher, 0);
}
