/* One served data connection, as the files of the serving half share it. Machine: tcp_session.
 *
 * The machine knows the phases of a connection; the bytes are moved by direct calls from the readiness handler, one visit after
 * the other: take in (session_receive.c), understand (session_plain.c, session_neap.c), answer (session_reply.c). A visit ends
 * with at most one event.
 *
 * Memory: an idle session is this struct alone. What a request needs while it is under way is in struct neap_tcp_work, taken
 * from a pool as large as the pool of sessions (so it cannot run out) whose untouched objects cost address space only. What is
 * needed only within a visit (staging, scratch, vectors) belongs to the server and is shared by all sessions of the core. */
#ifndef NEAP_TRANSPORTS_TCP_SESSION_H
#define NEAP_TRANSPORTS_TCP_SESSION_H

#include "transports/tcp/server.h"
#include "transports/tcp/wire.h"

#define NEAP_TCP_STAGING_BYTES (256u * 1024u)
#define NEAP_TCP_SCRATCH_BYTES (256u * 1024u)
#define NEAP_TCP_VECTORS 1024
#define NEAP_TCP_REPLIES 512u          /* power of two */
#define NEAP_TCP_REPLY_BYTES_MAX (1024u * 1024u) /* gathered into one call */
#define NEAP_TCP_LARGE_PAYLOAD (32u * 1024u) /* from here on payloads are not staged */
#define NEAP_TCP_OK_WORDS 512u
#define NEAP_TCP_SPILLS 16u
#define NEAP_TCP_LANE_BUCKETS 1024u
#define NEAP_TCP_ENDED_LANES 1024u

enum neap_tcp_reply_tail {
	NEAP_TCP_TAIL_NONE,  /* ok_words alone */
	NEAP_TCP_TAIL_WORD,  /* then tail_word: a status that is not OK */
	NEAP_TCP_TAIL_READ,  /* then `length` bytes of registered memory at `address`, and tail_word when the session has checksums */
	NEAP_TCP_TAIL_BYTES, /* then `length` bytes of the work itself at `address`: the hello reply */
};

/* Answers in the order of the requests. A run of successful requests is one of these. */
struct neap_tcp_reply {
	uint64_t address, length;
	uint64_t tail_word;
	struct neap_access_ref ref;
	uint32_t ok_words;   /* sent first; a READ's own status is the last of them */
	uint8_t tail;        /* enum neap_tcp_reply_tail */
	bool has_status;     /* READ: false in v1 */
	bool crc_done;       /* READ: tail_word is final */
};

/* One request whose payload is being received, or that waits behind one. */
struct neap_tcp_item {
	uint64_t address, length;
	struct neap_access_ref ref;
	unsigned char trailer[NEAP_TRAILER_BYTES];
	uint8_t opcode;      /* enum neap_opcode */
	uint8_t code;        /* enum neap_word_code; not OK: the payload, if one follows, is thrown away */
	bool has_payload;
	bool acknowledged;   /* false: v1 */
};

/* What was read ahead of its payloads: one plain WRITE, or the entries of a Neap frame. */
struct neap_tcp_frame {
	uint32_t count, at;  /* at == count: none */
	uint64_t moved;      /* of item `at`: payload and trailer bytes that have arrived */
	uint64_t owed;       /* payload and trailer bytes of all items that have not */
	uint32_t crc;        /* of the payload of item `at`, as far as it has arrived */
	struct neap_tcp_item items[NEAP_FRAME_ENTRIES_MAX];
};

struct neap_tcp_work {
	struct neap_tcp_reply replies[NEAP_TCP_REPLIES]; /* ring */
	uint32_t reply_head, reply_tail;
	uint64_t reply_sent;      /* bytes of the head that the kernel has taken */
	uint32_t crc_index, crc;  /* the reply whose payload is being summed */
	uint64_t crc_offset;
	unsigned char *spill;     /* bytes read but not understood yet, because the ring was full */
	uint32_t spill_at, spill_end;
	uint32_t carry_length;    /* an incomplete header; then there is no frame */
	unsigned char hello_reply[NEAP_HELLO_REPLY_BYTES];
	union {
		struct neap_tcp_frame frame;
		unsigned char carry[NEAP_FRAME_BYTES_MAX];
	};
};

/* What a visit has found out about the connection's future. */
enum neap_tcp_fate {
	NEAP_TCP_GOES_ON,
	NEAP_TCP_REFUSED, /* what is queued is sent, then it ends */
	NEAP_TCP_BROKEN,  /* it ends now */
};

struct neap_tcp_session {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_tcp_server *server;
	struct neap_stream *stream;     /* NULL once closed */
	struct neap_tcp_work *work;     /* NULL: nothing under way */
	struct neap_ready again;
	uint64_t progress_ns;           /* what the state's deadline is counted from */
	uint32_t last_payload, last_head; /* of the latest request or frame: how much to stage */
	uint32_t low_water;
	uint8_t wanted;                 /* readiness asked for */
	uint8_t fate;                   /* enum neap_tcp_fate, of this visit */
	uint8_t level;                  /* 0: plain */
	bool greeted;                   /* the first header was understood */
	bool ends_by_reset;             /* refused a WRITE whose sender would take an end of file for "stored" */
	bool checksum;
	bool blocked;                   /* the kernel takes no more until it says writable */
	bool end_of_file;
	bool half_closed;
	bool looked;                    /* the last look before a peer is given up was ordered */
	uint8_t client[16];             /* after a hello */
	uint64_t lane;
	struct neap_tcp_session *next_lane, **lane_slot;
};

