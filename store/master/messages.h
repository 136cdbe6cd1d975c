/* What clients and the master say to each other: each operation of store/directory/key_directory.h as a request and a reply.
 * docs/WIRE.md has the list for readers. Included by all who speak them; messages.c has the tables. Bounds are such that every body
 * stays below NEAP_RPC_VALUES_MAX and the decoder's arena; codec.h names them. */

/* --- pieces of others */

#define MESSAGE master_tag
#define MESSAGE_NAME "Tag"
#define MESSAGE_FIELDS(F, L) F(TEXT, tag, REQUIRED, 31)
#include "store/rpc/declare.h"

#define MESSAGE master_segment
#define MESSAGE_NAME "Segment"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, segment_id, REQUIRED, 16)           \
	F(BYTES, name, OPTIONAL, 63)                 \
	F(U64, size, REQUIRED, UINT64_MAX)           \
	F(U64, usage, OPTIONAL, UINT64_MAX)          \
	F(I64, priority, OPTIONAL, 2147483648)       \
	F(U64, memory_type, OPTIONAL, UINT32_MAX)    \
	L(master_tag, tags, OPTIONAL, 8)
#include "store/rpc/declare.h"

#define MESSAGE master_done
#define MESSAGE_NAME "Done"
#define MESSAGE_FIELDS(F, L) F(U64, reserved, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

/* The error of an item of a batch; numbers of the store, negative. */
#define MESSAGE master_result
#define MESSAGE_NAME "Result"
#define MESSAGE_FIELDS(F, L) F(I64, error_code, OPTIONAL, 1000000)
#include "store/rpc/declare.h"

#define MESSAGE master_key
#define MESSAGE_NAME "Key"
#define MESSAGE_FIELDS(F, L) F(BYTES, key, REQUIRED, 4096)
#include "store/rpc/declare.h"

/* A part of the list of replicas or candidates. */
#define MESSAGE master_part
#define MESSAGE_NAME "Part"
#define MESSAGE_FIELDS(F, L)                     \
	F(I64, error_code, OPTIONAL, 1000000)        \
	F(U64, first, OPTIONAL, UINT32_MAX)          \
	F(U64, count, OPTIONAL, UINT32_MAX)
#include "store/rpc/declare.h"

/* --- clients. `instance` is that of the caller's own RPC connection: nobody speaks for another. */

#define MESSAGE master_register
#define MESSAGE_NAME "RegisterClient"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)       \
	F(U64, start, OPTIONAL, UINT64_MAX)          \
	F(BYTES, ip_address, REQUIRED, 63)           \
	F(U64, rpc_port, REQUIRED, 65535)            \
	F(BOOL, holds, OPTIONAL, 1)                  \
	L(master_segment, segments, OPTIONAL, 64)
#include "store/rpc/declare.h"

#define MESSAGE master_register_reply
#define MESSAGE_NAME "RegisterClientReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, view_version, REQUIRED, UINT64_MAX)   \
	F(BOOL, announce_all, OPTIONAL, 1)
#include "store/rpc/declare.h"

