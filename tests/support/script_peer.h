/* A little peer that does what a test tells it: a handshake port that answers with a descriptor, a data port whose connections follow a
 * script. Plain non-blocking sockets on loopback, pumped by the test beside its reactor; shares nothing with the library but the layout
 * of the bytes. Requests land in (and come from) the test's own memory, whose addresses the descriptor offers. */
#ifndef SUPPORT_SCRIPT_PEER_H
#define SUPPORT_SCRIPT_PEER_H

#include "transports/tcp/wire.h"
#include <stdbool.h>
#include <stddef.h>

#define SCRIPT_CONNECTIONS 64
#define SCRIPT_HISTORY 4096

enum script_speech { SCRIPT_V1, SCRIPT_V2, SCRIPT_NEAP };

/* What happens to a request whose bytes have all come. */
enum script_act {
	SCRIPT_ANSWER,
	SCRIPT_ANSWER_AND_CLOSE,
	SCRIPT_ANSWER_AND_RESET,
	SCRIPT_CLOSE,
	SCRIPT_RESET,
	SCRIPT_REFUSE,         /* plain: status 1 and close; v1: close; Neap: the word of `word` */
	SCRIPT_REFUSE_OPEN,    /* plain: status 1, and the connection stays open */
	SCRIPT_BAD_MAGIC,      /* a status of garbage; stays open */
	SCRIPT_BAD_AND_CLOSE,
	SCRIPT_BAD_TRAILER,    /* READ at the Neap level with checksums: right data, wrong sum */
	SCRIPT_HOLD,           /* answered by script_release */
	SCRIPT_NEVER,          /* not answered at all */
	SCRIPT_HALF,           /* READ: half of the payload, then nothing more on this connection */
};

enum script_hello {
	SCRIPT_HELLO_OK,
	SCRIPT_HELLO_OTHER,
	SCRIPT_HELLO_LEVEL,
	SCRIPT_HELLO_BUSY,
	SCRIPT_HELLO_PLAIN,    /* as a plain server of today answers it */
	SCRIPT_HELLO_CLOSE,    /* as one of yesterday does */
	SCRIPT_HELLO_SILENT,
	SCRIPT_HELLO_GARBAGE,
	SCRIPT_HELLO_WRONG_ID, /* OK, with another instance than its own descriptor has */
};

struct script_request {
	uint64_t address, length;
	uint8_t opcode;
	bool acknowledged;
	uint16_t grant;
	uint32_t connection; /* serial number of the connection it came on */
	uint32_t nth;        /* on its connection, from 0 */
};

struct script_connection {
	int fd; /* -1: free */
	uint32_t serial, requests;
	unsigned char *in, *out;
	size_t in_have, in_size, in_used, out_have, out_sent, out_size;
	bool plain, greeted, stuck, close_when_sent, reset_when_sent, ended;
	uint64_t total_in;
	/* the open Neap frame */
	uint32_t frame_count, frame_at;
	struct neap_entry frame[NEAP_FRAME_ENTRIES_MAX];
};

struct script_held {
	struct script_request request;
	struct script_connection *connection;
};

struct script_peer {
	/* set by the test */
	enum script_speech speech;
	unsigned char *memory;
	size_t memory_bytes;
	uint8_t instance[16];
	enum script_hello hello;
	uint32_t hellos_odd;          /* so many hellos are answered as `hello` says, those after it well; 0: all */
	bool fences;                  /* confirms the lanes named in hellos */
	bool checksum;
	uint32_t word;                /* of SCRIPT_REFUSE at the Neap level */
	enum script_act act;          /* for all requests, unless `decide` is there */
	enum script_act (*decide)(struct script_peer *peer, const struct script_request *request);
	void *user;
	bool deaf;                    /* accepts, and reads nothing */
	bool unaccepting;             /* connections stay in the backlog */
	bool handshake_silent, handshake_garbage;
	uint64_t read_limit;          /* a connection is read no further than this; 0: no limit */
	size_t piece;                 /* bytes sent per pump; 0: all */
	size_t split_at;              /* the output of a connection stops here once, until script_go_on; SIZE_MAX: not */
	const char *neap_ports;       /* "ports" of the neap key instead of the one there is */
	uint16_t advertised_port;     /* instead of the port there is */
	int early;                    /* 1: WRITEs are refused, 2: accepted, as soon as their header is there */

	/* kept by the peer */
	int handshake_fd, data_fd;
	uint16_t handshake_port, data_port;
	char name[64];
	uint32_t fetches, accepted, hellos;
	uint64_t last_lane, last_fence;
	uint32_t last_core;
	uint8_t last_client[16];
	struct script_connection connections[SCRIPT_CONNECTIONS];
	struct script_connection handshakes[SCRIPT_CONNECTIONS];
	struct script_request history[SCRIPT_HISTORY];
	uint32_t requests;            /* whole ones that came, oldest first in history */
	uint32_t answered;
	struct script_held held[SCRIPT_HISTORY];
	uint32_t held_count;
	bool stopped_once;
};

/* `memory` is what it offers. Listens at once. */
void script_open(struct script_peer *peer, enum script_speech speech, void *memory, size_t memory_bytes);
void script_close(struct script_peer *peer);
/* Everything that can be done now without waiting. */
void script_pump(struct script_peer *peer);
/* The held requests are answered, in order, as `decide` says if it is there (it may not hold them again). */
void script_release(struct script_peer *peer);
void script_go_on(struct script_peer *peer); /* after split_at */
/* The data port is closed and another one opened: as after a restart. Connections are reset, or ended in order. */
void script_move(struct script_peer *peer, bool reset);
void script_take_port(struct script_peer *peer, uint16_t port); /* listens there for data from now on */
void script_drop_all(struct script_peer *peer, bool reset);
/* Nobody listens any more; false: they listen again at the same ports. */
void script_refuse_connections(struct script_peer *peer, bool refuse);
/* Unasked bytes on every data connection. */
void script_babble(struct script_peer *peer);
uint32_t script_open_connections(const struct script_peer *peer);

#endif
