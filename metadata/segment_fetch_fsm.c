#define FSM_DEFINE
#include "metadata/segment_fetch_fsm.h"
