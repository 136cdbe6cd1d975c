/* A run of the store's cluster from start to end. */
#include "tests/sim/st_inside.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- failing -------------------------------------------------------------------------------------------------------------------- */

void st_log(const struct st_world *world, const char *format, ...)
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

static int write_stderr(void *user, const void *bytes, size_t length)
{
	(void)user;
	return fwrite(bytes, 1, length, stderr) == length ? NEAP_OK : NEAP_ESOCKET;
}

/* What the machines did last. */
static void print_traces(const struct st_world *world)
{
	for (uint32_t i = 0; world->logs && i < world->options.clients; i++) {
		const struct st_client *client = &world->clients[i];
		if (!client->node || !client->node->reactor)
			continue;
		fprintf(stderr, "--- client %u.%u, node %u\n", i, client->incarnation, client->node->number);
		(void)neap_trace_write_text(neap_reactor_dispatcher(client->node->reactor), write_stderr, NULL);
	}
}

void st_violation(struct st_world *world, const char *format, ...)
{
	va_list arguments;
	if (!world->result->ok)
		return;
	world->result->ok = false;
	va_start(arguments, format);
	vsnprintf(world->result->what, sizeof world->result->what, format, arguments);
	va_end(arguments);
	st_log(world, "VIOLATION: %s", world->result->what);
	print_traces(world);
}

bool st_sabotage(struct st_world *world, enum st_sabotage sabotage)
{
	if (world->options.sabotage != sabotage || world->result->sabotaged || world->issued < world->options.operations / 4)
		return false;
	world->result->sabotaged = true;
	return true;
}

bool st_is_stable(const struct st_world *world)
{
	struct neap_local_directory_stats stats;
	bool stable = world->options.stable && !world->owner_missed;
	for (uint32_t i = 0; i < world->master_count && stable; i++) {
		neap_local_directory_stats(world->masters[i].local, &stats);
		stable = stats.crashed == 0;
	}
	return stable;
}

/* Who was silent for that long may come back with all his values: who removes meanwhile does not reach him. */
bool st_owner_was_given_up(const struct st_world *world)
{
	struct neap_local_directory_stats stats;
	uint64_t crashed = 0;
	for (uint32_t i = 0; world->fabric && i < world->master_count; i++) {
		neap_local_directory_stats(world->masters[i].local, &stats);
		crashed += stats.crashed;
	}
	return crashed > 0;
}

/* --- options -------------------------------------------------------------------------------------------------------------------- */

static uint32_t perhaps(struct sim_random *random, uint32_t per_mille, uint32_t value)
{
	return sim_random_chance(random, per_mille) ? value : 0;
}

static void draw_faults(struct sim_random *random, struct st_options *o)
{
	o->fault_period_ms = perhaps(random, 850, 10 + (uint32_t)sim_random_below(random, 400));
	o->pause_max_ms = 100 + (uint32_t)sim_random_below(random, 4000);
	o->faults_pause = perhaps(random, 600, 1);
	o->faults_cut = perhaps(random, 700, 1);
	o->faults_partition = perhaps(random, 500, 1);
	o->faults_master = perhaps(random, 300, 1);
	if (o->stable) /* nothing happens that may take a value away */
		return;
	o->faults_crash = perhaps(random, 500, 1);
	o->faults_leave = perhaps(random, 300, 1);
	o->faults_memory = perhaps(random, 300, 1);
}

/* Of the network, while a lease runs: to open the owner's engine and write there. A shorter lease cannot be kept by anybody. */
#define FORWARD_CROSSINGS 20

