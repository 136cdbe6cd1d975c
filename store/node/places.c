#include "store/node/inside.h"
#include <stdio.h>
#include <string.h>

#define EXISTS_ROUNDS 2u /* times that a key is there for one question and gone for the next */
/* How long an answer about candidates serves others, and for how much of the room that it promised: so that a crowd does not go on to a
 * place that it has filled. */
#define HINT_NS (UINT64_C(250) * 1000000)
#define HINT_SHARE 16u

struct node_places_call {
	struct neap_key_call call;
	struct node_places *places;
	uint8_t kind;
	uint32_t count;
	struct node_question *questions[NODE_QUESTIONS_A_CALL];
	union {
		struct neap_key_write_item write[NODE_QUESTIONS_A_CALL];
		struct neap_key_read_item read[NODE_QUESTIONS_A_CALL];
	} items;
	union {
		struct neap_key_candidate candidates[NODE_QUESTIONS_A_CALL * NEAP_ROUTES_MAX];
		struct neap_key_replica replicas[NODE_QUESTIONS_A_CALL * NEAP_ROUTES_MAX];
	} room;
};

static void ask(struct neap_ready *ready);

int node_places_create(struct node_places *places, struct neap_store *store, uint32_t operations_max)
{
	struct neap_reactor *reactor = store->reactor;
	places->store = store;
	places->ask.run = ask;
	/* An operation that was canceled leaves its question behind. */
	int error = neap_pool_create(&places->questions, reactor, sizeof(struct node_question), 2 * operations_max);
	for (uint32_t kind = 0; kind < NODE_ASK_KINDS && !error; kind++) {
		error = neap_pool_create(&places->calls[kind], reactor, sizeof(struct node_places_call), NODE_CALLS_MAX);
		places->waiting[kind].end = &places->waiting[kind].first;
	}
	return error;
}

static void give_back(struct node_places *places, struct node_question *question)
{
	if (question->outside)
		neap_release(places->store->reactor, question->outside, question->key_length);
	question->outside = NULL;
	neap_pool_give(&places->questions, question);
}

void node_places_destroy(struct node_places *places)
{
	struct node_question *question;
	struct node_places_call *call;
	if (!places->store)
		return;
	neap_ready_cancel(places->store->reactor, &places->ask);
	for (uint32_t kind = 0; kind < NODE_ASK_KINDS; kind++) {
		for (uint32_t index = 0; (call = neap_pool_next(&places->calls[kind], &index)) != NULL;)
			neap_key_cancel(&places->store->directory, &call->call);
		neap_pool_destroy(&places->calls[kind]);
	}
	for (uint32_t index = 0; (question = neap_pool_next(&places->questions, &index)) != NULL;)
		give_back(places, question);
	neap_pool_destroy(&places->questions);
	places->store = NULL;
}

/* --- answers --------------------------------------------------------------------------------------------------------------- */

static void answer(struct node_places *places, struct node_question *question, int error, const struct neap_route *routes, uint32_t count,
                   const char *why)
{
	struct node_question asked = *question;
	give_back(places, question);
	asked.answered(asked.user, asked.question, error, routes, count, why);
}

static void wait(struct node_places *places, uint32_t kind, struct node_question *question)
{
	struct node_questions *waiting = &places->waiting[kind];
	question->next = NULL;
	*waiting->end = question;
	waiting->end = &question->next;
	waiting->count++;
	neap_ready_again(places->store->reactor, &places->ask);
}

static uint32_t routes_of(const struct neap_key_replica *replicas, uint32_t count, struct neap_route *routes)
{
	if (count > NEAP_ROUTES_MAX)
		count = NEAP_ROUTES_MAX;
	for (uint32_t i = 0; i < count; i++) {
		routes[i] = (struct neap_route){.size = replicas[i].size, .generation = replicas[i].generation};
		node_place(&routes[i].place, replicas[i].client, replicas[i].host, replicas[i].port);
	}
	return count;
}

static void answer_replicas(struct node_places_call *call, uint32_t index)
{
	const struct neap_key_read_item *item = &call->items.read[index];
	struct node_question *question = call->questions[index];
	struct neap_route routes[NEAP_ROUTES_MAX];
	uint32_t count = item->error ? 0 : routes_of(&call->room.replicas[item->first], item->count, routes);
	if (question->exists && item->error == NEAP_STORE_OBJECT_NOT_FOUND && question->rounds++ < EXISTS_ROUNDS) {
		question->exists = false;
		wait(call->places, NODE_ASK_CANDIDATES, question);
		return;
	}
	int error = item->error;
	if (question->exists)
		error = error == NEAP_STORE_OBJECT_NOT_FOUND ? (int)NEAP_STORE_REPLICA_IS_PROCESSING
		        : error                              ? error
		                                             : (int)NEAP_STORE_OBJECT_ALREADY_EXISTS;
	answer(call->places, question, error, routes, count, error ? node_directory_text(error) : "");
}