/* Also the request of RoundBegin. */
#define MESSAGE master_self
#define MESSAGE_NAME "Self"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_usage
#define MESSAGE_NAME "Usage"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, segment_id, REQUIRED, 16)           \
	F(U64, usage, REQUIRED, UINT64_MAX)          \
	F(U64, size, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_heartbeat
#define MESSAGE_NAME "Heartbeat"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)       \
	F(U64, view_version, OPTIONAL, UINT64_MAX)   \
	L(master_usage, usages, OPTIONAL, 64)        \
	F(U64, lost_max, OPTIONAL, 256)              \
	F(U64, lost_text_max, OPTIONAL, 65536)
#include "store/rpc/declare.h"

#define MESSAGE master_lost
#define MESSAGE_NAME "Lost"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, key, REQUIRED, 4096)                \
	F(BYTES, segment_id, REQUIRED, 16)           \
	F(U64, generation, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_heartbeat_reply
#define MESSAGE_NAME "HeartbeatReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, status, REQUIRED, 3)                  \
	F(U64, view_version, REQUIRED, UINT64_MAX)   \
	F(BOOL, announce_all, OPTIONAL, 1)           \
	L(master_result, usages, OPTIONAL, 64)       \
	L(master_lost, lost, OPTIONAL, 256)          \
	F(BOOL, lost_more, OPTIONAL, 1)
#include "store/rpc/declare.h"

#define MESSAGE master_mount
#define MESSAGE_NAME "MountSegment"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)       \
	L(master_segment, segment, REQUIRED, 1)
#include "store/rpc/declare.h"

#define MESSAGE master_unmount
#define MESSAGE_NAME "UnmountSegment"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)       \
	F(BYTES, segment_id, REQUIRED, 16)
#include "store/rpc/declare.h"

#define MESSAGE master_client_id
#define MESSAGE_NAME "ClientId"
#define MESSAGE_FIELDS(F, L) F(BYTES, client_id, REQUIRED, 16)
#include "store/rpc/declare.h"

#define MESSAGE master_clients
#define MESSAGE_NAME "QueryClients"
#define MESSAGE_FIELDS(F, L) L(master_client_id, clients, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_client_answer
#define MESSAGE_NAME "ClientStatus"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, status, REQUIRED, 3)                  \
	F(BYTES, ip_address, OPTIONAL, 63)           \
	F(U64, rpc_port, OPTIONAL, 65535)
#include "store/rpc/declare.h"

#define MESSAGE master_clients_reply
#define MESSAGE_NAME "QueryClientsReply"
#define MESSAGE_FIELDS(F, L) L(master_client_answer, clients, REQUIRED, 2000)
#include "store/rpc/declare.h"

/* --- announcements */

#define MESSAGE master_change
#define MESSAGE_NAME "Change"
#define MESSAGE_FIELDS(F, L)                     \
	F(BOOL, remove, OPTIONAL, 1)                 \
	F(BYTES, key, REQUIRED, 4096)                \
	F(BYTES, segment_id, REQUIRED, 16)           \
	F(U64, size, OPTIONAL, UINT64_MAX)           \
	F(U64, generation, OPTIONAL, UINT64_MAX)     \
	F(BOOL, has_crc, OPTIONAL, 1)                \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)         \
	F(U64, stamp_epoch, OPTIONAL, UINT64_MAX)    \
	F(U64, stamp_sequence, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_announce
#define MESSAGE_NAME "BatchSyncReplica"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)       \
	F(U64, number, OPTIONAL, UINT64_MAX)         \
	F(U64, round, OPTIONAL, UINT32_MAX)          \
	L(master_change, changes, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_changed
#define MESSAGE_NAME "Changed"
#define MESSAGE_FIELDS(F, L)                     \
	F(I64, error_code, OPTIONAL, 1000000)        \
	F(U64, stamp_epoch, OPTIONAL, UINT64_MAX)    \
	F(U64, stamp_sequence, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_announce_reply
#define MESSAGE_NAME "BatchSyncReplicaReply"
#define MESSAGE_FIELDS(F, L) L(master_changed, changes, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_round_begin_reply
#define MESSAGE_NAME "RoundBeginReply"
#define MESSAGE_FIELDS(F, L) F(U64, round, REQUIRED, UINT32_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_round_end
#define MESSAGE_NAME "SetSyncCompleted"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(U64, instance, REQUIRED, UINT64_MAX)       \
	F(U64, round, REQUIRED, UINT32_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_round_end_reply
#define MESSAGE_NAME "SetSyncCompletedReply"
#define MESSAGE_FIELDS(F, L) F(U64, dropped, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

/* --- questions. Weights and scores are in thousand millionths. */

#define MESSAGE master_write_item
#define MESSAGE_NAME "WriteItem"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, key, REQUIRED, 4096)                \
	F(U64, size, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_write_routes
#define MESSAGE_NAME "BatchGetWriteRoute"
#define MESSAGE_FIELDS(F, L)                                    \
	F(BYTES, client_id, OPTIONAL, 16)                           \
	F(U64, max_candidates, OPTIONAL, UINT32_MAX)                \
	F(U64, strategy, OPTIONAL, 2)                               \
	F(I64, remote_weight, OPTIONAL, 1000000000000)              \
	F(I64, local_write_waterline, OPTIONAL, 1000000000000)      \
	F(BOOL, top_tier_only, OPTIONAL, 1)                         \
	F(BOOL, early_return, OPTIONAL, 1)                          \
	F(I64, priority_limit, OPTIONAL, 2147483648)                \
	L(master_tag, tag_filters, OPTIONAL, 8)                     \
	L(master_write_item, items, REQUIRED, 2000)                 \
	F(U64, room, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_candidate
#define MESSAGE_NAME "WriteCandidate"
#define MESSAGE_FIELDS(F, L)                                    \
	F(BYTES, client_id, REQUIRED, 16)                           \
	F(BYTES, ip_address, REQUIRED, 63)                          \
	F(U64, rpc_port, REQUIRED, 65535)                           \
	F(U64, available_capacity, REQUIRED, UINT64_MAX)            \
	F(I64, score, OPTIONAL, 1000000000000000000)
#include "store/rpc/declare.h"

#define MESSAGE master_write_routes_reply
#define MESSAGE_NAME "BatchGetWriteRouteReply"
#define MESSAGE_FIELDS(F, L)                     \
	L(master_part, items, REQUIRED, 2000)        \
	L(master_candidate, candidates, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_replicas
#define MESSAGE_NAME "BatchGetReplicaList"
#define MESSAGE_FIELDS(F, L)                                    \
	F(U64, max_candidates, OPTIONAL, UINT32_MAX)                \
	F(I64, priority_limit, OPTIONAL, 2147483648)                \
	L(master_tag, tag_filters, OPTIONAL, 8)                     \
	L(master_key, keys, REQUIRED, 2000)                         \
	F(U64, room, REQUIRED, 1500)
#include "store/rpc/declare.h"

#define MESSAGE master_replica
#define MESSAGE_NAME "Replica"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, client_id, REQUIRED, 16)            \
	F(BYTES, segment_id, REQUIRED, 16)           \
	F(BYTES, ip_address, REQUIRED, 63)           \
	F(U64, rpc_port, REQUIRED, 65535)            \
	F(U64, object_size, REQUIRED, UINT64_MAX)    \
	F(U64, generation, OPTIONAL, UINT64_MAX)     \
	F(BOOL, has_crc, OPTIONAL, 1)                \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)         \
	F(I64, priority, OPTIONAL, 2147483648)       \
	F(U64, memory_type, OPTIONAL, UINT32_MAX)    \
	F(U64, stamp_epoch, OPTIONAL, UINT64_MAX)    \
	F(U64, stamp_sequence, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE master_replicas_reply
#define MESSAGE_NAME "BatchGetReplicaListReply"
#define MESSAGE_FIELDS(F, L)                     \
	L(master_part, items, REQUIRED, 2000)        \
	L(master_replica, replicas, REQUIRED, 1500)
#include "store/rpc/declare.h"

#define MESSAGE master_exist
#define MESSAGE_NAME "BatchExistKey"
#define MESSAGE_FIELDS(F, L) L(master_key, keys, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_exist_reply
#define MESSAGE_NAME "BatchExistKeyReply"
#define MESSAGE_FIELDS(F, L) L(master_result, keys, REQUIRED, 2000)
#include "store/rpc/declare.h"

#define MESSAGE master_count_reply
#define MESSAGE_NAME "CountReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, keys, REQUIRED, UINT64_MAX)           \
	F(U64, replicas, REQUIRED, UINT64_MAX)       \
	F(BOOL, complete, OPTIONAL, 1)
#include "store/rpc/declare.h"

#define MESSAGE master_list
#define MESSAGE_NAME "ListKeys"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, regex, OPTIONAL, 4096)              \
	F(U64, cursor, OPTIONAL, UINT64_MAX)         \
	F(U64, keys_max, REQUIRED, 2000)             \
	F(U64, text_max, REQUIRED, 262144)
#include "store/rpc/declare.h"

/* error_code beside why: what is wrong with the pattern and where. */
#define MESSAGE master_list_reply
#define MESSAGE_NAME "ListKeysReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(I64, error_code, OPTIONAL, 1000000)        \
	F(BYTES, why, OPTIONAL, 119)                 \
	F(U64, cursor, OPTIONAL, UINT64_MAX)         \
	F(BOOL, complete, OPTIONAL, 1)               \
	L(master_key, keys, OPTIONAL, 2000)
#include "store/rpc/declare.h"
