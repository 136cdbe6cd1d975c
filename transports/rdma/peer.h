/* The initiator from inside: peers, rails, requests and pieces. Shared by the files of the initiator, by nobody else.
 *
 * A request stands in one place: unsure (its range is not in the descriptor, which is read again), queued (bytes of it are still to be
 * cut), or cut. A piece stands in one place: the rail it is under way on, or has to be checked on, or `again` of its peer, to be posted
 * once more. Pieces exist only from their first posting on: a request of a terabyte takes no more memory than one of a kilobyte.
 *
 * A piece whose rail breaks stays there until the endpoint is gone: only then do its bytes come from nowhere any more, and a WRITE is
 * repeated to a Neap peer only when that has said the same of its half (design.md 6). */
#ifndef NEAP_TRANSPORTS_RDMA_PEER_H
#define NEAP_TRANSPORTS_RDMA_PEER_H

#include "transports/rdma/initiator.h"

#define NEAP_RDMA_FEED 512u        /* pieces cut and posted in one piece of work */
#define NEAP_RDMA_GATHER 32u       /* sends handed to an endpoint at once */
#define NEAP_RDMA_GATHERS 4u       /* rails that are gathered for at the same time */
#define NEAP_RDMA_AHEAD 64u        /* pieces on a rail while a better one is being opened */
#define NEAP_RDMA_RAILS_MAX 256u   /* of one peer */
#define NEAP_RDMA_FLUSHES_MAX 64u  /* of one piece: it was behind others that failed */

struct neap_rdma_peer;
struct neap_rdma_rail;

enum neap_rdma_place { NEAP_RDMA_NOWHERE, NEAP_RDMA_UNSURE, NEAP_RDMA_QUEUED, NEAP_RDMA_CUT };

struct neap_rdma_request {
	struct neap_slice *slice;
	struct neap_rdma_request *next, *previous; /* of its place; when stopped, in the list of those that drain */
	uint64_t cut, done; /* bytes that are in pieces, and bytes whose pieces succeeded */
	uint64_t drain_ns;  /* stopped: when the user is told, whatever still holds the buffer */
	uint32_t pieces;    /* that exist */
	uint8_t place;      /* enum neap_rdma_place */
	uint8_t status, cause; /* stopped: as it shall end */
	int16_t system_errno;
	uint32_t fresh_from; /* a refusal counts from this reading of the descriptor on; 0: none was met */
	bool checked;  /* the descriptor was read for its range */
	bool looked;   /* unsure, and was looked at since: again when it is checked */
	bool posted;   /* a piece of it was ever given to a device */
	bool unsure;   /* a piece may or may not have had its effect */
	bool may_land; /* bytes of a WRITE may still reach the peer */
	bool stopped;  /* nothing more is cut or repeated */
	bool lent;     /* its grant's keys are used */
	bool told;     /* ended with a held buffer: the release is owed */
};

struct neap_rdma_request_list {
	struct neap_rdma_request *first, *last;
	uint32_t count;
};

/* 64 bytes. `request` NULL: a rail's probe. */
struct neap_rdma_piece {
	struct neap_rdma_piece *next, *previous;
	struct neap_rdma_request *request;
	struct neap_rdma_rail *rail; /* NULL: in `again` */
	uint64_t offset;
	uint32_t length, rkey;
	uint32_t seen;  /* the reading of the descriptor that its key is from */
	uint8_t status; /* of its completion; NEAP_WC_SUCCESS: none has come */
	uint8_t tries, flushes;
	uint8_t local, remote; /* the path it was posted on last */
	bool write, posted;
	bool checking;      /* what is under way now is the check that it leads (check.c) */
	uint32_t qp_number; /* of its success, that does not count yet */
};

_Static_assert(sizeof(struct neap_rdma_piece) <= 64, "a piece is one cache line");

struct neap_rdma_piece_list {
	struct neap_rdma_piece *first, *last;
	uint32_t count;
};

