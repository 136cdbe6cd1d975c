/* The HTTP driver from inside: shared by http_driver.c and http_driver_request.c, by nobody else. */
#ifndef NEAP_METADATA_HTTP_DRIVER_INSIDE_H
#define NEAP_METADATA_HTTP_DRIVER_INSIDE_H

#include "metadata/http.h"
#include <curl/curl.h>

struct neap_http_session {
	struct neap_reactor *reactor;
	struct neap_reap reap;
	struct neap_timer timer;
	CURLM *multi; /* NULL: closed */
	struct kept_text {
		char *text; /* from neap_allocate; NULL: none */
		size_t bytes;
	} ca_file, certificate_file, key_file;
	struct neap_http_exchange *streams; /* that have bytes to tell of */
};

struct neap_http_exchange {
	struct neap_http_session *session;
	CURL *easy;
	struct curl_slist *headers, *addresses;
	const struct neap_http_events *events;
	void *user;
	char *answer; /* from neap_allocate */
	size_t length, capacity, answer_max;
	bool streams, too_long;
	struct neap_http_exchange *next, **slot; /* streams: among those that have bytes to tell of; slot NULL: has none */
	char detail[CURL_ERROR_SIZE];
};

/* Texts are copied. False: no memory. */
bool http_driver_keep_files(struct neap_http_session *session, const struct neap_http_files *files);
void http_driver_forget_files(struct neap_http_session *session);

typedef size_t http_driver_write_func(char *bytes, size_t one, size_t count, void *user);
void http_driver_set_request(struct neap_http_exchange *exchange, const struct neap_http_request *request, http_driver_write_func *write);

#endif
