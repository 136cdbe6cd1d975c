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
