#define FSM_DEFINE
#include "metadata/redis_call_fsm.h"
