#define FSM_DEFINE
#include "transports/segment_fsm.h"
