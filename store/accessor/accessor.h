/* The accessor: Put and Get as a client of owners, in both directions. docs/STORE.md tells what they do and what their outcomes mean.
 *
 *   FORWARD  we move the bytes: PreWrite, transfer under the owner's grant, WriteCommit; PinKey, transfer
 *   REVERSE  the owner moves them, out of or into our buffers, under grants of ours that end before the operation does; small values
 *            travel inside the call
 *
 * Every accepted operation ends once, from a turn, with an outcome. Slices and their memory stay with the accessor until then, and if
 * the outcome says `held`, until `released`. For REVERSE they must lie in memory that is registered with the engine and not CLOSED;
 * GRANT_ONLY is what it should be. Machines: store_put, store_get. Owner thread only. */
#ifndef NEAP_STORE_ACCESSOR_ACCESSOR_H
#define NEAP_STORE_ACCESSOR_ACCESSOR_H

#include "store/accessor/places.h"
#include "store/accessor/routes.h"
#include "store/latency.h"
#include <neap/store.h>

#define NEAP_INLINE_MAX 65536u      /* bytes that a call can carry */

struct neap_accessor;

struct neap_accessor_options {
	uint32_t operations_max;   /* at once; 0: 4096 */
	uint32_t batches_max;      /* 0: 256 */
	uint32_t peers_max;        /* owners spoken to at once; 0: 256 */
	uint32_t pins_max;         /* finished pins that wait to be told, of all owners; 0: 4096 */
	uint32_t attempts_max;     /* of one call at one owner, while it is not known whether it was executed; 0: 3 */
	uint32_t revokes_max;      /* attempts of a WriteRevoke or UnPinKey; 0: 3 */
	uint32_t inline_max;       /* values of up to so many bytes travel inside the call, unless FORWARD was asked for; 0: 16 KiB */
	bool no_inline;
	bool verify;               /* gets sum what they read when the owner knows the crc; puts send theirs */
	enum neap_direction direction; /* DEFAULT: REVERSE */
	uint64_t deadline_ns;      /* of an operation that names none; 0: 30 s */
	uint64_t call_timeout_ns;  /* of one attempt of a call that moves no bytes; 0: 2 s */
	uint64_t cleanup_timeout_ns; /* for a revoke, from its first attempt; 0: 2 s */
	uint64_t backoff_ns;       /* before the first repeat, doubled each time; 0: 10 ms */
	uint64_t unpin_after_ns;   /* finished pins ride on the next request, or go by themselves after this; 0: 100 ms */
	uint64_t peer_idle_ns;     /* connections to owners not spoken to for so long are closed; 0: 60 s */
	struct neap_route_cache_options routes;
	struct neap_owner *owner; /* of this process: its values need no call. NULL: none. Outlives the accessor */
	struct neap_place here;   /* how others reach that one */
};

/* `engine` is a home engine; it and `places` outlive the accessor. NEAP_EINVAL, NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_accessor_create(struct neap_accessor **accessor_p, struct neap_engine *engine, const struct neap_places *places,
                         const struct neap_accessor_options *options);
/* Cancels what runs. `closed` once, from a turn, when every operation has ended and nothing of it is left. */
void neap_accessor_close(struct neap_accessor *accessor, void (*closed)(void *user), void *user);

/* --- operations -------------------------------------------------------------------------------------------------------------- */

/* Key and slices are copied, the memory is not. *operation_p may be NULL. NEAP_EINVAL (key, slices, their number, options), NEAP_EAGAIN
 * (operations_max), NEAP_ECLOSED. */
int neap_accessor_put(struct neap_accessor *accessor, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                      const struct neap_put_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p);
/* The slices together may be longer than the value. */
int neap_accessor_get(struct neap_accessor *accessor, const struct neap_key *key, const struct neap_slice_of *slices, uint32_t count,
                      const struct neap_get_options *options, neap_store_done_func *done, void *user, neap_operation_id *operation_p);
/* It ends CANCELED from a later turn, unless it ends otherwise: what has been committed meanwhile is. Harmless when it has ended. */
void neap_accessor_cancel(struct neap_accessor *accessor, neap_operation_id operation);

/* Asks the owner what became of a put: SUCCESS (`created` when the value is known to be of that write), FAILED, or still UNKNOWN. Errors
 * as put. */
int neap_accessor_resolve(struct neap_accessor *accessor, const struct neap_key *key, const struct neap_unsettled *unsettled,
                          uint64_t deadline_ns, neap_store_done_func *done, void *user, neap_operation_id *operation_p);

/* Asks one owner to remove a key; `done` once, from a turn: a number of the store (OBJECT_NOT_FOUND: it had none), RPC_FAIL (perhaps
 * removed), NEAP_ECANCELED. What is remembered of the key's routes is forgotten. NEAP_EAGAIN, NEAP_ETIMEDOUT, NEAP_ECLOSED,
 * NEAP_EADDRESS. */
int neap_accessor_remove(struct neap_accessor *accessor, const struct neap_place *place, const struct neap_key *key, uint64_t deadline_ns,
                         void (*done)(void *user, int error, const char *why), void *user);

/* --- batches ----------------------------------------------------------------------------------------------------------------- */

/* `items`, keys and slices stay with the accessor until `finished`. The deadline of options counts from here for all. An item that is not
 * well formed fails alone (INVALID_PARAMS). NEAP_EINVAL (count 0), NEAP_EAGAIN (batches_max), NEAP_ECLOSED. */
int neap_accessor_put_batch(struct neap_accessor *accessor, const struct neap_batch_item *items, uint32_t count,
                            const struct neap_store_batch_options *options, uint64_t *batch_p);
int neap_accessor_get_batch(struct neap_accessor *accessor, const struct neap_batch_item *items, uint32_t count,
                            const struct neap_store_batch_options *options, uint64_t *batch_p);
/* What runs is canceled, what has not begun fails with NEAP_ECANCELED. */
void neap_accessor_cancel_batch(struct neap_accessor *accessor, uint64_t batch);

/* --- statistics -------------------------------------------------------------------------------------------------------------- */

struct neap_way_stats { /* of one way a value goes */
	uint64_t operations, succeeded, failed, unknown, bytes; /* bytes: of succeeded ones */
	struct neap_latency latency; /* of succeeded ones, from the call to the outcome */
};

enum neap_way { NEAP_WAY_NONE, NEAP_WAY_INLINE, NEAP_WAY_REVERSE, NEAP_WAY_FORWARD, NEAP_WAY_LOCAL, NEAP_WAYS }; /* NONE: it ended before */

struct neap_accessor_stats {
	struct neap_way_stats puts[NEAP_WAYS], gets[NEAP_WAYS];
	uint64_t existed;                               /* puts of keys that had a value */
	uint64_t repeats, write_retries, read_retries;  /* repeats: to the same owner; retries: at another, or with a fresh route */
	uint64_t late;                                  /* grants that came too late to be used, reads that ended too late to be believed */
	uint64_t held;                                  /* outcomes with held buffers */
	uint64_t wrong_sums, stale_routes;
	uint64_t revokes, revokes_failed;               /* failed: given up; the lease ends it */
	uint64_t pins, pins_ridden, unpin_calls, pins_dropped; /* finished ones; dropped: the lease ends them */
	uint64_t resolves;
	uint32_t operations_now, batches_now, peers_now, pins_now;
	struct neap_route_cache_stats routes;
};
void neap_accessor_stats(const struct neap_accessor *accessor, struct neap_accessor_stats *stats_p);

#endif
