#include "store/rpc/body.h"
#define MESSAGE_DEFINE
#include "store/peer/messages.h"
