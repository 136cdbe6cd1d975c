/* What is said to etcd and what it answers: JSON whose keys and values are base64. Pure. */
#ifndef NEAP_METADATA_ETCD_TEXT_H
#define NEAP_METADATA_ETCD_TEXT_H

#include "metadata/http.h"
#include "metadata/json.h"

/* --- requests: the bodies; neap_json_writer_take says whether there was memory ------------------------------------------- */

void etcd_put_range(struct neap_json_writer *writer, const char *key, bool keys_only);
void etcd_put_value(struct neap_json_writer *writer, const char *key, const char *value, size_t length, uint64_t lease);
/* Only where nothing is; what is there otherwise comes with the answer. */
void etcd_put_create(struct neap_json_writer *writer, const char *key, const char *value, size_t length, uint64_t lease);
void etcd_put_number(struct neap_json_writer *writer, const char *name, uint64_t value); /* {"TTL":"5"}, {"ID":"7"} */
/* False: one of them is not UTF-8. */
bool etcd_put_user(struct neap_json_writer *writer, const char *username, const char *password);
/* All keys that begin with `prefix`; from: the first revision wanted, 0: from now on. */
void etcd_put_watch(struct neap_json_writer *writer, const char *prefix, uint64_t from);

/* --- answers ------------------------------------------------------------------------------------------------------------- */

/* One answer is some of these, by what was asked. What is absent is 0, as the gateway leaves it out. */
struct etcd_answer {
	bool found;     /* a key, the first of them */
	bool succeeded; /* a transaction's comparison */
	uint64_t lease; /* of the key */
	uint64_t id, ttl; /* of a lease; seconds */
	char *value;    /* heap; NULL: none */
	size_t length;
	char token[NEAP_HTTP_TOKEN_MAX];
};
/* NEAP_EJSON, NEAP_EPROTO, NEAP_ENOMEM, NEAP_ELIMIT, with `why`. To be dropped in any case. */
int etcd_answer_read(const char *text, size_t length, struct etcd_answer *answer, char *why, size_t why_size);
void etcd_answer_drop(struct etcd_answer *answer);

/* One line of a stream of changes. */
struct etcd_notice {
	bool created, canceled, compacted, fragment;
	bool failed;        /* the stream's last line: an error */
	uint64_t revision;  /* the header's; its cluster's name, and the term of who leads it */
	uint64_t cluster, term;
	uint64_t last;      /* of the events'; 0: none */
	uint32_t events;
	char reason[160];
};
/* `changed` is called for each key; false from it ends the reading (NEAP_ECANCELED). NEAP_EJSON, NEAP_EPROTO. */
typedef bool etcd_changed_func(void *user, const char *key, size_t length);
int etcd_notice_read(const char *line, size_t length, struct etcd_notice *notice, etcd_changed_func *changed, void *user);

/* --- refusals ------------------------------------------------------------------------------------------------------------ */

enum etcd_remedy {
	ETCD_FAIL,    /* none: the caller is told */
	ETCD_AGAIN,   /* another member, or later */
	ETCD_TOKEN,   /* with a new token */
	ETCD_LEASE,   /* the lease is no more */
	ETCD_NO_AUTH, /* it wants no user */
};
struct etcd_refusal {
	enum etcd_remedy remedy;
	int error;
	const char *advice;
	char said[120]; /* its words, printable */
};
/* What an answer that is not 200, or a stream that was canceled (status 0, its reason as text), means. */
void etcd_refusal_read(long status, const char *text, size_t length, struct etcd_refusal *refusal);

#endif
