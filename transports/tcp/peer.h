/* What the initiator keeps for one segment: the queue, the lanes, what the peer speaks, and how it is reached. Machine: tcp_peer.
 *
 * A request stands in exactly one place: the queue; unsure (its range is not in the descriptor, which is being read again); a lane; limbo
 * (its lane has ended with bytes under way, and a Neap peer must confirm that the lane is dead before they are sent again); doomed (the
 * peer could not be reached: it is told so, some per turn). */
#ifndef NEAP_TRANSPORTS_TCP_PEER_H
#define NEAP_TRANSPORTS_TCP_PEER_H

#include "transports/tcp/initiator.h"
#include "transports/tcp/lane.h"
#include "transports/tcp/peer_fsm.h"

#define NEAP_PEER_LANES_MAX 16u
#define NEAP_PEER_HOT_SEARCH 64u /* descriptor entries searched for the buffer of a request */
#define NEAP_PEER_PIECE 1024u /* requests told of their end in one piece of work */

enum neap_place { NEAP_PLACE_NONE, NEAP_PLACE_QUEUE, NEAP_PLACE_UNSURE, NEAP_PLACE_LANE, NEAP_PLACE_LIMBO, NEAP_PLACE_DOOMED };
/* slice->transport_phase: a place and marks. transport_word: ring index on a lane, the ended lane's id in limbo;
 * of unsure ones, whether they were looked at since: again when they are checked. */
enum {
	NEAP_MARK_PLACE = 0x0f,
	NEAP_MARK_TOUCHED = 0x10, /* an attempt before has left traces at the destination */
	NEAP_MARK_SUSPECT = 0x20, /* its connection was cut: sent alone the next time */
	NEAP_MARK_CHECKED = 0x40, /* the descriptor was read for its range */
	NEAP_MARK_QUIET = 0x80,   /* limbo: the peer's own end of file was seen */
};

struct neap_slice_list {
	struct neap_slice *first, *last;
	uint32_t count;
};

/* What is known of a plain peer's way with connections. */
enum neap_manners {
	NEAP_MANNERS_UNKNOWN,
	NEAP_MANNERS_KEEPS,  /* serves one request after the other on a connection */
	NEAP_MANNERS_CLOSES, /* closes after each request, as older releases do */
};

struct neap_tcp_peer {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_tcp_initiator *initiator;
	struct neap_segment *segment;
	struct neap_ready ready;
	struct neap_reap reap;
	struct neap_segment_waiter fresh; /* REFRESHING */
	struct neap_segment_waiter range; /* for the unsure */
	bool fresh_waiting, range_waiting;

	struct neap_slice_list queue, unsure, limbo, doomed;
	uint32_t pending; /* in all places */
	uint32_t suspects;

	struct neap_tcp_lane *lanes[NEAP_PEER_LANES_MAX];
	uint32_t lane_count; /* slots in use */
	uint64_t fences[NEAP_PEER_LANES_MAX]; /* by slot: an ended lane that the slot's next hello names; 0: none. A slot's lanes all go to
	                                         the same port, and a lane can be declared dead only where it was */
	uint64_t fenced_from_ns[NEAP_PEER_LANES_MAX]; /* since when that is waited for; connect_timeout_ms bounds it */

	/* from the descriptor last looked at */
	struct neap_snapshot *seen;
	uint64_t seen_refreshed;
	uint8_t kind; /* enum neap_peer_kind */
	uint8_t instance[16];
	uint16_t port;             /* of slot 0 */
	uint64_t hot_from, hot_to; /* the remote buffer of a request before: [from, to) */

	uint8_t manners; /* enum neap_manners */
	bool mistrust;   /* the peer was given up: the descriptor is read before it is tried again */
	bool recheck;    /* the descriptor was read for the unsure */
	bool leaving, forget_asked;
	uint8_t leave_cause;
	uint32_t failures; /* attempts in a row that brought no answer */
	uint64_t outage_ns, weighed_ns, pause_until_ns; /* the first lane's begin, the latest one's end, and when the next may begin */
	struct neap_timer pause; /* ACTIVE: wakes it at pause_until_ns while more lanes are wanted than there are */
	uint8_t trouble_cause; /* enum neap_cause, of the last failure */
	uint8_t doom_cause;
	int trouble_errno, doom_errno;
};

