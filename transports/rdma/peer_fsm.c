#define FSM_DEFINE
#include "transports/rdma/peer_fsm.h"