static void take_hint(struct node_places *places, const struct neap_route *routes, uint32_t count, uint64_t available)
{
	struct node_hint *hint = &places->hint;
	memcpy(hint->routes, routes, count * sizeof *routes);
	hint->count = count;
	hint->until_ns = neap_now(places->store->reactor) + HINT_NS;
	hint->bytes_left = available / HINT_SHARE;
}

static void answer_candidates(struct node_places_call *call, uint32_t index)
{
	const struct neap_key_write_item *item = &call->items.write[index];
	struct node_question *question = call->questions[index];
	struct neap_route routes[NEAP_ROUTES_MAX];
	uint32_t count = item->error ? 0 : item->count < NEAP_ROUTES_MAX ? item->count : NEAP_ROUTES_MAX;
	if (item->error == NEAP_STORE_REPLICA_NUM_EXCEEDED) { /* what is there? */
		question->exists = true;
		wait(call->places, NODE_ASK_REPLICAS, question);
		return;
	}
	for (uint32_t i = 0; i < count; i++) {
		const struct neap_key_candidate *candidate = &call->room.candidates[item->first + i];
		routes[i] = (struct neap_route){.size = 0};
		node_place(&routes[i].place, candidate->client, candidate->host, candidate->port);
	}
	if (count)
		take_hint(call->places, routes, count, call->room.candidates[item->first].available);
	answer(call->places, question, item->error, routes, count, item->error ? node_directory_text(item->error) : "");
}

static void over(struct neap_key_call *key_call, int error)
{
	struct node_places_call *call = (struct node_places_call *)(void *)((char *)key_call - offsetof(struct node_places_call, call));
	struct node_places *places = call->places;
	struct neap_store *store = places->store;
	uint32_t kind = call->kind;
	store->reached = error == 0 || call->call.effect == NEAP_KEY_EFFECT_DONE;
	places->failed += error != 0;
	places->waiting[kind].calls--;
	for (uint32_t i = 0; i < call->count; i++) {
		if (error)
			answer(places, call->questions[i], error, NULL, 0, node_directory_text(error));
		else if (kind == NODE_ASK_CANDIDATES)
			answer_candidates(call, i);
		else
			answer_replicas(call, i);
	}
	neap_pool_give(&places->calls[kind], call);
	if (places->waiting[kind].first)
		neap_ready_again(store->reactor, &places->ask);
}

/* --- calls ------------------------------------------------------------------------------------------------------------------ */

static struct neap_key_text text_of(const struct node_question *question)
{
	return (struct neap_key_text){question->outside ? question->outside : question->inside, question->key_length};
}

static void take(struct node_places_call *call, struct node_questions *waiting)
{
	for (call->count = 0; call->count < NODE_QUESTIONS_A_CALL && waiting->first; call->count++) {
		struct node_question *question = waiting->first;
		waiting->first = question->next;
		waiting->count--;
		call->questions[call->count] = question;
		if (call->kind == NODE_ASK_CANDIDATES)
			call->items.write[call->count] = (struct neap_key_write_item){.key = text_of(question), .size = question->size};
		else
			call->items.read[call->count] = (struct neap_key_read_item){.key = text_of(question)};
	}
	if (!waiting->first)
		waiting->end = &waiting->first;
}

static void fill(struct node_places_call *call)
{
	struct neap_store *store = call->places->store;
	struct neap_key_call *key_call = &call->call;
	if (call->kind == NODE_ASK_CANDIDATES) {
		key_call->op = NEAP_KEY_OP_WRITE_ROUTES;
		key_call->as.write_routes = (struct neap_key_write_routes){
			.requester = store->client.id,
			.config = store->placement,
			.items = call->items.write,
			.count = call->count,
			.candidates = call->room.candidates,
			.candidates_max = call->count * NEAP_ROUTES_MAX,
		};
	} else {
		key_call->op = NEAP_KEY_OP_REPLICAS;
		key_call->as.replicas = (struct neap_key_replicas){
			.config = {.replicas_max = NEAP_ROUTES_MAX, .priority_limit = INT32_MIN},
			.items = call->items.read,
			.count = call->count,
			.replicas = call->room.replicas,
			.replicas_max = call->count * NEAP_ROUTES_MAX,
		};
	}
	key_call->done = over;
}

