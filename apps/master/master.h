/* What neap-master is made of. */
#ifndef APPS_MASTER_MASTER_H
#define APPS_MASTER_MASTER_H

#include "apps/common/host.h"
#include "apps/common/http.h"
#include "apps/common/trace_dump.h"
#include "apps/master/metadata.h"
#include "store/directory/local.h"
#include "store/master/service.h"
#include "store/rpc/server.h"

#define MASTER_ROUTES 9u

struct master {
	struct app_host host;
	struct app_trace trace;
	struct neap_local_directory *directory;
	struct neap_master_service *service;
	struct neap_rpc_server *rpc;
	struct app_http *metrics_http, *metadata_http;
	struct master_metadata *metadata;
	struct app_http_route routes[MASTER_ROUTES];
	uint32_t lists;     /* walks over all keys that HTTP asked for */
	uint64_t questions; /* that HTTP asked the directory */
	bool stopped;       /* the RPC server has said goodbye to all */
};

/* metrics.c: GET /metrics, GET /metrics/summary */
void master_serve_metrics(void *user, struct app_http_request *request);
void master_serve_summary(void *user, struct app_http_request *request);

/* pages.c: GET /health, /get_all_keys, /get_key_count, /batch_query_keys */
void master_serve_health(void *user, struct app_http_request *request);
void master_serve_all_keys(void *user, struct app_http_request *request);
void master_serve_key_count(void *user, struct app_http_request *request);
void master_serve_query_keys(void *user, struct app_http_request *request);

#endif
