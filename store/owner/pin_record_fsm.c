#define FSM_DEFINE
#include "store/owner/pin_record_fsm.h"
