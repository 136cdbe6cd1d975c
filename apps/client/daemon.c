#include "apps/client/daemon.h"
#include "apps/client/options.h"
#include "apps/client/service.h"
#include "apps/client/web.h"
#include "apps/common/host.h"
#include "apps/common/memory.h"
#include "apps/common/stop_at.h"
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

struct daemon {
	struct client_options options;
	struct app_host host;
	struct neap_store *store;
	struct client_service *service;
	struct client_web *web;
	void *memory;
	uint64_t bytes, began_ns;
	bool ready, idle, drained, store_closed, service_stopped;
	int ready_error, drain_error;
	char ready_why[512];
};

/* --- start --------------------------------------------------------------------------------------------------------------------- */

static void on_ready(void *user, int error, const char *why)
{
	struct daemon *daemon = user;
	daemon->ready_error = error;
	snprintf(daemon->ready_why, sizeof daemon->ready_why, "%s", why ? why : "");
	daemon->ready = true;
}

/* GRANT_ONLY: owners reach it while a put or get of ours is under way, and nobody else. */
static bool open_memory(struct daemon *daemon)
{
	char why[512];
	daemon->bytes = (daemon->options.buffer_bytes + CLIENT_CHUNK_BYTES - 1) / CLIENT_CHUNK_BYTES * CLIENT_CHUNK_BYTES;
	daemon->memory = app_memory_map(daemon->bytes, false, why, sizeof why);
	struct neap_memory memory = {.address = daemon->memory, .length = daemon->bytes, .access = NEAP_GRANT_ONLY};
	if (!daemon->memory || neap_memory_register(daemon->host.engine, &memory, 1, NULL, why, sizeof why)) {
		app_error(&client_program, "no memory for local processes (--local_buffer_size): %s", why);
		return false;
	}
	return true;
}

static bool open_store(struct daemon *daemon)
{
	char why[600];
	struct neap_store_options *options = &daemon->options.store;
	options->ready = on_ready;
	options->user = daemon;
	if (neap_store_create(&daemon->store, daemon->host.engine, options, why, sizeof why)) {
		static const char port[] = "rpc_port: "; /* as the library calls it */
		if (!strncmp(why, port, sizeof port - 1))
			app_error(&client_program, "--client_rpc_port=%llu: %s", (unsigned long long)options->rpc_port, why + sizeof port - 1);
		else
			app_error(&client_program, "%s", why);
		return false;
	}
	return true;
}

static bool open_services(struct daemon *daemon)
{
	char why[600];
	const struct client_options *options = &daemon->options;
	struct client_service_options service = {
		.port = (uint16_t)options->port, .memory = daemon->memory, .bytes = daemon->bytes, .now_ns = daemon->began_ns};
	if (client_service_create(&daemon->service, daemon->store, &service, why, sizeof why)) {
		app_error(&client_program, "%s", why);
		return false;
	}
	if (options->http && client_web_open(&daemon->web, daemon->host.loop, daemon->store, daemon->service, (uint16_t)options->http_port, why,
	                                     sizeof why)) {
		app_error(&client_program, "no HTTP at --http_port=%u (a neap-master serves its own at 9003): %s", (unsigned)options->http_port,
		          why);
		return false;
	}
	return true;
}

static bool announce(const struct daemon *daemon)
{
	if (daemon->ready_error)
		app_error(&client_program, "warning: %s is not reached yet, and is tried on: %s", daemon->options.master, daemon->ready_why);
	printf("neap-client ready port %u client_rpc_port %u http_port %u segment %s health %s\n", client_service_port(daemon->service),
	       neap_store_rpc_port(daemon->store), daemon->web ? client_web_port(daemon->web) : 0u, neap_engine_name(daemon->host.engine),
	       neap_store_health_name(neap_store_health(daemon->store)));
	if (!fflush(stdout))
		return true;
	app_error(&client_program, "cannot write to standard output; nobody would learn the ports");
	return false;
}

/* --- end ------------------------------------------------------------------------------------------------------------------------- */

