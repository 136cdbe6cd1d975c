#define FSM_DEFINE
#include "store/rpc/session_fsm.h"
