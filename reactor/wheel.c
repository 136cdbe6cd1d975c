#include "reactor/wheel.h"

/* How many timers of a slot are compared to learn its exact earliest due time. A slot with more answers with its beginning. */
#define COMPARED_MAX 8u

static uint64_t tick_of(uint64_t ns)
{
	return ns >> NEAP_WHEEL_TICK_SHIFT;
}

struct place {
	unsigned level, slot;
};

/* Where a timer due at `tick` lies while the cursor stands at `cursor`. The answer stays true until the timer's slot is emptied: the
 * cursor moves only to where nothing lies before it. */
static struct place place_of(uint64_t tick, uint64_t cursor)
{
	if (tick <= cursor)
		return (struct place){0, (unsigned)(cursor % NEAP_WHEEL_SLOTS)};
	unsigned highest = 63u - (unsigned)__builtin_clzll(tick ^ cursor);
	unsigned level = highest / NEAP_WHEEL_DIGIT_BITS;
	return (struct place){level, (unsigned)(tick >> (level * NEAP_WHEEL_DIGIT_BITS)) % NEAP_WHEEL_SLOTS};
}

static void link_in(struct neap_timer **head, struct neap_timer *timer)
{
	timer->next = *head;
	if (timer->next)
		timer->next->slot = &timer->next;
	timer->slot = head;
	*head = timer;
}

static void put(struct neap_wheel *wheel, struct neap_timer *timer, struct place at)
{
	link_in(&wheel->slots[at.level][at.slot], timer);
	wheel->occupied[at.level] |= UINT64_C(1) << at.slot;
	if (at.level == 0 && at.slot == wheel->cursor % NEAP_WHEEL_SLOTS && timer->due_ns < wheel->present_least_ns)
		wheel->present_least_ns = timer->due_ns;
}

/* Takes a timer out of its list. A list that becomes empty is one of the wheel's slots or `moving`. */
static void unlink_timer(struct neap_wheel *wheel, struct neap_timer *timer)
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

void neap_wheel_init(struct neap_wheel *wheel, uint64_t now_ns)
{
	wheel->cursor = tick_of(now_ns);
	wheel->turn_ns = now_ns;
	wheel->present_least_ns = UINT64_MAX;
}

void neap_wheel_start(struct neap_wheel *wheel, struct neap_timer *timer, uint64_t due_ns)
{
	struct place to = place_of(tick_of(due_ns), wheel->cursor);
	if (timer->slot) {
		struct place from = place_of(tick_of(timer->due_ns), wheel->cursor);
		/* Most renewals of a long timeout stay in their slot: only the timer itself is touched. */
		if (from.level == to.level && from.slot == to.slot && to.level != 0 && !wheel->moving) {
			timer->due_ns = due_ns;
			return;
		}
		unlink_timer(wheel, timer);
	} else {
		wheel->active++;
	}
	timer->due_ns = due_ns;
	put(wheel, timer, to);
}

void neap_wheel_cancel(struct neap_wheel *wheel, struct neap_timer *timer)
{
	if (!timer->slot)
		return;
	unlink_timer(wheel, timer);
	wheel->active--;
}

/* The first occupied slot in time and the tick it begins at. False: no timer lies in a slot. */
static bool first_slot(const struct neap_wheel *wheel, struct place *at, uint64_t *tick_p)
{
	for (unsigned level = 0; level < NEAP_WHEEL_LEVELS; level++) {
		if (!wheel->occupied[level])
			continue;
		unsigned shift = level * NEAP_WHEEL_DIGIT_BITS;
		unsigned slot = (unsigned)__builtin_ctzll(wheel->occupied[level]);
		uint64_t above = wheel->cursor >> (shift + NEAP_WHEEL_DIGIT_BITS);
		*at = (struct place){level, slot};
		*tick_p = (above << NEAP_WHEEL_DIGIT_BITS | slot) << shift;
		return true;
	}
	return false;
}

void neap_wheel_turn(struct neap_wheel *wheel, uint64_t now_ns)
{
	wheel->turn_ns = now_ns;
	wheel->present_seen = false;
}

static void cursor_to(struct neap_wheel *wheel, uint64_t tick)
{
	if (tick > wheel->cursor) {
		wheel->cursor = tick;
		wheel->present_least_ns = UINT64_MAX;
	}
}

/* Makes the next slot whose time has come the `moving` list. False: nothing more for this turn. */
static bool open_slot(struct neap_wheel *wheel)
{
	uint64_t now_tick = tick_of(wheel->turn_ns), tick;
	struct place at;
	if (!first_slot(wheel, &at, &tick) || tick > now_tick) {
		cursor_to(wheel, now_tick);
		return false;
	}
	if (tick == now_tick && at.level == 0) {
		if (wheel->present_seen || (tick == wheel->cursor && wheel->present_least_ns > wheel->turn_ns))
			return false;
		wheel->present_seen = true;
	}
	cursor_to(wheel, tick);
	if (at.level == 0)
		wheel->present_least_ns = UINT64_MAX;
	struct neap_timer **slot = &wheel->slots[at.level][at.slot];
	wheel->moving = *slot;
	wheel->moving->slot = &wheel->moving;
	*slot = NULL;
	wheel->occupied[at.level] &= ~(UINT64_C(1) << at.slot);
	return true;
}

struct neap_timer *neap_wheel_take(struct neap_wheel *wheel, uint32_t *work_p)
{
	while (*work_p > 0) {
		struct neap_timer *timer = wheel->moving;
		if (!timer) {
			if (!open_slot(wheel))
				return NULL;
			continue;
		}
		--*work_p;
		unlink_timer(wheel, timer);
		if (timer->due_ns <= wheel->turn_ns) {
			wheel->active--;
			return timer;
		}
		put(wheel, timer, place_of(tick_of(timer->due_ns), wheel->cursor));
	}
	return NULL;
}

uint64_t neap_wheel_next_ns(const struct neap_wheel *wheel)
{
	struct place at;
	uint64_t tick;
	if (wheel->moving)
		return 0;
	if (!first_slot(wheel, &at, &tick))
		return UINT64_MAX;
	if (at.level == 0 && tick == wheel->cursor)
		return wheel->present_least_ns;
	uint64_t least = UINT64_MAX;
	unsigned compared = 0;
	for (const struct neap_timer *timer = wheel->slots[at.level][at.slot]; timer; timer = timer->next) {
		if (++compared > COMPARED_MAX)
			return tick << NEAP_WHEEL_TICK_SHIFT;
		if (timer->due_ns < least)
			least = timer->due_ns;
	}
	return least;
}
