/* What the rooms above the reactor use of it. Internal; the public face is neap/reactor.h. Owner thread only, unless said. */
#ifndef NEAP_REACTOR_CORE_H
#define NEAP_REACTOR_CORE_H

#include <neap/fsm.h>
#include <neap/reactor.h>
#include <stdatomic.h>

/* --- owner and life ------------------------------------------------------------------------------------------------- */

/* 0, NEAP_ETHREAD or NEAP_EFORKED: the first line of every public call. */
int neap_reactor_check(const struct neap_reactor *reactor);

/* True while a turn runs: user callbacks may be on the stack. */
bool neap_reactor_in_turn(const struct neap_reactor *reactor);

/* Something that must end before the reactor may be destroyed: an engine, a listener, a stream. */
struct neap_dependent {
	struct neap_dependent *next, **slot;
	const char *what;                             /* for the message of NEAP_EBUSY */
	void (*stop)(struct neap_dependent *dependent); /* neap_reactor_stop: begin to close. May be NULL */
};
void neap_reactor_attach(struct neap_reactor *reactor, struct neap_dependent *dependent);
void neap_reactor_detach(struct neap_reactor *reactor, struct neap_dependent *dependent);
bool neap_reactor_stopping(const struct neap_reactor *reactor);

/* A public call changed the run queue or the deadline between turns: makes a sleep that follows end (the sticky kick). Cheap when
 * not armed. Called by everything that queues work. */
void neap_reactor_touch(struct neap_reactor *reactor);

/* What a room keeps per reactor (its classes, pools, resolver): made on first use, found by the address of something the room owns,
 * released by neap_reactor_destroy when all dependents are gone and forget_reactor was called; the latest first. */
struct neap_resident {
	struct neap_resident *next;
	const void *key;
	void (*release)(struct neap_resident *resident, struct neap_reactor *reactor);
};
void neap_reactor_house(struct neap_reactor *reactor, struct neap_resident *resident);
struct neap_resident *neap_reactor_resident(const struct neap_reactor *reactor, const void *key);

/* --- work to go on with ----------------------------------------------------------------------------------------------- */

/* A source that still has work although no event will come for it (a budget stopped it, bytes are buffered). FIFO, each once; what one
 * of them makes ready runs in the same turn of the reactor, once. */
struct neap_ready {
	struct neap_ready *next, **slot;
	uint32_t round; /* in which it was queued */
	bool queued;
	void (*run)(struct neap_ready *ready); /* one bounded piece; calls neap_ready_again to go on */
};
void neap_ready_again(struct neap_reactor *reactor, struct neap_ready *ready);
void neap_ready_cancel(struct neap_reactor *reactor, struct neap_ready *ready);

/* At the end of this turn, after all handlers: for freeing what a handler up the stack may still use. */
struct neap_reap {
	struct neap_reap *next;
	void (*reap)(struct neap_reap *reap);
	bool queued;
};
void neap_reap_later(struct neap_reactor *reactor, struct neap_reap *reap);

/* Polled once a turn, and again before arming: completion queues. poll returns how many completions it took, arm asks the device for
 * a wake-up (may be NULL). */
struct neap_poller {
	struct neap_poller *next, **slot;
	uint32_t (*poll)(struct neap_poller *poller, uint32_t max);
	void (*arm)(struct neap_poller *poller);
};
void neap_poller_add(struct neap_reactor *reactor, struct neap_poller *poller);
void neap_poller_remove(struct neap_reactor *reactor, struct neap_poller *poller);

/* Budget of the present turn: bytes one stream may move before it must neap_ready_again. */
uint32_t neap_reactor_bytes_budget(const struct neap_reactor *reactor);

/* --- descriptors ------------------------------------------------------------------------------------------------------ */

enum { NEAP_READABLE = 1, NEAP_WRITABLE = 2, NEAP_HANGUP = 4, NEAP_ERROR_READY = 8 };

