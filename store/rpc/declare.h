/* Template: turns a message's list of fields into its struct and, where MESSAGE_DEFINE is set, into its table.
 *
 *   #define MESSAGE        pre_write        // struct pre_write, neap_rpc_message_pre_write
 *   #define MESSAGE_NAME   "PreWrite"       // for what people read
 *   #define MESSAGE_FIELDS(F, L)                                                              \
 *           F(TEXT, key, REQUIRED, 4096)               // at most 4096 bytes                  \
 *           F(U64, size, REQUIRED, UINT64_MAX)         // at most this value                  \
 *           L(remote_buffer, buffers, OPTIONAL, 64)    // at most 64 of an earlier message
 *   #include "store/rpc/declare.h"
 *
 * MESSAGE_DEFAULTS may be set to the address of a struct for absent optional fields; it must be known where the table is.
 * A header of messages is included by all who speak them; one .c sets MESSAGE_DEFINE and includes it, after the headers it needs.
 * Kinds and bounds: store/rpc/body.h. No include guard: it is included once a message. */
#include "store/rpc/body.h"

#ifndef MESSAGE_JOIN
#define MESSAGE_JOIN_(a, b) a##b
#define MESSAGE_JOIN(a, b) MESSAGE_JOIN_(a, b)
#define MESSAGE_TYPE_U64 uint64_t
#define MESSAGE_TYPE_I64 int64_t
#define MESSAGE_TYPE_BOOL bool
#define MESSAGE_TYPE_BYTES struct neap_rpc_view
#define MESSAGE_TYPE_TEXT struct neap_rpc_view
#define MESSAGE_IS_REQUIRED true
#define MESSAGE_IS_OPTIONAL false
#endif

#define MESSAGE_MEMBER(kind, name, need, max) MESSAGE_TYPE_##kind name;
#define MESSAGE_LIST_MEMBER(of, name, need, max) struct neap_rpc_list name;

struct MESSAGE {
	MESSAGE_FIELDS(MESSAGE_MEMBER, MESSAGE_LIST_MEMBER)
};

extern const struct neap_rpc_message MESSAGE_JOIN(neap_rpc_message_, MESSAGE);

#ifdef MESSAGE_DEFINE
#ifndef MESSAGE_DEFAULTS
#define MESSAGE_DEFAULTS NULL
#endif
#define MESSAGE_ROW(kind_, name_, need_, max_) \
	{#name_, NEAP_RPC_##kind_, MESSAGE_IS_##need_, offsetof(struct MESSAGE, name_), max_, NULL},
#define MESSAGE_LIST_ROW(of_, name_, need_, max_) \
	{#name_, NEAP_RPC_LIST, MESSAGE_IS_##need_, offsetof(struct MESSAGE, name_), max_, &neap_rpc_message_##of_},

static const struct neap_rpc_field MESSAGE_JOIN(MESSAGE, _fields)[] = {MESSAGE_FIELDS(MESSAGE_ROW, MESSAGE_LIST_ROW)};

_Static_assert(sizeof(struct MESSAGE) <= NEAP_RPC_STRUCT_MAX, "a message's struct has at most NEAP_RPC_STRUCT_MAX bytes");
_Static_assert(sizeof MESSAGE_JOIN(MESSAGE, _fields) / sizeof(struct neap_rpc_field) <= NEAP_RPC_FIELDS_MAX,
               "a message has at most NEAP_RPC_FIELDS_MAX fields");

const struct neap_rpc_message MESSAGE_JOIN(neap_rpc_message_, MESSAGE) = {
	.name = MESSAGE_NAME,
	.size = sizeof(struct MESSAGE),
	.field_count = sizeof MESSAGE_JOIN(MESSAGE, _fields) / sizeof(struct neap_rpc_field),
	.fields = MESSAGE_JOIN(MESSAGE, _fields),
	.defaults = MESSAGE_DEFAULTS,
};
#undef MESSAGE_ROW
#undef MESSAGE_LIST_ROW
#endif

#undef MESSAGE_MEMBER
#undef MESSAGE_LIST_MEMBER
#undef MESSAGE
#undef MESSAGE_NAME
#undef MESSAGE_FIELDS
#undef MESSAGE_DEFAULTS
