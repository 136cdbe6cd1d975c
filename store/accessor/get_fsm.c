#define FSM_DEFINE
#include "store/accessor/get_fsm.h"
