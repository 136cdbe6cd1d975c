/* The HTTP driver over curl's multi interface, which http_driver_request.c and this file alone know. It moves what happens to the machine
 * http_call and decides nothing.
 *
 * What has to be known of curl: it must not be called from inside its own timer callback, so a timeout of 0 is a timer of the wheel that is
 * due now; a failing socket callback leaves a transfer in limbo, so its errors end in the call's deadline; a request cannot be ended from
 * inside the callback that brings its bytes, so streamed bytes are told after curl has returned. The pair of sockets that each of its multi
 * handles makes for itself is the only descriptor here that a program started with exec inherits. */
#include "metadata/http_driver_inside.h"
#include <string.h>

#define CONNECTIONS_MAX 8L /* at once, and all are kept: a burst of requests makes no new ones. Further requests wait inside of curl */

struct http_socket {
	struct neap_watch watch;
	struct neap_http_session *session;
};

static void leave_streams(struct neap_http_exchange *exchange)
{
	if (!exchange->slot)
		return;
	*exchange->slot = exchange->next;
	if (exchange->next)
		exchange->next->slot = exchange->slot;
	exchange->slot = NULL;
}

static void join_streams(struct neap_http_exchange *exchange)
{
	struct neap_http_exchange **list = &exchange->session->streams;
	if (exchange->slot)
		return;
	exchange->next = *list;
	exchange->slot = list;
	if (*list)
		(*list)->slot = &exchange->next;
	*list = exchange;
}

static void end_exchange(struct neap_http_exchange *exchange)
{
	struct neap_reactor *reactor = exchange->session->reactor;
	leave_streams(exchange);
	if (exchange->easy) {
		(void)curl_multi_remove_handle(exchange->session->multi, exchange->easy);
		curl_easy_cleanup(exchange->easy);
	}
	curl_slist_free_all(exchange->headers);
	curl_slist_free_all(exchange->addresses);
	if (exchange->answer)
		neap_release(reactor, exchange->answer, exchange->capacity);
	neap_release(reactor, exchange, sizeof *exchange);
}

/* Grows with what has come, not with what is announced. */
static size_t take_bytes(char *bytes, size_t one, size_t count, void *user)
{
	struct neap_http_exchange *exchange = user;
	size_t length = one * count, needed = exchange->length + length;
	exchange->too_long |= needed > exchange->answer_max;
	if (exchange->too_long)
		return 0;
	if (needed > exchange->capacity) {
		size_t capacity = exchange->capacity ? 2 * exchange->capacity : 4096u;
		capacity = capacity < needed ? needed : capacity;
		char *larger = neap_allocate(exchange->session->reactor, capacity);
		if (!larger)
			return 0;
		if (exchange->length)
			memcpy(larger, exchange->answer, exchange->length);
		if (exchange->answer)
			neap_release(exchange->session->reactor, exchange->answer, exchange->capacity);
		exchange->answer = larger;
		exchange->capacity = capacity;
	}
	if (length)
		memcpy(exchange->answer + exchange->length, bytes, length);
	exchange->length = needed;
	if (exchange->streams)
		join_streams(exchange);
	return length;
}

static int error_of(const struct neap_http_exchange *exchange, CURLcode code)
{
	if (code == CURLE_WRITE_ERROR)
		return exchange->too_long ? NEAP_ELIMIT : NEAP_ENOMEM;
	if (code == CURLE_COULDNT_CONNECT || code == CURLE_OPERATION_TIMEDOUT)
		return NEAP_ESOCKET;
	if (code == CURLE_RECV_ERROR && strstr(exchange->detail, "alert")) /* TLS 1.3: what the server thinks of our certificate comes last */
		return NEAP_EREJECTED;
	if (code == CURLE_SSL_CONNECT_ERROR || code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE)
		return NEAP_EREJECTED;
	return code == CURLE_OUT_OF_MEMORY ? NEAP_ENOMEM : NEAP_EPEER;
}

static void finish(struct neap_http_exchange *exchange, CURLcode code)
{
	long status = 0;
	(void)curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
	struct neap_http_exchange kept = *exchange;
	struct neap_reactor *reactor = exchange->session->reactor;
	exchange->answer = NULL;
	end_exchange(exchange);
	const char *why = kept.too_long ? "the answer is longer than any value" : kept.detail[0] ? kept.detail : curl_easy_strerror(code);
	if (code == CURLE_OK)
		kept.events->answered(kept.user, status, kept.answer, kept.length);
	else
		kept.events->failed(kept.user, error_of(&kept, code), why);
	if (kept.answer)
		neap_release(reactor, kept.answer, kept.capacity);
}

/* A callee may cancel exchanges and close the session. */
static void tell_streams(struct neap_http_session *session)
{
	while (session->streams) {
		struct neap_http_exchange *exchange = session->streams;
		char *bytes = exchange->answer;
		size_t length = exchange->length, capacity = exchange->capacity;
		long status = 0;
		(void)curl_easy_getinfo(exchange->easy, CURLINFO_RESPONSE_CODE, &status);
		leave_streams(exchange);
		exchange->answer = NULL;
		exchange->length = exchange->capacity = 0;
		exchange->events->received(exchange->user, status, bytes, length);
		neap_release(session->reactor, bytes, capacity);
	}
}

/* Here too. */
static void finish_done(struct neap_http_session *session)
{
	int left;
	tell_streams(session);
	for (CURLMsg *message; session->multi && (message = curl_multi_info_read(session->multi, &left)) != NULL;) {
		char *exchange = NULL;
		CURLcode code = message->data.result;
		if (message->msg != CURLMSG_DONE)
			continue;
		(void)curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, &exchange);
		finish((struct neap_http_exchange *)(void *)exchange, code);
	}
}

