/* A network within one reactor: whoever listens at a port is reached by whoever connects to it, after a while that a seed decides. Streams
 * are those of memory_stream.h. For a reactor whose descriptors are real and whose time is not: paired_net_begin gives it this net
 * after it was made, so that simulated devices can still be watched. */
#ifndef SUPPORT_PAIRED_NET_H
#define SUPPORT_PAIRED_NET_H

#include "tests/support/memory_stream.h"

struct paired_link;
struct paired_listener;

struct paired_net {
	struct neap_net net; /* first */
	struct neap_reactor *reactor;
	uint64_t random, delay_max_ns; /* of a connection; 0: at once */
	struct paired_link *links;
	struct paired_listener *listeners;
	uint16_t next_port;
	bool held;            /* connections wait until paired_net_hold(false) */
	uint32_t connections; /* begun, ever */
};

void paired_net_begin(struct paired_net *net, struct neap_reactor *reactor, uint64_t seed);
/* Frees what is left. Listeners must have been closed. */
void paired_net_end(struct paired_net *net);
void paired_net_hold(struct paired_net *net, bool held);
/* Resets both ends of all connections there are. */
void paired_net_cut(struct paired_net *net);
/* How many are open. */
uint32_t paired_net_open(const struct paired_net *net);

#endif
