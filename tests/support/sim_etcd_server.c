/* The members, and what they are asked. */
#include "tests/support/sim_etcd_inside.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

/* --- operations ---------------------------------------------------------------------------------------------------------------- */

static void write_found(FILE *out, const struct sim_etcd_value *at, bool key_only)
{
	if (!at)
		return;
	fprintf(out, ",\"kvs\":[");
	sim_etcd_write_value(out, at, key_only);
	fprintf(out, "],\"count\":\"1\"");
}

static struct sim_message *range(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	const struct sim_etcd_state *state = &member->etcd->state;
	struct sim_etcd_text text;
	sim_etcd_text_begin(&text);
	fputc('{', text.out);
	sim_etcd_write_header(text.out, member, state->revision);
	write_found(text.out, sim_etcd_find(state, request->key), request->keys_only);
	fputc('}', text.out);
	return sim_etcd_answer(&text, 200);
}

static bool put_value(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	struct sim_etcd_state *state = &member->etcd->state;
	if (request->lease && !sim_etcd_lease_find(state, request->lease))
		return false;
	sim_etcd_put(state, request->key, request->value ? request->value : "", request->length, request->lease);
	return true;
}

static struct sim_message *no_lease(void)
{
	return sim_etcd_refuse(404, 5, "etcdserver: requested lease not found");
}

static struct sim_message *put(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	return put_value(member, request) ? sim_etcd_say(member, "") : no_lease();
}

/* Only the branch that is taken needs its lease. */
static struct sim_message *transact(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	struct sim_etcd_server *etcd = member->etcd;
	const struct sim_etcd_state *state = &etcd->state;
	const struct sim_etcd_value *at = sim_etcd_find(state, request->key);
	struct sim_etcd_text text;
	etcd->overwritten += at && etcd->overwrites && (at->length != request->length || memcmp(at->value, request->value, at->length) != 0);
	if (!request->compares || !at || etcd->overwrites)
		return put_value(member, request) ? sim_etcd_say(member, ",\"succeeded\":true,\"responses\":[{\"response_put\":{\"header\":{}}}]") : no_lease();
	sim_etcd_text_begin(&text);
	fputc('{', text.out);
	sim_etcd_write_header(text.out, member, state->revision);
	fprintf(text.out, ",\"responses\":[{\"response_range\":{\"header\":{\"revision\":\"%" PRIu64 "\"}", state->revision);
	write_found(text.out, at, false);
	fprintf(text.out, "}}]}");
	return sim_etcd_answer(&text, 200);
}

static struct sim_message *delete_range(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	return sim_etcd_say(member, sim_etcd_remove(&member->etcd->state, request->key) ? ",\"deleted\":\"1\"" : "");
}

static struct sim_message *say_lease(const struct sim_etcd_member *member, uint64_t id, uint64_t seconds)
{
	char rest[100];
	(void)snprintf(rest, sizeof rest, ",\"ID\":\"%" PRIu64 "\",\"TTL\":\"%" PRIu64 "\"", id, seconds);
	return sim_etcd_say(member, rest);
}

static struct sim_message *grant(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	return say_lease(member, sim_etcd_lease_grant(&member->etcd->state, request->ttl), request->ttl);
}

/* It is a stream of one answer; of a lease that is no more it has no time. */
static struct sim_message *keep_alive(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	uint64_t seconds = 0;
	struct sim_etcd_text text;
	bool kept = sim_etcd_lease_keep(&member->etcd->state, request->id, &seconds);
	sim_etcd_text_begin(&text);
	fprintf(text.out, "{\"result\":{");
	sim_etcd_write_header(text.out, member, member->etcd->state.revision);
	fprintf(text.out, ",\"ID\":\"%" PRIu64 "\"", request->id);
	if (kept)
		fprintf(text.out, ",\"TTL\":\"%" PRIu64 "\"", seconds);
	fprintf(text.out, "}}\n");
	return sim_etcd_answer(&text, 200);
}

static struct sim_message *revoke(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	return sim_etcd_lease_revoke(&member->etcd->state, request->id) ? sim_etcd_say(member, "") : no_lease();
}

