/* bench_store [--rounds N] [--seconds S] [--quick] [--only put-REVERSE-4096-64] [--integrity N]
 *
 * Put and Get between two processes over loopback, in both directions, beside the same bytes moved by the engine alone between the same two.
 *
 * One process is the master and the only owner, the other an accessor without tiers. Each row is measured in rounds that take turns with the
 * engine's; the figures are medians, the ratio that of the pairs. 64-KiB-values and larger move in the direction's own way; 4 KiB REVERSE
 * travels inside the call. A put is of a new key each time: the owner evicts as it goes. Gets go round over keys that were put before.
 *
 * --integrity N: N rounds of put, then get at once, at 64 KiB and at 1 MiB, each direction of both; every byte is compared. */
#include "store/directory/local.h"
#include "store/master/service.h"
#include "store/rpc/server.h"
#include <neap/store.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define OUTSTANDING_MAX 64u
#define SAMPLES_MAX (1u << 20)
#define RAW_BYTES (UINT64_C(64) << 20)
#define TIER_BYTES (UINT64_C(1) << 30)
#define GET_KEYS_BYTES (UINT64_C(192) << 20)
#define MS UINT64_C(1000000)

static uint64_t clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void die(const char *what, const char *why)
{
	fprintf(stderr, "bench_store: %s: %s\n", what, why);
	exit(1);
}

static struct neap_engine *make_engine(struct neap_reactor *reactor)
{
	const struct neap_engine_options options = {.local_name = "127.0.0.1", .requests_max = 4096, .batches_max = 1024};
	struct neap_engine *engine;
	char why[300];
	if (neap_engine_create(&engine, reactor, &options, why, sizeof why))
		die("engine", why);
	return engine;
}

static void *make_memory(struct neap_engine *engine, uint64_t bytes, enum neap_access access)
{
	char why[300];
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (memory == MAP_FAILED)
		die("memory", "mmap");
	memset(memory, 1, bytes);
	struct neap_memory range = {.address = memory, .length = bytes, .access = access};
	if (neap_memory_register(engine, &range, 1, NULL, why, sizeof why))
		die("memory", why);
	return memory;
}

/* --- the owner and master ------------------------------------------------------------------------------------------------------ */

struct hello {
	char master[64], engine[128];
	uint64_t raw_address;
};

static int hello_fd;
static struct hello hello;

static void owner_ready(void *user, int error, const char *why)
{
	(void)user;
	if (error)
		die("owner", why);
	if (write(hello_fd, &hello, sizeof hello) != sizeof hello)
		die("owner", "pipe");
}

static int run_owner(void)
{
	struct neap_local_directory_options directory_options = {.first = true};
	struct neap_local_directory *directory;
	struct neap_master_service *service;
	struct neap_rpc_server *server;
	struct neap_reactor *reactor;
	struct neap_store *store;
	struct neap_sockaddr address;
	uint32_t count;
	int system_errno;
	char why[400], tiers[128];
	(void)prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (neap_reactor_create(&reactor, NULL))
		return 1;
	if (neap_local_directory_create(&directory, reactor, &directory_options, why, sizeof why))
		die("directory", why);
	if (neap_master_service_create(&service, reactor, neap_local_directory_face(directory), NULL))
		die("master", "no memory");
	const struct neap_rpc_handler *handlers = neap_master_service_handlers(&count);
	(void)neap_sockaddr_from_numeric("127.0.0.1", 0, &address);
	if (neap_rpc_server_create(&server, reactor, &address, handlers, count, NULL, service, &system_errno, why, sizeof why))
		die("master", why);
	(void)snprintf(hello.master, sizeof hello.master, "127.0.0.1:%u", neap_rpc_server_port(server));
	struct neap_engine *engine = make_engine(reactor);
	(void)snprintf(hello.engine, sizeof hello.engine, "%s", neap_engine_name(engine));
	hello.raw_address = (uint64_t)(uintptr_t)make_memory(engine, RAW_BYTES, NEAP_OPEN);
	(void)snprintf(tiers, sizeof tiers, "{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":%llu,\"priority\":1}]}", (unsigned long long)TIER_BYTES);
	const struct neap_store_options options = {.master = hello.master, .tiers = tiers, .ready = owner_ready};
	if (neap_store_create(&store, engine, &options, why, sizeof why))
		die("owner", why);
	return neap_reactor_run(reactor) != 0;
}

/* --- the accessor --------------------------------------------------------------------------------------------------------------- */

struct slot {
	uint32_t index;
	uint64_t began_ns;
};

