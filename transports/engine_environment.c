/* Options from the environment variables that Mooncake's users know. A bad value stops the start: a limit that silently is another
 * one than was written down costs more than a start that fails. */
#include <errno.h>
#include <neap/engine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int refuse(const char *name, const char *value, const char *allowed, char *why, size_t why_size)
{
	snprintf(why, why_size, "%s=\"%.64s\": allowed are %s", name, value, allowed);
	return NEAP_EINVAL;
}

/* *value_p stays as it is when the variable is not set, or empty. */
static int read_number(const char *name, uint32_t least, uint32_t most, uint32_t *value_p, char *why, size_t why_size)
{
	const char *text = getenv(name);
	char allowed[64], *end;
	if (!text || !*text)
		return NEAP_OK;
	snprintf(allowed, sizeof allowed, "whole numbers from %u to %u", least, most);
	errno = 0;
	unsigned long value = strtoul(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || value < least || value > most)
		return refuse(name, text, allowed, why, why_size);
	*value_p = (uint32_t)value;
	return NEAP_OK;
}

static int read_switch(const char *name, bool *value_p, char *why, size_t why_size)
{
	static const char *const on[] = {"1", "true", "yes", "on"}, *const off[] = {"0", "false", "no", "off"};
	const char *text = getenv(name);
	if (!text || !*text)
		return NEAP_OK;
	for (size_t i = 0; i < sizeof on / sizeof on[0]; i++) {
		if (strcmp(text, on[i]) != 0 && strcmp(text, off[i]) != 0)
			continue;
		*value_p = strcmp(text, on[i]) == 0;
		return NEAP_OK;
	}
	return refuse(name, text, "0, 1, true, false, yes, no, on, off", why, why_size);
}

/* The misspelt names are those of older releases. */
static int read_ports(struct neap_engine_options *options, char *why, size_t why_size)
{
	uint32_t port_min = options->port_min, port_max = options->port_max;
	int error = read_number("MC_MIN_PRC_PORT", 1024, 65535, &port_min, why, why_size);
	if (!error)
		error = read_number("MC_MAX_PRC_PORT", 1024, 65535, &port_max, why, why_size);
	if (!error)
		error = read_number("MC_MIN_RPC_PORT", 1024, 65535, &port_min, why, why_size);
	if (!error)
		error = read_number("MC_MAX_RPC_PORT", 1024, 65535, &port_max, why, why_size);
	if (error)
		return error;
	if (port_min || port_max) {
		port_min = port_min ? port_min : 15000;
		port_max = port_max ? port_max : 17000;
	}
	if (port_min > port_max) {
		snprintf(why, why_size, "MC_MIN_RPC_PORT (%u) is above MC_MAX_RPC_PORT (%u); defaults are 15000 and 17000", port_min,
		         port_max);
		return NEAP_EINVAL;
	}
	options->port_min = (uint16_t)port_min;
	options->port_max = (uint16_t)port_max;
	return NEAP_OK;
}

static int read_seconds(const char *name, uint32_t most, uint32_t *ms_p, char *why, size_t why_size)
{
	uint32_t seconds = 0;
	int error = read_number(name, 1, most, &seconds, why, why_size);
	if (!error && seconds)
		*ms_p = seconds * 1000;
	return error;
}

static int read_protocol(struct neap_engine_options *options, char *why, size_t why_size)
{
	uint32_t version = 0;
	int error = read_number("MC_TCP_PROTO", 1, 2, &version, why, why_size);
	if (!error && version)
		options->v1_only = version == 1;
	return error;
}

static int read_family(struct neap_engine_options *options, char *why, size_t why_size)
{
	bool v6 = false;
	int error = read_switch("MC_USE_IPV6", &v6, why, why_size);
	if (!error && v6 && !options->local_name && !options->bind_address)
		options->local_name = "::1";
	return error;
}

/* An empty one is one that is not set. The text is the environment's. */
static void read_text(const char *name, const char **text_p)
{
	const char *text = getenv(name);
	if (text && *text)
		*text_p = text;
}

static int read_metadata(struct neap_engine_options *options, char *why, size_t why_size)
{
	read_text("MC_METADATA_CLUSTER_ID", &options->metadata_cluster);
	read_text("MC_REDIS_USERNAME", &options->redis_username);
	read_text("MC_REDIS_PASSWORD", &options->redis_password);
	read_text("NEAP_METADATA_CA_FILE", &options->metadata_ca_file);
	read_text("NEAP_METADATA_CERTIFICATE_FILE", &options->metadata_certificate_file);
	read_text("NEAP_METADATA_KEY_FILE", &options->metadata_key_file);
	read_text("MC_ETCD_USERNAME", &options->etcd_username);
	read_text("MC_ETCD_PASSWORD", &options->etcd_password);
	read_text("MC_TCP_BIND_ADDRESS", &options->advertised_host);
	return read_number("MC_REDIS_DB_INDEX", 0, 255, &options->redis_database, why, why_size);
}

static void read_devices(struct neap_engine_options *options)
{
	read_text("MC_CUSTOM_TOPO_JSON", &options->topology_file);
	read_text("MC_TE_FILTERS", &options->device_filter);
	read_text("MC_RDMA_BIND_ADDRESS", &options->rdma.advertised_host);
}

static int read_gid_index(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	const uint32_t none = UINT32_MAX;
	uint32_t index = none;
	int error = read_number("NCCL_IB_GID_INDEX", 0, 255, &index, why, why_size);
	if (!error)
		error = read_number("MC_GID_INDEX", 0, 255, &index, why, why_size);
	if (error || index == none)
		return error;
	rdma->gid_fixed = true;
	rdma->gid_index = index;
	return NEAP_OK;
}