struct neap_rdma_rail {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rdma_endpoint_user user;
	struct neap_rdma_peer *peer;
	struct neap_rdma_rail *next; /* of the peer */
	struct neap_rdma_queue *queue;
	struct neap_reap reap;
	uint8_t local, remote; /* indices, as in neap_path; remote may change with the descriptor */
	bool open;             /* pieces may be posted, as far as there is room */
	bool doubt;            /* it has failed since it was last proven */
	bool paused;           /* not to be chosen now */
	bool wished;           /* to be opened when what goes over others now is posted */
	bool stale;            /* the descriptor no longer has this device: to be ended */
	bool carried;          /* a piece of a request has succeeded since it was opened */
	uint8_t failures;      /* in a row */
	uint8_t cause;         /* of the latest */
	uint8_t trouble;       /* enum neap_verbs_status that broke it first; NEAP_WC_SUCCESS: none yet */
	uint64_t pause_ns;
	uint64_t waits_ns;     /* since when it waits for room; 0: it does not */
	struct neap_rdma_piece_list pieces;             /* under way */
	struct neap_rdma_piece_list unchecked, covered; /* have succeeded; that counts after a check still to be posted, or under way */
	uint32_t checks;                                /* under way */
	struct neap_rdma_rail *next_to_check;
	bool to_check;
	char nic[NEAP_TOPOLOGY_NAME_SIZE]; /* the peer's device */
};

/* Sends on their way to one endpoint: handed over together. */
struct neap_rdma_gather {
	struct neap_rdma_rail *rail;
	uint32_t count;
	struct neap_verbs_send sends[NEAP_RDMA_GATHER];
	struct neap_rdma_piece *pieces[NEAP_RDMA_GATHER];
};

/* The registered range, and the peer's buffer, that the last piece was in. */
struct neap_rdma_hot {
	uint64_t version, from, to;
	uint64_t until;      /* the side is right for addresses from `from` to here */
	struct neap_path_side side;
	uint64_t memory_id;  /* ours */
	uint32_t buffer;     /* the peer's: index in its descriptor */
};

struct neap_rdma_peer {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_rdma_initiator *initiator;
	struct neap_segment *segment;
	struct neap_ready ready;
	struct neap_reap reap;
	struct neap_segment_waiter fresh, range; /* REFRESHING; for the unsure and the refused */
	bool fresh_waiting, range_waiting, recheck;
	bool keys_doubted; /* one was refused: nothing is posted until the descriptor was read again */

	struct neap_rdma_request_list unsure, queued, cut;
	struct neap_rdma_request_list draining; /* stopped ones that still have pieces, by drain_ns */
	struct neap_timer drain;
	struct neap_rdma_piece_list again;
	uint32_t pending; /* requests that are not told */
	uint32_t holding; /* requests, told ones included */
	uint32_t pieces;

	struct neap_rdma_rail *rails;
	uint32_t rail_count;
	uint64_t remote_bytes[NEAP_DEVICES_MAX]; /* under way to each device of the peer */

	struct neap_snapshot *seen;
	uint64_t seen_refreshed, seen_print;
	uint8_t instance[16];
	bool is_neap;
	struct neap_rdma_hot here, there, lent; /* lent: for the keys of lent_token */
	struct neap_grant_token lent_token;
	uint64_t lent_refreshed;
	uint32_t fence; /* of its endpoints, the highest: what it granted before is not for them */
	uint32_t *by_address; /* indices of the descriptor's buffers by address; NULL: they are few */
	uint32_t by_address_count;

	bool wishes; /* a rail is wished */
	bool resume; /* all rails are tried again at once */
	bool doomed; /* the peer was given up: what it had is told so, some a turn */
	bool leaving;
	uint8_t leave_cause, doom_cause;
	void (*forgotten)(void *user, struct neap_segment *segment);
	void *forgotten_user;

	uint32_t failures; /* rounds in a row in which no rail could be had */
	uint64_t outage_ns; /* since when no rail works, as far as is known; 0: one does, or none was tried */
	uint8_t trouble_cause;
	char trouble[NEAP_RDMA_WHY_SIZE];
	uint32_t said; /* warnings since said_ns */
	uint64_t said_ns;
};

