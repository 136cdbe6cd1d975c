/* The Transfer Engine: moves bytes between registered memory of processes, and speaks the Mooncake Transfer Engine's wire protocols
 * in both roles.
 *
 *     neap_reactor_create → neap_engine_create → neap_memory_register → neap_segment_open → neap_submit → callback
 *
 * One engine per reactor; engines that share an identity and memory across cores are made with neap_engine_join. Every call is made
 * on the engine's reactor thread. No call waits; no callback is made from inside a call; every accepted operation completes exactly
 * once. Handles are numbers with a generation: a stale one is answered with NEAP_ESTALE. */
#ifndef NEAP_ENGINE_H
#define NEAP_ENGINE_H

#include <neap/error.h>
#include <neap/reactor.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct neap_engine;
typedef uint64_t neap_segment_id; /* an opened segment; 0 is the local one */
typedef uint64_t neap_batch_id;
typedef uint64_t neap_region_id;
#define NEAP_LOCAL_SEGMENT ((neap_segment_id)0)
#define NEAP_INVALID_BATCH UINT64_MAX

/* --- engine ------------------------------------------------------------------------------------------------------------- */

/* What concerns RDMA devices; docs/RDMA.md. Without them nothing of it counts. */
struct neap_rdma_engine_options {
	bool force_tcp;              /* no devices, whatever options.protocol says (MC_FORCE_TCP) */
	const char *advertised_host; /* the host that peers send connection requests to; default: that of the segment's name
	                                (MC_RDMA_BIND_ADDRESS) */
	uint32_t port;               /* of each device: 1..255 (MC_IB_PORT); default: the lowest ACTIVE one */
	bool gid_fixed;              /* gid_index counts; default: the best address is chosen */
	uint32_t gid_index;          /* 0..255 (MC_GID_INDEX, NCCL_IB_GID_INDEX) */
	uint32_t mtu_bytes;          /* at most: 512, 1024, 2048 or 4096 (default) (MC_MTU) */
	uint32_t traffic_class;      /* 0 (default)..255 (MC_IB_TC) */
	uint32_t service_level;      /* 0 (default)..15 (MC_IB_SL) */
	uint32_t pkey_index;         /* 0 (default)..65535 (MC_PKEY_INDEX) */
	uint32_t endpoints_max;      /* connections of all devices together: 1..65535, default 4096 (MC_MAX_EP_PER_CTX) */
	uint32_t qps_per_endpoint;   /* queue pairs: 1..16, default 2; Mooncake's peers must have as many (MC_NUM_QP_PER_EP) */
	uint32_t sends_max;          /* under way on one queue pair: 1..65535, default 256 (MC_MAX_WR) */
	uint32_t completions_max;    /* entries of a device's completion queue: 1..65535, default 4096 (MC_MAX_CQE_PER_CTX) */
	uint64_t region_max_bytes;   /* longer memory is registered in pieces: 4096..2^46; default: what the devices allow
	                                (MC_MAX_MR_SIZE) */
	uint64_t slab_bytes;         /* GRANT_ONLY memory gets its keys in parts of this size: a power of two, 2 MiB..1 GiB, default 64 MiB */
	bool strict_ordering;        /* register memory without relaxed ordering (MC_IB_PCI_RELAXED_ORDERING=0) */
	uint32_t slice_bytes;        /* what one send carries: 4096..1073741824, default 65536 (MC_SLICE_SIZE) */
	uint32_t fragment_ratio;     /* a rest of at most slice_bytes / fragment_ratio goes with the send before it: 1..slice_bytes - 1;
	                                default: a rest of at most 16384 bytes (MC_FRAGMENT_RATIO) */
	uint32_t silence_retries;    /* how often a device repeats what nobody answers, before it says so: 1..7, default 6, about half a
	                                second; 7 may be for ever, and then progress_timeout_ms ends it (NEAP_RDMA_SILENCE_RETRIES) */
	uint32_t retries_max;        /* repeats of one request on other paths: 1..127, default 9 (MC_RETRY_CNT) */
	uint32_t rail_pause_ms;      /* for which a path that failed is not used: 1..3599000, default 30000
	                                (MC_RDMA_RAIL_PAUSE_SECONDS) */
	uint32_t window_bytes;       /* under way to one device of a peer before what follows waits: 4096..2^32-1; default: no limit, but
	                                512 KiB over Soft-RoCE, which loses what its receive queue does not hold (NEAP_RDMA_WINDOW_BYTES) */
	bool same_name;              /* prefer paths between devices of one name (MC_ENABLE_DEST_DEVICE_AFFINITY) */
};