void st_options_from_seed(uint64_t seed, struct st_options *o)
{
	struct sim *sim = sim_create(seed); /* for its network options: sizes must suit windows of a byte */
	struct sim_random *random = &sim->random[SIM_WORKLOAD];
	static const uint32_t sizes[] = {600, 5000, 40000, ST_SLOT_BYTES};
	static const uint32_t leases[] = {100, 300, 1000, 5000};
	bool slow = sim->net.window_max < 4096 || sim->net.segment_max < 1000;
	*o = (struct st_options){.clients = 3 + (uint32_t)sim_random_below(random, 5)};
	o->stable = perhaps(random, 400, 1);
	o->accessors = (uint32_t)sim_random_below(random, 2);
	o->tier_bytes = o->stable ? 8u << 20 : 2u << 20;
	o->keys = o->stable ? 30 : 2 + (uint32_t)sim_random_below(random, 40);
	o->value_bytes = sizes[sim_random_below(random, slow ? 1 : 4)];
	o->operations = slow ? 60 : 200;
	o->inflight = 1 + (uint32_t)sim_random_below(random, 10);
	o->work_period_us = 500 + (uint32_t)sim_random_below(random, 30000);
	o->forward_per_mille = 200 + (uint32_t)sim_random_below(random, 700);
	o->remote_per_mille = 300 + (uint32_t)sim_random_below(random, 700);
	o->cancel_per_mille = perhaps(random, 400, 60);
	o->deadline_per_mille = perhaps(random, 400, 60);
	o->batch_per_mille = perhaps(random, 400, 100);
	o->lease_ms = leases[sim_random_below(random, 4)];
	if (slow)
		o->lease_ms = 5000;
	if (o->lease_ms < o->value_bytes / 100) /* a lease is long enough for a value on a slow network */
		o->lease_ms = o->value_bytes / 50;
	uint32_t rounds_ms = (uint32_t)(FORWARD_CROSSINGS * sim->net.delay_max_ns / MS);
	if (o->lease_ms < rounds_ms)
		o->lease_ms = rounds_ms;
	o->verify = perhaps(random, 400, 1);
	o->drift_ppm = perhaps(random, 400, 20000);
	if (!o->stable) {
		o->remove_per_mille = perhaps(random, 600, 100);
		o->sweep_per_mille = perhaps(random, 200, 20);
	}
	draw_faults(random, o);
	sim_destroy(sim);
}

static void draw_devices(struct sim_random *random, struct st_options *o)
{
	static const uint32_t depths[] = {1, 2, 8, 64, 256}, slices[] = {4096, 16384, 65536};
	o->devices_max = 1 + (uint32_t)sim_random_below(random, 3);
	o->tcp_per_mille = perhaps(random, 200, 200);
	o->endpoints_max = sim_random_chance(random, 200) ? 8 + (uint32_t)sim_random_below(random, 8) : 64;
	o->qps = 1 + (uint32_t)sim_random_below(random, 4);
	o->depth = depths[sim_random_below(random, 5)];
	o->completions_max = perhaps(random, 300, 8 + (uint32_t)sim_random_below(random, 60));
	o->silence_retries = 1 + (uint32_t)sim_random_below(random, 7);
	o->slice_bytes = slices[sim_random_below(random, 3)];
	o->rail_pause_ms = 1 + (uint32_t)sim_random_below(random, 2000);
	o->latency_max_us = 1u << sim_random_below(random, 13);
	o->stray_max_us = perhaps(random, 700, 1u << sim_random_below(random, 21));
	o->faults_port = perhaps(random, 500, 1);
	o->faults_device = perhaps(random, 400, 1);
	o->faults_cable = perhaps(random, 500, 1);
	o->faults_calls = perhaps(random, 400, 1);
	o->faults_helper = perhaps(random, 300, 1);
	o->faults_retire = perhaps(random, 400, 1);
	o->faults_late = perhaps(random, 600, 1);
	o->faults_stop = perhaps(random, 500, 1);
	o->faults_lost = perhaps(random, 500, 1);
	o->faults_keep = perhaps(random, 300, 1);
}

/* Late bytes behind the fence of a peer: nothing else goes wrong, and all memory is used again and again. */
static void aim_at_fences(struct st_options *o)
{
	o->stable = o->faults_pause = o->faults_cut = o->faults_partition = o->faults_crash = o->faults_leave = o->faults_master = 0;
	o->faults_memory = o->faults_port = o->faults_device = o->faults_cable = o->faults_calls = o->faults_helper = o->faults_retire = 0;
	o->faults_late = o->faults_stop = o->tcp_per_mille = o->cancel_per_mille = o->deadline_per_mille = 0;
	o->faults_lost = o->no_inline = 1;
	o->clients = 5;
	o->accessors = 2;
	o->operations = 700;
	o->keys = 12;
	o->tier_bytes = 2u << 20;
	o->value_bytes = ST_SLOT_BYTES;
	o->forward_per_mille = o->remote_per_mille = 1000;
	o->remove_per_mille = 250;
	o->follow_per_mille = 300;
	o->work_period_us = 60000;
	o->fault_period_ms = 150;
	o->pause_max_ms = 4000;
}

