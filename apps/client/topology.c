#include "apps/client/topology.h"
#include "apps/common/flags.h"
#include "transports/rdma/look.h"
#include <neap/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OWN_SYSFS "/sys"

static const char *sysfs = OWN_SYSFS, *topology_file, *device_names;
static bool all;

static const struct app_flag flags[] = {
	{"all", APP_FLAG_SWITCH, &all, NULL, 0, 0, "devices, ports and addresses too, and why some take no part"},
	{"device_names", APP_FLAG_TEXT, &device_names, NULL, 0, 0, "a comma list of the devices that may be used; MC_TE_FILTERS"},
	{"topology_file", APP_FLAG_TEXT, &topology_file, NULL, 0, 0, "a matrix instead of the one found; MC_CUSTOM_TOPO_JSON"},
	{"sysfs", APP_FLAG_TEXT, &sysfs, NULL, 0, 0, "where to look: /sys, or a copy of another machine's"},
};
static const struct app_program program = {
	.name = "neap-client topology",
	.purpose = "Shows which RDMA devices are near which memory, as JSON: {\"cpu:0\": [[preferred], [available]], ...}. What it prints\n"
			   "is a topology file. Warnings go to standard error.",
	.examples = "  neap-client topology --all                     which devices there are, and why one is not used\n"
	            "  neap-client topology > topology.json           a file to change, for MC_CUSTOM_TOPO_JSON\n",
	.flags = flags,
	.flag_count = sizeof flags / sizeof flags[0],
	.exit_status = "0 shown (also when there is no device), 2 a wrong flag or file, 3 no such sysfs",
};

/* --- devices */

static void put_member(struct neap_json_writer *writer, const char *before, const char *text)
{
	neap_json_put_text(writer, before);
	if (text && *text)
		(void)neap_json_put_string(writer, text);
	else
		neap_json_put_text(writer, "null");
}

static void put_number(struct neap_json_writer *writer, const char *before, int32_t value)
{
	char text[16];
	snprintf(text, sizeof text, "%d", value);
	neap_json_put_text(writer, before);
	neap_json_put_text(writer, text);
}

/* The address that would be used. */
static void put_gid(const struct neap_topology_device *device, uint32_t port, struct neap_json_writer *writer)
{
	static struct neap_gid_entry entries[NEAP_GIDS_MAX];
	char text[NEAP_GID_TEXT_SIZE], why[256];
	uint32_t count = neap_gids_read(sysfs, device->name, port, entries), position = 0;
	if (neap_gids_choose(device->name, port, entries, count, -1, &position, why, sizeof why)) {
		put_member(writer, ", \"gid\": null, \"why\": ", why);
		return;
	}
	neap_gid_format(entries[position].gid, text);
	put_number(writer, ", \"gid_index\": ", (int32_t)entries[position].index);
	put_member(writer, ", \"gid\": ", text);
}

static void put_port(const struct neap_topology_device *device, const struct neap_topology_port *port, struct neap_json_writer *writer)
{
	put_number(writer, "\n      {\"port\": ", (int32_t)port->number);
	put_member(writer, ", \"status\": ", neap_port_state_name(port->status));
	put_member(writer, ", \"link\": ", port->ethernet ? "Ethernet" : "InfiniBand");
	put_member(writer, ", \"netdev\": ", port->netdev);
	put_gid(device, port->number, writer);
	neap_json_put_text(writer, "}");
}

/* What verbs say of it: an engine here would use that port and address, or has that reason not to. */
static void put_verbs(const struct neap_topology_device *device, struct neap_json_writer *writer)
{
	const struct neap_rdma_wants wants = {0};
	struct neap_rdma_handle handle;
	struct neap_rdma_view view;
	char why[NEAP_RDMA_WHY_SIZE], gid[NEAP_GID_TEXT_SIZE];
	int error = neap_rdma_open(&neap_verbs_system, device->name, 0, &handle, why, sizeof why);
	if (!error) {
		error = neap_rdma_look(&neap_verbs_system, &handle, device->name, &wants, &view, why, sizeof why);
		(void)neap_rdma_shut(&neap_verbs_system, &handle);
	}
	if (error) {
		put_member(writer, ",\n     \"verbs\": {\"usable\": false, \"why\": ", why);
		neap_json_put_text(writer, "}");
		return;
	}
	neap_gid_format(view.gid.gid, gid);
	put_number(writer, ",\n     \"verbs\": {\"usable\": true, \"port\": ", (int32_t)view.port_number);
	put_member(writer, ", \"status\": ", neap_port_state_name(view.port.status));
	put_number(writer, ", \"mtu_bytes\": ", (int32_t)view.port.mtu_bytes);
	put_number(writer, ", \"gid_index\": ", (int32_t)view.gid.index);
	put_member(writer, ", \"gid\": ", gid);
	neap_json_put_text(writer, "}");
}

