/* The environment variables of an engine: each is read, each bad value is refused with its name and what is allowed. */
#include "tests/support/drive.h"
#include "tests/support/small_engine.h"
#include "transports/engine_state.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static char why[400];
static struct neap_reactor *reactor;
static struct neap_engine *engine;

static int create(const struct neap_engine_options *options)
{
	struct neap_engine_options filled = small_engine(options);
	ck_assert_int_eq(neap_reactor_create(&reactor, NULL), 0);
	return neap_engine_create(&engine, reactor, &filled, why, sizeof why);
}

static void raise_flag(void *user)
{
	*(bool *)user = true;
}

static void close_all(void)
{
	bool closed = false;
	ck_assert_int_eq(neap_engine_close(engine, raise_flag, &closed), 0);
	ck_assert(drive_until(reactor, &closed, 5000));
	drive_to_end(reactor);
}

static const struct {
	const char *name, *value;
	int error;
	size_t offset;
	uint32_t expected;
} variables[] = {
#define FIELD(name) offsetof(struct neap_engine_options, name)
	{"MC_TCP_LANES_PER_PEER", "4", 0, FIELD(lanes_per_peer), 4},
	{"MC_TCP_LANES_PER_PEER", "0", NEAP_EINVAL, 0, 0},
	{"MC_TCP_LANES_PER_PEER", "17", NEAP_EINVAL, 0, 0},
	{"MC_TCP_LANES_PER_PEER", "-1", NEAP_EINVAL, 0, 0},
	{"MC_TCP_LANES_PER_PEER", "4x", NEAP_EINVAL, 0, 0},
	{"MC_TCP_LANES_PER_PEER", " 4", NEAP_EINVAL, 0, 0},
	{"MC_TCP_LANES_PER_PEER", "99999999999999999999", NEAP_EINVAL, 0, 0},
	{"MC_TCP_LANES_PER_PEER", "", 0, FIELD(lanes_per_peer), 0},
	{"MC_TCP_MAX_CONNECTIONS_PER_PEER", "3", 0, FIELD(lanes_per_peer), 3},
	{"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", "1000", 0, FIELD(requests_per_peer_max), 1000},
	{"MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", "65536", NEAP_EINVAL, 0, 0},
	{"MC_HANDSHAKE_MAX_LENGTH", "2097152", 0, FIELD(handshake_length_max), 2097152},
	{"MC_HANDSHAKE_MAX_LENGTH", "1048575", NEAP_EINVAL, 0, 0},
	{"MC_HANDSHAKE_CONNECT_TIMEOUT", "7", 0, FIELD(connect_timeout_ms), 7000},
	{"MC_HANDSHAKE_CONNECT_TIMEOUT", "3600", NEAP_EINVAL, 0, 0},
	{"MC_TCP_STATUS_TIMEOUT_SEC", "2", 0, FIELD(progress_timeout_ms), 2000},
	{"MC_TCP_STATUS_TIMEOUT_SEC", "0", NEAP_EINVAL, 0, 0},
	{"MC_TCP_PROTO", "3", NEAP_EINVAL, 0, 0},
	{"MC_MIN_RPC_PORT", "80", NEAP_EINVAL, 0, 0},
	{"MC_MIN_RPC_PORT", "18000", NEAP_EINVAL, 0, 0},
	{"MC_USE_IPV6", "maybe", NEAP_EINVAL, 0, 0},
	{"MC_IB_PORT", "2", 0, FIELD(rdma.port), 2},
	{"MC_IB_PORT", "0", NEAP_EINVAL, 0, 0},
	{"MC_GID_INDEX", "0", 0, FIELD(rdma.gid_index), 0},
	{"MC_GID_INDEX", "256", NEAP_EINVAL, 0, 0},
	{"NCCL_IB_GID_INDEX", "3", 0, FIELD(rdma.gid_index), 3},
	{"MC_MTU", "1024", 0, FIELD(rdma.mtu_bytes), 1024},
	{"MC_MTU", "1500", NEAP_EINVAL, 0, 0},
	{"MC_MTU", "256", NEAP_EINVAL, 0, 0},
	{"MC_MTU", "large", NEAP_EINVAL, 0, 0},
	{"MC_IB_TC", "106", 0, FIELD(rdma.traffic_class), 106},
	{"MC_IB_TC", "-1", NEAP_EINVAL, 0, 0},
	{"MC_IB_SL", "16", NEAP_EINVAL, 0, 0},
	{"MC_IB_SL", "5", 0, FIELD(rdma.service_level), 5},
	{"MC_PKEY_INDEX", "1", 0, FIELD(rdma.pkey_index), 1},
	{"MC_MAX_EP_PER_CTX", "256", 0, FIELD(rdma.endpoints_max), 256},
	{"MC_NUM_QP_PER_EP", "4", 0, FIELD(rdma.qps_per_endpoint), 4},
	{"MC_NUM_QP_PER_EP", "17", NEAP_EINVAL, 0, 0},
	{"MC_MAX_WR", "128", 0, FIELD(rdma.sends_max), 128},
	{"MC_MAX_CQE_PER_CTX", "0", NEAP_EINVAL, 0, 0},
	{"MC_MAX_CQE_PER_CTX", "8192", 0, FIELD(rdma.completions_max), 8192},
	{"MC_MAX_MR_SIZE", "1048576", 0, FIELD(rdma.region_max_bytes), 1048576},
	{"MC_MAX_MR_SIZE", "1G", NEAP_EINVAL, 0, 0},
	{"MC_MAX_MR_SIZE", "-1", NEAP_EINVAL, 0, 0},
	{"MC_MAX_MR_SIZE", "70368744177665", NEAP_EINVAL, 0, 0},
	{"MC_SLICE_SIZE", "131072", 0, FIELD(rdma.slice_bytes), 131072},
	{"MC_SLICE_SIZE", "-1", NEAP_EINVAL, 0, 0},
	{"MC_FRAGMENT_RATIO", "8", 0, FIELD(rdma.fragment_ratio), 8},
	{"MC_RETRY_CNT", "128", NEAP_EINVAL, 0, 0},
	{"MC_RETRY_CNT", "3", 0, FIELD(rdma.retries_max), 3},
	{"NEAP_RDMA_WINDOW_BYTES", "1048576", 0, FIELD(rdma.window_bytes), 1048576},
	{"NEAP_RDMA_WINDOW_BYTES", "4095", NEAP_EINVAL, 0, 0},
	{"MC_RDMA_RAIL_PAUSE_SECONDS", "7", 0, FIELD(rdma.rail_pause_ms), 7000},
	{"MC_RDMA_RAIL_PAUSE_SECONDS", "3600", NEAP_EINVAL, 0, 0},
	{"MC_IB_PCI_RELAXED_ORDERING", "3", NEAP_EINVAL, 0, 0},
	{"MC_FORCE_TCP", "please", NEAP_EINVAL, 0, 0},
	{"MC_ENABLE_DEST_DEVICE_AFFINITY", "2", NEAP_EINVAL, 0, 0},
};

