/* Topologies: what machines of many kinds become, what files may say, and what others are told. */
#include "tests/unit/sysfs_rig.h"
#include "tests/unit/unordered_real.h"
#include "transports/topology/gids.h"
#include "transports/topology/topology.h"
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static struct neap_topology *topology;
static char why[512];

static void begin(void)
{
	sysfs_begin();
	topology = NULL;
}

static void end(void)
{
	neap_topology_free(topology);
	sysfs_end();
}

static void discover(const char *filter)
{
	neap_topology_free(topology);
	int error = neap_topology_discover(sysfs_root, filter, &topology, why, sizeof why);
	ck_assert_msg(error == 0, "%d: %s", error, why);
}

/* The matrix as it is written, without the white space. */
static void matrix_is(const char *wanted)
{
	struct neap_json_writer writer;
	char *text;
	size_t length;
	neap_json_writer_init(&writer, SIZE_MAX, 64);
	neap_topology_put_matrix(topology, &writer);
	ck_assert_int_eq(neap_json_writer_take(&writer, &text, &length), 0);
	char *to = text;
	for (const char *from = text; *from; from++)
		if (*from != ' ' && *from != '\n')
			*to++ = *from;
	*to = '\0';
	ck_assert_str_eq(text, wanted);
	free(text);
}

static void warned(const char *part)
{
	for (uint32_t i = 0; i < topology->warning_count; i++)
		if (strstr(topology->warnings[i], part))
			return;
	ck_abort_msg("no warning says '%s'; the first of %u is '%s'", part, topology->warning_count, topology->warnings[0]);
}

/* --- machines */

#define FIRST_8 "\"mlx5_0\",\"mlx5_1\",\"mlx5_2\",\"mlx5_3\",\"mlx5_4\",\"mlx5_5\",\"mlx5_6\",\"mlx5_7\""
#define LAST_8 "\"mlx5_8\",\"mlx5_9\",\"mlx5_10\",\"mlx5_11\",\"mlx5_12\",\"mlx5_13\",\"mlx5_14\",\"mlx5_15\""

START_TEST(two_sockets_of_eight)
{
	sysfs_two_sockets();
	discover(NULL);
	matrix_is("{\"cpu:0\":[[" FIRST_8 "],[" LAST_8 "]],\"cpu:1\":[[" LAST_8 "],[" FIRST_8 "]]}");
	const struct neap_topology_device *device = &topology->devices[10];
	ck_assert_str_eq(device->name, "mlx5_10");
	ck_assert_str_eq(device->pci, "0000:95:00.0");
	ck_assert_str_eq(device->path, "/devices/pci0000:94/0000:94:01.0/0000:95:00.0");
	ck_assert_int_eq(device->numa_node, 1);
	ck_assert_uint_eq(device->port_count, 1);
	ck_assert_int_eq(device->ports[0].status, NEAP_PORT_ACTIVE);
	ck_assert(device->ports[0].ethernet);
	ck_assert_uint_eq(topology->warning_count, 0);
}
END_TEST

START_TEST(one_device)
{
	sysfs_node(0);
	sysfs_pci("pci0000:00/0000:00:03.0", "0\n");
	sysfs_rdma("mlx5_0", "pci0000:00/0000:00:03.0", "4: ACTIVE\n");
	sysfs_gid("mlx5_0", 0, "fe80:0000:0000:0000:0000:0000:0000:0001\n", "RoCE v2\n", "eth7\n");
	discover("");
	matrix_is("{\"cpu:0\":[[\"mlx5_0\"],[]]}");
	ck_assert_str_eq(topology->devices[0].ports[0].netdev, "eth7");
}
END_TEST

START_TEST(no_device)
{
	sysfs_node(0);
	sysfs_node(1);
	discover(NULL);
	ck_assert_uint_eq(topology->device_count, 0);
	matrix_is("{\"cpu:0\":[[],[]],\"cpu:1\":[[],[]]}");
	discover("mlx5_0, mlx5_1");
	warned("the device filter names mlx5_0, which this machine does not have");
	warned("mlx5_1");
}
END_TEST

START_TEST(nothing_at_all)
{
	discover(NULL);
	matrix_is("{\"cpu:0\":[[],[]]}");
	static struct neap_topology other;
	struct neap_topology *none = &other;
	ck_assert_int_eq(neap_topology_discover("/nowhere", NULL, &none, why, sizeof why), NEAP_EINVAL);
	ck_assert_ptr_null(none);
	ck_assert_str_eq(why, "/nowhere is no directory, and tells nothing of this machine's devices; /sys is the usual one");
	ck_assert_int_eq(neap_topology_discover(NULL, NULL, &none, why, sizeof why), NEAP_EINVAL);
	sysfs_put("x", "file");
	char path[512];
	snprintf(path, sizeof path, "%s/file", sysfs_root);
	ck_assert_int_eq(neap_topology_discover(path, NULL, &none, why, sizeof why), NEAP_EINVAL);
}
END_TEST

