/* FORWARD reads: a pin for each reader, on the version that it was told of. */
#include "store/owner/inside.h"
#include "store/owner/pin_record_fsm.h"

static struct neap_pin_record *record_of(const struct neap_machine *machine)
{
	return (struct neap_pin_record *)(uintptr_t)((const char *)machine - offsetof(struct neap_pin_record, machine));
}

/* --- actions */

static void give_back(struct neap_pin_record *record)
{
	struct neap_owner *owner = record->owner;
	neap_machine_end(&record->machine);
	neap_pool_give(&owner->pins, record);
	neap_owner_wake(owner); /* a close waits for the last */
}

static void on_ended(void *user)
{
	struct neap_pin_record *record = user;
	neap_step(&record->machine, pin_record_on_ENDED, 0);
}

/* `quiet`: the reader is through, or knows that its time is over. One that was lost may still read, and would take what comes then for the
 * value. */
static void end_grant(struct neap_pin_record *record, bool quiet)
{
	int (*end)(struct neap_engine *, const struct neap_grant_token *, void (*)(void *), void *) =
		quiet ? neap_grant_end_quiet : neap_grant_end;
	if (end(record->owner->engine, &record->token, on_ended, record) != NEAP_OK)
		(void)neap_post(&record->machine, pin_record_on_ENDED, 0);
}

static void do_expire(struct neap_machine *machine, uint64_t argument)
{
	struct neap_pin_record *record = record_of(machine);
	(void)argument;
	record->ending = true;
	record->owner->stats.expired_pins++;
	end_grant(record, true);
}

static void do_unpin(struct neap_machine *machine, uint64_t argument)
{
	struct neap_pin_record *record = record_of(machine);
	(void)argument;
	end_grant(record, record->unpinned);
}

static void do_release(struct neap_machine *machine, uint64_t argument)
{
	struct neap_pin_record *record = record_of(machine);
	(void)argument;
	(void)neap_exposure_end(&record->exposure, NEAP_FACT_GRANT_ENDED);
	(void)neap_handle_drop(record->handle);
	give_back(record);
}

static neap_action_func *const actions[] = {
	[pin_record_do_expire] = do_expire,
	[pin_record_do_unpin] = do_unpin,
	[pin_record_do_release] = do_release,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	(void)timeout_class;
	(void)now_ns;
	return record_of(machine)->lease_end_ns;
}

static const char *invariant(const struct neap_machine *machine, uint8_t from)
{
	const struct neap_pin_record *record = record_of(machine);
	(void)from;
	if (machine->state == pin_record_PINNED && !record->exposure.handle)
		return "what is pinned may be read";
	return NULL;
}

const struct neap_machine_kind neap_pin_record_kind = {
	.fsm = &neap_fsm_pin_record,
	.actions = actions,
	.invariant = invariant,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_pin_record),
	.due_ns = due_ns,
};

/* --- calls */

static int grant(struct neap_pin_record *record, const struct neap_pin *request)
{
	const struct neap_handle *handle = record->handle;
	int error = neap_exposure_begin(&record->exposure, record->handle, request->peer);
	if (error)
		return error;
	if (neap_grant_create(record->owner->engine, neap_handle_address(handle), handle->extent.size, NEAP_MAY_READ, request->instance,
	                      &record->token) == NEAP_OK)
		return NEAP_STORE_OK;
	(void)neap_exposure_end(&record->exposure, NEAP_FACT_GRANT_ENDED); /* there never was one */
	return NEAP_STORE_NO_AVAILABLE_HANDLE;
}

static struct neap_pin_record *take(struct neap_owner *owner, struct neap_handle *handle, uint64_t key_hash)
{
	struct neap_pin_record *record = neap_pool_take(&owner->pins);
	if (!record)
		return NULL;
	struct neap_machine machine = record->machine; /* its generation goes on */
	*record = (struct neap_pin_record){.machine = machine, .owner = owner, .handle = handle, .key_hash = key_hash};
	neap_machine_begin(&record->machine, &owner->pin_class->class_);
	return record;
}

int neap_owner_pin(struct neap_owner *owner, const struct neap_pin *request, struct neap_read_grant *grant_p)
{
	struct neap_value value;
	int error = neap_owner_hold(owner, &request->key, &value);
	if (error)
		return error;
	error = neap_owner_pin_value(owner, request, &value, grant_p);
	(void)neap_handle_drop(value.handle);
	return error;
}

int neap_owner_pin_value(struct neap_owner *owner, const struct neap_pin *request, const struct neap_value *value,
                         struct neap_read_grant *grant_p)
{
	struct neap_pin_record *record = value->address ? take(owner, value->handle, neap_owner_key_hash(owner, &request->key)) : NULL;
	int error = value->address ? NEAP_STORE_NO_AVAILABLE_HANDLE : NEAP_STORE_UNAVAILABLE_IN_CURRENT_MODE;
	if (record)
		error = grant(record, request);
	if (error) {
		if (record)
			give_back(record);
		return error;
	}
	(void)neap_handle_hold(value->handle);
	owner->stats.pinned++;
	record->lease_end_ns = neap_now(owner->reactor) + owner->options.lease_ns;
	neap_step(&record->machine, pin_record_on_GRANT, 0);
	*grant_p = (struct neap_read_grant){
		.read_id = neap_pool_handle(&owner->pins, record),
		.address = value->address,
		.size = value->size,
		.generation = value->generation,
		.has_crc = value->has_crc,
		.crc = value->crc,
		.token = record->token,
		.lease_ns = owner->options.lease_ns,
	};
	return NEAP_STORE_OK;
}

int neap_owner_unpin(struct neap_owner *owner, const struct neap_key *key, uint64_t read_id)
{
	if (key->length == 0 || key->length > NEAP_KEY_MAX || !key->bytes || read_id == 0)
		return NEAP_STORE_INVALID_PARAMS;
	struct neap_pin_record *record = neap_pool_find(&owner->pins, read_id);
	if (!record)
		return NEAP_STORE_OK;
	if (record->key_hash != neap_owner_key_hash(owner, key))
		return NEAP_STORE_INVALID_READ;
	if (record->unpinned)
		return NEAP_STORE_OK; /* asked again while its grant ends */
	if (record->ending || neap_now(owner->reactor) >= record->lease_end_ns)
		return NEAP_STORE_LEASE_EXPIRED;
	record->ending = record->unpinned = true;
	owner->stats.unpins++;
	neap_step(&record->machine, pin_record_on_UNPIN, 0);
	return NEAP_STORE_OK;
}

void neap_owner_pin_lost(struct neap_owner *owner, uint64_t read_id)
{
	struct neap_pin_record *record = neap_pool_find(&owner->pins, read_id);
	if (!record)
		return;
	if (!record->ending)
		owner->stats.lost_pins++;
	record->ending = true;
	neap_step(&record->machine, pin_record_on_LOST, 0);
}

void neap_pins_close(struct neap_owner *owner)
{
	uint32_t index = 0;
	struct neap_pin_record *record;
	while ((record = neap_pool_next(&owner->pins, &index)))
		neap_owner_pin_lost(owner, neap_pool_handle(&owner->pins, record));
}
