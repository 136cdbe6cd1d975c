/* REVERSE: the owner moves a value between a tier and an accessor's buffers. */
#include "store/owner/lower.h"
#include "store/owner/move_record_fsm.h"
#include <string.h>

static struct neap_move_record *record_of(const struct neap_machine *machine)
{
	return (struct neap_move_record *)(uintptr_t)((const char *)machine - offsetof(struct neap_move_record, machine));
}

/* --- actions */

static void on_opened(void *user, int error, neap_segment_id segment, const char *why);

/* Nobody has us reach into a process that is not the asker. What is known of the segment may be older than the asker. */
static bool is_the_askers(const struct neap_move_record *record)
{
	struct neap_segment_info info;
	return !record->has_instance || (neap_segment_info(record->owner->engine, record->segment_id, &info) == NEAP_OK &&
	                                 memcmp(info.instance, record->instance, sizeof record->instance) == 0);
}

/* The segment is open. The event, or 0: it is being asked once more who it is. */
static uint8_t judge(struct neap_move_record *record)
{
	if (is_the_askers(record))
		return move_record_on_OPENED;
	if (!record->refreshed) {
		record->refreshed = true;
		if (neap_segment_refresh(record->owner->engine, record->segment_id, on_opened, record) == NEAP_OK)
			return 0;
	}
	record->moved.error = NEAP_STORE_ILLEGAL_CLIENT;
	record->moved.outcome.error = NEAP_EINSTANCE;
	return move_record_on_FAILED;
}

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct neap_move_record *record = user;
	uint8_t event = move_record_on_FAILED;
	(void)why;
	record->moved.outcome.error = (int16_t)error;
	if (!error) {
		record->segment_id = segment;
		if (!record->kept)
			record->kept = neap_move_segment_keep(record->owner, record->segment, segment);
		event = judge(record);
	}
	if (event)
		neap_step(&record->machine, event, 0);
}

/* Its part in the segment ends. */
static void leave_segment(struct neap_move_record *record)
{
	if (record->kept)
		neap_move_segment_leave(record->owner, record->kept);
	else if (record->segment_id != NEAP_LOCAL_SEGMENT)
		(void)neap_segment_close(record->owner->engine, record->segment_id);
	record->kept = NULL;
	record->segment_id = NEAP_LOCAL_SEGMENT;
}

static void do_open(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	(void)argument;
	record->moved.error = NEAP_STORE_TRANSFER_FAIL; /* until it is known to be otherwise */
	if (record->segment[0] == '\0') {
		record->segment_id = NEAP_LOCAL_SEGMENT;
		(void)neap_post(machine, move_record_on_OPENED, 0);
		return;
	}
	record->kept = neap_move_segment_take(record->owner, record->segment);
	if (record->kept) {
		record->segment_id = record->kept->id;
		uint8_t event = judge(record);
		if (event)
			(void)neap_post(machine, event, 0);
		return;
	}
	int error = neap_segment_open(record->owner->engine, record->segment, on_opened, record);
	if (!error)
		return;
	record->moved.outcome.error = (int16_t)error;
	(void)neap_post(machine, move_record_on_FAILED, 0);
}

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct neap_move_record *record = user;
	(void)batch;
	(void)index;
	(void)request_user;
	record->held += outcome->buffer == NEAP_BUFFER_HELD;
	if (outcome->status == NEAP_COMPLETED || record->failed)
		return;
	record->failed = true;
	record->moved.outcome = *outcome;
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	struct neap_move_record *record = user;
	(void)batch;
	(void)summary;
	uint8_t event = record->push ? move_record_on_MOVED_OUT : move_record_on_MOVED_IN;
	if (record->failed)
		event = record->held ? move_record_on_HELD : move_record_on_FAILED;
	neap_step(&record->machine, event, 0);
}

static void on_released(void *user, neap_batch_id batch, uint32_t index, void *request_user)
{
	struct neap_move_record *record = user;
	(void)batch;
	(void)index;
	(void)request_user;
	if (--record->held == 0)
		neap_step(&record->machine, move_record_on_RELEASED, 0);
}

/* Without a segment's name it is our own accessor that waits: the tier is the registered side then, the user's buffer need not be. Whoever
 * came over the RPC has lent his buffer under a grant and may end that, also when he turns out to be this very process. */
static struct neap_request request_of(const struct neap_move_record *record, const struct neap_remote_slice *slice, unsigned char *at)
{
	struct neap_request request = {.segment = record->segment_id, .length = slice->length};
	if (record->segment[0] == '\0') {
		request.opcode = record->push ? NEAP_READ : NEAP_WRITE;
		request.source = (void *)(uintptr_t)slice->address;
		request.target_offset = (uintptr_t)at;
		return request;
	}
	request.opcode = record->push ? NEAP_WRITE : NEAP_READ;
	request.source = at;
	request.target_offset = slice->address;
	request.grant = &slice->token;
	request.placed = true; /* who is answered reads it */
	return request;
}

