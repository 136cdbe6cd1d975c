/* The engine with RDMA devices: what it opens, what memory comes on them, what peers read, and the end of it all at every moment. Over
 * simulated verbs; TCP and handshakes are real. */
#include "tests/support/rdma_engine_rig.h"
#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MS RDMA_RIG_MS
#define BYTES 40960u

static struct rdma_engine_rig rig;
static unsigned char bytes[4][BYTES] __attribute__((aligned(4096)));

static void calm(void)
{
	ck_assert_msg(rig.log[0] == '\0', "%s", rig.log);
}

static enum neap_protocol told_protocol(void)
{
	struct neap_descriptor *descriptor = rdma_engine_rig_describe(&rig, 0);
	enum neap_protocol protocol = descriptor->protocol;
	neap_descriptor_free(descriptor);
	return protocol;
}

static uint32_t told_buffers(void)
{
	struct neap_descriptor *descriptor = rdma_engine_rig_describe(&rig, 0);
	uint32_t count = descriptor->buffer_count;
	neap_descriptor_free(descriptor);
	return count;
}

static uint32_t told_devices(void)
{
	struct neap_descriptor *descriptor = rdma_engine_rig_describe(&rig, 0);
	uint32_t count = descriptor->device_count;
	neap_descriptor_free(descriptor);
	return count;
}

static int register_only(void *address, uint64_t length, enum neap_access access, neap_region_id *region_p)
{
	const struct neap_memory memory = {.address = address, .length = length, .location = "cpu:0", .access = access};
	return neap_memory_register(rig.sides[0].engine, &memory, 1, region_p, rig.why, sizeof rig.why);
}

/* --- what is told ------------------------------------------------------------------------------------------------------- */

START_TEST(peers_read_devices_and_keys)
{
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	(void)rdma_engine_rig_register(&rig, 0, bytes[1], BYTES, NEAP_CLOSED);
	(void)rdma_engine_rig_register(&rig, 0, bytes[2], BYTES, NEAP_GRANT_ONLY);
	ck_assert_uint_eq(rig.devices[0]->regions, 4); /* under grants: whole, and in slabs */
	ck_assert_uint_eq(rig.devices[1]->regions, 4);
	struct neap_descriptor *told = rdma_engine_rig_describe(&rig, 0);
	ck_assert_int_eq(told->protocol, NEAP_PROTOCOL_RDMA);
	ck_assert_uint_eq(told->device_count, 2);
	ck_assert_uint_eq(told->buffer_count, 1);
	ck_assert_uint_eq(told->buffers[0].address, (uintptr_t)bytes[0]);
	ck_assert_uint_eq(told->buffers[0].length, BYTES);
	ck_assert_str_eq(told->buffers[0].name, "cpu:0");
	ck_assert_uint_eq(told->buffers[0].key_count, 2);
	ck_assert_uint_ne(told->buffers[0].rkeys[0], told->buffers[0].rkeys[1]);
	ck_assert_uint_eq(told->priority_count, 2);
	ck_assert_int_eq(told->tcp_data_port, neap_engine_data_port(rig.sides[0].engine));
	ck_assert(told->neap.present);
	ck_assert_ptr_null(told->rdma_server_name);
	neap_descriptor_free(told);
	calm();
	rdma_engine_rig_end(&rig);
}
END_TEST

