#define FSM_DEFINE
#include "metadata/http_call_fsm.h"
