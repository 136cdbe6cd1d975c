/* bench_directory [MAX_KEYS [REPETITIONS]]: what a key costs in the table of routes: CPU nanoseconds to add, look up (there and not
 * there) and remove at 10^3 keys and up, what all but one add in a thousand stay below (growth must not pause), bytes a key; and
 * matching keys by a regular expression. Keys look like those of a cache of token blocks (38 bytes). Random order. Medians of the
 * repetitions. */
#include "store/directory/match.h"
#include "store/directory/routes.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define REPETITIONS_MAX 32u
#define SEGMENTS 64u

enum { ADD, LOOKUP, MISS, REMOVE, SLOW, MATCH, COLUMNS };

struct bench {
	struct neap_reactor *reactor;
	struct neap_pool segments;
	struct neap_routes routes;
	uint32_t *order, *took_ns;
	uint32_t keys;
	uint64_t random, allocated, before;
	bool warm; /* memory is touched when it is taken, so that the kernel's clearing of (huge) pages is not in single adds */
};

static uint64_t now_ns(clockid_t clock)
{
	struct timespec now;
	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static uint32_t below(struct bench *bench, uint32_t bound)
{
	bench->random = bench->random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
	return (uint32_t)((bench->random >> 32) * bound >> 32);
}

static struct neap_key_text name(char *text, uint32_t number, char kind)
{
	uint64_t mixed = (number + 1) * UINT64_C(0x9e3779b97f4a7c15);
	int length = snprintf(text, 64, "model/7b/%c/%016llx/%08x/", kind, (unsigned long long)mixed, number);
	return (struct neap_key_text){text, (uint32_t)length};
}

static void shuffle(struct bench *bench)
{
	for (uint32_t i = 0; i < bench->keys; i++)
		bench->order[i] = i;
	for (uint32_t i = bench->keys; i > 1; i--) {
		uint32_t other = below(bench, i), kept = bench->order[i - 1];
		bench->order[i - 1] = bench->order[other];
		bench->order[other] = kept;
	}
}

static void must(int error, const char *what)
{
	if (error) {
		fprintf(stderr, "bench_directory: %s: %d\n", what, error);
		exit(1);
	}
}

static int by_number(const void *a, const void *b)
{
	const uint32_t *left = a, *right = b;
	return (*left > *right) - (*left < *right);
}

/* `slow_ns`, when given: what all but one in a thousand stay below. */
static double change_all(struct bench *bench, enum neap_key_change_kind kind, double *slow_ns)
{
	char text[64];
	shuffle(bench);
	uint64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t i = 0; i < bench->keys; i++) {
		struct neap_key_change change = {.kind = kind, .key = name(text, bench->order[i], 'k'), .size = 65536, .generation = 1};
		uint64_t before_ns = slow_ns ? now_ns(CLOCK_THREAD_CPUTIME_ID) : 0;
		neap_routes_change(&bench->routes, bench->order[i] % SEGMENTS, 1, false, &change);
		must(change.error, "change");
		if (slow_ns)
			bench->took_ns[i] = (uint32_t)(now_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns);
	}
	double each_ns = (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / bench->keys;
	if (slow_ns) {
		qsort(bench->took_ns, bench->keys, sizeof *bench->took_ns, by_number);
		*slow_ns = bench->took_ns[bench->keys - bench->keys / 1000 - 1];
	}
	return each_ns;
}

static double look_up(struct bench *bench, char kind)
{
	char text[64];
	uint32_t found = 0, count = bench->keys < 200000 ? bench->keys : 200000;
	shuffle(bench);
	uint64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t i = 0; i < count; i++)
		found += neap_routes_find(&bench->routes, name(text, bench->order[i], kind)) != NEAP_ROUTE_NONE;
	uint64_t end_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	must(found != (kind == 'k' ? count : 0), "lookups");
	return (double)(end_ns - begin_ns) / count;
}

/* The same measure of nothing at all: what the machine itself does to one in a thousand. */
static double nothing(struct bench *bench, uint32_t count)
{
	for (uint32_t i = 0; i < count; i++) {
		uint64_t before_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
		bench->took_ns[i] = (uint32_t)(now_ns(CLOCK_THREAD_CPUTIME_ID) - before_ns);
	}
	qsort(bench->took_ns, count, sizeof *bench->took_ns, by_number);
	return bench->took_ns[count - count / 1000 - 1];
}