static struct sim_message *authenticate(struct sim_etcd_member *member, const struct sim_etcd_request *request)
{
	struct sim_etcd_server *etcd = member->etcd;
	char rest[60];
	if (!etcd->password)
		return sim_etcd_refuse(412, 9, "etcdserver: authentication is not enabled");
	if (!request->password || strcmp(request->password, etcd->password) != 0)
		return sim_etcd_refuse(400, 3, "etcdserver: authentication failed, invalid user ID or password");
	etcd->shown_ns[++etcd->tokens % SIM_ETCD_TOKENS_MAX] = etcd->state.sim->now_ns;
	(void)snprintf(rest, sizeof rest, ",\"token\":\"sim.%" PRIu64 "\"", etcd->tokens);
	return sim_etcd_say(member, rest);
}

const char *sim_etcd_refused_token(struct sim_etcd_server *etcd, const char *token)
{
	uint64_t number = token && strncmp(token, "sim.", 4) == 0 ? strtoull(token + 4, NULL, 10) : 0;
	uint64_t now_ns = etcd->state.sim->now_ns, *shown_ns = &etcd->shown_ns[number % SIM_ETCD_TOKENS_MAX];
	if (!etcd->password)
		return NULL;
	if (!token)
		return "etcdserver: user name is empty";
	bool ended = number + SIM_ETCD_TOKENS_MAX <= etcd->tokens || *shown_ns + etcd->token_ns < now_ns;
	etcd->expired_tokens += ended && number >= etcd->taken_from;
	etcd->refused_tokens++;
	if (number > etcd->tokens || number < etcd->taken_from || ended)
		return "etcdserver: invalid auth token";
	if (number < etcd->fresh_from)
		return "etcdserver: revision of auth store is old";
	etcd->refused_tokens--;
	if (etcd->token_renews)
		*shown_ns = now_ns;
	return NULL;
}

/* --- requests ------------------------------------------------------------------------------------------------------------------ */

typedef struct sim_message *operation_func(struct sim_etcd_member *member, const struct sim_etcd_request *request);

static const struct {
	const char *path;
	operation_func *run;
} operations[] = {
	{"/v3/kv/range", range},       {"/v3/kv/put", put},           {"/v3/kv/txn", transact},
	{"/v3/kv/deleterange", delete_range}, {"/v3/lease/grant", grant}, {"/v3/lease/keepalive", keep_alive},
	{"/v3/lease/revoke", revoke}, {"/v3/auth/authenticate", authenticate},
};

static operation_func *operation_of(const char *url)
{
	for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
		if (strstr(url, operations[i].path))
			return operations[i].run;
	return NULL;
}

static struct sim_message *refuse_token(const char *said)
{
	return strstr(said, "invalid auth token") ? sim_etcd_refuse(401, 16, said) : sim_etcd_refuse(400, 3, said);
}

static struct sim_message *operate(struct sim_etcd_member *member, const struct sim_etcd_request *request, const struct sim_http_asked *asked)
{
	struct sim_etcd_server *etcd = member->etcd;
	operation_func *run = operation_of(asked->url);
	if (!run)
		return sim_message_text(0, 404, "Not Found\n");
	if (etcd->state.stopped)
		return sim_etcd_refuse(503, 14, "etcdserver: no leader");
	const char *refused = run == authenticate ? NULL : sim_etcd_refused_token(etcd, asked->token);
	if (refused)
		return refuse_token(refused);
	if (etcd->refusal && run != authenticate)
		return sim_etcd_refuse(etcd->refusal_status, etcd->refusal_code, etcd->refusal);
	return run(member, request);
}

static struct sim_message *answer(struct sim_http_server *http, const struct sim_http_asked *asked)
{
	struct sim_etcd_member *member = (struct sim_etcd_member *)http;
	struct sim_etcd_request request;
	struct sim_message *message = NULL;
	bool watches = strstr(asked->url, "/v3/watch") != NULL;
	if (!sim_etcd_request_read(&request, asked->body, asked->length))
		message = sim_etcd_refuse(400, 3, "json: cannot unmarshal");
	else if (watches)
		sim_etcd_watch(member, &request, asked);
	else
		message = operate(member, &request, asked);
	sim_etcd_request_drop(&request);
	return message;
}

/* --- members ------------------------------------------------------------------------------------------------------------------- */

