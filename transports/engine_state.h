/* The engine from inside: shared by the files that make it up, by nobody else. */
#ifndef NEAP_TRANSPORTS_ENGINE_STATE_H
#define NEAP_TRANSPORTS_ENGINE_STATE_H

#include "reactor/connect.h"
#include "reactor/listen.h"
#include "transports/classes.h"
#include "transports/transport.h"
#include <stdatomic.h>

#define NEAP_WHY_MAX 320u

/* --- slices (slice.c) */

enum { NEAP_LATE_NONE, NEAP_LATE_BEGUN, NEAP_LATE_REQUEUED };
enum { NEAP_SLICE_LISTED = 1 /* in the engine's list of ended ones */, NEAP_SLICE_RELEASED = 2 };

/* Beside each slice, by its index: what transports need not see. */
struct neap_slice_extra {
	uint32_t use;   /* of neap_registry_use; given back when the buffer is the user's again */
	uint8_t late;   /* told from inside an action; dispatched before the next event */
	uint8_t flags;
};

struct neap_ended_list {
	struct neap_slice *first, **tail;
};

extern neap_action_func *const neap_slice_actions[];
struct neap_slice_extra *neap_slice_extra(struct neap_engine *engine, const struct neap_slice *slice);
/* Its outcome is known and final, and its callback has come or is about to. */
bool neap_slice_is_reported(const struct neap_slice *slice);
/* Sets the status wanted and asks the transport; nothing when it has ended or was asked before. */
void neap_slice_cancel(struct neap_engine *engine, struct neap_slice *slice, enum neap_status status);
/* Reports ended and released slices, a bounded number. True: more are waiting. */
bool neap_slices_tend(struct neap_engine *engine);

/* --- batches (batch.c, batch_submit.c, batch_index.c) */

#define NEAP_BATCH_INLINE 8u
#define NEAP_PAGE_BITS 7u
#define NEAP_PAGE_ENTRIES (1u << NEAP_PAGE_BITS)

struct neap_index_page {
	uint32_t at[NEAP_PAGE_ENTRIES];
};

struct neap_batch {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_engine *engine;
	uint64_t deadline_ns;
	void (*on_request)(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome);
	void (*on_batch)(void *user, neap_batch_id batch, const struct neap_batch_summary *summary);
	void (*on_released)(void *user, neap_batch_id batch, uint32_t index, void *request_user);
	void *user;
	neap_batch_id handle;
	uint32_t left, held;            /* requests not reported; reported as HELD and not released */
	struct neap_batch_summary summary;
	neap_segment_id notify_segment;
	char *notify_text;              /* name NUL message NUL, or NULL */
	uint32_t notify_bytes, notify_name_bytes;
	bool keep, walking, giving;
	uint8_t wanted_status;          /* of the walk that cancels */
	uint32_t cursor;                /* of that walk, then of the one that gives requests back */
	struct neap_batch *walk_next, **walk_slot;
	struct neap_batch *sweep_next;
	uint32_t depth;                 /* of the tree that maps indices to slices; 0: inline */
	uint32_t at[NEAP_BATCH_INLINE]; /* inline, or at[0]: the root page */
};

extern neap_action_func *const neap_batch_actions[];
uint64_t neap_batch_due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns);
int neap_batch_submit(struct neap_engine *engine, const struct neap_request *requests, size_t count,
                      const struct neap_batch_options *options, neap_batch_id *batch_p);
int neap_batch_ask_status(struct neap_engine *engine, neap_batch_id id, uint32_t index, struct neap_outcome *outcome_p);
int neap_batch_ask_summary(struct neap_engine *engine, neap_batch_id id, struct neap_batch_summary *summary_p, bool *finished_p);
int neap_batch_ask_cancel(struct neap_engine *engine, neap_batch_id id);
int neap_batch_ask_cancel_one(struct neap_engine *engine, neap_batch_id id, uint32_t index);
int neap_batch_ask_free(struct neap_engine *engine, neap_batch_id id);
/* A slice of the batch was reported, or released. */
void neap_batch_account(struct neap_batch *batch, const struct neap_outcome *outcome);
void neap_batch_settle(struct neap_batch *batch);
/* Goes on with cancels and with giving back; true: more to do. */
bool neap_batches_tend(struct neap_engine *engine);
void neap_batches_free_all(struct neap_engine *engine);

uint32_t neap_batch_pages(uint32_t count);
void neap_batch_index_begin(struct neap_batch *batch, uint32_t count);
void neap_batch_index_set(struct neap_batch *batch, uint32_t index, uint32_t slice);
uint32_t neap_batch_index_get(const struct neap_batch *batch, uint32_t index);
void neap_batch_index_end(struct neap_batch *batch);