static void do_move(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	struct neap_request requests[NEAP_MOVE_SLICES_MAX];
	struct neap_owner *owner = record->owner;
	unsigned char *at = neap_handle_address(record->handle);
	neap_batch_id batch;
	(void)argument;
	for (uint32_t i = 0; i < record->count; i++) {
		requests[i] = request_of(record, &record->slices[i], at);
		at += record->slices[i].length;
	}
	struct neap_batch_options options = {
		.deadline_ns = neap_now(owner->reactor) + owner->options.move_timeout_ns,
		.on_request = on_request,
		.on_batch = on_batch,
		.on_released = on_released,
		.user = record,
	};
	int error = neap_submit(owner->engine, requests, record->count, &options, &batch);
	if (!error)
		return;
	record->moved.outcome.error = (int16_t)error;
	(void)neap_post(machine, move_record_on_FAILED, 0);
}

static void do_check(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	(void)argument;
	record->sum.machine = machine;
	record->sum.on_right = move_record_on_RIGHT;
	record->sum.on_wrong = move_record_on_WRONG;
	neap_sum_begin(&record->sum, record->owner, record->handle, record->size);
}

static void give_back(struct neap_move_record *record)
{
	struct neap_owner *owner = record->owner;
	leave_segment(record);
	neap_machine_end(&record->machine);
	neap_pool_give(&owner->moves, record);
	neap_owner_wake(owner); /* a close waits for the last */
}

/* Of a pull that failed: the key is free. */
static void leave_key(struct neap_move_record *record)
{
	struct neap_key_entry *entry = record->entry;
	record->entry = NULL;
	if (!entry)
		return;
	entry->pending = 0;
	neap_key_entry_settle(record->owner, entry);
}

static void answer(struct neap_move_record *record)
{
	struct neap_moved moved = record->moved;
	void (*done)(void *user, const struct neap_moved *moved) = record->done;
	void *user = record->user;
	moved.size = record->size;
	give_back(record);
	done(user, &moved);
}

static void do_publish(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	struct neap_key_entry *entry = record->entry;
	(void)argument;
	record->owner->stats.pulled_bytes += record->size;
	neap_key_entry_publish(record->owner, entry, record->handle, 0, &record->sum);
	record->moved = (struct neap_moved){
		.error = NEAP_STORE_OK, .generation = entry->generation, .has_crc = entry->has_crc, .crc = entry->crc};
	answer(record);
}

static void do_finish(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	(void)argument;
	record->owner->stats.pushed_bytes += record->size;
	record->moved = (struct neap_moved){
		.error = NEAP_STORE_OK, .generation = record->generation, .has_crc = record->has_crc, .crc = record->crc};
	(void)neap_handle_drop(record->handle);
	answer(record);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	record->owner->stats.failed_moves++;
	if (record->sum.machine) { /* it had come to the sum, and that was wrong */
		record->owner->stats.wrong_sums++;
		record->moved.error = NEAP_STORE_DATA_COPY_FAILED;
	}
	(void)argument;
	leave_key(record);
	if (record->handle)
		(void)neap_handle_drop(record->handle);
	answer(record);
}

/* The transport may still touch the tier's memory: the asker is told what is known, and the memory waits. */
static void do_report(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	(void)argument;
	record->owner->stats.failed_moves++;
	leave_key(record);
	struct neap_moved moved = record->moved;
	moved.size = record->size;
	moved.held = true;
	record->done(record->user, &moved);
}

static void do_settle(struct neap_machine *machine, uint64_t argument)
{
	struct neap_move_record *record = record_of(machine);
	void (*released)(void *user) = record->released;
	void *user = record->user;
	(void)argument;
	(void)neap_handle_drop(record->handle);
	give_back(record);
	if (released)
		released(user);
}

static neap_action_func *const actions[] = {
	[move_record_do_open] = do_open,     [move_record_do_move] = do_move, [move_record_do_check] = do_check,
	[move_record_do_publish] = do_publish, [move_record_do_finish] = do_finish, [move_record_do_fail] = do_fail,
	[move_record_do_report] = do_report, [move_record_do_settle] = do_settle,
};

const struct neap_machine_kind neap_move_record_kind = {.fsm = &neap_fsm_move_record, .actions = actions};

/* --- calls */

