#define FSM_DEFINE
#include "transports/tcp/session_fsm.h"
