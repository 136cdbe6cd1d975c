/* The machine classes of this room on one reactor. */
#ifndef NEAP_TRANSPORTS_CLASSES_H
#define NEAP_TRANSPORTS_CLASSES_H

#include "reactor/core.h"

struct neap_transports_classes {
	struct neap_reactor_class *region, *grant, *slice, *batch, *segment, *engine;
};

/* NEAP_ENOMEM, NEAP_ELIMIT. */
int neap_transports_classes_of(struct neap_reactor *reactor, struct neap_transports_classes *classes);

#endif
