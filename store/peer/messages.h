/* What accessors and owners say to each other: the messages of the peer RPC. docs/WIRE.md has the list for readers.
 *
 * Every address in here is a grant of whoever named it, for the other side's engine instance. The owner epoch is in the RPC's welcome:
 * ids of an owner that was restarted are unknown to its successor. Included by all who speak them; messages.c has the tables. */

/* --- pieces of others */

/* keys: of the grant, for RDMA devices; store/peer/token.h. */
#define MESSAGE remote_slice
#define MESSAGE_NAME "RemoteSlice"
#define MESSAGE_FIELDS(F, L)                     \
	F(TEXT, segment, REQUIRED, 255)              \
	F(U64, address, REQUIRED, UINT64_MAX)        \
	F(U64, length, REQUIRED, UINT64_MAX)         \
	F(BYTES, token, REQUIRED, 32)                \
	F(BYTES, keys, OPTIONAL, 256)
#include "store/rpc/declare.h"

/* A pin whose reader has finished; rides on any request to its owner. */
#define MESSAGE finished_pin
#define MESSAGE_NAME "FinishedPin"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, key, REQUIRED, 4096)                \
	F(U64, read_operation_id, REQUIRED, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE empty_reply
#define MESSAGE_NAME "Done"
#define MESSAGE_FIELDS(F, L) F(U64, reserved, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

/* --- FORWARD */

#define MESSAGE pre_write
#define MESSAGE_NAME "PreWrite"
#define MESSAGE_FIELDS(F, L)                     \
	F(BYTES, key, REQUIRED, 4096)                \
	F(U64, size_bytes, REQUIRED, UINT64_MAX)     \
	F(BYTES, engine, REQUIRED, 16)               \
	F(BOOL, has_tier, OPTIONAL, 1)               \
	F(U64, target_tier, OPTIONAL, UINT32_MAX)    \
	L(finished_pin, finished, OPTIONAL, 64)
#include "store/rpc/declare.h"

#define MESSAGE pre_write_reply
#define MESSAGE_NAME "PreWriteReply"
#define MESSAGE_FIELDS(F, L)                                \
	F(U64, write_operation_id, REQUIRED, UINT64_MAX)        \
	L(remote_slice, remote_buffer, REQUIRED, 1)             \
	F(U64, lease_ms, REQUIRED, UINT32_MAX)
#include "store/rpc/declare.h"

#define MESSAGE write_commit
#define MESSAGE_NAME "WriteCommit"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	F(U64, write_operation_id, REQUIRED, UINT64_MAX)        \
	F(U64, size_bytes, REQUIRED, UINT64_MAX)                \
	F(BOOL, has_crc, OPTIONAL, 1)                           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)
#include "store/rpc/declare.h"

/* Also the reply of WriteRemoteData. created = 0: the key had a value already, and this is what is known of it. */
#define MESSAGE committed_reply
#define MESSAGE_NAME "Committed"
#define MESSAGE_FIELDS(F, L)                                \
	F(U64, generation, REQUIRED, UINT64_MAX)                \
	F(U64, size_bytes, REQUIRED, UINT64_MAX)                \
	F(BOOL, created, REQUIRED, 1)                           \
	F(BOOL, has_crc, OPTIONAL, 1)                           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)
#include "store/rpc/declare.h"

/* quiet: nothing of the write is under way, and nothing will be. */
#define MESSAGE write_revoke
#define MESSAGE_NAME "WriteRevoke"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	F(U64, write_operation_id, REQUIRED, UINT64_MAX)        \
	F(BOOL, quiet, OPTIONAL, 1)
#include "store/rpc/declare.h"

#define MESSAGE pin_key
#define MESSAGE_NAME "PinKey"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	F(BYTES, engine, REQUIRED, 16)                          \
	L(finished_pin, finished, OPTIONAL, 64)
#include "store/rpc/declare.h"

