/* The local service of a neap-client: processes on the same machine put and get values through it, over the project's RPC on loopback.
 *
 * A value passes through a transfer: memory of a bounded, registered pool that belongs to the caller's connection. When the connection
 * ends, its transfers are given up, and their memory comes back as soon as the store has let go of it. Who finds no memory waits in a
 * bounded queue, until his call's deadline. A transfer that its caller leaves alone for idle_ms is given up as well. */
#ifndef APPS_CLIENT_SERVICE_H
#define APPS_CLIENT_SERVICE_H

#include "apps/client/buffers.h"
#include <neap/store.h>

struct client_service;

struct client_service_options { /* zero means the default */
	uint16_t port;          /* of 127.0.0.1; 0: any */
	void *memory;           /* registered with the store's engine; the caller's, and mapped until the service is destroyed */
	uint64_t bytes;         /* a multiple of CLIENT_CHUNK_BYTES */
	uint32_t transfers_max; /* 256 */
	uint32_t waiting_max;   /* of them without memory yet; 128 */
	uint64_t idle_ms;       /* 30000 */
	uint64_t now_ns;        /* when the process began: for the uptime */
};

struct client_service_stats {
	uint64_t puts, gets, bytes_in, bytes_out, refused_busy, given_up, idle;
	uint64_t buffer_bytes, buffer_free_bytes;
	uint32_t transfers, waiting, connections;
};

/* 0, or a negative error with a sentence that says what to do. */
int client_service_create(struct client_service **service_p, struct neap_store *store, const struct client_service_options *options,
                          char *why, size_t why_size);
uint16_t client_service_port(const struct client_service *service);
void client_service_stats(const struct client_service *service, struct client_service_stats *stats_p);
/* Memory of the pool in one piece, for others who have the store move values; never waits. NULL: there is none now. */
void *client_service_borrow(struct client_service *service, uint64_t bytes);
void client_service_return(struct client_service *service, void *memory, uint64_t bytes);

/* No transfer begins any more; `idle` is called once from a turn when the last has ended, at once when there is none. */
void client_service_drain(struct client_service *service, void (*idle)(void *user), void *user);
/* The store's; DRAINING from client_service_drain on, when the store does not know of it yet. */
enum neap_store_health client_service_health(const struct client_service *service);
/* Ends the connections, as after a goodbye. `stopped` once, from a turn; transfers may still be with the store. */
void client_service_stop(struct client_service *service, void (*stopped)(void *user), void *user);
/* After the store was closed. */
void client_service_destroy(struct client_service *service);

#endif
