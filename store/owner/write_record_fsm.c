#define FSM_DEFINE
#include "store/owner/write_record_fsm.h"
