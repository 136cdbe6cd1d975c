#include "store/accessor/peers.h"
#include <neap/store_error.h>
#include <string.h>

/* --- lists of pins ------------------------------------------------------------------------------------------------------------ */

static void push(struct neap_finished_list *list, struct neap_finished *pin)
{
	pin->next = NULL;
	*(list->first ? list->end : &list->first) = pin;
	list->end = &pin->next;
	list->count++;
}

static struct neap_finished *pop(struct neap_finished_list *list)
{
	struct neap_finished *pin = list->first;
	if (pin) {
		list->first = pin->next;
		list->count--;
	}
	return pin;
}

static void drop_all(struct neap_peers *peers, struct neap_finished_list *list)
{
	struct neap_finished *pin;
	while ((pin = pop(list)) != NULL)
		neap_pool_give(&peers->pins, pin);
}

/* --- the room ----------------------------------------------------------------------------------------------------------------- */

int neap_peers_create(struct neap_peers *peers, struct neap_engine *engine, struct neap_rpc_client *client,
                      const struct neap_peers_options *options)
{
	struct neap_reactor *reactor = neap_engine_reactor(engine);
	*peers = (struct neap_peers){.engine = engine, .reactor = reactor, .client = client, .options = *options};
	int error = neap_pool_create(&peers->pool, reactor, sizeof(struct neap_store_peer), options->peers_max);
	if (!error)
		error = neap_pool_create(&peers->pins, reactor, sizeof(struct neap_finished), options->pins_max);
	if (error)
		neap_peers_destroy(peers);
	return error;
}

static void peer_close(struct neap_store_peer *peer)
{
	struct neap_peers *peers = peer->peers;
	neap_timer_cancel(peers->reactor, &peer->unpin);
	neap_timer_cancel(peers->reactor, &peer->idle);
	peers->stats.dropped += peer->pins.count;
	drop_all(peers, &peer->pins);
	if (peer->channel)
		neap_rpc_channel_close(peer->channel);
	peer->channel = NULL;
	if (peer->has_segment && peer->segment != NEAP_LOCAL_SEGMENT)
		(void)neap_segment_close(peers->engine, peer->segment);
	neap_pool_give(&peers->pool, peer);
}

void neap_peers_destroy(struct neap_peers *peers)
{
	struct neap_store_peer *peer;
	for (uint32_t index = 0; (peer = neap_pool_next(&peers->pool, &index)) != NULL;)
		peer_close(peer);
	neap_pool_destroy(&peers->pool);
	neap_pool_destroy(&peers->pins);
}

static void look_idle(struct neap_peers *peers)
{
	if (peers->closing && peers->opening == 0 && peers->telling == 0 && peers->idle) {
		void (*idle)(void *user) = peers->idle;
		peers->idle = NULL;
		idle(peers->user);
	}
}

static void tell_pins(struct neap_store_peer *peer);

void neap_peers_close(struct neap_peers *peers, void (*idle)(void *user), void *user)
{
	struct neap_store_peer *peer;
	peers->closing = true;
	peers->idle = idle;
	peers->user = user;
	peers->telling++; /* not idle before all were looked at */
	for (uint32_t index = 0; (peer = neap_pool_next(&peers->pool, &index)) != NULL;)
		if (peer->pins.count)
			tell_pins(peer);
	peers->telling--;
	look_idle(peers);
}

/* --- peers -------------------------------------------------------------------------------------------------------------------- */

static void idle_over(struct neap_timer *timer, void *user)
{
	(void)timer;
	peer_close(user);
}

void neap_store_peer_put(struct neap_store_peer *peer)
{
	struct neap_peers *peers = peer->peers;
	if (--peer->references > 0)
		return;
	peer->idle_since_ns = neap_now(peers->reactor);
	if (peer->pins.count == 0 && !peers->closing)
		(void)neap_timer_start(peers->reactor, &peer->idle, peer->idle_since_ns + peers->options.idle_ns, idle_over, peer);
}

