/* What a process on the same machine says to a neap-client's local service: the messages of the methods from 200 on. docs/WIRE.md has the
 * list for readers.
 *
 * A value goes through a transfer: memory of the daemon that belongs to the connection. Included by all who speak them; messages.c has
 * the tables. */

#define MESSAGE local_put_begin
#define MESSAGE_NAME "LocalPutBegin"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, key, REQUIRED, 4096)                \
	F(U64, size_bytes, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE local_put_begin_reply
#define MESSAGE_NAME "LocalPutBeginReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, transfer, REQUIRED, UINT64_MAX)       \
	F(U64, frame_max, REQUIRED, UINT32_MAX)
#include "store/rpc/declare.h"

/* In order: offset is what was sent so far. */
#define MESSAGE local_put_data
#define MESSAGE_NAME "LocalPutData"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, transfer, REQUIRED, UINT64_MAX)       \
	F(U64, offset, REQUIRED, UINT64_MAX)         \
	F(BYTES, data, REQUIRED, 1048576)
#include "store/rpc/declare.h"

#define MESSAGE local_done
#define MESSAGE_NAME "LocalDone"
#define MESSAGE_FIELDS(F, L) F(U64, reserved, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

/* direction: 0 the daemon's, 1 REVERSE, 2 FORWARD. With a crc the bytes are compared with it here and at the owner. */
#define MESSAGE local_put_end
#define MESSAGE_NAME "LocalPutEnd"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, transfer, REQUIRED, UINT64_MAX)       \
	F(U64, direction, OPTIONAL, 2)               \
	F(BOOL, has_crc, OPTIONAL, 1)                \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)
#include "store/rpc/declare.h"

#define MESSAGE local_put_end_reply
#define MESSAGE_NAME "LocalPutEndReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(BOOL, created, OPTIONAL, 1)                \
	F(BOOL, local, OPTIONAL, 1)                  \
	F(U64, size_bytes, OPTIONAL, UINT64_MAX)     \
	F(U64, generation, OPTIONAL, UINT64_MAX)     \
	F(BOOL, has_crc, OPTIONAL, 1)                \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)         \
	F(TEXT, owner, OPTIONAL, 272)
#include "store/rpc/declare.h"

#define MESSAGE local_get_begin
#define MESSAGE_NAME "LocalGetBegin"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, key, REQUIRED, 4096)                \
	F(U64, direction, OPTIONAL, 2)               \
	F(BOOL, verify, OPTIONAL, 1)
#include "store/rpc/declare.h"

/* crc32c: as the owner keeps it; or, when it keeps none and one was asked for, of what the daemon got (`crc_of_owner` false). */
#define MESSAGE local_get_begin_reply
#define MESSAGE_NAME "LocalGetBeginReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, transfer, REQUIRED, UINT64_MAX)       \
	F(U64, frame_max, REQUIRED, UINT32_MAX)      \
	F(U64, size_bytes, REQUIRED, UINT64_MAX)     \
	F(U64, generation, OPTIONAL, UINT64_MAX)     \
	F(BOOL, local, OPTIONAL, 1)                  \
	F(BOOL, has_crc, OPTIONAL, 1)                \
	F(BOOL, crc_of_owner, OPTIONAL, 1)           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)         \
	F(TEXT, owner, OPTIONAL, 272)
#include "store/rpc/declare.h"

#define MESSAGE local_get_data
#define MESSAGE_NAME "LocalGetData"
#define MESSAGE_FIELDS(F, L)                     \
	F(U64, transfer, REQUIRED, UINT64_MAX)       \
	F(U64, offset, REQUIRED, UINT64_MAX)         \
	F(U64, length, REQUIRED, 1048576)
#include "store/rpc/declare.h"

#define MESSAGE local_get_data_reply
#define MESSAGE_NAME "LocalGetDataReply"
#define MESSAGE_FIELDS(F, L) F(BYTES, data, REQUIRED, 1048576)
#include "store/rpc/declare.h"

/* Gives a put up, or ends a get. */
#define MESSAGE local_end
#define MESSAGE_NAME "LocalEnd"
#define MESSAGE_FIELDS(F, L) F(U64, transfer, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE local_key
#define MESSAGE_NAME "LocalKey"
#define MESSAGE_FIELDS(F, L) F(BYTES, key, REQUIRED, 4096)
#include "store/rpc/declare.h"

/* "": all keys of the cluster. */
#define MESSAGE local_remove_matching
#define MESSAGE_NAME "LocalRemoveMatching"
#define MESSAGE_FIELDS(F, L) F(TEXT, pattern, OPTIONAL, 4096)
#include "store/rpc/declare.h"

