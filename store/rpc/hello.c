#define MESSAGE_DEFINE
#include "store/rpc/hello.h"
