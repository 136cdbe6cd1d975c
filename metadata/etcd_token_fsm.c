#define FSM_DEFINE
#include "metadata/etcd_token_fsm.h"
