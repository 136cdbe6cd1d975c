/* Values that are, or are to stay, in this process: no call, no lease, one copy. */
#include "store/accessor/inside.h"
#include "transports/checksum.h"
#include <string.h>

/* Copied at once; a longer one goes through the engine, a bounded piece a turn. */
#define COPIED_MAX (UINT64_C(256) << 10)

static void post(struct accessor_op *op, uint8_t event)
{
	(void)neap_post(&op->machine, event, 0);
}

bool accessor_begins_here(struct accessor_op *op)
{
	struct neap_accessor *accessor = op->accessor;
	struct neap_key key = accessor_key(op);
	struct neap_key_facts facts;
	if (!accessor->options.owner || op->stopped || op->kind == ACCESSOR_RESOLVE)
		return false;
	neap_owner_look_up(accessor->options.owner, &key, &facts);
	const struct neap_places *places = &accessor->places;
	if (op->kind == ACCESSOR_GET)
		return facts.exists &&
		       (!places->settled || places->settled(places->directory, &key, facts.tier, facts.generation));
	return facts.exists || (accessor->places.stays_here && accessor->places.stays_here(accessor->places.directory, &key, op->total));
}

/* Our slices, as far as `length` bytes go. */
static uint32_t slices_of(const struct accessor_op *op, uint64_t length, struct neap_remote_slice *slices)
{
	uint32_t count = 0;
	for (; length > 0; count++) {
		uint64_t part = op->slices[count].length < length ? op->slices[count].length : length;
		slices[count] = (struct neap_remote_slice){.address = (uintptr_t)op->slices[count].address, .length = part};
		length -= part;
	}
	return count;
}

/* The transport has let go of what a failed copy may still have touched. */
static void released(void *user)
{
	struct accessor_op *op = user;
	uint8_t holding = op->kind == ACCESSOR_GET ? (uint8_t)store_get_HOLDING : (uint8_t)store_put_HOLDING;
	op->held = 0;
	if (op->machine.state == holding)
		accessor_step(op, op->kind == ACCESSOR_GET ? (uint8_t)store_get_on_QUIET : (uint8_t)store_put_on_QUIET);
}

static void blame_moved(struct accessor_op *op, const struct neap_moved *moved)
{
	op->held = moved->held;
	accessor_blame(op, moved->error, "in this process: %s", neap_store_error_text(moved->error));
}

/* --- put ---------------------------------------------------------------------------------------------------------------------- */

static void note_value(struct accessor_op *op, bool created, uint64_t size, uint64_t generation, bool has_crc, uint32_t crc)
{
	op->outcome.created = created;
	op->outcome.size = size;
	op->outcome.generation = generation;
	op->outcome.has_crc = has_crc;
	op->outcome.crc = crc;
}

static void note_existing(struct accessor_op *op)
{
	struct neap_key key = accessor_key(op);
	struct neap_key_facts facts;
	neap_owner_look_up(op->accessor->options.owner, &key, &facts);
	note_value(op, false, facts.size, facts.generation, facts.has_crc, facts.crc);
	post(op, store_put_on_ANSWERED);
}

static void not_kept(struct accessor_op *op, int error, uint64_t retry_after_ns)
{
	if (error == NEAP_STORE_OBJECT_ALREADY_EXISTS) {
		note_existing(op);
		return;
	}
	accessor_blame(op, error, "in this process: %s", neap_store_error_text(error));
	op->outcome.retry_after_ms = retry_after_ns / 1000000;
	/* A write of the key is pending here: at another owner it would become a second version. */
	bool ends = error == NEAP_STORE_REPLICA_IS_PROCESSING || error == NEAP_STORE_DATA_COPY_FAILED;
	post(op, ends ? (uint8_t)store_put_on_BROKEN : (uint8_t)store_put_on_REFUSED);
}

