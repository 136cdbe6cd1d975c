/* What the directory has accepted, by the value's hash and generation; and those who ask whether it has. */
#include "store/master/announcer_inside.h"
#include <string.h>

/* --- stamps: open addressing, at most half full --------------------------------------------------------------------------- */

static uint32_t home_of(const struct announcer_stamps *stamps, const struct announcer_stamp *stamp)
{
	return (uint32_t)((stamp->hash ^ stamp->generation * UINT64_C(0xff51afd7ed558ccd)) >> 16) & stamps->mask;
}

static struct announcer_stamp *slot_of(const struct announcer_stamps *stamps, uint64_t hash, uint64_t generation)
{
	struct announcer_stamp wanted = {.hash = hash, .generation = generation};
	uint32_t at = home_of(stamps, &wanted);
	while (stamps->slots[at].generation && !(stamps->slots[at].hash == hash && stamps->slots[at].generation == generation))
		at = (at + 1) & stamps->mask;
	return &stamps->slots[at];
}

const struct announcer_stamp *announcer_stamp_of(const struct neap_announcer *announcer, uint64_t hash, uint64_t generation)
{
	const struct announcer_stamp *stamp = slot_of(&announcer->stamps, hash, generation);
	return generation && stamp->generation ? stamp : NULL;
}

void announcer_stamp_keep(struct neap_announcer *announcer, uint64_t hash, uint64_t generation, struct neap_key_stamp stamp)
{
	struct announcer_stamps *stamps = &announcer->stamps;
	struct announcer_stamp *slot = slot_of(stamps, hash, generation);
	if (generation == 0 || (slot->generation == 0 && stamps->used == stamps->max))
		return;
	stamps->used += slot->generation == 0;
	*slot = (struct announcer_stamp){.hash = hash, .generation = generation, .stamp = stamp};
}

void announcer_stamp_forget(struct neap_announcer *announcer, uint64_t hash, uint64_t generation)
{
	struct announcer_stamps *stamps = &announcer->stamps;
	struct announcer_stamp *hole = slot_of(stamps, hash, generation);
	if (generation == 0 || hole->generation == 0)
		return;
	stamps->used--;
	uint32_t at = (uint32_t)(hole - stamps->slots), empty = at;
	for (;;) { /* those behind that would not be found past the hole move into it */
		at = (at + 1) & stamps->mask;
		struct announcer_stamp *stamp = &stamps->slots[at];
		if (stamp->generation == 0)
			break;
		if (((at - home_of(stamps, stamp)) & stamps->mask) >= ((at - empty) & stamps->mask)) {
			stamps->slots[empty] = *stamp;
			empty = at;
		}
	}
	stamps->slots[empty] = (struct announcer_stamp){.generation = 0};
}

int announcer_stamps_open(struct neap_announcer *announcer)
{
	struct announcer_stamps *stamps = &announcer->stamps;
	uint32_t slots = 16, buckets = 1024;
	stamps->max = announcer->options.stamps_max;
	while (slots / 2 < stamps->max)
		slots *= 2;
	stamps->mask = slots - 1;
	announcer->watch_mask = buckets - 1;
	stamps->slots = neap_allocate(announcer->reactor, slots * sizeof *stamps->slots);
	announcer->watches = neap_allocate(announcer->reactor, buckets * sizeof *announcer->watches);
	return stamps->slots && announcer->watches ? NEAP_OK : NEAP_ENOMEM;
}

void announcer_stamps_close(struct neap_announcer *announcer)
{
	struct announcer_stamps *stamps = &announcer->stamps;
	if (stamps->slots)
		neap_release(announcer->reactor, stamps->slots, (stamps->mask + (size_t)1) * sizeof *stamps->slots);
	if (announcer->watches)
		neap_release(announcer->reactor, announcer->watches, (announcer->watch_mask + (size_t)1) * sizeof *announcer->watches);
}

/* --- who asks ------------------------------------------------------------------------------------------------------------- */

static void link_watch(struct neap_announcer_watch *watch, struct neap_announcer_watch **slot)
{
	watch->slot = slot;
	watch->next = *slot;
	if (*slot)
		(*slot)->slot = &watch->next;
	*slot = watch;
}

static void unlink_watch(struct neap_announcer_watch *watch)
{
	*watch->slot = watch->next;
	if (watch->next)
		watch->next->slot = watch->slot;
	watch->slot = NULL;
	watch->next = NULL;
}

