/* An etcd cluster in simulation, as an HTTP server for sim_http_server.h's driver: the JSON gateway of one to three members over one state
 * (sim_etcd_state.h). What is asked is answered from the newest state, as linearizable reads are; what changes is told by each member when it
 * has heard of it, which may be later. Streams of changes begin from now or at a revision, come in batches that may be cut into fragments,
 * and end with their member, or in the middle of a line. Users have tokens that end, or that are not taken any more. */
#ifndef SUPPORT_SIM_ETCD_SERVER_H
#define SUPPORT_SIM_ETCD_SERVER_H

#include "tests/support/sim_etcd_state.h"
#include "tests/support/sim_http_server.h"

#define SIM_ETCD_MEMBERS_MAX 3u
#define SIM_ETCD_TOKENS_MAX 4096u

struct sim_etcd_stream;
struct sim_etcd_server;

struct sim_etcd_life {
	uint64_t life, term;
};

struct sim_etcd_member {
	struct sim_http_server http; /* first */
	struct sim_etcd_server *etcd;
	struct sim_etcd_stream *streams;
	uint64_t lag_ns;  /* so much later it hears of a change */
	uint64_t applied; /* the revision it has heard of */
	char at[32];
};

struct sim_etcd_server {
	struct sim_etcd_state state;
	struct sim_etcd_member members[SIM_ETCD_MEMBERS_MAX];
	uint32_t member_count;
	/* set by the test */
	const char *password;    /* NULL: it has no users */
	uint64_t token_ns;       /* how long a token is taken, ... */
	bool token_renews;       /* since it was shown last (etcd's simple tokens); else since it was given (JWT) */
	uint64_t leaderless_until_ns;
	const char *refusal;     /* what operations are answered with; NULL: nothing but what they are */
	long refusal_status;
	int refusal_code;
	bool deaf;               /* changes are not told: this and the next two are what a check must find */
	uint32_t drops;          /* when it grows, each stream drops the next change */
	bool overwrites;         /* what is to be created replaces what is there */
	bool tears;              /* the next change is told in half, and the stream ends */

	uint64_t tokens, taken_from, fresh_from; /* how many were given; from which on they are taken, and know the users as they are now */
	uint64_t shown_ns[SIM_ETCD_TOKENS_MAX]; /* since when each is taken */
	/* how often */
	uint64_t told, overwritten, resumed, compacted, torn, refused_tokens, expired_tokens, resumed_before; /* the last: at a revision that is not there yet */
	uint64_t overtaken; /* a stream was taken up in another life, at a revision that has come there too: its owner cannot know */
	struct sim_etcd_life lives[SIM_NODES_MAX]; /* in which each node's last stream began */
};

/* Lags and the life of tokens are drawn from the seed; the members too when their number is 0. */
void sim_etcd_server_init(struct sim_etcd_server *etcd, struct sim *sim, uint32_t members);
void sim_etcd_server_release(struct sim_etcd_server *etcd);

/* As another program would; value NULL: removes it. */
void sim_etcd_server_put(struct sim_etcd_server *etcd, const char *key, const char *value);

/* `softly`: its streams are told why they end. */
void sim_etcd_member_stop(struct sim_etcd_member *member, bool softly);
void sim_etcd_member_start(struct sim_etcd_member *member);
void sim_etcd_server_stop(struct sim_etcd_server *etcd);
/* All that are down. `empty`: what they had is lost, and their revisions begin anew. */
void sim_etcd_server_start(struct sim_etcd_server *etcd, bool empty);
/* No operation is done, no lease ends; streams stay. */
void sim_etcd_server_lose_leader(struct sim_etcd_server *etcd, uint64_t ns);
void sim_etcd_server_forget_tokens(struct sim_etcd_server *etcd); /* none is taken any more */
void sim_etcd_server_change_users(struct sim_etcd_server *etcd);  /* each is old */

#endif
