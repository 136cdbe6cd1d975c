#define FSM_DEFINE
#include "metadata/handshake_session_fsm.h"