#define MESSAGE pin_key_reply
#define MESSAGE_NAME "PinKeyReply"
#define MESSAGE_FIELDS(F, L)                                \
	F(U64, read_operation_id, REQUIRED, UINT64_MAX)         \
	L(remote_slice, remote_buffer, REQUIRED, 1)             \
	F(U64, lease_ms, REQUIRED, UINT32_MAX)                  \
	F(U64, generation, REQUIRED, UINT64_MAX)                \
	F(BOOL, has_crc, OPTIONAL, 1)                           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)
#include "store/rpc/declare.h"

#define MESSAGE un_pin_key
#define MESSAGE_NAME "UnPinKey"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	F(U64, read_operation_id, REQUIRED, UINT64_MAX)         \
	L(finished_pin, finished, OPTIONAL, 64)
#include "store/rpc/declare.h"

/* --- REVERSE */

/* Either slices, whose grants let the owner read, or the value itself. */
#define MESSAGE write_remote_data
#define MESSAGE_NAME "WriteRemoteData"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	L(remote_slice, src_buffers, OPTIONAL, 64)              \
	F(BYTES, value, OPTIONAL, 65536)                        \
	F(BOOL, has_tier, OPTIONAL, 1)                          \
	F(U64, target_tier, OPTIONAL, UINT32_MAX)               \
	F(BOOL, has_crc, OPTIONAL, 1)                           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)                    \
	L(finished_pin, finished, OPTIONAL, 64)
#include "store/rpc/declare.h"

/* The owner writes into the slices, which together are as long as the value, or answers with the value itself when it has at most
 * inline_max bytes. */
#define MESSAGE read_remote_data
#define MESSAGE_NAME "ReadRemoteData"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	L(remote_slice, dest_buffers, OPTIONAL, 64)             \
	F(U64, inline_max, OPTIONAL, 65536)                     \
	L(finished_pin, finished, OPTIONAL, 64)
#include "store/rpc/declare.h"

#define MESSAGE read_remote_data_reply
#define MESSAGE_NAME "ReadRemoteDataReply"
#define MESSAGE_FIELDS(F, L)                                \
	F(U64, size_bytes, REQUIRED, UINT64_MAX)                \
	F(U64, generation, REQUIRED, UINT64_MAX)                \
	F(BOOL, has_crc, OPTIONAL, 1)                           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)                    \
	F(BOOL, is_inline, OPTIONAL, 1)                         \
	F(BYTES, value, OPTIONAL, 65536)
#include "store/rpc/declare.h"

/* --- both */

/* What the owner has under a key, and whether a write of that id put it there: settles an unknown outcome. */
#define MESSAGE look_up
#define MESSAGE_NAME "LookUp"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	F(U64, write_operation_id, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE look_up_reply
#define MESSAGE_NAME "LookUpReply"
#define MESSAGE_FIELDS(F, L)                                \
	F(BOOL, exists, REQUIRED, 1)                            \
	F(BOOL, same_write, OPTIONAL, 1)                        \
	F(BOOL, pending, OPTIONAL, 1)                           \
	F(U64, size_bytes, OPTIONAL, UINT64_MAX)                \
	F(U64, generation, OPTIONAL, UINT64_MAX)                \
	F(BOOL, has_crc, OPTIONAL, 1)                           \
	F(U64, crc32c, OPTIONAL, UINT32_MAX)
#include "store/rpc/declare.h"

/* Who the owner is, beside its instance: where its engine is found. */
#define MESSAGE describe
#define MESSAGE_NAME "Describe"
#define MESSAGE_FIELDS(F, L) F(U64, reserved, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#define MESSAGE described
#define MESSAGE_NAME "Described"
#define MESSAGE_FIELDS(F, L)                                \
	F(TEXT, engine, REQUIRED, 255)
#include "store/rpc/declare.h"

/* generation 0: whatever there is. */
#define MESSAGE remove_key
#define MESSAGE_NAME "RemoveKey"
#define MESSAGE_FIELDS(F, L)                                \
	F(BYTES, key, REQUIRED, 4096)                           \
	F(U64, generation, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"
