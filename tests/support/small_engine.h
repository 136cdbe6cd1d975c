/* With the default sizes an engine's start takes a hundred megabytes of address space, which sanitizers shadow byte by byte: that of a test
 * is small where the test does not say otherwise. */
#ifndef SUPPORT_SMALL_ENGINE_H
#define SUPPORT_SMALL_ENGINE_H

#include <neap/engine.h>

/* `options` may be NULL. */
static inline struct neap_engine_options small_engine(const struct neap_engine_options *options)
{
	struct neap_engine_options filled = options ? *options : (struct neap_engine_options){0};
	if (!filled.requests_max)
		filled.requests_max = 8192;
	if (!filled.batches_max)
		filled.batches_max = 2048;
	if (!filled.peers_max)
		filled.peers_max = 64;
	if (!filled.sessions_max)
		filled.sessions_max = 64;
	if (!filled.regions_max)
		filled.regions_max = 20000;
	if (!filled.grants_max)
		filled.grants_max = 64;
	return filled;
}

#endif