START_TEST(a_device_without_a_node_is_only_available)
{
	sysfs_node(0);
	sysfs_node(1);
	sysfs_pci("pci0000:00/0000:00:03.0", "-1\n");
	sysfs_rdma("a0", "pci0000:00/0000:00:03.0", "4: ACTIVE\n");
	sysfs_pci("pci0000:00/0000:00:04.0", NULL);
	sysfs_rdma("a1", "pci0000:00/0000:00:04.0", "4: ACTIVE\n");
	sysfs_pci("pci0000:00/0000:00:05.0", "1\n");
	sysfs_rdma("a2", "pci0000:00/0000:00:05.0", "4: ACTIVE\n");
	discover(NULL);
	matrix_is("{\"cpu:0\":[[],[\"a0\",\"a1\",\"a2\"]],\"cpu:1\":[[\"a2\"],[\"a0\",\"a1\"]]}");
	ck_assert_uint_eq(topology->warning_count, 0);
}
END_TEST

START_TEST(node_numbers_may_have_gaps)
{
	sysfs_node(10);
	sysfs_node(0);
	sysfs_node(2);
	sysfs_folder("devices/system/node/node2x");
	sysfs_folder("devices/system/node/node02");
	sysfs_folder("devices/system/node/node");
	sysfs_folder("devices/system/node/node99999999");
	sysfs_put("0,2,10\n", "devices/system/node/online");
	sysfs_pci("pci0000:00/0000:00:05.0", "10\n");
	sysfs_rdma("a", "pci0000:00/0000:00:05.0", "4: ACTIVE\n");
	sysfs_pci("pci0000:00/0000:00:06.0", "7\n"); /* a node without a directory */
	sysfs_rdma("b", "pci0000:00/0000:00:06.0", "4: ACTIVE\n");
	discover(NULL);
	matrix_is("{\"cpu:0\":[[],[\"a\",\"b\"]],\"cpu:2\":[[],[\"a\",\"b\"]],\"cpu:10\":[[\"a\"],[\"b\"]]}");
}
END_TEST

START_TEST(a_kernel_without_nodes_still_has_a_row)
{
	sysfs_pci("pci0000:00/0000:00:05.0", "-1\n");
	sysfs_rdma("a", "pci0000:00/0000:00:05.0", "4: ACTIVE\n");
	discover(NULL);
	matrix_is("{\"cpu:0\":[[],[\"a\"]]}");
}
END_TEST

START_TEST(a_device_that_hangs_on_no_bus)
{
	sysfs_node(0);
	sysfs_put("4: ACTIVE\n", "devices/virtual/infiniband/rxe0/ports/1/state");
	sysfs_link("../../devices/virtual/infiniband/rxe0", "class/infiniband/rxe0");
	discover(NULL);
	ck_assert_str_eq(topology->devices[0].pci, "");
	ck_assert_int_eq(topology->devices[0].numa_node, -1);
	matrix_is("{\"cpu:0\":[[],[\"rxe0\"]]}");
}
END_TEST

START_TEST(ports_decide_who_takes_part)
{
	static const struct {
		const char *text;
		enum neap_port_state status;
	} states[] = {{"1: DOWN\n", NEAP_PORT_DOWN}, {"2: INIT\n", NEAP_PORT_INIT}, {"9: BROKEN\n", NEAP_PORT_UNKNOWN}, {"", NEAP_PORT_UNKNOWN},
	              {"ACTIVE\n", NEAP_PORT_UNKNOWN}, {NULL, NEAP_PORT_UNKNOWN}, {"  4: ACTIVE", NEAP_PORT_ACTIVE}};
	sysfs_node(0);
	for (int i = 0; i < 7; i++) {
		char path[64], name[8];
		snprintf(path, sizeof path, "pci0000:00/0000:00:%02x.0", i);
		snprintf(name, sizeof name, "m%d", i);
		sysfs_pci(path, "0\n");
		sysfs_rdma(name, path, states[i].text);
	}
	sysfs_put("4: ACTIVE\n", "class/infiniband/m0/ports/2/state"); /* one of two is enough */
	sysfs_put("4: ACTIVE\n", "class/infiniband/m1/ports/two/state");
	discover(NULL);
	for (int i = 0; i < 7; i++)
		ck_assert_int_eq(topology->devices[i].ports[0].status, states[i].status);
	ck_assert_str_eq(topology->devices[1].unusable, "no port of it is ACTIVE");
	ck_assert_uint_eq(topology->devices[0].port_count, 2);
	matrix_is("{\"cpu:0\":[[\"m0\",\"m6\"],[]]}");
}
END_TEST

START_TEST(the_filter_takes_names)
{
	sysfs_two_sockets();
	discover(" mlx5_1 ,mlx5_12,, mlx5_99\t");
	matrix_is("{\"cpu:0\":[[\"mlx5_1\"],[\"mlx5_12\"]],\"cpu:1\":[[\"mlx5_12\"],[\"mlx5_1\"]]}");
	ck_assert_uint_eq(topology->device_count, 16);
	ck_assert_str_eq(topology->devices[0].unusable, "not named by the device filter");
	ck_assert_uint_eq(topology->warning_count, 1);
	warned("mlx5_99");
	discover(" , ");
	ck_assert_ptr_null(topology->devices[0].unusable);
}
END_TEST

