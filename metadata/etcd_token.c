/* The token for our user. */
#include "metadata/etcd_inside.h"
#include "metadata/etcd_token_fsm.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPLY_NS UINT64_C(2000000000) /* half of what an operation has by default: another member may be asked yet */

static struct etcd_token *token_of(const struct neap_machine *machine)
{
	return (struct etcd_token *)(uintptr_t)((const char *)machine - offsetof(struct etcd_token, machine));
}

/* Those that wait for it may be many: more than an action may post to. */
static void settled(struct etcd_token *token)
{
	token->settled = true;
	neap_ready_again(token->etcd->reactor, &token->etcd->work);
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

/* It goes into a header as it stands. */
static bool is_sendable(const char *token)
{
	size_t length = strlen(token), plain = 0;
	while (token[plain] > ' ' && token[plain] < 0x7f)
		plain++;
	return length > 0 && plain == length;
}

static void take_token(struct etcd_token *token, const char *body, size_t length)
{
	struct etcd_answer answer;
	char why[120] = "";
	int error = etcd_answer_read(body, length, &answer, why, sizeof why);
	bool none = !error && !is_sendable(answer.token);
	error = none ? NEAP_EPROTO : error;
	if (error)
		etcd_note(token->etcd, token->ask.endpoint, &token->failure, error, none ? "it gave no token that can be sent back" : why);
	else
		memcpy(token->text, answer.token, sizeof token->text);
	etcd_answer_drop(&answer);
	token->again = false;
	neap_step(&token->machine, error ? etcd_token_on_FAILED : etcd_token_on_GRANTED, 0);
}

static void answered(void *user, int error, long status, const char *body, size_t length, const char *why)
{
	struct etcd_token *token = user;
	uint32_t endpoint = token->ask.endpoint;
	etcd_ask_end(token->etcd, &token->ask);
	if (!error && status == 200) {
		take_token(token, body, length);
		return;
	}
	enum etcd_remedy remedy = etcd_judge(token->etcd, endpoint, error, status, body, length, why, &token->failure);
	token->unneeded = remedy == ETCD_NO_AUTH;
	token->again = remedy == ETCD_AGAIN || remedy == ETCD_TOKEN;
	if (token->unneeded)
		neap_log(token->etcd->reactor, NEAP_LOG_WARNING, "metadata", "%s", token->failure.why);
	neap_step(&token->machine, token->unneeded ? etcd_token_on_GRANTED : etcd_token_on_FAILED, 0);
}

/* --- actions ------------------------------------------------------------------------------------------------------------ */

static void do_ask(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_token *token = token_of(machine);
	struct neap_etcd *etcd = token->etcd;
	struct neap_json_writer body;
	(void)argument;
	neap_json_writer_init(&body, SIZE_MAX, 256);
	(void)etcd_put_user(&body, etcd->username, etcd->password); /* UTF-8: looked at when the back-end was made */
	struct etcd_send send = {.path = "/v3/auth/authenticate",
	                         .body = &body,
	                         .timeout_ns = REPLY_NS,
	                         .secret = true,
	                         .once = true,
	                         .done = answered,
	                         .user = token};
	int error = etcd_send(etcd, &token->ask, &send);
	if (!error)
		return;
	token->again = true;
	etcd_note(etcd, etcd->endpoint, &token->failure, error, neap_error_text(error));
	(void)neap_post_first(machine, etcd_token_on_FAILED, 0);
}

static void do_keep(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_token *token = token_of(machine);
	(void)argument;
	token->generation++;
	settled(token);
}

static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_token *token = token_of(machine);
	(void)argument;
	if (token->again)
		etcd_endpoint_failed(token->etcd, token->ask.endpoint);
	settled(token);
}

static void do_drop(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_token *token = token_of(machine);
	(void)argument;
	explicit_bzero(token->text, sizeof token->text);
	token->unneeded = false;
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	struct etcd_token *token = token_of(machine);
	etcd_ask_end(token->etcd, &token->ask);
	do_drop(machine, argument);
}

static neap_action_func *const actions[] = {
	[etcd_token_do_ask] = do_ask,   [etcd_token_do_keep] = do_keep,   [etcd_token_do_fail] = do_fail,
	[etcd_token_do_drop] = do_drop, [etcd_token_do_close] = do_close,
};

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct etcd_token *token = token_of(machine);
	(void)event;
	etcd_ask_end(token->etcd, &token->ask);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_etcd_token,
	.actions = actions,
	.broken = broken,
};

/* --- calls -------------------------------------------------------------------------------------------------------------- */

int etcd_token_init(struct etcd_token *token, struct neap_etcd *etcd)
{
	struct neap_reactor_class *class_;
	int error = neap_reactor_class_of(etcd->reactor, &kind, &class_);
	if (error)
		return error;
	token->etcd = etcd;
	neap_machine_begin(&token->machine, &class_->class_);
	return NEAP_OK;
}

bool etcd_token_is_settled(const struct etcd_token *token)
{
	return token->machine.state != etcd_token_ASKING;
}

bool etcd_token_is_needed(const struct etcd_token *token)
{
	return token->etcd->username && token->machine.state != etcd_token_HELD;
}

/* Who comes when one is held already is told too; unless it is about to be dropped, and asked for anew. */
void etcd_token_need(struct etcd_token *token)
{
	(void)neap_post(&token->machine, etcd_token_on_NEEDED, 0);
	if (token->machine.state == etcd_token_HELD)
		settled(token);
	neap_reactor_touch(token->etcd->reactor);
}

void etcd_token_expired(struct etcd_token *token, uint32_t generation)
{
	if (token->machine.state == etcd_token_HELD && token->generation == generation)
		neap_step(&token->machine, etcd_token_on_EXPIRED, 0);
}

void etcd_token_end(struct etcd_token *token)
{
	if (token->machine.state != etcd_token_CLOSED)
		neap_step(&token->machine, etcd_token_on_CLOSE, 0);
}