/* Zero means the default in every field. A value out of range is NEAP_EINVAL with a sentence in the log. */
struct neap_engine_options {
	const char *metadata;        /* "P2PHANDSHAKE" (default), "etcd://host:2379,...", "redis://host:6379",
	                                "http://host:8080/metadata", "https://...": docs/METADATA.md */
	const char *local_name;      /* "host" or "host:port": the host others reach this process at; default "127.0.0.1".
	                                In P2P mode the published segment name is this host with the handshake port really bound; in a
	                                metadata store it is this text as it stands (any text, without a default: host and port as in P2P) */
	const char *advertised_host; /* metadata stores: the host that peers are told, when local_name is only a name; default: the
	                                bind_address when that is one address, else the host of local_name (MC_TCP_BIND_ADDRESS) */
	const char *bind_address;    /* numeric; default: local_name's host when that is a numeric address of this machine, else
	                                loopback. "0.0.0.0" or "::" must be said */
	uint16_t handshake_port;     /* fixed port, or 0: random in [port_min, port_max] */
	uint16_t data_port;
	uint16_t port_min, port_max; /* default 15000..17000 (MC_MIN_RPC_PORT, MC_MAX_RPC_PORT) */

	uint32_t lanes_per_peer;     /* 1..16; default 1 */
	uint32_t requests_max;       /* pending requests of this engine; default 131072 */
	uint32_t batches_max;        /* default 65536 */
	uint32_t peers_max;          /* opened segments; default 4096 */
	uint32_t requests_per_peer_max; /* queued and in flight; default requests_max */
	uint32_t sessions_max;       /* served data connections; default 8192 */
	uint32_t regions_max;        /* default 65536 */
	uint32_t grants_max;         /* default 65536 */
	uint32_t handshake_sessions_max; /* default 1024 */
	uint32_t notifies_max;       /* received and not taken yet; further ones are refused; default 1024 */
	uint32_t handshake_length_max;   /* bytes; 1 MiB (default) .. 128 MiB (MC_HANDSHAKE_MAX_LENGTH) */

	const char *metadata_cluster;  /* part of the keys in a metadata store (MC_METADATA_CLUSTER_ID) */
	/* https, etcd with TLS: certificates to trust instead of the system's, and our own and its key if the server asks for one. PEM.
	 * NEAP_METADATA_CA_FILE, NEAP_METADATA_CERTIFICATE_FILE, NEAP_METADATA_KEY_FILE */
	const char *metadata_ca_file, *metadata_certificate_file, *metadata_key_file;
	const char *etcd_username, *etcd_password;   /* MC_ETCD_USERNAME, MC_ETCD_PASSWORD */
	const char *redis_username, *redis_password; /* MC_REDIS_USERNAME, MC_REDIS_PASSWORD */
	uint32_t redis_database;       /* 0..255 (MC_REDIS_DB_INDEX) */
	uint32_t metadata_timeout_ms;  /* each call to a metadata store: default 3000 */
	uint32_t metadata_refresh_ms;  /* how often it is looked whether what we published is still there: default 30000 */
	uint32_t metadata_lease_ms;    /* what is published goes so long after we are gone; at least 1000; 0 (default): it stays */

