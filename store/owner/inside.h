/* What the files of this room share. */
#ifndef NEAP_STORE_OWNER_INSIDE_H
#define NEAP_STORE_OWNER_INSIDE_H

#include "reactor/core.h"
#include "reactor/pool.h"
#include "store/key_hash.h"
#include "store/owner/owner.h"
#include "transports/checksum.h"
#include <neap/store_error.h>

/* Summing takes about 0.1 ms for this much: a piece a turn. */
#define NEAP_SUM_PIECE (UINT64_C(1) << 20)

#define NEAP_KEY_INLINE 88u
#define SCANNED_A_TURN 4096u /* pending writes */

/* One for each key that has a value or a pending write. */
struct neap_key_entry {
	struct neap_key_entry *next; /* in its bucket */
	uint64_t hash;
	struct neap_handle *handle; /* of the value; NULL: none */
	uint64_t generation;        /* of the value; differs for each value this owner ever had */
	uint64_t write_id;          /* that committed it; 0: not a pending write */
	uint64_t pending;           /* write or move that may commit next: its id; 0: none */
	uint32_t crc;
	uint16_t key_length;
	bool has_crc;
	bool pending_move; /* `pending` is a move */
	struct neap_handle *below;     /* a copy of the value on a disk; `handle` is in memory then */
	struct neap_tier_move *moving; /* the value, between memory and the disk */
	union {
		char inside[NEAP_KEY_INLINE];
		char *outside;
	} key;
};

struct neap_shard {
	struct neap_key_entry **buckets;
	uint32_t bucket_count, used; /* power of two */
	uint32_t changes;            /* that a walk which stopped inside a bucket must know of */
};

/* The bytes of a value, to be summed a piece at a time. */
struct neap_sum {
	struct neap_ready ready; /* first */
	const unsigned char *bytes;
	uint64_t size, done;
	uint32_t crc;
	bool wanted, has_expected;
	uint32_t expected;
	struct neap_machine *machine;
	uint8_t on_right, on_wrong;
};

struct neap_write_record {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_owner *owner;
	struct neap_key_entry *entry; /* NULL: the key is free for another write */
	struct neap_handle *handle;
	struct neap_exposure exposure;
	struct neap_grant_token token;
	struct neap_sum sum;
	uint64_t size, lease_end_ns;
	bool quiet; /* the accessor has said that nothing of it is under way */
	neap_committed_func *done;
	void *user;
};

struct neap_pin_record {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_owner *owner;
	struct neap_handle *handle;
	struct neap_exposure exposure;
	struct neap_grant_token token;
	uint64_t key_hash, lease_end_ns;
	bool ending, unpinned;
};

struct neap_move_record {
	struct neap_machine machine;
	struct neap_owner *owner;
	struct neap_key_entry *entry; /* of a pull: NULL when it has ended */
	struct neap_handle *handle;
	struct neap_sum sum;
	neap_segment_id segment_id;
	struct neap_move_segment *kept; /* NULL: of this process, or there was no room to keep it */
	bool push, failed, has_crc, has_instance, refreshed;
	struct neap_bring bring; /* of a push whose value lies on a disk */
	uint8_t instance[16];
	uint32_t crc, count, held; /* held: buffers that the transport has not let go of */
	uint64_t size, generation;
	struct neap_moved moved;
	void (*done)(void *user, const struct neap_moved *moved);
	void (*released)(void *user);
	void *user;
	char segment[256];
	struct neap_remote_slice slices[NEAP_MOVE_SLICES_MAX];
};

/* A segment of an accessor, kept open. */
struct neap_move_segment {
	uint64_t name_hash, used_ns;
	neap_segment_id id;
	uint32_t moves; /* that use it now */
	bool open;
	char name[256];
};

struct neap_lower;

