/* The local service from inside: service.c (its life, transfers, the queue for memory), service_put.c, service_get.c, service_keys.c. */
#ifndef APPS_CLIENT_SERVICE_INSIDE_H
#define APPS_CLIENT_SERVICE_INSIDE_H

#include "apps/client/methods.h"
#include "apps/client/service.h"
#include "reactor/pool.h"
#include "store/rpc/server.h"

#define LOCAL_MS_NS UINT64_C(1000000)
#define LOCAL_GET_FIRST (UINT64_C(256) << 10) /* memory of a get whose size is not known yet */
#define LOCAL_ROUNDS_MAX 4u                   /* a value may grow between being asked for and being fetched, by remove and put */
#define LOCAL_RESOLVE_NS (5000 * LOCAL_MS_NS)
#define LOCAL_ANSWER_NS (50 * LOCAL_MS_NS) /* an answer is on its way before its caller gives up */
#define LOCAL_QUERIES_MAX 256u

enum local_phase {
	LOCAL_WAITING,  /* for memory */
	LOCAL_FILLING,  /* the caller sends */
	LOCAL_STORING,  /* the store puts */
	LOCAL_FETCHING, /* the store gets */
	LOCAL_SENDING,  /* the caller takes */
	LOCAL_LEAVING,  /* answered, or nobody is there any more; the store or its transport still has the memory */
};

struct local_transfer {
	struct neap_rpc_resource resource; /* first */
	struct client_service *service;
	struct local_transfer *previous, *next; /* in the queue for memory */
	struct neap_timer timer;                /* WAITING: the call's deadline. FILLING, SENDING: idle_ms */
	enum local_phase phase;
	bool is_get, verify, asked, was_held; /* asked: the store has an operation of it, whose outcome is to come */
	uint8_t direction, rounds;
	uint64_t connection, call, deadline_ns;
	neap_operation_id operation;
	struct client_pieces pieces;
	uint64_t wanted; /* bytes of memory */
	uint64_t size, done; /* done: bytes that the caller has sent, or asked for */
	bool has_crc;
	uint32_t crc;
	uint32_t key_length;
	char key[NEAP_KEY_MAX];
};

/* A question to the store whose answer is passed on. */
struct local_query {
	struct client_service *service;
	uint64_t call;
};

struct client_service {
	struct client_service_options options;
	struct neap_store *store;
	struct neap_reactor *reactor;
	struct neap_rpc_server *rpc;
	struct client_buffers buffers;
	struct client_service_stats stats;
	struct neap_pool transfers, queries;
	struct local_transfer *first, *last; /* wait for memory, in order */
	uint32_t waiting;
	struct neap_ready serve;             /* memory came back: look at the queue */
	bool draining;
	void (*idle)(void *user), *idle_user;
	void (*stopped)(void *user);
	void *stopped_user;
	void *scratch; /* LOCAL_FRAME_BYTES, for answers out of several pieces */
};

/* --- answers */

static inline void local_answer(struct client_service *service, uint64_t call, const void *reply)
{
	(void)neap_rpc_answer(service->rpc, call, 0, reply, NULL, 0);
}
void local_refuse(struct client_service *service, uint64_t call, int status, const char *format, ...)
	__attribute__((format(printf, 4, 5)));
/* Of what a function of the store returned: its numbers are the engine's. */
int local_status_of(int error);
/* What is left of a call's time for the store, so that there is some left to answer. */
uint64_t local_time_left(const struct client_service *service, uint64_t deadline_ns);
static inline struct neap_key local_key_of(struct neap_rpc_view view)
{
	return (struct neap_key){.bytes = view.bytes, .length = view.length};
}

/* --- transfers */

/* Of this connection, or NULL after a refusal. */
struct local_transfer *local_find(struct client_service *service, const struct neap_rpc_incoming *incoming, uint64_t transfer,
                                  enum local_phase phase);
/* NULL after a refusal. */
struct local_transfer *local_begin(struct client_service *service, const struct neap_rpc_incoming *incoming, struct neap_rpc_view key);
/* Asks for `bytes` of memory; local_got_memory follows, at once or later, or the call is refused. */
void local_want_memory(struct local_transfer *transfer, uint64_t bytes);
void local_got_memory(struct local_transfer *transfer); /* service_put.c, service_get.c by its kind */
void local_touch(struct local_transfer *transfer);      /* starts idle_ms anew */
/* Ends it: the memory comes back, now or when the store lets go. */
void local_leave(struct local_transfer *transfer);
/* The store's outcome is there: what it holds. */
void local_outcome(struct local_transfer *transfer, const struct neap_store_outcome *outcome);
void local_released(void *transfer);

void local_put_granted(struct local_transfer *transfer);
void local_get_granted(struct local_transfer *transfer);

/* --- handlers */

typedef void local_handler(void *user, const struct neap_rpc_incoming *incoming, const void *request);
local_handler local_on_put_begin, local_on_put_data, local_on_put_end, local_on_get_begin, local_on_get_data, local_on_end,
	local_on_remove, local_on_remove_matching, local_on_exist, local_on_stat, local_on_list, local_on_health;

#endif
