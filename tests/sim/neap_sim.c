/* neap-sim: runs seeds of the simulated clusters, of Transfer Engines and of stores, each over streams and over devices, and of what they
 * share, a metadata store. docs/SIM.md. */
#include "tests/sim/neap_sim.h"
#include "tests/sim/te_world.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

double sim_seconds_now(void)
{
	struct timespec now;
	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

static void usage(FILE *out)
{
	fputs("usage: neap-sim [--world engine|rdma|store|store-rdma|metadata[,...]] [--aim NAME] [--seed N] [--first N] [--seeds N]\n"
	      "                [--seconds S | --minutes M] [--demand-sometimes] [--save FILE] [--replay FILE] [--brief | --verbose]\n"
	      "  --world NAME         one of the five clusters, or some with commas; without it all, in equal shares of the time\n"
	      "  --aim NAME           seeds of world rdma are made for this kind of mistake: fences, buffers, reads, placed, keys, grants, queues;\n"
	      "                       none: for no one; without it the seed decides\n"
	      "  --mistake NAME       it is made in world rdma in the library's place, and must be found: keeps_halves, keeps_regions, takes_checks,\n"
	      "                       old_keys, small_queue, gives_buffers\n"
	      "  --seed N             one seed, verbosely\n"
	      "  --first N            the first seed (default 1)\n"
	      "  --seeds N            how many (default 200, or without bound when a time is given)\n"
	      "  --seconds S          stop after S seconds of real time; --minutes M: after M minutes\n"
	      "  --demand-sometimes   fail when a condition that a soak must see was never seen\n"
	      "  --brief              a failing seed of engines is one line, and the run goes on\n"
	      "  --save FILE          where a failing seed of the store's cluster goes (default neap-sim-SEED.replay)\n"
	      "  --sabotage N         stores: with a mistake of the harness or lies of devices (enum st_sabotage); prints how many seeds find it\n"
	      "  --replay FILE        runs such a file; 0 when it runs clean\n", out);
}

static const struct {
	const char *name;
	int (*run)(const struct sim_arguments *arguments);
} worlds[] = {{"engine", sim_engine_seeds}, {"rdma", sim_rdma_seeds}, {"store", sim_store_seeds}, {"store-rdma", sim_store_rdma_seeds},
            {"metadata", sim_metadata_seeds}};
#define WORLDS (sizeof worlds / sizeof worlds[0])

/* By bit, from a comma list; 0: one of them is none. */
static unsigned worlds_of(const char *list)
{
	unsigned found = 0;
	for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
		unsigned before = found;
		size_t length = strcspn(at, ",");
		for (size_t i = 0; i < WORLDS; i++)
			if (strlen(worlds[i].name) == length && strncmp(worlds[i].name, at, length) == 0)
				found |= 1u << i;
		if (found == before)
			return 0;
	}
	return found;
}

static int run_worlds(struct sim_arguments arguments, unsigned which)
{
	int failed = 0;
	arguments.seconds /= (double)__builtin_popcount(which);
	for (size_t i = 0; i < WORLDS; i++)
		if (which >> i & 1)
			failed += worlds[i].run(&arguments);
	return failed ? 1 : 0;
}

int main(int argc, char **argv)
{
	struct sim_arguments arguments = {.first = 1};
	const char *replay = NULL;
	unsigned which = (1u << WORLDS) - 1;
	static const struct option options[] = {
		{"seed", required_argument, NULL, 's'},    {"first", required_argument, NULL, 'f'}, {"seeds", required_argument, NULL, 'n'},
		{"seconds", required_argument, NULL, 't'}, {"minutes", required_argument, NULL, 'm'}, {"demand-sometimes", no_argument, NULL, 'd'},
		{"world", required_argument, NULL, 'w'},   {"replay", required_argument, NULL, 'r'}, {"save", required_argument, NULL, 'o'},
		{"sabotage", required_argument, NULL, 'b'},
		{"aim", required_argument, NULL, 'a'},     {"mistake", required_argument, NULL, 'k'},
		{"brief", no_argument, NULL, 'B'},
		{"verbose", no_argument, NULL, 'v'},       {"help", no_argument, NULL, 'h'},         {NULL, 0, NULL, 0}};
	for (int option; (option = getopt_long(argc, argv, "", options, NULL)) != -1;) {
		switch (option) {
		case 's':
			arguments.first = strtoull(optarg, NULL, 0);
			arguments.count = 1;
			arguments.verbose = true;
			break;
		case 'f': arguments.first = strtoull(optarg, NULL, 0); break;
		case 'n': arguments.count = strtoull(optarg, NULL, 0); break;
		case 't': arguments.seconds = strtod(optarg, NULL); break;
		case 'm': arguments.seconds = 60 * strtod(optarg, NULL); break;
		case 'd': arguments.demand_sometimes = true; break;
		case 'B': arguments.brief = true; break;
		case 'a': arguments.aim = optarg; break;
		case 'k': arguments.mistake = optarg; break;
		case 'w':
			which = worlds_of(optarg);
			if (which)
				break;
			fprintf(stderr, "neap-sim: --world is '%s'; it may be engine, rdma, store, store-rdma, metadata, or some of them with commas\n", optarg);
			return 2;
		case 'r': replay = optarg; break;
		case 'o': arguments.save = optarg; break;
		case 'b': arguments.sabotage = (uint32_t)strtoul(optarg, NULL, 0); break;
		case 'v': arguments.verbose = true; break;
		case 'h': usage(stdout); return 0;
		default: usage(stderr); return 2;
		}
	}
	if ((arguments.aim && te_aim_named(arguments.aim) == TE_AIM_COUNT) ||
	    (arguments.mistake && te_mistake_named(arguments.mistake) == SIM_MISTAKE_COUNT)) {
		fputs("neap-sim: there is no such aim or mistake; see --help\n", stderr);
		return 2;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	if (replay)
		return sim_store_replay(replay);
	const char *share = getenv("NEAP_SIM_SECONDS"); /* the share of ./run check */
	if (argc == 1 && share)
		arguments.seconds = strtod(share, NULL);
	if (arguments.count == 0)
		arguments.count = arguments.seconds > 0 ? UINT64_MAX : 200;
	return run_worlds(arguments, which);
}
