/* Where keys are and who is alive: the interface between those who hold or want values (owners, accessors) and whatever keeps the
 * directory. One implementation is in this process (local.h); a remote one sends the same calls over a wire.
 *
 * A call is the caller's memory, with room for its answers: fill in `op`, `done` and the member of `as` that belongs to the op, and
 * begin it. It ends in one `done`, from a turn, never from inside begin; after cancel it never ends. What it points to must stay as
 * it is until then. `error` is a number of neap/store_error.h, or NEAP_ETIMEDOUT, NEAP_ECLOSED, NEAP_EPEER (whether a change took
 * effect is then unknown: announce again), or RPC_FAIL from a directory that is not here: `effect` says whether it can have taken effect.
 * Batches have an error for each item besides. Owner thread only. */
#ifndef NEAP_STORE_KEY_DIRECTORY_H
#define NEAP_STORE_KEY_DIRECTORY_H

#include <neap/reactor.h>
#include <neap/store_error.h>

#define NEAP_KEY_HOST_SIZE 64u
#define NEAP_KEY_NAME_SIZE 64u
#define NEAP_KEY_TAGS_MAX 8u
#define NEAP_KEY_TAG_SIZE 32u

/* 128 random bits; all zero: none. */
struct neap_key_id {
	uint64_t first, second;
};

static inline bool neap_key_id_equal(struct neap_key_id a, struct neap_key_id b)
{
	return a.first == b.first && a.second == b.second;
}

static inline bool neap_key_id_none(struct neap_key_id id)
{
	return (id.first | id.second) == 0;
}

/* When the directory accepted a route: its own epoch, and a number within it. Owners keep the stamp with the value and give it back
 * when they announce again, so that a directory that forgot everything still knows which of two values was first. All zero: none.
 * */
struct neap_key_stamp {
	uint64_t epoch, sequence;
};

static inline bool neap_key_stamp_none(struct neap_key_stamp stamp)
{
	return (stamp.epoch | stamp.sequence) == 0;
}

static inline bool neap_key_stamp_before(struct neap_key_stamp a, struct neap_key_stamp b)
{
	return a.epoch != b.epoch ? a.epoch < b.epoch : a.sequence < b.sequence;
}

struct neap_key_text {
	const char *text; /* any bytes */
	uint32_t length;
};

/* --- clients ---------------------------------------------------------------------------------------------------------- */

/* A tier of a client, as others see it. */
struct neap_key_segment {
	struct neap_key_id id;
	char name[NEAP_KEY_NAME_SIZE];
	uint64_t capacity, used; /* bytes */
	int32_t priority;        /* higher: preferred */
	uint32_t memory_type;    /* the owner's; handed on */
	uint32_t tag_count;
	char tags[NEAP_KEY_TAGS_MAX][NEAP_KEY_TAG_SIZE];
};

/* Who calls: a process, not a name. A restarted client has another instance, and what its predecessor announced is gone. */
struct neap_key_client {
	struct neap_key_id id;
	uint64_t instance; /* random at each start; not 0 */
};

/* The numbers of the reference. */
enum neap_key_status { NEAP_KEY_UNDEFINED, NEAP_KEY_HEALTHY, NEAP_KEY_DISCONNECTED, NEAP_KEY_CRASHED };

/* A registered client registers again as often as it likes: segments it does not have yet are mounted, its address is the new one.
 * Errors: INVALID_PARAMS (no id, instance, host or port; a segment without id), ILLEGAL_CLIENT (a later start of this client, by
 * `start`, is registered: the caller is a ghost), KEYS_ULTRA_LIMIT (a limit of the directory), UNAVAILABLE_IN_CURRENT_STATUS. */
struct neap_key_register {
	struct neap_key_client client;
	uint64_t start;               /* grows with each start at the same id or address, such as the time of the start; 0: not known */
	char host[NEAP_KEY_HOST_SIZE];
	uint16_t port;                /* where its peers call it */
	bool holds;                   /* it has values that the directory should hear of: a full announcement will follow */
	const struct neap_key_segment *segments;
	uint32_t segment_count;
	/* answer */
	uint64_t epoch;               /* of the directory */
	bool announce_all;            /* begin a full announcement */
};

