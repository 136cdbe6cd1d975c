/* Error numbers and names of the store.
 *
 * They are those of Mooncake Store, so that a user of both sees one set. Some of them are numbers that the Transfer Engine uses for
 * something else (neap/error.h): a function returns numbers of one of the two sets and its comment says when it is this one. */
#ifndef NEAP_STORE_ERROR_H
#define NEAP_STORE_ERROR_H

#include <neap/error.h>

#ifdef __cplusplus
extern "C" {
#endif

/* name, number, what it means to the person who reads it */
#define NEAP_STORE_ERRORS(E)                                                                                \
	E(OK, 0, "success")                                                                                     \
	E(INTERNAL_ERROR, -1, "something that cannot happen happened")                                          \
	E(NOT_IMPLEMENTED, -2, "this build or mode does not have it")                                           \
	E(BUFFER_OVERFLOW, -10, "the buffer is too small")                                                      \
	E(SHARD_INDEX_OUT_OF_RANGE, -100, "there is no such shard")                                             \
	E(SEGMENT_NOT_FOUND, -101, "there is no such segment")                                                  \
	E(SEGMENT_ALREADY_EXISTS, -102, "the segment is there already")                                         \
	E(CLIENT_NOT_FOUND, -103, "the client is not registered")                                               \
	E(CLIENT_ALREADY_EXISTS, -104, "the client is registered already")                                      \
	E(CLIENT_UNHEALTHY, -105, "the client has not been heard of for a while")                               \
	E(NO_AVAILABLE_CANDIDATE, -106, "no client can take the value now")                                     \
	E(NO_AVAILABLE_HANDLE, -200, "out of space: no tier has room, and nothing that may be evicted makes any") \
	E(INVALID_VERSION, -300, "the versions of the two sides do not go together")                            \
	E(CAS_FAILED, -301, "the object has changed meanwhile")                                                 \
	E(INVALID_KEY, -400, "the key is empty, or longer than the directory takes (neap-master --key_length_max)") \
	E(WRITE_FAIL, -500, "the value could not be written")                                                   \
	E(INVALID_PARAMS, -600, "an argument is outside its allowed range")                                     \
	E(ILLEGAL_CLIENT, -601, "the client may not do that")                                                   \
	E(NON_CONTIGUOUS_BUFFER_NOT_SUPPORTED, -602, "the buffer must be one piece")                            \
	E(INVALID_WRITE, -700, "there is no such pending write")                                                \
	E(INVALID_READ, -701, "there is no such pin")                                                           \
	E(INVALID_REPLICA, -702, "the replica cannot be used")                                                  \
	E(REPLICA_IS_NOT_READY, -703, "the replica cannot be read yet; try again")                              \
	E(OBJECT_NOT_FOUND, -704, "there is no such object")                                                    \
	E(OBJECT_ALREADY_EXISTS, -705, "the key has a value already")                                           \
	E(OBJECT_HAS_LEASE, -706, "someone is reading the object")                                              \
	E(LEASE_EXPIRED, -707, "the lease ran out before the operation was complete")                           \
	E(OBJECT_HAS_REPLICATION_TASK, -708, "the object is being copied")                                      \
	E(OBJECT_NO_REPLICATION_TASK, -709, "the object is not being copied")                                   \
	E(REPLICA_NOT_FOUND, -710, "there is no such replica")                                                  \
	E(REPLICA_ALREADY_EXISTS, -711, "the replica is there already")                                         \
	E(REPLICA_IS_GONE, -712, "the replica has gone meanwhile")                                              \
	E(REPLICA_NUM_EXCEEDED, -713, "the object has as many replicas as it may")                              \
	E(REPLICA_IS_PROCESSING, -714, "another write of the key is under way; try again")                      \
	E(TRANSFER_FAIL, -800, "the bytes could not be moved")                                                  \
	E(RPC_FAIL, -900, "the call failed; whether it took effect is not known")                               \
	E(HEARTBEAT_RPC_UNREACHABLE, -901, "the master does not answer heartbeats")                             \
	E(HEARTBEAT_ROUTING_MISMATCH, -902, "the master runs in another mode")                                  \
	E(ETCD_OPERATION_ERROR, -1000, "etcd failed")                                                           \
	E(ETCD_KEY_NOT_EXIST, -1001, "etcd does not have the key")                                              \
	E(ETCD_TRANSACTION_FAIL, -1002, "etcd refused the transaction")                                         \
	E(ETCD_CTX_CANCELLED, -1003, "the call to etcd was cancelled")                                          \
	E(OPLOG_ENTRY_NOT_FOUND, -1004, "the log does not have the entry")                                      \
	E(OPLOG_TRIMMED, -1005, "the log does not have the entry any more")                                     \
	E(UNAVAILABLE_IN_CURRENT_STATUS, -1010, "the process is starting or draining")                          \
	E(UNAVAILABLE_IN_CURRENT_MODE, -1011, "not possible in this mode or for this kind of tier")             \
	E(FILE_NOT_FOUND, -1100, "there is no such file")                                                       \
	E(FILE_OPEN_FAIL, -1101, "a file could not be opened")                                                  \
	E(FILE_READ_FAIL, -1102, "a file could not be read")                                                    \
	E(FILE_WRITE_FAIL, -1103, "a file could not be written")                                                \
	E(FILE_INVALID_BUFFER, -1104, "the buffer cannot be used for file I/O")                                 \
	E(FILE_LOCK_FAIL, -1105, "another process holds the lock")                                              \
	E(FILE_INVALID_HANDLE, -1106, "the file is not open")                                                   \
	E(BUCKET_NOT_FOUND, -1200, "there is no such bucket")                                                   \
	E(BUCKET_ALREADY_EXISTS, -1201, "the bucket is there already")                                          \
	E(KEYS_EXCEED_BUCKET_LIMIT, -1202, "more keys than a bucket holds")                                     \
	E(KEYS_ULTRA_LIMIT, -1203, "more keys than the tier holds")                                             \
	E(UNABLE_OFFLOAD, -1300, "the object cannot be moved to a slower tier")                                 \
	E(UNABLE_OFFLOADING, -1301, "objects cannot be moved to a slower tier now")                             \
	E(TASK_NOT_FOUND, -1400, "there is no such task")                                                       \
	E(TASK_PENDING_LIMIT_EXCEEDED, -1401, "too many tasks are waiting")                                     \
	E(EMPTY_REPLICAS, -1500, "the object has no replica")                                                   \
	E(TIER_NOT_FOUND, -1501, "there is no such tier")                                                       \
	E(DATA_COPY_FAILED, -1502, "the bytes could not be copied between tiers")                               \
	E(SHUTTING_DOWN, -1600, "the store is closing")                                                         \
	E(ASYNC_ENQUEUE_FAILED, -1601, "a queue to the master is full or stopped")

enum neap_store_error {
#define NEAP_STORE_ERROR_ENUM(name, number, text) NEAP_STORE_##name = (number),
	NEAP_STORE_ERRORS(NEAP_STORE_ERROR_ENUM)
#undef NEAP_STORE_ERROR_ENUM
};

/* "NO_AVAILABLE_HANDLE"; of a number of neap/error.h its name there; "UNKNOWN_ERROR" for any other. Any thread. */
NEAP_API const char *neap_store_error_name(int error);

/* The sentence beside the number. Any thread. */
NEAP_API const char *neap_store_error_text(int error);

#ifdef __cplusplus
}
#endif
#endif
