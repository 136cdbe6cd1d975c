#define FSM_DEFINE
#include "reactor/connect_fsm.h"
