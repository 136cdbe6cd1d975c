/* A request to etcd's gateway taken apart, for the simulated members: whatever is in it, however deep, by its name. It shares nothing with
 * metadata/etcd_text.c but the reader of JSON. */
#ifndef SUPPORT_SIM_ETCD_REQUEST_H
#define SUPPORT_SIM_ETCD_REQUEST_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct sim_etcd_request {
	char *key, *value, *end, *password; /* heap; NULL: not said */
	size_t length; /* of the value */
	uint64_t lease, from, id, ttl;
	bool compares, keys_only, fragment, progress;
};

/* False: it cannot be read. To be dropped in any case. */
bool sim_etcd_request_read(struct sim_etcd_request *request, const char *text, size_t length);
void sim_etcd_request_drop(struct sim_etcd_request *request);
void sim_etcd_write_base64(FILE *out, const char *bytes, size_t length);

#endif
