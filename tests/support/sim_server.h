/* What lies between simulated processes and a simulated server: connections ("lines") that carry messages both ways, in order, each after a
 * delay drawn from the seed; that are cut, or fall silent; and a server that is down, or stands still for a while. What the messages say is
 * the business of those at both ends: sim_redis_server.h, sim_http_server.h, sim_etcd_server.h.
 *
 * A message is of one piece: drivers tell of whole replies. What a process has sent is on its way even when it dies.
 *
 * It needs the simulator: programs take it from tests/sim/sources.am, not from the support library. */
#ifndef SUPPORT_SIM_SERVER_H
#define SUPPORT_SIM_SERVER_H

#include "tests/sim/sim.h"

#define SIM_WORDS_MAX 8
/* After so long without an answer the client's kernel takes a silent line for dead: hiredis asks for keep-alives of that kind. */
#define SIM_KEEPALIVE_NS UINT64_C(30000000000)

struct sim_message {
	struct sim_message *next;
	int tag; /* of those at both ends; below 0: of the line */
	int64_t number;
	int count;
	size_t lengths[SIM_WORDS_MAX];
	const char *words[SIM_WORDS_MAX]; /* each with a NUL behind it */
};
struct sim_message *sim_message_create(int tag, int64_t number, int count, const char *const *words, const size_t *lengths);
struct sim_message *sim_message_text(int tag, int64_t number, const char *text); /* of one word, or of none */

struct sim_line;
struct sim_server;

/* What the client's end is told: from a turn of its node. The callee may close the line. */
struct sim_line_events {
	void (*opened)(void *user);
	void (*arrived)(void *user, const struct sim_message *message);
	void (*ended)(void *user, const char *why); /* the last; the line is closed then */
};

/* What the server does, at the moment when something arrives there. */
struct sim_service {
	void (*accepted)(struct sim_server *server, struct sim_line *line);
	void (*received)(struct sim_server *server, struct sim_line *line, const struct sim_message *message);
	void (*gone)(struct sim_server *server, struct sim_line *line); /* the server has nothing to do with it any more */
};

struct sim_server {
	struct sim *sim;
	const struct sim_service *service;
	struct sim_line *lines; /* the oldest first */
	uint64_t delay_max_ns;  /* of a message, one way */
	uint32_t lag_per_mille; /* of messages that take much longer */
	uint64_t lag_max_ns;
	bool down;              /* refuses connections */
	bool dark;              /* answers nothing, not even that */
	uint64_t still_until_ns;
	uint64_t lost, repeated; /* messages that fell into silence; requests that were sent twice */
};

/* Delays are drawn from the seed. */
void sim_server_init(struct sim_server *server, struct sim *sim, const struct sim_service *service);
/* Its clients have closed their lines. */
void sim_server_release(struct sim_server *server);

/* --- the client's end --------------------------------------------------------------------------------------------------------- */

struct sim_line *sim_line_open(struct sim_server *server, struct sim_node *node, const struct sim_line_events *events, void *user);
/* Takes the message. */
void sim_line_say(struct sim_line *line, struct sim_message *message);
/* At once; nothing is told any more. What was said is still on its way. */
void sim_line_close(struct sim_line *line);

/* --- the server's end --------------------------------------------------------------------------------------------------------- */

void sim_line_answer(struct sim_line *line, struct sim_message *message);
void sim_line_hang_up(struct sim_line *line); /* `gone` is called from inside */
void sim_line_keep(struct sim_line *line, void *of_server);
void *sim_line_kept(const struct sim_line *line); /* NULL: not accepted */
const struct sim_node *sim_line_node(const struct sim_line *line); /* who has opened it */

/* --- faults ------------------------------------------------------------------------------------------------------------------- */

/* It ends: each connection is reset, what is under way to it is refused. It comes back with `down` false. */
void sim_server_stop(struct sim_server *server);
void sim_server_stand_still(struct sim_server *server, uint64_t ns);
/* Those of a process that has died. `host_dies`: nobody tells the server. */
void sim_server_node_died(struct sim_server *server, const struct sim_node *node, bool host_dies);
/* One line, chosen by the fault stream. False: there is none. */
bool sim_server_cut_one(struct sim_server *server);
/* Nothing passes any more in one of both directions, or in both, and nobody is told. What is new passes. */
bool sim_server_silence_one(struct sim_server *server);
/* Open client's ends of this node. */
uint32_t sim_server_lines_of(const struct sim_server *server, const struct sim_node *node);

#endif
