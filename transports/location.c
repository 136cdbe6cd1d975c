/* Where memory lies: the NUMA node of a range's first page, asked of the kernel for all ranges of a call at once. */
#include "transports/registry.h"
#include <numaif.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static void unknown(uint32_t count, char (*locations)[32])
{
	for (uint32_t i = 0; i < count; i++)
		memcpy(locations[i], "*", 2);
}

void neap_location_find(struct neap_reactor *reactor, void *const *addresses, uint32_t count, char (*locations)[32])
{
	unknown(count, locations);
	if (count == 0 || neap_reactor_simulated(reactor))
		return;
	size_t bytes = count * (sizeof(void *) + sizeof(int));
	void **pages = neap_allocate(reactor, bytes);
	if (!pages)
		return;
	int *nodes = (int *)(void *)(pages + count);
	uintptr_t page_mask = (uintptr_t)sysconf(_SC_PAGESIZE) - 1;
	for (uint32_t i = 0; i < count; i++)
		pages[i] = (void *)((uintptr_t)addresses[i] & ~page_mask);
	/* A page that was never touched has no node yet, and a kernel may refuse: then it stays unknown. */
	if (move_pages(0, count, pages, NULL, nodes, 0) >= 0)
		for (uint32_t i = 0; i < count; i++)
			if (nodes[i] >= 0)
				snprintf(locations[i], sizeof locations[i], "cpu:%d", nodes[i]);
	neap_release(reactor, pages, bytes);
}
