/* The store's cluster from inside: shared by the st_*.c files, by nobody else.
 *
 * st_world.c: a run from start to end. st_node.c: the master and the clients. st_work.c: what users do. st_values.c: contents and what may be
 * seen of them. st_faults.c: what goes wrong. st_rdma.c: devices. */
#ifndef NEAP_SIM_ST_INSIDE_H
#define NEAP_SIM_ST_INSIDE_H

#include "store/directory/local.h"
#include "store/master/service.h"
#include "store/rpc/server.h"
#include "tests/sim/fabric.h"
#include "tests/sim/st_world.h"

#define MS UINT64_C(1000000)
#define ST_CLIENTS_MAX 8u
#define ST_KEYS_MAX 128u
#define ST_OPS_MAX 512u
#define ST_PUTS_MAX 4096u
#define ST_SLOTS 24u              /* buffers of a client */
#define ST_SLOT_BYTES (160u << 10) /* at most; as long as the world's values are */
#define ST_GRAVES_MAX 24u
#define ST_MASTERS_MAX 12u
#define ST_BATCH_MAX 4u
#define ST_LEAST_VALUE 16u
#define ST_KEPT_NS (30000 * MS) /* longer than a lease and the ten tries to deregister */

enum st_slot_phase { ST_SLOT_CANARY, ST_SLOT_BUSY, ST_SLOT_HELD };

struct st_client {
	struct st_world *world;
	uint32_t index, incarnation;
	struct sim_node *node;
	struct neap_engine *engine;
	struct neap_store *store; /* NULL: closed, or never made */
	unsigned char *memory;    /* ST_SLOTS x slot_bytes, registered */
	uint8_t slots[ST_SLOTS];  /* enum st_slot_phase */
	bool up, leaving, closed, engine_closed, owns;
	struct sim_seat *seat; /* NULL: no devices */
};

struct st_master {
	struct sim_node *node;
	struct neap_local_directory *local;
	struct neap_master_service *service;
	struct neap_rpc_server *server;
};

enum st_put_phase { ST_PUT_RUNS, ST_PUT_SUCCESS, ST_PUT_FAILED, ST_PUT_UNKNOWN, ST_PUT_ORPHAN /* its client died */ };

struct st_put {
	uint32_t key, size, client;
	uint8_t phase;
	bool seen, created;
	bool again; /* its bytes were put once more: they may come back after a removal */
	uint64_t ended_ns;
};

/* What is known of a key. */
struct st_key {
	uint32_t creators;          /* puts that were told they created its value */
	uint32_t creator;           /* the last of them */
	bool acknowledged;          /* stable worlds: it has a value for ever */
	uint64_t removed_from_ns, removed_until_ns; /* the last removal that has succeeded */
};

enum st_kind { ST_PUT, ST_GET, ST_REMOVE, ST_SWEEP, ST_RESOLVE };

struct st_op {
	struct st_world *world;
	bool used, ended, has_deadline;
	bool held; /* ended, and its buffer is not given back */
	bool again; /* a put of bytes that were put before */
	bool last; /* of the liveness phase: it must succeed or miss */
	uint32_t tries; /* of that: over devices it may find only now that a connection is dead, and not in a lease's time */
	bool gone; /* its client has crashed: what its end says is nobody's */
	uint8_t kind;
	uint32_t client, incarnation, key, put, slot, size;
	uint64_t began_ns;
	bool acknowledged_before; /* get: the key had an acknowledged value when it began */
	neap_operation_id operation;
	struct neap_unsettled unsettled;
	struct st_batch *batch;
};

struct st_batch {
	struct neap_batch_item items[ST_BATCH_MAX];
	struct neap_slice_of slices[ST_BATCH_MAX];
	char keys[ST_BATCH_MAX][24];
	struct st_op *ops[ST_BATCH_MAX];
	uint32_t count;
};

