/* The messages that the RPC itself speaks: hello, its answer, and what comes with a status that is not 0. */
#ifndef NEAP_STORE_RPC_HELLO_H
#define NEAP_STORE_RPC_HELLO_H

#include "store/rpc/body.h"

#define MESSAGE rpc_hello
#define MESSAGE_NAME "Hello"
#define MESSAGE_FIELDS(F, L)                                                                              \
	F(BYTES, instance, REQUIRED, 16)         /* of the client's process: random at each start */         \
	F(BYTES, expected, OPTIONAL, 16)         /* instance of the server that is meant; empty: whoever answers */ \
	F(U64, lane, OPTIONAL, UINT64_MAX)       /* which of the client's request id spaces; 0: none, no ONCE calls */ \
	F(U64, epoch, OPTIONAL, UINT64_MAX)      /* of the lane; rises when the server has lost its memory of it */ \
	F(BOOL, resume, OPTIONAL, 0)             /* the server has met this epoch before */                  \
	F(U64, body_max, OPTIONAL, UINT32_MAX)   /* longest body the client takes; 0: not said */
#include "store/rpc/declare.h"

#define MESSAGE rpc_welcome
#define MESSAGE_NAME "Welcome"
#define MESSAGE_FIELDS(F, L)                                                           \
	F(BYTES, instance, REQUIRED, 16)       /* of the server's process */             \
	F(U64, epoch, OPTIONAL, UINT64_MAX)    /* of the server: its owner epoch */      \
	F(U64, body_max, OPTIONAL, UINT32_MAX) /* longest body the server takes */       \
	F(U64, calls_max, OPTIONAL, UINT32_MAX) /* calls it works on at once for this connection */ \
	F(TEXT, why, OPTIONAL, 512)            /* with a status: a sentence */
#include "store/rpc/declare.h"

#define MESSAGE rpc_refusal
#define MESSAGE_NAME "Refusal"
#define MESSAGE_FIELDS(F, L)    \
	F(TEXT, why, OPTIONAL, 512) \
	F(U64, retry_after_ms, OPTIONAL, UINT64_MAX)
#include "store/rpc/declare.h"

#endif
