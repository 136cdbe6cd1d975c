#define FSM_DEFINE
#include "transports/tcp/lane_fsm.h"