	uint32_t connect_timeout_ms;   /* names, connect, hello: default 5000 */
	uint32_t handshake_timeout_ms; /* a whole handshake exchange: default 5000 */
	uint32_t progress_timeout_ms;  /* a lane with work that moves no byte; default 30000 (MC_TCP_STATUS_TIMEOUT_SEC) */
	uint32_t first_header_timeout_ms; /* served connections that never ask: default 30000 */
	uint32_t drain_timeout_ms;     /* lanes that end, engine close: default 2000 */
	uint32_t retries_max;          /* repeats of one request: default 3 */
	uint32_t retry_backoff_ms;     /* first pause before a peer is tried again, doubled up to 32 times: default 10 */

	bool plain_only;             /* speak the Mooncake wire to Neap peers too (comparison, debugging) */
	bool v1_only;                /* never use acknowledged framing as initiator (MC_TCP_PROTO=1) */
	bool v1_sent_is_done;        /* report a v1 WRITE complete when handed to the kernel, as Mooncake does */
	bool checksum;               /* crc32c on payloads between Neap peers that both ask for it */
	bool no_local_path;          /* requests to our own segment go through TCP (tests): open it by its name, 0 is refused */
	const char *congestion;      /* "auto" (default), "system", or a name: TCP_CONGESTION */

	/* "tcp" (default); "rdma": over the devices of this machine where the peer has some too, and over TCP otherwise, which is said when
	 * there is no device to be used; "auto": the same without a word about that. Engines that join have TCP alone. */
	const char *protocol;
	struct neap_rdma_engine_options rdma;
	/* For transports with devices: docs/TOPOLOGY.md. TCP uses neither. */
	const char *topology_file;   /* the priority matrix, instead of the one that is found (MC_CUSTOM_TOPO_JSON). It is read at create,
	                                and one that cannot be read or is wrong stops the start, whatever the transport */
	const char *device_filter;   /* a comma list of the devices that may be used; default: all (MC_TE_FILTERS) */
};

/* Options from the MC_* environment variables of docs/OPERATING.md; a bad value is NEAP_EINVAL with name, value and range in `why`. */
NEAP_API int neap_engine_options_from_environment(struct neap_engine_options *options, char *why, size_t why_size);

/* Binds the ports and begins to serve. On failure *engine_p is NULL and `why` (may be NULL) says what and what to do. */
NEAP_API int neap_engine_create(struct neap_engine **engine_p, struct neap_reactor *reactor,
                                const struct neap_engine_options *options, char *why, size_t why_size);

/* A second engine with the same identity, name and memory on another reactor (call on that one's thread; `home` must outlive it).
 * It serves on a data port of its own, which Neap peers learn from the descriptor. Memory is registered at `home` alone. */
NEAP_API int neap_engine_join(struct neap_engine **engine_p, struct neap_reactor *reactor, struct neap_engine *home, char *why,
                              size_t why_size);

/* Begins to close: pending operations complete as CANCELED, then `closed` is called once (from a turn) and the engine is gone.
 * Allowed from callbacks. Ends within drain_timeout_ms. NEAP_EBUSY while other cores have joined it, or a store is open on it. */
NEAP_API int neap_engine_close(struct neap_engine *engine, void (*closed)(void *user), void *user);

/* Calls `told` from a turn, now and whenever it changes: 0 when the segment can be found by others; NEAP_ETAKEN when another process
 * lives under our name; else what is in the way of publishing it, which is tried again for ever. With P2PHANDSHAKE it is 0 from the
 * start. One watcher an engine; NULL ends it. Home engine. */
NEAP_API int neap_engine_publish_watch(struct neap_engine *engine, void (*told)(void *user, int error, const char *why), void *user);

/* The published segment name ("127.0.0.1:15234"), handshake and data ports really bound, this start's instance id. */
NEAP_API const char *neap_engine_name(const struct neap_engine *engine);
NEAP_API uint16_t neap_engine_handshake_port(const struct neap_engine *engine);
NEAP_API uint16_t neap_engine_data_port(const struct neap_engine *engine);
NEAP_API void neap_engine_instance(const struct neap_engine *engine, uint8_t instance[16]);
NEAP_API struct neap_reactor *neap_engine_reactor(const struct neap_engine *engine);