/* Key by key the document that Mooncake writes (rdma-observed 1), and ours besides. */
START_TEST(the_document_has_mooncakes_shape)
{
	size_t length = 0;
	char expected[1024];
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 1, NULL);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	struct neap_descriptor *told = rdma_engine_rig_describe(&rig, 0);
	char *text = neap_publish_describe(rig.sides[0].engine, &length);
	(void)snprintf(expected, sizeof expected,
	               "{\"buffers\":[{\"addr\":%llu,\"length\":%u,\"lkey\":[%u],\"name\":\"cpu:0\",\"rkey\":[%u]}],\"devices\":[{\"gid\":"
	               "\"00:00:00:00:00:00:00:00:00:00:ff:ff:0a:4d:00:01\",\"lid\":0,\"name\":\"rxe0\"}],\"name\":\"%s\",",
	               (unsigned long long)(uintptr_t)bytes[0], BYTES, told->buffers[0].lkeys[0], told->buffers[0].rkeys[0],
	               neap_engine_name(rig.sides[0].engine));
	ck_assert_msg(strncmp(text, expected, strlen(expected)) == 0, "%s", text);
	ck_assert_ptr_nonnull(strstr(text, "\"priority_matrix\":{\"cpu:0\":[[\"rxe0\"],[]]},\"protocol\":\"rdma\",\"tcp_data_port\":"));
	free(text);
	neap_descriptor_free(told);
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(what_we_send_along_has_no_buffers)
{
	size_t length = 0;
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 1, NULL);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	char *text = neap_publish_self(rig.sides[0].engine, &length);
	ck_assert_ptr_nonnull(strstr(text, "\"protocol\":\"rdma\""));
	ck_assert_ptr_nonnull(strstr(text, "\"buffers\":[]"));
	ck_assert_ptr_nonnull(strstr(text, "\"rxe0\""));
	free(text);
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(connection_requests_may_go_elsewhere)
{
	const struct neap_engine_options options = {.rdma.advertised_host = "192.0.2.7"};
	char expected[64];
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 1, &options);
	struct neap_descriptor *told = rdma_engine_rig_describe(&rig, 0);
	(void)snprintf(expected, sizeof expected, "192.0.2.7:%u", neap_engine_handshake_port(rig.sides[0].engine));
	ck_assert_str_eq(told->rdma_server_name, expected);
	ck_assert_str_eq(rdma_engine_rig_of(&rig, 0)->server, expected);
	neap_descriptor_free(told);
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(large_regions_are_told_in_pieces)
{
	const struct neap_engine_options options = {.rdma.region_max_bytes = 16384};
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, &options);
	neap_region_id region = rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	(void)rdma_engine_rig_register(&rig, 0, bytes[2], 100, NEAP_OPEN);
	struct neap_descriptor *told = rdma_engine_rig_describe(&rig, 0);
	const uint64_t lengths[] = {16384, 16384, 8192, 100};
	ck_assert_uint_eq(told->buffer_count, 4);
	for (int i = 0; i < 4; i++) {
		ck_assert_uint_eq(told->buffers[i].length, lengths[i]);
		ck_assert_uint_eq(told->buffers[i].address, (uintptr_t)(i < 3 ? bytes[0] + 16384 * i : bytes[2]));
		ck_assert_uint_eq(told->buffers[i].key_count, 2);
	}
	ck_assert_uint_ne(told->buffers[0].rkeys[0], told->buffers[1].rkeys[0]);
	/* One request may go over all of them, as it may over a region that is not cut. */
	ck_assert(neap_descriptor_covers(told, (uintptr_t)bytes[0] + 1, BYTES - 1));
	neap_descriptor_free(told);
	ck_assert_int_eq(neap_memory_unregister(rig.sides[0].engine, region, NULL, NULL), NEAP_OK);
	ck_assert_uint_eq(told_buffers(), 1);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* --- devices that are not there ------------------------------------------------------------------------------------------- */

START_TEST(without_a_device_there_is_tcp)
{
	rdma_engine_rig_begin(&rig, 0);
	rdma_engine_rig_start(&rig, 0, 0, NULL);
	ck_assert_str_eq(rig.sides[0].engine->remote->ops->name, "tcp");
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "no RDMA: this machine has no RDMA device (rdma link show): all goes over TCP"), 1);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_TCP);
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(auto_does_not_complain)
{
	const struct neap_engine_options options = {.protocol = "auto"};
	rdma_engine_rig_begin(&rig, 1);
	rig.devices[0]->forbidden = true;
	rdma_engine_rig_start(&rig, 0, 1, &options);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_TCP);
	calm();
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(tcp_is_tcp)
{
	const struct neap_engine_options plain = {.protocol = "tcp"}, forced = {.protocol = "rdma", .rdma.force_tcp = true};
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 1, &plain);
	rdma_engine_rig_start(&rig, 1, 1, &forced);
	ck_assert_str_eq(rig.sides[0].engine->remote->ops->name, "tcp");
	ck_assert_str_eq(rig.sides[1].engine->remote->ops->name, "tcp");
	ck_assert_uint_eq(rig.sim.calls[SIM_OPEN], 0);
	calm();
	rdma_engine_rig_end(&rig);
}
END_TEST