struct neap_rdma_initiator {
	struct neap_rdma_ground ground;
	struct neap_reactor *reactor;
	const struct neap_verbs *verbs;
	struct neap_reactor_class *peer_class, *rail_class;
	struct neap_pool peers, rails, requests, pieces;
	struct neap_rdma_queue *queue_of[NEAP_DEVICES_MAX]; /* by the topology's index; NULL: none */
	uint64_t device_bytes[NEAP_DEVICES_MAX];            /* under way through each device of ours */
	uint64_t device_moved[NEAP_DEVICES_MAX];            /* so far */
	struct neap_rdma_gather gathers[NEAP_RDMA_GATHERS];
	struct neap_rdma_rail *to_check; /* rails whose checks are to be posted when all completions at hand were looked at */
	uint64_t version; /* raised when a device of ours comes or goes */
	bool short_of_pieces; /* a peer found none left: all look again when one is given back */
	uint64_t lot;     /* decides between equal paths: chance at first, then another one each time */
	struct neap_rdma_initiator_stats stats;
	struct neap_ready ready;
	bool closing;
	void (*closed)(void *user);
	void *closed_user;
};

static inline const struct neap_engine_options *neap_rdma_options_of(const struct neap_rdma_peer *peer)
{
	return peer->initiator->ground.view->options;
}
static inline const struct neap_descriptor *neap_rdma_descriptor(const struct neap_rdma_peer *peer)
{
	return peer->segment->snapshot->descriptor;
}

/* peer.c */
extern const struct neap_machine_kind neap_rdma_peer_kind;
void neap_rdma_peer_begin(struct neap_rdma_peer *peer, struct neap_rdma_initiator *initiator, struct neap_segment *segment);
void neap_rdma_peer_wake(struct neap_rdma_peer *peer);
void neap_rdma_peer_leave(struct neap_rdma_peer *peer, enum neap_cause cause);
/* A rail brought nothing: what is said when no other does. */
void neap_rdma_peer_trouble(struct neap_rdma_peer *peer, enum neap_cause cause, const char *why);
/* The time for connecting runs from then on, if no other rail works, until a piece succeeds. */
void neap_rdma_peer_rail_failed(struct neap_rdma_peer *peer);

/* peer_descriptor.c: what the peer's descriptor and our memory say */
void neap_rdma_peer_look(struct neap_rdma_peer *peer);
bool neap_rdma_peer_is_as_seen(const struct neap_rdma_peer *peer);
void neap_rdma_peer_forget_buffers(struct neap_rdma_peer *peer);
/* The ends for an address: NULL when it is in none. */
const struct neap_rdma_hot *neap_rdma_peer_here(struct neap_rdma_peer *peer, uint64_t address);
const struct neap_rdma_hot *neap_rdma_peer_there(struct neap_rdma_peer *peer, uint64_t address);
bool neap_rdma_peer_covers(struct neap_rdma_peer *peer, uint64_t address, uint64_t length);
void neap_rdma_peer_look_at_unsure(struct neap_rdma_peer *peer);
void neap_rdma_peer_ask_for_ranges(struct neap_rdma_peer *peer);

/* feed.c: cutting, choosing paths, posting */
void neap_rdma_peer_feed(struct neap_rdma_peer *peer);

/* request.c: places and ends */
void neap_rdma_request_begin(struct neap_rdma_peer *peer, struct neap_slice *slice);
void neap_rdma_request_put(struct neap_rdma_peer *peer, struct neap_rdma_request *request, enum neap_rdma_place place);
/* No more of it is cut or repeated; it ends when its last piece has settled, and the user is told within drain_timeout_ms. */
void neap_rdma_request_stop(struct neap_rdma_peer *peer, struct neap_rdma_request *request, enum neap_status status, enum neap_cause cause,
                            int system_errno);
/* Ends it when there is nothing left of it. */
void neap_rdma_request_rest(struct neap_rdma_peer *peer, struct neap_rdma_request *request);
void neap_rdma_peer_drain_due(struct neap_timer *timer, void *user);

/* piece.c: what becomes of pieces */
struct neap_rdma_piece *neap_rdma_piece_take(struct neap_rdma_peer *peer, struct neap_rdma_request *request, uint64_t offset,
                                             uint32_t length);
