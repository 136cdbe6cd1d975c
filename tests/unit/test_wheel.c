/* The wheel against a plain sorted list, with random operations on virtual time. */
#include "reactor/wheel.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define DAY (86400 * SECOND)

/* ck_assert notes its place each time it is passed, which is too slow for millions of checks. */
#define require(what)                                         \
	do {                                                      \
		if (!(what))                                          \
			ck_abort_msg("%s does not hold", #what);          \
	} while (0)

/* --- the model: timers in order of due time */

#define TIMERS 4000u

struct entry {
	struct neap_timer timer;
	bool started;
	bool owed; /* must fire in this turn */
	uint64_t due_ns;
};

struct world {
	struct neap_wheel wheel;
	struct entry entries[TIMERS];
	struct entry *sorted[TIMERS]; /* started ones, by due time */
	uint32_t count;
	uint64_t now_ns, random;
	uint64_t fired, started, renewed, cancelled;
};

static uint64_t chance(struct world *world)
{
	uint64_t x = world->random += UINT64_C(0x9e3779b97f4a7c15);
	x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
	return x ^ x >> 31;
}

static uint32_t lower_bound(const struct world *world, uint64_t due_ns)
{
	uint32_t low = 0, high = world->count;
	while (low < high) {
		uint32_t middle = (low + high) / 2;
		if (world->sorted[middle]->due_ns < due_ns)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static void model_remove(struct world *world, struct entry *entry)
{
	uint32_t at = lower_bound(world, entry->due_ns);
	while (world->sorted[at] != entry)
		at++;
	memmove(&world->sorted[at], &world->sorted[at + 1], (world->count - at - 1) * sizeof world->sorted[0]);
	world->count--;
	entry->started = entry->owed = false;
}

static void model_insert(struct world *world, struct entry *entry, uint64_t due_ns)
{
	uint32_t at = lower_bound(world, due_ns);
	memmove(&world->sorted[at + 1], &world->sorted[at], (world->count - at) * sizeof world->sorted[0]);
	world->sorted[at] = entry;
	world->count++;
	entry->started = true;
	entry->due_ns = due_ns;
}

static void start(struct world *world, struct entry *entry, uint64_t due_ns)
{
	if (entry->started) {
		model_remove(world, entry);
		world->renewed++;
	} else {
		world->started++;
	}
	model_insert(world, entry, due_ns);
	neap_wheel_start(&world->wheel, &entry->timer, due_ns);
}

static void cancel(struct world *world, struct entry *entry)
{
	if (entry->started) {
		model_remove(world, entry);
		world->cancelled++;
	}
	neap_wheel_cancel(&world->wheel, &entry->timer);
}

/* From the past through the present tick to days, with many equal ones. */
static uint64_t some_due(struct world *world)
{
	uint64_t r = chance(world), now_ns = world->now_ns;
	switch (r % 9) {
	case 0: return now_ns;
	case 1: return now_ns > 5 * MS ? now_ns - chance(world) % (5 * MS) : 0;
	case 2: return now_ns + chance(world) % 20000;
	case 3: return now_ns + chance(world) % (2 * MS);
	case 4: return now_ns + chance(world) % SECOND;
	case 5: return now_ns + 5 * SECOND;
	case 6: return now_ns + chance(world) % (600 * SECOND);
	case 7: return now_ns + chance(world) % (30 * DAY);
	default: return r % 977 == 0 ? UINT64_MAX - chance(world) % 3 : (now_ns / SECOND + chance(world) % 4) * SECOND;
	}
}

static struct entry *some_entry(struct world *world)
{
	return &world->entries[chance(world) % TIMERS];
}

static void some_operation(struct world *world)
{
	struct entry *entry = some_entry(world);
	if (chance(world) % 4 == 0)
		cancel(world, entry);
	else
		start(world, entry, some_due(world));
}

static void check_next(struct world *world)
{
	uint64_t next_ns = neap_wheel_next_ns(&world->wheel);
	if (chance(world) % 3 == 0) {
		uint64_t noted_ns = neap_wheel_note_next(&world->wheel); /* after a look at those that were put off */
		require(noted_ns >= next_ns);
		next_ns = noted_ns;
		require(neap_wheel_next_ns(&world->wheel) == noted_ns);
	}
	if (world->wheel.turn_ns == world->now_ns && world->count > 0 && world->sorted[0]->due_ns <= world->now_ns)
		require(neap_wheel_due(&world->wheel, world->now_ns));
	require(world->wheel.active == world->count);
	if (world->count == 0)
		require(next_ns == UINT64_MAX);
	else
		require(next_ns <= world->sorted[0]->due_ns);
}

/* One turn with all the work it asks for; callbacks start and cancel. `work` is what one call may touch. */
static void turn(struct world *world, uint32_t work)
{
	uint32_t idle = 0;
	neap_wheel_turn(&world->wheel, world->now_ns);
	for (;;) {
		uint32_t left = work;
		struct neap_timer *timer = neap_wheel_take(&world->wheel, &left);
		if (!timer && left > 0)
			break;
		if (!timer) {
			require(++idle < 10 * TIMERS);
			continue;
		}
		struct entry *entry = (struct entry *)timer;
		require(entry->started);
		require(entry->due_ns <= world->now_ns);
		require(timer->due_ns == entry->due_ns);
		require(!neap_timer_active(timer));
		model_remove(world, entry);
		world->fired++;
		if (chance(world) % 3 == 0)
			some_operation(world);
		if (chance(world) % 5 == 0)
			start(world, entry, some_due(world));
	}
}

/* Every timer that was due when the turn began fires in it, unless a callback cancelled or moved it. */
static void turn_is_complete(struct world *world)
{
	for (uint32_t i = 0; i < world->count; i++)
		world->sorted[i]->owed = world->sorted[i]->due_ns <= world->now_ns;
	turn(world, chance(world) % 4 == 0 ? 1 : 1000);
	for (uint32_t i = 0; i < TIMERS; i++) {
		struct entry *entry = &world->entries[i];
		require(neap_timer_active(&entry->timer) == entry->started);
		require(!entry->owed);
	}
}

static void advance(struct world *world)
{
	uint64_t r = chance(world);
	if (world->count > 0 && r % 3 == 0 && world->sorted[0]->due_ns > world->now_ns && world->sorted[0]->due_ns < 100 * 365 * DAY)
		world->now_ns = world->sorted[0]->due_ns; /* exactly due */
	else if (world->count > 0 && r % 3 == 1 && world->sorted[0]->due_ns > world->now_ns && world->sorted[0]->due_ns < 100 * 365 * DAY)
		world->now_ns = world->sorted[0]->due_ns - 1; /* a nanosecond early: nothing may fire */
	else
		world->now_ns += r % 7 == 0 ? chance(world) % (40 * SECOND) : chance(world) % (3 * MS);
}

START_TEST(agrees_with_sorted_list)
{
	struct world *world = calloc(1, sizeof *world);
	world->random = (uint64_t)_i * 7919 + 1;
	world->now_ns = _i % 2 ? 0 : chance(world) % (400 * DAY);
	neap_wheel_init(&world->wheel, world->now_ns);
	for (uint32_t operation = 0; operation < 60000; operation++) {
		some_operation(world);
		check_next(world);
		if (chance(world) % 8 == 0) {
			advance(world);
			turn_is_complete(world);
			check_next(world);
		}
	}
	ck_assert_uint_gt(world->fired, 1000);
	ck_assert_uint_gt(world->cancelled, 1000);
	ck_assert_uint_gt(world->renewed, 1000);
	free(world);
}
END_TEST

/* Time in steps of a nanosecond around each kind of boundary. */
START_TEST(never_early_never_late)
{
	static const uint64_t offsets[] = {0, 1, 16383, 16384, 16385, 1 << 20, (1 << 20) - 1, (1 << 26) + 5, UINT64_C(1) << 32,
	                                   (UINT64_C(1) << 38) - 1, UINT64_C(1) << 44, (UINT64_C(1) << 50) + 12345};
	static const uint64_t begins[] = {0, 1, 16384 * 63, 16384 * 64 - 1, 16384 * UINT64_C(4095), UINT64_C(987654321987654321)};
	for (size_t b = 0; b < sizeof begins / sizeof begins[0]; b++)
		for (size_t o = 0; o < sizeof offsets / sizeof offsets[0]; o++) {
			struct neap_wheel wheel = {0};
			struct neap_timer timer = {0};
			uint64_t due_ns = begins[b] + offsets[o];
			neap_wheel_init(&wheel, begins[b]);
			neap_wheel_start(&wheel, &timer, due_ns);
			ck_assert_uint_eq(neap_wheel_next_ns(&wheel), due_ns);
			uint32_t work = 1000;
			if (due_ns > begins[b]) {
				neap_wheel_turn(&wheel, due_ns - 1);
				ck_assert(!neap_wheel_take(&wheel, &work));
				ck_assert_uint_eq(neap_wheel_next_ns(&wheel), due_ns);
			}
			neap_wheel_turn(&wheel, due_ns);
			ck_assert(neap_wheel_take(&wheel, &work) == &timer);
			ck_assert_uint_eq(neap_wheel_next_ns(&wheel), UINT64_MAX);
		}
}
END_TEST

/* A host that sleeps exactly until the wheel's deadline is woken for nothing at most once a level, however crowded the slots. */
START_TEST(early_wakes_are_bounded_by_levels)
{
	enum { CROWD = 2000 };
	static struct neap_timer timers[CROWD];
	for (uint64_t seed = 1; seed <= 40; seed++) {
		struct world *world = calloc(1, sizeof *world);
		world->random = seed;
		world->now_ns = chance(world) % DAY;
		neap_wheel_init(&world->wheel, world->now_ns);
		memset(timers, 0, sizeof timers);
		uint64_t at_ns = world->now_ns + chance(world) % (UINT64_C(1) << (20 + seed % 30));
		uint64_t spread_ns = seed % 3 == 0 ? 1 : 1 + chance(world) % 10000;
		uint32_t crowd = seed % 2 ? CROWD : 9;
		for (uint32_t i = 0; i < crowd; i++)
			neap_wheel_start(&world->wheel, &timers[i], at_ns + chance(world) % spread_ns);
		uint64_t first_ns = UINT64_MAX;
		for (uint32_t i = 0; i < crowd; i++)
			first_ns = timers[i].due_ns < first_ns ? timers[i].due_ns : first_ns;
		uint32_t wakes = 0;
		struct neap_timer *fired = NULL;
		while (!fired) {
			uint64_t next_ns = neap_wheel_note_next(&world->wheel);
			ck_assert_uint_le(next_ns, first_ns);
			if (next_ns > world->now_ns) {
				world->now_ns = next_ns;
				wakes++;
			}
			uint32_t work = UINT32_MAX;
			neap_wheel_turn(&world->wheel, world->now_ns);
			fired = neap_wheel_take(&world->wheel, &work);
		}
		ck_assert_uint_eq(world->now_ns, first_ns);
		ck_assert_uint_le(wakes, NEAP_WHEEL_LEVELS + 1);
		free(world);
	}
}
END_TEST

START_TEST(a_lone_timer_wakes_once)
{
	struct neap_wheel wheel = {0};
	struct neap_timer timer = {0};
	neap_wheel_init(&wheel, 123456789);
	neap_wheel_start(&wheel, &timer, 3 * DAY + 7);
	ck_assert_uint_eq(neap_wheel_next_ns(&wheel), 3 * DAY + 7);
}
END_TEST

/* What is remembered of the earliest follows it when it is cancelled, moved later or overtaken. */
START_TEST(the_remembered_deadline_follows)
{
	struct neap_wheel wheel = {0};
	struct neap_timer early = {0}, late = {0};
	neap_wheel_init(&wheel, SECOND);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), UINT64_MAX);
	neap_wheel_start(&wheel, &late, 9 * SECOND);
	neap_wheel_start(&wheel, &early, 5 * SECOND);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), 5 * SECOND);
	neap_wheel_cancel(&wheel, &early);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), 9 * SECOND);
	neap_wheel_start(&wheel, &early, 2 * SECOND);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), 2 * SECOND);
	neap_wheel_start(&wheel, &early, 7 * SECOND);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), 7 * SECOND);
	neap_wheel_start(&wheel, &early, 7 * SECOND + 1);
	ck_assert_uint_eq(neap_wheel_next_ns(&wheel), 7 * SECOND + 1);
	neap_wheel_cancel(&wheel, &late);
	neap_wheel_cancel(&wheel, &early);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), UINT64_MAX);
}
END_TEST