#define MESSAGE local_removed
#define MESSAGE_NAME "LocalRemoved"
#define MESSAGE_FIELDS(F, L) F(U64, removed, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE local_exist
#define MESSAGE_NAME "LocalExist"
#define MESSAGE_FIELDS(F, L) L(local_key, keys, REQUIRED, 1000)
#include "store/rpc/declare.h"

/* A byte for each key: 0 no, 1 yes, 2 not known; then `error` has a reason. */
#define MESSAGE local_exist_reply
#define MESSAGE_NAME "LocalExistReply"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, found, REQUIRED, 1000)              \
	F(I64, error, OPTIONAL, 65535)
#include "store/rpc/declare.h"

#define MESSAGE local_replica
#define MESSAGE_NAME "LocalReplica"
#define MESSAGE_FIELDS(F, L)                     \
	F(TEXT, owner, OPTIONAL, 272)                \
	F(U64, size_bytes, OPTIONAL, UINT64_MAX)     \
	F(U64, generation, OPTIONAL, UINT64_MAX)     \
	F(BOOL, has_crc, OPTIONAL, 1)                \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)         \
	F(I64, priority, OPTIONAL, 2147483648)       \
	F(BOOL, in_memory, OPTIONAL, 1)              \
	F(BOOL, local, OPTIONAL, 1)
#include "store/rpc/declare.h"

#define MESSAGE local_stat_reply
#define MESSAGE_NAME "LocalStatReply"
#define MESSAGE_FIELDS(F, L) L(local_replica, replicas, REQUIRED, 256)
#include "store/rpc/declare.h"

/* Begins with cursor 0, goes on with `next` of the reply until that is 0. `partial`: the master recovers, there may be more keys. */
#define MESSAGE local_list
#define MESSAGE_NAME "LocalList"
#define MESSAGE_FIELDS(F, L)                     \
	F(TEXT, pattern, OPTIONAL, 4096)             \
	F(U64, cursor, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE local_list_reply
#define MESSAGE_NAME "LocalListReply"
#define MESSAGE_FIELDS(F, L)                     \
	L(local_key, keys, OPTIONAL, 8192)           \
	F(U64, next, OPTIONAL, UINT64_MAX)           \
	F(BOOL, partial, OPTIONAL, 1)
#include "store/rpc/declare.h"

#define MESSAGE local_health
#define MESSAGE_NAME "LocalHealth"
#define MESSAGE_FIELDS(F, L) F(U64, reserved, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE local_health_reply
#define MESSAGE_NAME "LocalHealthReply"
#define MESSAGE_FIELDS(F, L)                                  \
	F(TEXT, health, REQUIRED, 32)                             \
	F(TEXT, segment, OPTIONAL, 272)                           \
	F(U64, client_rpc_port, OPTIONAL, 65535)                  \
	F(U64, pid, OPTIONAL, UINT64_MAX)                         \
	F(U64, uptime_ms, OPTIONAL, UINT64_MAX)                   \
	F(U64, keys, OPTIONAL, UINT64_MAX)                        \
	F(U64, bytes, OPTIONAL, UINT64_MAX)                       \
	F(U64, capacity_bytes, OPTIONAL, UINT64_MAX)              \
	F(U64, used_bytes, OPTIONAL, UINT64_MAX)                  \
	F(U64, quarantined_bytes, OPTIONAL, UINT64_MAX)           \
	F(U64, pending_writes, OPTIONAL, UINT64_MAX)              \
	F(U64, pins, OPTIONAL, UINT64_MAX)                        \
	F(U64, quarantined_writes, OPTIONAL, UINT64_MAX)          \
	F(U64, operations, OPTIONAL, UINT64_MAX)                  \
	F(U64, puts, OPTIONAL, UINT64_MAX)                        \
	F(U64, gets, OPTIONAL, UINT64_MAX)                        \
	F(U64, hits, OPTIONAL, UINT64_MAX)                        \
	F(U64, misses, OPTIONAL, UINT64_MAX)                      \
	F(U64, evicted, OPTIONAL, UINT64_MAX)                     \
	F(U64, expired_writes, OPTIONAL, UINT64_MAX)              \
	F(U64, expired_pins, OPTIONAL, UINT64_MAX)                \
	F(U64, retries, OPTIONAL, UINT64_MAX)                     \
	F(U64, buffer_bytes, OPTIONAL, UINT64_MAX)                \
	F(U64, buffer_free_bytes, OPTIONAL, UINT64_MAX)           \
	F(U64, transfers, OPTIONAL, UINT64_MAX)                   \
	F(U64, waiting, OPTIONAL, UINT64_MAX)                     \
	F(U64, given_up, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"
