/* An HTTP metadata server in simulation, as a driver for metadata/http.h: GET, PUT and DELETE of /metadata?key=..., where an address
 * (rpc_meta) is only created and never replaced. What lies in between is that of sim_server.h: each request has a connection of its own, for
 * those that are kept end and go wrong one by one too; and as curl does it, a request on a connection that was kept and is gone is sent
 * once more, although the server may have done what it says. */
#ifndef SUPPORT_SIM_HTTP_SERVER_H
#define SUPPORT_SIM_HTTP_SERVER_H

#include "metadata/http.h"
#include "tests/support/sim_keys.h"
#include "tests/support/sim_server.h"

/* A request as the server sees it, and what it says. */
struct sim_http_asked {
	const char *method, *url, *body;
	const char *token; /* NULL: none */
	size_t length;
	struct sim_line *line;
};
struct sim_http_server;
/* The part that answers; what plays network is the same for whatever speaks HTTP. `answer`: a message of the status and at most one word.
 * NULL: it answers in parts, later, on the line that was asked over. */
typedef struct sim_message *sim_http_answer_func(struct sim_http_server *http, const struct sim_http_asked *asked);
struct sim_message *sim_http_metadata(struct sim_http_server *http, const struct sim_http_asked *asked);

struct sim_http_server {
	struct sim_server server; /* first */
	struct sim_keys keys;
	sim_http_answer_func *answer;
	void (*gone)(struct sim_http_server *http, struct sim_line *line); /* who asked over it; may be NULL */
	struct sim_http_server *next; /* another one, at another address; NULL: none */
	const char *at;               /* how its urls begin; NULL: in any way */
	/* set by the test */
	bool same_is_fine;    /* an address that is stored once more as it is answers 200, not 400: servers differ */
	int64_t refusal;      /* the status that everything is answered with; 0: none */
	uint32_t kept_per_mille; /* requests on connections that were kept */

	uint64_t requests;
	uint32_t exchanges; /* of drivers, not ended yet */
};

void sim_http_server_init(struct sim_http_server *http, struct sim *sim, sim_http_answer_func *answer);
void sim_http_server_release(struct sim_http_server *http);
/* A part of an answer that goes on. */
struct sim_message *sim_http_part(long status, const char *bytes, size_t length);

/* A node's way to it, and to those that are next. */
struct sim_http_driver {
	struct neap_http_driver driver; /* first */
	struct sim_http_server *http;
	struct sim_node *node;
};
void sim_http_driver_init(struct sim_http_driver *driver, struct sim_http_server *http, struct sim_node *node);

#endif