static struct neap_store_peer *find(struct neap_peers *peers, const struct neap_place *place, struct neap_store_peer **idlest_p)
{
	struct neap_store_peer *peer;
	*idlest_p = NULL;
	for (uint32_t index = 0; (peer = neap_pool_next(&peers->pool, &index)) != NULL;) {
		if (memcmp(peer->place.instance, place->instance, sizeof place->instance) == 0 && strcmp(peer->place.rpc, place->rpc) == 0 &&
		    strcmp(peer->place.engine, place->engine) == 0)
			return peer;
		if (peer->references == 0 && (!*idlest_p || peer->idle_since_ns < (*idlest_p)->idle_since_ns))
			*idlest_p = peer;
	}
	return NULL;
}

static int open_channel(struct neap_store_peer *peer)
{
	struct neap_peers *peers = peer->peers;
	static const uint8_t none[16];
	struct neap_rpc_channel_options options = {.lane = neap_random_u64(peers->reactor) | 1, .user = peer};
	char why[300];
	memcpy(options.expected, peer->place.instance, sizeof options.expected);
	if (memcmp(options.expected, none, sizeof none) == 0 || neap_host_port_parse(peer->place.rpc, 0, &options.server, why, sizeof why))
		return NEAP_EADDRESS;
	return neap_rpc_channel_open(&peer->channel, peers->client, &options);
}

struct neap_store_peer *neap_store_peer_get(struct neap_peers *peers, const struct neap_place *place, int *error_p)
{
	struct neap_store_peer *idlest, *peer = find(peers, place, &idlest);
	*error_p = peers->closing ? NEAP_ECLOSED : NEAP_OK;
	if (*error_p)
		return NULL;
	if (!peer) {
		if (peers->pool.used == peers->pool.capacity && idlest)
			peer_close(idlest);
		peer = neap_pool_take(&peers->pool);
		if (!peer) {
			*error_p = NEAP_EAGAIN;
			return NULL;
		}
		struct neap_timer unpin = peer->unpin, idle = peer->idle;
		*peer = (struct neap_store_peer){.peers = peers, .place = *place, .unpin = unpin, .idle = idle};
		memcpy(peer->engine, place->engine, sizeof peer->engine);
		*error_p = open_channel(peer);
		if (*error_p) {
			neap_pool_give(&peers->pool, peer);
			return NULL;
		}
	}
	neap_timer_cancel(peers->reactor, &peer->idle);
	peer->references++;
	return peer;
}

/* --- the segment -------------------------------------------------------------------------------------------------------------- */

void neap_store_peer_wait_no_more(struct neap_store_peer_waiter *waiter)
{
	if (!waiter->slot)
		return;
	*waiter->slot = waiter->next;
	if (waiter->next)
		waiter->next->slot = waiter->slot;
	waiter->slot = NULL;
}

static bool is_meant(const struct neap_store_peer *peer)
{
	struct neap_segment_info info;
	uint8_t own[16];
	if (peer->segment == NEAP_LOCAL_SEGMENT) {
		neap_engine_instance(peer->peers->engine, own);
		return memcmp(own, peer->place.instance, sizeof own) == 0;
	}
	return neap_segment_info(peer->peers->engine, peer->segment, &info) == NEAP_OK &&
	       memcmp(info.instance, peer->place.instance, sizeof info.instance) == 0;
}

static void opened(void *user, int error, neap_segment_id segment, const char *why);
static void refreshed(void *user, int error, neap_segment_id segment, const char *why);
static void described(void *user, const struct neap_rpc_outcome *outcome, const void *reply);

/* What is missing: the engine's name, its segment, or a fresh look at that one. `opened` or `described` holds a reference. */
static int ask(struct neap_store_peer *peer, bool refresh)
{
	struct neap_peers *peers = peer->peers;
	int error;
	if (!peer->engine[0])
		error = neap_rpc_call(peer->channel, &neap_method_describe, &(struct describe){0}, peers->options.call_timeout_ns, NULL, described,
		                      peer, NULL);
	else if (refresh)
		error = neap_segment_refresh(peers->engine, peer->segment, refreshed, peer);
	else
		error = neap_segment_open(peers->engine, peer->engine, opened, peer);
	if (error) {
		peer->phase = NEAP_STORE_PEER_UNKNOWN;
		return error;
	}
	peer->phase = NEAP_STORE_PEER_OPENING;
	peer->references++;
	peers->opening++;
	return NEAP_OK;
}