void st_rdma_options_from_seed(uint64_t seed, struct st_options *o)
{
	static const uint32_t sizes[] = {8000, 40000, ST_SLOT_BYTES};
	static const uint32_t leases[] = {300, 500, 1000, 3000};
	st_options_from_seed(seed, o);
	struct sim *sim = sim_create(seed);
	struct sim_random *random = &sim->random[SIM_FAULTS];
	draw_devices(random, o);
	o->clients = 3 + (uint32_t)sim_random_below(random, 3); /* the network has room for 16 devices */
	o->accessors = 1 + (uint32_t)sim_random_below(random, o->clients - 2);
	o->operations = 400;
	o->forward_per_mille = sim_random_chance(random, 300) ? 1000 : o->forward_per_mille;
	o->no_inline = perhaps(random, 500, 1);
	o->remote_per_mille = sim_random_chance(random, 700) ? 1000 : 800;
	if (o->stable && sim_random_chance(random, 500)) { /* every value has its memory for itself there */
		o->stable = 0;
		draw_faults(random, o);
	}
	o->keys = o->stable ? 50 : 2 + (uint32_t)sim_random_below(random, sim_random_chance(random, 200) ? 46 : 20);
	o->tier_bytes = o->stable ? 8u << 20 : 2u << 20;
	o->remove_per_mille = o->stable ? 0 : 100 + (uint32_t)sim_random_below(random, 200);
	o->value_bytes = sizes[sim_random_below(random, 3)];
	o->inflight = 2 + (uint32_t)sim_random_below(random, 10);
	o->follow_per_mille = perhaps(random, 700, 500);
	o->lease_ms = leases[sim_random_below(random, 4)];
	/* Besides, two devices are connected first, and the system takes its time for each step. */
	uint32_t rounds_ms = 100 + (uint32_t)(FORWARD_CROSSINGS * sim->net.delay_max_ns / MS);
	if (o->lease_ms < rounds_ms)
		o->lease_ms = rounds_ms;
	o->fault_period_ms = o->fault_period_ms ? 8 + o->fault_period_ms / 4 : 0;
	if (o->faults_keep && sim_random_chance(random, 500))
		o->forward_per_mille = 1000;
	if (o->faults_keep) { /* what a device refuses is asked for again for ten seconds */
		o->work_period_us = 60000 + (uint32_t)sim_random_below(random, 100000);
		o->fault_period_ms = o->fault_period_ms ? 100 + o->fault_period_ms : 0;
		o->pause_max_ms = 1000 + (uint32_t)sim_random_below(random, 20000);
	}
	if (o->faults_keep && sim_random_chance(random, 500))
		aim_at_fences(o);
	sim_destroy(sim);
}

/* --- phases ---------------------------------------------------------------------------------------------------------------------- */

/* A master counts who falls silent, but not who was silent all the while from its start to the end of its recovery. */
static void look_who_is_missed(struct st_world *world)
{
	struct neap_local_directory_stats stats;
	uint32_t last = world->master_count - 1, owners = 0;
	if (!world->options.stable || last <= world->masters_recovered || world->masters[last].node->crashed)
		return;
	neap_local_directory_stats(world->masters[last].local, &stats);
	if (stats.recovering)
		return;
	for (uint32_t i = 0; i < world->options.clients; i++)
		owners += world->clients[i].owns;
	world->masters_recovered = last;
	world->owner_missed = world->owner_missed || stats.clients < owners;
}

static bool safety_over(void *user)
{
	struct st_world *world = user;
	look_who_is_missed(world);
	return !world->issuing || !world->result->ok;
}

static bool all_ended(void *user)
{
	struct st_world *world = user;
	look_who_is_missed(world);
	return !world->result->ok || (st_idle(world) && world->retries == 0);
}