static void keep_copy(struct accessor_op *op)
{
	char value[NEAP_INLINE_MAX];
	uint64_t generation, retry_after_ns = 0;
	struct neap_unsettled *ours = &op->unsettled;
	accessor_copy_out(op, value);
	if (ours->has_crc || !op->summed) {
		uint32_t crc = neap_crc32c(0, value, op->total);
		if (ours->has_crc && ours->crc != crc) {
			not_kept(op, NEAP_STORE_DATA_COPY_FAILED, 0);
			return;
		}
		ours->crc = crc;
		ours->has_crc = op->summed = true;
	}
	struct neap_copy copy = {.key = accessor_key(op), .bytes = value, .size = op->total, .tier = NEAP_TIER_ANY,
	                         .has_crc = ours->has_crc, .crc = ours->crc};
	int error = neap_owner_put_copy(op->accessor->options.owner, &copy, &generation, &retry_after_ns);
	if (error) {
		not_kept(op, error, retry_after_ns);
		return;
	}
	note_value(op, true, op->total, generation, ours->has_crc, ours->crc);
	post(op, store_put_on_ANSWERED);
}

static void kept(void *user, const struct neap_moved *moved)
{
	struct accessor_op *op = user;
	if (moved->error) {
		blame_moved(op, moved);
		accessor_step(op, moved->held || moved->error == NEAP_STORE_DATA_COPY_FAILED ? (uint8_t)store_put_on_BROKEN
		                                                                             : (uint8_t)store_put_on_REFUSED);
		return;
	}
	note_value(op, true, moved->size, moved->generation, moved->has_crc, moved->crc);
	accessor_step(op, store_put_on_ANSWERED);
}

void accessor_do_keep(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct neap_remote_slice slices[NEAP_MOVE_SLICES_MAX];
	uint64_t retry_after_ns;
	(void)argument;
	op->way = NEAP_WAY_LOCAL;
	if (op->total <= NEAP_INLINE_MAX) {
		keep_copy(op);
		return;
	}
	struct neap_move move = {.key = accessor_key(op), .slices = slices, .count = slices_of(op, op->total, slices), .tier = NEAP_TIER_ANY,
	                         .sum = !op->summed, .has_crc = op->unsettled.has_crc, .crc = op->unsettled.crc};
	int error = neap_owner_pull(op->accessor->options.owner, &move, kept, released, op, &retry_after_ns);
	if (error)
		not_kept(op, error, retry_after_ns);
}

/* --- the directory knows it --------------------------------------------------------------------------------------------------- */

/* The event that the result is. */
static uint8_t settle_as(struct accessor_op *op, int result)
{
	const struct neap_store_outcome outcome = op->outcome;
	bool is_verdict = result != NEAP_ETIMEDOUT && result != NEAP_ECANCELED && result != NEAP_ECLOSED;
	bool refused = is_verdict && result != NEAP_STORE_OK && result != NEAP_STORE_OBJECT_NOT_FOUND;
	if (!outcome.created && refused) /* what was here before us was a second version, and goes: ours may be the first one's bytes */
		return store_put_on_EMPTY;
	switch (result) {
	case NEAP_STORE_OK:
	case NEAP_STORE_OBJECT_NOT_FOUND: /* it was there, and was removed or evicted since */
		put_conclude(op, outcome.created, outcome.size, outcome.generation, outcome.has_crc, outcome.crc);
		return store_put_on_ANSWERED;
	case NEAP_STORE_REPLICA_NUM_EXCEEDED:
		put_there_elsewhere(op);
		return store_put_on_ANSWERED;
	case NEAP_ETIMEDOUT:
	case NEAP_ECANCELED:
	case NEAP_STORE_INTERNAL_ERROR: /* the directory has failed, not refused */
		accessor_blame(op, result, "the value is here, but the directory does not know it yet");
		return store_put_on_UNSURE;
	case NEAP_ECLOSED:
		accessor_blame(op, NEAP_ECLOSED, "the value is here, but this process is leaving");
		return store_put_on_UNSURE;
	case NEAP_STORE_OBJECT_ALREADY_EXISTS:
		accessor_blame(op, result, "another owner had the key first, with another value");
		return store_put_on_REFUSED;
	default:
		accessor_blame(op, result, "the directory: %s",
		               result == NEAP_STORE_RPC_FAIL ? "the master is not reached" : neap_store_error_text(result));
		return store_put_on_REFUSED;
	}
}

