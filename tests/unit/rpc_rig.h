/* RPC in the simulator: a client on host 1, a server on host 2, and for either a peer that the test speaks byte by byte. */
#ifndef UNIT_RPC_RIG_H
#define UNIT_RPC_RIG_H

#include "store/rpc/client.h"
#include "store/rpc/frame.h"
#include "store/rpc/hello.h"
#include "store/rpc/server.h"
#include "tests/sim/sim.h"


#define RIG_PORT 4000u
#define MS UINT64_C(1000000)
#define RIG_LATER_MAX 512u
#define RIG_RAW_MAX (1u << 20)

#define MESSAGE rig_number
#define MESSAGE_NAME "Number"
#define MESSAGE_FIELDS(F, L)           \
	F(U64, number, OPTIONAL, 1000000)  \
	F(BYTES, payload, OPTIONAL, 4194304)
#include "store/rpc/declare.h"

/* ECHO gives back what came; ADD (once) adds to `total` and tells it; the LATER ones wait for rig_answer. */
enum { RIG_ECHO = 1, RIG_ADD = 2, RIG_LATER = 3, RIG_LATER_ADD = 4 };
extern const struct neap_rpc_method rig_echo, rig_add, rig_later, rig_later_add;

struct rig_call {
	uint64_t handle, number;
	uint32_t times;
	struct neap_rpc_outcome outcome;
	size_t payload;
	char why[400];
	void (*then)(struct rig_call *call);
};

/* A stream that the test reads and writes itself. */
struct rig_raw {
	struct neap_stream *stream;
	uint8_t *bytes, *out;
	size_t have, at, out_length, out_sent; /* `at`: up to here frames were taken */
	bool ended, reset;
};

struct rpc_rig {
	struct sim *sim;
	struct sim_node *a, *b;
	struct neap_rpc_client *client;
	struct neap_rpc_channel *channel;
	struct neap_rpc_server *server;
	struct neap_listener *listener; /* of a scripted server */
	struct rig_raw raw;
	struct neap_rpc_client_options client_options;
	struct neap_rpc_server_options server_options;
	uint64_t total, executions, welcomes, epoch;
	uint64_t later[RIG_LATER_MAX], later_deadline_ns[RIG_LATER_MAX];
	uint32_t later_count, canceled, released;
	uint64_t connection;  /* of the latest call */
	bool watch_cancel, stopped;
};
extern struct rpc_rig rig;

void rig_open(void);   /* nodes only; near, no accidents */
void rig_close(void);  /* closes what is open; nothing may be left */
void rig_client(uint64_t lane);
void rig_server(void);
void rig_both(void);   /* lane 1 */

bool rig_until(bool (*holds)(void), unsigned ms);
void rig_for(unsigned ms);
bool rig_ended(const struct rig_call *call, unsigned ms);

void rig_ask(struct rig_call *call, const struct neap_rpc_method *method, uint64_t number, unsigned timeout_ms);
int rig_try(struct rig_call *call, const struct neap_rpc_method *method, uint64_t number, size_t payload, unsigned timeout_ms,
            const struct neap_rpc_id *id);
/* Waits for its end and looks at it. */
void rig_expect(struct rig_call *call, enum neap_rpc_result result, enum neap_rpc_executed executed, int status, const char *said);
/* `count` LATER calls are there; answers the n-th. */
void rig_await_later(uint32_t count);
int rig_answer(uint32_t n, int status);

/* A scripted server: listens; a scripted client: connects. */
void rig_raw_listen(void);
void rig_raw_accept(void);
void rig_raw_connect(void);
void rig_raw_close(bool abortive);
void rig_raw_write(const void *bytes, size_t length);
void rig_raw_frame(const struct neap_rpc_head *head, const struct neap_rpc_message *message, const void *data);
size_t rig_raw_encode(uint8_t *bytes, size_t size, const struct neap_rpc_head *head, const struct neap_rpc_message *message, const void *data);
/* The next frame that came; *body_p points into the raw bytes. */
struct neap_rpc_head rig_raw_take(const uint8_t **body_p);
bool rig_raw_ended(unsigned ms);
/* A hello of lane and epoch, and its answer; returns its status. */
int rig_raw_hello(uint64_t lane, uint64_t epoch, bool resume);
void rig_raw_welcome(int status);
void rig_raw_call(uint64_t call, uint32_t method, uint64_t number, uint64_t sequence, uint64_t finished_below);

struct neap_rpc_client_stats rig_client_stats(void);
struct neap_rpc_server_stats rig_server_stats(void);

#endif