static bool all_known(void *user)
{
	struct st_world *world = user;
	if (!world->result->ok)
		return true;
	for (uint32_t i = 0; i < world->options.clients; i++) {
		const struct st_client *client = &world->clients[i];
		if (!client->up || !client->store || client->leaving)
			return false;
		if (client->owns && neap_store_health(client->store) != NEAP_STORE_FULL)
			return false;
	}
	return !world->masters[world->master_count - 1].node->crashed;
}

static bool recovered(void *user)
{
	struct st_world *world = user;
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(world->masters[world->master_count - 1].local, &stats);
	return !stats.recovering || !world->result->ok;
}

static bool never(void *user)
{
	(void)user;
	return false;
}

static void end_faults(struct st_world *world)
{
	world->faults = false;
	sim_heal(world->sim);
	st_fabric_heal(world);
	for (uint32_t i = 0; i < world->options.clients; i++)
		if (world->clients[i].node) {
			sim_node_resume(world->clients[i].node);
			world->clients[i].node->fail_allocation_at = UINT64_MAX;
		}
}

/* No lease, pin or quarantine outlives what it was for; every check of the library's own holds. */
static void check_quiet(struct st_world *world)
{
	for (uint32_t i = 0; i < world->options.clients && world->result->ok; i++) {
		struct st_client *client = &world->clients[i];
		struct neap_store_numbers numbers;
		const char *wrong = neap_store_check(client->store);
		if (wrong)
			st_violation(world, "client %u: %s", i, wrong);
		neap_store_numbers(client->store, &numbers);
		if (numbers.pending_writes || numbers.pins || numbers.quarantined_writes || numbers.quarantined_bytes || numbers.operations)
			st_violation(world, "client %u: %u pending writes, %u pins, %u in quarantine, %u operations long after everything has ended", i,
			             numbers.pending_writes, numbers.pins, numbers.quarantined_writes, numbers.operations);
	}
}

static void ignore(void *user, int error, uint64_t removed, const char *why)
{
	(void)user;
	(void)error;
	(void)removed;
	(void)why;
}

static bool sabotage_a_value(struct st_world *world)
{
	bool lost = false;
	for (uint32_t k = 0; k < world->options.keys && !lost; k++) {
		char text[24];
		st_key_text(k, text);
		struct neap_key key = {text, (uint32_t)strlen(text)};
		if (!world->keys[k].acknowledged || !st_sabotage(world, ST_SABOTAGE_LOSE_VALUE))
			continue;
		lost = neap_store_remove(world->clients[0].store, &key, 0, ignore, NULL) == 0;
	}
	return lost;
}

/* Every client reads every key: what was acknowledged is there, and all see the same. */
static void read_all(struct st_world *world)
{
	for (uint32_t key = 0; key < world->options.keys && world->result->ok; key++) {
		for (uint32_t i = 0; i < world->options.clients; i++)
			st_last_get(world, &world->clients[i], key);
		if (!sim_run_until(world->sim, all_ended, world, 60000 * MS))
			st_violation(world, "key %u: a get did not end within a minute although everything has healed", key);
	}
}

static void write_all(struct st_world *world)
{
	world->options.keys += world->options.clients; /* new ones */
	for (uint32_t i = 0; i < world->options.clients && world->result->ok; i++)
		(void)st_last_put(world, &world->clients[i], world->options.keys - 1 - i);
	if (!sim_run_until(world->sim, all_ended, world, 60000 * MS))
		st_violation(world, "a put did not end within a minute although everything has healed");
}

/* Devices that failed are tried again every 5 s, queue pairs that are not destroyed every 10 s, three times. */
#define DEVICES_BACK_NS (40000 * MS)
/* Of so many values that did not fit into a call some have an owner elsewhere, and lie in one slab. */
#define LARGE_ENOUGH 10u

