#include "apps/common/http_inside.h"
#include <errno.h>
#include <netdb.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

/* --- the loop --------------------------------------------------------------------------------------------------- */

/* libmicrohttpd has done what there was; when does it want to be called, if nothing comes? */
static void arm(struct app_http *http)
{
	MHD_UNSIGNED_LONG_LONG wait_ms;
	ev_timer_stop(http->loop, &http->timer);
	if (MHD_get_timeout(http->daemon, &wait_ms) != MHD_YES)
		return;
	ev_timer_set(&http->timer, (double)wait_ms / 1e3, 0.);
	ev_timer_start(http->loop, &http->timer);
}

void http_kick(struct app_http *http)
{
	ev_timer_stop(http->loop, &http->timer);
	ev_timer_set(&http->timer, 0., 0.);
	ev_timer_start(http->loop, &http->timer);
}

static void on_io(struct ev_loop *loop, ev_io *watcher, int events)
{
	struct app_http *http = watcher->data;
	(void)loop, (void)events;
	(void)MHD_run(http->daemon);
	arm(http);
}

static void on_timer(struct ev_loop *loop, ev_timer *watcher, int events)
{
	struct app_http *http = watcher->data;
	(void)loop, (void)events;
	(void)MHD_run(http->daemon);
	arm(http);
}

/* libmicrohttpd ends only connections that are silent. One that sends a byte a second is ended here, by its socket: it cannot be done
 * in another way from outside. */
static void on_watch(struct ev_loop *loop, ev_timer *watcher, int events)
{
	struct app_http *http = watcher->data;
	(void)events;
	for (struct http_connection *each = http->connections; each; each = each->next) {
		if (each->deadline <= 0 || each->deadline > ev_now(loop))
			continue;
		each->deadline = 0;
		shutdown(each->fd, SHUT_RDWR);
	}
}

static void connected(struct app_http *http, struct MHD_Connection *connection, void **socket_context)
{
	const union MHD_ConnectionInfo *info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
	struct http_connection *mine = calloc(1, sizeof *mine);
	if (!mine || !info) {
		free(mine);
		return; /* its silence is still limited */
	}
	mine->fd = info->connect_fd;
	mine->deadline = ev_now(http->loop) + http->options.request_seconds;
	mine->slot = &http->connections;
	mine->next = http->connections;
	if (mine->next)
		mine->next->slot = &mine->next;
	http->connections = mine;
	*socket_context = mine;
	if (!ev_is_active(&http->watch))
		ev_timer_again(http->loop, &http->watch);
}

static void on_connection(void *user, struct MHD_Connection *connection, void **socket_context,
                          enum MHD_ConnectionNotificationCode code)
{
	struct app_http *http = user;
	struct http_connection *mine = *socket_context;
	if (code == MHD_CONNECTION_NOTIFY_STARTED) {
		connected(http, connection, socket_context);
		return;
	}
	if (!mine)
		return;
	*mine->slot = mine->next;
	if (mine->next)
		mine->next->slot = mine->slot;
	free(mine);
	*socket_context = NULL;
	if (!http->connections)
		ev_timer_stop(http->loop, &http->watch);
}

/* --- opening ---------------------------------------------------------------------------------------------------- */

static int listen_at(const struct addrinfo *address, uint16_t *port_p)
{
	int fd = socket(address->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), one = 1;
	if (fd < 0)
		return -1;
	struct sockaddr_storage bound = {0};
	socklen_t size = sizeof bound;
	char service[8];
	(void)setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (address->ai_family == AF_INET6) /* as with the other listeners: what was asked for, and not IPv4 beside it */
		(void)setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &one, sizeof one);
	if (bind(fd, address->ai_addr, address->ai_addrlen) || listen(fd, 128) ||
	    getsockname(fd, (struct sockaddr *)&bound, &size) ||
	    getnameinfo((struct sockaddr *)&bound, size, NULL, 0, service, sizeof service, NI_NUMERICSERV)) {
		int error = errno;
		close(fd);
		errno = error;
		return -1;
	}
	*port_p = (uint16_t)strtoul(service, NULL, 10);
	return fd;
}

