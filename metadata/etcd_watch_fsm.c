#define FSM_DEFINE
#include "metadata/etcd_watch_fsm.h"
