/* State machines as tables.
 *
 * A machine is a dense table states x events. Every cell says what happens: GO (next state and an action), IGNORE (a benign late
 * event, counted) or IMPOSSIBLE (asserts in debug builds; in production the host's `on_impossible` closes that one object).
 * docs/FSM.md has the semantics; this header has the shapes.
 *
 * The dispatcher is pure: no I/O, no clock, no heap. What it needs from its surroundings (timers) it reaches through
 * struct neap_dispatch_host, so the same tables run in a reactor, in the explorer and in a fuzzer.
 *
 * Thread rule: a dispatcher and all its machines belong to one thread. Tables are const and shared. */
#ifndef NEAP_FSM_H
#define NEAP_FSM_H

#include <neap/error.h>
#include <neap/trace.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum neap_cell_kind {
	NEAP_CELL_MISSING = 0, /* never in a finished table */
	NEAP_CELL_GO,
	NEAP_CELL_IGNORE,
	NEAP_CELL_IMPOSSIBLE,
};

struct neap_cell {
	uint8_t kind;   /* enum neap_cell_kind */
	uint8_t next;   /* state after GO */
	uint8_t action; /* index into the machine's action table; 0 is "none" */
	uint8_t timeout_class; /* of `next`; 0 is "none" */
};

/* What a state is for. The table checks (neap-fsm check) hold each kind to its rule. */
enum neap_state_kind {
	NEAP_STATE_WORK,  /* waits for work and may wait for ever: listen, idle lane. No timeout needed. */
	NEAP_STATE_WAIT,  /* waits for an answer: must have a timeout class and a GO for TIMEOUT */
	NEAP_STATE_PARENT,/* waits for another machine that itself is bounded; the text names it */
	NEAP_STATE_FINAL, /* absorbs: no GO leaves it */
};

struct neap_state_info {
	const char *name;
	const char *waits_for; /* a sentence: what ends this state */
	uint8_t kind;          /* enum neap_state_kind */
	uint8_t timeout_class; /* index into timeout_names; 0 = NONE */
};

/* One machine type. State 0 is the initial state. Event 0 is always TIMEOUT. */
struct neap_fsm {
	const char *name;    /* lower case with underscores, as `neap-fsm show NAME` takes it */
	const char *purpose; /* one sentence */
	const struct neap_cell *cells; /* [state_count][event_count] */
	const struct neap_state_info *states;
	const char *const *event_names;
	const char *const *action_names;
	const char *const *timeout_names;
	uint8_t state_count, event_count, action_count, timeout_count;
	uint8_t data_path; /* 1: its transitions go to the data-path trace ring */
};

struct neap_machine;
struct neap_dispatcher;

/* An action performs effects and may post events (at most NEAP_POSTS_PER_ACTION); it never dispatches and never writes a state.
 * `argument` is what the poster passed. */
typedef void neap_action_func(struct neap_machine *machine, uint64_t argument);

#define NEAP_POSTS_PER_ACTION 16u

/* Run after each transition in debug builds; returns NULL, or what is wrong. `from` is the state before. */
typedef const char *neap_invariant_func(const struct neap_machine *machine, uint8_t from);

/* A machine type as one dispatcher runs it: the table with its actions, counters and trace id. */
struct neap_machine_class {
	const struct neap_fsm *fsm;
	neap_action_func *const *actions; /* [action_count]; NULL for "none" */
	neap_invariant_func *invariant;   /* may be NULL */
	uint64_t *hits;                   /* [state_count * event_count] */
	struct neap_trace_ring *ring;
	struct neap_dispatcher *dispatcher;
	uint16_t index;    /* in the dispatcher's list; the trace's machine type */
	uint32_t last_id;  /* ids given to machines of this class, for the trace */
};

/* Embedded in the object it drives, which must live in memory that stays valid as long as the dispatcher (a pool): a late event
 * is recognised by its generation, not by its pointer. */
struct neap_machine {
	struct neap_machine_class *class_;
	uint32_t id;         /* unique per class: the trace's instance */
	uint16_t generation; /* raised by neap_machine_end: events posted before are stale */
	uint8_t state;       /* written by the dispatcher alone */
	uint8_t flags;
};

