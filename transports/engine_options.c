/* Options: defaults, ranges, copies of the texts. */
#include "transports/engine_state.h"
#include "transports/topology/topology.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define DAY_MS 86400000u
#define CONGESTION_MAX 15u
#define TEXT_MAX 1024u
#define REGION_MAX_BYTES (UINT64_C(1) << 46)
#define SLAB_LEAST (UINT64_C(2) << 20)
#define SLAB_USUAL (UINT64_C(64) << 20)
#define SLAB_MOST (UINT64_C(1) << 30)

/* name, least, most, default */
#define NUMBERS(N)                                                        \
	N(lanes_per_peer, 1, 16, 1)                                           \
	N(requests_max, 1, 16777216, 131072)                                  \
	N(batches_max, 1, 16777216, 65536)                                    \
	N(peers_max, 1, 1048576, 4096)                                        \
	N(requests_per_peer_max, 1, 16777216, filled->requests_max)           \
	N(sessions_max, 1, 1048576, 8192)                                     \
	N(regions_max, 1, NEAP_BUFFERS_MAX, 65536)                            \
	N(grants_max, 1, NEAP_BUFFERS_MAX, 65536)                             \
	N(handshake_sessions_max, 1, 65536, 1024)                             \
	N(notifies_max, 1, 1048576, 1024)                                     \
	N(handshake_length_max, NEAP_HANDSHAKE_LENGTH_DEFAULT, NEAP_HANDSHAKE_LENGTH_MAX, NEAP_HANDSHAKE_LENGTH_DEFAULT) \
	N(metadata_timeout_ms, 1, DAY_MS, 3000)                               \
	N(metadata_refresh_ms, 1, DAY_MS, 30000)                              \
	N(connect_timeout_ms, 1, DAY_MS, 5000)                                \
	N(handshake_timeout_ms, 1, DAY_MS, 5000)                              \
	N(progress_timeout_ms, 1, DAY_MS, 30000)                              \
	N(first_header_timeout_ms, 1, DAY_MS, 30000)                          \
	N(drain_timeout_ms, 1, DAY_MS, 2000)                                  \
	N(retries_max, 1, 100, 3)                                             \
	N(retry_backoff_ms, 1, 60000, 10)

