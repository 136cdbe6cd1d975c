/* The memory of a tier: address space now, pages when they are touched. */
#include "store/tier/dram.h"
#include <errno.h>
#include <numa.h>
#include <numaif.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_BYTES (UINT64_C(2) << 20)
#define SIMULATED_PAGE 4096u

uint64_t neap_dram_page(const struct neap_reactor *reactor, enum neap_pages pages)
{
	if (neap_reactor_simulated(reactor))
		return SIMULATED_PAGE;
	return pages == NEAP_PAGES_RESERVED ? HUGE_BYTES : (uint64_t)sysconf(_SC_PAGESIZE);
}

/* The allocation's own address stands right before the first page. */
static int map_simulated(struct neap_reactor *reactor, uint64_t capacity, unsigned char **base_p, char *why, size_t why_size)
{
	unsigned char *memory = neap_allocate(reactor, capacity + 2 * SIMULATED_PAGE);
	if (!memory) {
		snprintf(why, why_size, "no memory for a tier of %llu bytes", (unsigned long long)capacity);
		return NEAP_ENOMEM;
	}
	size_t skip = 2 * SIMULATED_PAGE - (uintptr_t)memory % SIMULATED_PAGE;
	*base_p = memory + skip; /* more than a page behind */
	memcpy(*base_p - sizeof memory, &memory, sizeof memory);
	return NEAP_OK;
}

static int bind_to(unsigned char *base, uint64_t capacity, int node, char *why, size_t why_size)
{
	if (numa_available() < 0) {
		snprintf(why, why_size, "numa_node %d: this kernel has no NUMA support; leave numa_node out", node);
		return NEAP_ENUMA;
	}
	if (node > numa_max_node() || !numa_bitmask_isbitset(numa_all_nodes_ptr, (unsigned)node)) {
		snprintf(why, why_size, "numa_node %d: this machine's highest node is %d", node, numa_max_node());
		return NEAP_ENUMA;
	}
	struct bitmask *nodes = numa_allocate_nodemask();
	if (!nodes) {
		snprintf(why, why_size, "out of memory");
		return NEAP_ENOMEM;
	}
	numa_bitmask_setbit(nodes, (unsigned)node);
	/* preferred, as libnuma does it: a full node must not kill the process that touches a page */
	int failed = mbind(base, capacity, MPOL_PREFERRED, nodes->maskp, nodes->size + 1, 0) ? errno : 0;
	numa_free_nodemask(nodes);
	/* a machine with one node and a kernel that does not let us choose: there is nothing to choose */
	if (failed && !(failed == EPERM && numa_max_node() == 0) && !(failed == ENOSYS && node == 0)) {
		snprintf(why, why_size, "numa_node %d: mbind: %s", node, strerror(failed));
		return NEAP_ENUMA;
	}
	return NEAP_OK;
}

/* On an address that huge pages can begin at. */
static unsigned char *map_aligned(uint64_t capacity)
{
	unsigned char *memory =
		mmap(NULL, capacity + HUGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (memory == MAP_FAILED)
		return MAP_FAILED;
	size_t skip = (size_t)(-(uintptr_t)memory & (HUGE_BYTES - 1));
	if (skip > 0)
		munmap(memory, skip);
	munmap(memory + skip + capacity, HUGE_BYTES - skip);
	return memory + skip;
}

int neap_dram_map(struct neap_reactor *reactor, const struct neap_dram_options *options, uint64_t capacity, unsigned char **base_p,
                  char *why, size_t why_size)
{
	if (neap_reactor_simulated(reactor))
		return map_simulated(reactor, capacity, base_p, why, why_size);
	bool reserved = options->pages == NEAP_PAGES_RESERVED;
	unsigned char *base =
		reserved ? mmap(NULL, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0)
				 : map_aligned(capacity);
	if (base == MAP_FAILED && reserved) {
		snprintf(why, why_size,
		         "%llu huge pages of 2 MiB are not to be had (%s): sysctl vm.nr_hugepages=%llu, or leave huge_pages out",
		         (unsigned long long)(capacity / HUGE_BYTES), strerror(errno), (unsigned long long)(capacity / HUGE_BYTES));
		return NEAP_ENOMEM;
	}
	if (base == MAP_FAILED) {
		snprintf(why, why_size, "a mapping of %llu bytes: %s; choose a smaller capacity", (unsigned long long)capacity,
		         strerror(errno));
		return NEAP_ENOMEM;
	}
	if (options->pages == NEAP_PAGES_TRANSPARENT)
		(void)madvise(base, capacity, MADV_HUGEPAGE); /* a wish */
	if (options->numa_node >= 0) {
		int error = bind_to(base, capacity, options->numa_node, why, why_size);
		if (error) {
			munmap(base, capacity);
			return error;
		}
	}
	*base_p = base;
	return NEAP_OK;
}

void neap_dram_unmap(struct neap_reactor *reactor, unsigned char *base, uint64_t capacity)
{
	void *memory;
	if (!base)
		return;
	if (!neap_reactor_simulated(reactor)) {
		munmap(base, capacity);
		return;
	}
	memcpy(&memory, base - sizeof memory, sizeof memory);
	neap_release(reactor, memory, capacity + 2 * SIMULATED_PAGE);
}
