#include "apps/client/methods.h"

const struct neap_rpc_method local_method_put_begin = {
	.number = 200, .name = "LocalPutBegin",
	.request = &neap_rpc_message_local_put_begin, .reply = &neap_rpc_message_local_put_begin_reply,
};

const struct neap_rpc_method local_method_put_data = {
	.number = 201, .name = "LocalPutData",
	.request = &neap_rpc_message_local_put_data, .reply = &neap_rpc_message_local_done,
};

const struct neap_rpc_method local_method_put_end = {
	.number = 202, .name = "LocalPutEnd",
	.request = &neap_rpc_message_local_put_end, .reply = &neap_rpc_message_local_put_end_reply,
};

const struct neap_rpc_method local_method_get_begin = {
	.number = 203, .name = "LocalGetBegin",
	.request = &neap_rpc_message_local_get_begin, .reply = &neap_rpc_message_local_get_begin_reply,
};

const struct neap_rpc_method local_method_get_data = {
	.number = 204, .name = "LocalGetData",
	.request = &neap_rpc_message_local_get_data, .reply = &neap_rpc_message_local_get_data_reply,
};

const struct neap_rpc_method local_method_end = {
	.number = 205, .name = "LocalEnd",
	.request = &neap_rpc_message_local_end, .reply = &neap_rpc_message_local_done,
};

const struct neap_rpc_method local_method_remove = {
	.number = 206, .name = "LocalRemove",
	.request = &neap_rpc_message_local_key, .reply = &neap_rpc_message_local_removed,
};

const struct neap_rpc_method local_method_remove_matching = {
	.number = 207, .name = "LocalRemoveMatching",
	.request = &neap_rpc_message_local_remove_matching, .reply = &neap_rpc_message_local_removed,
};

const struct neap_rpc_method local_method_exist = {
	.number = 208, .name = "LocalExist",
	.request = &neap_rpc_message_local_exist, .reply = &neap_rpc_message_local_exist_reply,
};

const struct neap_rpc_method local_method_stat = {
	.number = 209, .name = "LocalStat",
	.request = &neap_rpc_message_local_key, .reply = &neap_rpc_message_local_stat_reply,
};

const struct neap_rpc_method local_method_list = {
	.number = 210, .name = "LocalList",
	.request = &neap_rpc_message_local_list, .reply = &neap_rpc_message_local_list_reply,
};

const struct neap_rpc_method local_method_health = {
	.number = 211, .name = "LocalHealth",
	.request = &neap_rpc_message_local_health, .reply = &neap_rpc_message_local_health_reply,
};