/* --- memory ------------------------------------------------------------------------------------------------------------- */

enum neap_access {
	NEAP_OPEN,       /* any peer may read and write it (what Mooncake peers need) */
	NEAP_CLOSED,     /* local use only: remote_accessible = 0 */
	NEAP_GRANT_ONLY, /* not published; reached by Neap peers that present a grant */
};

struct neap_memory {
	void *address;
	uint64_t length;       /* bytes, > 0 */
	const char *location;  /* "cpu:0"; NULL or "*": found by libnuma from the first page */
	enum neap_access access;
};

/* The memory stays mapped until it is released, and writable as long as peers may write to it: small pieces are copied, and what the
 * kernel refuses to a copy ends the process.
 *
 * All or none: on failure nothing is registered and `why` names the range. The same range again (same access) is counted and needs
 * as many unregister calls; a true overlap is NEAP_EOVERLAP; touching ranges are fine. ids may be NULL. */
NEAP_API int neap_memory_register(struct neap_engine *engine, const struct neap_memory *memory, size_t count, neap_region_id *ids,
                                  char *why, size_t why_size);

/* Tells once, from a turn, when the region is as peers and transfers can have it. NEAP_OK: on every RDMA device that is open, or there is
 * none to wait for (protocol "tcp", no usable device). NEAP_ECONTEXT, NEAP_ELIMIT, NEAP_ENOMEM: the devices do not take it, and `why`
 * names device, limit and what to do; it stays registered, is not published, and what it is used for goes over TCP. NEAP_ECANCELED: it was
 * unregistered meanwhile, or the engine was closed. Any number of calls for one region, at any time. NEAP_ESTALE, NEAP_EAGAIN (4096
 * calls are waiting), NEAP_ECLOSED. Home engine. */
typedef void neap_memory_settled_func(void *user, int error, const char *why);
NEAP_API int neap_memory_settled(struct neap_engine *engine, neap_region_id region, neap_memory_settled_func *settled, void *user);

/* `released` (may be NULL) is called from a turn when no byte of the range will be touched any more by this process's engines and devices
 * on behalf of peers: after the grace period over all its cores, and when every RDMA device has let go of it. A device that refuses to let
 * go is an error in the log; then `released` is never called, and the memory must stay as it is until the process ends. Local requests
 * that still use the range make it NEAP_EBUSY. */
NEAP_API int neap_memory_unregister(struct neap_engine *engine, neap_region_id region, void (*released)(void *user), void *user);
NEAP_API int neap_memory_find(struct neap_engine *engine, const void *address, uint64_t length, neap_region_id *id_p);

struct neap_region_info {
	uint64_t address, length;
	uint32_t references;
	enum neap_access access;
	char location[32];
};
NEAP_API int neap_memory_info(struct neap_engine *engine, neap_region_id region, struct neap_region_info *info_p);

/* --- grants ------------------------------------------------------------------------------------------------------------- */

enum neap_rights { NEAP_MAY_READ = 1, NEAP_MAY_WRITE = 2 };

/* A secret that lets one peer instance reach one range. Send it to that peer by a channel of yours. The keys are for RDMA devices: with
 * none (keys_length 0) it is good over TCP alone, and so it is for who was not sent them. */
#define NEAP_GRANT_KEYS_BYTES 68u
struct neap_grant_token {
	uint8_t bytes[32];
	uint32_t keys_length;
	uint8_t keys[NEAP_GRANT_KEYS_BYTES];
};

/* `peer_instance` NULL: any Neap peer that knows the token; such a one has no keys. It has keys when the range lies in one slab of
 * GRANT_ONLY memory that is on devices (docs/LEASES.md). A key permits reading and writing of its whole slab to whoever has it: over
 * devices range, rights and peer are a matter of trust between Neap processes, and only the end of a grant is enforced. Home engine
 * only. */
NEAP_API int neap_grant_create(struct neap_engine *engine, const void *address, uint64_t length, unsigned rights,
                               const uint8_t peer_instance[16], struct neap_grant_token *token_p);