/* Whatever lies there, there is an answer. */
START_TEST(hostile_trees)
{
	char name[256], text[3000];
	sysfs_node(0);
	sysfs_pci("pci0000:00/0000:00:05.0", "not a number\n");
	sysfs_rdma("garbage", "pci0000:00/0000:00:05.0", "4: ACTIVE\n");
	sysfs_link("loop", "class/infiniband/loop");
	sysfs_link("back", "class/infiniband/forth");
	sysfs_link("forth", "class/infiniband/back");
	sysfs_link("../../..", "class/infiniband/out");
	sysfs_put("", "class/infiniband/file");
	memset(name, 'n', sizeof name);
	name[200] = '\0';
	sysfs_put("4: ACTIVE\n", "class/infiniband/%s/ports/1/state", name);
	name[63] = '\0';
	sysfs_put("4: ACTIVE\n", "class/infiniband/%s/ports/1/state", name);
	sysfs_pipe("class/infiniband/piped/ports/1/state");
	sysfs_pipe("class/infiniband/piped/device/numa_node");
	memset(text, '4', sizeof text - 1);
	text[sizeof text - 1] = '\0';
	sysfs_put(text, "class/infiniband/endless/ports/1/state");
	sysfs_put(text, "class/infiniband/endless/device/numa_node");
	sysfs_put("\x01\xff: ACTIVE", "class/infiniband/binary/ports/1/state");
	sysfs_put("1e3\n", "class/infiniband/binary/device/numa_node");
	sysfs_link(sysfs_root, "class/infiniband/binary/device/up");
	sysfs_put("99999\n", "class/infiniband/far/device/numa_node");
	sysfs_put("-2\n", "class/infiniband/negative/device/numa_node");
	sysfs_link("/", "class/infiniband/escape/device");
	sysfs_put("4: ACTIVE\n", "class/infiniband/\xff\xfe/ports/1/state"); /* could not even be written down */
	sysfs_put("4: ACTIVE\n", "class/infiniband/a\nb/ports/1/state");
	discover(NULL);
	ck_assert_int_ge(neap_topology_find(topology, name), 0);
	ck_assert_int_eq(topology->devices[neap_topology_find(topology, "endless")].numa_node, -1);
	ck_assert_str_eq(topology->devices[neap_topology_find(topology, "escape")].path, "");
	warned("garbage: numa_node is not a number from -1 to 4095");
	warned("piped: numa_node");
	warned("far: numa_node");
	warned("negative: numa_node");
	snprintf(text, sizeof text, "{\"cpu:0\":[[],[\"garbage\",\"%s\"]]}", name);
	matrix_is(text);
}
END_TEST

START_TEST(more_devices_than_there_are_places)
{
	sysfs_node(0);
	for (int i = 70; i-- > 0;)
		sysfs_put("4: ACTIVE\n", "class/infiniband/d%d/ports/1/state", i);
	for (int i = 0; i < 12; i++)
		sysfs_put("4: ACTIVE\n", "class/infiniband/d3/ports/%d/state", i + 1);
	discover(NULL);
	ck_assert_uint_eq(topology->device_count, NEAP_DEVICES_MAX);
	ck_assert_str_eq(topology->devices[63].name, "d63");
	ck_assert_uint_eq(topology->devices[3].port_count, NEAP_TOPOLOGY_PORTS_MAX);
	warned("there are 70 RDMA devices; 64 are looked at, the first by name (a device filter can choose others)");
	warned("d3 has 12 ports; the first 8 are looked at");
	discover("d69,d1");
	matrix_is("{\"cpu:0\":[[],[\"d1\",\"d69\"]]}");
	ck_assert_uint_eq(topology->device_count, NEAP_DEVICES_MAX);
	warned("64 are looked at, the first by name, those of the device filter before others");
}
END_TEST

START_TEST(names_in_order)
{
	static const char *const names[] = {"", "a", "a1", "a01", "a2", "a02b", "a10", "a99999999999999999999", "a100000000000000000000", "b"};
	/* a01 and a1 are equal as numbers; then the bytes decide */
	ck_assert_int_gt(neap_topology_compare("a1", "a01"), 0);
	for (size_t i = 0; i < sizeof names / sizeof *names; i++)
		for (size_t k = i + 1; k < sizeof names / sizeof *names; k++)
			if (!(i == 2 && k == 3)) {
				ck_assert_msg(neap_topology_compare(names[i], names[k]) < 0, "%s %s", names[i], names[k]);
				ck_assert_msg(neap_topology_compare(names[k], names[i]) > 0, "%s %s", names[k], names[i]);
			}
}
END_TEST

/* --- accelerators */

START_TEST(accelerators_have_the_nearest)
{
	sysfs_two_sockets();
	discover("mlx5_0,mlx5_2,mlx5_9,mlx5_15");
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:0", "0000:15:01.0", why, sizeof why), 0);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:1", "0000:9F:01.0", why, sizeof why), 0);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:2", "0000:17:01.0", why, sizeof why), 0);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:3", "0000:11:01.0", why, sizeof why), 0);
	matrix_is("{\"cpu:0\":[[\"mlx5_0\",\"mlx5_2\"],[\"mlx5_9\",\"mlx5_15\"]],\"cpu:1\":[[\"mlx5_9\",\"mlx5_15\"],[\"mlx5_0\",\"mlx5_2\"]],"
	          "\"cuda:0\":[[\"mlx5_2\"],[\"mlx5_0\",\"mlx5_9\",\"mlx5_15\"]],"
	          "\"cuda:1\":[[\"mlx5_15\"],[\"mlx5_0\",\"mlx5_2\",\"mlx5_9\"]],"
	          "\"cuda:2\":[[\"mlx5_0\",\"mlx5_2\"],[\"mlx5_9\",\"mlx5_15\"]],"
	          "\"cuda:3\":[[\"mlx5_0\"],[\"mlx5_2\",\"mlx5_9\",\"mlx5_15\"]]}");
}
END_TEST