static void ready(struct neap_watch *watch, unsigned ready)
{
	struct neap_http_session *session = ((struct http_socket *)(void *)((char *)watch - offsetof(struct http_socket, watch)))->session;
	int running, what = (ready & NEAP_READABLE ? CURL_CSELECT_IN : 0) | (ready & NEAP_WRITABLE ? CURL_CSELECT_OUT : 0) |
	                    (ready & (NEAP_HANGUP | NEAP_ERROR_READY) ? CURL_CSELECT_ERR | CURL_CSELECT_IN : 0);
	(void)curl_multi_socket_action(session->multi, watch->fd, what, &running);
	finish_done(session); /* the socket may be gone by now */
}

static int socket_wanted(CURL *easy, curl_socket_t fd, int what, void *user, void *known)
{
	struct neap_http_session *session = user;
	struct http_socket *slot = known;
	unsigned wanted = (what & CURL_POLL_IN ? (unsigned)NEAP_READABLE : 0) | (what & CURL_POLL_OUT ? (unsigned)NEAP_WRITABLE : 0);
	(void)easy;
	if (what == CURL_POLL_REMOVE && slot) {
		neap_watch_stop(session->reactor, &slot->watch);
		neap_release(session->reactor, slot, sizeof *slot);
		(void)curl_multi_assign(session->multi, fd, NULL);
	} else if (slot) {
		(void)neap_watch_want(session->reactor, &slot->watch, wanted);
	}
	if (slot || what == CURL_POLL_REMOVE)
		return 0;
	slot = neap_allocate(session->reactor, sizeof *slot);
	if (slot && neap_watch_start(session->reactor, &slot->watch, fd, wanted, ready)) {
		neap_release(session->reactor, slot, sizeof *slot);
		slot = NULL;
	}
	if (!slot)
		return 0; /* its call runs into its deadline */
	slot->session = session;
	(void)curl_multi_assign(session->multi, fd, slot);
	return 0;
}

static void timer_fired(struct neap_timer *timer, void *user)
{
	struct neap_http_session *session = user;
	int running;
	(void)timer;
	(void)curl_multi_socket_action(session->multi, CURL_SOCKET_TIMEOUT, 0, &running);
	finish_done(session);
}

static int timer_wanted(CURLM *multi, long ms, void *user)
{
	struct neap_http_session *session = user;
	(void)multi;
	if (ms < 0)
		neap_timer_cancel(session->reactor, &session->timer);
	else
		(void)neap_timer_start(session->reactor, &session->timer, neap_now(session->reactor) + (uint64_t)ms * 1000000, timer_fired,
		                       session);
	return 0;
}

static void reap_session(struct neap_reap *reap)
{
	struct neap_http_session *session = (struct neap_http_session *)(void *)((char *)reap - offsetof(struct neap_http_session, reap));
	http_driver_forget_files(session);
	neap_release(session->reactor, session, sizeof *session);
}

static void do_close(struct neap_http_session *session)
{
	if (session->multi) {
		(void)curl_multi_cleanup(session->multi);
		curl_global_cleanup();
	}
	session->multi = NULL;
	neap_timer_cancel(session->reactor, &session->timer);
	session->reap.reap = reap_session;
	neap_reap_later(session->reactor, &session->reap);
}

static int do_open(const struct neap_http_driver *driver, struct neap_reactor *reactor, const struct neap_http_files *files,
                   struct neap_http_session **session_p)
{
	struct neap_http_session *session = neap_allocate(reactor, sizeof *session);
	(void)driver;
	*session_p = NULL;
	if (!session)
		return NEAP_ENOMEM;
	session->reactor = reactor;
	bool usable = !neap_reactor_simulated(reactor) && http_driver_keep_files(session, files) &&
	              curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
	session->multi = usable ? curl_multi_init() : NULL;
	if (!session->multi) {
		do_close(session);
		return usable ? NEAP_ENOMEM : NEAP_ENOTSUP;
	}
	(void)curl_multi_setopt(session->multi, CURLMOPT_SOCKETFUNCTION, socket_wanted);
	(void)curl_multi_setopt(session->multi, CURLMOPT_SOCKETDATA, session);
	(void)curl_multi_setopt(session->multi, CURLMOPT_TIMERFUNCTION, timer_wanted);
	(void)curl_multi_setopt(session->multi, CURLMOPT_TIMERDATA, session);
	(void)curl_multi_setopt(session->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, CONNECTIONS_MAX);
	(void)curl_multi_setopt(session->multi, CURLMOPT_MAXCONNECTS, CONNECTIONS_MAX);
	*session_p = session;
	return NEAP_OK;
}

static struct neap_http_exchange *do_begin(struct neap_http_session *session, const struct neap_http_request *request,
                                           const struct neap_http_events *events, void *user)
{
	struct neap_http_exchange *exchange = neap_allocate(session->reactor, sizeof *exchange);
	if (!exchange)
		return NULL;
	exchange->session = session;
	exchange->events = events;
	exchange->user = user;
	exchange->answer_max = request->answer_max;
	exchange->streams = request->streams;
	exchange->easy = curl_easy_init();
	if (exchange->easy)
		http_driver_set_request(exchange, request, take_bytes);
	if (exchange->easy && curl_multi_add_handle(session->multi, exchange->easy) == CURLM_OK)
		return exchange;
	end_exchange(exchange);
	return NULL;
}

static const struct neap_http_driver driver_of_curl = {
	.open = do_open, .begin = do_begin, .cancel = end_exchange, .close = do_close};

const struct neap_http_driver *neap_http_curl(void)
{
	return &driver_of_curl;
}