/* From the return on, no chunk is begun under it; `ended` is called when no byte will be stored or read under it, and the memory may go
 * elsewhere: after the grace period, and, of a grant with keys, when the devices have let go of the slab, which waits for its other grants
 * to end. NEAP_ESTALE when it has ended before. */
NEAP_API int neap_grant_end(struct neap_engine *engine, const struct neap_grant_token *token, void (*ended)(void *user),
                            void *user);
/* The same when the peer has said that nothing is under way and nothing will be: then there is nothing to fence but the grace period. */
NEAP_API int neap_grant_end_quiet(struct neap_engine *engine, const struct neap_grant_token *token, void (*ended)(void *user),
                                  void *user);

/* --- segments ----------------------------------------------------------------------------------------------------------- */

/* Opens the segment of that name: `opened` is called once from a turn with 0 and the id, or an error and a sentence. Opening a name
 * again gives the same id, and needs a close of its own. The own name gives NEAP_LOCAL_SEGMENT. */
typedef void neap_opened_func(void *user, int error, neap_segment_id segment, const char *why);
NEAP_API int neap_segment_open(struct neap_engine *engine, const char *name, neap_opened_func *opened, void *user);

/* Reads the descriptor anew (after a peer was restarted); the same callback. */
NEAP_API int neap_segment_refresh(struct neap_engine *engine, neap_segment_id segment, neap_opened_func *opened, void *user);

/* Lets go of the segment. With the last close (it takes as many as there were opens that succeeded) pending requests to it complete as
 * CANCELED, lanes close, and the id becomes stale. */
NEAP_API int neap_segment_close(struct neap_engine *engine, neap_segment_id segment);

struct neap_segment_info {
	const char *name;            /* valid until the next refresh or close */
	const char *protocol;        /* "tcp", "rdma", or "local": where requests go that are submitted now */
	uint32_t buffer_count;
	bool is_neap;
	uint8_t instance[16];        /* zeroes for a plain peer */
	uint32_t tcp_proto_version;
	uint64_t refreshed;          /* how often its descriptor was read */
};
NEAP_API int neap_segment_info(struct neap_engine *engine, neap_segment_id segment, struct neap_segment_info *info_p);
/* The remote ranges one may address. NEAP_EINVAL when index >= buffer_count. */
NEAP_API int neap_segment_buffer(struct neap_engine *engine, neap_segment_id segment, uint32_t index, uint64_t *address_p,
                                 uint64_t *length_p);

/* --- transfers ---------------------------------------------------------------------------------------------------------- */

enum neap_opcode { NEAP_READ = 0 /* remote -> source */, NEAP_WRITE = 1 /* source -> remote */ };

struct neap_request {
	enum neap_opcode opcode;
	void *source;                         /* local memory; need not be registered for TCP */
	neap_segment_id segment;
	uint64_t target_offset;               /* absolute virtual address in the remote process */
	uint64_t length;                      /* bytes; 0 completes with 0 bytes once the address is found valid */
	const struct neap_grant_token *grant; /* NULL: none. Copied. Within the process none is needed, and one that is given counts */
	void *user;
	bool placed;                          /* a write is COMPLETED when its bytes can be seen in the peer's memory, and not only when
	                                         devices answer for them; costs a small read */
};

enum neap_status { /* numbers as in Mooncake */
	NEAP_WAITING = 0,
	NEAP_PENDING = 1,
	NEAP_INVALID = 2,
	NEAP_CANCELED = 3,
	NEAP_COMPLETED = 4,
	NEAP_TIMEOUT = 5,
	NEAP_FAILED = 6,
};

enum neap_effect { /* on the destination memory */
	NEAP_EFFECT_NONE,
	NEAP_EFFECT_ALL,
	NEAP_EFFECT_PARTIAL, /* exactly `bytes` from the front are there */
	NEAP_EFFECT_UNKNOWN,
};

enum neap_buffer_state {
	NEAP_BUFFER_YOURS, /* `source` is yours again */
	NEAP_BUFFER_HELD,  /* the transport may still touch it: on_released follows */
};