START_TEST(accelerators_that_cannot_be)
{
	sysfs_two_sockets();
	discover(NULL);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cpu:0", "0000:15:01.0", why, sizeof why), NEAP_EINVAL);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "", "0000:15:01.0", why, sizeof why), NEAP_EINVAL);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:0", "../../x", why, sizeof why), NEAP_EINVAL);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:0", "..", why, sizeof why), NEAP_EINVAL);
	ck_assert_int_eq(neap_topology_add_accelerator(topology, sysfs_root, "cuda:0", "0000:ff:01.0", why, sizeof why), NEAP_ENODEV);
	ck_assert_ptr_nonnull(strstr(why, "accelerator cuda:0: there is no PCI device 0000:ff:01.0"));
	ck_assert_uint_eq(topology->row_count, 2);
}
END_TEST

/* --- files */

static int read_text(const char *text)
{
	return neap_topology_read(topology, text, strlen(text), why, sizeof why);
}

START_TEST(a_file_replaces_the_matrix)
{
	sysfs_two_sockets();
	discover(NULL);
	ck_assert_int_eq(read_text("{\"cpu:0\": [[\"mlx5_3\"], [\"mlx9\", \"mlx5_1\"]],\n \"cuda:0\": [[], [\"mlx5_3\", \"mlx5_3\"]],"
	                           "\"*\": [[\"mlx5_1\"], []]}"),
	                 0);
	matrix_is("{\"cpu:0\":[[\"mlx5_3\"],[\"mlx5_1\"]],\"cuda:0\":[[],[\"mlx5_3\"]],\"*\":[[\"mlx5_1\"],[]]}");
	warned("mlx9 is named by the topology file, and this machine does not have it");
	warned("mlx5_0 is not named by the topology file, and is not used");
	warned("cuda:0 names mlx5_3 twice; the first one counts");
	ck_assert_ptr_nonnull(topology->devices[neap_topology_find(topology, "mlx9")].unusable);
}
END_TEST

static const struct {
	const char *text, *says;
	int error;
} mistakes[] = {
	{"", "document: the text ends at byte 0 where a value is due", NEAP_EJSON},
	{"[]", "document: is an array and must be an object", NEAP_EJSON},
	{"{}", "document: has no location; such as {\"cpu:0\": [[\"mlx5_0\"], []]}", NEAP_EJSON},
	{"{\"cpu:0\": {}}", "cpu:0: must be two lists of device names, [[preferred], [available]]", NEAP_EJSON},
	{"{\"cpu:0\": []}", "cpu:0: must be two lists", NEAP_EJSON},
	{"{\"cpu:0\": [[\"a\"]]}", "cpu:0: must be two lists", NEAP_EJSON},
	{"{\"cpu:0\": [[], [], []]}", "cpu:0[2]: is a third list", NEAP_EJSON},
	{"{\"cpu:0\": [\"a\", \"b\"]}", "cpu:0[0]: is a string and must be an array", NEAP_EJSON},
	{"{\"cpu:0\": [[\"a\"], [\"b\", 7]]}", "cpu:0[1][1]: is a number and must be a string", NEAP_EJSON},
	{"{\"cpu:0\": [[\"\"], []]}", "cpu:0[0][0]: is empty and must be the name of a device", NEAP_EJSON},
	{"{\"\": [[], []]}", "a location without a name", NEAP_EJSON},
	{"{\"cpu:0\": [[], []], \"cpu:0\": [[], []]}", "cpu:0: is there twice; a location has one row", NEAP_EJSON},
	{"{\"cpu:0\": [[], []]} x", "the end of the text is due", NEAP_EJSON},
	{"{\"cpu:0\": [[\"0123456789012345678901234567890123456789012345678901234567890123\"], []]}",
	 "cpu:0[0][0]: has 64 bytes, and a device's name has at most 63", NEAP_ELIMIT},
	{"{\"01234567890123456789012345678901\": [[], []]}", "has 32 bytes, and a location has at most 31", NEAP_ELIMIT},
};

START_TEST(a_mistake_is_named_and_changes_nothing)
{
	sysfs_two_sockets();
	discover("mlx5_0");
	int error = read_text(mistakes[_i].text);
	ck_assert_msg(error == mistakes[_i].error, "%s: %d %s", mistakes[_i].text, error, why);
	ck_assert_msg(strstr(why, mistakes[_i].says) != NULL, "%s\nsays: %s\nnot:  %s", mistakes[_i].text, why, mistakes[_i].says);
	matrix_is("{\"cpu:0\":[[\"mlx5_0\"],[]],\"cpu:1\":[[],[\"mlx5_0\"]]}");
	ck_assert_uint_eq(topology->warning_count, 0);
	ck_assert_uint_eq(topology->device_count, 16);
}
END_TEST