struct neap_key_usage {
	struct neap_key_id segment;
	uint64_t used, capacity; /* capacity 0: as before */
	/* answer */
	int error; /* SEGMENT_NOT_FOUND, INVALID_PARAMS: more used than there is */
};

/* A value that another owner had first: this client is to drop it and to announce its removal. */
struct neap_key_lost {
	struct neap_key_id segment;
	uint64_t generation;
	uint32_t offset, length; /* of the key in lost_text */
};

/* Keeps a client alive. An unknown one is answered NEAP_KEY_UNDEFINED: register. What is lost is told in each heartbeat until its
 * removal was announced. */
struct neap_key_heartbeat {
	struct neap_key_client client;
	uint64_t epoch_known; /* the directory's epoch as the client knows it; another one: it missed a change of directory */
	struct neap_key_usage *usages;
	uint32_t usage_count;
	struct neap_key_lost *lost; /* room for the answer; may be NULL */
	uint32_t lost_max;
	char *lost_text;
	uint32_t lost_text_size;
	/* answer */
	enum neap_key_status status;
	uint64_t epoch;
	bool announce_all;
	uint32_t lost_count;
	bool lost_more; /* than there was room for */
};

/* Mount: CLIENT_NOT_FOUND, INVALID_PARAMS, ILLEGAL_CLIENT (the segment is another client's), KEYS_ULTRA_LIMIT; a segment that is
 * there: 0. Unmount: CLIENT_NOT_FOUND; a segment that is not there: 0. Its routes are not to be seen from then on. */
struct neap_key_mount {
	struct neap_key_client client;
	struct neap_key_segment segment; /* unmount: its id */
};

/* An unknown client: 0. */
struct neap_key_unregister {
	struct neap_key_client client;
};

struct neap_key_client_item {
	struct neap_key_id id;
	/* answer */
	enum neap_key_status status; /* UNDEFINED: not known */
	char host[NEAP_KEY_HOST_SIZE];
	uint16_t port;
};

struct neap_key_clients {
	struct neap_key_client_item *items;
	uint32_t count;
};

/* --- what owners announce --------------------------------------------------------------------------------------------- */

enum neap_key_change_kind { NEAP_KEY_ADD, NEAP_KEY_REMOVE };

/* One change of one (key, segment). Changes are applied one by one in the order they stand, so the last one counts and nothing
 * cancels anything.
 *
 * add: REPLICA_ALREADY_EXISTS (as announced before: not a failure, and the stamp is there), SEGMENT_NOT_FOUND, CLIENT_NOT_FOUND,
 * CLIENT_UNHEALTHY (heartbeat first, then again), INVALID_KEY, INVALID_PARAMS, KEYS_ULTRA_LIMIT (the directory is full),
 * REPLICA_IS_NOT_READY (the directory is recovering and cannot say yet whether the key is new: again later),
 * REPLICA_NUM_EXCEEDED (other clients had the key first, and it has as many as it may: drop the value),
 * OBJECT_ALREADY_EXISTS (another client had the key first with another size or checksum: drop the value).
 * remove: OBJECT_NOT_FOUND, REPLICA_NOT_FOUND (both: it is not there, which is what was wanted), CAS_FAILED (a later generation is
 * announced: nothing removed), CLIENT_NOT_FOUND. */
struct neap_key_change {
	enum neap_key_change_kind kind;
	struct neap_key_text key;
	struct neap_key_id segment;
	uint64_t size;
	uint64_t generation; /* of the value at its owner, growing. Remove: up to which; 0: any */
	uint32_t crc;
	bool has_crc;
	struct neap_key_stamp stamp; /* in: as given before, or none. Out: of the route that is there now */
	/* answer */
	int error;
};

/* `number` orders the batches of a client: one that is not greater than the last is an echo of the past, refused as a whole with
 * INVALID_VERSION. 0: the transport already keeps order. `round` is that of a full announcement under way, or 0. */
struct neap_key_announce {
	struct neap_key_client client;
	uint64_t number;
	uint32_t round;
	struct neap_key_change *changes;
	uint32_t count;
};

