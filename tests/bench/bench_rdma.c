/* bench_rdma: what RDMA's machines cost for each piece of a request, without a device: verbs that succeed at once, and move nothing. One
 * core asks; the targets only answer handshakes. For queue depths and for numbers of endpoints: nanoseconds a piece, pieces a second, bytes
 * of memory a piece under way. Beside each row the bare loop over the same verbs: post, poll, nothing else. Medians of five runs. And what it
 * costs to be sure: WRITEs that are to be placed, READs of a device that is doubted. */
#include "metadata/handshake.h"
#include "tests/support/instant_verbs.h"
#include "transports/rdma/rdma.h"
#include "transports/topology/topology.h"
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define PIECE_BYTES 65536u
#define RUNS 5u
#define REMOTE_ADDRESS UINT64_C(0x100000000)
#define REMOTE_BYTES (UINT64_C(1) << 40)

static struct neap_reactor *reactor;
static struct neap_engine *engine;
static struct neap_topology *topology;
static struct neap_helper *helper;
static unsigned char *memory;
static uint64_t memory_bytes;
static size_t allocated;

static void *counted_allocate(void *user, size_t bytes)
{
	(void)user;
	allocated += bytes;
	return calloc(1, bytes);
}

static void counted_release(void *user, void *block, size_t bytes)
{
	(void)user;
	allocated -= block ? bytes : 0;
	free(block);
}

/* Of this thread: it never waits, and others may be on the machine. */
static uint64_t clock_ns(void)
{
	struct timespec now;
	clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
	return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static void must(int error, const char *what)
{
	if (!error)
		return;
	fprintf(stderr, "bench_rdma: %s: %s\n", what, neap_error_text(error));
	exit(1);
}

static void turn(void)
{
	struct pollfd fd = {.fd = neap_reactor_fd(reactor), .events = POLLIN};
	if (neap_reactor_run_once(reactor, NULL) == NEAP_RUN_ARMED)
		(void)poll(&fd, 1, 10);
}

/* --- targets: a descriptor with one device and one buffer, and queue pairs that nobody looks at */

struct target {
	struct neap_handshake_service *service;
	char name[64];
};

static char *describe(void *user, size_t *length_p)
{
	struct target *target = user;
	char why[200], *text = NULL;
	uint32_t key = 7;
	char *device = (char *)(uintptr_t)INSTANT_DEVICE;
	struct neap_buffer_desc buffer = {.address = REMOTE_ADDRESS, .length = REMOTE_BYTES, .name = (char *)(uintptr_t)"cpu:0",
	                                  .rkeys = &key, .lkeys = &key, .key_count = 1};
	struct neap_device_desc devices = {.name = device, .gid = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 2}};
	struct neap_priority_row row = {.location = (char *)(uintptr_t)"cpu:0", .preferred = &device, .preferred_count = 1};
	struct neap_descriptor descriptor = {.name = target->name, .protocol = NEAP_PROTOCOL_RDMA, .buffers = &buffer, .buffer_count = 1,
	                                     .devices = &devices, .device_count = 1, .priority = &row, .priority_count = 1};
	must(neap_descriptor_encode(&descriptor, 0, true, 1u << 20, &text, length_p, why, sizeof why), "descriptor");
	return text;
}

static int connection(void *user, uint64_t ticket, const struct neap_connection_message *request, struct neap_connection_message *reply)
{
	(void)user;
	(void)ticket;
	reply->local_nic_path = strdup(request->peer_nic_path);
	reply->peer_nic_path = strdup(request->local_nic_path);
	reply->qp_count = request->qp_count;
	memcpy(reply->qp_nums, request->qp_nums, sizeof reply->qp_nums);
	return NEAP_OK;
}

static void begin_target(struct target *target)
{
	const struct neap_handshake_service_options options = {.sessions_max = 4};
	const struct neap_handshake_handlers handlers = {.describe = describe, .connection = connection, .user = target};
	struct neap_sockaddr address;
	char why[200];
	int system_errno;
	must(neap_sockaddr_from_numeric("127.0.0.1", 0, &address), "address");
	must(neap_handshake_service_create(&target->service, reactor, &address, 15000, 25000, &options, &handlers, &system_errno, why,
	                                   sizeof why), why);
	snprintf(target->name, sizeof target->name, "127.0.0.1:%u", neap_handshake_service_port(target->service));
}

/* --- the engine that asks */

static int make_rdma(struct neap_transport **transport_p, struct neap_engine *of, char *why, size_t why_size)
{
	const struct neap_rdma_surroundings surroundings = {.verbs = &instant_verbs, .topology = topology, .helper = helper};
	return neap_rdma_transport_create_in(transport_p, of, &surroundings, why, why_size);
}

