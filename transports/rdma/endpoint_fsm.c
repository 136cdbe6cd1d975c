#define FSM_DEFINE
#include "transports/rdma/endpoint_fsm.h"
