/* The world of the model: what the machines' actions act upon. A world is one state of the exploration: plain bytes, no pointers, nothing in
 * it but what can still matter, so that equal situations are equal bytes.
 *
 * The machines are the library's own tables; what an action does, and how a fact becomes an event, mirrors the code that is named beside
 * it. Files: world.c (begin, small helpers), tables.c (steps through the tables), memory.c (slots, references, quarantine), owner_side.c,
 * records.c (write_record, pin_record, move_record), accessor_ask.c, accessor_put.c, accessor_get.c, accessor_here.c (values of its own
 * process), directory.c (which values it has accepted, and who waits for that), pieces.c (bytes on their way), events.c (what can happen
 * next), invariants.c, scenarios.c, explore.c, report.c, main.c. */
#ifndef NEAP_TESTS_MODEL_WORLD_H
#define NEAP_TESTS_MODEL_WORLD_H

#include <neap/fsm.h>

enum {
	OPS = 3, OWNERS = 2, KEYS = 2, SLOTS = 3, RECORDS = 5, MESSAGES = 8, PIECES = 10, HALVES = 2, GRANTS = 5, ENDED_GRANT = 4, NONE = 255
};

/* What memory holds. Operation i writes i + 1: a stamp is a version. */
enum stamp { NOTHING, OF_FIRST, OF_SECOND, OF_THIRD, OLD, RUINED, FILLER, JUNK };

enum op_kind { NO_OP, PUT, GET, RESOLVE };
enum way { INLINE, REVERSE, FORWARD };
enum method { NO_METHOD, PRE_WRITE, COMMIT, REVOKE, WRITE_REMOTE, LOOK_UP, PIN_KEY, READ_REMOTE, UN_PIN };
enum outcome { FAILED, SUCCESS, UNKNOWN };

/* Answers of an owner, as the accessor tells them apart. */
enum status {
	OK, EXISTS, PROCESSING, NOT_FOUND, NO_HANDLE, LEASE_EXPIRED, INVALID_WRITE, COPY_FAILED, TRANSFER_FAIL, NO_SESSION, NOT_SENT, UNAVAILABLE,
	NOT_READY, /* the directory has not accepted it */
	ELSEWHERE, /* REPLICA_NUM_EXCEEDED: the directory knows the key at another owner */
	DIFFERS,   /* CAS_FAILED: so, and with another value */
};

/* What a question whether the directory knows a value comes to: neap_settle_func. */
enum verdict { KNOWN, GONE, REFUSED_SAME, REFUSED_OTHER, TOO_LATE, STOPPED };

/* A call to an owner and everything that an operation knows: struct accessor_op. */
struct op {
	uint8_t kind, at, way, owner, next_route, known_epochs;
	uint8_t routes; /* owners that the directory named, a bit each */
	/* the question under way: struct ask, and which attempt */
	uint8_t ask, serial, attempts, session, revokes, agains;
	bool call, perhaps, cut, has_id, paused, stopped, final, deadline, cleanup, guard, pausing;
	uint8_t pause_event;
	/* what the owner has granted */
	uint8_t owner_id, write_id, version, slot;
	bool until; /* no call of ours can still be on its way to the unsettled owner */
	/* bytes */
	bool batch, failed, held, asked_anew, has_expected;
	uint8_t lent, grants[GRANTS], verdict, buffer[HALVES];
	bool summing, asking, reaching, exists; /* exists: the directory says so, and nobody was asked yet */
	bool settling;                          /* of a value in its own process: the directory is to know it */
	/* how it ended */
	bool told, told_held, created;
	uint8_t outcome;
	/* only for the invariants */
	uint8_t commits, seen, tells;
	bool accepted; /* its value was to be read, or was removed before */
};

enum record_type { NO_RECORD, WRITE_RECORD, PIN_RECORD, MOVE_RECORD };

