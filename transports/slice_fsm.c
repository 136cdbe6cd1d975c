#define FSM_DEFINE
#include "transports/slice_fsm.h"