static void tell_waiters(struct neap_store_peer *peer, int error, const char *why)
{
	struct neap_store_peer_waiter *list = peer->waiters;
	peer->waiters = NULL;
	if (list)
		list->slot = &list;
	while (list) {
		struct neap_store_peer_waiter *waiter = list;
		neap_store_peer_wait_no_more(waiter);
		waiter->reached(waiter, error, why);
	}
}

/* The question has an answer: another question, or the end of it. */
static void go_on(struct neap_store_peer *peer, int error, const char *why, bool more)
{
	struct neap_peers *peers = peer->peers;
	peers->opening--;
	peer->phase = error ? NEAP_STORE_PEER_UNKNOWN : NEAP_STORE_PEER_OPEN;
	if (!error && more) {
		error = peers->closing ? NEAP_ECLOSED : ask(peer, peer->has_segment);
		if (!error) {
			peer->references--; /* the new question has its own */
			return;
		}
		peer->phase = NEAP_STORE_PEER_UNKNOWN;
		why = neap_error_text(error);
	}
	peer->refreshed = false;
	tell_waiters(peer, error, why);
	neap_store_peer_put(peer);
	look_idle(peers);
}

static void described(void *user, const struct neap_rpc_outcome *outcome, const void *data)
{
	struct neap_store_peer *peer = user;
	const struct described *reply = data;
	bool known = outcome->result == NEAP_RPC_OK && reply->engine.length > 0 && reply->engine.length < sizeof peer->engine;
	if (known)
		memcpy(peer->engine, reply->engine.bytes, reply->engine.length); /* zeroed before */
	go_on(peer, known ? NEAP_OK : NEAP_EPEER, known ? "" : outcome->why, known);
}

static void look_at_segment(struct neap_store_peer *peer, int error, const char *why)
{
	bool other = !error && !is_meant(peer);
	if (other && peer->refreshed) {
		error = NEAP_EINSTANCE;
		why = neap_error_text(error);
	}
	peer->refreshed = other;
	go_on(peer, error, why, other);
}

static void refreshed(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)segment;
	look_at_segment(user, error, why);
}

static void opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct neap_store_peer *peer = user;
	if (!error && peer->has_segment && peer->segment != NEAP_LOCAL_SEGMENT) /* of an earlier try; this open counts */
		(void)neap_segment_close(peer->peers->engine, peer->segment);
	if (!error)
		peer->segment = segment;
	peer->has_segment = peer->has_segment || !error;
	look_at_segment(peer, error, why);
}

int neap_store_peer_reach(struct neap_store_peer *peer, struct neap_store_peer_waiter *waiter)
{
	if (peer->phase == NEAP_STORE_PEER_OPEN && is_meant(peer))
		return NEAP_OK;
	if (peer->phase != NEAP_STORE_PEER_OPENING) {
		int error = ask(peer, false);
		if (error)
			return error;
	}
	waiter->next = peer->waiters;
	waiter->slot = &peer->waiters;
	if (waiter->next)
		waiter->next->slot = &waiter->next;
	peer->waiters = waiter;
	return NEAP_EAGAIN;
}

/* --- pins --------------------------------------------------------------------------------------------------------------------- */

static void unpin_due(struct neap_timer *timer, void *user)
{
	(void)timer;
	tell_pins(user);
}

static void arm(struct neap_store_peer *peer, uint64_t after_ns)
{
	struct neap_peers *peers = peer->peers;
	if (!neap_timer_active(&peer->unpin))
		(void)neap_timer_start(peers->reactor, &peer->unpin, neap_now(peers->reactor) + after_ns, unpin_due, peer);
}

