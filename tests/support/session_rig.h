/* The serving half of the TCP transport alone: a reactor, a registry with a few regions between guard bytes, a server, and no
 * engine.
 *
 * Two kinds: SOCKETS listens on loopback, VIRTUAL serves memory streams on a clock the test moves. Failures end the process with
 * a message, so that fuzz targets, which have no Check, can use it too. */
#ifndef SUPPORT_SESSION_RIG_H
#define SUPPORT_SESSION_RIG_H

#include "tests/support/memory_stream.h"
#include "transports/tcp/server.h"

enum session_rig_kind { SESSION_RIG_SOCKETS, SESSION_RIG_VIRTUAL };

#define SESSION_RIG_REGION (4u * 1024u * 1024u)
#define SESSION_RIG_GUARD 0xA5

/* [guard page][OPEN a][OPEN b, touching a][guard page][CLOSED][guard page][GRANT_ONLY][guard page] */
enum session_rig_region { RIG_OPEN_A, RIG_OPEN_B, RIG_CLOSED, RIG_GRANTED, RIG_REGIONS };

struct session_rig {
	struct neap_reactor *reactor;
	struct neap_registry *registry;
	struct neap_engine_options options; /* change before session_rig_start */
	struct neap_engine_stats stats;
	struct neap_engine_core_view view;
	struct neap_tcp_server *server;
	unsigned char *memory;              /* the whole mapping */
	size_t memory_bytes;
	size_t region_bytes;
	unsigned char *region[RIG_REGIONS];
	bool granted_is_guard;              /* nothing may be written there either */
	neap_region_id ids[RIG_REGIONS];
	enum session_rig_kind kind;
	uint64_t now_ns;
	uint32_t bytes_budget;              /* of a turn; 0: the default */
	uint64_t log_lines;
	bool stopped;
};

/* Everything but the server. Deadlines: first header 200 ms, progress 300 ms, drain 100 ms; ten times that on real time, where
 * the machine may be busy with something else. */
void session_rig_open(struct session_rig *rig, enum session_rig_kind kind);
/* The same with smaller regions: multiples of 4096. They lie at the same addresses in every process where the system allows it. */
void session_rig_open_small(struct session_rig *rig, enum session_rig_kind kind, size_t region_bytes);
void session_rig_start(struct session_rig *rig);
/* Closes the server and waits until that is done. */
void session_rig_stop(struct session_rig *rig);
/* Stops the server if there is one, ends the reactor, checks that every gauge is back at zero and no guard byte has changed. */
void session_rig_close(struct session_rig *rig);
/* The same without ending anything, for another round: closes all sessions, a new server. */
void session_rig_again(struct session_rig *rig);

/* Turns until nothing is ready. */
void session_rig_settle(struct session_rig *rig);
/* Time moves by `ms` and due timers run: on the rig's own clock, or by waiting. */
void session_rig_pass(struct session_rig *rig, unsigned ms);

/* Aborts when a byte outside of the OPEN and GRANT_ONLY regions differs from the pattern. */
void session_rig_check_guards(const struct session_rig *rig);
void session_rig_fill(struct session_rig *rig); /* all regions: byte i of each is (i * 7 + region) */

#endif
