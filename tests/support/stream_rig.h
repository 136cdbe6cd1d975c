/* A reactor with one acceptor and up to STREAM_RIG_MAX accepted streams and connects, for tests of streams. All memory is static:
 * a machine's memory outlives its dispatcher. */
#ifndef SUPPORT_STREAM_RIG_H
#define SUPPORT_STREAM_RIG_H

#include "reactor/connect.h"
#include "reactor/listen.h"
#include "tests/support/drive.h"
#include "tests/support/fdcheck.h"

#define STREAM_RIG_MAX 512

struct rig_outcome { /* of a connect */
	bool done;
	int error, system_errno, calls;
	struct neap_stream *stream;
	char detail[96];
};

struct rig {
	struct neap_reactor *reactor;
	struct neap_acceptor acceptor;
	struct neap_stream *accepted[STREAM_RIG_MAX];
	uint32_t accepted_count;
	bool any_accepted;
	struct neap_connect connects[STREAM_RIG_MAX];
	struct rig_outcome outcomes[STREAM_RIG_MAX];
	struct neap_socket_options options; /* of both sides */
	struct fdcheck fds;
	int fds_before;
	char last_log[512];
	int logs;
};

/* The one rig of the process, with a fresh reactor and no listener. `options` may be NULL; its log is the rig's. */
struct rig *rig_open(const struct neap_reactor_options *options);
/* Closes what is open, ends the reactor, checks that no descriptor was left or was of a blocking kind. */
void rig_close(struct rig *rig);

/* Listens; the streams it accepts land in rig->accepted. */
uint16_t rig_listen(struct rig *rig, const char *numeric_host, uint16_t port);

/* Connect number `i` begins; its end is written to outcomes[i]. */
int rig_connect(struct rig *rig, int i, const char *host, uint16_t port, unsigned timeout_ms);

/* A connected pair: *ours_p from connect number 0, *theirs_p accepted. */
void rig_pair(struct rig *rig, struct neap_stream **ours_p, struct neap_stream **theirs_p);

/* The descriptor behind a stream, found by its addresses; -1 when there is none. */
int rig_descriptor(struct neap_stream *stream);

#endif