/* It says so once, and takes what was registered meanwhile when the device can be had. */
START_TEST(no_permission_at_first)
{
	rdma_engine_rig_begin(&rig, 1);
	rig.devices[0]->forbidden = true;
	rdma_engine_rig_start(&rig, 0, 1, NULL);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_TCP);
	ck_assert_uint_eq(told_buffers(), 1);
	rdma_engine_rig_pass(&rig, 20000 * MS);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "no permission"), 2);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "no RDMA device can be used (rxe0: no permission"), 1);
	rig.devices[0]->forbidden = false;
	rdma_engine_rig_pass(&rig, 6000 * MS);
	ck_assert_uint_eq(rig.devices[0]->regions, 1);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_RDMA);
	ck_assert_uint_eq(told_buffers(), 1);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* Registered in the first moment: it waits until it is known which devices there are. */
START_TEST(memory_waits_for_the_first_look)
{
	neap_region_id region;
	rdma_engine_rig_begin(&rig, 2);
	ck_assert_int_eq(rdma_engine_rig_try(&rig, 0, 3, NULL), NEAP_OK);
	ck_assert_int_eq(register_only(bytes[0], BYTES, NEAP_OPEN, &region), NEAP_OK);
	ck_assert_uint_eq(rig.devices[0]->regions, 0);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, region), NEAP_OK);
	ck_assert_uint_ge(rig.devices[0]->regions + rig.devices[1]->regions, 1);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert_uint_eq(rig.devices[0]->regions + rig.devices[1]->regions, 2);
	ck_assert_uint_eq(told_devices(), 2);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* What was told over TCP stays told while it comes on devices: no document in between lacks a range. */
START_TEST(the_document_is_whole_at_every_moment)
{
	rdma_engine_rig_begin(&rig, 1);
	rig.devices[0]->forbidden = true;
	rdma_engine_rig_start(&rig, 0, 1, NULL);
	for (int i = 0; i < 3; i++)
		(void)rdma_engine_rig_register(&rig, 0, bytes[i], BYTES, NEAP_OPEN);
	rig.devices[0]->forbidden = false;
	uint32_t ms = 0;
	for (; told_protocol() == NEAP_PROTOCOL_TCP && ms < 10000; ms++) {
		ck_assert_uint_eq(told_buffers(), 3);
		rdma_engine_rig_pass(&rig, MS);
	}
	ck_assert_uint_lt(ms, 10000);
	ck_assert_uint_eq(told_buffers(), 3);
	/* From then on a new one is told when it is there, and the others stay. */
	neap_region_id region;
	ck_assert_int_eq(register_only(bytes[3], BYTES, NEAP_OPEN, &region), NEAP_OK);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_RDMA);
	ck_assert_uint_eq(told_buffers(), 3);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, region), NEAP_OK);
	ck_assert_uint_eq(told_buffers(), 4);
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(devices_come_and_go)
{
	uint64_t version;
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	struct neap_descriptor *told = rdma_engine_rig_describe(&rig, 0);
	version = told->neap.version;
	neap_descriptor_free(told);
	sim_verbs_lose(&rig.sim, rig.devices[1]);
	rdma_engine_rig_pass(&rig, 100 * MS);
	told = rdma_engine_rig_describe(&rig, 0);
	ck_assert_uint_gt(told->neap.version, version);
	ck_assert_uint_eq(told->device_count, 1);
	ck_assert_str_eq(told->devices[0].name, "rxe0");
	ck_assert_uint_eq(told->buffers[0].key_count, 1);
	neap_descriptor_free(told);
	sim_verbs_set_port(&rig.sim, rig.devices[0], NEAP_PORT_DOWN);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_TCP);
	ck_assert_uint_eq(told_buffers(), 1);
	sim_verbs_set_port(&rig.sim, rig.devices[0], NEAP_PORT_ACTIVE);
	sim_verbs_regain(rig.devices[1]);
	rdma_engine_rig_pass(&rig, 6000 * MS);
	ck_assert_uint_eq(told_devices(), 2);
	ck_assert_uint_eq(rig.devices[1]->regions, 1);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* One that comes back and does not take a range is not told: readers take any device for any buffer. */
START_TEST(a_device_without_all_memory_is_not_told)
{
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	neap_region_id region = rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	sim_verbs_lose(&rig.sim, rig.devices[1]);
	rdma_engine_rig_pass(&rig, 100 * MS);
	sim_verbs_regain(rig.devices[1]);
	rig.devices[1]->locked_bytes_max = 4096;
	rdma_engine_rig_pass(&rig, 6000 * MS);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "the device goes without it"), 1);
	ck_assert_uint_eq(told_devices(), 1);
	ck_assert_int_eq(neap_memory_unregister(rig.sides[0].engine, region, NULL, NULL), NEAP_OK);
	ck_assert_uint_eq(told_devices(), 2);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* --- memory that devices refuse ------------------------------------------------------------------------------------------- */

