/* Bytes of an operation: transfers of ours under an owner's grant, grants of ours for an owner's transfers, sums. */
#include "store/accessor/inside.h"
#include "transports/checksum.h"
#include <string.h>

#define MS UINT64_C(1000000)
#define SUM_PIECE (UINT64_C(1) << 20) /* about 0.1 ms */

/* Counted from when we asked, less a part for clocks that do not run alike and a moment for what is on its way. */
bool accessor_take_lease(struct accessor_op *op, uint64_t lease_ms)
{
	uint64_t lease_ns = lease_ms * MS, margin_ns = lease_ns / 10 + 100 * MS;
	if (margin_ns > lease_ns / 2)
		margin_ns = lease_ns / 2;
	op->guard_ns = op->asked_ns + lease_ns - margin_ns;
	bool in_time = accessor_now(op) < op->guard_ns;
	op->accessor->stats.late += !in_time;
	return in_time;
}

/* The part of slice i that the value's first `length` bytes take. */
static uint64_t part_of(const struct accessor_op *op, uint32_t i, uint64_t done)
{
	return op->slices[i].length < op->length - done ? op->slices[i].length : op->length - done;
}

/* --- our transfers ------------------------------------------------------------------------------------------------------------ */

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct accessor_op *op = user;
	(void)batch;
	(void)request_user;
	if (outcome->buffer == NEAP_BUFFER_HELD)
		op->held++;
	/* FAILED is said when no byte of it can arrive any more. */
	bool over = outcome->status == NEAP_COMPLETED || outcome->status == NEAP_FAILED || outcome->effect != NEAP_EFFECT_UNKNOWN;
	op->loose = op->loose || outcome->buffer == NEAP_BUFFER_HELD || !over;
	if (outcome->status == NEAP_COMPLETED || op->failed)
		return;
	op->failed = true;
	op->failure = *outcome;
	op->failed_slice = index;
}

/* What the failure means: the caller's end, the lease's, or the transport's. */
static void blame_failure(struct accessor_op *op)
{
	uint64_t before = 0;
	for (uint32_t i = 0; i < op->failed_slice; i++)
		before += op->slices[i].length;
	struct neap_request request = {.opcode = op->kind == ACCESSOR_GET ? NEAP_READ : NEAP_WRITE,
	                               .source = op->slices[op->failed_slice].address,
	                               .segment = op->peer->segment,
	                               .target_offset = op->remote_address + before,
	                               .length = part_of(op, op->failed_slice, before)};
	char text[256];
	(void)neap_outcome_text(op->accessor->engine, &request, &op->failure, text, sizeof text);
	if (op->peer->phase == NEAP_STORE_PEER_OPEN) /* looked at again before the next use */
		op->peer->phase = NEAP_STORE_PEER_UNKNOWN;
	bool over = op->failure.status == NEAP_TIMEOUT;
	if (over && accessor_now(op) >= op->deadline_ns)
		accessor_stop(op, NEAP_ETIMEDOUT);
	else if (over)
		accessor_blame(op, NEAP_STORE_LEASE_EXPIRED, "the owner's lease (--p2p_key_lease_duration_ms there) came near its end: %s", text);
	else
		accessor_blame(op, NEAP_STORE_TRANSFER_FAIL, "%s", text);
}

static void ended(struct accessor_op *op, bool completed)
{
	op->batch_runs = false;
	if (!completed)
		blame_failure(op);
	if (op->kind == ACCESSOR_GET)
		get_transferred(op, completed);
	else
		put_transferred(op, completed);
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	ended(user, summary->completed == summary->total);
}

static void on_released(void *user, neap_batch_id batch, uint32_t index, void *request_user)
{
	struct accessor_op *op = user;
	(void)batch;
	(void)index;
	(void)request_user;
	if (--op->held > 0 || !op->told)
		return;
	accessor_step(op, op->kind == ACCESSOR_GET ? (uint8_t)store_get_on_QUIET : (uint8_t)store_put_on_QUIET);
}

int accessor_transfer(struct accessor_op *op, enum neap_opcode opcode)
{
	struct neap_request requests[NEAP_MOVE_SLICES_MAX];
	uint32_t count = 0;
	op->failed = false;
	for (uint64_t done = 0; done < op->length; count++) {
		requests[count] = (struct neap_request){.opcode = opcode,
		                                        .source = op->slices[count].address,
		                                        .segment = op->peer->segment,
		                                        .target_offset = op->remote_address + done,
		                                        .length = part_of(op, count, done),
		                                        .grant = &op->remote_token,
		                                        .placed = opcode == NEAP_WRITE};
		done += requests[count].length;
	}
	struct neap_batch_options options = {.deadline_ns = op->guard_ns < op->deadline_ns ? op->guard_ns : op->deadline_ns,
	                                     .on_request = on_request,
	                                     .on_batch = on_batch,
	                                     .on_released = on_released,
	                                     .user = op};
	int error = neap_submit(op->accessor->engine, requests, count, &options, &op->batch);
	op->batch_runs = !error;
	if (error)
		accessor_blame(op, error == NEAP_EAGAIN || error == NEAP_ETOOMANY ? NEAP_EAGAIN : NEAP_STORE_TRANSFER_FAIL,
		               "the engine does not take the transfer: %s", neap_error_text(error));
	return error;
}

