/* What the rules (routes.c) use of the table's memory (routes_table.c). */
#ifndef NEAP_STORE_ROUTES_TABLE_H
#define NEAP_STORE_ROUTES_TABLE_H

#include "store/directory/routes.h"

/* Found or made; NEAP_ROUTE_NONE: full. A key without replicas must not stay: neap_routes_table_tidy drops it. */
uint32_t neap_routes_table_key(struct neap_routes *routes, struct neap_key_text text);
void neap_routes_table_tidy(struct neap_routes *routes, uint32_t key);

/* NULL: full. The values are for the caller to fill in. */
struct neap_route_replica *neap_routes_table_add(struct neap_routes *routes, uint32_t key, uint32_t segment);
/* The key goes with its last replica. */
void neap_routes_table_remove(struct neap_routes *routes, struct neap_route_replica *replica);
/* From the segment's list to its list of lost ones. */
void neap_routes_table_lose(struct neap_routes *routes, struct neap_route_replica *replica);

#endif
