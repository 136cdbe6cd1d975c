/* Names of things in metadata stores: keys, P2P segment names. Pure. */
#include "metadata/directory.h"
#include <stdio.h>
#include <string.h>

/* "mooncake/", then the cluster id with a slash behind it. */
static int put_key(const char *cluster, const char *room, const char *name, char *key, size_t size)
{
	size_t length = cluster ? strlen(cluster) : 0;
	const char *slash = length > 0 && cluster[length - 1] != '/' ? "/" : "";
	if (!name[0])
		return NEAP_EINVAL;
	int n = snprintf(key, size, "mooncake/%s%s%s%s", cluster ? cluster : "", slash, room, name);
	return n >= 0 && (size_t)n < size ? NEAP_OK : NEAP_ELIMIT;
}

int neap_directory_prefix(const char *cluster, char *prefix, size_t size)
{
	int error = put_key(cluster, "", "x", prefix, size);
	if (!error)
		prefix[strlen(prefix) - 1] = '\0';
	return error;
}

int neap_directory_segment_key(const char *cluster, const char *name, char *key, size_t size)
{
	return put_key(cluster, strchr(name, '/') ? "" : "ram/", name, key, size);
}

int neap_directory_rpc_key(const char *cluster, const char *name, char *key, size_t size)
{
	return put_key(cluster, "rpc_meta/", name, key, size);
}

int neap_p2p_name(const char *local_name, uint16_t port, char *name, size_t size, char *why, size_t why_size)
{
	struct neap_host_port local;
	int error = neap_host_port_parse(local_name, port, &local, why, why_size);
	if (error)
		return error;
	local.port = port;
	local.has_port = true;
	int length = neap_host_port_format(&local, name, size);
	if (length < 0)
		(void)snprintf(why, why_size, "the host of '%.64s' is too long for a segment name", local_name);
	return length < 0 ? length : NEAP_OK;
}
