/* The directory of keys at a master: the interface of store/directory/key_directory.h over the RPC. Two connections: heartbeats have one
 * of their own, so that no batch delays them; all else goes in order on the other, whose lane makes a new connection end the one before.
 *
 * Errors of `done` beside those of the directory: RPC_FAIL (the master was not reached, or the connection was lost), NEAP_ETIMEDOUT,
 * NEAP_ECLOSED (this was destroyed). `effect` of the call says whether it can have taken effect. NEAP_EINVAL from begin also for more
 * than a call carries (codec.h); room for answers beyond that is not used. Owner thread only. */
#ifndef NEAP_STORE_MASTER_REMOTE_H
#define NEAP_STORE_MASTER_REMOTE_H

#include "store/directory/key_directory.h"
#include "store/rpc/client.h"

struct neap_remote_directory;

struct neap_remote_directory_options {
	struct neap_host_port master;
	struct neap_rpc_client_options rpc; /* its `instance` is that of the client; all zero: one is drawn */
	uint64_t lane;                      /* 0: 1 */
	uint32_t calls_max;                 /* 0: 256 */
	uint32_t call_timeout_ms;           /* of calls without a deadline; 0: 5000 */
	/* The master has welcomed us, not for the first time: after a loss (`another` false: it may still know everything), or it is another
	 * one or has begun anew. Owners then announce in full. From a turn; may be NULL. */
	void (*welcomed)(void *user, bool another, uint64_t epoch);
	void *user;
};

struct neap_remote_directory_stats {
	uint64_t calls, failed, timed_out, canceled;
	uint64_t welcomes, masters; /* of the connection for all but heartbeats; masters: different ones */
	uint32_t calls_now;
};

/* NEAP_EINVAL, NEAP_ENOMEM. */
int neap_remote_directory_create(struct neap_remote_directory **remote_p, struct neap_reactor *reactor,
                                 const struct neap_remote_directory_options *options);
/* Calls under way end with NEAP_ECLOSED in this or the next turn; then the memory goes. */
void neap_remote_directory_destroy(struct neap_remote_directory *remote);

const struct neap_key_directory *neap_remote_directory_face(struct neap_remote_directory *remote);
/* What struct neap_key_client.instance must be in calls through this. */
uint64_t neap_remote_directory_instance(const struct neap_remote_directory *remote);
void neap_remote_directory_stats(const struct neap_remote_directory *remote, struct neap_remote_directory_stats *stats_p);

#endif