/* A full announcement: begin, announce everything in batches of its round, end. What was announced neither in it nor since its
 * begin is then dropped. A new begin makes the one before void. Errors: CLIENT_NOT_FOUND, INVALID_VERSION (the round is not the
 * present one). */
struct neap_key_round {
	struct neap_key_client client;
	uint32_t round; /* begin: answer. end: which */
	/* answer of end */
	uint64_t dropped;
};

/* --- what accessors ask ----------------------------------------------------------------------------------------------- */

enum neap_key_strategy { NEAP_KEY_ORDERED, NEAP_KEY_RANDOM, NEAP_KEY_CAPACITY_PRIORITY };

/* How places for a new value are chosen; docs/DIRECTORY.md has the rules. */
struct neap_key_write_config {
	uint32_t candidates_max; /* 0: all */
	enum neap_key_strategy strategy;
	double remote_weight;         /* the weight of others; the caller's own is 1 - remote_weight; a weight <= 0 excludes */
	double local_write_waterline; /* judged by the caller, who knows its own use; here only contradictions are refused */
	bool top_tier_only;           /* count only a client's eligible segments of the highest priority */
	bool early_return;            /* stop when candidates_max were found, in the strategy's order */
	int32_t priority_limit;       /* segments below do not count */
	uint32_t tag_count;           /* segments with one of these tags do not count */
	char tags[NEAP_KEY_TAGS_MAX][NEAP_KEY_TAG_SIZE];
};
#define NEAP_KEY_WRITE_CONFIG                                                                                            \
	{                                                                                                                    \
		.candidates_max = 2, .strategy = NEAP_KEY_CAPACITY_PRIORITY, .remote_weight = 0.5, .local_write_waterline = 0.5, \
		.top_tier_only = true, .early_return = true,                                                                     \
	}

struct neap_key_candidate {
	struct neap_key_id client;
	char host[NEAP_KEY_HOST_SIZE];
	uint16_t port;
	uint64_t available; /* bytes */
	double score;
};

struct neap_key_write_item {
	struct neap_key_text key;
	uint64_t size;
	/* answer. INVALID_KEY, INVALID_PARAMS (size 0), REPLICA_NUM_EXCEEDED (the key is there), REPLICA_IS_NOT_READY (recovering: the
	 * key may be there), NO_AVAILABLE_CANDIDATE, BUFFER_OVERFLOW (no room in `candidates`) */
	int error;
	uint32_t first, count; /* in candidates */
};

/* INVALID_PARAMS: contradictions in the config. The space of the first candidate counts as taken until its next heartbeat, so that
 * those who ask at the same time are not all sent to one. */
struct neap_key_write_routes {
	struct neap_key_id requester; /* none: not a client */
	struct neap_key_write_config config;
	struct neap_key_write_item *items;
	uint32_t count;
	struct neap_key_candidate *candidates; /* room for all items */
	uint32_t candidates_max;
	/* answer */
	uint32_t candidates_used;
};

struct neap_key_read_config {
	uint32_t replicas_max; /* of a key; 0: all */
	int32_t priority_limit;
	uint32_t tag_count; /* an exclusion list */
	char tags[NEAP_KEY_TAGS_MAX][NEAP_KEY_TAG_SIZE];
};

struct neap_key_replica {
	struct neap_key_id client, segment;
	char host[NEAP_KEY_HOST_SIZE];
	uint16_t port;
	uint64_t size, generation;
	uint32_t crc;
	bool has_crc;
	int32_t priority;
	uint32_t memory_type;
	struct neap_key_stamp stamp;
};

struct neap_key_read_item {
	struct neap_key_text key;
	/* answer. OBJECT_NOT_FOUND, REPLICA_IS_NOT_READY (known but no replica is to be had now, or recovering), INVALID_KEY,
	 * BUFFER_OVERFLOW */
	int error;
	uint32_t first, count; /* in replicas */
};

/* Of each client that is healthy, its best replica; by priority. */
struct neap_key_replicas {
	struct neap_key_read_config config;
	struct neap_key_read_item *items;
	uint32_t count;
	struct neap_key_replica *replicas; /* room for all items */
	uint32_t replicas_max;
	/* answer */
	uint32_t replicas_used;
};

