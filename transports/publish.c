/* What peers read about this process. The document is made when it is asked for and has changed since, and kept: a thousand peers that
 * read it cost a thousand copies, not a thousand walks over the regions. */
#include "transports/engine_state.h"
#include <ctype.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FIXED_BYTES 1024u       /* of a document without buffers and names */
#define BUFFER_BYTES 30u        /* of {"addr":,"length":,"name":""}, and its comma */
#define PORT_BYTES 6u

/* This boot of this machine: with the instance id it tells processes on one host. */
void neap_publish_boot_id(struct neap_engine *engine)
{
	char text[64];
	if (neap_reactor_simulated(engine->reactor))
		return;
	int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC | O_NONBLOCK);
	ssize_t length = fd >= 0 ? read(fd, text, sizeof text) : 0;
	if (fd >= 0)
		close(fd);
	uint32_t digits = 0;
	for (ssize_t i = 0; i < length && digits < 32; i++) {
		if (!isxdigit((unsigned char)text[i]))
			continue;
		unsigned value = text[i] <= '9' ? (unsigned)(text[i] - '0') : (unsigned)((text[i] | 0x20) - 'a') + 10;
		engine->boot[digits / 2] = (uint8_t)((unsigned)engine->boot[digits / 2] << 4 | value);
		digits++;
	}
}

/* As the encoder writes it. */
static uint64_t json_bytes(const char *text)
{
	uint64_t bytes = 0;
	for (; *text; text++)
		bytes += *text == '"' || *text == '\\' ? 2 : (unsigned char)*text < 0x20 || (unsigned char)*text >= 0x7f ? 6 : 1;
	return bytes;
}

/* Peers read it in one handshake frame, or from a store that has a limit of its own. */
static size_t document_max(const struct neap_engine *engine)
{
	return neap_backend_can(engine->backend, NEAP_BACKEND_STORES) ? engine->backend->value_max : engine->options.handshake_length_max;
}

void neap_publish_limit(struct neap_engine *engine)
{
	uint64_t name_bytes = json_bytes(engine->name);
	uint64_t fixed = FIXED_BYTES + name_bytes + NEAP_CORES_MAX * PORT_BYTES, each = BUFFER_BYTES + name_bytes, piece_bytes = 0;
	const struct neap_transport_ops *ops = engine->remote->ops;
	const char *whose = neap_backend_can(engine->backend, NEAP_BACKEND_STORES)
	                            ? "are put into a metadata store of this kind: register fewer and larger OPEN regions"
	                            : "handshake_length_max (MC_HANDSHAKE_MAX_LENGTH) allows: register fewer and larger OPEN regions, or "
	                              "raise it here and at the peers";
	if (ops->document_bytes)
		ops->document_bytes(engine->remote, &fixed, &each, &piece_bytes);
	neap_registry_limit_document(engine->registry, fixed, each, piece_bytes, document_max(engine), whose);
}

/* The document without its buffers. */
static void describe_engine(struct neap_engine *engine, struct neap_descriptor *descriptor)
{
	struct neap_engine *home = engine->home;
	*descriptor = (struct neap_descriptor){.name = engine->name, .protocol = NEAP_PROTOCOL_TCP, .tcp_proto_version = 2};
	engine->remote->ops->describe(engine->remote, descriptor);
	descriptor->tcp_data_port = home->data_port;
	if (engine->options.plain_only)
		return;
	struct neap_capability *neap = &descriptor->neap;
	neap->present = true;
	memcpy(neap->instance, engine->view.instance, sizeof neap->instance);
	memcpy(neap->boot, engine->boot, sizeof neap->boot);
	neap->level = 1;
	neap->flags = NEAP_CAP_GRANTS | NEAP_CAP_FENCE | (engine->options.checksum ? NEAP_CAP_CHECKSUM : 0);
	for (uint32_t i = 0; i < NEAP_CORES_MAX; i++) {
		uint32_t port = atomic_load(&home->ports[i]);
		if (port)
			neap->ports[neap->port_count++] = (uint16_t)port;
	}
}

static int encode(struct neap_engine *engine, struct neap_descriptor *descriptor, char **text_p, size_t *length_p)
{
	char why[NEAP_WHY_MAX];
	int error = neap_descriptor_encode(descriptor, neap_wall_us(engine->reactor), true, document_max(engine) - 1, text_p,
	                                   length_p, why, sizeof why);
	if (error)
		neap_log(engine->reactor, NEAP_LOG_ERROR, "engine", "peers cannot read our descriptor: %s", why);
	return error;
}