static struct {
	struct neap_reactor *reactor;
	struct neap_engine *engine;
	struct neap_store *store;
	neap_segment_id raw;
	unsigned char *memory; /* one piece for each slot */
	bool ready, opened;

	/* the row that runs */
	bool put, bare;
	enum neap_direction direction;
	uint64_t size, end_ns, next_key, keys, done, failed;
	uint32_t outstanding, running, sample_count;
	struct slot slots[OUTSTANDING_MAX];
	uint32_t *samples;
	char prefix;
} run;

static void drive(const bool *flag)
{
	struct pollfd fd = {.fd = neap_reactor_fd(run.reactor), .events = POLLIN};
	while (flag ? !*flag : run.running > 0) {
		int answer = neap_reactor_run_once(run.reactor, NULL);
		if (answer == NEAP_RUN_ARMED && (flag ? !*flag : run.running > 0))
			(void)poll(&fd, 1, 100);
		if (answer < 0)
			die("reactor", neap_error_text(answer));
	}
}

static void begin(struct slot *slot);

static void ended(struct slot *slot, bool good, const char *why)
{
	uint64_t now_ns = clock_ns();
	run.running--;
	run.done++;
	if (!good && run.failed++ == 0)
		fprintf(stderr, "bench_store: %s of %llu bytes: %s\n", run.put ? "put" : "get", (unsigned long long)run.size, why);
	if (run.sample_count < SAMPLES_MAX)
		run.samples[run.sample_count++] = (uint32_t)(now_ns - slot->began_ns);
	if (now_ns < run.end_ns && run.failed < 100)
		begin(slot);
}

static void store_done(void *user, const struct neap_store_outcome *outcome)
{
	ended(user, outcome->status == NEAP_STORE_SUCCESS, outcome->why);
}

static void raw_done(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch;
	ended(user, summary->completed == 1, "engine");
}

static void begin(struct slot *slot)
{
	unsigned char *memory = run.memory + (size_t)slot->index * run.size;
	int error;
	slot->began_ns = clock_ns();
	run.running++;
	if (run.bare) {
		struct neap_request request = {.opcode = run.put ? NEAP_WRITE : NEAP_READ, .source = memory, .segment = run.raw,
		                               .target_offset = hello.raw_address + slot->index * run.size % RAW_BYTES, .length = run.size};
		struct neap_batch_options options = {.on_batch = raw_done, .user = slot};
		error = neap_submit(run.engine, &request, 1, &options, NULL);
	} else {
		char text[64];
		uint64_t number = run.put ? run.next_key++ : run.next_key++ % run.keys;
		struct neap_key key = {text, (uint32_t)snprintf(text, sizeof text, "%c/%llu/%016llx", run.prefix, (unsigned long long)run.size,
		                                                (unsigned long long)number)};
		struct neap_slice_of slice = {memory, run.size};
		const struct neap_put_options put = {.direction = run.direction};
		const struct neap_get_options get = {.direction = run.direction};
		error = run.put ? neap_store_put(run.store, &key, &slice, 1, &put, store_done, slot, NULL)
		                : neap_store_get(run.store, &key, &slice, 1, &get, store_done, slot, NULL);
	}
	if (error)
		die("submit", neap_error_text(error));
}

struct figure {
	double per_second, gigabytes, p50_us, p99_us;
};

static int by_value(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return (x > y) - (x < y);
}

static struct figure measure(bool bare, bool put, enum neap_direction direction, uint64_t size, uint32_t outstanding, double seconds)
{
	uint64_t began_ns = clock_ns();
	run.bare = bare;
	run.put = put;
	run.direction = direction;
	run.size = size;
	run.outstanding = outstanding;
	run.done = run.failed = 0;
	run.sample_count = 0;
	run.end_ns = began_ns + (uint64_t)(seconds * 1e9);
	for (uint32_t i = 0; i < outstanding; i++) {
		run.slots[i].index = i;
		begin(&run.slots[i]);
	}
	drive(NULL);
	double taken = (double)(clock_ns() - began_ns) / 1e9;
	if (run.failed)
		die("row", "operations failed");
	qsort(run.samples, run.sample_count, sizeof *run.samples, by_value);
	return (struct figure){(double)run.done / taken, (double)run.done * (double)size / taken / 1e9, run.samples[run.sample_count / 2] / 1e3,
	                       run.samples[run.sample_count * 99ull / 100] / 1e3};
}

