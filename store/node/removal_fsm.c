#define FSM_DEFINE
#include "store/node/removal_fsm.h"
