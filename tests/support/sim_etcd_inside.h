/* The simulated etcd cluster from inside: shared by sim_etcd_server.c (members, and what they are asked), sim_etcd_watch.c (their streams of
 * changes) and sim_etcd_text.c (what they say), by nobody else. */
#ifndef SUPPORT_SIM_ETCD_INSIDE_H
#define SUPPORT_SIM_ETCD_INSIDE_H

#include "tests/support/sim_etcd_request.h"
#include "tests/support/sim_etcd_server.h"

/* sim_etcd_text.c */
struct sim_etcd_text {
	FILE *out;
	char *bytes;
	size_t length;
};
void sim_etcd_text_begin(struct sim_etcd_text *text);
void sim_etcd_text_end(struct sim_etcd_text *text);
void sim_etcd_write_header(FILE *out, const struct sim_etcd_member *member, uint64_t revision);
void sim_etcd_write_value(FILE *out, const struct sim_etcd_value *value, bool key_only);
/* Whole answers. */
struct sim_message *sim_etcd_answer(struct sim_etcd_text *text, long status); /* ends the text */
struct sim_message *sim_etcd_refuse(long status, int code, const char *said);
struct sim_message *sim_etcd_say(const struct sim_etcd_member *member, const char *rest); /* the header and the rest */

/* sim_etcd_server.c */
const char *sim_etcd_refused_token(struct sim_etcd_server *etcd, const char *token); /* what is wrong with it; NULL: nothing */

/* sim_etcd_watch.c */
void sim_etcd_watch(struct sim_etcd_member *member, const struct sim_etcd_request *request, const struct sim_http_asked *asked);
void sim_etcd_watch_gone(struct sim_http_server *http, struct sim_line *line);
void sim_etcd_watch_advanced(struct sim_etcd_state *state);
void sim_etcd_watch_bid_farewell(struct sim_etcd_member *member);

#endif
