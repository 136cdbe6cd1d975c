/* Operations on etcd. Every way out takes the call apart first and tells its owner last, so that the owner may call again, cancel others or
 * destroy the back-end. */
#include "metadata/etcd_inside.h"
#include "metadata/etcd_call_fsm.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define PAUSE_MIN_NS UINT64_C(50000000)
#define PAUSE_MAX_NS UINT64_C(500000000)

static struct etcd_call *call_of(const struct neap_machine *machine)
{
	return (struct etcd_call *)(uintptr_t)((const char *)machine - offsetof(struct etcd_call, machine));
}

static uint64_t left_ns(const struct etcd_call *call)
{
	uint64_t now_ns = neap_now(call->etcd->reactor);
	return call->deadline_ns > now_ns ? call->deadline_ns - now_ns : 0;
}

static void report(struct etcd_call *call)
{
	neap_backend_done_func *done = call->done;
	void *user = call->user;
	struct etcd_failure failure = call->failure;
	struct etcd_answer answer = call->answer;
	bool value = !failure.error && call->kind == ETCD_GET;
	call->answer.value = NULL;
	etcd_call_end(call);
	const char *text = answer.value ? answer.value : ""; /* the gateway leaves out what is empty */
	done(user, failure.error, value ? text : NULL, value ? answer.length : 0, failure.error ? failure.why : "");
	etcd_answer_drop(&answer);
}

/* --- our lease: which keys are under it -------------------------------------------------------------------------------------- */

static void remember_leased(struct neap_etcd *etcd, const char *key)
{
	uint64_t hash = neap_backend_hash(key, strlen(key)), *free_one = NULL;
	for (uint32_t i = 0; i < ETCD_LEASED_MAX; i++) {
		if (etcd->lease.keys[i] == hash)
			return;
		if (!etcd->lease.keys[i])
			free_one = &etcd->lease.keys[i];
	}
	if (free_one)
		*free_one = hash;
	else
		etcd->lease.more = true;
}

/* True: it was the last one. */
static bool forget_leased(struct neap_etcd *etcd, const char *key)
{
	uint64_t hash = neap_backend_hash(key, strlen(key)), left = 0;
	bool was = false;
	for (uint32_t i = 0; i < ETCD_LEASED_MAX; i++) {
		if (etcd->lease.keys[i] == hash) {
			etcd->lease.keys[i] = 0;
			was = true;
		}
		left += etcd->lease.keys[i] != 0;
	}
	return was && left == 0 && !etcd->lease.more && etcd->lease.id;
}

