#include "store/rpc/body.h"
#define MESSAGE_DEFINE
#include "store/master/messages.h"