/* --- segments (segment.c) */

/* A call to neap_segment_open or refresh on its way to its callback. */
struct neap_opener {
	struct neap_opener *next;
	struct neap_segment_waiter waiter; /* refresh */
	struct neap_segment *segment;      /* open: which it waits for */
	neap_segment_id id;
	neap_opened_func *opened;
	void *user;
	int error;
	char why[NEAP_WHY_MAX];
};

struct neap_opener_list {
	struct neap_opener *first, **tail;
};

extern neap_action_func *const neap_segment_actions[];
int neap_segment_begin_open(struct neap_engine *engine, const char *name, neap_opened_func *opened, void *user);
int neap_segment_begin_refresh(struct neap_engine *engine, neap_segment_id id, neap_opened_func *opened, void *user);
int neap_segment_begin_close(struct neap_engine *engine, neap_segment_id id);
int neap_segment_ask_info(struct neap_engine *engine, neap_segment_id id, struct neap_segment_info *info_p);
int neap_segment_ask_buffer(struct neap_engine *engine, neap_segment_id id, uint32_t index, uint64_t *address_p, uint64_t *length_p);
/* NULL when it is not open. */
struct neap_segment *neap_segment_find(struct neap_engine *engine, neap_segment_id id);
void neap_segment_slice_done(struct neap_segment *segment);
bool neap_segments_tend(struct neap_engine *engine);
void neap_segments_abandon(struct neap_engine *engine);
void neap_segments_free_all(struct neap_engine *engine);

/* --- notify (notify.c) */

struct neap_notify_call {
	struct neap_notify_call *next;
	struct neap_engine *engine;
	uint64_t call;
	bool under_way;
	void (*sent)(void *user, int error, const char *why);
	void *user;
	int error;
	char why[NEAP_WHY_MAX];
};

struct neap_notify_call_list {
	struct neap_notify_call *first, **tail;
};

/* A received one, not taken yet. The texts follow. */
struct neap_notify_entry {
	struct neap_notify_entry *next;
	size_t bytes, name_bytes;
	char text[];
};

struct neap_notify_queue {
	struct neap_notify_entry *first, **tail, *taken;
	uint32_t count;
	uint64_t bytes;
	bool fresh; /* arrived since the watcher was called */
	void (*arrived)(void *user);
	void *user;
};

int neap_notify_begin_send(struct neap_engine *engine, neap_segment_id segment, const char *name, const char *message,
                           void (*sent)(void *user, int error, const char *why), void *user);
int neap_notify_receive(struct neap_engine *engine, const char *name, const char *message);
int neap_notify_received(void *engine, const char *name, const char *message); /* handshake handler */
int neap_notify_take_one(struct neap_engine *engine, struct neap_notify *notify_p);
bool neap_notifies_tend(struct neap_engine *engine);
void neap_notifies_abandon(struct neap_engine *engine);
void neap_notifies_free_all(struct neap_engine *engine);

/* --- memory that settles (settle.c) */

struct neap_settle_list {
	struct neap_settle_call *first, **tail;
};

int neap_settle_begin(struct neap_engine *engine, neap_region_id region, neap_memory_settled_func *settled, void *user);
bool neap_settles_tend(struct neap_engine *engine);

/* --- what is published (publish.c) */

struct neap_published {
	char *json;             /* heap, of the JSON library */
	size_t length;
	uint64_t registry_version, ports_version, reach_version;
};

/* Something of it has changed since the document was made. */
bool neap_publish_is_old(const struct neap_engine *engine);

char *neap_publish_describe(void *engine, size_t *length_p); /* handshake handler */
char *neap_publish_self(void *engine, size_t *length_p);     /* sent with requests: without buffers */
void neap_publish_limit(struct neap_engine *engine);
void neap_publish_free(struct neap_engine *engine);
void neap_publish_boot_id(struct neap_engine *engine);

/* --- the engine (engine.c, engine_close.c, engine_options.c, engine_name.c) */

enum { NEAP_TEXTS = 17 };

/* What the owner of an engine is told of its publication. */
struct neap_publication {
	void (*watcher)(void *user, int error, const char *why);
	void *user;
	int error;
	bool known, fresh;
	char why[NEAP_WHY_MAX];
};