static char *long_text(const char *before, int count, const char *format, const char *behind)
{
	char *text = malloc(100 + (size_t)count * 40), *to = text + sprintf(text, "%s", before);
	for (int i = 0; i < count; i++) {
		to += sprintf(to, "%s", i ? ", " : "");
		to += snprintf(to, 32, format, i);
	}
	sprintf(to, "%s", behind);
	return text;
}

START_TEST(a_file_has_limits)
{
	topology = neap_topology_new();
	char *text = long_text("{\"cpu:0\": [[", 65, "\"d%d\"", "], []]}");
	ck_assert_int_eq(read_text(text), NEAP_ELIMIT);
	ck_assert_str_eq(why, "cpu:0[0][64]: is one device more than 64, those of this machine among them");
	free(text);
	text = long_text("{", 513, "\"cpu:%d\": [[], []]", "}");
	ck_assert_int_eq(read_text(text), NEAP_ELIMIT);
	ck_assert_str_eq(why, "cpu:512: more than 512 locations");
	free(text);
	text = long_text("{", 512, "\"cpu:%d\": [[], []]", "}");
	ck_assert_int_eq(read_text(text), 0);
	ck_assert_uint_eq(topology->row_count, 512);
	free(text);
}
END_TEST

START_TEST(files_are_named)
{
	char path[512], wanted[700];
	topology = neap_topology_new();
	snprintf(path, sizeof path, "%s/topo.json", sysfs_root);
	ck_assert_int_eq(neap_topology_read_file(topology, path, why, sizeof why), NEAP_EINVAL);
	snprintf(wanted, sizeof wanted, "topology file %s: cannot be read: No such file or directory", path);
	ck_assert_str_eq(why, wanted);
	sysfs_put("{\"cpu:0\": [[\"a\"], 1]}\n", "topo.json");
	ck_assert_int_eq(neap_topology_read_file(topology, path, why, sizeof why), NEAP_EJSON);
	snprintf(wanted, sizeof wanted, "topology file %s: cpu:0[1]: is a number and must be an array", path);
	ck_assert_str_eq(why, wanted);
	sysfs_put("{\"cpu:0\": [[\"a\"], []]}\n", "topo.json");
	ck_assert_int_eq(neap_topology_read_file(topology, path, why, sizeof why), 0);
	ck_assert_str_eq(topology->devices[0].name, "a");
	ck_assert_int_eq(neap_topology_read_file(topology, sysfs_root, why, sizeof why), NEAP_EINVAL);
	sysfs_pipe("pipe");
	snprintf(path, sizeof path, "%s/pipe", sysfs_root);
	ck_assert_int_eq(neap_topology_read_file(topology, path, why, sizeof why), NEAP_EJSON);
	snprintf(path, sizeof path, "%s/large", sysfs_root);
	sysfs_put(" ", "large");
	ck_assert_int_eq(truncate(path, NEAP_TOPOLOGY_FILE_MAX + 1), 0);
	ck_assert_int_eq(neap_topology_read_file(topology, path, why, sizeof why), NEAP_ELIMIT);
	ck_assert_ptr_nonnull(strstr(why, "is longer than 1048576 bytes"));
}
END_TEST

/* What was printed can be read again. */
START_TEST(the_matrix_is_a_file)
{
	struct neap_json_writer writer;
	char *text;
	size_t length;
	sysfs_two_sockets();
	discover(NULL);
	neap_json_writer_init(&writer, SIZE_MAX, 64);
	neap_topology_put_matrix(topology, &writer);
	ck_assert_int_eq(neap_json_writer_take(&writer, &text, &length), 0);
	ck_assert_int_eq(neap_topology_read(topology, text, length, why, sizeof why), 0);
	free(text);
	matrix_is("{\"cpu:0\":[[" FIRST_8 "],[" LAST_8 "]],\"cpu:1\":[[" LAST_8 "],[" FIRST_8 "]]}");
	ck_assert_uint_eq(topology->warning_count, 0);
}
END_TEST

/* --- publishing */

static struct neap_descriptor *descriptor;

/* Device i has GID i and keys 100 + i (remote), 200 + i (local). */
static void describe(const char *const *names, uint32_t count)
{
	descriptor = calloc(1, sizeof *descriptor);
	descriptor->protocol = NEAP_PROTOCOL_RDMA;
	descriptor->name = strdup("here:1");
	descriptor->devices = calloc(count ? count : 1, sizeof *descriptor->devices);
	descriptor->device_count = count;
	descriptor->buffers = calloc(2, sizeof *descriptor->buffers);
	descriptor->buffer_count = 2;
	for (uint32_t b = 0; b < 2; b++)
		descriptor->buffers[b] = (struct neap_buffer_desc){.address = 4096 * (b + 1), .length = 4096, .name = strdup("cpu:0")};
	struct neap_buffer_desc *buffer = &descriptor->buffers[0]; /* the other one is closed */
	buffer->key_count = count;
	buffer->rkeys = calloc(count ? count : 1, sizeof *buffer->rkeys);
	buffer->lkeys = calloc(count ? count : 1, sizeof *buffer->lkeys);
	for (uint32_t i = 0; i < count; i++) {
		descriptor->devices[i] = (struct neap_device_desc){.name = strdup(names[i]), .gid = {(uint8_t)i}};
		buffer->rkeys[i] = 100 + i;
		buffer->lkeys[i] = 200 + i;
	}
}

