/* messages.h once: it has no guard of its own, because its tables are made by including it. */
#ifndef NEAP_STORE_PEER_MESSAGES_ALL_H
#define NEAP_STORE_PEER_MESSAGES_ALL_H
#include "store/peer/messages.h"
#endif
