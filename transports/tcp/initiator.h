/* The initiator half of the TCP transport: peers, their lanes and the requests on them. tcp.c gives it to the engine together with the
 * server half. Machines: tcp_peer (one a segment), tcp_lane (one a connection). Owner thread only; one a core.
 *
 * The functions are those of struct neap_transport_ops, with the same rules: a submit cannot fail and ends no slice from inside, room is
 * asked before, cancel and forget are bounded by drain_timeout_ms. */
#ifndef NEAP_TRANSPORTS_TCP_INITIATOR_H
#define NEAP_TRANSPORTS_TCP_INITIATOR_H

#include "transports/transport.h"

struct neap_tcp_initiator;

/* `transport` is what segments point to and what neap_engine_view is asked through; its options size the pools. NEAP_ENOMEM. */
int neap_tcp_initiator_create(struct neap_tcp_initiator **initiator_p, struct neap_transport *transport);
void neap_tcp_initiator_submit(struct neap_tcp_initiator *initiator, struct neap_segment *segment, struct neap_slice *first,
                               uint32_t count);
uint32_t neap_tcp_initiator_room(const struct neap_tcp_initiator *initiator, const struct neap_segment *segment);
void neap_tcp_initiator_cancel(struct neap_tcp_initiator *initiator, struct neap_slice *slice);
/* Ends with neap_segment_forgotten, from a later turn or handler, never from inside. */
void neap_tcp_initiator_forget(struct neap_tcp_initiator *initiator, struct neap_segment *segment);
/* Ends what is left as CANCELED and closes all lanes; `closed` is called once from a turn, within drain_timeout_ms. */
void neap_tcp_initiator_close(struct neap_tcp_initiator *initiator, void (*closed)(void *user), void *user);
/* After that, or when nothing was ever submitted. */
void neap_tcp_initiator_destroy(struct neap_tcp_initiator *initiator);

/* Lanes with a connection. */
uint32_t neap_tcp_initiator_lanes(const struct neap_tcp_initiator *initiator);

#endif
