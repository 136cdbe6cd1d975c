/* One connection to a peer and the requests on it. Machine: tcp_lane.
 *
 * Requests that were given to a lane stand in its ring, in the order in which they are sent and answered:
 *
 *     head ......... sent ......... tail
 *     answer is due  being sent     not begun
 *
 * A place in the ring outlives its request: when a request under way is canceled its user is told at once, and the place stays as a
 * ghost that swallows the answer. lane_send.c gathers, lane_receive.c scatters, lane_v1.c has the rule for peers without
 * acknowledgements, lane_end.c says what becomes of requests whose lane has ended. */
#ifndef NEAP_TRANSPORTS_TCP_LANE_H
#define NEAP_TRANSPORTS_TCP_LANE_H

#include "reactor/connect.h"
#include "transports/tcp/lane_fsm.h"
#include "transports/tcp/wire.h"
#include "transports/transport.h"

struct neap_tcp_peer;
struct neap_tcp_initiator;

/* How much one lane has under way. Measured on loopback with one lane: 512 requests at 4 KiB (2,048 lose 40 %: their answers and
 * buffers fall out of the cache), 64 at 64 KiB and 4..16 at 1 MiB all keep the pipe full; 16 MiB also covers 100 Gb/s over a
 * millisecond. A single larger request goes alone. */
#define NEAP_LANE_REQUESTS 512u /* power of two: the ring */
#define NEAP_LANE_BYTES (16u << 20)
/* One call moves about this much: 64 KiB would cost 20-30 % at every size. */
#define NEAP_LANE_CALL_BYTES (1u << 20)
#define NEAP_LANE_VECTORS 1024
#define NEAP_LANE_APPETITE (64u << 10) /* bytes one call asks for, at least; more when more has come */
#define NEAP_LANE_FRAMES 4u
#define NEAP_LANE_DISCARD_BYTES (64u * 1024u)
/* A READ with this much to come lets the kernel wake us once per half megabyte. */
#define NEAP_LANE_LOW_WATER_FROM (128u * 1024u)
#define NEAP_LANE_LOW_WATER (512u * 1024u)
/* Bytes of canceled READs that are worth waiting for instead of opening a new connection. */
#define NEAP_LANE_GHOST_BYTES (1u << 20)

enum neap_flight_kind {
	NEAP_FLIGHT_VOID, /* nothing was sent for it and nothing comes */
	NEAP_FLIGHT_READ,
	NEAP_FLIGHT_WRITE,
	NEAP_FLIGHT_PROBE, /* v1: one byte is read back behind a WRITE */
};
enum {
	NEAP_FLIGHT_SUMMED = 1,  /* crc covers the whole payload */
	NEAP_FLIGHT_DIRTY = 2,   /* bytes that belong elsewhere may have passed through its buffer */
	NEAP_FLIGHT_CULPRIT = 4, /* the answer that broke the protocol was for this one */
};

struct neap_flight {
	struct neap_slice *slice; /* NULL: a ghost, a probe or void */
	uint64_t address, length;
	uint32_t crc;
	uint8_t kind, flags;
};

/* What the peer speaks, from its descriptor and our options. */
enum neap_peer_kind { NEAP_PEER_V1, NEAP_PEER_V2, NEAP_PEER_NEAP };

enum neap_lane_end {
	NEAP_LANE_GOES_ON,
	NEAP_LANE_UNREACHED,   /* no connection: lane->connect has the cause */
	NEAP_LANE_SILENT,      /* no answer to the hello */
	NEAP_LANE_TURNED_AWAY, /* the hello was refused, or a plain server answered it */
	NEAP_LANE_UNCONFIRMED, /* the descriptor could not be read */
	NEAP_LANE_DIFFERS,     /* the descriptor says that the peer is elsewhere or something else now */
	NEAP_LANE_FIN,         /* the peer's end of file */
	NEAP_LANE_RESET,       /* the peer's reset */
	NEAP_LANE_LOST,        /* the kernel gave the connection up: no word from the peer */
	NEAP_LANE_STALLED,     /* no byte moved for progress_timeout_ms */
	NEAP_LANE_BROKEN,      /* the peer sent something else than the protocol says */
	NEAP_LANE_DROPPED,     /* closed by us: a cancel, or a drain that ended */
};

