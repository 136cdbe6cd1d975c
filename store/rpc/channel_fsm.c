#define FSM_DEFINE
#include "store/rpc/channel_fsm.h"