static void forget_lease(struct neap_etcd *etcd)
{
	memset(&etcd->lease, 0, sizeof etcd->lease);
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

/* What came is no good answer: what to do about it is posted. */
static void remedy(struct etcd_call *call, enum etcd_remedy remedy)
{
	struct neap_etcd *etcd = call->etcd;
	struct neap_machine *machine = &call->machine;
	if (remedy == ETCD_TOKEN && etcd->username && !call->new_token) {
		call->new_token = true;
		etcd_token_expired(&etcd->token, call->token_generation);
		neap_step(machine, machine->state == etcd_call_RENEWING ? etcd_call_on_AGAIN : etcd_call_on_PLAN, 0);
	} else if (remedy == ETCD_LEASE && machine->state == etcd_call_ASKING && call->leased && !call->new_lease) {
		call->leased = false;
		call->new_lease = true;
		if (call->lease == etcd->lease.id)
			forget_lease(etcd);
		neap_step(machine, etcd_call_on_PLAN, 0);
	} else {
		neap_step(machine, remedy == ETCD_AGAIN ? etcd_call_on_AGAIN : etcd_call_on_FAILED, 0);
	}
}

/* What answers so is no etcd; another of those that were given may be. */
static bool is_no_member(const struct neap_etcd *etcd, int error)
{
	return etcd->endpoint_count > 1 && (error == NEAP_EPROTO || error == NEAP_EJSON);
}

/* A good answer's content, or false: the remedy is under way. */
static bool take(struct etcd_call *call, int error, long status, const char *body, size_t length, const char *why)
{
	struct neap_etcd *etcd = call->etcd;
	uint32_t endpoint = call->ask.endpoint;
	char reason[160] = "";
	etcd_ask_end(etcd, &call->ask);
	if (error || status != 200) {
		struct etcd_failure failure;
		enum etcd_remedy what = etcd_judge(etcd, endpoint, error, status, body, length, why, &failure);
		if (failure.error != NEAP_ETIMEDOUT || !call->failure.error) /* what an earlier attempt met says more than that */
			call->failure = failure;
		if (what == ETCD_FAIL && is_no_member(etcd, failure.error))
			what = ETCD_AGAIN;
		if (what == ETCD_AGAIN)
			etcd_endpoint_failed(etcd, endpoint);
		remedy(call, what);
		return false;
	}
	etcd_answer_drop(&call->answer);
	error = etcd_answer_read(body, length, &call->answer, reason, sizeof reason);
	if (error) {
		etcd_note(etcd, endpoint, &call->failure, error, reason);
		etcd_endpoint_failed(etcd, endpoint);
		neap_step(&call->machine, is_no_member(etcd, error) ? etcd_call_on_AGAIN : etcd_call_on_FAILED, 0);
	}
	return !error;
}

static void not_there(struct etcd_call *call, int error, const char *what)
{
	etcd_note(call->etcd, call->etcd->endpoint, &call->failure, error, what);
	neap_step(&call->machine, etcd_call_on_FAILED, 0);
}

static void lease_answered(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct etcd_call *call = user;
	struct neap_etcd *etcd = call->etcd;
	if (!take(call, error, status, body, length, why))
		return;
	uint64_t seconds = (call->lease_ns + 999999999u) / 1000000000u;
	bool alive = call->answer.ttl && call->answer.id;
	if (!alive && !etcd->lease.id) {
		not_there(call, NEAP_EPROTO, "it granted a lease that has no time or no name");
		return;
	}
	if (!alive) { /* the one we had is no more */
		forget_lease(etcd);
	} else {
		if (etcd->lease.id != call->answer.id)
			forget_lease(etcd);
		etcd->lease.id = call->lease = call->answer.id;
		etcd->lease.seconds = seconds;
		call->leased = true;
	}
	neap_step(&call->machine, etcd_call_on_PLAN, 0);
}

/* Ours already, word for word: a former attempt of this call, whose answer was lost, or an earlier one. */
static bool is_same(const struct etcd_call *call)
{
	const struct etcd_answer *answer = &call->answer;
	return answer->found && answer->length == call->value_length &&
	       (call->value_length == 0 || memcmp(answer->value, call->value, call->value_length) == 0);
}

static void set_answered(struct etcd_call *call)
{
	if (call->create && !call->answer.succeeded && !is_same(call)) {
		not_there(call, NEAP_ETAKEN, "the key has a value already");
		return;
	}
	neap_step(&call->machine, etcd_call_on_ANSWERED, 0);
}

/* What is there without a lease, though one is asked for, has to be put anew. */
static void touch_answered(struct etcd_call *call)
{
	call->lease = call->answer.lease;
	if (!call->answer.found || (call->lease_ns && !call->lease))
		not_there(call, NEAP_EMETADATA, "there is no such key");
	else
		neap_step(&call->machine, call->lease_ns ? etcd_call_on_RENEW : etcd_call_on_ANSWERED, 0);
}

static void answered(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct etcd_call *call = user;
	if (!take(call, error, status, body, length, why))
		return;
	if (call->kind == ETCD_SET)
		set_answered(call);
	else if (call->kind == ETCD_TOUCH)
		touch_answered(call);
	else if (call->kind == ETCD_GET && !call->answer.found)
		not_there(call, NEAP_EMETADATA, "there is no such key");
	else
		neap_step(&call->machine,
		          call->kind == ETCD_REMOVE && forget_leased(call->etcd, call->key) ? etcd_call_on_REVOKE : etcd_call_on_ANSWERED, 0);
}

static void renewed(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct etcd_call *call = user;
	if (!take(call, error, status, body, length, why))
		return;
	if (call->answer.ttl)
		neap_step(&call->machine, etcd_call_on_ANSWERED, 0);
	else
		not_there(call, NEAP_EMETADATA, "its lease has ended");
}

/* Whatever it says: a lease without keys ends by itself. */
static void revoked(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct etcd_call *call = user;
	(void)error, (void)status, (void)body, (void)length, (void)why;
	etcd_ask_end(call->etcd, &call->ask);
	neap_step(&call->machine, etcd_call_on_ANSWERED, 0);
}

/* --- actions ------------------------------------------------------------------------------------------------------------ */

static void do_plan(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	struct neap_etcd *etcd = call->etcd;
	(void)argument;
	if (left_ns(call) == 0)
		(void)neap_post_first(machine, etcd_call_on_FAILED, 0);
	else if (etcd_token_is_needed(&etcd->token))
		(void)neap_post_first(machine, etcd_call_on_NEED_TOKEN, 0);
	else if (call->kind == ETCD_SET && call->lease_ns && !call->leased)
		(void)neap_post_first(machine, etcd_call_on_NEED_LEASE, 0);
	else
		(void)neap_post_first(machine, etcd_call_on_SEND, 0);
}

static void do_await(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	etcd_token_need(&call_of(machine)->etcd->token);
}

static void ask(struct etcd_call *call, const char *path, struct neap_json_writer *body, neap_http_done_func *done)
{
	struct neap_etcd *etcd = call->etcd;
	struct etcd_send send = {
		.path = path, .body = body, .timeout_ns = left_ns(call), .shows_token = true, .done = done, .user = call};
	call->token_generation = etcd->token.generation;
	int error = etcd_send(etcd, &call->ask, &send);
	if (!error)
		return;
	etcd_note(etcd, etcd->endpoint, &call->failure, error, neap_error_text(error));
	bool revoking = call->machine.state == etcd_call_REVOKING;
	(void)neap_post_first(&call->machine, revoking ? etcd_call_on_ANSWERED : etcd_call_on_FAILED, 0);
}

static void ask_number(struct etcd_call *call, const char *path, const char *name, uint64_t value, neap_http_done_func *done)
{
	struct neap_json_writer body;
	neap_json_writer_init(&body, SIZE_MAX, 64);
	etcd_put_number(&body, name, value);
	ask(call, path, &body, done);
}

static void do_lease(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	const struct neap_etcd *etcd = call->etcd;
	uint64_t seconds = (call->lease_ns + 999999999u) / 1000000000u;
	(void)argument;
	if (etcd->lease.id && etcd->lease.seconds == seconds)
		ask_number(call, "/v3/lease/keepalive", "ID", etcd->lease.id, lease_answered);
	else
		ask_number(call, "/v3/lease/grant", "TTL", seconds, lease_answered);
}

static void do_ask(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	static const char *const paths[] = {
		[ETCD_GET] = "/v3/kv/range", [ETCD_SET] = "/v3/kv/put", [ETCD_REMOVE] = "/v3/kv/deleterange", [ETCD_TOUCH] = "/v3/kv/range"};
	uint64_t lease = call->leased ? call->lease : 0;
	struct neap_json_writer body;
	(void)argument;
	if (lease == call->etcd->lease.id && lease) /* before it is there: whoever removes another key must not end its lease meanwhile */
		remember_leased(call->etcd, call->key);
	neap_json_writer_init(&body, SIZE_MAX, 512 + call->value_length * 4 / 3);
	if (call->create)
		etcd_put_create(&body, call->key, call->value, call->value_length, lease);
	else if (call->kind == ETCD_SET)
		etcd_put_value(&body, call->key, call->value, call->value_length, lease);
	else
		etcd_put_range(&body, call->key, call->kind == ETCD_TOUCH);
	ask(call, call->create ? "/v3/kv/txn" : paths[call->kind], &body, answered);
}

static void do_renew(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	(void)argument;
	ask_number(call, "/v3/lease/keepalive", "ID", call->lease, renewed);
}

static void do_revoke(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	uint64_t id = call->etcd->lease.id;
	(void)argument;
	forget_lease(call->etcd);
	ask_number(call, "/v3/lease/revoke", "ID", id, revoked);
}

static void do_deliver(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	(void)argument;
	call->failure.error = NEAP_OK;
	report(call);
}

static void do_pause(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	call_of(machine)->attempts++;
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	(void)argument;
	if (!call->failure.error)
		etcd_note(call->etcd, call->etcd->endpoint, &call->failure, NEAP_ETIMEDOUT, "no answer in time");
	report(call);
}

/* No token came. */
static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_call *call = call_of(machine);
	char what[80];
	(void)snprintf(what, sizeof what, "no token for our user within %" PRIu64 " ms", (call->deadline_ns - call->began_ns) / 1000000);
	if (!call->failure.error)
		etcd_note(call->etcd, call->etcd->endpoint, &call->failure, NEAP_ETIMEDOUT, what);
	do_fail(machine, argument);
}

