#define FSM_DEFINE
#include "metadata/etcd_call_fsm.h"
