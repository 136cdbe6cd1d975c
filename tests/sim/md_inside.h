/* The cluster over a metadata store from inside: shared by the md_*.c files, by nobody else.
 *
 * md_world.c: a run from start to end. md_node.c: the processes. md_store.c: the store they share; md_etcd.c: the same as an etcd cluster.
 * md_truth.c: what its keys held, and when. md_work.c: what users do and are told. md_calm.c: what must hold when the faults have ended.
 * md_faults.c: what goes wrong. */
#ifndef NEAP_SIM_MD_INSIDE_H
#define NEAP_SIM_MD_INSIDE_H

#include "metadata/directory.h"
#include "metadata/publisher.h"
#include "tests/sim/md_world.h"
#include "tests/support/memory_store.h"
#include "tests/support/sim_etcd_server.h"
#include "tests/support/sim_http_server.h"
#include "tests/support/sim_redis_server.h"

#define MS UINT64_C(1000000)
#define MD_NODES_MAX 6u
#define MD_LIVES_MAX 48u
#define MD_OPS_MAX 256u
#define MD_STATES_MAX 128u
#define MD_VERSIONS_MAX 2048u
#define MD_SECRET "open sesame"
#define MD_GRACE_NS (250 * MS) /* of a fetch beyond its back-end's deadline */

/* The life of one process: it starts, and crashes or leaves. Where it was another one begins. */
struct md_node {
	struct md_world *world;
	uint32_t place, life;
	struct sim_node *node;
	struct sim_redis_driver redis;
	struct sim_http_driver http;
	struct neap_backend *backend;
	struct neap_handshake_caller *caller;
	struct neap_handshake_service *service;
	struct neap_directory *directory;
	struct neap_publisher *publisher;
	struct neap_host_port address;
	uint8_t instance[16];
	uint64_t version, described; /* of its document: as it is, as it was written last. No two documents have the same */
	int told;                    /* by the publisher; 1: nothing yet */
	uint64_t leaving_since_ns, paused_before_ns;
	bool up, leaving, left;
};

enum md_op_kind { MD_FETCH, MD_CALL };

struct md_op {
	struct md_world *world;
	struct md_node *node;
	struct neap_lookup lookup;
	uint64_t call;
	uint64_t began_ns, deadline_ns; /* it must have ended by then */
	uint64_t since_ns, missing_since_ns; /* what was there, or missing, before that only is not to be told */
	uint64_t paused_ns;             /* of its node, when it began */
	uint8_t kind, name, part;
	bool used, ended, gone, watched, must_find;
};

/* Under which keys a name is published. */
enum md_part { MD_DOCUMENT, MD_OWNER, MD_PARTS };

struct md_state {
	uint64_t from_ns;
	bool there;
	uint64_t version;
	struct neap_host_port owner;
};
struct md_key {
	char text[NEAP_BACKEND_KEY_MAX];
	struct md_state states[MD_STATES_MAX];
	uint64_t count;
};
struct md_name {
	char text[32];
	struct md_key keys[MD_PARTS];
};

struct md_world {
	struct sim *sim;
	struct md_options options;
	struct md_result *result;
	struct sim_redis_server redis;
	struct sim_http_server http;
	struct sim_etcd_server etcd;
	struct memory_store memory;
	struct md_name names[MD_NODES_MAX];
	uint32_t name_count, name_of[MD_NODES_MAX]; /* by place */
	struct md_node *places[MD_NODES_MAX];       /* who lives there now, or has lived there last */
	struct md_node *lives[MD_LIVES_MAX];
	uint32_t life_count, next_host, coming; /* restarts under way */
	uint16_t next_port;
	struct md_op ops[MD_OPS_MAX];
	uint32_t issued;
	uint64_t versions, paused_ns[MD_NODES_MAX];
	uint8_t writers[MD_VERSIONS_MAX]; /* of each version, by life */
	bool issuing, faults, calm, logs;
	bool editing; /* it is somebody else who writes to the store */
};

#define MD_SEEN(world, name) ((world)->result->sometimes.name++)

static inline struct sim_random *md_chance(struct md_world *world)
{
	return &world->sim->random[world->faults ? SIM_FAULTS : SIM_WORKLOAD];
}

