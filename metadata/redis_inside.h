/* The Redis back-end from inside: shared by redis.c (the back-end), redis_link.c and redis_call.c, by nobody else. */
#ifndef NEAP_METADATA_REDIS_INSIDE_H
#define NEAP_METADATA_REDIS_INSIDE_H

#include "metadata/redis.h"
#include "reactor/pool.h"

#define REDIS_WHY_MAX 384u
#define REDIS_ADDRESSES_MAX 16u
#define REDIS_WORDS_MAX 6u

struct redis_call {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_redis *redis;
	struct redis_call *next, **slot; /* in one of the lists of the back-end */
	struct redis_list *list;
	neap_backend_done_func *done; /* NULL: nobody wants to know */
	void *user;
	uint64_t began_ns, deadline_ns, lease_ns;
	char *value; /* of a set; from neap_allocate */
	size_t value_length;
	uint8_t kind; /* enum redis_kind */
	bool create;
	bool was_lost;
	int64_t tracker; /* REDIS_TRACK: the other connection's id */
	char key[NEAP_BACKEND_KEY_MAX];
};
enum redis_kind { REDIS_GET, REDIS_SET, REDIS_REMOVE, REDIS_TOUCH, REDIS_TRACK };

/* First in, first out; any may leave. */
struct redis_list {
	struct redis_call *first, **tail;
};

struct redis_link {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_redis *redis;
	bool tracks; /* the one that is told of changes */
	bool needed, ended;
	struct neap_redis_wire *wire;
	struct neap_resolution *resolution;
	struct neap_sockaddr addresses[REDIS_ADDRESSES_MAX];
	uint32_t address_count, address_next;
	uint64_t opened_ns; /* 0: it is not open */
	uint32_t failures; /* in a row */
	int64_t id;        /* the server's, of a connection that tracks */
	int error;         /* the last one */
	char why[REDIS_WHY_MAX];
};

struct neap_redis {
	struct neap_backend base;
	struct neap_reactor *reactor;
	const struct neap_redis_driver *driver;
	struct neap_redis_options options; /* texts are copies below */
	char *username, *password;
	size_t username_bytes, password_bytes;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_reactor_class *call_class;
	struct neap_pool calls;
	size_t value_bytes; /* held for calls */
	struct redis_list queued, sent, lost;
	const struct neap_redis_reply *reply; /* while a call's machine is told of it */
	struct redis_link commands, tracker;
	struct neap_ready work;
	bool tell_all;     /* those who watch */
	bool refused;      /* what is queued now is to be refused, for commands.why */
	bool tracking;     /* gets that are sent now are tracked */
	bool untrackable;  /* this server does not */
	bool closing;
	struct neap_watches watches;
};

/* redis_link.c */
int redis_link_init(struct redis_link *link, struct neap_redis *redis, bool tracks);
void redis_link_need(struct redis_link *link);
bool redis_link_is_ready(const struct redis_link *link);
void redis_link_broke(struct redis_link *link, int error, const char *why); /* noticed by a command */
void redis_link_end(struct redis_link *link);                               /* at the end of the back-end */

/* redis_call.c */
int redis_calls_init(struct neap_redis *redis);
struct redis_call *redis_call_take(struct neap_redis *redis, enum redis_kind kind, uint64_t timeout_ns, neap_backend_done_func *done,
                                   void *user);
void redis_call_start(struct redis_call *call);
void redis_call_cancel(struct redis_call *call);
void redis_call_end(struct redis_call *call); /* gives it back; nothing is called */
void redis_calls_replied(struct neap_redis *redis, const struct neap_redis_reply *reply);
void redis_calls_lost(struct neap_redis *redis); /* the connection that they were sent on */
void redis_calls_tend(struct neap_redis *redis); /* lost, refused, ready to be sent */

/* redis.c */
void redis_opened(struct redis_link *link);  /* it became ready */
void redis_lost(struct redis_link *link);    /* it was, and is no more */
void redis_wrote(struct neap_redis *redis, const char *key); /* the server has done it */
void redis_invalidated(struct neap_redis *redis, const char *key, size_t length);

#endif