/* True: there is more, and room for it. */
static bool ask_kind(struct node_places *places, uint32_t kind)
{
	struct node_questions *waiting = &places->waiting[kind];
	struct node_places_call *call = waiting->first ? neap_pool_take(&places->calls[kind]) : NULL;
	if (!call)
		return false;
	memset(&call->call, 0, sizeof call->call);
	call->places = places;
	call->kind = (uint8_t)kind;
	take(call, waiting);
	fill(call);
	waiting->calls++;
	places->batches[kind]++;
	int error = neap_key_begin(&places->store->directory, &call->call);
	if (error) { /* nothing was asked */
		call->call.effect = NEAP_KEY_EFFECT_NONE;
		over(&call->call, error);
	}
	return waiting->first != NULL;
}

static void ask(struct neap_ready *ready)
{
	struct node_places *places = (struct node_places *)(void *)((char *)ready - offsetof(struct node_places, ask));
	bool more = false;
	for (uint32_t kind = 0; kind < NODE_ASK_KINDS; kind++)
		more = ask_kind(places, kind) || more;
	if (more)
		neap_ready_again(places->store->reactor, ready);
}

/* --- the face ---------------------------------------------------------------------------------------------------------------- */

static void question(struct node_places *places, uint32_t kind, const struct neap_key *key, uint64_t size, neap_placed_func *answered,
                     void *user, uint64_t number)
{
	struct node_question *asked = neap_pool_take(&places->questions);
	if (!asked) {
		answered(user, number, NEAP_EAGAIN, NULL, 0, "too many questions to the directory are under way");
		return;
	}
	*asked = (struct node_question){.answered = answered, .user = user, .question = number, .size = size, .key_length = key->length};
	if (key->length > NODE_QUESTION_KEY) {
		asked->outside = neap_allocate(places->store->reactor, key->length);
		if (!asked->outside) {
			answer(places, asked, NEAP_ENOMEM, NULL, 0, "no memory for a long key");
			return;
		}
	}
	memcpy(asked->outside ? asked->outside : asked->inside, key->bytes, key->length);
	places->asked[kind]++;
	wait(places, kind, asked);
}

static void write_candidates(void *directory, const struct neap_key *key, uint64_t size, neap_placed_func *answered, void *user,
                             uint64_t number)
{
	struct node_places *places = directory;
	struct node_hint *hint = &places->hint;
	if (hint->count && size <= hint->bytes_left && neap_now(places->store->reactor) < hint->until_ns) {
		hint->bytes_left -= size;
		places->hinted++;
		answered(user, number, 0, hint->routes, hint->count, "");
		return;
	}
	question(places, NODE_ASK_CANDIDATES, key, size, answered, user, number);
}

/* An owner did not take what it was said to have room for, or is another by now: the next put asks. */
static void report_stale(void *directory, const struct neap_key *key, const struct neap_route *route)
{
	(void)key;
	(void)route;
	((struct node_places *)directory)->hint.count = 0;
}

static void replicas(void *directory, const struct neap_key *key, neap_placed_func *answered, void *user, uint64_t number)
{
	question(directory, NODE_ASK_REPLICAS, key, 0, answered, user, number);
}

/* Below the waterline a value stays where it comes from. Our own use is what we know best. */
static bool stays_here(void *directory, const struct neap_key *key, uint64_t size)
{
	const struct neap_store *store = ((struct node_places *)directory)->store;
	const struct neap_key_write_config *config = &store->placement;
	uint64_t used = 0, capacity = 0;
	(void)key;
	if (!store->owner || !node_is_open(store))
		return false;
	if (!store->has_master || config->remote_weight <= 0)
		return true;
	if (config->remote_weight >= 1 || config->local_write_waterline <= 0)
		return false;
	for (uint32_t i = 0; i < store->tiers.count; i++) {
		struct neap_tier_stats stats;
		if (!neap_tiers_in_memory(&store->tiers, i)) /* what is put is put into memory */
			continue;
		if (store->segments[i].priority < config->priority_limit || neap_tiers_stats(&store->tiers, i, &stats))
			continue;
		used += stats.counts.rounded_bytes;
		capacity += stats.capacity;
	}
	return (double)used + (double)size < config->local_write_waterline * (double)capacity;
}

struct neap_places node_places_face(struct node_places *places)
{
	return (struct neap_places){
		.write_candidates = write_candidates,
		.replicas = replicas,
		.report_stale = report_stale,
		.stays_here = stays_here,
		.settle = places->store->early ? NULL : node_settle,
		.settled = places->store->early ? NULL : node_settled,
		.forget = node_forget_settle,
		.directory = places,
	};
}
