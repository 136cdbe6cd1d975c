/* The choice of a port's address, and of a device's port: tables of every shape. */
#include "transports/topology/gids.h"
#include <arpa/inet.h>
#include <check.h>
#include <stdio.h>
#include <string.h>

static char why[256];

#define V1 NEAP_GID_ROCE_V1
#define V2 NEAP_GID_ROCE_V2
#define IB NEAP_GID_INFINIBAND

/* An entry as people write it: "10.0.0.1" is the mapped address, "" a hole; netdev "-eth0" is down. */
static struct neap_gid_entry entry(uint32_t index, const char *address, enum neap_gid_type type, const char *netdev)
{
	struct neap_gid_entry made = {.index = index, .type = type};
	char text[64];
	snprintf(text, sizeof text, strchr(address, ':') ? "%s" : "::ffff:%s", address);
	if (*address)
		ck_assert_int_eq(inet_pton(AF_INET6, text, made.gid), 1);
	made.netdev_down = *netdev == '-';
	snprintf(made.netdev, sizeof made.netdev, "%s", netdev + (*netdev == '-'));
	return made;
}

/* The indices in their order, as "3 1 0". */
static const char *rank(const struct neap_gid_entry *entries, uint32_t count)
{
	static char text[256];
	uint32_t order[16], ranked = neap_gids_rank(entries, count, order);
	char *to = text;
	*to = '\0';
	for (uint32_t i = 0; i < ranked; i++)
		to += sprintf(to, "%s%u", i ? " " : "", entries[order[i]].index);
	/* the choice is the first of them */
	uint32_t position;
	int error = neap_gids_choose("mlx5_0", 1, entries, count, -1, &position, why, sizeof why);
	ck_assert_int_eq(error, ranked ? NEAP_OK : NEAP_ENODEV);
	if (ranked)
		ck_assert_uint_eq(position, order[0]);
	return text;
}
#define RANK(...) rank((const struct neap_gid_entry[]){__VA_ARGS__}, sizeof((const struct neap_gid_entry[]){__VA_ARGS__}) / sizeof(struct neap_gid_entry))

/* rdma-observed 2: index 1, the IPv4 one, and not the link-local one before it */
START_TEST(soft_roce)
{
	ck_assert_str_eq(RANK(entry(0, "fe80::5054:ff:fe12:3456", V2, "eth0"), entry(1, "10.77.0.1", V2, "eth0")), "1 0");
}
END_TEST

START_TEST(a_usual_table)
{
	ck_assert_str_eq(RANK(entry(0, "fe80::1", V1, "eth0"), entry(1, "fe80::1", V2, "eth0"), entry(2, "192.168.7.1", V1, "eth0"),
	                      entry(3, "192.168.7.1", V2, "eth0")),
	                 "3 1 2 0");
}
END_TEST

START_TEST(each_class_comes_before_the_next)
{
	ck_assert_str_eq(RANK(entry(0, "8.8.8.8", V1, "eth0"), entry(1, "fe80::1", V2, ""), entry(2, "172.16.0.1", V2, ""),
	                      entry(3, "9.9.9.9", V2, "docker0"), entry(4, "100.64.0.1", V2, "eth0"), entry(5, "8.8.8.8", V2, ""),
	                      entry(6, "8.8.8.8", V2, "eth0")),
	                 "6 5 4 3 2 1 0");
}
END_TEST

START_TEST(private_networks)
{
	/* just inside and just outside */
	ck_assert_str_eq(RANK(entry(0, "10.255.255.255", V2, "e"), entry(1, "11.0.0.0", V2, "e")), "1 0");
	ck_assert_str_eq(RANK(entry(0, "172.31.255.255", V2, "e"), entry(1, "172.32.0.0", V2, "e")), "1 0");
	ck_assert_str_eq(RANK(entry(0, "172.16.0.0", V2, "e"), entry(1, "172.15.255.255", V2, "e")), "1 0");
	ck_assert_str_eq(RANK(entry(0, "100.127.255.255", V2, "e"), entry(1, "100.128.0.0", V2, "e")), "1 0");
	ck_assert_str_eq(RANK(entry(0, "100.64.0.0", V2, "e"), entry(1, "100.63.255.255", V2, "e")), "1 0");
	ck_assert_str_eq(RANK(entry(0, "192.168.0.1", V2, "e"), entry(1, "8.8.8.8", V2, "e")), "0 1");
}
END_TEST

START_TEST(overlays_are_degraded)
{
	static const char *const overlays[] = {"flannel.1", "cni0", "calico3", "vxlan7", "docker0", "tunl0"};
	for (size_t i = 0; i < 6; i++)
		ck_assert_str_eq(RANK(entry(0, "8.8.8.8", V2, overlays[i]), entry(1, "10.0.0.1", V2, "eth0")), "1 0");
	ck_assert_str_eq(RANK(entry(0, "8.8.8.8", V2, "tunl01"), entry(1, "10.0.0.1", V2, "eth0")), "0 1");
}
END_TEST