static int fill_numbers(struct neap_engine_options *filled, char *why, size_t why_size)
{
#define FILL(name, least, most, default_)                                                                               \
	if (filled->name == 0)                                                                                              \
		filled->name = (default_);                                                                                      \
	if (filled->name < (least) || filled->name > (most)) {                                                              \
		snprintf(why, why_size, #name " is %u; allowed are %u to %u", filled->name, (unsigned)(least), (unsigned)(most)); \
		return NEAP_EINVAL;                                                                                             \
	}
	NUMBERS(FILL)
#undef FILL
	return NEAP_OK;
}

/* name, least, most, default; 0 where that is no value of its own */
#define RDMA_NUMBERS(N)                      \
	N(port, 0, 255, 0)                       \
	N(gid_index, 0, 255, 0)                  \
	N(mtu_bytes, 512, 4096, 4096)            \
	N(traffic_class, 0, 255, 0)              \
	N(service_level, 0, 15, 0)               \
	N(pkey_index, 0, 65535, 0)               \
	N(endpoints_max, 1, 65535, 4096)         \
	N(qps_per_endpoint, 1, 16, 2)            \
	N(sends_max, 1, 65535, 256)              \
	N(completions_max, 1, 65535, 4096)       \
	N(slice_bytes, 4096, 1073741824, 65536)  \
	N(fragment_ratio, 0, 1073741823, 0)      \
	N(silence_retries, 1, 7, 6)              \
	N(retries_max, 1, 127, 9)                \
	N(rail_pause_ms, 1, 3599000, 30000)      \
	N(window_bytes, 0, 4294967295u, 0)

static int refuse_number(const char *name, uint32_t value, uint32_t least, uint32_t most, char *why, size_t why_size)
{
	snprintf(why, why_size, "rdma.%s is %u; allowed are %u to %u", name, value, least, most);
	return NEAP_EINVAL;
}

static int fill_rdma_numbers(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	const struct {
		const char *name;
		uint32_t *value, least, most, usual;
	} numbers[] = {
#define NUMBER(name, least, most, usual) {#name, &rdma->name, least, most, usual},
		RDMA_NUMBERS(NUMBER)
#undef NUMBER
	};
	for (size_t i = 0; i < sizeof numbers / sizeof numbers[0]; i++) {
		if (*numbers[i].value == 0)
			*numbers[i].value = numbers[i].usual;
		if (*numbers[i].value < numbers[i].least || *numbers[i].value > numbers[i].most)
			return refuse_number(numbers[i].name, *numbers[i].value, numbers[i].least, numbers[i].most, why, why_size);
	}
	return NEAP_OK;
}

/* The port is that of the segment's name. */
static int check_advertised_host(const char *text, char *why, size_t why_size)
{
	struct neap_host_port host;
	char unheard[NEAP_WHY_MAX];
	if (!text || (neap_host_port_parse(text, 1, &host, unheard, sizeof unheard) == NEAP_OK && !host.has_port))
		return NEAP_OK;
	snprintf(why, why_size, "rdma.advertised_host (MC_RDMA_BIND_ADDRESS) \"%.64s\" is not a host without a port", text);
	return NEAP_EINVAL;
}

static int fill_rdma(struct neap_rdma_engine_options *rdma, char *why, size_t why_size)
{
	if (!rdma->slab_bytes)
		rdma->slab_bytes = SLAB_USUAL;
	int error = fill_rdma_numbers(rdma, why, why_size);
	if (!error)
		error = check_advertised_host(rdma->advertised_host, why, why_size);
	if (error)
		return error;
	if (rdma->mtu_bytes & (rdma->mtu_bytes - 1))
		snprintf(why, why_size, "rdma.mtu_bytes is %u; allowed are 512, 1024, 2048 and 4096", rdma->mtu_bytes);
	else if (rdma->fragment_ratio >= rdma->slice_bytes)
		snprintf(why, why_size, "rdma.fragment_ratio is %u; allowed are 1 to rdma.slice_bytes - 1 (%u)", rdma->fragment_ratio,
		         rdma->slice_bytes - 1);
	else if (rdma->slab_bytes < SLAB_LEAST || rdma->slab_bytes > SLAB_MOST || (rdma->slab_bytes & (rdma->slab_bytes - 1)))
		snprintf(why, why_size, "rdma.slab_bytes is %" PRIu64 "; allowed are the powers of two from %" PRIu64 " to %" PRIu64,
		         rdma->slab_bytes, SLAB_LEAST, SLAB_MOST);
	else if (rdma->window_bytes && rdma->window_bytes < 4096)
		snprintf(why, why_size, "rdma.window_bytes is %u; allowed are 4096 to 4294967295", rdma->window_bytes);
	else if (rdma->region_max_bytes && (rdma->region_max_bytes < 4096 || rdma->region_max_bytes > REGION_MAX_BYTES))
		snprintf(why, why_size, "rdma.region_max_bytes is %" PRIu64 "; allowed are 4096 to %" PRIu64, rdma->region_max_bytes,
		         REGION_MAX_BYTES);
	else
		return NEAP_OK;
	return NEAP_EINVAL;
}

static int check_protocol(const char *protocol, char *why, size_t why_size)
{
	if (strcmp(protocol, "tcp") == 0 || strcmp(protocol, "rdma") == 0 || strcmp(protocol, "auto") == 0)
		return NEAP_OK;
	snprintf(why, why_size, "protocol \"%.32s\" is not \"tcp\", \"rdma\" or \"auto\"", protocol);
	return NEAP_EINVAL;
}

static int fill_ports(struct neap_engine_options *filled, char *why, size_t why_size)
{
	if (!filled->port_min && !filled->port_max) {
		filled->port_min = 15000;
		filled->port_max = 17000;
	}
	if (!filled->port_min || !filled->port_max || filled->port_min > filled->port_max) {
		snprintf(why, why_size, "port_min %u and port_max %u: give both, the smaller one first", filled->port_min, filled->port_max);
		return NEAP_EINVAL;
	}
	if (filled->handshake_port && filled->handshake_port == filled->data_port) {
		snprintf(why, why_size, "handshake_port and data_port are both %u; they need two ports", filled->data_port);
		return NEAP_EINVAL;
	}
	return NEAP_OK;
}

static int check_congestion(const char *name, char *why, size_t why_size)
{
	size_t length = strnlen(name, CONGESTION_MAX + 1);
	if (length > 0 && length <= CONGESTION_MAX && strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_-") == length)
		return NEAP_OK;
	snprintf(why, why_size, "congestion \"%.32s\" is not \"auto\", \"system\" or the name of an algorithm", name);
	return NEAP_EINVAL;
}

/* Texts are copied, so that the caller's may go. */
static int copy_text(struct neap_engine *engine, uint32_t which, const char **text_p)
{
	if (!*text_p)
		return NEAP_OK;
	size_t bytes = strnlen(*text_p, TEXT_MAX) + 1;
	if (bytes > TEXT_MAX)
		return NEAP_EINVAL;
	engine->texts[which] = neap_allocate(engine->reactor, bytes);
	if (!engine->texts[which])
		return NEAP_ENOMEM;
	memcpy(engine->texts[which], *text_p, bytes);
	*text_p = engine->texts[which];
	return NEAP_OK;
}

static int copy_texts(struct neap_engine *engine, char *why, size_t why_size)
{
	struct neap_engine_options *filled = &engine->options;
	const struct {
		const char *name, **text;
	} texts[NEAP_TEXTS] = {
		{"metadata", &filled->metadata},
		{"local_name", &filled->local_name},
		{"bind_address", &filled->bind_address},
		{"congestion", &filled->congestion},
		{"advertised_host", &filled->advertised_host},
		{"metadata_cluster", &filled->metadata_cluster},
		{"metadata_ca_file", &filled->metadata_ca_file},
		{"metadata_certificate_file", &filled->metadata_certificate_file},
		{"metadata_key_file", &filled->metadata_key_file},
		{"redis_username", &filled->redis_username},
		{"redis_password", &filled->redis_password},
		{"etcd_username", &filled->etcd_username},
		{"etcd_password", &filled->etcd_password},
		{"topology_file", &filled->topology_file},
		{"device_filter", &filled->device_filter},
		{"protocol", &filled->protocol},
		{"rdma.advertised_host", &filled->rdma.advertised_host},
	};
	for (uint32_t i = 0; i < NEAP_TEXTS; i++) {
		int error = copy_text(engine, i, texts[i].text);
		if (error) {
			/* What was not copied is the caller's, not ours to free. */
			snprintf(why, why_size, error == NEAP_ENOMEM ? "out of memory (%s)" : "%s is longer than 1023 bytes", texts[i].name);
			return error;
		}
	}
	return NEAP_OK;
}

static int check_metadata(const struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_engine_options *filled = &engine->options;
	const char *scheme;
	if (filled->metadata_lease_ms && (filled->metadata_lease_ms < 1000 || filled->metadata_lease_ms > DAY_MS)) {
		snprintf(why, why_size, "metadata_lease_ms is %u; allowed are 0 (none) and 1000 to %u", filled->metadata_lease_ms, DAY_MS);
		return NEAP_EINVAL;
	}
	if (filled->redis_database > 255) {
		snprintf(why, why_size, "redis_database is %u; allowed are 0 to 255", filled->redis_database);
		return NEAP_EINVAL;
	}
	return engine->make_backend ? NEAP_OK : neap_backend_scheme(filled->metadata, &scheme, why, why_size);
}

int neap_options_fill(struct neap_engine *engine, const struct neap_engine_options *given, char *why, size_t why_size)
{
	struct neap_engine_options *filled = &engine->options;
	*filled = given ? *given : (struct neap_engine_options){0};
	if (!filled->metadata)
		filled->metadata = "P2PHANDSHAKE";
	if (!filled->congestion)
		filled->congestion = "auto";
	if (!filled->protocol)
		filled->protocol = "tcp";
	int error = fill_numbers(filled, why, why_size);
	if (!error)
		error = fill_ports(filled, why, why_size);
	if (!error)
		error = check_congestion(filled->congestion, why, why_size);
	if (!error)
		error = check_metadata(engine, why, why_size);
	if (!error)
		error = check_protocol(filled->protocol, why, why_size);
	if (!error)
		error = fill_rdma(&filled->rdma, why, why_size);
	return error ? error : copy_texts(engine, why, why_size);
}

/* A mistake in the topology is found when the program starts, not when the first device is opened. Which devices there are is not asked:
 * this process may have none. */
int neap_options_check_files(struct neap_engine *engine, char *why, size_t why_size)
{
	const char *path = engine->options.topology_file;
	if (!path || neap_reactor_simulated(engine->reactor))
		return NEAP_OK;
	struct neap_topology *topology = neap_topology_new();
	int error = topology ? neap_topology_read_file(topology, path, why, why_size) : NEAP_ENOMEM;
	neap_topology_free(topology);
	return error;
}

void neap_options_free(struct neap_engine *engine)
{
	for (uint32_t i = 0; i < NEAP_TEXTS; i++) {
		if (engine->texts[i])
			neap_release(engine->reactor, engine->texts[i], strlen(engine->texts[i]) + 1);
		engine->texts[i] = NULL;
	}
}