START_TEST(refused_memory_stays_for_tcp)
{
	neap_region_id region, other;
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	rig.devices[1]->locked_bytes_max = BYTES - 1;
	ck_assert_int_eq(register_only(bytes[0], BYTES, NEAP_OPEN, &region), NEAP_OK);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, region), NEAP_ECONTEXT);
	ck_assert_msg(strstr(rig.why, "rxe1: 40960 bytes of memory cannot be registered") && strstr(rig.why, "ulimit -l"), "%s", rig.why);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, region), NEAP_ECONTEXT);
	ck_assert_uint_eq(rig.devices[0]->regions, 0);
	ck_assert_uint_eq(told_buffers(), 0);
	ck_assert_int_eq(told_protocol(), NEAP_PROTOCOL_RDMA);
	ck_assert(!neap_rdma_is_on_devices(rdma_engine_rig_of(&rig, 0), bytes[0], BYTES));
	ck_assert_int_eq(register_only(bytes[1], BYTES, NEAP_OPEN, &other), NEAP_OK);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, other), NEAP_ECONTEXT);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "is not on the devices, is not published, and is moved over TCP"), 1);
	rig.devices[1]->locked_bytes_max = UINT64_MAX;
	(void)rdma_engine_rig_register(&rig, 0, bytes[2], 100, NEAP_OPEN);
	ck_assert_uint_eq(told_buffers(), 1);
	/* A device that comes back may take what it would not. */
	sim_verbs_lose(&rig.sim, rig.devices[1]);
	rdma_engine_rig_pass(&rig, 100 * MS);
	sim_verbs_regain(rig.devices[1]);
	rdma_engine_rig_pass(&rig, 6000 * MS);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, region), NEAP_OK);
	ck_assert_uint_eq(told_buffers(), 3);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* Pieces of what devices allow are counted when they are known. */
START_TEST(too_many_pieces)
{
	neap_region_id region;
	unsigned char *large = malloc((NEAP_RDMA_PIECES_MAX + 1) * 4096u);
	const struct neap_engine_options options = {.rdma.region_max_bytes = 4096};
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 1, &options);
	ck_assert_int_eq(register_only(large, (NEAP_RDMA_PIECES_MAX + 1) * 4096u, NEAP_CLOSED, &region), NEAP_OK);
	ck_assert_int_eq(rdma_engine_rig_settle(&rig, 0, region), NEAP_ELIMIT);
	ck_assert_msg(strstr(rig.why, "MC_MAX_MR_SIZE"), "%s", rig.why);
	ck_assert_int_eq(neap_memory_unregister(rig.sides[0].engine, region, NULL, NULL), NEAP_OK);
	rdma_engine_rig_end(&rig);
	free(large);
}
END_TEST

/* --- the end of a registration ------------------------------------------------------------------------------------------- */

static bool released;

static void on_released(void *user)
{
	(void)user;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	ck_assert(!released);
	released = true;
}

static void unregister(neap_region_id region)
{
	released = false;
	ck_assert_int_eq(neap_memory_unregister(rig.sides[0].engine, region, on_released, NULL), NEAP_OK);
	ck_assert(!released);
}

START_TEST(released_when_no_device_has_it)
{
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	neap_region_id region = rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	sim_helper_hold(&rig.sides[0].helper, true);
	unregister(region);
	ck_assert_uint_eq(told_buffers(), 0); /* at once */
	rdma_engine_rig_pass(&rig, 5000 * MS);
	ck_assert(!released);
	ck_assert_uint_eq(rig.devices[0]->regions, 1);
	sim_helper_hold(&rig.sides[0].helper, false);
	ck_assert(rdma_engine_rig_until(&rig, &released, 100 * MS));
	ck_assert_uint_eq(rig.devices[0]->regions + rig.devices[1]->regions, 0);
	/* The slot serves the next one. */
	region = rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	unregister(region);
	ck_assert(rdma_engine_rig_until(&rig, &released, 100 * MS));
	rdma_engine_rig_end(&rig);
}
END_TEST

static int settled_as;
static uint32_t settled_times;

static void on_settled(void *user, int error, const char *why)
{
	(void)user;
	ck_assert(neap_reactor_in_turn(rig.reactor));
	ck_assert((error != 0) == (why != NULL));
	settled_as = error;
	settled_times++;
}

