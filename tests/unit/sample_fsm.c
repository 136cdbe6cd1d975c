#define FSM_DEFINE
#include "tests/unit/sample_fsm.h"