void neap_rdma_piece_append(struct neap_rdma_piece_list *list, struct neap_rdma_piece *piece);
void neap_rdma_piece_unlink(struct neap_rdma_piece_list *list, struct neap_rdma_piece *piece);
void neap_rdma_piece_completed(struct neap_rdma_piece *piece, const struct neap_verbs_completion *completion);
/* The bytes of one of the rail's are there; `list` is where it stands. */
void neap_rdma_piece_succeeded(struct neap_rdma_rail *rail, struct neap_rdma_piece_list *list, struct neap_rdma_piece *piece);
/* The rail's endpoint is gone: what was under way on it is repeated, or ends. */
void neap_rdma_pieces_settle(struct neap_rdma_rail *rail, bool fenced);
void neap_rdma_piece_free(struct neap_rdma_peer *peer, struct neap_rdma_piece *piece);
/* The same; its request ends when that was the last of it. */
void neap_rdma_piece_drop(struct neap_rdma_peer *peer, struct neap_rdma_piece *piece);
/* What is said of requests that are not to blame for it: what was refused, or whose memory was wrong, was another. */
enum neap_cause neap_rdma_cause_for_others(enum neap_cause cause);

/* lent.c: grants with keys */
/* The peer's end for a token; NULL: none of its devices has a key, or the peer has fenced us since. */
const struct neap_rdma_hot *neap_rdma_peer_lent(struct neap_rdma_peer *peer, const struct neap_grant_token *token);
uint32_t neap_rdma_lent_key(const struct neap_rdma_rail *rail, const struct neap_grant_token *token);

/* check.c: successes that do not count yet */
enum neap_rdma_scratch_phase neap_rdma_scratch_of(const struct neap_rdma_initiator *initiator); /* asks for it */
bool neap_rdma_can_check(const struct neap_rdma_initiator *initiator, const struct neap_rdma_queue *queue);
/* Its success does not count yet. */
bool neap_rdma_piece_needs_check(const struct neap_rdma_piece *piece);
void neap_rdma_piece_to_check(struct neap_rdma_piece *piece, uint32_t qp_number);
void neap_rdma_check_passed(struct neap_rdma_piece *leader);
/* A queue pair of the rail's has room for one more: checks may have waited for that. */
void neap_rdma_checks_wanted(struct neap_rdma_rail *rail);
/* Posts what is due of the rails in initiator->to_check, or of one that has room again. */
void neap_rdma_checks_post(struct neap_rdma_initiator *initiator);
void neap_rdma_rail_check(struct neap_rdma_rail *rail);
/* The endpoint leaves: what had succeeded and was not checked is as if it had been flushed. */
void neap_rdma_checks_drop(struct neap_rdma_rail *rail);

/* rail.c */
extern const struct neap_machine_kind neap_rdma_rail_kind;
/* NULL: none yet, and none can be made now. */
struct neap_rdma_rail *neap_rdma_rail_of(const struct neap_rdma_peer *peer, struct neap_path path);
struct neap_rdma_rail *neap_rdma_rail_make(struct neap_rdma_peer *peer, struct neap_path path);
void neap_rdma_rail_want(struct neap_rdma_rail *rail);
static inline uint32_t neap_rdma_rail_holds(const struct neap_rdma_rail *rail) /* pieces */
{
	return rail->pieces.count + rail->unchecked.count + rail->covered.count;
}
bool neap_rdma_rail_is_trying(const struct neap_rdma_rail *rail); /* opening, waiting for room, probing, open or leaving */
bool neap_rdma_rail_is_opening(const struct neap_rdma_rail *rail); /* or leaves after that without having carried anything */
void neap_rdma_rail_resume(struct neap_rdma_rail *rail);
/* Nothing is under way on it: it goes, now or when its endpoint has. False: something is. */
bool neap_rdma_rail_end(struct neap_rdma_rail *rail);
/* The first failure of a piece on it decides why it is left. */
void neap_rdma_rail_broken(struct neap_rdma_rail *rail, enum neap_verbs_status status);

#endif
