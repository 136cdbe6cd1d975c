/* The document under an rpc key: where the owner of a segment takes handshakes. Pure but for malloc. */
#include "metadata/directory.h"
#include "metadata/json.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int neap_rpc_document_encode(const struct neap_host_port *address, char **text_p, size_t *length_p)
{
	struct neap_json_writer writer;
	neap_json_writer_init(&writer, 2048, 96);
	neap_json_put_text(&writer, "{\"ip_or_host_name\":");
	if (!neap_json_put_string(&writer, address->host)) {
		neap_json_writer_drop(&writer);
		return NEAP_EINVAL;
	}
	neap_json_put_text(&writer, ",\"rpc_port\":");
	neap_json_put_u64(&writer, address->port);
	neap_json_put_text(&writer, "}\n");
	return neap_json_writer_take(&writer, text_p, length_p);
}

static bool read_members(struct neap_json *json, char *host, size_t host_size, size_t *host_length_p, uint64_t *port_p)
{
	if (!neap_json_enter_object(json))
		return false;
	while (neap_json_next_key(json)) {
		if (strcmp(json->key, "ip_or_host_name") == 0)
			(void)neap_json_short_string(json, host, host_size, host_length_p);
		else if (strcmp(json->key, "rpc_port") == 0)
			(void)neap_json_u64(json, 1, 65535, port_p);
		else
			(void)neap_json_skip(json);
	}
	return neap_json_finish(json);
}

int neap_rpc_document_decode(const char *text, size_t length, struct neap_host_port *address_p, char *why, size_t why_size)
{
	struct neap_json json;
	char host[NEAP_HOST_MAX] = "", reason[120];
	size_t host_length = 0;
	uint64_t port = 0;
	if (why_size)
		why[0] = '\0';
	neap_json_init(&json, text, length, why, why_size);
	if (!read_members(&json, host, sizeof host, &host_length, &port))
		return json.error;
	if (!host[0] || !port) {
		(void)snprintf(why, why_size, "the owner's address (rpc_meta) has no %s",
		               host_length ? "port, or a host that is too long" : "host");
		return NEAP_EADDRESS;
	}
	int error = neap_host_port_parse(host, (uint16_t)port, address_p, reason, sizeof reason);
	if (error) {
		(void)snprintf(why, why_size, "the owner's address (rpc_meta): %s", reason);
		return error;
	}
	address_p->port = (uint16_t)port; /* whatever stands in the host's text */
	address_p->has_port = true;
	return NEAP_OK;
}