/* md_world.c */
void md_violation(struct md_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
void md_log(const struct md_world *world, const char *format, ...) __attribute__((format(printf, 2, 3)));
bool md_sabotage(struct md_world *world, enum md_sabotage sabotage); /* true once, at its occasion */

/* md_store.c */
void md_store_init(struct md_world *world);
void md_store_release(struct md_world *world);
struct sim_server *md_store_server(struct md_world *world); /* of etcd's one, by chance; NULL: it is in memory */
void md_store_died(struct md_world *world, const struct sim_node *node, bool host_dies);
void md_store_light(struct md_world *world); /* nothing is dark any more */
int md_store_open(struct md_node *node);
bool md_store_tells(const struct md_world *world); /* of changes */
/* The longest from a change to its notice, or to the end of a connection that has fallen silent. UINT64_MAX: processes stand still. */
uint64_t md_store_notice_ns(const struct md_world *world);
uint32_t md_store_open_ends(struct md_world *world, const struct sim_node *node);
void md_store_put(struct md_world *world, const char *key, const char *value); /* as another program would */
void md_store_stop(struct md_world *world);
void md_store_start(struct md_world *world, bool empty);
void md_store_wipe(struct md_world *world);
void md_store_serve(struct md_world *world); /* it refuses nothing any more */
void md_store_heal(struct md_world *world);
void md_store_count(struct md_world *world);

/* md_etcd.c */
void md_etcd_init(struct md_world *world);
int md_etcd_open(struct md_node *node);
uint64_t md_etcd_notice_ns(const struct md_world *world);
uint32_t md_etcd_exchanges(const struct md_world *world);
uint32_t md_etcd_open_ends(const struct md_world *world, const struct sim_node *node);
void md_etcd_light(struct md_world *world);
void md_etcd_refuse(struct md_world *world);
void md_etcd_serve(struct md_world *world);
void md_etcd_heal(struct md_world *world);
void md_etcd_count(struct md_world *world);
bool md_etcd_stop_one(struct md_world *world, uint64_t ns); /* false: it is to be all of them */
/* Faults; nothing where there is no etcd. */
void md_etcd_lose_leader(struct md_world *world);
void md_etcd_compact(struct md_world *world);
void md_etcd_change_users(struct md_world *world);
void md_etcd_tear(struct md_world *world);

/* md_truth.c */
void md_truth_init(struct md_world *world);
void md_truth_changed(void *world, const char *key, const char *value, size_t length);
const struct md_state *md_truth_now(const struct md_world *world, uint32_t name, enum md_part part);
/* At any moment since then; true too when that is longer ago than is remembered. */
bool md_truth_was_missing(const struct md_world *world, uint32_t name, enum md_part part, uint64_t since_ns);
bool md_truth_was_version(const struct md_world *world, uint32_t name, uint64_t version, uint64_t since_ns);
bool md_truth_was_owner(const struct md_world *world, uint32_t name, const struct neap_host_port *owner, uint64_t since_ns);
bool md_same_address(const struct neap_host_port *a, const struct neap_host_port *b);

/* md_node.c */
bool md_node_start(struct md_world *world, uint32_t place, uint32_t host, uint16_t port);
void md_node_crash(struct md_node *node, bool host_dies);
void md_node_leave(struct md_node *node);
void md_node_check_leaving(const struct md_node *node);
void md_node_change(struct md_node *node, bool quietly);
bool md_node_wrote(const struct md_node *node, uint64_t version);
void md_node_finish(struct md_node *node);
bool md_node_is_awake(const struct md_node *node);
static inline bool md_node_is_here(const struct md_node *node)
{
	return node && node->up && !node->leaving;
}

/* md_work.c */
void md_work(struct sim *sim, void *world, uint64_t argument);
void md_fetch(struct md_node *node, uint32_t name, uint64_t not_before_ns, bool watched, bool must_find);
bool md_idle(struct md_world *world);
void md_ops_gone(struct md_node *node); /* nobody is told any more */
void md_check_overdue(struct md_world *world);

/* md_calm.c */
void md_calm(struct md_world *world);

/* md_faults.c */
uint64_t md_a_while_ns(struct md_world *world);
void md_fault(struct sim *sim, void *world, uint64_t argument);
void md_end_faults(struct md_world *world);

#endif