/* Why, in a number; neap_outcome_text makes the sentence. */
enum neap_cause {
	NEAP_CAUSE_NONE,
	NEAP_CAUSE_CANCELED_BY_USER,
	NEAP_CAUSE_BATCH_DEADLINE,
	NEAP_CAUSE_NO_PROGRESS,       /* progress_timeout_ms */
	NEAP_CAUSE_CONNECT_FAILED,    /* system_errno */
	NEAP_CAUSE_CONNECT_TIMEOUT,   /* connect_timeout_ms */
	NEAP_CAUSE_NAME_UNRESOLVED,
	NEAP_CAUSE_DESCRIPTOR_FAILED, /* the handshake for the descriptor failed */
	NEAP_CAUSE_RANGE_NOT_REMOTE,  /* not inside one buffer of the peer's current descriptor */
	NEAP_CAUSE_REFUSED_BY_PEER,   /* status frame "address rejected" */
	NEAP_CAUSE_GRANT_REFUSED,
	NEAP_CAUSE_PEER_RESET,
	NEAP_CAUSE_PEER_CLOSED,
	NEAP_CAUSE_PROTOCOL,          /* the peer sent something else than the protocol says */
	NEAP_CAUSE_OTHER_INSTANCE,
	NEAP_CAUSE_CHECKSUM,
	NEAP_CAUSE_SEGMENT_CLOSED,
	NEAP_CAUSE_ENGINE_CLOSED,
	NEAP_CAUSE_LOCAL_OVERLAP,     /* source and target of a local request overlap in a way memmove in chunks cannot honour */
	NEAP_CAUSE_LOCAL_MEMORY,      /* EFAULT: `source` is not mapped as needed */
	NEAP_CAUSE_INTERNAL,
};

/* What is known of one request. FAILED is said only when no further byte can become visible; COMPLETED only with EFFECT_ALL. */
struct neap_outcome {
	uint8_t status; /* enum neap_status */
	uint8_t effect; /* enum neap_effect */
	uint8_t buffer; /* enum neap_buffer_state */
	uint8_t cause;  /* enum neap_cause */
	int16_t error;  /* enum neap_error; 0 when COMPLETED */
	int16_t system_errno;
	uint64_t bytes; /* COMPLETED: length; PARTIAL: from the front; else 0 */
};

/* "write of 4096 bytes to 127.0.0.1:15234 at 0x7f…: no byte moved for 30000 ms (progress_timeout_ms)". Returns the length. */
NEAP_API int neap_outcome_text(struct neap_engine *engine, const struct neap_request *request, const struct neap_outcome *outcome,
                               char *text, size_t size);

struct neap_batch_summary {
	uint32_t total, completed, failed, timed_out, canceled;
	uint64_t bytes; /* of completed requests */
};

struct neap_batch_options {
	uint64_t deadline_ns; /* absolute monotonic; 0: none. What is left then ends as TIMEOUT */
	/* All may be NULL; called from a turn. on_request: once a request. on_batch: once, after all requests ended.
	 * on_released: once for each outcome that said HELD. The callee may submit, cancel, free and close. */
	void (*on_request)(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome);
	void (*on_batch)(void *user, neap_batch_id batch, const struct neap_batch_summary *summary);
	void (*on_released)(void *user, neap_batch_id batch, uint32_t index, void *request_user);
	void *user;
	bool keep;            /* the batch stays until neap_batch_free, its statuses can be polled; false: gone after on_batch */
	const char *notify_name, *notify_message; /* not NULL: sent to the segment of request 0 when all requests COMPLETED */
};

/* All are accepted or none: NEAP_EINVAL (empty list, NULL source, unknown opcode, wrap-around), NEAP_ESTALE (segment), NEAP_EAGAIN
 * (pools or the peer's queue are full), NEAP_ETOOMANY (more than requests_max at once). Requests and options are copied. Order
 * between requests is not defined. Places come back in the turns after a batch has ended. `options` NULL: no callbacks, kept. */
