/* neap/store.h without a cluster: a table of keys in one process, whose outcomes come from turns as the real one's do, and which a test
 * can make slow, refuse, or keep the caller's memory. */
#ifndef UNIT_FAKE_STORE_H
#define UNIT_FAKE_STORE_H

#include <neap/store.h>

struct fake_store_plan {
	bool hold;            /* operations wait for fake_store_go */
	bool keeps;           /* outcomes are `held`; fake_store_release gives back */
	int put_error, get_error;
	uint32_t unknown_puts; /* so many puts end UNKNOWN; resolve then says that they were stored */
};

struct fake_store_seen {
	uint32_t puts, gets, cancels, resolves, removes, operations; /* operations: under way */
	enum neap_direction direction;
	bool has_crc, verify;
	uint32_t crc, slices;
	uint64_t deadline_ns;
};

extern struct fake_store_plan fake_plan;
extern struct fake_store_seen fake_seen;

struct neap_store *fake_store_open(struct neap_engine *engine);
void fake_store_close(struct neap_store *store);
void fake_store_go(struct neap_store *store);
void fake_store_release(struct neap_store *store);
const void *fake_store_value(struct neap_store *store, const char *key, uint64_t *size_p); /* NULL: none */

#endif
