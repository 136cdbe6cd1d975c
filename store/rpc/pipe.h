/* One connection's bytes: frames out of a queue, bytes in cut into frames. Both ends of the RPC stand on it.
 *
 * Out: blocks are written in order, many with one system call, at the end of the turn in which they were queued. In: what a read brought
 * is looked at where it lies, in a buffer that all pipes of a room share; only a frame that is not whole yet is kept, in memory that
 * grows with what has arrived and never with what was announced. A frame that was begun, in either direction, has a deadline.
 *
 * Owner thread only. Callbacks come from turns, never from inside a call and never from the dispatcher, so that a neap_step made in one
 * takes effect before it returns. Any callback may close the pipe. */
#ifndef NEAP_STORE_RPC_PIPE_H
#define NEAP_STORE_RPC_PIPE_H

#include "reactor/net.h"
#include "store/rpc/block.h"

#define NEAP_RPC_SCRATCH_BYTES 65536u
#define NEAP_RPC_WHY_MAX 320u

/* What the pipes of one owner share. */
struct neap_rpc_room {
	struct neap_reactor *reactor;
	struct neap_rpc_blocks blocks;
	uint32_t body_max;            /* bytes of an incoming body */
	uint64_t frame_timeout_ns;    /* from a frame's first byte to its last, incoming */
	uint64_t progress_timeout_ns; /* for the peer to take some of what waits for it */
	char why[NEAP_RPC_WHY_MAX];
	uint8_t scratch[NEAP_RPC_SCRATCH_BYTES];
};

struct neap_rpc_pipe {
	struct neap_rpc_room *room;
	struct neap_stream *stream; /* NULL: closed */
	struct neap_rpc_block *first, *last; /* to be written; of the first, `written` bytes are */
	size_t queued_bytes;        /* of all of them, the written ones of the first too */
	uint32_t written;
	struct neap_rpc_block *held; /* of the frame that is not whole, and while paused of those behind it */
	uint64_t received_ns;       /* when the last byte came */
	uint64_t in_due_ns, out_due_ns; /* 0: nothing was begun */
	uint64_t serial;            /* changes with every open and close */
	struct neap_ready flush, more;
	struct neap_timer stall;
	bool paused;                /* nothing is read and no frame is delivered */
	bool deaf;                  /* the peer takes nothing any more */
	/* A whole frame; `body` is valid during the call. */
	void (*frame)(struct neap_rpc_pipe *pipe, const struct neap_rpc_head *head, const uint8_t *body);
	/* The last byte of this block was given to the system. May be NULL */
	void (*sent)(struct neap_rpc_pipe *pipe, struct neap_rpc_block *block);
	/* Frames or room in the queue have changed: called after a round of reading or writing. May be NULL */
	void (*moved)(struct neap_rpc_pipe *pipe);
	/* The connection is of no more use: error 0: the peer closed between two frames; else NEAP_EPEER, NEAP_EPROTO, NEAP_ELIMIT,
	 * NEAP_ETIMEDOUT, NEAP_ENOMEM. `why` is valid during the call. The owner closes the pipe. */
	void (*broken)(struct neap_rpc_pipe *pipe, int error, const char *why);
	void *user;
};

/* Set room, callbacks and user before; the memory comes zeroed or was closed. Begins to read. */
void neap_rpc_pipe_open(struct neap_rpc_pipe *pipe, struct neap_stream *stream);
/* No callback comes after it; what was queued is dropped. Harmless when closed. */
void neap_rpc_pipe_close(struct neap_rpc_pipe *pipe, bool abortive);

/* Queues a block, which must not be in a queue; takes a reference of its own. */
void neap_rpc_pipe_send(struct neap_rpc_pipe *pipe, struct neap_rpc_block *block);
/* Takes a block out again. False: some of its bytes were written, it stays. */
bool neap_rpc_pipe_withdraw(struct neap_rpc_pipe *pipe, struct neap_rpc_block *block);
/* Writes what it can of the queue at once: for the last words before a close. */
void neap_rpc_pipe_flush(struct neap_rpc_pipe *pipe);

void neap_rpc_pipe_pause(struct neap_rpc_pipe *pipe);
void neap_rpc_pipe_resume(struct neap_rpc_pipe *pipe);

#endif
