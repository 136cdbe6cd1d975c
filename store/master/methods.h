/* The methods a master serves. Numbers are on the wire and never change.
 *
 * None is `once`: each can be repeated without harm. A second ADD of a generation is answered REPLICA_ALREADY_EXISTS with its stamp, a
 * second removal finds nothing, registrations and mounts are merged, a round begun twice voids the first, and batches have numbers by
 * which the echo of an older one is known. */
#ifndef NEAP_STORE_MASTER_METHODS_H
#define NEAP_STORE_MASTER_METHODS_H

#include "store/master/messages_all.h"
#include "store/rpc/method.h"

extern const struct neap_rpc_method neap_method_register_client, neap_method_unregister_client, neap_method_heartbeat,
	neap_method_mount_segment, neap_method_unmount_segment, neap_method_query_clients, neap_method_announce, neap_method_round_begin,
	neap_method_round_end, neap_method_write_routes, neap_method_replicas, neap_method_exist, neap_method_count, neap_method_list;

#endif
