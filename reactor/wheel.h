/* The timer wheel: nine levels of 64 slots over struct neap_timer. Pure: time is passed in, nothing is allocated.
 *
 * A tick is 2^14 ns (16 us). A timer lies in the level of the highest base-64 digit in which its due tick differs from the wheel's
 * cursor, in the slot of that digit. So every slot of a level begins before every slot of the levels above, the first occupied slot
 * of the lowest occupied level is the next thing to happen, and a timer moves down at most once a level. One that was put off since lies
 * in a slot before its time, and is moved when somebody comes there. Due times are compared in
 * nanoseconds: a timer is handed out by the first call whose time has reached it, never before. */
#ifndef NEAP_REACTOR_WHEEL_H
#define NEAP_REACTOR_WHEEL_H

#include <neap/reactor.h>

#define NEAP_WHEEL_TICK_SHIFT 14u
#define NEAP_WHEEL_DIGIT_BITS 6u
#define NEAP_WHEEL_SLOTS (1u << NEAP_WHEEL_DIGIT_BITS)
#define NEAP_WHEEL_LEVELS 9u /* 9 * 6 bits hold the 50 bits of a tick number */

struct neap_wheel {
	uint64_t cursor;                          /* tick up to which everything was handed out */
	uint64_t occupied[NEAP_WHEEL_LEVELS];     /* a bit per slot that has timers */
	uint64_t turn_ns;                         /* time of the turn begun last */
	uint64_t active;                          /* timers started */
	struct neap_timer *moving;                /* taken out of a slot whose time has come, still to be looked at one by one */
	uint64_t present_least_ns;                /* no timer in the cursor's own slot is due before: spares looking through it */
	bool present_seen;                        /* this turn has looked at the cursor's own slot */
	bool next_known;                          /* next_ns is what neap_wheel_next_ns would find */
	uint64_t next_ns;
	struct neap_timer *slots[NEAP_WHEEL_LEVELS][NEAP_WHEEL_SLOTS];
};

/* `wheel` is zeroed memory. */
void neap_wheel_init(struct neap_wheel *wheel, uint64_t now_ns);

/* A turn: begin it with the time, then take until NULL. Timers started meanwhile wait for the next turn even when they are due, so a
 * timer that starts itself again cannot hold a turn. `*work_p` is lowered for each timer touched; NULL with *work_p 0 means that more
 * is to do at this time. A timer handed out is no longer active. */
void neap_wheel_turn(struct neap_wheel *wheel, uint64_t now_ns);
struct neap_timer *neap_wheel_take(struct neap_wheel *wheel, uint32_t *work_p);

/* Not after the earliest due time; UINT64_MAX without timers, 0 when work was left over by the last turn. May be earlier than the
 * earliest due time where a crowded slot must be spread first, at most once a level, or timers were put off. */
uint64_t neap_wheel_next_ns(const struct neap_wheel *wheel);

/* The same, after a look at timers that were put off, so that nobody wakes for them in vain; and remembered until a timer that could be
 * the earliest changes: for asking once a turn beside a million timers. */
uint64_t neap_wheel_note_next(struct neap_wheel *wheel);

/* A turn at that time would have something to do. Looks at no timer. */
bool neap_wheel_due(const struct neap_wheel *wheel, uint64_t now_ns);

/* --- start and cancel: inline, they are what a busy program does all the time */

static inline uint64_t neap_wheel_tick(uint64_t ns)
{
	return ns >> NEAP_WHEEL_TICK_SHIFT;
}

struct neap_wheel_place {
	unsigned level, slot;
};

/* Where a timer due at `tick` is put while the cursor stands at `cursor`. The answer stays true until the timer's slot is emptied: the
 * cursor moves only to where nothing lies before it. */
static inline struct neap_wheel_place neap_wheel_place_of(uint64_t tick, uint64_t cursor)
{
	if (tick <= cursor)
		return (struct neap_wheel_place){0, (unsigned)(cursor % NEAP_WHEEL_SLOTS)};
	unsigned highest = 63u - (unsigned)__builtin_clzll(tick ^ cursor);
	unsigned level = highest / NEAP_WHEEL_DIGIT_BITS;
	return (struct neap_wheel_place){level, (unsigned)(tick >> (level * NEAP_WHEEL_DIGIT_BITS)) % NEAP_WHEEL_SLOTS};
}

static inline void neap_wheel_link(struct neap_timer **head, struct neap_timer *timer)
{
	timer->next = *head;
	if (timer->next)
		timer->next->slot = &timer->next;
	timer->slot = head;
	*head = timer;
}

static inline void neap_wheel_put(struct neap_wheel *wheel, struct neap_timer *timer, struct neap_wheel_place at)
{
	neap_wheel_link(&wheel->slots[at.level][at.slot], timer);
	wheel->occupied[at.level] |= UINT64_C(1) << at.slot;
	if (at.level == 0 && at.slot == wheel->cursor % NEAP_WHEEL_SLOTS && timer->due_ns < wheel->present_least_ns)
		wheel->present_least_ns = timer->due_ns;
}

/* Takes a timer out of its list. A list that becomes empty is one of the wheel's slots or `moving`. */
static inline void neap_wheel_unlink(struct neap_wheel *wheel, struct neap_timer *timer)
{
	struct neap_timer **slot = timer->slot;
	*slot = timer->next;
	if (timer->next) {
		timer->next->slot = slot;
	} else {
		uintptr_t offset = (uintptr_t)slot - (uintptr_t)&wheel->slots[0][0];
		if (offset < sizeof wheel->slots) {
			size_t index = offset / sizeof wheel->slots[0][0];
			wheel->occupied[index / NEAP_WHEEL_SLOTS] &= ~(UINT64_C(1) << index % NEAP_WHEEL_SLOTS);
		}
	}
	timer->slot = NULL;
}

static inline void neap_wheel_forget_next(struct neap_wheel *wheel, const struct neap_timer *timer)
{
	if (timer->due_ns == wheel->next_ns)
		wheel->next_known = false;
}

/* Starts a timer or moves a started one. A due time in the past is handed out by the next turn.
 *
 * A timer that is moved to later stays in its slot: only the timer itself is touched, which is what a deadline that is renewed with each
 * piece of progress costs. Whoever comes to the slot finds that it is not due and moves it on. */
static inline void neap_wheel_start(struct neap_wheel *wheel, struct neap_timer *timer, uint64_t due_ns)
{
	if (timer->slot) {
		neap_wheel_forget_next(wheel, timer);
		if (due_ns >= timer->due_ns) {
			timer->due_ns = due_ns;
			return;
		}
		neap_wheel_unlink(wheel, timer);
	} else {
		wheel->active++;
	}
	timer->due_ns = due_ns;
	if (due_ns < wheel->next_ns)
		wheel->next_ns = due_ns;
	neap_wheel_put(wheel, timer, neap_wheel_place_of(neap_wheel_tick(due_ns), wheel->cursor));
}

static inline void neap_wheel_cancel(struct neap_wheel *wheel, struct neap_timer *timer)
{
	if (!timer->slot)
		return;
	neap_wheel_forget_next(wheel, timer);
	neap_wheel_unlink(wheel, timer);
	wheel->active--;
}

#endif
