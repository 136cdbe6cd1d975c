#define FSM_DEFINE
#include "store/directory/directory_life_fsm.h"