NEAP_API int neap_submit(struct neap_engine *engine, const struct neap_request *requests, size_t count,
                         const struct neap_batch_options *options, neap_batch_id *batch_p);

/* Polled status. NEAP_ESTALE for a batch that is gone, NEAP_EINVAL for an index that is not in it. */
NEAP_API int neap_batch_status(struct neap_engine *engine, neap_batch_id batch, uint32_t index, struct neap_outcome *outcome_p);
NEAP_API int neap_batch_summary(struct neap_engine *engine, neap_batch_id batch, struct neap_batch_summary *summary_p,
                                bool *finished_p);

/* What is not finished ends as CANCELED (each with its outcome and callback). 0 also when all had ended. */
NEAP_API int neap_batch_cancel(struct neap_engine *engine, neap_batch_id batch);
NEAP_API int neap_request_cancel(struct neap_engine *engine, neap_batch_id batch, uint32_t index);

/* For batches with keep: NEAP_EBUSY while requests are pending or held. */
NEAP_API int neap_batch_free(struct neap_engine *engine, neap_batch_id batch);

/* --- notify ------------------------------------------------------------------------------------------------------------- */

/* `sent` (may be NULL) once: 0, or why not. */
NEAP_API int neap_notify_send(struct neap_engine *engine, neap_segment_id segment, const char *name, const char *message,
                              void (*sent)(void *user, int error, const char *why), void *user);

struct neap_notify {
	const char *name, *message; /* valid until the next call */
};
/* The oldest received one: 1, or 0 when there is none. Home engine. */
NEAP_API int neap_notify_take(struct neap_engine *engine, struct neap_notify *notify_p);
/* Called from a turn when one arrived. */
NEAP_API void neap_notify_watch(struct neap_engine *engine, void (*arrived)(void *user), void *user);

/* --- statistics --------------------------------------------------------------------------------------------------------- */

struct neap_engine_stats {
	uint64_t requests_submitted, requests_completed, requests_failed, requests_timed_out, requests_canceled;
	uint64_t bytes_read, bytes_written;               /* as initiator, completed */
	uint64_t bytes_served_read, bytes_served_written; /* as target */
	uint64_t requests_served, requests_refused;
	uint64_t lanes_opened, lanes_lost, requests_repeated, descriptor_refreshes;
	uint64_t sessions_accepted, sessions_refused, protocol_errors;
	uint64_t handshakes_served, handshakes_refused, notifies_received, notifies_refused;
	uint64_t system_calls_initiator, system_calls_target; /* of lanes and of sessions */
	uint32_t peers, lanes, sessions, regions, grants, requests_pending, batches;
};
NEAP_API void neap_engine_stats(const struct neap_engine *engine, struct neap_engine_stats *stats_p);

/* --- devices ------------------------------------------------------------------------------------------------------------ */

struct neap_device_info {
	const char *name;         /* "mlx5_0"; valid as long as the engine */
	const char *why;          /* not usable: why, in one sentence; valid until the next turn. "": usable, or not known yet */
	bool usable;
	uint32_t port;
	char address[48];         /* its GID */
	uint64_t bytes_moved;     /* through it by requests of this process, both ways */
	uint64_t bytes_under_way; /* now */
};
/* The RDMA devices of a home engine, by index. NEAP_ENODEV: there is none of that index. */
NEAP_API int neap_engine_device(const struct neap_engine *engine, uint32_t index, struct neap_device_info *info_p);

struct neap_rdma_stats {
	uint64_t sends, repeats;  /* pieces given to devices, and those of them that had to be given again */
	uint64_t rails_paused, probes;
	uint32_t endpoints;       /* connections, those that are being made or unmade included */
	uint32_t rails, rails_open;
};
/* NEAP_ENODEV: the engine has no RDMA transport. */
NEAP_API int neap_engine_rdma_stats(const struct neap_engine *engine, struct neap_rdma_stats *stats_p);

#ifdef __cplusplus
}
#endif
#endif
