#include "store/rpc/body.h"
#define MESSAGE_DEFINE
#include "apps/client/messages.h"
