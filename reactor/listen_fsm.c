#define FSM_DEFINE
#include "reactor/listen_fsm.h"
