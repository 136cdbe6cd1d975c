/* The methods of a neap-client's local service. Numbers are on the wire and never change.
 *
 * None of them is `once`: a transfer belongs to its connection, and whoever loses that does not repeat a call but begins anew. */
#ifndef APPS_CLIENT_METHODS_H
#define APPS_CLIENT_METHODS_H

#include "apps/client/messages_all.h"
#include "store/rpc/method.h"

#define LOCAL_FRAME_BYTES (UINT32_C(1) << 20) /* of a value in one call */
#define LOCAL_BODY_MAX (UINT32_C(4) << 20)

extern const struct neap_rpc_method local_method_put_begin, local_method_put_data, local_method_put_end, local_method_get_begin,
	local_method_get_data, local_method_end, local_method_remove, local_method_remove_matching, local_method_exist, local_method_stat,
	local_method_list, local_method_health;

#endif
