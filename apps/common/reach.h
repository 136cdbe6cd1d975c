/* Where to listen, so that peers who use our name reach us. */
#ifndef APPS_COMMON_REACH_H
#define APPS_COMMON_REACH_H

#include <stddef.h>

/* The address of this machine that `local_name` ("host" or "host:port") means, as text for neap_engine_options.bind_address. 0,
 * or -1 with a sentence when the name does not resolve or means another machine. Resolves names: blocks, for use before a loop
 * runs. */
int app_reach(const char *local_name, char *bind_address, size_t size, char *why, size_t why_size);

#endif
