/* Every machine of the library, for tools and tests: one line each. */
#include <neap/fsm.h>

#define MACHINES(M)      \
	M(stream_connect)    \
	M(stream_listen)     \
	M(region)            \
	M(grant)             \
	M(slice)             \
	M(batch)             \
	M(segment)           \
	M(engine_life)       \
	M(rdma_device)       \
	M(rdma_region)       \
	M(rdma_slab)         \
	M(rdma_queue)        \
	M(rdma_peer)         \
	M(rdma_rail)         \
	M(rdma_endpoint)     \
	M(tcp_peer)          \
	M(tcp_lane)          \
	M(handshake_session) \
	M(handshake_call)    \
	M(segment_fetch)     \
	M(publisher)         \
	M(redis_link)        \
	M(redis_call)        \
	M(http_call)         \
	M(etcd_call)         \
	M(etcd_token)        \
	M(etcd_watch)        \
	M(tcp_session)       \
	M(rpc_channel)       \
	M(rpc_call)          \
	M(rpc_session)       \
	M(write_record)      \
	M(pin_record)        \
	M(move_record)       \
	M(tier_move)         \
	M(directory_life)    \
	M(client_life)       \
	M(announcer)         \
	M(store_put)         \
	M(store_get)         \
	M(key_removal)       \
	M(store_life)

#define DECLARE(name) extern const struct neap_fsm neap_fsm_##name;
MACHINES(DECLARE)

#define ADDRESS(name) &neap_fsm_##name,
static const struct neap_fsm *const catalog[] = {MACHINES(ADDRESS)};

const struct neap_fsm *const *neap_fsm_catalog(size_t *count)
{
	*count = sizeof catalog / sizeof catalog[0];
	return catalog;
}
