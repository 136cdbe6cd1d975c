/* The commands: what a person or script asks of a neap-client that runs. */
#ifndef APPS_CLIENT_COMMAND_H
#define APPS_CLIENT_COMMAND_H

#include "apps/client/link.h"

/* True when argv[1] is one; *result_p is the exit code. */
bool client_command(int argc, char **argv, int *result_p);

struct client_asked { /* words and flags of a command */
	const char *words[1001];
	struct app_words list;
	uint64_t port, limit, spool_max;
	double deadline;
	const char *direction, *verify, *matching;
	bool all, quiet;
};

int client_put(struct client_link *link, const struct client_asked *asked);
int client_get(struct client_link *link, const struct client_asked *asked);
int client_remove(struct client_link *link, const struct client_asked *asked);
int client_exists(struct client_link *link, const struct client_asked *asked);
int client_list(struct client_link *link, const struct client_asked *asked);
int client_stat(struct client_link *link, const struct client_asked *asked);
int client_health(struct client_link *link, const struct client_asked *asked);

/* --- shared by them */

/* A key as people can read it: other bytes as \xNN. Returns `text`. */
const char *client_key_text(const char *bytes, size_t length, char *text, size_t size);
uint64_t client_direction_of(const struct client_asked *asked); /* as messages say it */
int client_flush(const struct client_link *link); /* standard output: -1, or an exit code after a message */

/* How far a large value is, on a terminal. */
struct client_progress {
	const char *what;
	uint64_t size, began_ns, shown_ns;
	bool on;
};
void client_progress_begin(struct client_progress *progress, const char *what, uint64_t size, bool quiet);
void client_progress_show(struct client_progress *progress, uint64_t done);
void client_progress_end(struct client_progress *progress);

#endif
