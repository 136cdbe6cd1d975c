#define FSM_DEFINE
#include "store/master/announcer_fsm.h"
