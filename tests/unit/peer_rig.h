/* An owner that serves, and two accessors, in the simulator: hosts 10.0.0.1 and 10.0.0.3 ask, 10.0.0.2 owns. All of it is the library's
 * own: engines, tiers, owner, RPC. */
#ifndef UNIT_PEER_RIG_H
#define UNIT_PEER_RIG_H

#include "store/peer/methods.h"
#include "store/peer/service.h"
#include "store/rpc/client.h"
#include "store/tier/dram_engine.h"
#include "tests/sim/sim.h"
#include <neap/store_error.h>

#define RIG_PORT 4000u
#define MS UINT64_C(1000000)
#define MIB (UINT64_C(1) << 20)
#define RIG_PEERS 2u
#define RIG_LEASE_MS 5000u
#define RIG_MEMORY (2 * MIB)

/* What came of a call; views of the reply are copied. */
struct rig_call {
	uint64_t handle;
	uint32_t times;
	const struct neap_rpc_method *method;
	struct neap_rpc_outcome outcome;
	char why[256];
	union {
		struct pre_write_reply pre_write;
		struct pin_key_reply pin_key;
		struct committed_reply committed;
		struct read_remote_data_reply read;
		struct look_up_reply look_up;
	} reply;
	struct remote_slice buffer; /* of a grant */
	char segment[64];
	struct neap_grant_token token;
	unsigned char value[65536];
};

struct rig_peer {
	struct sim_node *node;
	struct neap_engine *engine;
	struct neap_rpc_client *client;
	struct neap_rpc_channel *channel;
	uint8_t instance[16], engine_instance[16];
	unsigned char *memory; /* GRANT_ONLY */
	neap_segment_id owner; /* the owner's segment, opened */
	uint64_t lanes;
	uint32_t welcomes;
};

struct peer_rig {
	struct sim *sim;
	struct sim_node *node;
	struct neap_engine *engine;
	struct neap_dram dram;
	struct neap_dram_engine binding;
	struct neap_tiers tiers;
	struct neap_owner *owner;
	struct neap_peer_service *service;
	struct rig_peer peers[RIG_PEERS];
	uint8_t engine_instance[16];
};
extern struct peer_rig rig;

/* A tier of lower priority below the memory, when `ops` is set before rig_open. Its index is 1. */
struct rig_below {
	const struct neap_tier_ops *ops;
	void *backend;
	uint64_t capacity;
	void (*begun)(struct neap_reactor *reactor); /* the owner's node is there */
};
extern struct rig_below rig_below;

/* With the options changed by `change`, which may be NULL. */
void rig_open(void (*change)(struct neap_owner_options *owner, struct neap_peer_service_options *service));
/* Closes all in order; nothing may be left. */
void rig_close(void);
void rig_holds(void); /* every check of what holds between turns */
void rig_for(unsigned ms);
bool rig_until_set(const bool *flag, unsigned ms);
void rig_set(void *flag); /* a bool is true */

void rig_ask(struct rig_peer *peer, struct rig_call *call, const struct neap_rpc_method *method, const void *request, unsigned timeout_ms,
             const struct neap_rpc_id *id);
/* Waits for its end. */
void rig_await(struct rig_call *call);
/* The status of a call that the method answered: 0 or the store's number. Any other end fails the test. */
int rig_status(struct rig_call *call);

/* One call and its status. */
int rig_pre_write(struct rig_peer *peer, const char *key, uint64_t size, struct rig_call *call);
int rig_commit(struct rig_peer *peer, const char *key, uint64_t id, uint64_t size, const uint32_t *crc, struct rig_call *call);
int rig_revoke(struct rig_peer *peer, const char *key, uint64_t id);
int rig_pin(struct rig_peer *peer, const char *key, struct rig_call *call);
int rig_unpin(struct rig_peer *peer, const char *key, uint64_t id);
/* The value itself inside the call. */
int rig_write_inside(struct rig_peer *peer, const char *key, const void *bytes, size_t length, struct rig_call *call);
int rig_read_inside(struct rig_peer *peer, const char *key, uint64_t inline_max, struct rig_call *call);
/* Of or into the peer's memory from `offset` on, in `pieces` slices. */
int rig_write_buffers(struct rig_peer *peer, const char *key, size_t offset, size_t length, uint32_t pieces, struct rig_call *call);
int rig_read_buffers(struct rig_peer *peer, const char *key, size_t offset, size_t length, uint32_t pieces, struct rig_call *call);
int rig_look_up(struct rig_peer *peer, const char *key, uint64_t id, struct rig_call *call);
int rig_remove(struct rig_peer *peer, const char *key, uint64_t generation);

/* Slices of the peer's memory, granted to the owner. */
struct rig_slices {
	struct remote_slice slices[64];
	struct neap_grant_token tokens[64];
};
struct neap_rpc_list rig_grant(struct rig_peer *peer, struct rig_slices *slices, size_t offset, size_t length, uint32_t pieces, unsigned rights);

struct neap_rpc_view rig_text(const char *text);
void rig_fill(void *bytes, size_t length, unsigned seed);
bool rig_filled(const void *bytes, size_t length, unsigned seed);

/* The accessor moves bytes under a grant: enum neap_status. */
uint8_t rig_transfer(struct rig_peer *peer, enum neap_opcode opcode, const struct rig_call *grant, void *bytes, size_t length);
/* A whole FORWARD write; fails the test when it does not succeed. Returns the write id. */
uint64_t rig_put(struct rig_peer *peer, const char *key, size_t length, unsigned seed);

void rig_await_operation(void); /* the service has one under way */
void rig_cut(struct rig_peer *peer); /* its RPC connection is reset; data under way is lost */
void rig_channel_close(struct rig_peer *peer);
void rig_channel_open(struct rig_peer *peer);
bool rig_exists(const char *key);
struct neap_owner_stats rig_owner_stats(void);
struct neap_peer_service_stats rig_stats(void);

#endif