/* The remembered deadline of a crowded slot is its beginning, which no cancelled timer was due at: it must not be asked for for ever. */
START_TEST(a_crowded_slot_that_was_cancelled_is_forgotten)
{
	struct neap_wheel wheel = {0};
	struct neap_timer timers[20] = {0}, other = {0}, early = {0};
	uint32_t work = 1000;
	neap_wheel_init(&wheel, SECOND);
	neap_wheel_start(&wheel, &early, 2 * SECOND);
	for (int i = 0; i < 20; i++)
		neap_wheel_start(&wheel, &timers[i], 10 * SECOND + (uint64_t)i);
	neap_wheel_start(&wheel, &other, 60 * SECOND);
	neap_wheel_cancel(&wheel, &early); /* now somebody has to look for the next */
	uint64_t next_ns = neap_wheel_note_next(&wheel);
	ck_assert_uint_lt(next_ns, 10 * SECOND);
	for (int i = 0; i < 20; i++)
		neap_wheel_cancel(&wheel, &timers[i]);
	for (int wakes = 0; next_ns < 60 * SECOND; wakes++) {
		ck_assert_int_lt(wakes, 10); /* at most once a level */
		neap_wheel_turn(&wheel, next_ns);
		ck_assert_ptr_null(neap_wheel_take(&wheel, &work));
		ck_assert_uint_gt(neap_wheel_note_next(&wheel), next_ns);
		next_ns = neap_wheel_note_next(&wheel);
	}
	ck_assert_uint_eq(next_ns, 60 * SECOND);
	neap_wheel_cancel(&wheel, &other);
	ck_assert_uint_eq(neap_wheel_note_next(&wheel), UINT64_MAX);
}
END_TEST