/* What the dispatcher needs from outside. */
struct neap_dispatch_host {
	/* The machine took a GO and the state it left or entered has a timeout class: arm that of the entered state afresh (class 0:
	 * disarm). Called on self-transitions too. May be NULL. */
	void (*arm_timeout)(void *host, struct neap_machine *machine, uint8_t timeout_class);
	/* An IMPOSSIBLE cell was hit in production: close the object. Called once per machine. May be NULL. */
	void (*on_impossible)(void *host, struct neap_machine *machine, uint8_t event);
	void *host;
};

struct neap_posted {
	struct neap_machine *machine;
	uint64_t argument;
	uint16_t generation;
	uint8_t event;
};

#define NEAP_CLASSES_MAX 64u

struct neap_dispatcher {
	struct neap_posted *queue; /* ring of queue_mask + 1 */
	uint32_t queue_mask, head, tail;
	bool running;
	uint64_t now_ns; /* set by the owner before it posts; stamped into the trace */
	struct neap_trace_ring control_ring, data_ring;
	struct neap_dispatch_host host;
	struct neap_machine_class *classes[NEAP_CLASSES_MAX];
	uint32_t class_count;
	uint64_t transitions, ignored, stale, impossible; /* counters since the start */
	const struct neap_machine *last; /* whose action runs or ran last: for a debugger, and to name the culprit of a long turn */
	uint8_t last_event;
};

/* Memory is the caller's: `queue` of a power-of-two `queue_count`, rings already initialised by neap_trace_ring_init.
 * Returns NEAP_EINVAL when a count is not a power of two or the queue is smaller than 64. */
NEAP_API int neap_dispatcher_init(struct neap_dispatcher *dispatcher, struct neap_posted *queue, uint32_t queue_count,
                                  const struct neap_dispatch_host *host);

/* Adds a class. `hits` is the caller's, state_count * event_count zeroes. NEAP_ELIMIT beyond NEAP_CLASSES_MAX. */
NEAP_API int neap_machine_class_init(struct neap_machine_class *class_, struct neap_dispatcher *dispatcher,
                                     const struct neap_fsm *fsm, neap_action_func *const *actions,
                                     neap_invariant_func *invariant, uint64_t *hits);

/* Puts a machine into its initial state with a fresh id. The generation goes on from what the memory held, so zeroed memory is
 * right the first time and reuse is safe. */
NEAP_API void neap_machine_begin(struct neap_machine *machine, struct neap_machine_class *class_);

/* The object is done: every event still queued for it becomes stale. Disarms its timeout. */
NEAP_API void neap_machine_end(struct neap_machine *machine);

/* Queues an event at the back. Never dispatches inside an action; outside one it may run queued events first when the queue is
 * near its bound. NEAP_EAGAIN only when an action posts more than NEAP_POSTS_PER_ACTION allows for. */
NEAP_API int neap_post(struct neap_machine *machine, uint8_t event, uint64_t argument);

/* The same at the front: an action's own follow-up, before external events. */
NEAP_API int neap_post_first(struct neap_machine *machine, uint8_t event, uint64_t argument);

/* Runs queued events, at most `limit` (0: all). Returns how many ran. Returns 0 at once when called from an action. */
NEAP_API uint32_t neap_dispatch(struct neap_dispatcher *dispatcher, uint32_t limit);

/* From an action: neap_post. Elsewhere: neap_post, then everything queued is run; when nothing was queued the event does not even
 * pass through the queue. The way in for I/O handlers. */
NEAP_API void neap_step(struct neap_machine *machine, uint8_t event, uint64_t argument);

static inline uint32_t neap_dispatcher_pending(const struct neap_dispatcher *dispatcher)
{
	return dispatcher->tail - dispatcher->head;
}

static inline const struct neap_cell *neap_fsm_cell(const struct neap_fsm *fsm, uint8_t state, uint8_t event)
{
	return &fsm->cells[(size_t)state * fsm->event_count + event];
}

static inline const char *neap_machine_state_name(const struct neap_machine *machine)
{
	return machine->class_->fsm->states[machine->state].name;
}

/* All machine types of the library, for tools and tests. Any thread. */
NEAP_API const struct neap_fsm *const *neap_fsm_catalog(size_t *count);

#ifdef __cplusplus
}
#endif
#endif