static void settled(void *user, int error, const char *why)
{
	must(error, why ? why : "memory");
	*(bool *)user = true;
}

static void begin(uint32_t depth, uint32_t peers)
{
	const struct neap_reactor_options reactor_options = {.mode = NEAP_MODE_BUSY, .descriptors_max = 65536,
	                                                     .alloc = {.allocate = counted_allocate, .release = counted_release}};
	struct neap_engine_options options = {.local_name = "127.0.0.1", .protocol = "rdma", .requests_max = 8192, .peers_max = peers + 16,
	                                      .rdma = {.completions_max = 65535, .sends_max = depth}};
	char why[300];
	bool done = false;
	neap_region_id region;
	must(neap_reactor_create(&reactor, &reactor_options), "reactor");
	topology = neap_topology_new();
	(void)neap_topology_add_device(topology, INSTANT_DEVICE);
	struct neap_topology_row *row = neap_topology_add_row(topology, "cpu:0");
	row->count = row->preferred = 1;
	must(neap_helper_begin(reactor, 65536, &helper, why, sizeof why), why);
	must(neap_engine_create_with(&engine, reactor, &options, make_rdma, why, sizeof why), why);
	memory_bytes = UINT64_C(64) << 20;
	memory = aligned_alloc(4096, memory_bytes);
	must(neap_memory_register(engine, &(struct neap_memory){.address = memory, .length = memory_bytes, .location = "cpu:0"}, 1, &region, why,
	                          sizeof why), why);
	must(neap_memory_settled(engine, region, settled, &done), "memory");
	while (!done)
		turn();
}

static void ended(void *user)
{
	*(bool *)user = true;
}

static void end(struct target *targets, uint32_t count)
{
	bool done = false;
	must(neap_engine_close(engine, ended, &done), "close");
	while (!done)
		turn();
	for (uint32_t i = 0; i < count; i++)
		neap_handshake_service_destroy(targets[i].service);
	for (int i = 0; i < 100 && neap_reactor_run_once(reactor, NULL) == NEAP_RUN_MORE; i++)
		;
	neap_helper_end(helper);
	must(neap_reactor_destroy(reactor), "reactor");
	neap_topology_free(topology);
	free(memory);
}

/* --- the work */

struct opened {
	neap_segment_id *ids;
	uint32_t count;
};

static void opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct opened *all = user;
	must(error, why ? why : "open");
	all->ids[all->count++] = segment;
}

static struct {
	const neap_segment_id *segments;
	uint32_t segment_count, next;
	uint64_t left, under_way, bytes;
	enum kind { PLAIN, PLACED, DOUBTED } kind;
} work;

static void submit_one(void);

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)user;
	(void)batch;
	if (summary->completed != summary->total)
		must(NEAP_EINTERNAL, "a request failed");
	work.under_way--;
	while (work.left > 0 && work.under_way < 2)
		submit_one();
}

/* One batch of one request of `bytes`: as many pieces as fit the depth. */
static void submit_one(void)
{
	const struct neap_batch_options options = {.on_batch = on_batch};
	struct neap_request request = {.opcode = work.kind == DOUBTED ? NEAP_READ : NEAP_WRITE, .placed = work.kind == PLACED,
	                               .source = memory, .segment = work.segments[work.next++ % work.segment_count],
	                               .target_offset = REMOTE_ADDRESS, .length = work.bytes};
	must(neap_submit(engine, &request, 1, &options, NULL), "submit");
	work.left--;
	work.under_way++;
}

static double run(const struct opened *all, uint64_t pieces_each, uint64_t pieces)
{
	uint64_t requests = pieces / pieces_each;
	work.segments = all->ids;
	work.segment_count = all->count;
	work.bytes = pieces_each * PIECE_BYTES;
	work.left = requests;
	uint64_t began_ns = clock_ns();
	while (work.left > 0 && work.under_way < 2)
		submit_one();
	while (work.under_way > 0)
		turn();
	return (double)(clock_ns() - began_ns) / (double)(requests * pieces_each);
}