START_TEST(unregistered_while_it_comes_on)
{
	neap_region_id region;
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	for (uint32_t jobs = 0; jobs < 4; jobs++) {
		settled_times = 0;
		ck_assert_int_eq(register_only(bytes[0], BYTES, NEAP_OPEN, &region), NEAP_OK);
		ck_assert_int_eq(neap_memory_settled(rig.sides[0].engine, region, on_settled, NULL), NEAP_OK);
		ck_assert_int_eq(neap_memory_settled(rig.sides[0].engine, region, on_settled, NULL), NEAP_OK);
		rdma_engine_rig_pass(&rig, jobs * MS);
		unregister(region);
		ck_assert(rdma_engine_rig_until(&rig, &released, 100 * MS));
		ck_assert_uint_eq(settled_times, 2);
		ck_assert_int_eq(settled_as, jobs < 2 ? NEAP_ECANCELED : settled_as);
		ck_assert_uint_eq(rig.devices[0]->regions + rig.devices[1]->regions, 0);
	}
	ck_assert_int_eq(neap_memory_settled(rig.sides[0].engine, region, on_settled, NULL), NEAP_ESTALE);
	ck_assert_int_eq(neap_memory_settled(rig.sides[0].engine, region, NULL, NULL), NEAP_EINVAL);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* The memory must not serve anything else: nobody is told that it may. */
START_TEST(a_device_that_does_not_let_go)
{
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 1, NULL);
	neap_region_id region = rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	unregister(region);
	for (uint64_t tries = 1; tries <= NEAP_RDMA_RELEASE_TRIES; tries++) {
		sim_verbs_fail(&rig.sim, SIM_DEREGISTER, 1, -EBUSY);
		while (rig.sim.calls[SIM_DEREGISTER] < tries)
			rdma_engine_rig_pass(&rig, MS);
	}
	rdma_engine_rig_pass(&rig, 20000 * MS);
	ck_assert(!released);
	ck_assert_uint_eq(rdma_engine_rig_logged(&rig, "it must stay as it is until this process ends"), 1);
	ck_assert_int_eq(sim_verbs_force(rig.devices[0]), 1);
	rdma_engine_rig_end(&rig);
	ck_assert(!released);
}
END_TEST

START_TEST(with_tcp_alone_memory_is_settled)
{
	const struct neap_engine_options plain = {.protocol = "tcp"};
	neap_region_id region;
	rdma_engine_rig_begin(&rig, 0);
	rdma_engine_rig_start(&rig, 0, 0, &plain);
	settled_times = 0;
	ck_assert_int_eq(register_only(bytes[0], BYTES, NEAP_OPEN, &region), NEAP_OK);
	ck_assert_int_eq(neap_memory_settled(rig.sides[0].engine, region, on_settled, NULL), NEAP_OK);
	ck_assert_uint_eq(settled_times, 0);
	rdma_engine_rig_turns(&rig);
	ck_assert_uint_eq(settled_times, 1);
	ck_assert_int_eq(settled_as, NEAP_OK);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* --- segments ---------------------------------------------------------------------------------------------------------------- */

static const char *protocol_of(neap_segment_id segment)
{
	struct neap_segment_info info;
	ck_assert_int_eq(neap_segment_info(rig.sides[0].engine, segment, &info), NEAP_OK);
	return info.protocol;
}

static struct neap_outcome outcome;
static bool finished;

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *told)
{
	(void)user;
	(void)batch;
	(void)index;
	(void)request_user;
	outcome = *told;
	finished = true;
}

static void write_bytes(neap_segment_id segment, void *source, void *target, uint64_t length, const struct neap_grant_token *grant)
{
	const struct neap_request request = {.opcode = NEAP_WRITE, .source = source, .segment = segment,
	                                     .target_offset = (uintptr_t)target, .length = length, .grant = grant};
	const struct neap_batch_options options = {.on_request = on_request};
	char text[320];
	finished = false;
	ck_assert_int_eq(neap_submit(rig.sides[0].engine, &request, 1, &options, NULL), NEAP_OK);
	ck_assert(rdma_engine_rig_until(&rig, &finished, 30000 * MS));
	(void)neap_outcome_text(rig.sides[0].engine, &request, &outcome, text, sizeof text);
	ck_assert_msg(outcome.status == NEAP_COMPLETED, "%s\n%s", text, rig.log);
	rdma_engine_rig_pass(&rig, 10 * MS); /* the network acknowledges before it places */
	ck_assert_int_eq(memcmp(source, target, length), 0);
}

