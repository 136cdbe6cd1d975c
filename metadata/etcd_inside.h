/* The etcd back-end from inside: shared by etcd.c (the back-end), etcd_call.c, etcd_token.c and etcd_watch.c, by nobody else. */
#ifndef NEAP_METADATA_ETCD_INSIDE_H
#define NEAP_METADATA_ETCD_INSIDE_H

#include "metadata/etcd.h"
#include "metadata/etcd_text.h"
#include "reactor/pool.h"

#define ETCD_WHY_MAX 448u
#define ETCD_URL_MAX 320u      /* of an endpoint */
#define ETCD_PATH_MAX 32u
#define ETCD_LEASED_MAX 16u    /* keys under our lease that are told apart */
#define ETCD_ANSWER_SLACK ((size_t)64 << 10)

/* One request at a time, of a machine. Its body lives as long as it. */
struct etcd_ask {
	uint64_t call; /* 0: none is under way */
	uint32_t endpoint;
	char *body;    /* heap */
	bool secret;   /* it holds a password */
	char url[ETCD_URL_MAX + ETCD_PATH_MAX];
};

struct etcd_failure {
	int error;
	char why[ETCD_WHY_MAX];
};

struct etcd_call {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_etcd *etcd;
	neap_backend_done_func *done;
	void *user;
	uint64_t began_ns, deadline_ns, lease_ns;
	struct etcd_ask ask;
	char *value; /* of a set; from neap_allocate */
	size_t value_length;
	uint64_t lease;            /* the key is to be put under, or has been found under */
	uint32_t token_generation; /* what this attempt showed */
	uint32_t attempts;         /* that came to nothing */
	uint8_t kind;              /* enum etcd_kind */
	bool create, leased, new_token, new_lease;
	struct etcd_answer answer;
	struct etcd_failure failure; /* error 0: none so far */
	char key[NEAP_BACKEND_KEY_MAX];
};
enum etcd_kind { ETCD_GET, ETCD_SET, ETCD_REMOVE, ETCD_TOUCH };

struct etcd_token {
	struct neap_machine machine;
	struct neap_etcd *etcd;
	struct etcd_ask ask;
	uint32_t generation;         /* of what is held */
	bool settled;                /* those that wait for it are to be told */
	bool unneeded;               /* the server has no users */
	bool again;                  /* its last failure: another member may help */
	struct etcd_failure failure;
	char text[NEAP_HTTP_TOKEN_MAX]; /* "": none */
};

struct etcd_watch {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_etcd *etcd;
	struct etcd_ask ask;
	bool needed, ended;
	bool tracks;      /* what is watched now will be told of */
	bool expired;     /* once already on this stream */
	bool resumes;     /* it was to begin behind what was seen */
	uint64_t seen;    /* the last revision we were told of; 0: from now on */
	uint64_t cluster, term; /* in which that was */
	uint64_t began_ns;
	uint32_t failures; /* in a row */
	uint32_t token_generation;
	char *line;       /* from neap_allocate: what has come of the next one */
	size_t length, capacity;
	char why[ETCD_WHY_MAX]; /* said already in the log; "": nothing is wrong */
};

struct etcd_endpoint {
	struct neap_http_server server;
	char url[ETCD_URL_MAX];
};

struct neap_etcd {
	struct neap_backend base;
	struct neap_reactor *reactor;
	struct neap_http_caller *caller;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_ready work;
	struct neap_reactor_class *call_class;
	struct neap_pool calls;
	struct etcd_token token;
	struct etcd_watch watch;
	struct neap_watches watches;
	struct etcd_endpoint endpoints[NEAP_ETCD_ENDPOINTS_MAX];
	uint32_t endpoint_count, endpoint; /* the one that is asked now */
	size_t value_bytes;                /* held for calls */
	bool closing, tell_all;
	struct {
		uint64_t id, seconds; /* id 0: we have none */
		uint64_t keys[ETCD_LEASED_MAX]; /* hashes of those under it; 0: free */
		bool more;            /* than that */
	} lease;
	char *username, *password; /* from neap_allocate; username NULL: no user */
	size_t username_bytes, password_bytes;
	char prefix[NEAP_BACKEND_KEY_MAX];
};

/* etcd.c */
struct etcd_send {
	const char *path; /* "/v3/kv/range" */
	struct neap_json_writer *body; /* is taken in any case */
	uint64_t timeout_ns;
	bool shows_token, secret;
	bool once; /* all the time for one member */
	neap_http_done_func *done;
	neap_http_received_func *received;
	void *user;
};
int etcd_send(struct neap_etcd *etcd, struct etcd_ask *ask, const struct etcd_send *send);
void etcd_ask_end(struct neap_etcd *etcd, struct etcd_ask *ask); /* answered or canceled */
void etcd_endpoint_failed(struct neap_etcd *etcd, uint32_t endpoint); /* the next one is asked from now on */
/* "http://host:port: said: advice". */
void etcd_note(struct neap_etcd *etcd, uint32_t endpoint, struct etcd_failure *failure, int error, const char *what);
/* Notes what an answer means; ETCD_FAIL for an answer that is good too. */
enum etcd_remedy etcd_judge(struct neap_etcd *etcd, uint32_t endpoint, int error, long status, const char *body, size_t length,
                            const char *why, struct etcd_failure *failure);

/* etcd_call.c */
int etcd_calls_init(struct neap_etcd *etcd, uint32_t calls_max);
struct etcd_call *etcd_call_take(struct neap_etcd *etcd, enum etcd_kind kind, uint64_t timeout_ns, neap_backend_done_func *done,
                                 void *user);
void etcd_call_start(struct etcd_call *call);
void etcd_call_end(struct etcd_call *call); /* gives it back; nothing is called */
void etcd_calls_token_settled(struct neap_etcd *etcd); /* those that wait for it */

/* etcd_token.c */
int etcd_token_init(struct etcd_token *token, struct neap_etcd *etcd);
bool etcd_token_is_needed(const struct etcd_token *token); /* there is a user, and no token */
bool etcd_token_is_settled(const struct etcd_token *token); /* it is not being asked for */
void etcd_token_need(struct etcd_token *token);
void etcd_token_expired(struct etcd_token *token, uint32_t generation);
void etcd_token_end(struct etcd_token *token);

/* etcd_watch.c */
int etcd_watch_init(struct etcd_watch *watch, struct neap_etcd *etcd);
void etcd_watch_need(struct etcd_watch *watch);
void etcd_watch_token_settled(struct etcd_watch *watch);
void etcd_watch_end(struct etcd_watch *watch);

#endif