static void init_member(struct sim_etcd_server *etcd, uint32_t index)
{
	static const uint64_t lags[] = {0, 0, 5 * MS, 400 * MS, 3000 * MS};
	struct sim *sim = etcd->state.sim;
	struct sim_etcd_member *member = &etcd->members[index];
	sim_http_server_init(&member->http, sim, answer);
	(void)snprintf(member->at, sizeof member->at, "http://10.9.9.%u:", index + 1);
	member->http.at = member->at;
	member->http.gone = sim_etcd_watch_gone;
	member->http.next = index + 1 < etcd->member_count ? &etcd->members[index + 1].http : NULL;
	member->etcd = etcd;
	member->applied = etcd->state.revision;
	member->lag_ns = lags[sim_random_below(&sim->random[SIM_NET], sizeof lags / sizeof *lags)];
}

void sim_etcd_server_init(struct sim_etcd_server *etcd, struct sim *sim, uint32_t members)
{
	struct sim_random *random = &sim->random[SIM_NET];
	*etcd = (struct sim_etcd_server){.member_count = members ? members : 1 + (uint32_t)sim_random_below(random, SIM_ETCD_MEMBERS_MAX)};
	sim_etcd_state_init(&etcd->state, sim);
	etcd->state.advanced = sim_etcd_watch_advanced;
	etcd->taken_from = etcd->fresh_from = 1;
	etcd->token_renews = sim_random_chance(random, 500);
	etcd->token_ns = (1000 + sim_random_below(random, 30000)) * MS;
	for (uint32_t i = 0; i < etcd->member_count; i++)
		init_member(etcd, i);
}

void sim_etcd_server_release(struct sim_etcd_server *etcd)
{
	for (uint32_t i = 0; i < etcd->member_count; i++)
		sim_http_server_release(&etcd->members[i].http);
	sim_etcd_state_release(&etcd->state);
}

void sim_etcd_server_put(struct sim_etcd_server *etcd, const char *key, const char *value)
{
	if (value)
		sim_etcd_put(&etcd->state, key, value, strlen(value), 0);
	else
		(void)sim_etcd_remove(&etcd->state, key);
}

void sim_etcd_member_stop(struct sim_etcd_member *member, bool softly)
{
	if (softly)
		sim_etcd_watch_bid_farewell(member);
	sim_server_stop(&member->http.server);
}

/* It has caught up before it answers. */
void sim_etcd_member_start(struct sim_etcd_member *member)
{
	member->http.server.down = false;
	member->applied = member->etcd->state.revision;
}

void sim_etcd_server_stop(struct sim_etcd_server *etcd)
{
	for (uint32_t i = 0; i < etcd->member_count; i++)
		sim_etcd_member_stop(&etcd->members[i], false);
	etcd->state.stopped = true;
}

static void lead_again(struct sim_etcd_server *etcd)
{
	if (etcd->state.stopped)
		sim_etcd_lead_anew(&etcd->state);
}

/* Tokens are in the members' memory. A member that is still up ends first where all is lost. */
void sim_etcd_server_start(struct sim_etcd_server *etcd, bool empty)
{
	if (empty) {
		sim_etcd_server_stop(etcd);
		sim_etcd_begin_anew(&etcd->state);
	}
	sim_etcd_server_forget_tokens(etcd);
	for (uint32_t i = 0; i < etcd->member_count; i++)
		sim_etcd_member_start(&etcd->members[i]);
	lead_again(etcd);
}

static void elect(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_etcd_server *etcd = user;
	(void)argument;
	if (sim->now_ns >= etcd->leaderless_until_ns)
		lead_again(etcd);
}

void sim_etcd_server_lose_leader(struct sim_etcd_server *etcd, uint64_t ns)
{
	etcd->state.stopped = true;
	etcd->leaderless_until_ns = etcd->state.sim->now_ns + ns;
	sim_at(etcd->state.sim, etcd->leaderless_until_ns, elect, etcd, 0);
}

void sim_etcd_server_forget_tokens(struct sim_etcd_server *etcd)
{
	etcd->taken_from = etcd->tokens + 1;
}

void sim_etcd_server_change_users(struct sim_etcd_server *etcd)
{
	etcd->fresh_from = etcd->tokens + 1;
}