START_TEST(six_alone_is_taken)
{
	ck_assert_str_eq(RANK(entry(0, "fe80::1", V2, "eth0"), entry(4, "2001:db8::1", V2, "eth0")), "4 0");
	ck_assert_str_eq(RANK(entry(9, "fe80::1", V2, "eth0")), "9");
	ck_assert_str_eq(RANK(entry(0, "2001:db8::1", V2, "eth0"), entry(1, "8.8.8.8", V2, "eth0")), "1 0");
	ck_assert_str_eq(RANK(entry(2, "2001:db8::1", V2, "eth0"), entry(1, "2001:db8::2", V2, "eth0")), "1 2");
	/* as Mooncake has it: a routed v6 address before a private v4 one */
	ck_assert_str_eq(RANK(entry(0, "10.0.0.1", V2, "eth0"), entry(1, "2001:db8::1", V2, "eth0")), "1 0");
}
END_TEST

START_TEST(infiniband_is_good_though_link_local)
{
	ck_assert_str_eq(RANK(entry(0, "fe80::2:c903:1:1", IB, "")), "0");
	ck_assert_str_eq(RANK(entry(0, "fe80::2:c903:1:1", IB, ""), entry(1, "fec0::1", IB, "")), "0 1");
}
END_TEST

START_TEST(holes_and_what_is_down)
{
	uint32_t position = 77;
	ck_assert_str_eq(RANK(entry(0, "", V2, "eth0"), entry(5, "10.0.0.1", V2, "eth0"), entry(6, "", V2, "")), "5");
	ck_assert_str_eq(RANK(entry(0, "8.8.8.8", V2, "-eth0"), entry(1, "fe80::1", V2, "eth1")), "1");
	ck_assert_str_eq(RANK(entry(0, "", V2, "eth0")), "");
	ck_assert_str_eq(why, "mlx5_0 port 1 has no GID; on RoCE its interface needs an address (ip address add)");
	ck_assert_str_eq(RANK(entry(0, "", V2, "-eth1"), entry(1, "8.8.8.8", V2, "-eth0")), "");
	ck_assert_str_eq(why, "mlx5_0 port 1: the interface of its GIDs is down (ip link set eth0 up)");
	ck_assert_int_eq(neap_gids_choose("rxe3", 2, NULL, 0, -1, &position, why, sizeof why), NEAP_ENODEV);
	ck_assert_ptr_eq(strstr(why, "rxe3 port 2 has no GID"), why);
}
END_TEST

START_TEST(a_wanted_one)
{
	const struct neap_gid_entry entries[] = {entry(0, "fe80::1", V1, "-eth0"), entry(2, "", V2, ""), entry(3, "8.8.8.8", V2, "eth0")};
	uint32_t position;
	ck_assert_int_eq(neap_gids_choose("mlx5_0", 1, entries, 3, 0, &position, why, sizeof why), 0);
	ck_assert_uint_eq(position, 0);
	ck_assert_int_eq(neap_gids_choose("mlx5_0", 1, entries, 3, 2, &position, why, sizeof why), NEAP_EINVAL);
	ck_assert_str_eq(why, "mlx5_0 port 1 has no GID at index 2 (MC_GID_INDEX); it has: 0, 3");
	ck_assert_int_eq(neap_gids_choose("mlx5_0", 1, entries, 0, 7, &position, why, sizeof why), NEAP_EINVAL);
	ck_assert_str_eq(why, "mlx5_0 port 1 has no GID at index 7 (MC_GID_INDEX); it has: none");
}
END_TEST

START_TEST(ports)
{
	struct neap_topology_device device = {.name = "mlx5_0", .port_count = 2, .ports = {{.number = 1, .status = NEAP_PORT_DOWN},
	                                                                                 {.number = 2, .status = NEAP_PORT_ACTIVE}}};
	uint32_t port = 0;
	ck_assert_int_eq(neap_port_choose(&device, 0, &port, why, sizeof why), 0);
	ck_assert_uint_eq(port, 2);
	ck_assert_int_eq(neap_port_choose(&device, 2, &port, why, sizeof why), 0);
	ck_assert_int_eq(neap_port_choose(&device, 1, &port, why, sizeof why), NEAP_ENODEV);
	ck_assert_str_eq(why, "mlx5_0 port 1 (MC_IB_PORT) is DOWN, not ACTIVE (it has: 1 DOWN, 2 ACTIVE)");
	ck_assert_int_eq(neap_port_choose(&device, 3, &port, why, sizeof why), NEAP_ENODEV);
	ck_assert_str_eq(why, "mlx5_0 has no port 3 (MC_IB_PORT); it has: 1 DOWN, 2 ACTIVE");
	device.ports[1].status = NEAP_PORT_INIT;
	ck_assert_int_eq(neap_port_choose(&device, 0, &port, why, sizeof why), NEAP_ENODEV);
	ck_assert_str_eq(why, "mlx5_0 has no ACTIVE port (it has: 1 DOWN, 2 INIT); look at its cable and interface");
	device.port_count = 0;
	ck_assert_int_eq(neap_port_choose(&device, 0, &port, why, sizeof why), NEAP_ENODEV);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("gid_choice");
	TCase *all = tcase_create("all");
	tcase_add_test(all, soft_roce);
	tcase_add_test(all, a_usual_table);
	tcase_add_test(all, each_class_comes_before_the_next);
	tcase_add_test(all, private_networks);
	tcase_add_test(all, overlays_are_degraded);
	tcase_add_test(all, six_alone_is_taken);
	tcase_add_test(all, infiniband_is_good_though_link_local);
	tcase_add_test(all, holes_and_what_is_down);
	tcase_add_test(all, a_wanted_one);
	tcase_add_test(all, ports);
	suite_add_tcase(suite, all);
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
