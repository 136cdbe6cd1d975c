#define FSM_DEFINE
#include "store/rpc/call_fsm.h"