static neap_action_func *const actions[] = {
	[etcd_call_do_plan] = do_plan,       [etcd_call_do_await] = do_await,     [etcd_call_do_lease] = do_lease,
	[etcd_call_do_ask] = do_ask,         [etcd_call_do_renew] = do_renew,     [etcd_call_do_revoke] = do_revoke,
	[etcd_call_do_deliver] = do_deliver, [etcd_call_do_pause] = do_pause,     [etcd_call_do_fail] = do_fail,
	[etcd_call_do_give_up] = do_give_up,
};

/* None while a member is left that was not asked in this round; then longer with each round. */
static uint64_t pause_ns(const struct etcd_call *call)
{
	uint32_t attempts = call->attempts + 1; /* the action that counts this one comes after */
	uint32_t rounds = attempts / call->etcd->endpoint_count;
	if (attempts % call->etcd->endpoint_count != 0)
		return 0;
	return neap_backend_pause_ns(call->etcd->reactor, rounds, PAUSE_MIN_NS, PAUSE_MAX_NS);
}

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct etcd_call *call = call_of(machine);
	if (timeout_class == etcd_call_timeout_TOTAL)
		return call->deadline_ns;
	uint64_t due = now_ns + pause_ns(call);
	return due < call->deadline_ns ? due : call->deadline_ns;
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct etcd_call *call = call_of(machine);
	(void)event;
	etcd_note(call->etcd, call->etcd->endpoint, &call->failure, NEAP_EINTERNAL, neap_error_text(NEAP_EINTERNAL));
	report(call);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_etcd_call,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct etcd_call),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls -------------------------------------------------------------------------------------------------------------- */

