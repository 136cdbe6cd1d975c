/* Topology files from outside: an answer with a reason and nothing changed, or rows within their bounds that can be written, read again,
 * published and chosen from. */
#include "transports/topology/paths.h"
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define OURS 3u

static void must(bool right)
{
	if (!right)
		abort();
}

/* A machine with three devices and a row. */
static struct neap_topology *make_machine(void)
{
	static const char *const names[OURS] = {"a", "b", "mlx5_0"};
	struct neap_topology *topology = neap_topology_new();
	must(topology != NULL);
	for (uint32_t i = 0; i < OURS; i++)
		must(neap_topology_add_device(topology, names[i]) == (int)i);
	struct neap_topology_row *row = neap_topology_add_row(topology, "cpu:0");
	must(row != NULL);
	row->order[row->count++] = 1;
	return topology;
}

static void check_rows(const struct neap_topology *topology)
{
	must(topology->device_count <= NEAP_DEVICES_MAX && topology->row_count <= NEAP_TOPOLOGY_ROWS_MAX && topology->row_count > 0);
	must(topology->warning_count <= NEAP_TOPOLOGY_WARNINGS_MAX);
	for (uint32_t i = 0; i < topology->row_count; i++) {
		const struct neap_topology_row *row = &topology->rows[i];
		must(row->preferred <= row->count && row->count <= topology->device_count && row->location[0]);
		for (uint32_t k = 0; k < row->count; k++)
			must(row->order[k] < topology->device_count && !memchr(row->order, row->order[k], k));
	}
}

/* What is written is read as the same rows. */
static void check_written(const struct neap_topology *topology)
{
	struct neap_json_writer writer;
	struct neap_topology *again = make_machine();
	char *text, why[200];
	size_t length;
	neap_json_writer_init(&writer, SIZE_MAX, 256);
	neap_topology_put_matrix(topology, &writer);
	must(neap_json_writer_take(&writer, &text, &length) == 0);
	must(neap_topology_read(again, text, length, why, sizeof why) == 0);
	must(again->row_count == topology->row_count && again->device_count == OURS);
	free(text);
	neap_topology_free(again);
}

/* A peer that reads what is published chooses among our devices alone. */
static void check_published(const struct neap_topology *topology)
{
	struct neap_descriptor *descriptor = calloc(1, sizeof *descriptor);
	struct neap_path_side local, remote;
	char why[200];
	must(descriptor != NULL);
	descriptor->devices = calloc(OURS, sizeof *descriptor->devices);
	must(descriptor->devices != NULL);
	for (uint32_t i = 0; i < OURS; i++)
		descriptor->devices[descriptor->device_count++].name = strdup(topology->devices[i].name);
	must(neap_topology_publish(topology, descriptor, why, sizeof why) == 0);
	for (uint32_t i = 0; i < topology->row_count; i++) {
		struct neap_path path;
		neap_path_local(topology, topology->rows[i].location, (int32_t)i, &local);
		neap_path_remote(descriptor, topology->rows[i].location, &remote);
		struct neap_path_question question = {.local = &local, .remote = &remote, .random = i};
		must(neap_path_choose(&question, &path) == (local.count > 0 && remote.count > 0));
		must(!local.count || !remote.count || (path.local < OURS && path.remote < descriptor->device_count));
	}
	neap_descriptor_free(descriptor);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	struct neap_topology *topology = make_machine();
	char why[200] = "", location[NEAP_TOPOLOGY_LOCATION_SIZE], name[128];
	int error = neap_topology_read(topology, (const char *)data, size, why, sizeof why);
	must(error ? why[0] && topology->row_count == 1 && topology->device_count == OURS : true);
	check_rows(topology);
	check_written(topology);
	check_published(topology);
	neap_topology_free(topology);

	size_t kept = size < sizeof name ? size : sizeof name - 1;
	memcpy(name, data, kept);
	name[kept] = '\0';
	neap_location_at(name, size, size * 2, location);
	return 0;
}
