#define FSM_DEFINE
#include "transports/rdma/rdma_slab_fsm.h"
