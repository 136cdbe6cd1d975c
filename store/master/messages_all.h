/* messages.h once: it has no guard of its own, because its tables are made by including it. */
#ifndef NEAP_STORE_MASTER_MESSAGES_ALL_H
#define NEAP_STORE_MASTER_MESSAGES_ALL_H
#include "store/master/messages.h"
#endif
