/* The table of routes: key -> replicas {segment, size, generation, checksum, stamp}. Exact, bounded, and no call does more than a
 * bounded piece of work: it grows one bucket at a time (linear hashing), and what a departed segment leaves behind is swept in
 * slices. Keys are hashed with a secret of this process, so that nobody can choose them to collide. Owner thread only. */
#ifndef NEAP_STORE_ROUTES_H
#define NEAP_STORE_ROUTES_H

#include "reactor/pool.h"
#include "store/directory/key_directory.h"
#include "store/key_hash.h"

#define NEAP_ROUTE_NONE UINT32_MAX
#define NEAP_ROUTE_KEY_INLINE 42u
#define NEAP_ROUTE_CELL_BYTES 60u
#define NEAP_ROUTE_REPLICAS_MAX 32u /* of one key: what a call may have to walk */

/* One key; 64 bytes. What does not fit inline is in a chain of cells. */
struct neap_route_key {
	uint32_t next; /* in its bucket: index + 1, 0 at the end */
	uint32_t hash;
	uint32_t replicas; /* first */
	uint32_t cells;    /* first */
	uint32_t standing; /* replicas that are not lost */
	uint16_t length;
	char text[NEAP_ROUTE_KEY_INLINE];
};

struct neap_route_replica {
	uint32_t key, next; /* of the key's replicas */
	uint32_t segment;
	uint32_t newer, older; /* in the segment's list, or in its lost list */
	uint32_t round;        /* of the full announcement that named it last */
	uint64_t size, generation;
	struct neap_key_stamp stamp;
	uint32_t crc;
	bool has_crc;
	bool lost; /* another owner was first; kept until this one has been told and has let go */
};

struct neap_route_list {
	uint32_t newest;
	uint32_t count;
};

/* The first member of each object in the pool of segments that the table is given. `client` is any number that tells clients apart.
 * */
struct neap_route_segment {
	struct neap_route_list here, lost;
	uint32_t client;
	uint32_t cursor; /* of the sweep under way; NEAP_ROUTE_NONE: at the end of its list */
	bool cursor_in_lost;
	bool gone;       /* its routes are not to be seen any more; to be swept. Set by its owner */
};

struct neap_routes_options {
	uint32_t keys_max, replicas_max;
	uint32_t cells_max; /* of NEAP_ROUTE_CELL_BYTES each, for keys longer than NEAP_ROUTE_KEY_INLINE */
	uint32_t max_client_per_key; /* 0: any number */
	uint64_t epoch;
};

struct neap_routes {
	struct neap_reactor *reactor;
	struct neap_routes_options options;
	struct neap_pool keys, replicas, cells;
	const struct neap_pool *segments;
	uint32_t **buckets; /* pieces of equal size, made when needed */
	uint32_t piece_count, bucket_count, level; /* buckets are 1 << level, and those already split of the next level */
	struct neap_key_secret secret;
	struct neap_key_stamp last; /* given */
	uint64_t standing_keys;     /* with a replica that is not lost; those of departed segments count until they are swept */
	uint64_t replicas_lost;     /* now */
};

/* NEAP_EINVAL, NEAP_ENOMEM. The pool's objects begin with a struct neap_route_segment. */
int neap_routes_create(struct neap_routes *routes, struct neap_reactor *reactor, const struct neap_routes_options *options,
                       const struct neap_pool *segments);
void neap_routes_destroy(struct neap_routes *routes);

void neap_route_segment_begin(struct neap_route_segment *segment, uint32_t client);

/* NEAP_ROUTE_NONE: no such key. */
uint32_t neap_routes_find(const struct neap_routes *routes, struct neap_key_text key);

/* The key's text into `text` of at least its length. */
void neap_routes_copy_key(const struct neap_routes *routes, uint32_t key, char *text);

/* Applies one change for `segment`, a live one: stamp and error of the change are the answer. `recovering`: a claim without a stamp
 * on a key that nobody is known to have is put off. */
void neap_routes_change(struct neap_routes *routes, uint32_t segment, uint32_t round, bool recovering,
                        struct neap_key_change *change);

/* Looks at up to *budget_p replicas of a segment and drops those that go: of a gone one all, else those not named since `round`
 * began. True when through. Begin with neap_routes_sweep_begin. */
void neap_routes_sweep_begin(struct neap_routes *routes, uint32_t segment);
bool neap_routes_sweep(struct neap_routes *routes, uint32_t segment, uint32_t round, uint32_t *budget_p, uint64_t *dropped_p);

static inline struct neap_route_key *neap_routes_key(const struct neap_routes *routes, uint32_t key)
{
	return neap_pool_at(&routes->keys, key);
}

/* NULL at NEAP_ROUTE_NONE. */
static inline struct neap_route_replica *neap_routes_replica(const struct neap_routes *routes, uint32_t replica)
{
	return replica == NEAP_ROUTE_NONE ? NULL : neap_pool_at(&routes->replicas, replica);
}

static inline struct neap_route_segment *neap_routes_segment(const struct neap_routes *routes, uint32_t segment)
{
	return neap_pool_at(routes->segments, segment);
}

static inline bool neap_routes_visible(const struct neap_routes *routes, const struct neap_route_replica *replica)
{
	return !replica->lost && !neap_routes_segment(routes, replica->segment)->gone;
}

/* NULL: all is as it should be. Walks everything: for tests. */
const char *neap_routes_check(const struct neap_routes *routes);

#endif
