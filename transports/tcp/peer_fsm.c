#define FSM_DEFINE
#include "transports/tcp/peer_fsm.h"