static void publish(void)
{
	int error = neap_topology_publish(topology, descriptor, why, sizeof why);
	ck_assert_msg(error == 0, "%d: %s", error, why);
}

static void published_is(const char *wanted)
{
	char text[2048], *to = text;
	for (uint32_t i = 0; i < descriptor->device_count; i++)
		to += sprintf(to, "%s gid %u rkey %u lkey %u\n", descriptor->devices[i].name, descriptor->devices[i].gid[0],
		              descriptor->buffers[0].rkeys[i], descriptor->buffers[0].lkeys[i]);
	*to = '\0';
	ck_assert_str_eq(text, wanted);
	ck_assert_uint_eq(descriptor->buffers[0].key_count, descriptor->device_count);
	ck_assert_uint_eq(descriptor->buffers[1].key_count, 0);
}

/* The document's own words, from `from` to `to`. */
static void document_has(const char *part)
{
	char *text;
	size_t length;
	ck_assert_int_eq(neap_descriptor_encode(descriptor, 0, false, SIZE_MAX, &text, &length, why, sizeof why), 0);
	ck_assert_msg(strstr(text, part) != NULL, "%s\nis not in\n%s", part, text);
	free(text);
}

/* The sample of te spec 2.3, whose readers number mlx5_1 first (2.4). */
START_TEST(devices_in_the_order_of_readers)
{
	static const char *const names[] = {"mlx5_0", "mlx5_1"};
	topology = neap_topology_new();
	neap_topology_add_device(topology, "mlx5_0");
	neap_topology_add_device(topology, "mlx5_1");
	ck_assert_int_eq(read_text("{\"cpu:0\": [[\"mlx5_0\"], [\"mlx5_1\"]], \"cpu:1\": [[\"mlx5_1\"], [\"mlx5_0\"]]}"), 0);
	describe(names, 2);
	publish();
	published_is("mlx5_1 gid 1 rkey 101 lkey 201\nmlx5_0 gid 0 rkey 100 lkey 200\n");
	document_has("\"priority_matrix\":{\"cpu:0\":[[\"mlx5_0\"],[\"mlx5_1\"]],\"cpu:1\":[[\"mlx5_1\"],[\"mlx5_0\"]]}");
	publish(); /* again */
	published_is("mlx5_1 gid 1 rkey 101 lkey 201\nmlx5_0 gid 0 rkey 100 lkey 200\n");
	neap_descriptor_free(descriptor);
}
END_TEST

START_TEST(a_dead_device_is_gone_everywhere)
{
	static const char *const names[] = {"d", "c", "stranger", "b", "a"};
	topology = neap_topology_new();
	for (int i = 3; i >= 0; i--)
		neap_topology_add_device(topology, names[i == 2 ? 4 : i]);
	ck_assert_int_eq(read_text("{\"cpu:0\": [[\"a\", \"b\", \"never_opened\"], [\"c\", \"d\"]], \"cuda:0\": [[\"c\"], []], \"*\": [[\"a\"], []]}"), 0);
	neap_topology_lose(topology, (uint32_t)neap_topology_find(topology, "c"), "its port went down");
	describe(names, 5);
	publish();
	published_is("a gid 4 rkey 104 lkey 204\nb gid 3 rkey 103 lkey 203\nd gid 0 rkey 100 lkey 200\n");
	document_has("\"priority_matrix\":{\"cpu:0\":[[\"a\",\"b\"],[\"d\"]]}");
	for (uint32_t i = 0; i < topology->device_count; i++)
		neap_topology_lose(topology, i, "all are gone");
	publish();
	published_is("");
	document_has("\"priority_matrix\":null");
	neap_descriptor_free(descriptor);
}
END_TEST

/* What a reader of Mooncake's makes of the document: the devices in the order in which it meets them in its hash map. */
static void number_as_readers_do(const struct neap_descriptor *read, const char *numbered[NEAP_DEVICES_MAX], uint32_t *count_p)
{
	const char *keys[NEAP_TOPOLOGY_ROWS_MAX];
	uint32_t walk[NEAP_TOPOLOGY_ROWS_MAX];
	*count_p = 0;
	for (uint32_t i = 0; i < read->priority_count; i++)
		keys[i] = read->priority[i].location;
	unordered_real_walk(keys, read->priority_count, walk);
	for (uint32_t i = 0; i < read->priority_count; i++) {
		const struct neap_priority_row *row = &read->priority[walk[i]];
		for (uint32_t k = 0; k < row->preferred_count + row->available_count; k++) {
			const char *name = k < row->preferred_count ? row->preferred[k] : row->available[k - row->preferred_count];
			uint32_t at = 0;
			while (at < *count_p && strcmp(numbered[at], name) != 0)
				at++;
			if (at == *count_p)
				numbered[(*count_p)++] = name;
		}
	}
}