struct record {
	uint8_t type, at, op, serial, slot, version;
	uint8_t generation;                  /* of the place in the table, goes on */
	uint8_t grant;                       /* state of the real grant table + 1; 0: never made */
	uint8_t answer_serial, answer_attempt, lent; /* whom to answer; grant of the accessor that a move uses */
	bool entry, over, done, ending, unpinned, holds, exposed, push, refused, held, expected, summing, opening, shared;
	bool here; /* asked for by the owner's own process: no call, no grant */
};

enum slot_phase { FREE, RESERVED, COMMITTED, QUARANTINED };

struct slot {
	uint8_t phase, references, exposures, bytes[HALVES];
	bool left_open; /* a grant on it was never ended (only without a protection) */
};

/* Answers kept for one accessor: at most once. */
struct lane {
	uint8_t serial, phase, attempt, status, id, version, slot, session, ended_id;
	bool created;
};
enum lane_phase { UNSEEN, UNDER_WAY, ANSWERED };

/* What an owner has under a key, and what it knows of the directory about it. */
struct key {
	uint8_t value, version, write_id, pending; /* slot or NONE, stamp, id, record or NONE */
	bool known;                                /* the directory has accepted it: it may be read */
	uint8_t answer;                            /* of the directory, on its way: enum verdict + 1; 0: none */
};

/* A call that is answered when the directory knows the value: struct peer_operation. */
struct wait {
	uint8_t method, serial, attempt, version, id;
	bool created;
};

struct owner {
	uint8_t epoch;
	uint8_t filler;                            /* slot or NONE */
	bool leaving, full; /* full: as many calls are under way as there may be (operations_max) */
	struct slot slots[SLOTS];
	struct record records[RECORDS];
	struct lane lanes[OPS];
	struct key keys[KEYS];
	struct wait waits[OPS];
};

struct message {
	uint8_t type, op, owner, epoch, method, serial, attempt, id, session, status, version, slot, lent;
	bool created;
};
enum message_type { NO_MESSAGE, REQUEST, REPLY };

/* Half of a value on its way. */
struct piece {
	uint8_t kind, at, op, owner, epoch, id, record, slot, half, stamp; /* id: of the record, or number of the accessor's grant */
	bool live, local; /* of a batch that still runs; the initiator's own memory is still in use for it */
};
enum piece_kind { NO_PIECE, FORWARD_WRITE, FORWARD_READ, PULL, PUSH };
enum piece_at { ON_THE_WIRE, ADMITTED };

/* What may happen only so many times: each of them, and all faults together. */
enum budget {
	FAULTS, REMOVE, FILL, LOSS, UNREACHABLE, CUT, LEASE, RESTART, STRAY, CORRUPT, XFER, HELD, CANCEL, DEADLINE, FORGET, LEAVE, MASTER, FULL,
	BUDGETS
};
static inline bool budget_is_fault(enum budget budget)
{
	return budget >= LOSS;
}

/* The directory, of the first key: soft state. */
struct directory {
	uint8_t route, version; /* an owner or NONE; of its value */
	bool recovering;        /* it began empty, and has not heard all owners */
};

struct world {
	struct op ops[OPS];
	struct owner owners[OWNERS];
	struct message messages[MESSAGES];
	struct piece pieces[PIECES];
	struct directory directory;
	uint8_t budgets[BUDGETS];
};

/* --- what the exploration is about: scenarios.c */

enum protection {
	QUARANTINE, SEND_TIME_LEASE, FENCE_EPOCH, IDEMPOTENCE, GRANT_BEFORE_COMMIT, COMMIT_MASKS_EXPIRY, READERS_PINS, VERSION_PINS,
	CREATE_IF_ABSENT, REVERSE_GRANTS, RECALL_BEFORE_REPEAT, HELD_MEMORY, UNKNOWN_STAYS, SETTLE_WAITS, GRANT_PER_PIECE, REFUSALS_TOLD, CHECKSUMS,
	READS_SETTLED, PUTS_SETTLE, LATE_IS_UNKNOWN, RECOVERY, QUARANTINE_LIMIT, FRESH_TOKENS, ROOM_FIRST,
	PROTECTIONS
};

