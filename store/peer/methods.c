#include "store/peer/methods.h"

const struct neap_rpc_method neap_method_pre_write = {
	.number = 1, .name = "PreWrite", .once = true,
	.request = &neap_rpc_message_pre_write, .reply = &neap_rpc_message_pre_write_reply,
};
const struct neap_rpc_method neap_method_write_commit = {
	.number = 2, .name = "WriteCommit", .once = true,
	.request = &neap_rpc_message_write_commit, .reply = &neap_rpc_message_committed_reply,
};
const struct neap_rpc_method neap_method_write_revoke = {
	.number = 3, .name = "WriteRevoke", .once = true,
	.request = &neap_rpc_message_write_revoke, .reply = &neap_rpc_message_empty_reply,
};
const struct neap_rpc_method neap_method_pin_key = {
	.number = 4, .name = "PinKey", .once = true,
	.request = &neap_rpc_message_pin_key, .reply = &neap_rpc_message_pin_key_reply,
};
const struct neap_rpc_method neap_method_un_pin_key = {
	.number = 5, .name = "UnPinKey", .once = true,
	.request = &neap_rpc_message_un_pin_key, .reply = &neap_rpc_message_empty_reply,
};
const struct neap_rpc_method neap_method_write_remote_data = {
	.number = 6, .name = "WriteRemoteData", .once = true,
	.request = &neap_rpc_message_write_remote_data, .reply = &neap_rpc_message_committed_reply,
};
/* Not `once`: the value may be large, and reading twice harms nobody. */
const struct neap_rpc_method neap_method_read_remote_data = {
	.number = 7, .name = "ReadRemoteData",
	.request = &neap_rpc_message_read_remote_data, .reply = &neap_rpc_message_read_remote_data_reply,
};
const struct neap_rpc_method neap_method_look_up = {
	.number = 8, .name = "LookUp",
	.request = &neap_rpc_message_look_up, .reply = &neap_rpc_message_look_up_reply,
};
const struct neap_rpc_method neap_method_remove_key = {
	.number = 9, .name = "RemoveKey", .once = true,
	.request = &neap_rpc_message_remove_key, .reply = &neap_rpc_message_empty_reply,
};
const struct neap_rpc_method neap_method_describe = {
	.number = 10, .name = "Describe",
	.request = &neap_rpc_message_describe, .reply = &neap_rpc_message_described,
};
