/* bench_owner [KEYS [LEASES]]: what an owner costs, in one process and without a network: nanoseconds and bytes of memory for each stored key,
 * each pending write, each pin, and how many PreWrite + WriteCommit without data it does in a second. Pools are made when the owner is, so
 * their places are counted as such, in whole cache lines; beside them what the allocator gave out meanwhile. Defaults: 10^6 keys, 10^5
 * leases. */
#include "store/owner/inside.h"
#include "store/tier/dram_engine.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define VALUE_BYTES 64u

static struct neap_reactor *reactor;
static struct neap_engine *engine;
static struct neap_dram dram;
static struct neap_dram_engine binding;
static struct neap_tiers tiers;
static struct neap_owner *owner;
static size_t allocated;

static void *counted_allocate(void *user, size_t bytes)
{
	(void)user;
	allocated += bytes;
	return calloc(1, bytes);
}

static void counted_release(void *user, void *memory, size_t bytes)
{
	(void)user;
	allocated -= memory ? bytes : 0;
	free(memory);
}

static uint64_t clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "bench_owner: %s: %d %s\n", what, error, neap_store_error_text(error));
		exit(1);
	}
}

static void turn(void)
{
	struct pollfd fd = {.fd = neap_reactor_fd(reactor), .events = POLLIN};
	if (neap_reactor_run_once(reactor, NULL) == NEAP_RUN_ARMED)
		(void)poll(&fd, 1, 10);
}

static void start(uint64_t keys, uint64_t leases)
{
	char why[300];
	uint32_t index;
	uint64_t capacity = (keys + leases) * 2 * VALUE_BYTES + (UINT64_C(64) << 20);
	const struct neap_reactor_options reactor_options = {.alloc = {.allocate = counted_allocate, .release = counted_release}};
	const struct neap_engine_options engine_options = {.grants_max = (uint32_t)leases + 1024, .requests_max = 1024, .batches_max = 1024};
	const struct neap_dram_options dram_options = {.capacity = capacity, .numa_node = -1, .extents_max = (uint32_t)(keys + 2 * leases + 4096)};
	const struct neap_tiers_options tiers_options = {.handles_max = (uint32_t)(keys + 2 * leases + 4096), .watermark_low = 0.98, .watermark_high = 0.99};
	const struct neap_tier_settings settings = {.priority = 1};
	const struct neap_owner_options options = {.keys_max = keys + leases + 4096, .writes_max = (uint32_t)leases + 1024,
	                                           .pins_max = (uint32_t)leases + 1024, .lease_ns = UINT64_C(3000000000)};
	must(neap_reactor_create(&reactor, &reactor_options), "reactor");
	must(neap_engine_create(&engine, reactor, &engine_options, why, sizeof why), why);
	must(neap_dram_create(&dram, reactor, &dram_options, why, sizeof why), why);
	must(neap_dram_engine_begin(&binding, engine, &dram, -1, false, why, sizeof why), why);
	must(neap_tiers_create(&tiers, reactor, &tiers_options), "tiers");
	must(neap_tiers_add(&tiers, &settings, &neap_dram_tier_ops, &dram, capacity, &index), "tier");
	must(neap_owner_create(&owner, engine, &tiers, &options), "owner");
}

static struct neap_key key_of(char text[40], char kind, uint64_t number)
{
	return (struct neap_key){text, (uint32_t)snprintf(text, 40, "%c/%032llx", kind, (unsigned long long)number)};
}

/* A place in a pool. */
static size_t place(size_t bytes)
{
	return (bytes + 63) / 64 * 64;
}

static void say(const char *what, uint64_t count, uint64_t began_ns, size_t before, size_t places)
{
	uint64_t taken_ns = clock_ns() - began_ns;
	printf("%-44s %9llu   %8.0f ns each   %6.0f bytes each\n", what, (unsigned long long)count, (double)taken_ns / (double)count,
	       (double)(allocated - before) / (double)count + (double)places);
}

static void keys(uint64_t count)
{
	char text[40], value[VALUE_BYTES] = "a value";
	uint64_t generation, retry, began_ns = clock_ns();
	size_t before = allocated;
	for (uint64_t i = 0; i < count; i++) {
		struct neap_copy copy = {.key = key_of(text, 'k', i), .bytes = value, .size = sizeof value, .tier = NEAP_TIER_ANY};
		must(neap_owner_put_copy(owner, &copy, &generation, &retry), "put");
	}
	say("keys stored (34 bytes, values of 64)", count, began_ns, before,
	    place(sizeof(struct neap_key_entry)) + place(sizeof(struct neap_handle)) + sizeof(struct neap_extent_node));
	began_ns = clock_ns();
	for (uint64_t i = 0; i < count; i++) {
		struct neap_key key = key_of(text, 'k', i * 7919 % count);
		if (!neap_owner_exists(owner, &key))
			must(1, "a key is not there");
	}
	printf("%-44s %9llu   %8.0f ns each\n", "found again, in another order", (unsigned long long)count,
	       (double)(clock_ns() - began_ns) / (double)count);
}

