/* The etcd back-end, version 3 of its interface through the JSON gateway that each member has (etcd 3.4 or later). Operations are etcd_call
 * machines; the token that a user and password are worth is the machine etcd_token, the one stream of changes etcd_watch. All of it is
 * pure: it reaches the members through requests over HTTP (http.h). docs/METADATA.md tells what is asked when. Owner thread only. */
#ifndef NEAP_METADATA_ETCD_H
#define NEAP_METADATA_ETCD_H

#include "metadata/http.h"

#define NEAP_ETCD_VALUE_MAX (((size_t)1536 << 10) - 4096) /* --max-request-bytes by default, and room for the key */
#define NEAP_ETCD_ENDPOINTS_MAX 16u

/* The connection string: "etcd://HOST[:PORT],..." or without the scheme; an endpoint over TLS is "https://HOST[:PORT]"; ';' separates too.
 * NEAP_EADDRESS, NEAP_EINVAL, NEAP_ELIMIT, NEAP_ENOMEM, with `why`. */
int neap_etcd_create(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                     const struct neap_http_driver *driver, char *why, size_t why_size);
int neap_etcd_open(struct neap_backend **backend_p, struct neap_reactor *reactor, const struct neap_backend_options *options,
                   char *why, size_t why_size);

#endif
