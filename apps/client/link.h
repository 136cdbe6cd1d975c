/* The command line's connection to a neap-client on this machine: calls one waits for. */
#ifndef APPS_CLIENT_LINK_H
#define APPS_CLIENT_LINK_H

#include "apps/client/methods.h"
#include "apps/common/flags.h"
#include "store/rpc/client.h"

/* What commands exit with. */
enum client_exit {
	CLIENT_OK = 0,
	CLIENT_FAILED = 1,
	CLIENT_USAGE = 2,
	CLIENT_UNREACHED = 3, /* no neap-client answers */
	CLIENT_NO_KEY = 4,
};

struct client_link {
	const struct app_program *program;
	struct neap_reactor *reactor;
	struct neap_rpc_client *client;
	struct neap_rpc_channel *channel;
	uint16_t port;
	uint64_t deadline_ns; /* of all calls */
	bool reached;         /* it has answered before */
	bool armed;           /* nothing was asked since the last turn, which found nothing more to do */
};

struct client_call {
	struct client_link *link;
	bool done;
	enum neap_rpc_result result;
	int status;
	char why[640];
	/* May be NULL. The reply is valid during the call */
	void (*take)(void *user, const void *reply);
	void *user;
};

/* True after SIGINT or SIGTERM, which end waits: so that half a file can be taken away. */
bool client_interrupted(void);
void client_watch_signals(void);

/* An exit code after a message, or -1. `seconds`: for all that is asked. */
int client_link_open(struct client_link *link, const struct app_program *program, uint64_t port, double seconds);
void client_link_close(struct client_link *link);

/* Begins a call; `take` and `user` are set by the caller, the rest is cleared. */
void client_link_begin(struct client_link *link, struct client_call *call, const struct neap_rpc_method *method, const void *request);
/* Waits for its end: -1, or an exit code after a message that begins with `what`. */
int client_link_wait(struct client_link *link, struct client_call *call, const char *what);
int client_link_ask(struct client_link *link, const struct neap_rpc_method *method, const void *request,
                    void (*take)(void *user, const void *reply), void *user, const char *what);

#endif
