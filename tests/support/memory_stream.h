/* Two byte streams joined back to back in memory: what one writes the other reads. One end usually goes to the code under test,
 * the other is played by the test, which calls its ops itself. Readiness is told in turns of the reactor, level-triggered, as
 * sockets do.
 *
 *     memory_pair_open(&pair, reactor, 64 * 1024);
 *     neap_tcp_server_serve(server, &pair.ends[0].base);
 *     neap_stream_writev(&pair.ends[1].base, ...);  neap_reactor_run_at(...)
 * */
#ifndef SUPPORT_MEMORY_STREAM_H
#define SUPPORT_MEMORY_STREAM_H

#include "reactor/net.h"

struct memory_queue {
	unsigned char *bytes;
	size_t size, head, used;
	bool finished; /* the writer has half-closed */
};

struct memory_end {
	struct neap_stream base; /* first */
	struct memory_pair *pair;
	struct memory_queue in;  /* what this end will read */
	struct neap_ready notice;
	unsigned wanted;
	uint32_t low_water;
	size_t call_max;         /* no single read or write moves more; SIZE_MAX at first */
	uint64_t reads, writes, read_bytes, written_bytes;
	bool closed, abortive;   /* how this end was closed */
	bool reset;              /* by the other */
};

struct memory_pair {
	struct memory_end ends[2];
};

/* `capacity` bytes in flight each way. The memory is the caller's and must outlive the last turn that may touch the streams. */
void memory_pair_open(struct memory_pair *pair, struct neap_reactor *reactor, size_t capacity);
/* Frees the buffers; ends still open are just dropped. */
void memory_pair_release(struct memory_pair *pair);

/* Plain calls for the end the test plays: bytes moved, 0 at end of file, or -errno. */
ssize_t memory_end_write(struct memory_end *end, const void *bytes, size_t length);
ssize_t memory_end_read(struct memory_end *end, void *bytes, size_t length);

/* A net on which nothing can be connected or bound: gives a reactor that opens no descriptor and is driven by run_at alone. */
struct neap_net *memory_net(void);

#endif