void neap_store_peer_finished(struct neap_store_peer *peer, const struct neap_key *key, uint64_t read_id)
{
	struct neap_peers *peers = peer->peers;
	struct neap_finished *pin = neap_pool_take(&peers->pins);
	peers->stats.pins++;
	if (!pin) {
		peers->stats.dropped++;
		return;
	}
	pin->read_id = read_id;
	pin->attempts = 0;
	pin->key_length = (uint16_t)key->length;
	memcpy(pin->key, key->bytes, key->length);
	push(&peer->pins, pin);
	if (peer->pins.count >= NEAP_STORE_PEER_PINS_MAX)
		tell_pins(peer);
	else
		arm(peer, peers->options.unpin_after_ns);
}

static uint32_t take(struct neap_store_peer *peer, struct finished_pin *items, uint32_t max, struct neap_finished_list *list)
{
	uint32_t count = 0;
	for (struct neap_finished *pin; count < max && (pin = pop(&peer->pins)) != NULL; count++) {
		push(list, pin);
		items[count] = (struct finished_pin){.key = {pin->key, pin->key_length}, .read_operation_id = pin->read_id};
	}
	if (peer->pins.count == 0)
		neap_timer_cancel(peer->peers->reactor, &peer->unpin);
	return count;
}

uint32_t neap_store_peer_take_pins(struct neap_store_peer *peer, struct finished_pin *items, struct neap_finished_list *list)
{
	return take(peer, items, NEAP_STORE_PEER_PINS_MAX, list);
}

void neap_store_peer_pins_told(struct neap_store_peer *peer, struct neap_finished_list *list, bool heard)
{
	struct neap_peers *peers = peer->peers;
	struct neap_finished *pin;
	while ((pin = pop(list)) != NULL) {
		if (heard || ++pin->attempts >= peers->options.unpins_max || peers->closing) {
			peers->stats.ridden += heard;
			peers->stats.dropped += !heard;
			neap_pool_give(&peers->pins, pin);
			continue;
		}
		push(&peer->pins, pin);
	}
	if (peer->pins.count)
		arm(peer, heard ? peers->options.unpin_after_ns : peers->options.backoff_ns << (peer->failures < 6 ? peer->failures : 6));
}

static void told(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct neap_store_peer *peer = user;
	struct neap_peers *peers = peer->peers;
	bool heard = outcome->result == NEAP_RPC_OK || (outcome->result == NEAP_RPC_REFUSED && outcome->executed == NEAP_RPC_EXECUTED);
	(void)reply;
	peers->telling--;
	peer->failures = heard ? 0 : peer->failures + 1;
	peers->stats.ridden -= heard ? peer->telling.count : 0; /* these went by themselves */
	neap_store_peer_pins_told(peer, &peer->telling, heard);
	neap_store_peer_put(peer);
	look_idle(peers);
}

/* Nothing was sent for a while. The first is the call's own, the others ride. One such call at a time. */
static void tell_pins(struct neap_store_peer *peer)
{
	struct neap_peers *peers = peer->peers;
	struct finished_pin items[NEAP_STORE_PEER_PINS_MAX + 1];
	if (peer->telling.first || peer->pins.count == 0)
		return;
	uint32_t count = take(peer, items, NEAP_STORE_PEER_PINS_MAX + 1, &peer->telling);
	struct un_pin_key request = {
		.key = items[0].key, .read_operation_id = items[0].read_operation_id, .finished = {&items[1], count - 1}};
	neap_timer_cancel(peers->reactor, &peer->idle);
	peer->references++;
	peers->telling++;
	peers->stats.unpin_calls++;
	int error = neap_rpc_call(peer->channel, &neap_method_un_pin_key, &request, peers->options.call_timeout_ns, NULL, told, peer, NULL);
	if (error)
		told(peer, &(struct neap_rpc_outcome){.result = NEAP_RPC_NOT_SENT, .status = error, .why = ""}, NULL);
}
