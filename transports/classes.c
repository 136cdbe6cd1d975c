#include "transports/classes.h"
#include "transports/batch_fsm.h"
#include "transports/engine_life_fsm.h"
#include "transports/engine_state.h"
#include "transports/grant_fsm.h"
#include "transports/region_fsm.h"
#include "transports/registry.h"
#include "transports/segment_fsm.h"
#include "transports/slice_fsm.h"

static const char key;

/* In production an event that cannot happen ends up here: it was dropped, the object stays as it is, its deadlines still hold. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	const struct neap_fsm *fsm = machine->class_->fsm;
	neap_log(neap_machine_reactor(machine), NEAP_LOG_ERROR, "engine", "machine %s %u met %s in %s, which cannot happen; dropped",
	         fsm->name, machine->id, fsm->event_names[event], fsm->states[machine->state].name);
}

static void release(struct neap_resident *resident, struct neap_reactor *reactor)
{
	neap_release(reactor, resident, sizeof(struct neap_transports_classes));
}

static int make(struct neap_reactor_class *class_, struct neap_reactor *reactor, const struct neap_fsm *fsm,
                neap_action_func *const *actions)
{
	if (neap_reactor_class_find(reactor, fsm))
		return NEAP_OK;
	class_->broken = broken;
	return neap_reactor_class_init(class_, reactor, fsm, actions, NULL);
}

struct neap_transports_classes *neap_transports_prepare(struct neap_reactor *reactor)
{
	struct neap_transports_classes *classes = (struct neap_transports_classes *)(void *)neap_reactor_resident(reactor, &key);
	if (!classes) {
		classes = neap_allocate(reactor, sizeof *classes);
		if (!classes)
			return NULL;
		classes->resident.key = &key;
		classes->resident.release = release;
		neap_reactor_house(reactor, &classes->resident);
		classes->batch.timer_offset = offsetof(struct neap_batch, timer) - offsetof(struct neap_batch, machine);
		classes->batch.due_ns = neap_batch_due_ns;
	}
	bool made = make(&classes->region, reactor, &neap_fsm_region, neap_region_actions) == 0 &&
	            make(&classes->grant, reactor, &neap_fsm_grant, neap_grant_actions) == 0 &&
	            make(&classes->slice, reactor, &neap_fsm_slice, neap_slice_actions) == 0 &&
	            make(&classes->batch, reactor, &neap_fsm_batch, neap_batch_actions) == 0 &&
	            make(&classes->segment, reactor, &neap_fsm_segment, neap_segment_actions) == 0 &&
	            make(&classes->engine, reactor, &neap_fsm_engine_life, neap_engine_life_actions) == 0;
	return made ? classes : NULL;
}