static uint64_t pieces_posted(void)
{
	struct neap_rdma_initiator_stats stats;
	neap_rdma_initiator_stats(rdma_engine_rig_of(&rig, 0)->initiator, &stats);
	return stats.pieces_posted;
}

START_TEST(requests_go_over_devices)
{
	const struct neap_engine_options pieces = {.rdma.region_max_bytes = 16384};
	rdma_engine_rig_begin(&rig, 4);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	rdma_engine_rig_start(&rig, 1, 12, &pieces);
	(void)rdma_engine_rig_register(&rig, 1, bytes[0], BYTES, NEAP_OPEN);
	(void)rdma_engine_rig_register(&rig, 0, bytes[2], BYTES, NEAP_CLOSED);
	neap_segment_id segment = rdma_engine_rig_open(&rig, 0);
	ck_assert_str_eq(protocol_of(segment), "rdma");
	memset(bytes[2], 0x5a, BYTES);
	write_bytes(segment, bytes[2], bytes[0], BYTES, NULL);
	ck_assert_uint_ge(pieces_posted(), 3);
	/* The devices go, and are back. */
	for (int i = 0; i < 2; i++)
		sim_verbs_set_port(&rig.sim, rig.devices[i], NEAP_PORT_DOWN);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert_str_eq(protocol_of(segment), "tcp");
	memset(bytes[2], 0x33, BYTES);
	uint64_t posted = pieces_posted();
	write_bytes(segment, bytes[2], bytes[0], BYTES, NULL);
	ck_assert_uint_eq(pieces_posted(), posted);
	sim_verbs_set_port(&rig.sim, rig.devices[0], NEAP_PORT_ACTIVE);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert_str_eq(protocol_of(segment), "rdma");
	memset(bytes[2], 0x44, BYTES);
	write_bytes(segment, bytes[2], bytes[0], BYTES, NULL);
	ck_assert_uint_gt(pieces_posted(), posted);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* What has no key, or is not registered here, goes over TCP to a peer that has devices. */
/* The segment is opened, and used, before the peer's devices can be. */
START_TEST(devices_that_come_after_the_opening_are_found)
{
	rdma_engine_rig_begin(&rig, 4);
	for (int i = 2; i < 4; i++)
		sim_verbs_set_port(&rig.sim, rig.devices[i], NEAP_PORT_DOWN);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	rdma_engine_rig_start(&rig, 1, 12, NULL);
	(void)rdma_engine_rig_register(&rig, 1, bytes[0], BYTES, NEAP_OPEN);
	(void)rdma_engine_rig_register(&rig, 0, bytes[2], BYTES, NEAP_CLOSED);
	neap_segment_id segment = rdma_engine_rig_open(&rig, 0);
	ck_assert_str_eq(protocol_of(segment), "tcp");
	memset(bytes[2], 0x5a, BYTES);
	write_bytes(segment, bytes[2], bytes[0], BYTES, NULL);
	for (int i = 2; i < 4; i++)
		sim_verbs_set_port(&rig.sim, rig.devices[i], NEAP_PORT_ACTIVE);
	rdma_engine_rig_pass(&rig, 3000 * MS);
	ck_assert_str_eq(protocol_of(segment), "tcp"); /* nobody has asked */
	memset(bytes[2], 0x33, BYTES);
	write_bytes(segment, bytes[2], bytes[0], BYTES, NULL);
	rdma_engine_rig_pass(&rig, 100 * MS);
	ck_assert_str_eq(protocol_of(segment), "rdma");
	memset(bytes[2], 0x44, BYTES);
	write_bytes(segment, bytes[2], bytes[0], BYTES, NULL);
	ck_assert_uint_gt(pieces_posted(), 0);
	rdma_engine_rig_end(&rig);
}
END_TEST

START_TEST(requests_that_devices_cannot_carry)
{
	struct neap_grant_token token;
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 1, NULL);
	rdma_engine_rig_start(&rig, 1, 2, NULL);
	(void)rdma_engine_rig_register(&rig, 1, bytes[0], BYTES, NEAP_OPEN);
	(void)rdma_engine_rig_register(&rig, 1, bytes[1], BYTES, NEAP_GRANT_ONLY);
	(void)rdma_engine_rig_register(&rig, 0, bytes[2], BYTES, NEAP_CLOSED);
	neap_segment_id segment = rdma_engine_rig_open(&rig, 0);
	memset(bytes[2], 0x5a, BYTES);
	memset(bytes[3], 0xa5, BYTES);
	write_bytes(segment, bytes[3], bytes[0], BYTES, NULL);
	ck_assert_int_eq(neap_grant_create(rig.sides[1].engine, bytes[1], BYTES, NEAP_MAY_WRITE, NULL, &token), NEAP_OK);
	write_bytes(segment, bytes[2], bytes[1], BYTES, &token);
	ck_assert_uint_eq(pieces_posted(), 0);
	ck_assert_int_eq(neap_segment_close(rig.sides[0].engine, segment), NEAP_OK);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* A Neap peer with devices is reached over TCP by one that has none, also over the seams of its pieces. */
START_TEST(an_engine_with_tcp_reaches_one_with_devices)
{
	const struct neap_engine_options plain = {.protocol = "tcp"}, pieces = {.rdma.region_max_bytes = 16384};
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 0, &plain);
	rdma_engine_rig_start(&rig, 1, 1, &pieces);
	(void)rdma_engine_rig_register(&rig, 1, bytes[0], BYTES, NEAP_OPEN);
	neap_segment_id segment = rdma_engine_rig_open(&rig, 0);
	ck_assert_str_eq(protocol_of(segment), "tcp");
	memset(bytes[3], 0x77, BYTES);
	write_bytes(segment, bytes[3], bytes[0], BYTES, NULL);
	rdma_engine_rig_end(&rig);
}
END_TEST

