/* Grace periods: a generation was made even, and what it guards may be reused when no core can still act on what it had read before.
 *
 * Each core's reactor has a counter that is odd while a turn runs. The period notes the odd ones and ends when each has changed. Items
 * that come while a period runs wait for the next one, so any number of them costs two passes over the cores.
 *
 * The order that makes it right: writer: generation, then counter; reader: counter, then generation; all four sequentially consistent.
 * So either the reader sees the new generation, or the writer sees the reader's turn. */
#include "transports/registry.h"

#define ITEMS_A_PIECE 256u
#define LOOKS_IN_A_ROW 4u             /* next turns; then by the timer, so that one core's long turn does not make this one spin */
#define LOOK_INTERVAL_NS 1000000u
#define COMPLAIN_AFTER_NS UINT64_C(1000000000)

static void list_clear(struct neap_grace_list *list)
{
	list->first = NULL;
	list->tail = &list->first;
}

static void list_append(struct neap_grace_list *list, struct neap_grace_item *item)
{
	item->next = NULL;
	*list->tail = item;
	list->tail = &item->next;
}

/* Moves all of `from` behind `to`. */
static void list_move(struct neap_grace_list *to, struct neap_grace_list *from)
{
	if (!from->first)
		return;
	*to->tail = from->first;
	to->tail = from->tail;
	list_clear(from);
}

static uint64_t odd_or_none(uint64_t counter)
{
	return counter & 1 ? counter : 0;
}

static void period_begin(struct neap_registry *registry)
{
	struct neap_grace *grace = &registry->grace;
	list_move(&grace->waiting, &grace->open);
	grace->begun_ns = neap_now(registry->home);
	grace->complained = false;
	neap_registry_look_begin(registry);
	for (uint32_t i = 0; i < NEAP_CORES_MAX; i++) {
		const _Atomic uint64_t *turns = atomic_load(&registry->cores[i].turns);
		grace->turns[i] = turns ? odd_or_none(atomic_load(turns)) : 0;
		grace->calls[i] = turns ? odd_or_none(atomic_load(&registry->cores[i].calls)) : 0;
	}
	neap_registry_look_end(registry);
}

/* How many cores are still in the turn they were in. */
static uint32_t period_outstanding(struct neap_registry *registry)
{
	struct neap_grace *grace = &registry->grace;
	uint32_t outstanding = 0;
	neap_registry_look_begin(registry);
	for (uint32_t i = 0; i < NEAP_CORES_MAX; i++) {
		if (!grace->turns[i] && !grace->calls[i])
			continue;
		const _Atomic uint64_t *turns = atomic_load(&registry->cores[i].turns);
		if (!turns || atomic_load(turns) != grace->turns[i])
			grace->turns[i] = 0;
		if (!turns || atomic_load(&registry->cores[i].calls) != grace->calls[i])
			grace->calls[i] = 0;
		outstanding += grace->turns[i] || grace->calls[i];
	}
	neap_registry_look_end(registry);
	return outstanding;
}

static void complain(struct neap_registry *registry, uint32_t outstanding)
{
	struct neap_grace *grace = &registry->grace;
	if (grace->complained || neap_now(registry->home) - grace->begun_ns < COMPLAIN_AFTER_NS)
		return;
	grace->complained = true;
	neap_log(registry->home, NEAP_LOG_WARNING, "memory",
	         "%u core(s) have been in one turn for over a second: memory that was unregistered or revoked cannot be given back yet",
	         outstanding);
}

static void look(struct neap_registry *registry)
{
	struct neap_grace *grace = &registry->grace;
	if (!grace->waiting.first && grace->open.first)
		period_begin(registry);
	if (!grace->waiting.first)
		return;
	uint32_t outstanding = period_outstanding(registry);
	if (outstanding == 0) {
		list_move(&grace->due, &grace->waiting);
		grace->looks = 0;
	} else {
		complain(registry, outstanding);
	}
}

static void look_by_timer(struct neap_timer *timer, void *user);

/* One piece: look, then let go of a bounded number of items. */
static void run(struct neap_ready *ready)
{
	struct neap_registry *registry =
		(struct neap_registry *)(void *)((unsigned char *)ready - offsetof(struct neap_registry, grace.ready));
	struct neap_grace *grace = &registry->grace;
	look(registry);
	for (uint32_t i = 0; i < ITEMS_A_PIECE && grace->due.first; i++) {
		struct neap_grace_item *item = grace->due.first;
		grace->due.first = item->next;
		if (!item->next)
			grace->due.tail = &grace->due.first;
		item->passed(registry, item);
	}
	neap_notes_call(registry);
	if (grace->due.first || (grace->waiting.first && ++grace->looks < LOOKS_IN_A_ROW) || (!grace->waiting.first && grace->open.first))
		neap_ready_again(registry->home, &grace->ready);
	else if (grace->waiting.first && !neap_timer_active(&grace->timer))
		(void)neap_timer_start(registry->home, &grace->timer, neap_now(registry->home) + LOOK_INTERVAL_NS, look_by_timer, registry);
}

static void look_by_timer(struct neap_timer *timer, void *user)
{
	(void)timer;
	struct neap_registry *registry = user;
	neap_ready_again(registry->home, &registry->grace.ready);
}

void neap_grace_init(struct neap_registry *registry)
{
	struct neap_grace *grace = &registry->grace;
	list_clear(&grace->open);
	list_clear(&grace->waiting);
	list_clear(&grace->due);
	grace->ready.run = run;
}

void neap_grace_add(struct neap_registry *registry, struct neap_grace_item *item)
{
	list_append(&registry->grace.open, item);
	if (!registry->grace.waiting.first)
		neap_ready_again(registry->home, &registry->grace.ready);
}

bool neap_grace_idle(const struct neap_registry *registry)
{
	const struct neap_grace *grace = &registry->grace;
	return !grace->open.first && !grace->waiting.first && !grace->due.first;
}