struct scenario {
	const char *name, *text;
	uint8_t kinds[OPS], ways[OPS];
	uint8_t keys[OPS];   /* which one it is about */
	uint8_t here[OPS];   /* the owner of its own process, + 1; 0: it has none */
	uint8_t starts[OPS]; /* the owner that the directory names first */
	uint8_t owners, budgets[BUDGETS];
	bool old;       /* the key has a value at the first owner in the beginning */
	bool sums;      /* crc32c of values are known and compared */
	bool blind;     /* a transport that lets a reader believe it got bytes when the target refused */
	bool slow;      /* directory, connections and pauses take time: those states are seen, too */
	bool resolve;   /* an UNKNOWN put is asked about */
	uint8_t attempts; /* of a call: attempts_max, revokes_max */
	uint8_t slots;
	uint8_t quarantine_max; /* slots; 0: there is no limit */
	bool directory;         /* it accepts and refuses values; else all are known at once (a store without a master) */
};

struct setting {
	const struct scenario *scenario;
	bool without[PROTECTIONS];
	bool has_mutant; /* this cell of this table says that its event is ignored */
	uint8_t mutant_table, mutant_cell;
};

/* --- a step of the world: one event and everything that follows from it at once */

struct pending {
	uint8_t owner, index, event; /* owner NONE: of operation `index` */
};

/* What a step needs beside the state: the queue of the dispatcher, and what was wrong. */
struct step {
	struct world *world;
	const struct setting *setting;
	struct pending queue[32];
	uint32_t head, tail;
	const char *wrong, *invariant; /* a violation: the sentence, and which one */
	bool fault;                    /* it needs no healthy world to happen: it is not counted on to get on */
	void (*note)(void *user, const char *text); /* tells what happens; NULL: nobody listens */
	void *user;
};

static inline bool has(const struct step *step, enum protection protection)
{
	return !step->setting->without[protection];
}
static inline const struct scenario *scenario_of(const struct step *step)
{
	return step->setting->scenario;
}

/* --- world.c */

void world_begin(struct world *world, const struct setting *setting);
bool is_awaited(const struct world *world, const struct message *message);
void world_settle(struct step *step); /* lists in their one order, what cannot matter any more cleared */
void violated(struct step *step, const char *invariant, const char *text);
NEAP_PRINTF(2, 3) void note(struct step *step, const char *format, ...);
bool budget_left(const struct world *world, enum budget budget);
bool spend(struct step *step, enum budget budget); /* false: none is left */
void send(struct step *step, const struct message *message);
uint8_t id_of(const struct owner *owner, uint32_t record);
/* NONE: it is no record's, or not any more */
uint8_t record_find(const struct owner *owner, uint8_t id);
bool record_is(const struct owner *owner, uint8_t id, enum record_type type, uint8_t *index_p);
void publish_seen(struct step *step, uint8_t key, uint8_t version);
struct key *key_at(struct step *step, uint8_t owner, uint8_t op); /* the key of the operation, at that owner */
bool is_directory_asked(const struct step *step);

/* --- tables.c */

enum table { T_PUT, T_GET, T_WRITE, T_PIN, T_MOVE, T_GRANT, TABLES };
extern const struct neap_fsm *const tables[TABLES];

/* Takes the counters of all steps from here: hits[table][state * events + event]. */
struct cell_counts {
	uint64_t hits[TABLES][256];
};
void tables_begin(const struct setting *setting, struct cell_counts *counts);
enum table table_of(const struct world *world, const struct pending *pending);
void post(struct step *step, uint8_t owner, uint8_t index, uint8_t event);
static inline void post_op(struct step *step, uint8_t op, uint8_t event)
{
	post(step, NONE, op, event);
}
void run_queue(struct step *step);
void grant_step(struct step *step, uint8_t *grant, uint8_t event); /* of the grant table; 0 is none, else state + 1 */
bool grant_is_live(uint8_t grant);
bool grant_is_ending(uint8_t grant);
bool op_waits_with(const struct op *op, uint8_t *class_p); /* has its state a timeout, and which */
bool op_is_final(const struct op *op);

