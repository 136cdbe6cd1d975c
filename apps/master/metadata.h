/* The Transfer Engine's HTTP metadata: texts under keys, in memory, for engines whose metadata is http://HOST:PORT/metadata.
 *
 *   GET     /metadata?key=K   200 and the value; 404
 *   PUT     /metadata?key=K   200; 400 when K names the RPC address of a node (it has "rpc_meta" in it) and has another value already
 *   DELETE  /metadata?key=K   200; 404
 *
 * No key, an empty one or one that is too long: 400. Beyond the bounds: 413 (the value), 507 (entries, bytes in all). */
#ifndef APPS_MASTER_METADATA_H
#define APPS_MASTER_METADATA_H

#include "apps/common/http.h"
#include <neap/reactor.h>

#define MASTER_METADATA_KEY_MAX 4096u

struct master_metadata;

struct master_metadata_options {
	uint32_t entries_max;
	size_t value_max, bytes_max; /* of one value; of all keys and values */
};

struct master_metadata_stats {
	uint64_t gets, misses, puts, deletes, refused; /* refused: an rpc_meta key that was there, and what is beyond a bound */
	uint32_t entries;
	size_t bytes;
};

/* NULL: no memory. The reactor gives chance: nobody can choose keys that collide. */
struct master_metadata *master_metadata_create(const struct neap_reactor *reactor, const struct master_metadata_options *options);
void master_metadata_destroy(struct master_metadata *metadata);
void master_metadata_serve(struct master_metadata *metadata, struct app_http_request *request);
void master_metadata_stats(const struct master_metadata *metadata, struct master_metadata_stats *stats_p);

#endif
