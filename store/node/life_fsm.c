#define FSM_DEFINE
#include "store/node/life_fsm.h"