static void set(void *user)
{
	*(bool *)user = true;
}

static void on_drained(void *user, int error)
{
	struct daemon *daemon = user;
	daemon->drain_error = error;
	daemon->drained = true;
}

static void say_leaving(const struct daemon *daemon)
{
	struct neap_store_numbers numbers;
	neap_store_numbers(daemon->store, &numbers);
	printf("neap-client leaving: %" PRIu64 " values of %" PRIu64 " bytes are held here and go with it\n", numbers.keys, numbers.bytes);
	(void)fflush(stdout);
}

/* Local processes first, as long as the others still answer; then what peers have begun. */
static int drain(struct daemon *daemon)
{
	double seconds = (double)daemon->options.drain_ms * 1e-3;
	uint64_t began_ns = app_now_ns();
	bool in_time = true;
	client_service_drain(daemon->service, set, &daemon->idle);
	if (seconds > 0)
		(void)app_host_wait(&daemon->host, &daemon->idle, seconds / 2);
	if (daemon->host.interrupted)
		return APP_FAILED;
	if (!neap_store_drain(daemon->store, daemon->options.drain_ms / 2, on_drained, daemon))
		in_time &= app_host_wait(&daemon->host, &daemon->drained, seconds / 2 + 2) && !daemon->drain_error;
	double left = seconds - (double)(app_now_ns() - began_ns) * 1e-9;
	if (!daemon->idle && !daemon->host.interrupted && left > 0) /* what peers had begun took less than their half */
		(void)app_host_wait(&daemon->host, &daemon->idle, left);
	in_time &= daemon->idle || seconds <= 0;
	if (!in_time && !daemon->host.interrupted)
		app_error(&client_program, "what others had begun was not through after --drain_timeout_ms=%u, and is given up",
		          (unsigned)daemon->options.drain_ms);
	return in_time ? APP_OK : APP_FAILED;
}

/* False: a second signal came, and the process is to end as it is. */
static bool close_all(struct daemon *daemon)
{
	client_web_close(daemon->web);
	if (daemon->service) {
		client_service_stop(daemon->service, set, &daemon->service_stopped);
		app_host_wait(&daemon->host, &daemon->service_stopped, 2);
	}
	if (daemon->store && !neap_store_close(daemon->store, set, &daemon->store_closed))
		app_host_wait(&daemon->host, &daemon->store_closed, 10);
	if (daemon->host.interrupted)
		return false;
	client_web_free(daemon->web);
	if (daemon->service)
		client_service_destroy(daemon->service);
	app_host_close(&daemon->host);
	app_memory_unmap(daemon->memory, daemon->bytes);
	return true;
}

static int serve(struct daemon *daemon)
{
	if (!app_host_wait(&daemon->host, &daemon->ready, 0))
		return APP_OK; /* a signal came before */
	if (!announce(daemon))
		return APP_START;
	bool never = false;
	app_host_wait(&daemon->host, &never, 0);
	daemon->host.interrupted = false;
	say_leaving(daemon);
	return drain(daemon);
}

int client_daemon(int argc, char **argv)
{
	static struct daemon daemon; /* outlives a wait that a signal ends */
	char why[512];
	int result = client_options_parse(&daemon.options, argc, argv);
	daemon.began_ns = app_now_ns();
	if (result < 0 && app_host_open(&daemon.host, &(struct app_host_options){.engine = &daemon.options.engine}, why, sizeof why)) {
		app_error(&client_program, "%s", why);
		result = APP_START;
	}
	if (result >= 0) {
		client_options_release(&daemon.options);
		return result;
	}
	result = open_memory(&daemon) && open_store(&daemon) && open_services(&daemon) ? app_stop_at(&client_program, &daemon.host) : APP_START;
	if (result < 0)
		result = serve(&daemon);
	if (daemon.host.interrupted) /* a second signal: now */
		return result;
	if (!close_all(&daemon))
		return APP_FAILED;
	client_options_release(&daemon.options);
	return result;
}