/* Any machine with up to 12 devices and 40 locations, some of its devices dead. */
static void make_any_machine(unsigned *seed)
{
	uint32_t devices = 1 + (uint32_t)rand_r(seed) % 12, rows = 1 + (uint32_t)rand_r(seed) % 40;
	neap_topology_free(topology);
	topology = neap_topology_new();
	for (uint32_t i = 0; i < devices; i++) {
		char name[16];
		snprintf(name, sizeof name, "mlx5_%u", i);
		neap_topology_add_device(topology, name);
		if (rand_r(seed) % 5 == 0)
			neap_topology_lose(topology, i, "dead");
	}
	for (uint32_t i = 0; i < rows; i++) {
		char location[16];
		snprintf(location, sizeof location, rand_r(seed) % 2 ? "cpu:%u" : "cuda:%u", i);
		struct neap_topology_row *row = neap_topology_add_row(topology, location);
		for (uint32_t k = 0; k < devices; k++) {
			uint8_t device = (uint8_t)((uint32_t)rand_r(seed) % devices);
			if (!memchr(row->order, device, row->count))
				row->order[row->count++] = device;
		}
		row->preferred = (uint32_t)rand_r(seed) % (row->count + 1);
	}
}

START_TEST(readers_get_the_device_that_they_mean)
{
	unsigned seed = 815 + (unsigned)_i;
	for (int round = 0; round < 50; round++) {
		const char *names[NEAP_DEVICES_MAX], *numbered[NEAP_DEVICES_MAX];
		struct neap_descriptor *read;
		uint32_t count;
		size_t length;
		char *text;
		make_any_machine(&seed);
		for (uint32_t i = 0; i < topology->device_count; i++)
			names[i] = topology->devices[i].name;
		describe(names, topology->device_count);
		publish();
		ck_assert_int_eq(neap_descriptor_encode(descriptor, 0, true, SIZE_MAX, &text, &length, why, sizeof why), 0);
		ck_assert_int_eq(neap_descriptor_decode(text, length, &read, why, sizeof why), 0);
		number_as_readers_do(read, numbered, &count);
		ck_assert_uint_eq(count, read->device_count);
		for (uint32_t i = 0; i < count; i++) {
			int ours = neap_topology_find(topology, numbered[i]);
			ck_assert_msg(strcmp(numbered[i], read->devices[i].name) == 0, "seed %d round %d: %s is number %u", _i, round, numbered[i], i);
			ck_assert_ptr_null(topology->devices[ours].unusable);
			ck_assert_uint_eq(read->buffers[0].rkeys[i], 100 + (uint32_t)ours);
		}
		free(text);
		neap_descriptor_free(read);
		neap_descriptor_free(descriptor);
	}
}
END_TEST

START_TEST(what_cannot_be_published_stays)
{
	static const char *const names[] = {"a", "b", "a"};
	topology = neap_topology_new();
	ck_assert_int_eq(neap_topology_add_device(topology, "a"), 0);
	ck_assert_int_eq(neap_topology_add_device(topology, "b"), 1);
	ck_assert_int_eq(read_text("{\"cpu:0\": [[\"a\", \"b\"], []]}"), 0);
	describe(names, 3);
	ck_assert_int_eq(neap_topology_publish(topology, descriptor, why, sizeof why), NEAP_EINVAL);
	ck_assert_str_eq(why, "devices[2] is a, which is there already");
	descriptor->device_count = 2;
	ck_assert_int_eq(neap_topology_publish(topology, descriptor, why, sizeof why), NEAP_EINVAL);
	ck_assert_str_eq(why, "buffers[0] has 3 keys for 2 devices");
	ck_assert_uint_eq(descriptor->priority_count, 0);
	descriptor->device_count = 3;
	neap_descriptor_free(descriptor);
}
END_TEST

/* te spec 2.4, as measured there */
START_TEST(hash_maps_as_measured)
{
	static const char *const keys[] = {"cpu:0", "cpu:1", "cuda:0", "cuda:1", "cuda:2", "cuda:3", "cuda:4", "cuda:5", "cuda:6", "cuda:7"};
	static const char *const walk[] = {"cuda:7", "cuda:6", "cuda:4", "cuda:3", "cuda:2", "cuda:5", "cuda:1", "cuda:0", "cpu:1", "cpu:0"};
	uint32_t order[10];
	neap_unordered_walk(keys, 10, order);
	for (int i = 0; i < 10; i++)
		ck_assert_str_eq(keys[order[i]], walk[i]);
	for (uint32_t count = 1; count <= 4; count++) {
		static const char *const nodes[] = {"cpu:0", "cpu:1", "cpu:2", "cpu:3"};
		neap_unordered_walk(nodes, count, order);
		for (uint32_t i = 0; i < count; i++)
			ck_assert_uint_eq(order[i], count - 1 - i);
	}
}
END_TEST

/* Against the container itself, with random keys of random numbers and lengths. */
START_TEST(hash_maps_as_they_are)
{
	static char texts[NEAP_TOPOLOGY_ROWS_MAX][32];
	const char *keys[NEAP_TOPOLOGY_ROWS_MAX];
	uint32_t ours[NEAP_TOPOLOGY_ROWS_MAX], theirs[NEAP_TOPOLOGY_ROWS_MAX];
	unsigned seed = 4711 + (unsigned)_i;
	for (int round = 0; round < 60; round++) {
		uint32_t count = (uint32_t)rand_r(&seed) % (round < 40 ? 40 : NEAP_TOPOLOGY_ROWS_MAX + 1);
		for (uint32_t i = 0; i < count; i++) {
			int length = rand_r(&seed) % 20;
			keys[i] = texts[i];
			for (int k = 0; k < length; k++)
				texts[i][k] = (char)(1 + rand_r(&seed) % 255);
			sprintf(texts[i] + length, ":%u", i); /* no two are equal */
		}
		neap_unordered_walk(keys, count, ours);
		unordered_real_walk(keys, count, theirs);
		ck_assert_msg(memcmp(ours, theirs, count * sizeof *ours) == 0, "seed %d round %d: %u keys", _i, round, count);
	}
}
END_TEST

