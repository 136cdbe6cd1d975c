/* What a request of curl is told. Names are given to it together with their addresses, or it would start threads to resolve them;
 * environment variables must not send it to a proxy; redirects are not followed. */
#include "metadata/http_driver_inside.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* --- the files of TLS -------------------------------------------------------------------------------------------------------- */

static bool keep(struct neap_http_session *session, struct kept_text *kept, const char *text)
{
	if (!text || !text[0])
		return true;
	kept->bytes = strlen(text) + 1;
	kept->text = neap_allocate(session->reactor, kept->bytes);
	if (kept->text)
		memcpy(kept->text, text, kept->bytes);
	return kept->text != NULL;
}

bool http_driver_keep_files(struct neap_http_session *session, const struct neap_http_files *files)
{
	return keep(session, &session->ca_file, files->ca) && keep(session, &session->certificate_file, files->certificate) &&
	       keep(session, &session->key_file, files->key);
}

static void forget(struct neap_http_session *session, struct kept_text *kept)
{
	if (kept->text)
		neap_release(session->reactor, kept->text, kept->bytes);
}

void http_driver_forget_files(struct neap_http_session *session)
{
	forget(session, &session->ca_file);
	forget(session, &session->certificate_file);
	forget(session, &session->key_file);
}

/* --- one request ------------------------------------------------------------------------------------------------------------- */

static curl_socket_t open_socket(void *user, curlsocktype purpose, struct curl_sockaddr *address)
{
	(void)user;
	(void)purpose;
	return socket(address->family, address->socktype | SOCK_NONBLOCK | SOCK_CLOEXEC, address->protocol);
}

static void set_headers(struct neap_http_exchange *exchange, const struct neap_http_request *request)
{
	static const char authorization[] = "Authorization: ";
	char line[sizeof authorization + NEAP_HTTP_TOKEN_MAX];
	if (request->body) {
		exchange->headers = curl_slist_append(exchange->headers, "Content-Type: application/json");
		exchange->headers = curl_slist_append(exchange->headers, "Expect:");
	}
	if (request->token) {
		(void)snprintf(line, sizeof line, "%s%s", authorization, request->token);
		exchange->headers = curl_slist_append(exchange->headers, line);
		explicit_bzero(line, sizeof line);
	}
	if (exchange->headers)
		(void)curl_easy_setopt(exchange->easy, CURLOPT_HTTPHEADER, exchange->headers);
}

static void set_files(struct neap_http_exchange *exchange)
{
	const struct neap_http_session *session = exchange->session;
	if (session->ca_file.text)
		(void)curl_easy_setopt(exchange->easy, CURLOPT_CAINFO, session->ca_file.text);
	if (session->certificate_file.text)
		(void)curl_easy_setopt(exchange->easy, CURLOPT_SSLCERT, session->certificate_file.text);
	if (session->key_file.text)
		(void)curl_easy_setopt(exchange->easy, CURLOPT_SSLKEY, session->key_file.text);
}

void http_driver_set_request(struct neap_http_exchange *exchange, const struct neap_http_request *request, http_driver_write_func *write)
{
	CURL *easy = exchange->easy;
	(void)curl_easy_setopt(easy, CURLOPT_URL, request->url);
	(void)curl_easy_setopt(easy, CURLOPT_CUSTOMREQUEST, request->method);
	if (request->body) {
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDS, request->body);
		(void)curl_easy_setopt(easy, CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)request->length);
	}
	set_headers(exchange, request);
	set_files(exchange);
	if (request->addresses)
		(void)curl_easy_setopt(easy, CURLOPT_RESOLVE, exchange->addresses = curl_slist_append(NULL, request->addresses));
	(void)curl_easy_setopt(easy, CURLOPT_PROTOCOLS_STR, "http,https");
	(void)curl_easy_setopt(easy, CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
	(void)curl_easy_setopt(easy, CURLOPT_PROXY, "");
	(void)curl_easy_setopt(easy, CURLOPT_NOSIGNAL, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_TCP_KEEPALIVE, 1L);
	(void)curl_easy_setopt(easy, CURLOPT_CONNECTTIMEOUT_MS, 1500L);
	(void)curl_easy_setopt(easy, CURLOPT_OPENSOCKETFUNCTION, open_socket);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEFUNCTION, write);
	(void)curl_easy_setopt(easy, CURLOPT_WRITEDATA, exchange);
	(void)curl_easy_setopt(easy, CURLOPT_ERRORBUFFER, exchange->detail);
	(void)curl_easy_setopt(easy, CURLOPT_PRIVATE, exchange);
}
