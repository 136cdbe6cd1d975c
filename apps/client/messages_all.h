/* messages.h once: it has no guard of its own, because its tables are made by including it. */
#ifndef APPS_CLIENT_MESSAGES_ALL_H
#define APPS_CLIENT_MESSAGES_ALL_H
#include "apps/client/messages.h"
#endif
