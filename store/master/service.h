/* The serving side of the directory of keys: a call that comes over the RPC is run on a directory, normally the local one, and answered
 * when it ends there.
 *
 * A client speaks for itself: the instance in a registration, heartbeat, mount or announcement must be that of the RPC connection it
 * came on (neap_master_instance), else it is refused with ILLEGAL_CLIENT and changes nothing. So nobody unregisters or empties another,
 * although ids are known to all.
 *
 * A call that is canceled, or whose connection has gone, is canceled at the directory: what it had changed by then stays, and its
 * caller cannot know; owners announce again. Bounds: calls under way, and the bytes they take; beyond, calls are refused with
 * NEAP_EAGAIN and not executed. Owner thread only. */
#ifndef NEAP_STORE_MASTER_SERVICE_H
#define NEAP_STORE_MASTER_SERVICE_H

#include "store/directory/key_directory.h"
#include "store/latency.h"
#include "store/rpc/server.h"

struct neap_master_service;

struct neap_master_service_options {
	uint32_t calls_max; /* under way; 0: 1024 */
	size_t bytes_max;   /* of batches under way beyond 2 KiB each; 0: 64 MiB */
};

/* Of one method, or of the items of one kind in it. What is not there when it is asked for, and what is there already when it is
 * announced, are answers and no failures. */
struct neap_master_method_stats {
	uint64_t requests, failures;
	uint64_t partial;              /* some of its items failed, not all */
	uint64_t items, failed_items;
	uint64_t misses;               /* items that are not there */
	struct neap_latency latency;   /* from the arrival to the answer, refusals included */
};

struct neap_master_service_stats {
	uint64_t calls, refused, strangers, canceled; /* strangers: spoke for another */
	uint32_t calls_now;
	size_t bytes;
	struct neap_master_method_stats methods[NEAP_KEY_OPS];
	uint64_t adds, adds_failed, removes, removes_failed; /* items of announcements */
};

/* `directory` outlives the service. `options` may be NULL. NEAP_ENOMEM. */
int neap_master_service_create(struct neap_master_service **service_p, struct neap_reactor *reactor,
                               const struct neap_key_directory *directory, const struct neap_master_service_options *options);
/* For neap_rpc_server_create, whose `user` must be the service. */
const struct neap_rpc_handler *neap_master_service_handlers(uint32_t *count_p);
/* After its server was destroyed. Calls under way are canceled. */
void neap_master_service_destroy(struct neap_master_service *service);
void neap_master_service_stats(const struct neap_master_service *service, struct neap_master_service_stats *stats_p);

/* Ends the connections of the client whose instance in the directory is that: it counts as crashed. */
void neap_master_drop(struct neap_rpc_server *server, uint64_t instance);

/* The instance of a client of the directory whose process has this RPC instance. */
uint64_t neap_master_instance(const uint8_t instance[16]);

#endif
