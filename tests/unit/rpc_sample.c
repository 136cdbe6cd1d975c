#define MESSAGE_DEFINE
#include "tests/unit/rpc_sample.h"

const struct sample_defaulted sample_defaults = {.copies = 2, .strict = true, .colour = {"blue", 4}};
