#include "transports/classes.h"
#include "transports/batch_fsm.h"
#include "transports/engine_life_fsm.h"
#include "transports/engine_state.h"
#include "transports/grant_fsm.h"
#include "transports/region_fsm.h"
#include "transports/registry.h"
#include "transports/segment_fsm.h"
#include "transports/slice_fsm.h"

/* In production an event that cannot happen ends up here: it was dropped, the object stays as it is, its deadlines still hold. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	const struct neap_fsm *fsm = machine->class_->fsm;
	neap_log(neap_machine_reactor(machine), NEAP_LOG_ERROR, "engine", "machine %s %u met %s in %s, which cannot happen; dropped",
	         fsm->name, machine->id, fsm->event_names[event], fsm->states[machine->state].name);
}

static const struct neap_machine_kind region = {.fsm = &neap_fsm_region, .actions = neap_region_actions, .broken = broken};
static const struct neap_machine_kind grant = {.fsm = &neap_fsm_grant, .actions = neap_grant_actions, .broken = broken};
static const struct neap_machine_kind slice = {.fsm = &neap_fsm_slice, .actions = neap_slice_actions, .broken = broken};
static const struct neap_machine_kind segment = {.fsm = &neap_fsm_segment, .actions = neap_segment_actions, .broken = broken};
static const struct neap_machine_kind engine = {.fsm = &neap_fsm_engine_life, .actions = neap_engine_life_actions, .broken = broken};
static const struct neap_machine_kind batch = {
	.fsm = &neap_fsm_batch,
	.actions = neap_batch_actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_batch),
	.due_ns = neap_batch_due_ns,
	.broken = broken,
};

int neap_transports_classes_of(struct neap_reactor *reactor, struct neap_transports_classes *classes)
{
	const struct {
		const struct neap_machine_kind *kind;
		struct neap_reactor_class **class_p;
	} all[] = {
		{&region, &classes->region}, {&grant, &classes->grant},     {&slice, &classes->slice},
		{&batch, &classes->batch},   {&segment, &classes->segment}, {&engine, &classes->engine},
	};
	int error = NEAP_OK;
	for (size_t i = 0; i < sizeof all / sizeof all[0] && !error; i++)
		error = neap_reactor_class_of(reactor, all[i].kind, all[i].class_p);
	return error;
}