static void on_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	(void)segment;
	settled_as = error;
	(void)snprintf(rig.why, sizeof rig.why, "%s", why ? why : "");
	*(bool *)user = true;
}

/* One that has devices alone, as Mooncake's peers have, cannot be reached without any. */
START_TEST(rdma_alone_needs_devices)
{
	const struct neap_engine_options plain = {.protocol = "tcp"}, mooncake = {.plain_only = true};
	bool opened = false;
	rdma_engine_rig_begin(&rig, 1);
	rdma_engine_rig_start(&rig, 0, 0, &plain);
	rdma_engine_rig_start(&rig, 1, 1, &mooncake);
	ck_assert_int_eq(neap_segment_open(rig.sides[0].engine, neap_engine_name(rig.sides[1].engine), on_opened, &opened), NEAP_OK);
	ck_assert(rdma_engine_rig_until(&rig, &opened, 10000 * MS));
	ck_assert_int_eq(settled_as, NEAP_ENOTSUP);
	ck_assert_msg(strstr(rig.why, "is served over rdma alone, and this engine has tcp"), "%s", rig.why);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* --- the end at every moment --------------------------------------------------------------------------------------------------- */

/* Devices are being opened, memory comes on, and goes off. */
START_TEST(closed_at_any_time)
{
	for (uint32_t moment = 0; moment < 12; moment++) {
		neap_region_id region;
		rdma_engine_rig_begin(&rig, 2);
		ck_assert_int_eq(rdma_engine_rig_try(&rig, 0, 3, NULL), NEAP_OK);
		rdma_engine_rig_pass(&rig, (uint64_t)_i * MS);
		settled_times = 0;
		ck_assert_int_eq(register_only(bytes[0], BYTES, NEAP_OPEN, &region), NEAP_OK);
		ck_assert_int_eq(neap_memory_settled(rig.sides[0].engine, region, on_settled, NULL), NEAP_OK);
		ck_assert_int_eq(register_only(bytes[1], BYTES, NEAP_CLOSED, &region), NEAP_OK);
		rdma_engine_rig_pass(&rig, moment / 2 * MS);
		if (moment & 1)
			unregister(region);
		rdma_engine_rig_close(&rig, 0);
		ck_assert_uint_eq(settled_times, 1);
		ck_assert(!(moment & 1) || released);
		rdma_engine_rig_end(&rig);
	}
}
END_TEST

/* The reactor stops: the engine goes by itself, its devices with it and not before it. */
START_TEST(the_reactor_stops)
{
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	neap_reactor_stop(rig.reactor);
	for (int i = 0; i < 100000 && neap_reactor_run_at(rig.reactor, rig.now_ns, NULL) != NEAP_RUN_STOPPED; i++)
		rig.now_ns += MS / 10;
	ck_assert_uint_eq(rig.devices[0]->regions + rig.devices[1]->regions, 0);
	neap_helper_end(&rig.sides[0].helper.base);
	neap_topology_free(rig.sides[0].topology);
	rig.sides[0].engine = NULL;
	sim_verbs_end(&rig.sim);
	ck_assert_int_eq(neap_reactor_destroy(rig.reactor), NEAP_OK);
}
END_TEST

/* Each allocation of the start fails once: the engine does not start, or has TCP. Nothing is lost. */
START_TEST(out_of_memory_at_the_start)
{
	uint32_t nth = 0, with_devices = 0;
	for (bool started_whole = false; !started_whole;) {
		rdma_engine_rig_begin(&rig, 2);
		rig.fail_allocation = ++nth;
		int error = rdma_engine_rig_try(&rig, 0, 3, NULL);
		started_whole = rig.fail_allocation > 0;
		rig.fail_allocation = 0;
		ck_assert(error == NEAP_OK || error == NEAP_ENOMEM);
		if (!error) {
			rdma_engine_rig_pass(&rig, 100 * MS);
			(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
			with_devices += told_protocol() == NEAP_PROTOCOL_RDMA;
		}
		rdma_engine_rig_end(&rig);
	}
	ck_assert_uint_eq(with_devices, 1);
	ck_assert_uint_gt(nth, 20);
}
END_TEST

/* The same for a registration and for what peers read. */
START_TEST(out_of_memory_later)
{
	rdma_engine_rig_begin(&rig, 2);
	rdma_engine_rig_start(&rig, 0, 3, NULL);
	for (uint32_t nth = 1; nth < 12; nth++) {
		neap_region_id region;
		size_t length;
		rig.fail_allocation = nth;
		int error = register_only(bytes[0], BYTES, NEAP_OPEN, &region);
		if (!error)
			(void)rdma_engine_rig_settle(&rig, 0, region);
		free(neap_publish_describe(rig.sides[0].engine, &length));
		rig.fail_allocation = 0;
		if (!error)
			ck_assert_int_eq(neap_memory_unregister(rig.sides[0].engine, region, NULL, NULL), NEAP_OK);
		rdma_engine_rig_pass(&rig, 100 * MS);
		ck_assert_uint_eq(rig.devices[0]->regions + rig.devices[1]->regions, 0);
	}
	(void)rdma_engine_rig_register(&rig, 0, bytes[0], BYTES, NEAP_OPEN);
	ck_assert_uint_eq(told_buffers(), 1);
	rdma_engine_rig_end(&rig);
}
END_TEST

/* --------------------------------------------------------------------------------------------------------------------------- */

int main(void)
{
	Suite *suite = suite_create("engines with RDMA devices");
	TCase *tests = tcase_create("all");
	tcase_set_timeout(tests, 120);
	tcase_add_test(tests, peers_read_devices_and_keys);
	tcase_add_test(tests, the_document_has_mooncakes_shape);
	tcase_add_test(tests, what_we_send_along_has_no_buffers);
	tcase_add_test(tests, connection_requests_may_go_elsewhere);
	tcase_add_test(tests, large_regions_are_told_in_pieces);
	tcase_add_test(tests, without_a_device_there_is_tcp);
	tcase_add_test(tests, auto_does_not_complain);
	tcase_add_test(tests, tcp_is_tcp);
	tcase_add_test(tests, no_permission_at_first);
	tcase_add_test(tests, memory_waits_for_the_first_look);
	tcase_add_test(tests, the_document_is_whole_at_every_moment);
	tcase_add_test(tests, devices_come_and_go);
	tcase_add_test(tests, a_device_without_all_memory_is_not_told);
	tcase_add_test(tests, refused_memory_stays_for_tcp);
	tcase_add_test(tests, too_many_pieces);
	tcase_add_test(tests, released_when_no_device_has_it);
	tcase_add_test(tests, unregistered_while_it_comes_on);
	tcase_add_test(tests, a_device_that_does_not_let_go);
	tcase_add_test(tests, with_tcp_alone_memory_is_settled);
	tcase_add_test(tests, requests_go_over_devices);
	tcase_add_test(tests, devices_that_come_after_the_opening_are_found);
	tcase_add_test(tests, requests_that_devices_cannot_carry);
	tcase_add_test(tests, an_engine_with_tcp_reaches_one_with_devices);
	tcase_add_test(tests, rdma_alone_needs_devices);
	tcase_add_loop_test(tests, closed_at_any_time, 0, 5);
	tcase_add_test(tests, the_reactor_stops);
	tcase_add_test(tests, out_of_memory_at_the_start);
	tcase_add_test(tests, out_of_memory_later);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