static void liveness(struct st_world *world)
{
	struct sim *sim = world->sim;
	end_faults(world);
	if (!sim_run_until(sim, all_ended, world, 120000 * MS))
		st_violation(world, "an operation did not end within two minutes after everything had healed");
	if (world->result->ok && !sim_run_until(sim, all_known, world, 120000 * MS))
		st_violation(world, "not everybody is known to the master within two minutes after everything had healed");
	if (world->result->ok && !sim_run_until(sim, recovered, world, 120000 * MS))
		st_violation(world, "the master does not recover within two minutes after everything had healed");
	if (!world->result->ok)
		return;
	(void)sim_run_until(sim, never, world, 3000 * MS); /* what was lost to another owner goes */
	if (sabotage_a_value(world))
		(void)sim_run_until(sim, never, world, 1000 * MS);
	if (world->fabric)
		(void)sim_run_until(sim, never, world, DEVICES_BACK_NS);
	uint64_t posted = st_fabric_posted(world);
	read_all(world);
	write_all(world);
	if (!world->result->ok)
		return;
	(void)sim_run_until(sim, never, world, ((uint64_t)world->options.lease_ms * 2 + 3000) * MS);
	check_quiet(world);
	st_fabric_check(world);
	if (st_fabric_is_whole(world) && world->last_large >= LARGE_ENOUGH && st_fabric_posted(world) == posted)
		st_violation(world, "nothing goes over devices after everything has healed");
}

static void close_all(struct st_world *world)
{
	world->closing = true;
	st_fabric_leave(world);
	for (uint32_t i = 0; i < world->options.clients; i++) {
		struct st_client *client = &world->clients[i];
		if (client->up)
			st_client_count(client);
		client->up = false;
		st_client_finish(client);
	}
	for (uint32_t i = 0; i < world->grave_count; i++)
		st_client_finish(world->graves[i]);
	for (uint32_t i = 0; i < world->master_count; i++)
		st_master_finish(world, &world->masters[i]);
	for (uint32_t i = 0; i < ST_OPS_MAX; i++)
		if (world->ops[i].used && !world->ops[i].gone && !world->ops[i].ended)
			st_violation(world, "an operation never ended, not even when its store closed");
		else if (world->ops[i].used && !world->ops[i].gone && world->ops[i].held)
			st_violation(world, "a buffer was never given back, not even when its engine closed");
	st_fabric_end(world);
}

static void free_world(struct st_world *world)
{
	for (uint32_t i = 0; i < world->grave_count; i++)
		free(world->graves[i]);
	sim_destroy(world->sim);
	free(world);
}

static bool start_all(struct st_world *world)
{
	st_master_start(world, true);
	for (uint32_t i = 0; i < world->options.clients && world->result->ok; i++) {
		world->clients[i].owns = i >= world->options.accessors;
		if (!st_client_start(world, i))
			st_violation(world, "client %u cannot start", i);
	}
	return world->result->ok;
}

/* A process that is abandoned does not give back what it has from malloc, and a run that has found a sabotage is not brought to its end: the
 * leak sanitizer shall not look at worlds that may have one. */
extern void __lsan_disable(void) __attribute__((weak));
extern void __lsan_enable(void) __attribute__((weak));

static void look_for_leaks(const struct st_world *world, bool look)
{
	void (*call)(void) = look ? __lsan_enable : __lsan_disable;
	if ((world->options.faults_keep || world->options.sabotage) && call)
		call();
}

void st_run(uint64_t seed, const struct st_options *options, struct st_result *result_p)
{
	struct st_world *world = calloc(1, sizeof *world);
	if (!world)
		abort();
	memset(result_p, 0, sizeof *result_p);
	result_p->ok = true;
	world->result = result_p;
	world->logs = getenv("NEAP_SIM_LOG") != NULL;
	if (options)
		world->options = *options;
	else
		st_options_from_seed(seed, &world->options);
	result_p->options = world->options;
	world->slot_bytes = world->options.value_bytes;
	struct sim *sim = world->sim = sim_create(seed);
	st_fabric_begin(world);
	look_for_leaks(world, false);
	if (start_all(world)) {
		(void)sim_run_until(sim, all_known, world, 20000 * MS);
		world->issuing = world->faults = true;
		sim_after(sim, 1, st_work, world, 0);
		if (world->options.fault_period_ms)
			sim_after(sim, 100 * MS, st_fault, world, 0);
		(void)sim_run_until(sim, safety_over, world, 120000 * MS);
		world->issuing = false;
		if (result_p->ok)
			liveness(world);
	}
	close_all(world);
	look_for_leaks(world, true);
	result_p->hash = sim->hash;
	result_p->virtual_ns = sim->now_ns;
	result_p->events = sim->events_run;
	result_p->operations = world->issued;
	free_world(world);
}
