/* The methods an owner serves and an accessor calls. Numbers are on the wire and never change. */
#ifndef NEAP_STORE_PEER_METHODS_H
#define NEAP_STORE_PEER_METHODS_H

#include "store/peer/messages_all.h"
#include "store/rpc/method.h"

extern const struct neap_rpc_method neap_method_pre_write, neap_method_write_commit, neap_method_write_revoke, neap_method_pin_key,
	neap_method_un_pin_key, neap_method_write_remote_data, neap_method_read_remote_data, neap_method_look_up, neap_method_remove_key,
	neap_method_describe;

#endif
