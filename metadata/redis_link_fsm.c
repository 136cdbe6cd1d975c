#define FSM_DEFINE
#include "metadata/redis_link_fsm.h"