/* What it costs to make the names is not the table's. */
static double names(struct bench *bench)
{
	char text[64];
	uint32_t sum = 0;
	uint64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	for (uint32_t i = 0; i < bench->keys; i++) {
		struct neap_key_text key = name(text, bench->order[i], 'k');
		sum += (unsigned char)key.text[20];
	}
	must(sum == 0, "names");
	return (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / bench->keys;
}

static double match_all(struct bench *bench)
{
	static struct neap_match match;
	char why[100];
	uint64_t steps = 0;
	uint32_t at = 0, matched = 0, count = 0;
	static const char pattern[] = "^model/\\d+b/k/[0-9a-f]+/0000[0-9a-f]*7/$";
	must(neap_match_compile(&match, pattern, sizeof pattern - 1, why, sizeof why), why);
	uint64_t begin_ns = now_ns(CLOCK_THREAD_CPUTIME_ID);
	for (const struct neap_route_key *key; (key = neap_pool_next(&bench->routes.keys, &at)); count++)
		matched += neap_match_run(&match, key->text, key->length, &steps);
	must(matched == 0, "match");
	return (double)(now_ns(CLOCK_THREAD_CPUTIME_ID) - begin_ns) / count;
}

static void *allocate(void *user, size_t bytes)
{
	struct bench *bench = user;
	volatile char *memory = calloc(1, bytes);
	bench->allocated += bytes;
	for (size_t at = 0; bench->warm && memory && at < bytes; at += 4096)
		memory[at] = 0;
	return (void *)(uintptr_t)memory;
}

static void release(void *user, void *memory, size_t bytes)
{
	struct bench *bench = user;
	bench->allocated -= memory ? bytes : 0;
	free(memory);
}

static void open_table(struct bench *bench)
{
	struct neap_routes_options options = {
		.keys_max = bench->keys, .replicas_max = bench->keys, .cells_max = 1, .max_client_per_key = 1, .epoch = 1};
	must(neap_pool_create(&bench->segments, bench->reactor, sizeof(struct neap_route_segment), SEGMENTS), "segments");
	for (uint32_t i = 0; i < SEGMENTS; i++)
		neap_route_segment_begin(neap_pool_take(&bench->segments), i);
	uint64_t before = bench->allocated;
	must(neap_routes_create(&bench->routes, bench->reactor, &options, &bench->segments), "routes");
	bench->before = before;
}

static void close_table(struct bench *bench)
{
	neap_routes_destroy(&bench->routes);
	neap_pool_destroy(&bench->segments);
}

static int by_value(const void *a, const void *b)
{
	const double *left = a, *right = b;
	return (*left > *right) - (*left < *right);
}

static void run(struct bench *bench, uint32_t repetitions)
{
	static double results[COLUMNS][REPETITIONS_MAX];
	double bytes = 0;
	for (uint32_t i = 0; i < repetitions; i++) {
		open_table(bench);
		double add_ns = change_all(bench, NEAP_KEY_ADD, NULL), name_ns = names(bench);
		bytes = (double)(bench->allocated - bench->before) / bench->keys;
		results[ADD][i] = add_ns - name_ns;
		results[LOOKUP][i] = look_up(bench, 'k') - name_ns;
		results[MISS][i] = look_up(bench, 'm') - name_ns;
		results[MATCH][i] = match_all(bench);
		results[REMOVE][i] = change_all(bench, NEAP_KEY_REMOVE, NULL) - name_ns;
		close_table(bench);
		bench->warm = true;
		open_table(bench);
		(void)change_all(bench, NEAP_KEY_ADD, &results[SLOW][i]);
		close_table(bench);
		bench->warm = false;
	}
	printf("%9u", bench->keys);
	for (int column = 0; column < COLUMNS; column++) {
		qsort(results[column], repetitions, sizeof(double), by_value);
		printf(" %9.0f", results[column][repetitions / 2]);
	}
	printf(" %9.0f\n", bytes);
	fflush(stdout);
}

int main(int argc, char **argv)
{
	unsigned long most = argc > 1 ? strtoul(argv[1], NULL, 10) : 1000000;
	unsigned long repetitions = argc > 2 ? strtoul(argv[2], NULL, 10) : 3;
	if (most < 1000 || most > 100000000 || repetitions < 1 || repetitions > REPETITIONS_MAX) {
		fprintf(stderr, "usage: bench_directory [MAX_KEYS (1000 to 100000000) [REPETITIONS (1 to %u)]]\n", REPETITIONS_MAX);
		return 2;
	}
	struct bench bench = {.random = 11};
	struct neap_reactor_options options = {.alloc = {.allocate = allocate, .release = release, .user = &bench}};
	must(neap_reactor_create(&bench.reactor, &options), "reactor");
	bench.order = calloc(most, sizeof *bench.order);
	bench.took_ns = calloc(most, sizeof *bench.took_ns);
	must(!bench.order || !bench.took_ns, "memory");
	printf("CPU ns each, median of %lu; slow: 99.9 %% of the adds stay below, with two clock calls in it\n", repetitions);
	printf("%9s %9s %9s %9s %9s %9s %9s %9s\n", "keys", "add", "lookup", "miss", "remove", "slow", "match", "bytes/key");
	for (unsigned long keys = 1000; keys <= most; keys *= 10) {
		bench.keys = (uint32_t)keys;
		run(&bench, (uint32_t)repetitions);
	}
	printf("slow, measured around nothing: %.0f\n", nothing(&bench, (uint32_t)most));
	free(bench.order);
	free(bench.took_ns);
	return neap_reactor_destroy(bench.reactor) ? 1 : 0;
}
