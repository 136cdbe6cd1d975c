/* The Redis back-end: two connections, each a redis_link machine: one for commands, each of which is a redis_call machine, and, once
 * something is watched, one that is told of changes (CLIENT TRACKING ON REDIRECT). All of it is pure: it reaches a server through
 * struct neap_redis_driver. redis_driver.c is the one over hiredis; tests have others.
 *
 * A connection-level failure repeats each command once; an error reply repeats nothing. Owner thread only. */
#ifndef NEAP_METADATA_REDIS_H
#define NEAP_METADATA_REDIS_H

#include "metadata/backend.h"
#include "reactor/address.h"

#define NEAP_REDIS_VALUE_MAX ((size_t)64 << 20)

/* --- the driver ---------------------------------------------------------------------------------------------------------- */

enum neap_redis_kind {
	NEAP_REDIS_STATUS,
	NEAP_REDIS_ERROR,
	NEAP_REDIS_INTEGER,
	NEAP_REDIS_STRING,
	NEAP_REDIS_NIL,
	NEAP_REDIS_OTHER, /* nothing we ever ask for */
};
struct neap_redis_reply {
	enum neap_redis_kind kind;
	int64_t integer;
	const char *text; /* STATUS, ERROR, STRING; valid during the call */
	size_t length;
};

struct neap_redis_wire; /* one connection, the driver's */

/* What a driver tells of a connection: from a turn, never from inside a call to the driver. The callee may close it. */
struct neap_redis_events {
	void (*connected)(void *user);
	void (*replied)(void *user, const struct neap_redis_reply *reply); /* in the order of the commands */
	/* On a subscribed connection: it is in effect now (once); the value under a key changed, NULL: any may have. */
	void (*subscribed)(void *user);
	void (*invalidated)(void *user, const char *key, size_t length);
	void (*closed)(void *user, const char *why); /* the last: the connection is gone */
};

struct neap_redis_driver {
	/* To a numeric address. NULL and `why`: it cannot even begin. */
	struct neap_redis_wire *(*connect)(const struct neap_redis_driver *driver, struct neap_reactor *reactor, const char *address,
	                                   uint16_t port, const struct neap_redis_events *events, void *user, char *why, size_t why_size);
	/* Binary-safe. NEAP_ENOMEM: the connection is of no use any more. */
	int (*command)(struct neap_redis_wire *wire, int count, const char *const *words, const size_t *lengths);
	int (*subscribe)(struct neap_redis_wire *wire, const char *channel);
	void (*close)(struct neap_redis_wire *wire); /* at once; nothing is told any more */
};

/* hiredis. Stateless. */
const struct neap_redis_driver *neap_redis_hiredis(void);

/* --- making one ---------------------------------------------------------------------------------------------------------- */

struct neap_redis_options {
	struct neap_host_port server;
	const char *username, *password; /* copied; NULL or "": none */
	uint32_t database;
	uint32_t calls_max;
	uint64_t connect_timeout_ns; /* names, and each address; 0: 1.5 s */
	uint64_t reply_timeout_ns;   /* each answer while a connection is made ready; 0: 3 s */
	uint64_t pause_min_ns, pause_max_ns; /* between attempts, doubled; 0: 50 ms, 5 s */
};
/* NEAP_ENOMEM. */
int neap_redis_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_redis_options *options,
                      const struct neap_redis_driver *driver);

/* From a connection string: "redis://host[:port]"; port 6379 when absent. */
int neap_redis_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                    char *why, size_t why_size);

/* What an error reply means. `text` is the server's, made printable in `why` together with what to do. Pure. */
struct neap_redis_verdict {
	int error;      /* NEAP_EREJECTED, NEAP_ENOTSUP: as long as nobody changes something; NEAP_EAGAIN: not now; NEAP_ELIMIT, NEAP_EPROTO */
	bool reconnect; /* another connection may do better: there may be another server behind the address, or a new password */
};
struct neap_redis_verdict neap_redis_classify(const struct neap_redis_reply *reply, char *why, size_t why_size);

#endif
