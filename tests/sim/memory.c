/* Memory at addresses that the run alone decides. They are not only told to peers: the order in which ranges lie decides what an index of them
 * copies, where they begin decides how a copy is cut. So they must not come from an allocator that remembers former runs. */
#include "tests/sim/sim.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#ifndef __has_feature
#define __has_feature(x) 0
#endif
#if defined(__SANITIZE_ADDRESS__) || __has_feature(address_sanitizer)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)(address), (void)(bytes))
#endif

#define MEMORY_BASE UINT64_C(0x200000000000)
#define PAGE 4096u

static size_t pages_of(size_t bytes)
{
	return (bytes + PAGE - 1) / PAGE * PAGE;
}

/* No address is used twice, and a page between two is nobody's: who uses memory that was returned, or reaches beyond its own, stops there. */
void *sim_memory_take(struct sim *sim, size_t bytes)
{
	size_t size = pages_of(bytes);
	unsigned char *at = (unsigned char *)(uintptr_t)(MEMORY_BASE + sim->memory_used);
	void *memory = mmap(at, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE | MAP_NORESERVE, -1, 0);
	if (memory != at) {
		perror("sim: its addresses are taken; do two simulations with memory live at once? mmap");
		abort();
	}
	sim->memory_used += size + PAGE;
	ASAN_UNPOISON_MEMORY_REGION(at, size); /* of a run before this one */
	ASAN_POISON_MEMORY_REGION(at + bytes, size - bytes);
	return memory;
}

void sim_memory_return(void *memory, size_t bytes)
{
	if (memory)
		munmap(memory, pages_of(bytes));
}

void sim_memory_end(struct sim *sim)
{
	if (sim->memory_used > 0)
		munmap((void *)(uintptr_t)MEMORY_BASE, sim->memory_used);
}