/* It ends from a turn, soon. */
static void end_watch(struct neap_announcer *announcer, struct neap_announcer_watch *watch, int error)
{
	unlink_watch(watch);
	neap_timer_cancel(announcer->reactor, &watch->timer);
	watch->error = error;
	link_watch(watch, &announcer->ended);
	neap_ready_again(announcer->reactor, &announcer->look);
	neap_reactor_touch(announcer->reactor);
}

static void too_late(struct neap_timer *timer, void *user)
{
	struct neap_announcer_watch *watch =
		(struct neap_announcer_watch *)(void *)((char *)timer - offsetof(struct neap_announcer_watch, timer));
	end_watch(user, watch, NEAP_ETIMEDOUT);
}

void announcer_tell(struct neap_announcer *announcer, uint64_t hash, struct neap_key_text key, struct neap_key_id segment,
                    uint64_t generation, bool older, int error)
{
	struct neap_announcer_watch *watch = announcer->watches[hash & announcer->watch_mask], *next;
	for (; watch; watch = next) {
		next = watch->next;
		if (watch->hash == hash && (watch->generation == generation || (older && watch->generation < generation)) &&
		    watch->key.length == key.length && neap_key_id_equal(watch->segment, segment) &&
		    memcmp(watch->key.text, key.text, key.length) == 0)
			end_watch(announcer, watch, error);
	}
}

void announcer_redirect(struct neap_announcer *announcer, const struct neap_announcement *value, struct neap_key_id from)
{
	uint64_t old = announcer_hash(announcer, value->key, from), hash = announcer_hash(announcer, value->key, value->segment);
	struct neap_announcer_watch *watch = announcer->watches[old & announcer->watch_mask], *next;
	for (; watch; watch = next) {
		next = watch->next;
		if (watch->hash != old || watch->generation != value->generation || watch->key.length != value->key.length ||
		    !neap_key_id_equal(watch->segment, from) || memcmp(watch->key.text, value->key.text, value->key.length) != 0)
			continue;
		unlink_watch(watch);
		watch->segment = value->segment;
		watch->hash = hash;
		link_watch(watch, &announcer->watches[hash & announcer->watch_mask]);
		announcer->urgent = true;
	}
}

void announcer_tell_all(struct neap_announcer *announcer, int error)
{
	for (uint32_t i = 0; i <= announcer->watch_mask; i++)
		while (announcer->watches[i])
			end_watch(announcer, announcer->watches[i], error);
}

void announcer_run_ended(struct neap_announcer *announcer)
{
	while (announcer->ended && !announcer->gone) {
		struct neap_announcer_watch *watch = announcer->ended;
		unlink_watch(watch);
		watch->done(watch, watch->error);
	}
}

int neap_announcer_ask(struct neap_announcer *announcer, struct neap_announcer_watch *watch)
{
	if (announcer->leaving || announcer->gone)
		return NEAP_ECLOSED;
	if (!watch->done || watch->slot || watch->generation == 0 || watch->key.length == 0 || watch->key.length > ANNOUNCER_KEY_MAX ||
	    watch->deadline_ns == 0)
		return NEAP_EINVAL;
	watch->hash = announcer_hash(announcer, watch->key, watch->segment);
	const struct announcer_entry *entry = announcer_find(announcer, watch->hash, watch->key, watch->segment);
	if (announcer_stamp_of(announcer, watch->hash, watch->generation))
		return NEAP_ANNOUNCER_ACCEPTED;
	if (watch->deadline_ns <= neap_now(announcer->reactor)) /* whoever asks has been late himself: that is no refusal */
		return NEAP_ETIMEDOUT;
	int error = neap_timer_start(announcer->reactor, &watch->timer, watch->deadline_ns, too_late, announcer);
	if (error)
		return error;
	watch->announcer = announcer;
	link_watch(watch, &announcer->watches[watch->hash & announcer->watch_mask]);
	if (entry && entry->place == ANNOUNCER_WAITING)
		announcer->urgent = true;
	announcer_look(announcer);
	return NEAP_OK;
}

bool neap_announcer_knows(const struct neap_announcer *announcer, struct neap_key_text key, struct neap_key_id segment, uint64_t generation)
{
	return announcer_stamp_of(announcer, announcer_hash(announcer, key, segment), generation) != NULL;
}

void neap_announcer_forget(struct neap_announcer_watch *watch)
{
	if (!watch->slot)
		return;
	unlink_watch(watch);
	neap_timer_cancel(watch->announcer->reactor, &watch->timer);
}
