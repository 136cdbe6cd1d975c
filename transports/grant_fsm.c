#define FSM_DEFINE
#include "transports/grant_fsm.h"
