#define FSM_DEFINE
#include "transports/rdma/rail_fsm.h"
