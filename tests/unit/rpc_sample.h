/* Messages for the tests of the RPC. */
#ifndef UNIT_RPC_SAMPLE_H
#define UNIT_RPC_SAMPLE_H

#include "store/rpc/body.h"

#define MESSAGE sample_item
#define MESSAGE_NAME "Item"
#define MESSAGE_FIELDS(F, L)   \
	F(TEXT, name, REQUIRED, 8) \
	F(U64, size, OPTIONAL, 1000)
#include "store/rpc/declare.h"

#define MESSAGE sample
#define MESSAGE_NAME "Sample"
#define MESSAGE_FIELDS(F, L)             \
	F(TEXT, key, REQUIRED, 64)           \
	F(U64, size, REQUIRED, UINT64_MAX)   \
	F(I64, shift, OPTIONAL, 1000)        \
	F(BOOL, firm, OPTIONAL, 0)           \
	F(BYTES, payload, OPTIONAL, 4194304) \
	L(sample_item, items, OPTIONAL, 1000)
#include "store/rpc/declare.h"

extern const struct sample_defaulted sample_defaults;
#define MESSAGE sample_defaulted
#define MESSAGE_NAME "Defaulted"
#define MESSAGE_FIELDS(F, L)        \
	F(U64, copies, OPTIONAL, 100)   \
	F(BOOL, strict, OPTIONAL, 0)    \
	F(TEXT, colour, OPTIONAL, 16)
#define MESSAGE_DEFAULTS &sample_defaults
#include "store/rpc/declare.h"

#endif
