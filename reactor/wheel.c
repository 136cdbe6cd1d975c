#include "reactor/wheel.h"

/* How many timers of a slot are compared to learn its exact earliest due time. A slot with more answers with its beginning. */
#define COMPARED_MAX 8u
#define SLOTS_CLEARED_MAX 16u /* of timers that were put off, in one look */

void neap_wheel_init(struct neap_wheel *wheel, uint64_t now_ns)
{
	wheel->cursor = neap_wheel_tick(now_ns);
	wheel->turn_ns = now_ns;
	wheel->present_least_ns = UINT64_MAX;
	wheel->next_ns = UINT64_MAX;
	wheel->next_known = true;
}

/* The first occupied slot in time and the tick it begins at. False: no timer lies in a slot. */
static bool first_slot(const struct neap_wheel *wheel, struct neap_wheel_place *at, uint64_t *tick_p)
{
	for (unsigned level = 0; level < NEAP_WHEEL_LEVELS; level++) {
		if (!wheel->occupied[level])
			continue;
		unsigned shift = level * NEAP_WHEEL_DIGIT_BITS;
		unsigned slot = (unsigned)__builtin_ctzll(wheel->occupied[level]);
		uint64_t above = wheel->cursor >> (shift + NEAP_WHEEL_DIGIT_BITS);
		*at = (struct neap_wheel_place){level, slot};
		*tick_p = (above << NEAP_WHEEL_DIGIT_BITS | slot) << shift;
		return true;
	}
	return false;
}

void neap_wheel_turn(struct neap_wheel *wheel, uint64_t now_ns)
{
	wheel->turn_ns = now_ns;
	wheel->present_seen = false;
	/* What is remembered may be where a crowded slot begins, and no timer's due time: when that has come it says nothing any more, even if
	 * all of the slot were cancelled. */
	if (wheel->next_ns <= now_ns)
		wheel->next_known = false;
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
	uint64_t now_tick = neap_wheel_tick(wheel->turn_ns), tick;
	struct neap_wheel_place at;
	if (!first_slot(wheel, &at, &tick) || tick > now_tick) {
		cursor_to(wheel, now_tick);
		return false;
	}
	if (tick == now_tick && at.level == 0) {
		if (wheel->present_seen || (tick == wheel->cursor && wheel->present_least_ns > wheel->turn_ns))
			return false;
		wheel->present_seen = true;
	}
	wheel->next_known = false;
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
		neap_wheel_unlink(wheel, timer);
		if (timer->due_ns <= wheel->turn_ns) {
			wheel->active--;
			return timer;
		}
		neap_wheel_put(wheel, timer, neap_wheel_place_of(neap_wheel_tick(timer->due_ns), wheel->cursor));
	}
	return NULL;
}

/* The tick behind the slot's last. */
static uint64_t slot_end(const struct neap_wheel_place *at, uint64_t tick)
{
	return tick + (UINT64_C(1) << (at->level * NEAP_WHEEL_DIGIT_BITS));
}

/* The earliest due time in a slot, or where the slot begins when there are too many to look. *put_off_p: all of them are due behind it,
 * and those of other slots perhaps before. */
static uint64_t least_of(const struct neap_wheel *wheel, const struct neap_wheel_place *at, uint64_t tick, bool *put_off_p)
{
	uint64_t least = UINT64_MAX;
	unsigned compared = 0;
	*put_off_p = false;
	for (const struct neap_timer *timer = wheel->slots[at->level][at->slot]; timer; timer = timer->next) {
		if (++compared > COMPARED_MAX)
			return tick << NEAP_WHEEL_TICK_SHIFT;
		if (timer->due_ns < least)
			least = timer->due_ns;
	}
	*put_off_p = neap_wheel_tick(least) >= slot_end(at, tick);
	return *put_off_p ? tick << NEAP_WHEEL_TICK_SHIFT : least;
}

uint64_t neap_wheel_next_ns(const struct neap_wheel *wheel)
{
	struct neap_wheel_place at;
	uint64_t tick;
	bool put_off;
	if (wheel->moving)
		return 0;
	if (wheel->next_known)
		return wheel->next_ns;
	if (!first_slot(wheel, &at, &tick))
		return UINT64_MAX;
	if (at.level == 0 && tick == wheel->cursor)
		return wheel->present_least_ns;
	return least_of(wheel, &at, tick, &put_off);
}

/* Few timers, all put off, in the first slot: they go to where they belong. */
static bool clear_first(struct neap_wheel *wheel)
{
	struct neap_wheel_place at;
	uint64_t tick;
	bool put_off;
	if (!first_slot(wheel, &at, &tick) || (at.level == 0 && tick == wheel->cursor))
		return false;
	(void)least_of(wheel, &at, tick, &put_off);
	struct neap_timer *timer = put_off ? wheel->slots[at.level][at.slot] : NULL;
	while (timer) {
		struct neap_timer *next = timer->next;
		neap_wheel_unlink(wheel, timer);
		neap_wheel_put(wheel, timer, neap_wheel_place_of(neap_wheel_tick(timer->due_ns), wheel->cursor));
		timer = next;
	}
	return put_off;
}

uint64_t neap_wheel_note_next(struct neap_wheel *wheel)
{
	if (!wheel->moving && !wheel->next_known)
		for (unsigned i = 0; i < SLOTS_CLEARED_MAX && clear_first(wheel); i++)
			;
	uint64_t next_ns = neap_wheel_next_ns(wheel);
	if (!wheel->moving) {
		wheel->next_ns = next_ns;
		wheel->next_known = true;
	}
	return next_ns;
}

bool neap_wheel_due(const struct neap_wheel *wheel, uint64_t now_ns)
{
	struct neap_wheel_place at;
	uint64_t tick;
	if (wheel->moving)
		return true;
	if (!first_slot(wheel, &at, &tick) || tick > neap_wheel_tick(now_ns))
		return false;
	return at.level != 0 || tick != wheel->cursor || wheel->present_least_ns <= now_ns;
}
