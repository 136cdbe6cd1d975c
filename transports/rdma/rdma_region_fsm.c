#define FSM_DEFINE
#include "transports/rdma/rdma_region_fsm.h"