static void settled(struct neap_settle *settle, int result)
{
	struct accessor_op *op = (struct accessor_op *)(void *)((char *)settle - offsetof(struct accessor_op, settle));
	accessor_step(op, settle_as(op, result));
}

void accessor_do_settle(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct neap_places *places = &op->accessor->places;
	struct neap_key_facts facts;
	int result = NEAP_STORE_OK;
	(void)argument;
	op->settle = (struct neap_settle){
		.key = accessor_key(op), .generation = op->outcome.generation, .deadline_ns = op->deadline_ns, .settled = settled};
	neap_owner_look_up(op->accessor->options.owner, &op->settle.key, &facts);
	op->settle.tier = facts.tier;
	if (places->settle && facts.exists && facts.generation == op->settle.generation)
		result = places->settle(places->directory, &op->settle);
	if (result == NEAP_SETTLING && op->stopped) { /* while it was copied */
		accessor_forget_settling(op);
		result = op->stopped;
	}
	if (result != NEAP_SETTLING)
		post(op, settle_as(op, result));
}

/* Its caller does not want to wait for the directory any more. */
void accessor_forget_settling(struct accessor_op *op)
{
	struct neap_places *places = &op->accessor->places;
	if (places->forget)
		places->forget(places->directory, &op->settle);
}

/* --- get ---------------------------------------------------------------------------------------------------------------------- */

static bool take(struct accessor_op *op, uint64_t size, uint64_t generation, bool has_crc, uint32_t crc)
{
	note_value(op, false, size, generation, has_crc, crc);
	op->has_expected = has_crc && op->verify;
	op->expected = crc;
	op->length = size;
	if (size <= op->total)
		return true;
	accessor_blame(op, NEAP_STORE_BUFFER_OVERFLOW, "the value has %llu bytes, the slices %llu", (unsigned long long)size,
	               (unsigned long long)op->total);
	return false;
}

static void fetched(void *user, const struct neap_moved *moved)
{
	struct accessor_op *op = user;
	if (moved->error) {
		blame_moved(op, moved);
		accessor_step(op, moved->held ? (uint8_t)store_get_on_HELD : (uint8_t)store_get_on_REFUSED);
		return;
	}
	(void)take(op, moved->size, moved->generation, moved->has_crc, moved->crc);
	accessor_step(op, store_get_on_ANSWERED);
}

void accessor_do_fetch(struct neap_machine *machine, uint64_t argument)
{
	struct accessor_op *op = accessor_op_of(machine);
	struct neap_owner *owner = op->accessor->options.owner;
	struct neap_remote_slice slices[NEAP_MOVE_SLICES_MAX];
	struct neap_key key = accessor_key(op);
	struct neap_key_facts facts;
	struct neap_value value;
	(void)argument;
	op->way = NEAP_WAY_LOCAL;
	neap_owner_look_up(owner, &key, &facts);
	if (!facts.exists) {
		post(op, store_get_on_REFUSED);
	} else if (!take(op, facts.size, facts.generation, facts.has_crc, facts.crc)) {
		post(op, store_get_on_EMPTY);
	} else if (facts.in_memory && facts.size <= COPIED_MAX) {
		int error = neap_owner_hold(owner, &key, &value);
		if (!error) {
			accessor_copy_in(op, value.address, value.size);
			(void)neap_handle_drop(value.handle);
		}
		post(op, error ? (uint8_t)store_get_on_REFUSED : (uint8_t)store_get_on_ANSWERED);
	} else { /* from a disk too, however small */
		struct neap_move move = {.key = key, .slices = slices, .count = slices_of(op, facts.size, slices)};
		if (neap_owner_push(owner, &move, fetched, released, op))
			post(op, store_get_on_REFUSED);
	}
}
