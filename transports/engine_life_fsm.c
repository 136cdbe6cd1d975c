#define FSM_DEFINE
#include "transports/engine_life_fsm.h"