struct neap_tcp_ended_lane {
	uint8_t client[16];
	uint64_t lane;
};

struct neap_tcp_server {
	const struct neap_engine_core_view *view;
	struct neap_reactor *reactor;
	struct neap_reactor_class *class_;
	struct neap_acceptor acceptor;
	bool listening, closing;
	struct neap_ready close_some;
	uint32_t close_next;                     /* index of the first session not ended yet */
	void (*closed)(void *user);
	void *closed_user;
	struct neap_pool sessions, works, spills;
	unsigned char *staging, *scratch;
	struct iovec vector[NEAP_TCP_VECTORS];
	uint64_t ok_words[2][NEAP_TCP_OK_WORDS]; /* plain, Neap */
	struct neap_tcp_session *lanes[NEAP_TCP_LANE_BUCKETS];
	struct neap_tcp_ended_lane ended[NEAP_TCP_ENDED_LANES]; /* the latest */
	uint64_t ended_count;
};

/* How much one visit may do and has done. */
struct neap_tcp_visit {
	uint64_t budget, received, sent;
};
static inline bool neap_tcp_visit_over(const struct neap_tcp_visit *visit)
{
	return visit->received + visit->sent >= visit->budget;
}

/* session.c */
extern const struct neap_machine_kind neap_tcp_session_kind;
void neap_tcp_session_open(struct neap_tcp_session *session, struct neap_tcp_server *server, struct neap_stream *stream);
/* From outside of a visit or from another session's: gone when this returns. Not abortive: in order, if nothing is under way. */
void neap_tcp_session_end(struct neap_tcp_session *session, bool abortive);
/* The work, taken if there is none. */
struct neap_tcp_work *neap_tcp_session_work(struct neap_tcp_session *session);
/* The peer broke a rule. */
void neap_tcp_session_broken(struct neap_tcp_session *session, const char *why);
/* A system call of the stream failed. */
void neap_tcp_session_failed(struct neap_tcp_session *session, int system_errno);
static inline bool neap_tcp_frame_open(const struct neap_tcp_work *work)
{
	return work->carry_length == 0 && work->frame.at < work->frame.count;
}

/* session_receive.c */
enum neap_tcp_intake {
	NEAP_TCP_TOOK,    /* there may be more */
	NEAP_TCP_DRAINED, /* a short read: wait for readiness */
	NEAP_TCP_HELD,    /* no room for answers */
	NEAP_TCP_DONE,    /* nothing more will be taken: end of file, refused, broken */
};
enum neap_tcp_intake neap_tcp_take_in(struct neap_tcp_session *session, struct neap_tcp_visit *visit);
/* Reads and throws away. */
enum neap_tcp_intake neap_tcp_discard(struct neap_tcp_session *session, struct neap_tcp_visit *visit);
/* Tells the stream how much is owed, so that it wakes us less often. */
void neap_tcp_low_water(struct neap_tcp_session *session);

/* What stopped the understanding of a piece of bytes. */
enum neap_tcp_stop {
	NEAP_TCP_NEEDS_BYTES,
	NEAP_TCP_NEEDS_ROOM,
	NEAP_TCP_FRAME_READY, /* a frame was opened: its payloads come next */
	NEAP_TCP_STOPPED,     /* fate says why */
};
/* session_plain.c: headers from `bytes` on; *used_p how many were consumed. */
enum neap_tcp_stop neap_tcp_plain_parse(struct neap_tcp_session *session, const unsigned char *bytes, size_t length,
                                        size_t *used_p);
/* Bytes that complete the header whose front these are, at least; never more than it has. */
uint32_t neap_tcp_plain_need(const struct neap_tcp_session *session, const unsigned char *bytes, size_t length);
/* A plain request that is refused ends the connection: status 1 first in v2, nothing in v1. */
void neap_tcp_plain_refuse(struct neap_tcp_session *session, bool acknowledged);

/* session_neap.c */
/* `more`: bytes came behind it, before it was answered. */
void neap_tcp_hello(struct neap_tcp_session *session, const unsigned char bytes[NEAP_HELLO_BYTES], bool more);
enum neap_tcp_stop neap_tcp_neap_parse(struct neap_tcp_session *session, const unsigned char *bytes, size_t length, size_t *used_p);
uint32_t neap_tcp_neap_need(const unsigned char *bytes, size_t length);
void neap_tcp_lane_unlink(struct neap_tcp_session *session);

/* session_reply.c. Room must be asked for before each push: none of them needs more than one place. */
static inline uint32_t neap_tcp_reply_room(const struct neap_tcp_work *work)
{
	return NEAP_TCP_REPLIES - (work->reply_tail - work->reply_head);
}
static inline bool neap_tcp_replies_pending(const struct neap_tcp_session *session)
{
	return session->work && session->work->reply_head != session->work->reply_tail;
}
void neap_tcp_reply_ok(struct neap_tcp_work *work);
void neap_tcp_reply_word(struct neap_tcp_work *work, uint64_t word);
void neap_tcp_reply_read(struct neap_tcp_work *work, uint64_t address, uint64_t length, const struct neap_access_ref *ref,
                         bool status);
void neap_tcp_reply_bytes(struct neap_tcp_work *work, const void *bytes, uint32_t length);
/* Sends what is queued, until it is all sent, the kernel is full, or the visit's budget is spent. */
void neap_tcp_replies_send(struct neap_tcp_session *session, struct neap_tcp_visit *visit);

#endif
