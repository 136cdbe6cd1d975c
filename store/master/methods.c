#include "store/master/methods.h"

const struct neap_rpc_method neap_method_register_client = {
	.number = 100, .name = "RegisterClient",
	.request = &neap_rpc_message_master_register, .reply = &neap_rpc_message_master_register_reply,
};
const struct neap_rpc_method neap_method_unregister_client = {
	.number = 101, .name = "UnregisterClient",
	.request = &neap_rpc_message_master_self, .reply = &neap_rpc_message_master_done,
};
const struct neap_rpc_method neap_method_heartbeat = {
	.number = 102, .name = "Heartbeat",
	.request = &neap_rpc_message_master_heartbeat, .reply = &neap_rpc_message_master_heartbeat_reply,
};
const struct neap_rpc_method neap_method_mount_segment = {
	.number = 103, .name = "MountSegment",
	.request = &neap_rpc_message_master_mount, .reply = &neap_rpc_message_master_done,
};
const struct neap_rpc_method neap_method_unmount_segment = {
	.number = 104, .name = "UnmountSegment",
	.request = &neap_rpc_message_master_unmount, .reply = &neap_rpc_message_master_done,
};
const struct neap_rpc_method neap_method_query_clients = {
	.number = 105, .name = "QueryClients",
	.request = &neap_rpc_message_master_clients, .reply = &neap_rpc_message_master_clients_reply,
};
const struct neap_rpc_method neap_method_announce = {
	.number = 106, .name = "BatchSyncReplica",
	.request = &neap_rpc_message_master_announce, .reply = &neap_rpc_message_master_announce_reply,
};
const struct neap_rpc_method neap_method_round_begin = {
	.number = 107, .name = "RoundBegin",
	.request = &neap_rpc_message_master_self, .reply = &neap_rpc_message_master_round_begin_reply,
};
const struct neap_rpc_method neap_method_round_end = {
	.number = 108, .name = "SetSyncCompleted",
	.request = &neap_rpc_message_master_round_end, .reply = &neap_rpc_message_master_round_end_reply,
};
const struct neap_rpc_method neap_method_write_routes = {
	.number = 109, .name = "BatchGetWriteRoute",
	.request = &neap_rpc_message_master_write_routes, .reply = &neap_rpc_message_master_write_routes_reply,
};
const struct neap_rpc_method neap_method_replicas = {
	.number = 110, .name = "BatchGetReplicaList",
	.request = &neap_rpc_message_master_replicas, .reply = &neap_rpc_message_master_replicas_reply,
};
const struct neap_rpc_method neap_method_exist = {
	.number = 111, .name = "BatchExistKey",
	.request = &neap_rpc_message_master_exist, .reply = &neap_rpc_message_master_exist_reply,
};
const struct neap_rpc_method neap_method_count = {
	.number = 112, .name = "Count",
	.request = &neap_rpc_message_master_done, .reply = &neap_rpc_message_master_count_reply,
};
const struct neap_rpc_method neap_method_list = {
	.number = 113, .name = "ListKeys",
	.request = &neap_rpc_message_master_list, .reply = &neap_rpc_message_master_list_reply,
};
