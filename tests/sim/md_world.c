/* A run of the cluster over a metadata store from start to end. */
#include "tests/sim/md_inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define PORT 15000u

/* --- failing -------------------------------------------------------------------------------------------------------------------- */

void md_log(const struct md_world *world, const char *format, ...)
{
	va_list arguments;
	if (!world->logs)
		return;
	fprintf(stderr, "%12.6f ", (double)world->sim->now_ns / 1e9);
	va_start(arguments, format);
	vfprintf(stderr, format, arguments);
	va_end(arguments);
	fputc('\n', stderr);
}

void md_violation(struct md_world *world, const char *format, ...)
{
	va_list arguments;
	if (!world->result->ok)
		return;
	world->result->ok = false;
	va_start(arguments, format);
	vsnprintf(world->result->what, sizeof world->result->what, format, arguments);
	va_end(arguments);
	md_log(world, "VIOLATION: %s", world->result->what);
}

bool md_sabotage(struct md_world *world, enum md_sabotage sabotage)
{
	if (world->options.sabotage != sabotage || world->result->sabotaged || !world->calm)
		return false;
	world->result->sabotaged = true;
	return true;
}

/* --- options -------------------------------------------------------------------------------------------------------------------- */

static uint32_t perhaps(struct sim_random *random, uint32_t per_mille, uint32_t value)
{
	return sim_random_chance(random, per_mille) ? value : 0;
}

static void draw_faults(struct sim_random *random, struct md_options *o)
{
	o->fault_period_ms = perhaps(random, 900, 50 + (uint32_t)sim_random_below(random, 1500));
	o->fault_max_ms = 50 + (uint32_t)sim_random_below(random, 6000);
	o->faults_down = perhaps(random, 600, 1);
	o->faults_dark = perhaps(random, 400, 1);
	o->faults_wipe = perhaps(random, 500, 1);
	o->faults_still = perhaps(random, 500, 1);
	o->faults_cut = perhaps(random, 700, 1);
	o->faults_silent = perhaps(random, 400, 1);
	o->faults_refuse = perhaps(random, 400, 1);
	o->faults_forget = perhaps(random, 400, 1);
	o->faults_crash = perhaps(random, 600, 1);
	o->faults_leave = perhaps(random, 500, 1);
	o->faults_part = perhaps(random, 300, 1);
	o->faults_pause = perhaps(random, 400, 1);
	o->faults_memory = perhaps(random, 300, 1);
	o->faults_edit = perhaps(random, 400, 1);
	o->faults_leader = perhaps(random, 400, 1);
	o->faults_compact = perhaps(random, 400, 1);
	o->faults_users = perhaps(random, 500, 1);
	o->faults_tear = perhaps(random, 400, 1);
}

void md_options_from_seed(uint64_t seed, struct md_options *o)
{
	struct sim *sim = sim_create(seed);
	struct sim_random *random = &sim->random[SIM_WORKLOAD];
	static const uint32_t timeouts[] = {700, 1500, 3000}, refreshes[] = {500, 2000, 5000};
	*o = (struct md_options){.nodes = 2 + (uint32_t)sim_random_below(random, 5)};
	o->kind = (uint32_t)sim_random_below(random, 12); /* Redis and etcd have the most to go wrong */
	o->kind = o->kind < 4 ? MD_REDIS : o->kind < 8 ? MD_ETCD : o->kind < 10 ? MD_HTTP : MD_MEMORY;
	o->contended = perhaps(random, 600, 1 + (uint32_t)sim_random_below(random, 2));
	o->contended = o->contended < o->nodes ? o->contended : o->nodes - 1;
	o->cluster = perhaps(random, 300, 1);
	o->operations = 200 + (uint32_t)sim_random_below(random, 400);
	o->work_period_us = 2000 + (uint32_t)sim_random_below(random, 60000);
	o->timeout_ms = timeouts[sim_random_below(random, 3)];
	o->refresh_ms = refreshes[sim_random_below(random, 3)];
	o->lease_ms = o->kind == MD_HTTP ? 0 : perhaps(random, 400, 2000 + (uint32_t)sim_random_below(random, 8000));
	o->password = perhaps(random, 300, 1);
	o->database = perhaps(random, 300, 3);
	o->old_server = perhaps(random, 100, 1);
	o->relaxed_per_mille = perhaps(random, 400, 300);
	o->watched_per_mille = perhaps(random, 700, 500);
	o->call_per_mille = perhaps(random, 500, 200);
	o->cancel_per_mille = perhaps(random, 500, 60);
	o->change_per_mille = perhaps(random, 800, 10 + (uint32_t)sim_random_below(random, 200));
	draw_faults(random, o);
	sim_destroy(sim);
}

/* --- phases ---------------------------------------------------------------------------------------------------------------------- */

static bool safety_over(void *user)
{
	const struct md_world *world = user;
	return !world->issuing || !world->result->ok;
}

/* The last places share the names of the first. */
static void name_places(struct md_world *world)
{
	world->name_count = world->options.nodes - world->options.contended;
	for (uint32_t i = 0; i < world->options.nodes; i++)
		world->name_of[i] = i < world->name_count ? i : (i - world->name_count) % world->name_count;
}

static void start_all(struct md_world *world)
{
	world->next_host = world->options.nodes + 1;
	world->next_port = PORT + 100;
	for (uint32_t i = 0; i < world->options.nodes; i++) {
		if (!md_node_start(world, i, i + 1, PORT))
			return;
		sim_run_for(world->sim, sim_random_below(&world->sim->random[SIM_WORKLOAD], 200 * MS));
	}
}

static void close_all(struct md_world *world)
{
	for (uint32_t i = 0; i < world->life_count; i++)
		md_ops_gone(world->lives[i]);
	for (uint32_t i = 0; i < world->life_count; i++)
		md_node_finish(world->lives[i]);
	uint32_t exchanges = world->http.exchanges + md_etcd_exchanges(world);
	if (world->redis.wires || exchanges)
		md_violation(world, "%u connections and %u exchanges were never closed", world->redis.wires, exchanges);
}

static void free_world(struct md_world *world)
{
	for (uint32_t i = 0; i < world->life_count; i++)
		free(world->lives[i]);
	md_store_release(world);
	sim_destroy(world->sim);
	free(world);
}

static void run_phases(struct md_world *world)
{
	struct sim *sim = world->sim;
	start_all(world);
	world->issuing = world->faults = world->result->ok;
	sim_after(sim, 1, md_work, world, 0);
	if (world->options.fault_period_ms)
		sim_after(sim, 100 * MS, md_fault, world, 0);
	(void)sim_run_until(sim, safety_over, world, 300000 * MS);
	world->issuing = false;
	if (world->result->ok)
		md_calm(world);
}

void md_run(uint64_t seed, const struct md_options *options, struct md_result *result_p)
{
	struct md_world *world = calloc(1, sizeof *world);
	if (!world)
		abort();
	memset(result_p, 0, sizeof *result_p);
	result_p->ok = true;
	world->result = result_p;
	world->logs = getenv("NEAP_SIM_LOG") != NULL;
	if (options)
		world->options = *options;
	else
		md_options_from_seed(seed, &world->options);
	result_p->options = world->options;
	world->sim = sim_create(seed);
	name_places(world);
	md_store_init(world);
	md_truth_init(world);
	run_phases(world);
	close_all(world);
	md_store_count(world);
	result_p->hash = world->sim->hash;
	result_p->virtual_ns = world->sim->now_ns;
	result_p->events = world->sim->events_run;
	result_p->operations = world->issued;
	free_world(world);
}
