#define FSM_DEFINE
#include "store/owner/move_record_fsm.h"