START_TEST(environment_variables)
{
	struct neap_engine_options options = {0}, before = options;
	ck_assert_int_eq(setenv(variables[_i].name, variables[_i].value, 1), 0);
	ck_assert_int_eq(neap_engine_options_from_environment(&options, why, sizeof why), variables[_i].error);
	unsetenv(variables[_i].name);
	if (variables[_i].error) {
		ck_assert_ptr_nonnull(strstr(why, variables[_i].name));
		ck_assert_mem_eq(&options, &before, sizeof options);
	} else {
		ck_assert_uint_eq(*(uint32_t *)(void *)((char *)&options + variables[_i].offset), variables[_i].expected);
	}
}
END_TEST

START_TEST(environment_of_several)
{
	struct neap_engine_options options = {0};
	ck_assert_int_eq(neap_engine_options_from_environment(NULL, why, sizeof why), NEAP_EINVAL);
	setenv("MC_MIN_PRC_PORT", "20001", 1);
	setenv("MC_MAX_PRC_PORT", "20300", 1);
	setenv("MC_MIN_RPC_PORT", "20100", 1);
	setenv("MC_TCP_PROTO", "1", 1);
	setenv("MC_USE_IPV6", "0", 1);
	setenv("MC_CUSTOM_TOPO_JSON", "/etc/topology.json", 1);
	setenv("MC_TE_FILTERS", "mlx5_0, mlx5_1", 1);
	ck_assert_int_eq(neap_engine_options_from_environment(&options, NULL, 0), 0);
	ck_assert_uint_eq(options.port_min, 20100);
	ck_assert_uint_eq(options.port_max, 20300);
	ck_assert(options.v1_only);
	ck_assert_ptr_null(options.local_name);
	ck_assert_str_eq(options.topology_file, "/etc/topology.json");
	ck_assert_str_eq(options.device_filter, "mlx5_0, mlx5_1");
	setenv("MC_CUSTOM_TOPO_JSON", "", 1);
	options.topology_file = NULL;
	ck_assert(!options.rdma.gid_fixed && !options.rdma.strict_ordering && !options.rdma.force_tcp && !options.rdma.same_name);
	setenv("NCCL_IB_GID_INDEX", "3", 1);
	setenv("MC_GID_INDEX", "0", 1);
	setenv("MC_IB_PCI_RELAXED_ORDERING", "0", 1);
	setenv("MC_FORCE_TCP", "1", 1);
	setenv("MC_ENABLE_DEST_DEVICE_AFFINITY", "1", 1);
	setenv("MC_RDMA_BIND_ADDRESS", "10.0.0.7", 1);
	setenv("MC_USE_IPV6", "1", 1);
	setenv("MC_TCP_PROTO", "2", 1);
	ck_assert_int_eq(neap_engine_options_from_environment(&options, NULL, 0), 0);
	ck_assert(!options.v1_only);
	ck_assert(options.rdma.gid_fixed && options.rdma.strict_ordering && options.rdma.force_tcp && options.rdma.same_name);
	ck_assert_uint_eq(options.rdma.gid_index, 0); /* Mooncake's own name counts before NCCL's */
	ck_assert_str_eq(options.rdma.advertised_host, "10.0.0.7");
	ck_assert_str_eq(options.local_name, "::1");
	options.local_name = NULL;
	setenv("MC_USE_IPV6", "0", 1);
	ck_assert_msg(create(&options) == 0, "%s", why);
	ck_assert_uint_ge(neap_engine_handshake_port(engine), 20100);
	ck_assert_uint_le(neap_engine_data_port(engine), 20300);
	close_all();
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("environment of an engine");
	TCase *tests = tcase_create("variables");
	tcase_add_loop_test(tests, environment_variables, 0, sizeof variables / sizeof variables[0]);
	tcase_add_test(tests, environment_of_several);
	suite_add_tcase(suite, tests);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
