/* Grant tokens in messages: the secret, and beside it the keys for devices. Who does not know keys, or has none, leaves them out: then the
 * grant is good over TCP. */
#ifndef NEAP_STORE_PEER_TOKEN_H
#define NEAP_STORE_PEER_TOKEN_H

#include "store/peer/messages_all.h"
#include <neap/engine.h>
#include <string.h>

#define PEER_TOKEN_BYTES sizeof(((struct neap_grant_token *)0)->bytes)

static inline void peer_token_tell(struct remote_slice *slice, const struct neap_grant_token *token)
{
	slice->token = (struct neap_rpc_view){(const char *)token->bytes, sizeof token->bytes};
	slice->keys = (struct neap_rpc_view){(const char *)token->keys, token->keys_length};
}

/* Its token has the right length. Keys that are longer than we know are none. */
static inline void peer_token_take(const struct remote_slice *slice, struct neap_grant_token *token_p)
{
	memset(token_p, 0, sizeof *token_p);
	memcpy(token_p->bytes, slice->token.bytes, sizeof token_p->bytes);
	if (slice->keys.length == 0 || slice->keys.length > sizeof token_p->keys)
		return;
	token_p->keys_length = slice->keys.length;
	memcpy(token_p->keys, slice->keys.bytes, slice->keys.length);
}

#endif
