#define FSM_DEFINE
#include "store/directory/client_life_fsm.h"