struct neap_owner {
	struct neap_engine *engine;
	struct neap_reactor *reactor;
	struct neap_tiers *tiers;
	struct neap_owner_options options;
	struct neap_key_secret secret;
	struct neap_shard *shards;
	struct neap_pool entries, writes, pins, moves;
	struct neap_lower *lower; /* NULL: all tiers are in memory */
	struct neap_move_segment *segments; /* segments_max */
	struct neap_reactor_class *write_class, *pin_class, *move_class;
	struct neap_timer scan;
	uint32_t scan_at; /* index in `writes` */
	struct neap_ready tend; /* evicts, ends things while closing */
	uint64_t generation, key_bytes, keys, bytes;
	struct neap_owner_stats stats;
	void (*closed)(void *user);
	void *closed_user;
	bool closing;
	bool tending; /* eviction runs for the watermarks */
};

/* --- index.c: keys */

int neap_index_create(struct neap_owner *owner);
void neap_index_destroy(struct neap_owner *owner);
uint64_t neap_owner_key_hash(const struct neap_owner *owner, const struct neap_key *key);
struct neap_key_entry *neap_key_entry_find(const struct neap_owner *owner, const struct neap_key *key);
/* The key's entry, made when there is none. NULL: keys_max, key_bytes_max or no memory. */
struct neap_key_entry *neap_key_entry_get(struct neap_owner *owner, const struct neap_key *key);
/* Gives it back when nothing is left in it. */
void neap_key_entry_settle(struct neap_owner *owner, struct neap_key_entry *entry);
struct neap_key neap_key_entry_key(const struct neap_key_entry *entry);
/* The value of the entry is this handle from now on; the reference goes to the index. */
void neap_key_entry_publish(struct neap_owner *owner, struct neap_key_entry *entry, struct neap_handle *handle, uint64_t write_id,
                        const struct neap_sum *sum);
/* It is read from another tier from now on. */
void neap_key_entry_moved(struct neap_owner *owner, const struct neap_key_entry *entry, uint32_t from_tier);
/* Takes the value out, with its copy. Its memory is free when nobody else holds it: returns these bytes. */
uint64_t neap_key_entry_withdraw(struct neap_owner *owner, struct neap_key_entry *entry);

/* --- sum.c */

/* Posts right or wrong to the machine, from a later piece of work. Without anything to compare and verify off it only posts. */
void neap_sum_begin(struct neap_sum *sum, struct neap_owner *owner, struct neap_handle *handle, uint64_t size);
void neap_sum_cancel(struct neap_sum *sum, struct neap_reactor *reactor);

/* --- owner.c */

int neap_owner_check_key(const struct neap_owner *owner, const struct neap_key *key); /* SHUTTING_DOWN, INVALID_PARAMS */
/* The steps that prewrite and pull share: 0 and an entry without value and pending write, and a handle with one reference. */
int neap_owner_reserve(struct neap_owner *owner, const struct neap_key *key, uint64_t size, uint32_t tier,
                       struct neap_key_entry **entry_p, struct neap_handle **handle_p, uint64_t *retry_after_ns_p);
void neap_owner_wake(struct neap_owner *owner);

/* --- move_segments.c */

int neap_move_segments_create(struct neap_owner *owner);
/* Closes all that are kept: no move is under way. */
void neap_move_segments_destroy(struct neap_owner *owner);
void neap_move_segments_look(struct neap_owner *owner);
/* The segment of that name, when it is kept: in use from now on. */
struct neap_move_segment *neap_move_segment_take(struct neap_owner *owner, const char *name);
/* Was opened just now; takes it over. NULL: there is no room, the caller closes it. */
struct neap_move_segment *neap_move_segment_keep(struct neap_owner *owner, const char *name, neap_segment_id id);
void neap_move_segment_leave(struct neap_owner *owner, struct neap_move_segment *segment);

/* --- write_record.c, pin_record.c, move_record.c */

extern const struct neap_machine_kind neap_write_record_kind, neap_pin_record_kind, neap_move_record_kind;
/* The foreground check: a write whose lease is over ends now, even if its timer has still to fire. */
void neap_write_look(struct neap_owner *owner, struct neap_key_entry *entry);
void neap_write_look_at(struct neap_write_record *record);
void neap_writes_count(const struct neap_owner *owner, struct neap_owner_stats *stats_p);
uint64_t neap_write_left_ns(struct neap_owner *owner, uint64_t write_id);
void neap_writes_close(struct neap_owner *owner);
void neap_pins_close(struct neap_owner *owner);

#endif