struct neap_tcp_lane {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_tcp_peer *peer;
	struct neap_stream *stream;          /* NULL: not connected, or closed */
	struct neap_connect connect;
	struct neap_segment_waiter waiter;
	struct neap_ready ready;             /* goes on after a budget; settles after the end */
	struct neap_reap reap;
	uint64_t id;                         /* unique in this instance */
	uint64_t fence;                      /* the older lane its hello names; 0: none */
	uint64_t started_ns, moved_ns;       /* opened; last byte moved */
	uint32_t core;                       /* of the peer, that it goes to */
	uint16_t port;
	uint8_t slot;                        /* in peer->lanes */
	uint8_t kind;                        /* enum neap_peer_kind */
	uint8_t end;                         /* enum neap_lane_end */
	uint8_t wanted;
	bool waiting;                        /* waiter is in use */
	bool live;                           /* was READY once */
	bool checksum;                       /* agreed in the hello */
	bool blocked;                        /* the kernel takes no more until WRITABLE */
	bool cut;                            /* nothing more is sent */
	bool deaf;                           /* what comes is thrown away */
	bool broken;                         /* the protocol was broken before the end that `end` names */
	bool refused;                        /* a plain status said no: the peer closes now */
	bool retired;                        /* the peer's descriptor has moved on: no more requests */
	bool moment_passed;                  /* the peer did not close: to be dealt with in the next visit */
	bool moment_over;                    /* and was */
	bool looking;                        /* the progress timer has fired: is there really nothing? */
	bool lone;                           /* one request a call, to find the one whose memory is not there */
	bool buried;
	uint8_t cause;                       /* enum neap_cause, when the end alone does not say it */
	int end_errno;
	uint32_t low_water, appetite;
	uint32_t answered;                   /* requests and probes, on this connection */
	uint8_t hello_reply[NEAP_HELLO_REPLY_BYTES];
	uint8_t instance[16];                /* of the peer, by its hello reply */
	uint32_t greeting_at;                /* bytes of hello sent, then of reply received */
	bool greeting_sent;

	/* the ring; indexes count up for ever */
	uint32_t head, sent, tail;
	uint32_t requests;                   /* flights that have a slice */
	uint64_t bytes;                      /* lengths of all flights */
	uint64_t sent_offset;                /* of flight `sent`: plain: header and payload; Neap: payload and trailer */
	uint64_t got;                        /* of the answer to flight `head`: status, payload, trailer */
	unsigned char partial[8];            /* an incomplete status or trailer */
	uint32_t got_crc;
	uint32_t frame_first, frame_end;     /* Neap: the frame that was begun */
	uint32_t frame_offset, frame_bytes;  /* of its head */
	uint32_t sum_index;                  /* the flight whose payload is being summed for sending */
	uint64_t summed;
	struct neap_flight ring[NEAP_LANE_REQUESTS];
};

static inline struct neap_flight *neap_flight_at(struct neap_tcp_lane *lane, uint32_t index)
{
	return &lane->ring[index % NEAP_LANE_REQUESTS];
}

/* Scratch of one visit, shared by all lanes of a core. */
struct neap_lane_frame {
	uint32_t first, end, bytes;
};
struct neap_lane_scratch {
	struct iovec vector[NEAP_LANE_VECTORS];
	unsigned char headers[NEAP_LANE_REQUESTS][NEAP_PLAIN_HEADER_BYTES];
	unsigned char trailers[NEAP_LANE_REQUESTS][NEAP_TRAILER_BYTES];
	unsigned char frames[NEAP_LANE_FRAMES + 1][NEAP_FRAME_BYTES_MAX]; /* the last: one that was begun, made again */
	struct neap_lane_frame frame[NEAP_LANE_FRAMES];
	uint32_t frame_count;
	unsigned char small[NEAP_LANE_REQUESTS * (NEAP_STATUS_BYTES + NEAP_TRAILER_BYTES) + 16];
	unsigned char discard[NEAP_LANE_DISCARD_BYTES];
	unsigned char straight[NEAP_LANE_CALL_BYTES + 64]; /* misplaced bytes in wire order */
};

/* --- lane.c --- */

extern const struct neap_machine_kind neap_lane_kind;
/* Begins to connect, as a lane of that slot of the peer. */
void neap_lane_open(struct neap_tcp_lane *lane, struct neap_tcp_peer *peer, uint32_t slot);
/* READY or BUSY, and not on its way out. */
bool neap_lane_takes(const struct neap_tcp_lane *lane);
/* Room in the window for one request of this length. */
bool neap_lane_has_room(const struct neap_tcp_lane *lane, uint64_t length);
void neap_lane_load(struct neap_tcp_lane *lane, struct neap_slice *slice);
/* After a series of loads: sends what is unsent. */
void neap_lane_kick(struct neap_tcp_lane *lane);
/* It is over; the first call counts. Its requests are told later in this turn or the next. */
void neap_lane_over(struct neap_tcp_lane *lane, enum neap_lane_end end, int system_errno);
/* From a negative result of a stream: peer's reset, or lost. */
void neap_lane_stream_failed(struct neap_tcp_lane *lane, int error);
bool neap_lane_fault(struct neap_tcp_lane *lane, uint32_t index);
/* Stops sending; what was wholly sent may still be answered, or, when deaf, the peer's end of file alone is waited for. */
void neap_lane_drain(struct neap_tcp_lane *lane, bool deaf);
void neap_lane_want(struct neap_tcp_lane *lane, unsigned wanted);