int etcd_calls_init(struct neap_etcd *etcd, uint32_t calls_max)
{
	int error = neap_reactor_class_of(etcd->reactor, &kind, &etcd->call_class);
	return error ? error : neap_pool_create(&etcd->calls, etcd->reactor, sizeof(struct etcd_call), calls_max);
}

struct etcd_call *etcd_call_take(struct neap_etcd *etcd, enum etcd_kind what, uint64_t timeout_ns, neap_backend_done_func *done, void *user)
{
	uint64_t now_ns = neap_now(etcd->reactor);
	struct etcd_call *call = neap_pool_take(&etcd->calls);
	if (!call)
		return NULL;
	struct neap_machine machine = call->machine; /* its generation goes on */
	*call = (struct etcd_call){.machine = machine, .etcd = etcd, .done = done, .user = user, .kind = (uint8_t)what, .began_ns = now_ns};
	call->deadline_ns = timeout_ns < UINT64_MAX - now_ns ? now_ns + timeout_ns : UINT64_MAX - 1;
	neap_machine_begin(&call->machine, &etcd->call_class->class_);
	return call;
}

void etcd_call_start(struct etcd_call *call)
{
	(void)neap_post(&call->machine, etcd_call_on_PLAN, 0);
	neap_reactor_touch(call->etcd->reactor);
}

void etcd_call_end(struct etcd_call *call)
{
	struct neap_etcd *etcd = call->etcd;
	etcd_ask_end(etcd, &call->ask);
	etcd_answer_drop(&call->answer);
	if (call->value)
		neap_release(etcd->reactor, call->value, call->value_length);
	etcd->value_bytes -= call->value_length;
	call->value = NULL;
	call->value_length = 0;
	neap_machine_end(&call->machine);
	neap_pool_give(&etcd->calls, call);
}

/* A callee may destroy the back-end. */
void etcd_calls_token_settled(struct neap_etcd *etcd)
{
	const struct etcd_token *token = &etcd->token;
	struct etcd_call *call;
	uint32_t index = 0;
	while (!etcd->closing && (call = neap_pool_next(&etcd->calls, &index)) != NULL) {
		if (call->machine.state != etcd_call_AWAITING || !etcd_token_is_settled(token))
			continue;
		bool held = !etcd_token_is_needed(token);
		if (!held)
			call->failure = token->failure;
		neap_step(&call->machine, held ? etcd_call_on_PLAN : token->again ? etcd_call_on_AGAIN : etcd_call_on_FAILED, 0);
	}
}
