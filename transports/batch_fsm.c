#define FSM_DEFINE
#include "transports/batch_fsm.h"
