/* The machine classes of this room, one set a reactor, shared by all engines on it. */
#ifndef NEAP_TRANSPORTS_CLASSES_H
#define NEAP_TRANSPORTS_CLASSES_H

#include "reactor/core.h"

struct neap_transports_classes {
	struct neap_resident resident;
	struct neap_reactor_class region, grant, slice, batch, segment, engine;
};

/* Makes them on first use. NULL: out of memory or out of classes. */
struct neap_transports_classes *neap_transports_prepare(struct neap_reactor *reactor);

#endif
