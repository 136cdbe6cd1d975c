#define FSM_DEFINE
#include "store/accessor/put_fsm.h"