/* --- memory.c */

uint8_t slot_reserve(struct step *step, uint8_t owner); /* NONE: no room */
bool slot_may_be_told(const struct step *step, uint8_t owner); /* the quarantine has room for what may come of it */
void slot_hold(struct owner *owner, uint8_t slot);
void slot_drop(struct step *step, uint8_t owner, uint8_t slot);
void slot_expose(struct owner *owner, uint8_t slot);
void slot_end_exposure(struct step *step, uint8_t owner, uint8_t slot);
void key_publish(struct step *step, uint8_t owner, uint8_t record_slot, uint8_t version, uint8_t write_id, uint8_t op);
void key_withdraw(struct step *step, uint8_t owner, uint8_t key);
bool filler_put(struct step *step, uint8_t owner);
void filler_remove(struct step *step, uint8_t owner);

/* --- owner_side.c, records.c */

void owner_receive(struct step *step, const struct message *request);
void owner_answer(struct step *step, uint8_t owner, uint8_t op, uint8_t serial, uint8_t attempt, const struct message *answer);
uint8_t owner_reserve(struct step *step, uint8_t owner, uint8_t op, uint8_t *slot_p);
void owner_leave(struct step *step, uint8_t owner);
void owner_connection_lost(struct step *step, uint8_t owner, uint8_t op);
void record_action(struct step *step, uint8_t owner, uint8_t index, enum table table, uint8_t action);
uint8_t record_take(struct step *step, uint8_t owner, enum record_type type, const struct message *request, uint8_t slot);
void record_detach(struct step *step, uint8_t owner, uint8_t index);
bool record_in_use(const struct world *world, uint8_t owner, uint8_t index); /* an operation still counts on it */
void record_grant_over(struct step *step, uint8_t owner, uint8_t index);

/* --- accessor_ask.c, accessor_put.c, accessor_get.c */

void op_action(struct step *step, uint8_t op, enum table table, uint8_t action);
void put_action(struct step *step, uint8_t op, uint8_t action);
void get_action(struct step *step, uint8_t op, uint8_t action);
void put_answered(struct step *step, uint8_t op, const struct message *reply);
void put_refused(struct step *step, uint8_t op, uint8_t ask, uint8_t status);
void put_given_up(struct step *step, uint8_t op, uint8_t ask, bool perhaps);
void get_answered(struct step *step, uint8_t op, const struct message *reply);
void get_refused(struct step *step, uint8_t op, uint8_t ask, uint8_t status);
void get_given_up(struct step *step, uint8_t op, uint8_t ask, bool perhaps);

void get_transferred(struct step *step, uint8_t op, bool completed);

void ask(struct step *step, uint8_t op, uint8_t method);
void ask_received(struct step *step, const struct message *reply);
void ask_missed(struct step *step, uint8_t op, bool perhaps, uint8_t status);
void ask_cut(struct step *step, uint8_t op);
void ask_pause(struct step *step, uint8_t op, uint8_t event);
void ask_resume(struct step *step, uint8_t op);
bool next_owner(struct step *step, uint8_t op);
void reach(struct step *step, uint8_t op);
void reached(struct step *step, uint8_t op, bool there);
void place(struct step *step, uint8_t op);
void placed(struct step *step, uint8_t op, bool any);
void conclude(struct step *step, uint8_t op, bool created, uint8_t version);
void stop_or_halt(struct step *step, uint8_t op, bool halt);
void tell(struct step *step, uint8_t op, bool held);
void release(struct step *step, uint8_t op);
void recall(struct step *step, uint8_t op);
void lend(struct step *step, uint8_t op);
void accessor_grant_over(struct step *step, uint8_t op, uint8_t number);
bool is_lent_or_recalling(const struct op *op);

/* --- accessor_here.c */