/* A deadline that is put off with each piece of progress stays where it lies, and yet neither wakes anybody in vain nor hides what is
 * due before it. */
START_TEST(one_that_is_put_off_hides_nothing)
{
	struct neap_wheel wheel = {0};
	struct neap_timer deadline = {0}, other = {0};
	uint64_t now_ns = SECOND;
	uint32_t work = 1000;
	neap_wheel_init(&wheel, now_ns);
	neap_wheel_start(&wheel, &deadline, now_ns + SECOND);
	for (int i = 0; i < 1000; i++, now_ns += 7 * MS) {
		neap_wheel_start(&wheel, &deadline, now_ns + SECOND);
		neap_wheel_start(&wheel, &other, now_ns + SECOND - MS);
		ck_assert_uint_le(neap_wheel_next_ns(&wheel), now_ns + SECOND - MS);
		ck_assert_uint_eq(neap_wheel_note_next(&wheel), now_ns + SECOND - MS);
		neap_wheel_cancel(&wheel, &other);
		ck_assert_uint_eq(neap_wheel_note_next(&wheel), now_ns + SECOND);
		neap_wheel_turn(&wheel, now_ns);
		ck_assert_ptr_null(neap_wheel_take(&wheel, &work));
	}
	neap_wheel_turn(&wheel, now_ns - 7 * MS + SECOND);
	ck_assert_ptr_eq(neap_wheel_take(&wheel, &work), &deadline);
}
END_TEST

