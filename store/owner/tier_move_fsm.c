#define FSM_DEFINE
#include "store/owner/tier_move_fsm.h"
