/* What the server remembers of its clients' request ids. */
#include "store/rpc/server_inside.h"
#include <string.h>

static size_t entries_bytes(const struct neap_rpc_server *server)
{
	return server->options.window_max * sizeof(struct rpc_entry);
}

/* An answer under way will not be kept; its call goes on. */
static void clear(struct rpc_lane *lane, struct rpc_entry *entry)
{
	struct rpc_incoming *incoming = entry->incoming ? neap_pool_find(&lane->server->incoming, entry->incoming) : NULL;
	if (incoming)
		incoming->lane = NULL;
	neap_rpc_block_release(&lane->server->room.blocks, entry->block);
	*entry = (struct rpc_entry){0};
}

static void clear_all(struct rpc_lane *lane)
{
	for (uint32_t i = 0; i < lane->server->options.window_max; i++)
		clear(lane, &lane->entries[i]);
}

void rpc_lane_finish(struct rpc_lane *lane, uint64_t below)
{
	if (below <= lane->finished_below)
		return;
	if (below - lane->finished_below >= lane->server->options.window_max)
		clear_all(lane);
	else
		for (uint64_t sequence = lane->finished_below; sequence < below; sequence++)
			clear(lane, rpc_lane_entry(lane, sequence));
	lane->finished_below = below;
}

void rpc_lane_drop(struct rpc_lane *lane)
{
	struct neap_rpc_server *server = lane->server;
	neap_timer_cancel(server->room.reactor, &lane->forget);
	if (lane->session)
		lane->session->lane = NULL;
	clear_all(lane);
	neap_release(server->room.reactor, lane->entries, entries_bytes(server));
	lane->entries = NULL;
	neap_pool_give(&server->lanes, lane);
}

static void forget(struct neap_timer *timer, void *user)
{
	(void)timer;
	rpc_lane_drop(user);
}

void rpc_lane_leave(struct rpc_lane *lane)
{
	struct neap_reactor *reactor = lane->server->room.reactor;
	lane->session = NULL;
	lane->idle_since_ns = neap_now(reactor);
	(void)neap_timer_start(reactor, &lane->forget, lane->idle_since_ns + lane->server->options.session_keep_ns, forget, lane);
}

static struct rpc_lane *find(const struct neap_rpc_server *server, const struct rpc_hello *hello)
{
	struct rpc_lane *lane;
	uint32_t index = 0;
	while ((lane = neap_pool_next(&server->lanes, &index)) != NULL)
		if (lane->lane == hello->lane && memcmp(lane->instance, hello->instance.bytes, 16) == 0)
			return lane;
	return NULL;
}

/* Room for another: the one that has been without connection for longest is forgotten; its client will be told. */
static bool make_room(struct neap_rpc_server *server)
{
	struct rpc_lane *lane, *oldest = NULL;
	uint32_t index = 0;
	if (server->lanes.used < server->lanes.capacity)
		return true;
	while ((lane = neap_pool_next(&server->lanes, &index)) != NULL)
		if (!lane->session && (!oldest || lane->idle_since_ns < oldest->idle_since_ns))
			oldest = lane;
	if (oldest)
		rpc_lane_drop(oldest);
	return oldest != NULL;
}

static int make(struct neap_rpc_server *server, const struct rpc_hello *hello, struct rpc_lane **lane_p)
{
	if (!make_room(server))
		return NEAP_ELIMIT;
	struct rpc_lane *lane = neap_pool_take(&server->lanes);
	struct rpc_entry *entries = neap_allocate(server->room.reactor, entries_bytes(server));
	if (!entries) {
		neap_pool_give(&server->lanes, lane);
		return NEAP_ENOMEM;
	}
	*lane = (struct rpc_lane){.server = server, .lane = hello->lane, .epoch = hello->epoch, .finished_below = 1, .entries = entries};
	memcpy(lane->instance, hello->instance.bytes, sizeof lane->instance);
	*lane_p = lane;
	return NEAP_OK;
}

int rpc_lane_join(struct neap_rpc_server *server, const struct rpc_hello *hello, struct rpc_session *session)
{
	struct rpc_lane *lane = find(server, hello);
	if (hello->resume ? !lane || hello->epoch != lane->epoch : lane && hello->epoch < lane->epoch)
		return NEAP_ENOSESSION;
	if (!lane) {
		int error = make(server, hello, &lane);
		if (error)
			return error;
	}
	if (hello->epoch > lane->epoch) {
		clear_all(lane);
		lane->epoch = hello->epoch;
		lane->finished_below = 1;
	}
	neap_timer_cancel(server->room.reactor, &lane->forget);
	struct rpc_session *before = lane->session;
	lane->session = session;
	session->lane = lane;
	if (before) {
		before->lane = NULL;
		rpc_session_break(before, "its client has made a new connection");
	}
	return NEAP_OK;
}