static int by_double(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

static double median(double *values, unsigned count)
{
	qsort(values, count, sizeof *values, by_double);
	return values[count / 2];
}

/* Keys for gets of this size. */
static void prepare(uint64_t size)
{
	run.keys = GET_KEYS_BYTES / size;
	if (run.keys > 4096)
		run.keys = 4096;
	uint64_t next = run.next_key;
	run.prefix = 'g';
	run.bare = false;
	run.put = true;
	run.direction = NEAP_REVERSE;
	run.size = size;
	run.failed = run.done = 0;
	run.end_ns = 0;
	for (run.next_key = 0; run.next_key < run.keys;) {
		for (uint32_t i = 0; i < OUTSTANDING_MAX / 8 && (i + 1) * size <= RAW_BYTES && run.next_key < run.keys; i++) {
			run.slots[i].index = i;
			begin(&run.slots[i]);
		}
		drive(NULL);
	}
	run.next_key = next;
	if (run.failed)
		die("prepare", "puts failed");
}

/* The tier's memory is touched when it is first written: that is the kernel's time, once, and no figure of ours. */
static void touch_all(void)
{
	uint64_t rounds = TIER_BYTES / (16u << 20) + 8;
	run.prefix = 't';
	run.put = true;
	run.direction = NEAP_FORWARD;
	run.size = 16u << 20;
	run.end_ns = 0;
	for (uint64_t i = 0; i < rounds; i++) {
		run.slots[0].index = 0;
		begin(&run.slots[0]);
		drive(NULL);
	}
}

static const char *only; /* a row: put|get-DIRECTION-SIZE-OUTSTANDING */

static bool is_wanted(bool put, enum neap_direction direction, uint64_t size, uint32_t outstanding)
{
	char name[64];
	(void)snprintf(name, sizeof name, "%s-%s-%llu-%u", put ? "put" : "get", direction == NEAP_FORWARD ? "FORWARD" : "REVERSE",
	               (unsigned long long)size, outstanding);
	return !only || strcmp(only, name) == 0;
}

static void row(bool put, enum neap_direction direction, uint64_t size, uint32_t outstanding, unsigned rounds, double seconds)
{
	if (!is_wanted(put, direction, size, outstanding))
		return;
	double ratio[64], gigabytes[64], per_second[64], p50[64], p99[64], bare_p50[64];
	if (!put) {
		prepare(size);
		run.prefix = 'g';
	} else {
		run.prefix = 'p';
	}
	(void)measure(false, put, direction, size, outstanding, seconds / 4); /* warm */
	for (unsigned i = 0; i < rounds; i++) {
		struct figure bare = measure(true, put, direction, size, outstanding, seconds / 2);
		struct figure store = measure(false, put, direction, size, outstanding, seconds / 2);
		ratio[i] = store.gigabytes / bare.gigabytes;
		gigabytes[i] = store.gigabytes;
		per_second[i] = store.per_second;
		p50[i] = store.p50_us;
		p99[i] = store.p99_us;
		bare_p50[i] = bare.p50_us;
	}
	printf("%-4s %-8s %8llu x%-3u  %9.0f/s  %7.3f GB/s  p50 %8.1f us  p99 %8.1f us   engine p50 %8.1f us, share %.2f\n", put ? "put" : "get",
	       direction == NEAP_FORWARD ? "FORWARD" : "REVERSE", (unsigned long long)size, outstanding, median(per_second, rounds),
	       median(gigabytes, rounds), median(p50, rounds), median(p99, rounds), median(bare_p50, rounds), median(ratio, rounds));
}

/* --- integrity ------------------------------------------------------------------------------------------------------------------- */

static uint64_t wrong;

static void fill(unsigned char *bytes, uint64_t size, uint64_t seed)
{
	uint64_t state = seed * UINT64_C(0x9e3779b97f4a7c15) + 1;
	for (uint64_t at = 0; at + 8 <= size; at += 8) {
		state ^= state << 13;
		state ^= state >> 7;
		state ^= state << 17;
		memcpy(bytes + at, &state, 8);
	}
}

static void one_done(void *user, const struct neap_store_outcome *outcome)
{
	if (outcome->status != NEAP_STORE_SUCCESS)
		die("integrity", outcome->why);
	*(bool *)user = true;
}

static void integrity(uint64_t rounds, uint64_t size)
{
	unsigned char *expected = malloc(size), *to = run.memory + (UINT64_C(32) << 20);
	static uint64_t number;
	if (!expected)
		die("integrity", "memory");
	for (uint64_t i = 0; i < rounds; i++) {
		char text[64];
		bool done = false;
		struct neap_key key = {text, (uint32_t)snprintf(text, sizeof text, "i/%llu", (unsigned long long)number++)};
		struct neap_slice_of from = {run.memory, size}, into = {to, size};
		const struct neap_put_options put = {.direction = i & 1 ? NEAP_FORWARD : NEAP_REVERSE};
		const struct neap_get_options get = {.direction = i & 2 ? NEAP_FORWARD : NEAP_REVERSE};
		fill(expected, size, i);
		memcpy(run.memory, expected, size);
		if (neap_store_put(run.store, &key, &from, 1, &put, one_done, &done, NULL))
			die("integrity", "put");
		drive(&done);
		memset(run.memory, 0xdd, size); /* it is ours again: nobody reads it any more */
		done = false;
		memset(to, 0xee, size);
		if (neap_store_get(run.store, &key, &into, 1, &get, one_done, &done, NULL))
			die("integrity", "get");
		drive(&done);
		wrong += memcmp(to, expected, size) != 0;
	}
	free(expected);
	printf("integrity: %llu rounds of %llu bytes, put then get at once, all four pairs of directions: %llu wrong\n", (unsigned long long)rounds,
	       (unsigned long long)size, (unsigned long long)wrong);
}

/* --- all of it ---------------------------------------------------------------------------------------------------------------------- */

static void ready(void *user, int error, const char *why)
{
	(void)user;
	if (error)
		die("accessor", why);
	run.ready = true;
}

static void opened(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)user;
	if (error)
		die("engine", why);
	run.raw = segment;
	run.opened = true;
}