struct neap_engine {
	struct neap_dependent dependent;
	struct neap_machine life;
	struct neap_reactor *reactor;
	struct neap_transports_classes classes;
	struct neap_engine *home; /* itself on the first core */
	struct neap_engine_options options; /* defaults filled in; texts are copies in `texts` */
	char *texts[NEAP_TEXTS];
	struct neap_engine_core_view view;
	struct neap_engine_stats stats;
	char name[NEAP_ADDRESS_TEXT_MAX];
	char host[NEAP_HOST_MAX];
	uint8_t boot[16];
	uint16_t handshake_port, data_port;
	uint32_t core_index;
	bool has_core;            /* counted in the registry */
	bool bind_was_said;

	struct neap_registry *registry; /* home's */
	struct neap_handshake_service *service; /* home only */
	struct neap_handshake_caller *caller;
	struct neap_backend *backend;
	struct neap_directory *directory;
	struct neap_publisher *publisher; /* home, in a store only */
	struct neap_publication publication;
	struct neap_timer withdraw_timer;
	bool withdrawing;         /* what is published is being taken back */
	neap_transport_maker *make_remote;
	neap_backend_maker *make_backend; /* NULL: as options.metadata says */
	void *make_backend_user;
	struct neap_transport *local, *remote;
	bool local_closed, remote_closed;

	struct neap_pool slices, tokens, batches, pages, segments, openers, notify_calls, settle_calls;
	struct neap_slice_extra *extras;
	struct neap_use_cache use_cache;
	struct neap_ended_list ended;
	uint32_t pending;         /* slices that are not done */
	struct neap_batch *walks, **walks_tail;
	struct neap_batch *sweeps;
	struct neap_segment self; /* id 0 */
	struct neap_segment **names;
	uint32_t names_mask;
	struct neap_segment *tends; /* segments to be told to their transport, or given back */
	struct neap_opener_list opened;
	struct neap_notify_call_list notified;
	struct neap_settle_list settled;
	struct neap_notify_queue notifies;
	struct neap_published published;
	uint64_t reach_version;   /* raised when what the remote transport publishes has changed */
	struct neap_ready work;

	void (*closed)(void *user);
	void *closed_user;
	bool refuses;             /* new work: it closes or is about to */
	bool waits_for_cores;     /* the reactor stops while other cores still use this engine */
	bool closing_begun;       /* transports were told */
	struct neap_timer close_timer;
	struct neap_reap reap;

	/* home: what other cores write */
	_Atomic uint32_t joined;
	_Atomic uint32_t refuses_joins;
	_Atomic uint32_t ports[NEAP_CORES_MAX];
	_Atomic uint64_t ports_version;
};

bool neap_engine_is_running(const struct neap_engine *engine);
/* There is something for neap_engine_tend. */
void neap_engine_wake(struct neap_engine *engine);
void neap_engine_tend(struct neap_ready *ready);
extern neap_action_func *const neap_engine_life_actions[];
int neap_engine_begin_close(struct neap_engine *engine, void (*closed)(void *user), void *user);
void neap_engine_stop(struct neap_dependent *dependent);
bool neap_engine_close_tend(struct neap_engine *engine);
/* Frees what was made; for a half-made engine too. Its transports are gone. */
void neap_engine_free(struct neap_engine *engine);

/* Copies and completes options; texts are allocated. */
int neap_options_fill(struct neap_engine *engine, const struct neap_engine_options *given, char *why, size_t why_size);
/* Files that options name are read once, for what is wrong in them; not when simulated. Waits for the disk. */
int neap_options_check_files(struct neap_engine *engine, char *why, size_t why_size);
void neap_options_free(struct neap_engine *engine);
/* Host, bind address. */
int neap_name_resolve(struct neap_engine *engine, char *why, size_t why_size);
/* Where we take handshakes, as peers are told. */
void neap_name_address(const struct neap_engine *engine, struct neap_host_port *address_p);
/* The handshake service and with it the published name. */
int neap_name_publish(struct neap_engine *engine, char *why, size_t why_size);

/* --- metadata stores (publish_store.c) */

bool neap_engine_stores(const struct neap_engine *engine); /* not P2PHANDSHAKE */
int neap_store_open(struct neap_engine *engine, char *why, size_t why_size);
int neap_store_publish(struct neap_engine *engine, char *why, size_t why_size);
void neap_store_changed(struct neap_engine *engine); /* what we publish */
void neap_store_withdraw(struct neap_engine *engine);
void neap_store_free(struct neap_engine *engine);
int neap_store_watch(struct neap_engine *engine, void (*watcher)(void *user, int error, const char *why), void *user);
void neap_store_tend(struct neap_engine *engine);

#endif
