#define FSM_DEFINE
#include "transports/rdma/device_fsm.h"