static void start_accessor(void)
{
	char why[400];
	if (neap_reactor_create(&run.reactor, NULL))
		die("reactor", "create");
	run.engine = make_engine(run.reactor);
	run.memory = make_memory(run.engine, RAW_BYTES, NEAP_GRANT_ONLY);
	run.samples = calloc(SAMPLES_MAX, sizeof *run.samples);
	const struct neap_store_options options = {.master = hello.master, .ready = ready};
	if (neap_store_create(&run.store, run.engine, &options, why, sizeof why))
		die("accessor", why);
	drive(&run.ready);
	if (neap_segment_open(run.engine, hello.engine, opened, NULL))
		die("engine", "open");
	drive(&run.opened);
}

int main(int argc, char **argv)
{
	unsigned rounds = 5;
	double seconds = 1;
	uint64_t integrity_rounds = 0;
	bool quick = false;
	for (int i = 1; i < argc; i++) {
		if (strcmp(argv[i], "--rounds") == 0 && i + 1 < argc)
			rounds = (unsigned)strtoul(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--seconds") == 0 && i + 1 < argc)
			seconds = strtod(argv[++i], NULL);
		else if (strcmp(argv[i], "--integrity") == 0 && i + 1 < argc)
			integrity_rounds = strtoull(argv[++i], NULL, 0);
		else if (strcmp(argv[i], "--only") == 0 && i + 1 < argc)
			only = argv[++i];
		else if (strcmp(argv[i], "--quick") == 0)
			quick = true;
		else
			die(argv[i], "flags are --rounds N (1..63), --seconds S of a row's round, --quick, --only ROW, --integrity N");
	}
	if (rounds == 0 || rounds > 63 || seconds <= 0)
		die("flags", "--rounds is 1 to 63, --seconds more than 0");
	int pipes[2];
	if (pipe(pipes))
		die("pipe", "create");
	pid_t child = fork();
	if (child == 0) {
		hello_fd = pipes[1];
		_exit(run_owner());
	}
	if (read(pipes[0], &hello, sizeof hello) != sizeof hello)
		die("owner", "did not start");
	start_accessor();
	if (integrity_rounds) {
		integrity(integrity_rounds, 65536);
		integrity(integrity_rounds, 1u << 20);
	} else {
		static const struct {
			uint64_t size;
			uint32_t many;
		} sizes[] = {{4096, 64}, {65536, 16}, {1u << 20, 16}, {16u << 20, 4}};
		touch_all();
		printf("one owner, one accessor, loopback; %u rounds of %.1f s, medians; share: of what the engine moves between the same two\n", rounds,
		       seconds);
		for (size_t s = 0; s < 4; s++)
			for (unsigned put = 2; put-- > 0;)
				for (enum neap_direction direction = NEAP_REVERSE; direction <= NEAP_FORWARD; direction++)
					for (unsigned many = 0; many < (quick ? 1u : 2u); many++)
						row(put != 0, direction, sizes[s].size, many ? sizes[s].many : 1, rounds, seconds);
	}
	(void)kill(child, SIGKILL);
	(void)waitpid(child, NULL, 0);
	return wrong ? 1 : 0;
}