/* --- our grants --------------------------------------------------------------------------------------------------------------- */

static void quiet(struct accessor_op *op)
{
	if (op->kind == ACCESSOR_GET)
		get_quiet(op);
	else
		put_quiet(op);
}

static void grant_ended(void *user)
{
	struct accessor_op *op = user;
	if (--op->recalling == 0 && op->lent == 0)
		quiet(op);
}

static void recall_again(struct neap_timer *timer, void *user)
{
	(void)timer;
	accessor_recall(user);
}

void accessor_recall(struct accessor_op *op)
{
	struct neap_accessor *accessor = op->accessor;
	while (op->lent > 0) {
		const struct neap_grant_token *token = &op->tokens[op->lent - 1];
		int error = op->quiet ? neap_grant_end_quiet(accessor->engine, token, grant_ended, op)
		                      : neap_grant_end(accessor->engine, token, grant_ended, op);
		if (error == NEAP_EAGAIN) { /* it has no room to remember whom to tell: then the grant still stands */
			(void)neap_timer_start(accessor->reactor, &op->pause, accessor_now(op) + MS, recall_again, op);
			return;
		}
		op->lent--;
		op->recalling += !error;
	}
	if (op->recalling == 0)
		quiet(op);
}

static int take_grants(struct accessor_op *op, unsigned rights)
{
	op->quiet = true;
	for (uint64_t done = 0; done < op->length;) {
		uint64_t part = part_of(op, op->lent, done);
		int error = neap_grant_create(op->accessor->engine, op->slices[op->lent].address, part, rights, op->route->place.instance,
		                              &op->tokens[op->lent]);
		if (error) {
			accessor_blame(op, error == NEAP_ENOTREG || error == NEAP_EINVAL ? NEAP_STORE_INVALID_PARAMS : NEAP_EAGAIN,
			               "no grant on slice %u: %s", op->lent, neap_error_text(error));
			return error;
		}
		op->lent++;
		done += part;
	}
	return NEAP_OK;
}

int accessor_lend(struct accessor_op *op, unsigned rights, struct remote_slice *slices, uint32_t *count_p)
{
	const char *name = neap_engine_name(op->accessor->engine);
	int error = op->lent ? NEAP_OK : take_grants(op, rights); /* a repeated call names the same grants */
	uint32_t count = 0;
	for (uint64_t done = 0; !error && done < op->length; count++) {
		slices[count] = (struct remote_slice){.segment = {name, (uint32_t)strlen(name)},
		                                      .address = (uintptr_t)op->slices[count].address,
		                                      .length = part_of(op, count, done)};
		peer_token_tell(&slices[count], &op->tokens[count]);
		done += slices[count].length;
	}
	*count_p = count;
	return error;
}

/* --- sums and copies ---------------------------------------------------------------------------------------------------------- */

static void sum_piece(struct neap_ready *ready)
{
	struct accessor_op *op = (struct accessor_op *)(void *)((char *)ready - offsetof(struct accessor_op, work));
	for (uint64_t piece = SUM_PIECE; piece > 0 && op->sum_left > 0;) {
		const struct neap_slice_of *slice = &op->slices[op->sum_slice];
		uint64_t part = slice->length - op->sum_offset;
		part = part < op->sum_left ? part : op->sum_left;
		part = part < piece ? part : piece;
		op->sum = neap_crc32c(op->sum, (const unsigned char *)slice->address + op->sum_offset, (size_t)part);
		piece -= part;
		op->sum_left -= part;
		op->sum_offset += part;
		if (op->sum_offset == slice->length) {
			op->sum_slice++;
			op->sum_offset = 0;
		}
	}
	if (op->sum_left > 0)
		neap_ready_again(op->accessor->reactor, ready);
	else if (op->kind == ACCESSOR_GET)
		get_summed(op);
	else
		put_summed(op);
}

void accessor_sum(struct accessor_op *op)
{
	op->work.run = sum_piece;
	op->sum = 0;
	op->sum_slice = 0;
	op->sum_offset = 0;
	op->sum_left = op->length;
	neap_ready_again(op->accessor->reactor, &op->work);
}

void accessor_copy_in(struct accessor_op *op, const void *bytes, uint64_t length)
{
	uint64_t done = 0;
	for (uint32_t i = 0; done < length; i++) {
		uint64_t part = op->slices[i].length < length - done ? op->slices[i].length : length - done;
		memcpy(op->slices[i].address, (const char *)bytes + done, (size_t)part);
		done += part;
	}
}

void accessor_copy_out(const struct accessor_op *op, void *bytes)
{
	uint64_t done = 0;
	for (uint32_t i = 0; done < op->length; i++) {
		uint64_t part = part_of(op, i, done);
		memcpy((char *)bytes + done, op->slices[i].address, (size_t)part);
		done += part;
	}
}
