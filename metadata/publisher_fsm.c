#define FSM_DEFINE
#include "metadata/publisher_fsm.h"