START_TEST(one_that_restarts_itself_cannot_hold_the_turn)
{
	struct neap_wheel wheel = {0};
	struct neap_timer timer = {0};
	uint32_t work = 1000, fired = 0;
	neap_wheel_init(&wheel, SECOND);
	neap_wheel_start(&wheel, &timer, 0);
	neap_wheel_turn(&wheel, SECOND);
	while (neap_wheel_take(&wheel, &work)) {
		fired++;
		neap_wheel_start(&wheel, &timer, SECOND);
	}
	ck_assert_uint_eq(fired, 1);
	ck_assert_uint_le(neap_wheel_next_ns(&wheel), SECOND);
	neap_wheel_turn(&wheel, SECOND);
	ck_assert(neap_wheel_take(&wheel, &work) == &timer);
}
END_TEST

/* A turn's work is bounded although a million timers lie in one slot; nothing is lost over the turns that follow. */
START_TEST(a_crowded_slot_is_spread_over_turns)
{
	enum { CROWD = 1000000 };
	struct neap_timer *timers = calloc(CROWD, sizeof *timers);
	struct neap_wheel wheel = {0};
	neap_wheel_init(&wheel, 0);
	for (uint32_t i = 0; i < CROWD; i++)
		neap_wheel_start(&wheel, &timers[i], 100 * SECOND + i % 1000);
	uint32_t fired = 0, turns = 0, work = 0;
	uint64_t now_ns = 100 * SECOND + 999;
	do {
		work = 4096;
		turns++;
		neap_wheel_turn(&wheel, now_ns);
		while (neap_wheel_take(&wheel, &work))
			fired++;
		/* Timers in the part not yet looked at can be cancelled and moved. */
		for (uint32_t i = turns * 4; i < turns * 4 + 2 && i < CROWD; i++)
			if (neap_timer_active(&timers[i])) {
				neap_wheel_cancel(&wheel, &timers[i]);
				fired++;
			}
	} while (neap_wheel_next_ns(&wheel) <= now_ns);
	ck_assert_uint_eq(fired, CROWD);
	ck_assert_uint_ge(turns, CROWD / 4096);
	ck_assert_uint_eq(wheel.active, 0);
	free(timers);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("wheel");
	TCase *property = tcase_create("property");
	tcase_set_timeout(property, 60);
	tcase_add_loop_test(property, agrees_with_sorted_list, 0, 12);
	suite_add_tcase(suite, property);
	TCase *time = tcase_create("time");
	tcase_set_timeout(time, 60);
	tcase_add_test(time, never_early_never_late);
	tcase_add_test(time, early_wakes_are_bounded_by_levels);
	tcase_add_test(time, a_lone_timer_wakes_once);
	tcase_add_test(time, the_remembered_deadline_follows);
	tcase_add_test(time, a_crowded_slot_that_was_cancelled_is_forgotten);
	tcase_add_test(time, one_that_is_put_off_hides_nothing);
	tcase_add_test(time, one_that_restarts_itself_cannot_hold_the_turn);
	tcase_add_test(time, a_crowded_slot_is_spread_over_turns);
	suite_add_tcase(suite, time);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
