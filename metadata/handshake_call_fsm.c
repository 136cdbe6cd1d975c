#define FSM_DEFINE
#include "metadata/handshake_call_fsm.h"