/* --- GID tables of the system */

START_TEST(gid_tables_are_read)
{
	struct neap_gid_entry entries[NEAP_GIDS_MAX];
	uint32_t position;
	sysfs_pci("pci0000:00/0000:00:05.0", "0\n");
	sysfs_rdma("mlx5_0", "pci0000:00/0000:00:05.0", "4: ACTIVE\n");
	sysfs_gid("mlx5_0", 0, "fe80:0000:0000:0000:0202:03ff:fe04:0506\n", "IB/RoCE v1\n", "eth0\n");
	sysfs_gid("mlx5_0", 1, "fe80:0000:0000:0000:0202:03ff:fe04:0506\n", "RoCE v2\n", "eth0\n");
	sysfs_gid("mlx5_0", 2, "0000:0000:0000:0000:0000:0000:0000:0000\n", NULL, NULL);
	sysfs_gid("mlx5_0", 3, "0000:0000:0000:0000:0000:ffff:0a4d:0001\n", "RoCE v2\n", "eth0\n");
	sysfs_gid("mlx5_0", 4, "0000:0000:0000:0000:0000:ffff:0a4d:0002\n", "RoCE v2\n", "eth1\n");
	sysfs_gid("mlx5_0", 5, "0000:0000:0000:0000:0000:ffff:0a4d\n", "RoCE v2\n", "eth0\n");
	sysfs_gid("mlx5_0", 255, "2001:0db8:0000:0000:0000:0000:0000:0001\n", "RoCE v3\n", "../../../x\n");
	sysfs_netdev("eth0", true);
	sysfs_netdev("eth1", false);
	ck_assert_uint_eq(neap_gids_read(sysfs_root, "mlx5_0", 1, entries), 5);
	ck_assert_int_eq(entries[0].type, NEAP_GID_ROCE_V1);
	ck_assert_int_eq(entries[1].type, NEAP_GID_ROCE_V2);
	ck_assert_uint_eq(entries[2].index, 3);
	ck_assert_uint_eq(entries[2].gid[13], 0x4d);
	ck_assert_str_eq(entries[2].netdev, "eth0");
	ck_assert(!entries[2].netdev_down && entries[3].netdev_down);
	ck_assert_int_eq(entries[4].type, NEAP_GID_OTHER);
	ck_assert_int_eq(neap_gids_choose("mlx5_0", 1, entries, 5, -1, &position, why, sizeof why), 0);
	ck_assert_uint_eq(entries[position].index, 3);
	ck_assert_uint_eq(neap_gids_read(sysfs_root, "mlx5_0", 2, entries), 0);
	ck_assert_uint_eq(neap_gids_read("/nowhere", "mlx5_0", 1, entries), 0);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("topology");
	TCase *machines = tcase_create("machines"), *files = tcase_create("files"), *told = tcase_create("told");
	TCase *cases[] = {machines, files, told};
	tcase_add_test(machines, two_sockets_of_eight);
	tcase_add_test(machines, one_device);
	tcase_add_test(machines, no_device);
	tcase_add_test(machines, nothing_at_all);
	tcase_add_test(machines, a_device_without_a_node_is_only_available);
	tcase_add_test(machines, node_numbers_may_have_gaps);
	tcase_add_test(machines, a_kernel_without_nodes_still_has_a_row);
	tcase_add_test(machines, a_device_that_hangs_on_no_bus);
	tcase_add_test(machines, ports_decide_who_takes_part);
	tcase_add_test(machines, the_filter_takes_names);
	tcase_add_test(machines, hostile_trees);
	tcase_add_test(machines, more_devices_than_there_are_places);
	tcase_add_test(machines, names_in_order);
	tcase_add_test(machines, accelerators_have_the_nearest);
	tcase_add_test(machines, accelerators_that_cannot_be);
	tcase_add_test(machines, gid_tables_are_read);
	tcase_add_test(files, a_file_replaces_the_matrix);
	tcase_add_loop_test(files, a_mistake_is_named_and_changes_nothing, 0, sizeof mistakes / sizeof *mistakes);
	tcase_add_test(files, a_file_has_limits);
	tcase_add_test(files, files_are_named);
	tcase_add_test(files, the_matrix_is_a_file);
	tcase_add_test(told, devices_in_the_order_of_readers);
	tcase_add_test(told, a_dead_device_is_gone_everywhere);
	tcase_add_loop_test(told, readers_get_the_device_that_they_mean, 0, 10);
	tcase_add_test(told, what_cannot_be_published_stays);
	tcase_add_test(told, hash_maps_as_measured);
	tcase_add_loop_test(told, hash_maps_as_they_are, 0, 5);
	for (int i = 0; i < 3; i++) {
		tcase_add_checked_fixture(cases[i], begin, end);
		suite_add_tcase(suite, cases[i]);
	}
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