static void put_device(const struct neap_topology_device *device, struct neap_json_writer *writer)
{
	put_member(writer, "\n    {\"name\": ", device->name);
	put_member(writer, ", \"pci\": ", device->pci);
	put_number(writer, ", \"numa_node\": ", device->numa_node);
	put_member(writer, ", \"unusable\": ", device->unusable);
	neap_json_put_text(writer, ", \"ports\": [");
	for (uint32_t i = 0; i < device->port_count; i++) {
		neap_json_put_text(writer, i ? "," : "");
		put_port(device, &device->ports[i], writer);
	}
	neap_json_put_text(writer, "]");
	if (strcmp(sysfs, OWN_SYSFS) == 0)
		put_verbs(device, writer); /* of a copy of another machine there is nothing to open */
	neap_json_put_text(writer, "}");
}

static void put_all(const struct neap_topology *topology, struct neap_json_writer *writer)
{
	neap_json_put_text(writer, "{\n  \"devices\": [");
	for (uint32_t i = 0; i < topology->device_count; i++) {
		neap_json_put_text(writer, i ? "," : "");
		put_device(&topology->devices[i], writer);
	}
	neap_json_put_text(writer, "],\n  \"priority_matrix\": ");
	neap_topology_put_matrix(topology, writer);
	neap_json_put_text(writer, "}\n");
}

/* --- all of it */

/* What an engine on this machine would be told; flags win. */
static int read_environment(void)
{
	struct neap_engine_options options = {0};
	char why[256];
	if (neap_engine_options_from_environment(&options, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_USAGE;
	}
	topology_file = topology_file ? topology_file : options.topology_file;
	device_names = device_names ? device_names : options.device_filter;
	return -1;
}

static int make(struct neap_topology **topology_p)
{
	char why[512];
	if (neap_topology_discover(sysfs, device_names, topology_p, why, sizeof why)) {
		app_error(&program, "--sysfs: %s", why);
		return APP_START;
	}
	if (topology_file && neap_topology_read_file(*topology_p, topology_file, why, sizeof why)) {
		app_error(&program, "%s", why);
		return APP_USAGE;
	}
	return -1;
}

static void warn(const struct neap_topology *topology)
{
	for (uint32_t i = 0; i < topology->warning_count; i++)
		app_error(&program, "warning: %s", topology->warnings[i]);
	if (topology->warnings_left_out)
		app_error(&program, "warning: %u more", topology->warnings_left_out);
	if (topology->device_count == 0)
		app_error(&program, "there is no RDMA device (%s/class/infiniband)", sysfs);
}

static int show(const struct neap_topology *topology)
{
	struct neap_json_writer writer;
	char *text;
	size_t length;
	neap_json_writer_init(&writer, SIZE_MAX, 4096);
	if (all)
		put_all(topology, &writer);
	else
		neap_topology_put_matrix(topology, &writer);
	if (neap_json_writer_take(&writer, &text, &length)) {
		app_error(&program, "out of memory");
		return APP_START;
	}
	bool written = fwrite(text, 1, length, stdout) == length && fflush(stdout) == 0;
	free(text);
	if (!written)
		app_error(&program, "cannot write to standard output");
	return written ? APP_OK : APP_FAILED;
}

int client_topology(int argc, char **argv)
{
	struct neap_topology *topology = NULL;
	int result = app_flags_parse(&program, argc, argv);
	if (result < 0)
		result = read_environment();
	if (result < 0)
		result = make(&topology);
	if (result < 0) {
		warn(topology);
		result = show(topology);
	}
	neap_topology_free(topology);
	return result;
}
