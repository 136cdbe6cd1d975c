/* A memory tier whose slabs are registered with a real engine: what another engine reaches with a grant, over TCP. */
#include "store/tier/dram_engine.h"
#include "tests/support/drive.h"
#include "tests/support/small_engine.h"
#include <check.h>
#include <neap/store_error.h>
#include <string.h>

#define SLAB (UINT64_C(2) << 20)

static struct neap_reactor *reactor;
static struct neap_engine *owner, *peer;
static struct neap_dram dram;
static struct neap_dram_engine binding;
static neap_segment_id segment;
static struct neap_outcome outcome;
static char why[300];

static void raise_flag(void *user)
{
	*(bool *)user = true;
}

static void on_opened(void *user, int error, neap_segment_id id, const char *reason)
{
	ck_assert_msg(error == NEAP_OK, "%s", reason);
	segment = id;
	*(bool *)user = true;
}

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *told)
{
	(void)user, (void)batch, (void)index, (void)request_user;
	outcome = *told;
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)batch, (void)summary;
	*(bool *)user = true;
}

static void setup(void)
{
	struct neap_dram_options options = {.capacity = 3 * SLAB, .slab_bytes = SLAB, .numa_node = -1};
	bool opened = false;
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), NEAP_OK);
	const struct neap_engine_options small = small_engine(NULL);
	ck_assert_msg(neap_engine_create(&owner, reactor, &small, why, sizeof why) == NEAP_OK, "%s", why);
	ck_assert_msg(neap_engine_create(&peer, reactor, &small, why, sizeof why) == NEAP_OK, "%s", why);
	ck_assert_msg(neap_dram_create(&dram, reactor, &options, why, sizeof why) == NEAP_OK, "%s", why);
	ck_assert_msg(neap_dram_engine_begin(&binding, owner, &dram, 0, true, why, sizeof why) == NEAP_OK, "%s", why);
	ck_assert_int_eq(neap_segment_open(peer, neap_engine_name(owner), on_opened, &opened), NEAP_OK);
	ck_assert(drive_until(reactor, &opened, 5000));
}

static void teardown(void)
{
	bool closed = false;
	ck_assert_int_eq(neap_dram_close(&dram, raise_flag, &closed), NEAP_OK);
	ck_assert(drive_until(reactor, &closed, 5000));
	neap_dram_engine_end(&binding);
	ck_assert_int_eq(neap_engine_close(peer, NULL, NULL), NEAP_OK);
	ck_assert_int_eq(neap_engine_close(owner, NULL, NULL), NEAP_OK);
	drive_to_end(reactor);
}

static uint8_t write_to(const struct neap_extent *extent, unsigned char *source, const struct neap_grant_token *grant)
{
	bool finished = false;
	struct neap_request request = {
		.opcode = NEAP_WRITE,
		.source = source,
		.segment = segment,
		.target_offset = (uint64_t)(uintptr_t)neap_dram_address(&dram, extent->offset),
		.length = extent->size,
		.grant = grant,
	};
	struct neap_batch_options options = {.on_request = on_request, .on_batch = on_batch, .user = &finished};
	neap_batch_id batch;
	ck_assert_int_eq(neap_submit(peer, &request, 1, &options, &batch), NEAP_OK);
	ck_assert(drive_until(reactor, &finished, 5000));
	return outcome.status;
}

START_TEST(a_slab_is_a_region_behind_grants)
{
	static unsigned char bytes[100000];
	struct neap_extent extent;
	struct neap_region_info info;
	struct neap_segment_info published;
	struct neap_grant_token token;
	uint8_t instance[16];
	bool ended = false;
	ck_assert_int_eq(neap_memory_info(owner, binding.regions[1], &info), NEAP_OK);
	ck_assert_uint_eq(info.length, SLAB);
	ck_assert_int_eq(info.access, NEAP_GRANT_ONLY);
	ck_assert_str_eq(info.location, "cpu:0");
	ck_assert_int_eq(neap_segment_info(peer, segment, &published), NEAP_OK);
	ck_assert_uint_eq(published.buffer_count, 0); /* nobody is told of it */

	memset(bytes, 0x77, sizeof bytes);
	ck_assert_int_eq(neap_dram_allocate(&dram, sizeof bytes, &extent), NEAP_STORE_OK);
	ck_assert_int_ne(write_to(&extent, bytes, NULL), NEAP_COMPLETED);
	neap_engine_instance(peer, instance);
	unsigned char *address = neap_dram_address(&dram, extent.offset);
	ck_assert_int_eq(neap_grant_create(owner, address, extent.size, NEAP_MAY_WRITE, instance, &token), NEAP_OK);
	ck_assert_int_eq(write_to(&extent, bytes, &token), NEAP_COMPLETED);
	ck_assert_int_eq(memcmp(address, bytes, sizeof bytes), 0);
	ck_assert_int_eq(neap_grant_end(owner, &token, raise_flag, &ended), NEAP_OK);
	ck_assert(drive_until(reactor, &ended, 5000));
	ck_assert_int_ne(write_to(&extent, bytes, &token), NEAP_COMPLETED);
	neap_dram_free(&dram, &extent);
}
END_TEST

static void renewed(void *user, uint32_t slab, int error, const char *reason)
{
	(void)slab;
	ck_assert_msg(error == NEAP_OK, "%s", reason);
	*(bool *)user = true;
}

START_TEST(a_renewed_slab_is_another_region)
{
	struct neap_extent extent, other;
	struct neap_region_info info;
	bool done = false;
	ck_assert_int_eq(neap_dram_allocate(&dram, 1000, &extent), NEAP_STORE_OK);
	uint32_t slab = neap_dram_slab(&dram, extent.offset);
	neap_region_id old = binding.regions[slab];
	memset(neap_dram_address(&dram, extent.offset), 0x33, 1000);
	ck_assert_int_eq(neap_dram_drain(&dram, slab), NEAP_OK);
	ck_assert_int_eq(neap_dram_renew(&dram, slab, renewed, &done), NEAP_OK);
	ck_assert(!done); /* the engine has a grace period */
	ck_assert(drive_until(reactor, &done, 5000));
	ck_assert_uint_ne(binding.regions[slab], old);
	ck_assert_int_eq(neap_memory_info(owner, old, &info), NEAP_ESTALE);
	ck_assert_int_eq(neap_memory_info(owner, binding.regions[slab], &info), NEAP_OK);
	ck_assert_int_eq(*(unsigned char *)neap_dram_address(&dram, extent.offset + 999), 0x33); /* what is stored stays */
	ck_assert_int_eq(neap_dram_allocate(&dram, 1000, &other), NEAP_STORE_OK);
	ck_assert_uint_eq(neap_dram_slab(&dram, other.offset), slab);
	neap_dram_free(&dram, &extent);
	neap_dram_free(&dram, &other);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("memory tier in an engine");
	TCase *cases = tcase_create("regions");
	tcase_add_checked_fixture(cases, setup, teardown);
	tcase_add_test(cases, a_slab_is_a_region_behind_grants);
	tcase_add_test(cases, a_renewed_slab_is_another_region);
	tcase_set_timeout(cases, 30);
	suite_add_tcase(suite, cases);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed ? 1 : 0;
}