static void pending(uint64_t count)
{
	char text[40];
	uint64_t retry, began_ns = clock_ns();
	size_t before = allocated;
	struct neap_write_grant grant;
	struct neap_owner_stats stats;
	for (uint64_t i = 0; i < count; i++) {
		struct neap_prewrite request = {.key = key_of(text, 'w', i), .size = VALUE_BYTES, .tier = NEAP_TIER_ANY};
		must(neap_owner_prewrite(owner, &request, &grant, &retry), "prewrite");
	}
	say("writes pending, each under a lease", count, began_ns, before,
	    place(sizeof(struct neap_key_entry)) + place(sizeof(struct neap_handle)) + place(sizeof(struct neap_write_record)));
	began_ns = clock_ns();
	do {
		turn();
		neap_owner_stats(owner, &stats);
	} while (stats.pending + stats.quarantined > 0);
	printf("%-44s %9llu   %8.0f ms after the last was granted (leases of 3000 ms)\n", "all expired, their memory free",
	       (unsigned long long)stats.expired_writes, (double)(clock_ns() - began_ns) / 1e6);
}

static void pins(uint64_t count, uint64_t of)
{
	char text[40];
	uint64_t began_ns = clock_ns();
	size_t before = allocated;
	struct neap_read_grant grant;
	struct neap_owner_stats stats;
	for (uint64_t i = 0; i < count; i++) {
		struct neap_pin request = {.key = key_of(text, 'k', i % of)};
		must(neap_owner_pin(owner, &request, &grant), "pin");
	}
	say("pins, each under a lease", count, began_ns, before, place(sizeof(struct neap_pin_record)));
	do {
		turn();
		neap_owner_stats(owner, &stats);
	} while (stats.pins > 0);
}

static uint64_t committed_count;

static void committed(void *user, int error, uint64_t generation)
{
	(void)user;
	(void)generation;
	must(error, "commit");
	committed_count++;
}

static void writes(uint64_t count)
{
	char text[40];
	uint64_t retry, began_ns = clock_ns();
	struct neap_write_grant grants[64];
	for (uint64_t i = 0; i < count; i += 64) {
		committed_count = 0;
		for (unsigned n = 0; n < 64; n++) {
			struct neap_prewrite request = {.key = key_of(text, 'c', i + n), .size = VALUE_BYTES, .tier = NEAP_TIER_ANY};
			must(neap_owner_prewrite(owner, &request, &grants[n], &retry), "prewrite");
		}
		for (unsigned n = 0; n < 64; n++) {
			struct neap_commit request = {.key = key_of(text, 'c', i + n), .write_id = grants[n].write_id, .size = VALUE_BYTES};
			must(neap_owner_commit(owner, &request, committed, NULL), "commit");
		}
		while (committed_count < 64)
			turn();
		for (unsigned n = 0; n < 64; n++) {
			struct neap_key key = key_of(text, 'c', i + n);
			must(neap_owner_remove(owner, &key), "remove");
		}
	}
	double each_ns = (double)(clock_ns() - began_ns) / (double)count;
	printf("%-44s %9llu   %8.0f ns each   %7.0f a second on this core\n", "PreWrite + WriteCommit + remove, no bytes", (unsigned long long)count,
	       each_ns, 1e9 / each_ns);
}

int main(int argc, char **argv)
{
	uint64_t key_count = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000000, leases = argc > 2 ? strtoull(argv[2], NULL, 0) : 100000;
	if (key_count < 64 || key_count > 100000000 || leases < 64 || leases > 10000000) {
		fprintf(stderr, "bench_owner: 64 to 10^8 keys, 64 to 10^7 leases\n");
		return 2;
	}
	start(key_count, leases);
	writes(256 * 64);
	keys(key_count);
	pins(leases, key_count);
	pending(leases);
	const char *wrong = neap_owner_check(owner);
	if (wrong)
		fprintf(stderr, "bench_owner: %s\n", wrong);
	return wrong != NULL;
}