static int read_mtu(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	uint32_t bytes = 0;
	int error = read_number("MC_MTU", 512, 4096, &bytes, why, why_size);
	if (error || (bytes & (bytes - 1)))
		return refuse("MC_MTU", getenv("MC_MTU"), "512, 1024, 2048 and 4096", why, why_size);
	if (bytes)
		rdma->mtu_bytes = bytes;
	return NEAP_OK;
}

static int read_ordering(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	uint32_t relaxed = rdma->strict_ordering ? 0 : 1;
	int error = read_number("MC_IB_PCI_RELAXED_ORDERING", 0, 2, &relaxed, why, why_size);
	rdma->strict_ordering = relaxed == 0;
	return error;
}

static int read_region_size(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	const char *text = getenv("MC_MAX_MR_SIZE");
	char *end;
	if (!text || !*text)
		return NEAP_OK;
	errno = 0;
	unsigned long long bytes = strtoull(text, &end, 10);
	if (*text < '0' || *text > '9' || *end || errno || bytes < 4096 || bytes > (1ULL << 46))
		return refuse("MC_MAX_MR_SIZE", text, "whole numbers from 4096 to 70368744177664", why, why_size);
	rdma->region_max_bytes = bytes;
	return NEAP_OK;
}

static int read_rdma_numbers(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	const struct {
		const char *name;
		uint32_t least, most, *value;
	} numbers[] = {
		{"MC_IB_PORT", 1, 255, &rdma->port},
		{"MC_IB_TC", 0, 255, &rdma->traffic_class},
		{"MC_IB_SL", 0, 15, &rdma->service_level},
		{"MC_PKEY_INDEX", 0, 65535, &rdma->pkey_index},
		{"MC_MAX_EP_PER_CTX", 1, 65535, &rdma->endpoints_max},
		{"MC_NUM_QP_PER_EP", 1, 16, &rdma->qps_per_endpoint},
		{"MC_MAX_WR", 1, 65535, &rdma->sends_max},
		{"MC_MAX_CQE_PER_CTX", 1, 65535, &rdma->completions_max},
		{"MC_SLICE_SIZE", 4096, 1073741824, &rdma->slice_bytes},
		{"MC_FRAGMENT_RATIO", 1, 1073741823, &rdma->fragment_ratio},
		{"MC_RETRY_CNT", 1, 127, &rdma->retries_max},
		{"NEAP_RDMA_SILENCE_RETRIES", 1, 7, &rdma->silence_retries},
		{"NEAP_RDMA_WINDOW_BYTES", 4096, 4294967295u, &rdma->window_bytes},
	};
	int error = NEAP_OK;
	for (size_t i = 0; !error && i < sizeof numbers / sizeof numbers[0]; i++)
		error = read_number(numbers[i].name, numbers[i].least, numbers[i].most, numbers[i].value, why, why_size);
	return error;
}

static int read_rdma(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	int error = read_rdma_numbers(rdma, why, why_size);
	if (!error)
		error = read_gid_index(rdma, why, why_size);
	if (!error)
		error = read_mtu(rdma, why, why_size);
	if (!error)
		error = read_ordering(rdma, why, why_size);
	if (!error)
		error = read_region_size(rdma, why, why_size);
	if (!error)
		error = read_seconds("MC_RDMA_RAIL_PAUSE_SECONDS", 3599, &rdma->rail_pause_ms, why, why_size);
	if (!error)
		error = read_switch("MC_FORCE_TCP", &rdma->force_tcp, why, why_size);
	return error ? error : read_switch("MC_ENABLE_DEST_DEVICE_AFFINITY", &rdma->same_name, why, why_size);
}

static int read_all(struct neap_engine_options *options, char *why, size_t why_size)
{
	int error = read_ports(options, why, why_size);
	read_devices(options);
	if (!error)
		error = read_number("MC_TCP_MAX_CONNECTIONS_PER_PEER", 1, 16, &options->lanes_per_peer, why, why_size);
	if (!error)
		error = read_number("MC_TCP_LANES_PER_PEER", 1, 16, &options->lanes_per_peer, why, why_size);
	if (!error)
		error = read_number("MC_TCP_MAX_QUEUED_TRANSFERS_PER_PEER", 1, 65535, &options->requests_per_peer_max, why, why_size);
	if (!error)
		error = read_number("MC_HANDSHAKE_MAX_LENGTH", 1048576, 134217728, &options->handshake_length_max, why, why_size);
	if (!error)
		error = read_seconds("MC_HANDSHAKE_CONNECT_TIMEOUT", 3599, &options->connect_timeout_ms, why, why_size);
	if (!error)
		error = read_seconds("MC_TCP_STATUS_TIMEOUT_SEC", 86400, &options->progress_timeout_ms, why, why_size);
	if (!error)
		error = read_metadata(options, why, why_size);
	if (!error)
		error = read_protocol(options, why, why_size);
	if (!error)
		error = read_rdma(&options->rdma, why, why_size);
	return error ? error : read_family(options, why, why_size);
}

int neap_engine_options_from_environment(struct neap_engine_options *options, char *why, size_t why_size)
{
	char unheard[1];
	if (!options)
		return NEAP_EINVAL;
	struct neap_engine_options read = *options;
	int error = read_all(&read, why ? why : unheard, why ? why_size : sizeof unheard);
	if (!error)
		*options = read;
	return error;
}
