/* A method of the store's RPC, as both sides know it. */
#ifndef NEAP_STORE_RPC_METHOD_H
#define NEAP_STORE_RPC_METHOD_H

#include "store/rpc/body.h"

struct neap_rpc_method {
	uint32_t number; /* on the wire; not 0 */
	const char *name;
	const struct neap_rpc_message *request, *reply;
	/* It changes something: each call has a request id and is executed at most once; a repeated call gets the remembered answer. */
	bool once;
	/* Bytes of the longest reply body of a `once` method: set aside before it is executed, so that its answer can always be kept.
	 * 0: 512. */
	uint32_t reply_max;
};

#endif
