/* An accessor in the simulator, against owners that the test scripts: they speak the peer RPC and have real engines for the bytes, keep
 * values as owners do, and misbehave where they are told to. And a directory that says what it is told to say. */
#ifndef UNIT_ACCESSOR_RIG_H
#define UNIT_ACCESSOR_RIG_H

#include "store/accessor/inside.h"
#include "store/rpc/server.h"
#include "tests/sim/sim.h"
#include "tests/support/fake_transport.h"

#define RIG_OWNERS 2u
#define RIG_VALUES 64u
#define RIG_PORT 4000u
#define RIG_MEMORY (UINT64_C(16) << 20)
#define RIG_FINISHED_MAX 512u
#define MS UINT64_C(1000000)

enum { PRE_WRITE, WRITE_COMMIT, WRITE_REVOKE, PIN_KEY, UN_PIN_KEY, WRITE_REMOTE, READ_REMOTE, LOOK_UP, RIG_METHODS };

struct rig_value {
	char key[80];
	uint64_t size, generation, write_id, at; /* at: offset in the owner's memory */
	uint32_t crc;
	bool exists, pending, granted;
	struct neap_grant_token token;
};

/* What a method does the next times: `skip` calls go well before. */
struct rig_script {
	uint32_t calls, skip, refuse, lose, hold, twist; /* refuse: with `status`. lose: executed, the reply is lost. hold: not answered until
	                                                    rig_answer. twist: a reply that cannot be right */
	int status;
	uint64_t retry_after_ms;
};

struct rig_owner {
	struct sim_node *node;
	struct neap_engine *engine;
	struct neap_rpc_server *server;
	unsigned char *memory;
	uint64_t used, ids;
	struct rig_value values[RIG_VALUES];
	struct rig_script on[RIG_METHODS];
	uint32_t lease_ms;
	bool with_crc, wrong_crc, pending_always;
	uint64_t finished[RIG_FINISHED_MAX];
	uint32_t finished_count, unpin_items, quiet_revokes;
	/* the call that is held */
	uint64_t held;
	bool held_pre, held_committed;
	struct pre_write_reply pre;
	struct pin_key_reply pin;
	struct committed_reply committed;
	struct remote_slice slice;
	uint8_t held_method;
};

struct rig_op {
	uint32_t times, released;
	struct neap_store_outcome outcome;
	struct neap_unsettled unsettled;
	struct neap_place place;
	char why[400];
	neap_operation_id id;
	void (*then)(struct rig_op *op);
};

enum rig_answers { RIG_AT_ONCE, RIG_LATER, RIG_NEVER };

struct accessor_rig {
	struct sim *sim;
	struct sim_node *a;
	struct neap_engine *engine;
	struct neap_accessor *accessor;
	struct fake_transport *fake;
	struct rig_owner owners[RIG_OWNERS];
	unsigned char *memory; /* the caller's */
	struct neap_accessor_options options;
	bool use_fake, closed;
	/* the directory */
	struct neap_route routes[NEAP_ROUTES_MAX + 1];
	uint32_t route_count, asked_candidates, asked_replicas, stale;
	int places_error;
	enum rig_answers answers;
	struct neap_timer answer_timer;
	neap_placed_func *answered;
	void *answered_user;
	uint64_t question;
};
extern struct accessor_rig rig;

void rig_open(void);      /* nodes and owners; routes: owner 0, then owner 1 */
void rig_start(void);     /* the accessor, with rig.options */
void rig_begin(void);     /* both */
void rig_end(void);       /* closes all; nothing may be left */
void rig_owner_restart(uint32_t owner); /* the process is another one at the same address */

void rig_server_restart(uint32_t owner);

bool rig_until(bool (*holds)(void), unsigned ms);
void rig_for(unsigned ms);
/* Until the only operation is in this state of its machine. */
void rig_reach(uint8_t state);
void rig_cut_all(uint32_t owner); /* every connection between accessor and owner; what is under way is lost */

/* The value of that key and size, in our memory at `at`, in `count` slices. */
void rig_fill(const char *key, uint64_t size, uint64_t at);
bool rig_filled(const char *key, uint64_t size, const unsigned char *bytes);
uint32_t rig_crc(const char *key, uint64_t size);
int rig_put_of(struct rig_op *op, const char *key, uint64_t size, uint32_t count, const struct neap_put_options *options);
int rig_get_of(struct rig_op *op, const char *key, uint64_t size, uint32_t count, const struct neap_get_options *options);
void rig_put(struct rig_op *op, const char *key, uint64_t size, enum neap_direction direction);
void rig_get(struct rig_op *op, const char *key, uint64_t size, enum neap_direction direction);
void rig_done(void *user, const struct neap_store_outcome *outcome);
void rig_expect(struct rig_op *op, enum neap_store_status status, int error);
/* Puts it into an owner without the accessor. */
struct rig_value *rig_have(uint32_t owner, const char *key, uint64_t size);
struct rig_value *rig_find(uint32_t owner, const char *key);
void rig_answer(uint32_t owner);
struct neap_accessor_stats rig_stats(void);

#endif