/* The length of all slices together; 0: not valid. */
static uint64_t check_slices(const struct neap_move *request)
{
	uint64_t size = 0;
	if (request->count == 0 || request->count > NEAP_MOVE_SLICES_MAX)
		return 0;
	for (uint32_t i = 0; i < request->count; i++) {
		const struct neap_remote_slice *slice = &request->slices[i];
		const char *segment = slice->segment ? slice->segment : "", *first = request->slices[0].segment;
		bool same = strcmp(segment, first ? first : "") == 0 && strlen(segment) < sizeof ((struct neap_move_record *)0)->segment;
		if (!same || slice->address == 0 || slice->length == 0 || slice->length > UINT64_MAX / 2 - size)
			return 0;
		size += slice->length;
	}
	return size;
}

static struct neap_move_record *take(struct neap_owner *owner, const struct neap_move *request,
                                     void (*done)(void *user, const struct neap_moved *moved), void (*released)(void *user), void *user)
{
	struct neap_move_record *record = neap_pool_take(&owner->moves);
	if (!record)
		return NULL;
	struct neap_machine machine = record->machine; /* its generation goes on */
	memset(record, 0, offsetof(struct neap_move_record, slices));
	record->machine = machine;
	record->owner = owner;
	record->done = done;
	record->released = released;
	record->user = user;
	record->count = request->count;
	record->has_instance = request->instance != NULL && request->slices[0].segment != NULL;
	if (record->has_instance)
		memcpy(record->instance, request->instance, sizeof record->instance);
	if (request->slices[0].segment)
		memcpy(record->segment, request->slices[0].segment, strlen(request->slices[0].segment)); /* zeroed, and looked at */
	memcpy(record->slices, request->slices, request->count * sizeof record->slices[0]);
	neap_machine_begin(&record->machine, &owner->move_class->class_);
	return record;
}

int neap_owner_pull(struct neap_owner *owner, const struct neap_move *request,
                    void (*done)(void *user, const struct neap_moved *moved), void (*released)(void *user), void *user,
                    uint64_t *retry_after_ns_p)
{
	struct neap_key_entry *entry;
	struct neap_handle *handle;
	uint64_t size = check_slices(request);
	*retry_after_ns_p = 0;
	int error = size ? neap_owner_reserve(owner, &request->key, size, request->tier, &entry, &handle, retry_after_ns_p)
	                 : NEAP_STORE_INVALID_PARAMS;
	if (error)
		return error;
	struct neap_move_record *record = take(owner, request, done, released, user);
	if (!record) {
		(void)neap_handle_drop(handle);
		neap_key_entry_settle(owner, entry);
		return NEAP_STORE_NO_AVAILABLE_HANDLE;
	}
	owner->stats.pulls++;
	record->entry = entry;
	record->handle = handle;
	record->size = size;
	record->sum.wanted = request->sum;
	record->sum.has_expected = request->has_crc;
	record->sum.expected = request->crc;
	entry->pending = neap_pool_handle(&owner->moves, record);
	entry->pending_move = true;
	neap_step(&record->machine, move_record_on_ORDER, 0);
	return NEAP_STORE_OK;
}

static void take_value(struct neap_move_record *record, const struct neap_value *value)
{
	record->size = value->size;
	record->generation = value->generation;
	record->has_crc = value->has_crc;
	record->crc = value->crc;
}

static void on_brought(struct neap_bring *bring, int error, const struct neap_value *value)
{
	struct neap_move_record *record = (struct neap_move_record *)(void *)((char *)bring - offsetof(struct neap_move_record, bring));
	if (error) {
		record->moved.error = error;
		neap_step(&record->machine, move_record_on_FAILED, 0);
		return;
	}
	record->handle = neap_handle_hold(value->handle);
	take_value(record, value);
	neap_step(&record->machine, move_record_on_ORDER, 0);
}

int neap_owner_push(struct neap_owner *owner, const struct neap_move *request,
                    void (*done)(void *user, const struct neap_moved *moved), void (*released)(void *user), void *user)
{
	struct neap_value value;
	uint64_t size = check_slices(request);
	int error = size ? neap_owner_hold(owner, &request->key, &value) : NEAP_STORE_INVALID_PARAMS;
	if (error)
		return error;
	if (size != value.size)
		error = NEAP_STORE_INVALID_PARAMS;
	struct neap_move_record *record = error ? NULL : take(owner, request, done, released, user);
	if (record && !value.address) {
		record->bring.brought = on_brought;
		error = neap_lower_bring(owner, &request->key, &record->bring);
		if (error)
			give_back(record);
	}
	if (!record || error) {
		(void)neap_handle_drop(value.handle);
		return error ? error : NEAP_STORE_NO_AVAILABLE_HANDLE;
	}
	owner->stats.pushes++;
	record->push = true;
	take_value(record, &value);
	if (value.address)
		record->handle = value.handle;
	else
		(void)neap_handle_drop(value.handle);
	neap_step(&record->machine, value.address ? (uint8_t)move_record_on_ORDER : (uint8_t)move_record_on_COLD, 0);
	return NEAP_STORE_OK;
}