struct neap_tcp_initiator {
	struct neap_transport *transport;
	const struct neap_engine_core_view *view;
	struct neap_reactor *reactor;
	struct neap_reactor_class *peer_class, *lane_class;
	struct neap_pool peers, lanes;
	struct neap_lane_scratch *scratch;
	struct neap_ready ready;
	uint64_t lane_ids;
	uint32_t connected;
	bool closing;
	void (*closed)(void *user);
	void *closed_user;
};

static inline const struct neap_engine_options *neap_peer_options(const struct neap_tcp_peer *peer)
{
	return peer->initiator->view->options;
}

/* peer.c */
extern const struct neap_machine_kind neap_peer_kind;
void neap_peer_begin(struct neap_tcp_peer *peer, struct neap_tcp_initiator *initiator, struct neap_segment *segment);
void neap_peer_wake(struct neap_tcp_peer *peer); /* run it in this turn or the next */
void neap_peer_leave(struct neap_tcp_peer *peer, enum neap_cause cause);
/* Fills a lane that has room. */
void neap_peer_feed(struct neap_tcp_peer *peer, struct neap_tcp_lane *lane, uint32_t most);
/* When nothing is left, says so. */
void neap_peer_rest(struct neap_tcp_peer *peer);
/* The lane's slot is free; what it could not do is weighed. */
void neap_peer_lane_gone(struct neap_tcp_peer *peer, struct neap_tcp_lane *lane);

/* peer_requests.c: places, and the ends that are not a lane's affair */
void neap_peer_put(struct neap_tcp_peer *peer, struct neap_slice_list *list, struct neap_slice *slice, enum neap_place place);
void neap_peer_put_front(struct neap_tcp_peer *peer, struct neap_slice_list *list, struct neap_slice *slice, enum neap_place place);
void neap_peer_unlink(struct neap_tcp_peer *peer, struct neap_slice *slice); /* from the list it stands in */
/* The end of one that stands in no list; the second finds the effect: traces of earlier attempts make it UNKNOWN. */
void neap_peer_end_with(struct neap_tcp_peer *peer, struct neap_slice *slice, enum neap_status status, enum neap_effect effect,
                        uint64_t bytes, enum neap_cause cause, int system_errno);
void neap_peer_end(struct neap_tcp_peer *peer, struct neap_slice *slice, enum neap_status status, enum neap_cause cause, int system_errno);
/* Its connection was cut off: next time it is sent alone. */
void neap_peer_suspect(struct neap_tcp_peer *peer, struct neap_slice *slice);
/* Sent again from the front of the queue; `counted`: it costs an attempt. */
void neap_peer_repeat(struct neap_tcp_peer *peer, struct neap_slice *slice, bool counted);
void neap_peer_cancel(struct neap_tcp_peer *peer, struct neap_slice *slice);
/* The peer has said that the ended lane of this slot is dead for good, or will never say it. */
void neap_peer_fenced(struct neap_tcp_peer *peer, uint32_t slot, bool confirmed);
void neap_peer_doom_all(struct neap_tcp_peer *peer, enum neap_cause cause, int system_errno);
/* The instance that lanes in limbo belonged to is gone. */
void neap_peer_other_instance(struct neap_tcp_peer *peer);
/* Tells up to NEAP_PEER_PIECE of them; true when all are told. */
bool neap_peer_tell_doomed(struct neap_tcp_peer *peer);
bool neap_peer_tell_leaving(struct neap_tcp_peer *peer);

/* peer_descriptor.c: what the descriptor says */
void neap_peer_look(struct neap_tcp_peer *peer);
/* The descriptor still says what it said when it was last looked at. Ends nothing: may be asked anywhere. */
bool neap_peer_is_as_seen(const struct neap_tcp_peer *peer);
enum neap_admission { NEAP_ADMITTED, NEAP_NOT_NOW, NEAP_ENDED };
enum neap_admission neap_peer_admit(struct neap_tcp_peer *peer, struct neap_slice *slice);
void neap_peer_ask_for_ranges(struct neap_tcp_peer *peer);
/* Not to be sent as it is: nothing to move, or not in the descriptor. Ends nothing. */
bool neap_peer_is_unsure(struct neap_tcp_peer *peer, const struct neap_slice *slice);
void neap_peer_look_at_unsure(struct neap_tcp_peer *peer);
/* Where a lane of this slot goes, and to which core of the peer. */
bool neap_peer_target(const struct neap_tcp_peer *peer, uint32_t slot, struct neap_host_port *target_p, uint32_t *core_p);
bool neap_lane_still_right(const struct neap_tcp_lane *lane);

#endif
