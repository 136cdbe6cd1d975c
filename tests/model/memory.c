/* Memory of an owner: slots that are counted, exposed, and quarantined (store/tier/handle.c), and the key's index (store/owner/index.c). */
#include "tests/model/world.h"
#include <string.h>

static void slot_free(struct step *step, uint8_t owner, uint8_t slot)
{
	struct slot *freed = &step->world->owners[owner].slots[slot];
	*freed = (struct slot){.phase = FREE, .exposures = freed->exposures};
	note(step, "memory: slot %u of owner %u is free", slot, owner);
}

/* neap_tiers_allocate: an allocation that finds no room evicts what nobody holds. */
uint8_t slot_reserve(struct step *step, uint8_t owner)
{
	struct owner *place = &step->world->owners[owner];
	for (uint32_t turn = 0; turn < 2; turn++) {
		for (uint8_t i = 0; i < scenario_of(step)->slots; i++) {
			if (place->slots[i].phase != FREE)
				continue;
			place->slots[i].phase = RESERVED;
			place->slots[i].references = 1;
			note(step, "memory: slot %u of owner %u is reserved", i, owner);
			return i;
		}
		if (place->filler == NONE || place->slots[place->filler].references > 1)
			break;
		filler_remove(step, owner);
	}
	return NONE;
}

void slot_hold(struct owner *owner, uint8_t slot)
{
	owner->slots[slot].references++;
}

/* neap_handle_drop. Without quarantine what nobody holds is free, whoever may still reach it. */
void slot_drop(struct step *step, uint8_t owner, uint8_t slot)
{
	struct slot *dropped = &step->world->owners[owner].slots[slot];
	if (dropped->references == 0) {
		violated(step, "S8", "memory is dropped more often than it was held");
		return;
	}
	if (--dropped->references > 0)
		return;
	if (dropped->exposures == 0 || !has(step, QUARANTINE)) {
		slot_free(step, owner, slot);
		return;
	}
	dropped->phase = QUARANTINED;
	note(step, "memory: slot %u of owner %u is in quarantine", slot, owner);
}

void slot_expose(struct owner *owner, uint8_t slot)
{
	owner->slots[slot].exposures++;
}

/* neap_exposure_end with NEAP_FACT_GRANT_ENDED. */
void slot_end_exposure(struct step *step, uint8_t owner, uint8_t slot)
{
	struct slot *exposed = &step->world->owners[owner].slots[slot];
	if (exposed->exposures == 0) {
		violated(step, "S8", "more exposures of memory end than were begun");
		return;
	}
	if (--exposed->exposures == 0 && exposed->phase == QUARANTINED)
		slot_free(step, owner, slot);
}

/* neap_exposure_begin(): a quarantine that is not empty takes no more than its limit. */
bool slot_may_be_told(const struct step *step, uint8_t owner)
{
	uint8_t most = scenario_of(step)->quarantine_max, count = 0;
	for (uint32_t i = 0; i < SLOTS; i++)
		count = (uint8_t)(count + (step->world->owners[owner].slots[i].phase == QUARANTINED));
	return most == 0 || count == 0 || count + 1 <= most || !has(step, QUARANTINE_LIMIT);
}

/* From now on whoever asks may get it. */
void publish_seen(struct step *step, uint8_t key, uint8_t version)
{
	struct op *ops = step->world->ops;
	for (uint32_t i = 0; i < OPS; i++)
		if (ops[i].kind != NO_OP && !ops[i].told && scenario_of(step)->keys[i] == key)
			ops[i].seen = (uint8_t)(ops[i].seen | 1u << version);
}

/* neap_key_entry_publish. The reference goes from whoever wrote it to the index. */
void key_publish(struct step *step, uint8_t owner, uint8_t slot, uint8_t version, uint8_t write_id, uint8_t op)
{
	struct owner *place = &step->world->owners[owner];
	check_publish(step, owner, slot, version, op);
	place->slots[slot].phase = COMMITTED;
	*key_at(step, owner, op) = (struct key){
		.value = slot, .version = version, .write_id = write_id, .pending = NONE, .known = !is_directory_asked(step)};
	step->world->ops[op].commits++;
	if (!is_directory_asked(step))
		publish_seen(step, scenario_of(step)->keys[op], version);
	note(step, "owner %u: key %u has the value of operation %u, in slot %u", owner, scenario_of(step)->keys[op], op, slot);
}

/* neap_key_entry_withdraw; the directory hears of it at once, which is sooner than it really does. */
void key_withdraw(struct step *step, uint8_t owner, uint8_t key)
{
	struct owner *place = &step->world->owners[owner];
	struct key *gone = &place->keys[key];
	uint8_t slot = gone->value;
	if (is_directory_asked(step)) {
		settle_verdict(step, owner, key, GONE);
		if (step->world->directory.route == owner)
			step->world->directory = (struct directory){.route = NONE, .recovering = step->world->directory.recovering};
	}
	*gone = (struct key){.value = NONE, .pending = gone->pending};
	place->slots[slot].phase = RESERVED;
	slot_drop(step, owner, slot);
}

/* Another key of this owner, put by its own host: neap_owner_put_copy. */
bool filler_put(struct step *step, uint8_t owner)
{
	struct owner *place = &step->world->owners[owner];
	uint8_t slot = slot_reserve(step, owner);
	if (slot == NONE)
		return false;
	place->slots[slot].bytes[0] = place->slots[slot].bytes[1] = FILLER;
	place->slots[slot].phase = COMMITTED;
	place->filler = slot;
	note(step, "owner %u: another key has a value in slot %u", owner, slot);
	return true;
}

void filler_remove(struct step *step, uint8_t owner)
{
	struct owner *place = &step->world->owners[owner];
	uint8_t slot = place->filler;
	place->filler = NONE;
	place->slots[slot].phase = RESERVED;
	note(step, "owner %u: the other key's value goes", owner);
	slot_drop(step, owner, slot);
}
