/* Calls to owners. While it is not known whether a call was executed, the same owner is asked again under the same request id: it does it
 * once, or answers from memory. What that was for comes out as one of three: an answer, a refusal, or the end of asking. */
#include "store/accessor/inside.h"
#include <string.h>

#define PAUSE_MAX_NS UINT64_C(1000000000)
#define LONGER_NS UINT64_C(1000000) /* than the operation has: it is the operation's own deadline that ends it */

static void begin(struct accessor_op *op, const struct ask *ask)
{
	if (op->ask == ask)
		return;
	op->ask = ask;
	op->attempts = 0;
	op->perhaps = op->cut = op->has_id = false;
	op->asked_ns = accessor_now(op);
}

static void end(struct accessor_op *op)
{
	if (op->has_id)
		neap_rpc_id_finish(op->peer->channel, &op->id);
	op->has_id = false;
	op->ask = NULL;
}

/* How long one attempt may take: 0 when the time for all is over. */
static uint64_t time_left(const struct accessor_op *op, const struct ask *ask)
{
	const struct neap_accessor_options *options = &op->accessor->options;
	uint64_t now_ns = accessor_now(op), until_ns = ask->cleans ? op->cleanup_ns : op->deadline_ns;
	uint64_t left_ns = until_ns > now_ns ? until_ns - now_ns : 0, timeout_ns = options->call_timeout_ns;
	/* Bytes take their time: half of what is left. The last attempt of what may be tried nowhere else gets all. */
	uint64_t share_ns = op->kind != ACCESSOR_GET && op->attempts + 1 >= options->attempts_max ? left_ns : left_ns / 2;
	if (ask->moves && share_ns > timeout_ns)
		timeout_ns = share_ns;
	return left_ns < timeout_ns ? left_ns : timeout_ns;
}

static void give_up(struct accessor_op *op)
{
	const struct ask *ask = op->ask;
	bool perhaps = op->perhaps;
	end(op);
	ask->given_up(op, perhaps);
}

/* No answer. */
static void missed(struct accessor_op *op, bool perhaps, int status, const char *why)
{
	const struct ask *ask = op->ask;
	struct neap_accessor *accessor = op->accessor;
	uint32_t attempts_max = ask->cleans ? accessor->options.revokes_max : accessor->options.attempts_max;
	op->perhaps = op->perhaps || perhaps;
	op->quiet = op->quiet && !perhaps;
	op->attempts++;
	if (!ask->blameless)
		accessor_blame(op, NEAP_STORE_RPC_FAIL, "%s", why);
	if (!ask->cleans && accessor_now(op) >= op->deadline_ns)
		accessor_stop(op, NEAP_ETIMEDOUT);
	bool forgotten = status == NEAP_ENOSESSION;
	if (forgotten && !op->perhaps && op->has_id) { /* it never was sent under that id: another does */
		neap_rpc_id_finish(op->peer->channel, &op->id);
		op->has_id = false;
		forgotten = false;
		status = NEAP_EAGAIN;
	}
	bool again = !op->cut && !forgotten && op->attempts < attempts_max && time_left(op, ask) > 0 &&
	             (op->perhaps || ask->insist || status == NEAP_EAGAIN);
	if (!again) {
		give_up(op);
		return;
	}
	accessor->stats.repeats++;
	if (ask->lost)
		ask->lost(op);
	else
		accessor_step(op, ask->lost_event);
}

static void answered(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct accessor_op *op = user;
	const struct ask *ask = op->ask;
	bool refused = outcome->result == NEAP_RPC_REFUSED && outcome->executed == NEAP_RPC_EXECUTED;
	op->call = 0;
	neap_store_peer_pins_told(op->peer, &op->riding, refused || outcome->result == NEAP_RPC_OK);
	if (outcome->result == NEAP_RPC_OK) {
		end(op);
		ask->answered(op, reply);
	} else if (refused) {
		if (!ask->blameless)
			accessor_blame(op, outcome->status, "%s", outcome->why);
		op->outcome.retry_after_ms = outcome->retry_after_ms;
		op->quiet = op->quiet && outcome->status != NEAP_STORE_TRANSFER_FAIL;
		end(op);
		ask->refused(op, outcome->status);
	} else {
		missed(op, outcome->executed != NEAP_RPC_NOT_EXECUTED, outcome->status, outcome->why);
	}
}

void accessor_ask(struct accessor_op *op, const struct ask *ask, const void *request)
{
	begin(op, ask);
	uint64_t timeout_ns = time_left(op, ask);
	int error = timeout_ns ? NEAP_OK : NEAP_ETIMEDOUT;
	if (op->stopped && !ask->insist) { /* meanwhile */
		op->cut = true;
		error = NEAP_ECANCELED;
	}
	if (!error && ask->method->once && !op->has_id) {
		error = neap_rpc_id_take(op->peer->channel, &op->id);
		op->has_id = !error;
	}
	if (!error)
		error = neap_rpc_call(op->peer->channel, ask->method, request, timeout_ns + LONGER_NS,
		                      op->has_id ? &op->id : NULL, answered, op, &op->call);
	if (error) {
		neap_store_peer_pins_told(op->peer, &op->riding, false);
		missed(op, false, error, neap_error_text(error));
	}
}

void accessor_cut(struct accessor_op *op)
{
	op->cut = true;
	if (op->call) {
		neap_rpc_cancel(op->accessor->client, op->call);
	} else if (op->ask) {
		neap_timer_cancel(op->accessor->reactor, &op->pause);
		give_up(op);
	} else if (neap_timer_active(&op->pause)) { /* before a question of its own: that sees that the time is over */
		neap_timer_cancel(op->accessor->reactor, &op->pause);
		accessor_step(op, op->pause_event);
	}
}

static void pause_over(struct neap_timer *timer, void *user)
{
	struct accessor_op *op = user;
	(void)timer;
	accessor_step(op, op->pause_event);
}

void accessor_pause(struct accessor_op *op, uint8_t event)
{
	struct neap_accessor *accessor = op->accessor;
	uint32_t shift = op->attempts > 1 ? op->attempts - 1 : 0;
	uint64_t pause_ns = accessor->options.backoff_ns << (shift < 10 ? shift : 10);
	op->pause_event = event;
	(void)neap_timer_start(accessor->reactor, &op->pause, accessor_now(op) + (pause_ns < PAUSE_MAX_NS ? pause_ns : PAUSE_MAX_NS),
	                       pause_over, op);
}

struct neap_rpc_list accessor_ride(struct accessor_op *op, const struct ask *ask, struct finished_pin *items)
{
	begin(op, ask);
	if (op->attempts > 0) /* answered from memory, perhaps: they would not be read */
		return (struct neap_rpc_list){0};
	return (struct neap_rpc_list){items, neap_store_peer_take_pins(op->peer, items, &op->riding)};
}
