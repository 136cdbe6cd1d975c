/* A master and its clients in the simulator: clients on hosts 1 and 3 (numbers 0 and 1), the master on host 2; it can crash and come
 * back, empty. Each client has a directory at the master, an announcer, and a list of values that stands for an owner. */
#ifndef UNIT_MASTER_RIG_H
#define UNIT_MASTER_RIG_H

#include "store/directory/local.h"
#include "store/master/announcer.h"
#include "store/master/codec.h"
#include "store/master/remote.h"
#include "store/master/service.h"
#include "tests/sim/sim.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)
#define MASTER_PORT 4000u
#define MASTERS_MAX 4u
#define CLIENTS_MAX 2u
#define VALUES_MAX 12000u

struct rig_value {
	char key[200];
	uint64_t generation; /* 0: gone */
	uint64_t size;
	bool below; /* on the other segment */
};

struct rig_master {
	struct sim_node *node;
	struct neap_local_directory *local;
	struct neap_master_service *service;
	struct neap_rpc_server *server;
};

struct rig_client {
	struct sim_node *node;
	struct neap_remote_directory *remote;
	struct neap_announcer *announcer;
	struct neap_key_segment segment;
	struct neap_key_segment both[2]; /* with has_below: that one, and one of lower priority */
	bool has_below;
	struct rig_value *values;
	uint32_t value_count, withdrawn, welcomes, others;
	uint64_t generation;
	int why; /* of the last withdrawal */
	bool closed, closes_on_withdraw;
};

struct master_rig {
	struct sim *sim;
	struct rig_master masters[MASTERS_MAX];
	uint32_t master_count; /* the last one is the present one */
	struct rig_client clients[CLIENTS_MAX];
	uint32_t client_count;
	/* for the next that is made */
	struct neap_local_directory_options directory_options;
	struct neap_master_service_options service_options;
	struct neap_rpc_server_options server_options;
	struct neap_announcer_options announcer_options;
};
extern struct master_rig rig;

struct rig_call {
	struct neap_key_call call; /* first */
	uint32_t times;
	int error;
};

void rig_open(void);
void rig_close(void);
void rig_master(bool first); /* first: nothing was before it */
void rig_crash(void);        /* the master's process dies */
struct rig_client *rig_client(void);
void rig_announcer(struct rig_client *client); /* made and started */
struct rig_master *rig_present(void);

void rig_for(unsigned ms);
bool rig_until(bool (*holds)(void), unsigned ms);

/* Calls of a client; `rig_do` waits for the end. */
int rig_begin(struct rig_client *client, struct rig_call *call, enum neap_key_op op);
int rig_do(struct rig_client *client, struct rig_call *call, enum neap_key_op op);

struct neap_key_client rig_self(const struct rig_client *client);
int rig_register(struct rig_client *client, bool holds);
struct neap_key_text rig_text(const char *text);
int rig_exists(struct rig_client *client, const char *key);
/* Replicas of a key, or its error. */
int rig_look(struct rig_client *client, const char *key);
uint64_t rig_keys(void); /* the present master has */

/* A value of the client's owner, published. Its number. */
uint32_t rig_put(struct rig_client *client, const char *key, uint64_t size);
void rig_remove(struct rig_client *client, uint32_t value);
void rig_move(struct rig_client *client, uint32_t value); /* to its other segment */
struct neap_announcer_stats rig_announced(const struct rig_client *client);
struct neap_announcement rig_value(const struct rig_client *client, uint32_t value);
/* Asks and waits: the end of it. */
int rig_ask(struct rig_client *client, uint32_t value, unsigned ms);

int rig_run(Suite *suite);

#endif
