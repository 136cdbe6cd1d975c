#define FSM_DEFINE
#include "transports/region_fsm.h"