/* error 0: there is a route, whatever its owner's health. OBJECT_NOT_FOUND, REPLICA_IS_NOT_READY (recovering), INVALID_KEY. */
struct neap_key_exist {
	struct neap_key_read_item *items;
	uint32_t count;
};

struct neap_key_count {
	/* answer */
	uint64_t keys, replicas;
	bool complete; /* false: recovering, or routes of departed clients are still being dropped */
};

struct neap_key_listed {
	uint32_t offset, length; /* in text */
};

/* Keys that a regular expression matches anywhere (match.h has the syntax), a page at a time: begin with cursor 0 and go on with
 * the cursor of the answer until it is 0. A key that is there from the first page to the last is listed exactly once.
 * INVALID_PARAMS: `why` says what is wrong with the pattern and where. BUFFER_OVERFLOW: not even one key fits. */
struct neap_key_list {
	struct neap_key_text pattern; /* empty: all */
	uint64_t cursor;
	struct neap_key_listed *keys;
	uint32_t keys_max;
	char *text;
	uint32_t text_size;
	/* answer */
	uint32_t count;
	bool complete; /* false: recovering, there may be more */
	char why[120];
};

/* --- the interface ---------------------------------------------------------------------------------------------------- */

enum neap_key_op {
	NEAP_KEY_OP_REGISTER,
	NEAP_KEY_OP_UNREGISTER,
	NEAP_KEY_OP_HEARTBEAT,
	NEAP_KEY_OP_MOUNT,
	NEAP_KEY_OP_UNMOUNT,
	NEAP_KEY_OP_CLIENTS,
	NEAP_KEY_OP_ANNOUNCE,
	NEAP_KEY_OP_ROUND_BEGIN,
	NEAP_KEY_OP_ROUND_END,
	NEAP_KEY_OP_WRITE_ROUTES,
	NEAP_KEY_OP_REPLICAS,
	NEAP_KEY_OP_EXIST,
	NEAP_KEY_OP_COUNT,
	NEAP_KEY_OP_LIST,
	NEAP_KEY_OPS,
};

/* What is known of a call that ended with an error. */
enum neap_key_effect {
	NEAP_KEY_EFFECT_PERHAPS, /* or in part */
	NEAP_KEY_EFFECT_NONE,    /* the directory never began it */
	NEAP_KEY_EFFECT_DONE,    /* the directory ran it: the error is its answer */
};

struct neap_key_call {
	enum neap_key_op op;
	enum neap_key_effect effect; /* answer of remote directories; the local one leaves it alone */
	uint64_t deadline_ns; /* 0: the directory's default */
	void (*done)(struct neap_key_call *call, int error);
	void *user;
	union {
		struct neap_key_register register_;
		struct neap_key_unregister unregister;
		struct neap_key_heartbeat heartbeat;
		struct neap_key_mount mount, unmount;
		struct neap_key_clients clients;
		struct neap_key_announce announce;
		struct neap_key_round round;
		struct neap_key_write_routes write_routes;
		struct neap_key_replicas replicas;
		struct neap_key_exist exist;
		struct neap_key_count count;
		struct neap_key_list list;
	} as;
	/* The implementation's while it is under way; zeroed before the first use. */
	struct neap_key_call *next, *previous;
	void *list, *extra;
	struct neap_timer timer;
	uint64_t progress;
};

struct neap_key_directory {
	/* NEAP_EAGAIN: as many calls as it may have are under way. NEAP_ECLOSED. NEAP_EINVAL: the call makes no sense (a batch that is
	 * too large, no `done`, a deadline that has passed). Then `done` is not called. */
	int (*begin)(void *directory, struct neap_key_call *call);
	/* Nothing when it is not under way. */
	void (*cancel)(void *directory, struct neap_key_call *call);
	void *directory;
};

static inline int neap_key_begin(const struct neap_key_directory *directory, struct neap_key_call *call)
{
	return directory->begin(directory->directory, call);
}

static inline void neap_key_cancel(const struct neap_key_directory *directory, struct neap_key_call *call)
{
	directory->cancel(directory->directory, call);
}

#endif
