/* For what lives on an engine and needs it to the end, such as a store: while something leans on it neap_engine_close is refused with
 * NEAP_EBUSY, and a stop of its reactor waits. */
#ifndef NEAP_TRANSPORTS_LEAN_H
#define NEAP_TRANSPORTS_LEAN_H

#include <neap/engine.h>

int neap_engine_lean(struct neap_engine *engine); /* NEAP_ECLOSED */
void neap_engine_let_go(struct neap_engine *engine);

#endif