struct st_world {
	struct sim *sim;
	struct sim_fabric *fabric; /* NULL: TCP alone */
	struct st_options options;
	struct st_result *result;
	struct st_client clients[ST_CLIENTS_MAX];
	struct st_client *graves[ST_GRAVES_MAX];
	uint32_t grave_count;
	struct st_master masters[ST_MASTERS_MAX];
	uint32_t master_count;
	uint32_t masters_recovered; /* the last of them that was seen to serve */
	bool owner_missed;          /* one was out of reach for the whole of a recovery: its values count as lost */
	struct st_op ops[ST_OPS_MAX];
	struct st_put puts[ST_PUTS_MAX];
	uint32_t put_count;
	struct st_key keys[ST_KEYS_MAX];
	uint32_t issued;
	uint32_t slot_bytes;
	uint32_t last_large; /* values that were got in the end, and do not travel inside a call */
	uint64_t lost_until_ns; /* one is lost for long */
	uint64_t held_until_ns[ST_CLIENTS_MAX], kept_until_ns[SIM_DEVICES_MAX]; /* packets of clients, memory by devices */
	uint32_t retries; /* last ones that are to be tried again */
	bool issuing, faults, closing, swallowed, logs;
	unsigned char expected[ST_SLOT_BYTES];
};

#define ST_SEEN(world, name) ((world)->result->sometimes.name++)

static inline struct sim_random *st_workload(struct st_world *world)
{
	return &world->sim->random[SIM_WORKLOAD];
}
static inline struct sim_random *st_chance(struct st_world *world)
{
	return &world->sim->random[SIM_FAULTS];
}

/* st_world.c */
__attribute__((format(printf, 2, 3))) void st_violation(struct st_world *world, const char *format, ...);
__attribute__((format(printf, 2, 3))) void st_log(const struct st_world *world, const char *format, ...);
bool st_sabotage(struct st_world *world, enum st_sabotage sabotage);
/* Nothing has happened that may take a value away, or let a second one in: not even a client that was silent for too long. */
bool st_is_stable(const struct st_world *world);
bool st_owner_was_given_up(const struct st_world *world);

/* st_node.c */
void st_master_start(struct st_world *world, bool first);
void st_master_crash(struct st_world *world);
void st_master_finish(struct st_world *world, struct st_master *master);
bool st_client_start(struct st_world *world, uint32_t index); /* false: no memory; it is tried again */
void st_client_crash(struct st_client *client, bool host_dies);
void st_client_leave(struct st_client *client); /* drains, closes, and comes again */
void st_client_close(struct st_client *client); /* for good */
void st_client_finish(struct st_client *client);
void st_client_count(struct st_client *client);
bool st_client_awake(const struct st_client *client);

/* st_values.c */
void st_fill(unsigned char *bytes, uint32_t put, uint32_t size);
void st_put_ended(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome);
void st_again_ended(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome);
void st_get_ended(struct st_world *world, struct st_op *op, const struct neap_store_outcome *outcome, const unsigned char *bytes);
void st_slot_return(struct st_client *client, uint32_t slot);
uint32_t st_slot_take(struct st_client *client); /* ST_SLOTS: none */
void st_slots_check(struct st_client *client);
void st_key_text(uint32_t key, char text[24]);

/* st_work.c */
void st_work(struct sim *sim, void *user, uint64_t argument);
bool st_idle(const struct st_world *world);
/* A get of one key by one client; its end is checked as of the liveness phase. */
void st_last_get(struct st_world *world, struct st_client *client, uint32_t key);
bool st_last_put(struct st_world *world, struct st_client *client, uint32_t key);
void st_client_gone(struct st_world *world, const struct st_client *client); /* its operations will not end */

/* st_faults.c */
void st_fault(struct sim *sim, void *user, uint64_t argument);
enum st_lost { ST_LOST_STOPS, ST_LOST_STOPS_LONG, ST_LOST_IS_ALONE, ST_LOST_CRASHES, ST_LOST_CONNECTIONS };
/* This comes to the client when WRITEs of it (of the last one, READs) are on their way, if that is soon. */
void st_fault_when_busy(struct st_world *world, struct st_client *client, enum st_lost how);

/* st_rdma.c: nothing to do in a world without devices */
void st_fabric_begin(struct st_world *world);
void st_fabric_end(struct st_world *world);
void st_fabric_fault(struct st_world *world, struct st_client *client);
void st_fabric_heal(struct st_world *world);
void st_fabric_check(struct st_world *world);
void st_fabric_leave(struct st_world *world);
uint64_t st_fabric_posted(const struct st_world *world);
bool st_fabric_is_whole(const struct st_world *world); /* each client has devices */
void st_seat_begin(struct st_client *client);
int st_seat_make_engine(struct st_client *client, struct neap_engine_options *options, char *why, size_t why_size);
bool st_seat_finish(struct st_client *client); /* true: all of the client is gone */
bool st_seat_spoiled(const struct st_client *client); /* it can die, and not close */
void st_seat_leaves(const struct st_client *client);
void st_seat_count(const struct st_client *client);

#endif