static int by_value(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* Post, poll, and nothing else: what the verbs below cost by themselves. */
static double run_bare(uint64_t pieces)
{
	const struct neap_verbs_ops *ops = instant_verbs.ops;
	struct neap_verbs_context *context;
	struct neap_verbs_cq *cq;
	struct neap_verbs_qp *qp;
	struct neap_verbs_send sends[32] = {{0}};
	struct neap_verbs_completion completions[64];
	uint32_t number, posted;
	must(ops->open(NULL, INSTANT_DEVICE, &context), "open");
	must(ops->create_cq(context, 4096, NULL, &cq), "cq");
	must(ops->create_qp(NULL, &(struct neap_verbs_qp_options){.cq = cq}, &qp, &number), "qp");
	uint64_t began_ns = clock_ns();
	for (uint64_t done = 0; done < pieces;) {
		(void)ops->post_send(qp, sends, 32, &posted);
		int count;
		while ((count = ops->poll_cq(cq, completions, 64)) > 0)
			done += (uint64_t)count;
	}
	double ns = (double)(clock_ns() - began_ns) / (double)pieces;
	(void)ops->destroy_qp(qp);
	(void)ops->destroy_cq(cq);
	(void)ops->close(context);
	return ns;
}

/* What checks cost: WRITEs that are to be placed, READs of a device that is doubted. */
static void report_checks(enum kind kind, uint32_t depth, double ns, uint64_t reads, uint64_t pieces)
{
	uint64_t own = kind == DOUBTED ? pieces : 0;
	printf("depth %4u  %s  %7.1f ns/piece  %6.3f check READs a piece\n", depth, kind == DOUBTED ? "doubted READs  " : "placed WRITEs  ", ns,
	       (double)(reads - own) / (double)pieces);
}

static void measure_kind(enum kind kind, uint32_t depth, uint32_t peers, uint64_t pieces)
{
	struct target *targets = calloc(peers, sizeof *targets);
	struct opened all = {.ids = calloc(peers, sizeof *all.ids)};
	double ns[RUNS], bare[RUNS];
	uint64_t pieces_each = depth * 2 < 1024 ? depth : 512;
	instant_reads_doubtful = kind == DOUBTED;
	work.kind = PLAIN;
	begin(depth, peers);
	for (uint32_t i = 0; i < peers; i++) {
		begin_target(&targets[i]);
		must(neap_segment_open(engine, targets[i].name, opened, &all), "open");
		while (all.count <= i)
			turn();
	}
	(void)run(&all, 1, peers * 4u); /* connects */
	work.kind = kind;
	(void)run(&all, 1, peers * 4u);
	uint64_t reads = instant_reads;
	for (uint32_t i = 0; i < RUNS; i++) {
		ns[i] = run(&all, pieces_each, pieces);
		bare[i] = run_bare(pieces);
	}
	qsort(ns, RUNS, sizeof *ns, by_value);
	qsort(bare, RUNS, sizeof *bare, by_value);
	if (kind != PLAIN)
		report_checks(kind, depth, ns[RUNS / 2], instant_reads - reads, RUNS * (pieces / pieces_each) * pieces_each);
	else
		printf("depth %4u  endpoints %4u  %7.1f ns/piece  %6.2f M pieces/s  bare loop %5.1f ns  ratio %5.1f  %8.1f MiB in pools\n", depth, peers,
	       ns[RUNS / 2], 1e3 / ns[RUNS / 2], bare[RUNS / 2], ns[RUNS / 2] / bare[RUNS / 2], (double)allocated / 1048576);
	fflush(stdout);
	end(targets, peers);
	free(all.ids);
	free(targets);
}

static void measure(uint32_t depth, uint32_t peers, uint64_t pieces)
{
	measure_kind(PLAIN, depth, peers, pieces);
}

int main(int count, char **words)
{
	static const uint32_t depths[] = {1, 4, 16, 64, 256, 1024, 4096}, peers[] = {1, 10, 100, 1000};
	uint64_t pieces = count > 1 ? strtoull(words[1], NULL, 10) : 1000000;
	if (count > 2) { /* one depth alone, for a profile */
		measure((uint32_t)strtoul(words[2], NULL, 10), 1, pieces);
		return 0;
	}
	for (uint32_t i = 0; i < sizeof depths / sizeof *depths; i++)
		measure(depths[i], 1, depths[i] < 16 ? pieces / 10 : pieces);
	for (uint32_t i = 1; i < sizeof peers / sizeof *peers; i++)
		measure(256, peers[i], pieces);
	for (uint32_t i = 0; i < sizeof depths / sizeof *depths; i++)
		if (depths[i] == 1 || depths[i] == 16 || depths[i] == 256) {
			measure_kind(PLACED, depths[i], 1, depths[i] < 16 ? pieces / 10 : pieces);
			measure_kind(DOUBTED, depths[i], 1, depths[i] < 16 ? pieces / 10 : pieces);
		}
	return 0;
}