static int open_listener(struct app_http *http, char *why, size_t why_size)
{
	const struct app_http_options *options = &http->options;
	char service[8];
	struct addrinfo *address, hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_PASSIVE | AI_NUMERICSERV};
	snprintf(service, sizeof service, "%u", (unsigned)options->port);
	int error = getaddrinfo(options->address, service, &hints, &address);
	if (error) {
		snprintf(why, why_size, "the address %s means nothing here: %s", options->address, gai_strerror(error));
		return -1;
	}
	int fd = listen_at(address, &http->port);
	freeaddrinfo(address);
	if (fd < 0)
		snprintf(why, why_size, "cannot listen on %s port %u: %s", options->address, (unsigned)options->port,
		         errno == EADDRINUSE ? "another process has this port; stop it or choose another one" : strerror(errno));
	return fd;
}

static void set_defaults(struct app_http_options *options)
{
	options->address = options->address ? options->address : "127.0.0.1";
	options->connections_max = options->connections_max ? options->connections_max : 128;
	options->head_max = options->head_max ? options->head_max : 32768;
	options->bytes_max = options->bytes_max ? options->bytes_max : (size_t)256 << 20;
	options->idle_seconds = options->idle_seconds ? options->idle_seconds : 15;
	options->request_seconds = options->request_seconds ? options->request_seconds : 60;
}

static struct MHD_Daemon *start_daemon(struct app_http *http, int fd)
{
	const struct app_http_options *options = &http->options;
	return MHD_start_daemon(MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME, 0, NULL, NULL, http_on_access, http, MHD_OPTION_LISTEN_SOCKET, fd,
	                        MHD_OPTION_URI_LOG_CALLBACK, http_on_target, http, MHD_OPTION_NOTIFY_COMPLETED, http_on_completed, http,
	                        MHD_OPTION_NOTIFY_CONNECTION, on_connection, http, MHD_OPTION_CONNECTION_LIMIT,
	                        (unsigned)options->connections_max, MHD_OPTION_CONNECTION_MEMORY_LIMIT, options->head_max,
	                        MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)options->idle_seconds, MHD_OPTION_END);
}

int app_http_open(struct app_http **http_p, struct ev_loop *loop, const struct app_http_options *options, char *why, size_t why_size)
{
	struct app_http *http = calloc(1, sizeof *http);
	*http_p = NULL;
	if (!http) {
		snprintf(why, why_size, "out of memory");
		return -1;
	}
	http->loop = loop;
	http->options = *options;
	set_defaults(&http->options);
	int fd = open_listener(http, why, why_size);
	if (fd < 0) {
		free(http);
		return -1;
	}
	http->daemon = start_daemon(http, fd);
	const union MHD_DaemonInfo *info = http->daemon ? MHD_get_daemon_info(http->daemon, MHD_DAEMON_INFO_EPOLL_FD) : NULL;
	if (!info) {
		snprintf(why, why_size, "the HTTP server cannot start: no memory or descriptors; see `ulimit -n`");
		if (http->daemon)
			MHD_stop_daemon(http->daemon);
		else
			close(fd);
		free(http);
		return -1;
	}
	ev_io_init(&http->io, on_io, info->epoll_fd, EV_READ);
	ev_timer_init(&http->timer, on_timer, 0., 0.);
	ev_timer_init(&http->watch, on_watch, 0., 1.);
	http->io.data = http->timer.data = http->watch.data = http;
	ev_io_start(loop, &http->io);
	arm(http);
	*http_p = http;
	return 0;
}

uint16_t app_http_port(const struct app_http *http)
{
	return http->port;
}

void app_http_close(struct app_http *http)
{
	if (!http)
		return;
	while (http->waiting)
		http_cancel(http->waiting);
	(void)MHD_run(http->daemon); /* what was answered goes out, as far as the sockets take it */
	MHD_stop_daemon(http->daemon);
	ev_io_stop(http->loop, &http->io);
	ev_timer_stop(http->loop, &http->timer);
	ev_timer_stop(http->loop, &http->watch);
	free(http);
}