bool begins_here(const struct step *step, uint8_t op);
void keep(struct step *step, uint8_t op);
void settle(struct step *step, uint8_t op);
void settled(struct step *step, uint8_t op, uint8_t verdict);
void fetch(struct step *step, uint8_t op);
void copied_here(struct step *step, uint8_t owner, uint8_t record);
void move_told(struct step *step, const struct record *done, uint8_t status); /* of a record that was asked for here */

/* --- directory.c */

bool is_settled(struct step *step, uint8_t owner, uint8_t op);
void answer_settled(struct step *step, uint8_t owner, uint8_t op, const struct wait *wait);
void settle_verdict(struct step *step, uint8_t owner, uint8_t key, uint8_t verdict);
void wait_too_late(struct step *step, uint8_t owner, uint8_t op);
bool may_announce(const struct world *world, const struct setting *setting, uint8_t owner);
void announce(struct step *step, uint8_t owner);
void announced(struct step *step, uint8_t owner);
bool may_recover(const struct world *world, const struct setting *setting);
void master_restart(struct step *step);

/* --- pieces.c */

void pieces_of_op(struct step *step, uint8_t op, enum piece_kind kind);
void pieces_of_move(struct step *step, uint8_t owner, uint8_t record);
void piece_moves(struct step *step, uint32_t index);
void piece_add(struct step *step, const struct piece *piece);
void piece_remove(struct world *world, uint32_t index);
bool pieces_admitted(const struct world *world, bool of_accessor, uint8_t who, uint8_t id); /* under a grant; who: op or owner */
uint32_t pieces_live(const struct world *world, uint8_t op, bool of_move, uint8_t owner, uint8_t id);
/* The batch is over. Reads of it cannot land any more, writes may still come; with `held` all of it goes on until it is released. */
void pieces_end(struct step *step, uint8_t op, bool of_move, uint8_t owner, uint8_t id, bool held);
void pieces_release(struct step *step, uint8_t op, bool of_move, uint8_t owner, uint8_t id); /* what was held */
void pieces_settle(struct step *step);
void batch_over(struct step *step, uint8_t op, bool completed, bool held);
void op_released(struct step *step, uint8_t op);

/* --- events.c, happen.c */

struct event {
	uint8_t kind, a, b;
};
uint32_t events_of(const struct world *world, const struct setting *setting, struct event *events, uint32_t max);
void event_apply(struct step *step, const struct event *event);
const char *event_name(uint8_t kind);
int event_find(const char *name);
void event_text(const struct world *world, const struct event *event, char *text, uint32_t size);
bool world_is_final(const struct world *world);
bool piece_is_late(const struct piece *piece);
bool answer_may_come(const struct world *world, uint8_t op);

/* --- invariants.c */

struct invariant_text {
	const char *name, *text;
};
extern const struct invariant_text invariant_texts[];
extern const uint32_t invariant_count;
void check_world(struct step *step);
void check_told(struct step *step, uint8_t op);
void check_ends_soon(struct step *step, uint8_t op, bool canceled, bool revoked_before);
void check_accept(struct step *step, uint8_t version);
void check_publish(struct step *step, uint8_t owner, uint8_t slot, uint8_t version, uint8_t op);
void check_buffer(struct step *step, uint8_t op, bool reading);

/* --- scenarios.c */

struct protection_text {
	const char *name, *text, *scenario; /* the scenario that shows the need */
};
extern const struct scenario scenarios[];
extern const uint32_t scenario_count;
extern const struct protection_text protection_texts[PROTECTIONS];
extern const char *const budget_names[BUDGETS];

/* --- explore.c */

struct result {
	uint64_t states, transitions, finals;
	uint32_t depth;
	double seconds;
	size_t bytes;
	bool complete, violated;
	const char *invariant, *wrong;
	struct event *trace; /* of a violation; freed by whoever asked */
	uint32_t trace_length;
};
void explore(const struct setting *setting, uint64_t states_max, struct result *result_p);

/* --- report.c */

void report_trace(const struct setting *setting, const struct result *result);
void report_cells(const struct cell_counts *counts, bool missing);
int replay(const char *path);

#endif