static int list_buffers(struct neap_engine *engine, struct neap_descriptor *descriptor)
{
	uint32_t count = neap_registry_open_regions(engine->registry);
	if (count == 0)
		return NEAP_OK;
	descriptor->buffers = neap_allocate(engine->reactor, count * sizeof *descriptor->buffers);
	if (!descriptor->buffers)
		return NEAP_ENOMEM;
	struct neap_registry_cursor cursor = {0};
	uint64_t address, length;
	while (descriptor->buffer_count < count && neap_registry_next_open(engine->registry, &cursor, &address, &length))
		descriptor->buffers[descriptor->buffer_count++] =
			(struct neap_buffer_desc){.address = address, .length = length, .name = engine->name};
	return NEAP_OK;
}

/* Over TCP: every OPEN region as it is. */
static int encode_plain(struct neap_engine *engine, struct neap_descriptor *descriptor, bool buffers, char **text_p, size_t *length_p)
{
	uint32_t allocated = buffers ? neap_registry_open_regions(engine->registry) : 0;
	int error = buffers ? list_buffers(engine, descriptor) : NEAP_OK;
	if (!error)
		error = encode(engine, descriptor, text_p, length_p);
	neap_release(engine->reactor, descriptor->buffers, allocated * sizeof *descriptor->buffers);
	return error;
}

static int encode_all(struct neap_engine *engine, struct neap_descriptor *descriptor, bool buffers, char **text_p, size_t *length_p)
{
	const struct neap_transport_ops *ops = engine->remote->ops;
	char why[NEAP_WHY_MAX] = "";
	int error = ops->publish ? ops->publish(engine->remote, descriptor, buffers, why, sizeof why) : NEAP_ENODEV;
	if (error == NEAP_ENODEV)
		return encode_plain(engine, descriptor, buffers, text_p, length_p);
	if (!error)
		error = encode(engine, descriptor, text_p, length_p);
	else
		neap_log(engine->reactor, NEAP_LOG_ERROR, "engine", "peers cannot read our descriptor: %s", why);
	ops->unpublish(engine->remote, descriptor);
	return error;
}

bool neap_publish_is_old(const struct neap_engine *engine)
{
	const struct neap_published *published = &engine->published;
	return published->registry_version != neap_registry_version(engine->registry) ||
	       published->ports_version != atomic_load(&engine->ports_version) || published->reach_version != engine->reach_version;
}

void neap_engine_reach_changed(struct neap_engine *engine)
{
	engine->reach_version++;
	neap_store_changed(engine);
}

static int rebuild(struct neap_engine *engine)
{
	struct neap_published *published = &engine->published;
	uint64_t registry_version = neap_registry_version(engine->registry), ports_version = atomic_load(&engine->ports_version);
	if (published->json && !neap_publish_is_old(engine))
		return NEAP_OK;
	struct neap_descriptor descriptor;
	describe_engine(engine, &descriptor);
	descriptor.neap.version = 1 + registry_version + ports_version + engine->reach_version;
	char *text = NULL;
	size_t length = 0;
	int error = encode_all(engine, &descriptor, true, &text, &length);
	if (error)
		return error;
	free(published->json);
	*published = (struct neap_published){.json = text, .length = length, .registry_version = registry_version,
	                                     .ports_version = ports_version, .reach_version = engine->reach_version};
	return NEAP_OK;
}

char *neap_publish_describe(void *user, size_t *length_p)
{
	struct neap_engine *engine = user;
	/* An engine that ends answers null: its memory is no longer served. */
	if (!neap_engine_is_running(engine) || rebuild(engine) != NEAP_OK)
		return NULL;
	char *copy = malloc(engine->published.length + 1);
	if (copy) {
		memcpy(copy, engine->published.json, engine->published.length);
		copy[engine->published.length] = 0;
		*length_p = engine->published.length;
	}
	return copy;
}

/* Sent along when we read another's document. Nobody needs our buffers for that, and a server that handles one call at a time is
 * grateful for a short one. */
char *neap_publish_self(void *user, size_t *length_p)
{
	struct neap_engine *engine = user;
	struct neap_descriptor descriptor;
	char *text = NULL;
	describe_engine(engine, &descriptor);
	return encode_all(engine, &descriptor, false, &text, length_p) == NEAP_OK ? text : NULL;
}

void neap_publish_free(struct neap_engine *engine)
{
	free(engine->published.json);
	engine->published.json = NULL;
}
