#define FSM_DEFINE
#include "transports/rdma/queue_fsm.h"