/* One watched descriptor. `ready` gets one combined set. Level-triggered. */
struct neap_watch {
	int fd;
	uint32_t slot, generation; /* in the reactor's table; a stale epoll event is recognised by them */
	unsigned wanted;           /* NEAP_READABLE | NEAP_WRITABLE; 0: not in the epoll set */
	void (*ready)(struct neap_watch *watch, unsigned ready);
};
/* NEAP_ELIMIT when descriptors_max is reached. The descriptor must be non-blocking and CLOEXEC. */
int neap_watch_start(struct neap_reactor *reactor, struct neap_watch *watch, int fd, unsigned wanted,
                     void (*ready)(struct neap_watch *watch, unsigned ready));
int neap_watch_want(struct neap_reactor *reactor, struct neap_watch *watch, unsigned wanted);
uint32_t neap_reactor_descriptors_max(const struct neap_reactor *reactor);
/* Before close(fd). Events of this turn still to be dispatched for it are dropped. */
void neap_watch_stop(struct neap_reactor *reactor, struct neap_watch *watch);

/* --- machines with timeouts ------------------------------------------------------------------------------------------- */

/* What the machines of a table are on every reactor: a constant beside the table's actions. */
struct neap_machine_kind {
	const struct neap_fsm *fsm;
	neap_action_func *const *actions;
	neap_invariant_func *invariant; /* may be NULL */
	ptrdiff_t timer_offset;         /* NEAP_TIMER_OFFSET, or 0: no timeouts */
	/* When a machine that just entered a state of `timeout_class` times out: absolute. UINT64_MAX: not at all (a limit set to 0). */
	uint64_t (*due_ns)(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns);
	/* An IMPOSSIBLE event in production: close this object. */
	void (*broken)(struct neap_machine *machine, uint8_t event);
};
/* Of a type with the members `machine` and `timer`. */
#define NEAP_TIMER_OFFSET(type) ((ptrdiff_t)offsetof(type, timer) - (ptrdiff_t)offsetof(type, machine))

/* A kind on one reactor, with its counters. */
struct neap_reactor_class {
	struct neap_machine_class class_; /* first */
	const struct neap_machine_kind *kind;
	struct neap_reactor *reactor;
	uint64_t hits[]; /* states times events */
};
/* The class of this kind, made on first use and kept until the reactor ends: what is on one reactor shares it. NEAP_ELIMIT beyond
 * NEAP_CLASSES_MAX, NEAP_ENOMEM, NEAP_EINVAL for timeouts without due_ns. */
int neap_reactor_class_of(struct neap_reactor *reactor, const struct neap_machine_kind *kind, struct neap_reactor_class **class_p);
static inline struct neap_reactor *neap_machine_reactor(const struct neap_machine *machine)
{
	return ((const struct neap_reactor_class *)(const void *)machine->class_)->reactor;
}

/* --- time, memory, chance, log ---------------------------------------------------------------------------------------- */

uint64_t neap_now(const struct neap_reactor *reactor); /* the turn's cached time; no system call */
uint64_t neap_wall_us(const struct neap_reactor *reactor);
void neap_random_fill(const struct neap_reactor *reactor, void *bytes, size_t length);
uint64_t neap_random_u64(const struct neap_reactor *reactor);

void *neap_allocate(struct neap_reactor *reactor, size_t bytes); /* zeroed; NULL: out of memory */
void neap_release(struct neap_reactor *reactor, void *memory, size_t bytes);

void neap_log(const struct neap_reactor *reactor, enum neap_log_level level, const char *component, const char *format, ...)
	NEAP_PRINTF(4, 5);

/* System calls made by streams, for the statistics. */
void neap_count_system_call(struct neap_reactor *reactor);

struct neap_net *neap_reactor_net(const struct neap_reactor *reactor);
bool neap_reactor_simulated(const struct neap_reactor *reactor);

/* --- grace periods between cores ---------------------------------------------------------------------------------------- */

/* A counter that is odd while a turn runs. What was published before a grace period began is seen by every turn that starts later;
 * a reactor whose counter is even, or has changed since, holds nothing from before. Readable from any thread. */
const _Atomic uint64_t *neap_reactor_turn_counter(const struct neap_reactor *reactor);

#endif