void neap_lane_stream_ready(struct neap_stream *stream, unsigned ready);

/* --- lane_open.c --- */

void neap_lane_greeting_ready(struct neap_tcp_lane *lane);
uint64_t neap_lane_connect_timeout_ns(const struct neap_tcp_lane *lane);
neap_action_func neap_lane_do_connect, neap_lane_do_greet, neap_lane_do_confirm, neap_lane_do_serve;

/* --- lane_send.c --- */

void neap_lane_send(struct neap_tcp_lane *lane, uint64_t *budget);
/* A byte of it, or of the frame that announces it, was given to the kernel. */
bool neap_lane_begun(const struct neap_tcp_lane *lane, uint32_t index);
static inline bool neap_lane_unsent(const struct neap_tcp_lane *lane)
{
	return lane->sent != lane->tail;
}

/* --- lane_receive.c --- */

void neap_lane_receive(struct neap_tcp_lane *lane, uint64_t *budget);

/* --- lane_v1.c --- */

/* A request was wholly sent. */
void neap_lane_v1_sent(struct neap_tcp_lane *lane, uint32_t index);
/* After loads: the probe behind the last WRITE, for peers that keep connections. */
void neap_lane_v1_probe(struct neap_tcp_lane *lane);
/* An answer has begun to come for flight `index`: the WRITEs before it are stored. */
void neap_lane_v1_acknowledged(struct neap_tcp_lane *lane, uint32_t index);
/* The peer's end of file: true when it acknowledges the WRITE that waits for it. */
bool neap_lane_v1_end_of_file(struct neap_tcp_lane *lane);
/* True when the lane should see now whether the peer closes. */
bool neap_lane_parts(const struct neap_tcp_lane *lane);
uint64_t neap_lane_moment_ns(const struct neap_tcp_lane *lane);
void neap_lane_moment_passed(struct neap_tcp_lane *lane);

/* --- lane_end.c --- */

/* Flight `head` was answered well: its request is COMPLETED and its place given back. */
void neap_lane_completed(struct neap_tcp_lane *lane, struct neap_flight *flight);
/* The answer said no: its request is FAILED; `stored`: some of it may be there. Its place stays. */
void neap_lane_refused(struct neap_tcp_lane *lane, struct neap_flight *flight, enum neap_cause cause, bool stored);
/* v1, by option: a WRITE is COMPLETED when it was given to the kernel. */
void neap_lane_said_done(struct neap_tcp_lane *lane, struct neap_flight *flight);
/* Ends the request at once; its place stays or goes as the wire demands. */
void neap_lane_abandon(struct neap_tcp_lane *lane, struct neap_slice *slice, enum neap_status status, enum neap_cause cause,
                       int system_errno);
/* The front place of the ring is given back. */
void neap_lane_advance(struct neap_tcp_lane *lane);
/* After the machine is DEAD: what becomes of the requests that are left. */
void neap_lane_settle(struct neap_tcp_lane *lane);

/* What is known when a lane has ended, and what follows for one request: a pure function, with a test that walks it. */
struct neap_lane_facts {
	uint8_t end;        /* enum neap_lane_end */
	uint8_t kind;       /* enum neap_peer_kind */
	bool begun;         /* a byte of it, or of the frame that announces it, was given to the kernel */
	bool given;         /* WRITE: payload bytes were given to the kernel in this attempt */
	bool culprit;       /* its answer broke the protocol */
	bool broken;        /* the protocol was broken on this lane */
	bool suspect_alone; /* it had been cut off before, and was the only one under way on a connection that answered nothing */
	bool repeatable;    /* attempts are left */
};
struct neap_lane_verdict {
	enum { NEAP_VERDICT_QUEUE, NEAP_VERDICT_REPEAT, NEAP_VERDICT_LIMBO, NEAP_VERDICT_END } what;
	uint8_t status, cause; /* of END; the effect follows from what moved */
};
struct neap_lane_verdict neap_lane_judge(const struct neap_lane_facts *facts);

#endif
