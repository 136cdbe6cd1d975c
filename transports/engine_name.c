/* Who we say we are and where we listen. Nobody can reach a wildcard or another machine's loopback: what is published is always the
 * address of local_name, what is bound is said, or that address, or loopback. */
#include "transports/engine_state.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define LOOPBACK "127.0.0.1"

static int parse_bind_address(struct neap_engine *engine, char *why, size_t why_size)
{
	const char *text = engine->options.bind_address;
	struct neap_host_port parsed;
	int error = neap_host_port_parse(text, 1, &parsed, why, why_size);
	if (!error)
		error = neap_sockaddr_from_numeric(parsed.host, 0, &engine->view.bind_address);
	if (error) {
		snprintf(why, why_size, "bind_address \"%s\" is not a numeric address such as 192.0.2.7 or ::1", text);
		return NEAP_EADDRESS;
	}
	engine->bind_was_said = true;
	return NEAP_OK;
}

/* Without local_name: the address we listen at, when it is one that others can use. */
static int default_host(struct neap_engine *engine)
{
	char text[NEAP_ADDRESS_TEXT_MAX], why[NEAP_WHY_MAX];
	struct neap_host_port parsed;
	if (!engine->bind_was_said || neap_sockaddr_is_wildcard(&engine->view.bind_address) ||
	    neap_sockaddr_format(&engine->view.bind_address, text, sizeof text) < 0 ||
	    neap_host_port_parse(engine->options.bind_address, 1, &parsed, why, sizeof why) != 0)
		snprintf(engine->host, sizeof engine->host, LOOPBACK);
	else
		snprintf(engine->host, sizeof engine->host, "%s", parsed.host);
	return NEAP_OK;
}

/* In a store local_name is a name and need not be an address. What peers are told is where we are: what is said, else where we listen. */
static int host_for_store(struct neap_engine *engine, char *why, size_t why_size)
{
	const struct neap_engine_options *options = &engine->options;
	char reason[NEAP_WHY_MAX];
	struct neap_host_port parsed;
	struct neap_sockaddr numeric;
	bool wildcard = engine->bind_was_said && neap_sockaddr_is_wildcard(&engine->view.bind_address);
	const char *text = options->advertised_host ? options->advertised_host : options->local_name;
	int error = text ? neap_host_port_parse(text, 1, &parsed, reason, sizeof reason) : NEAP_EADDRESS;
	if (error && options->advertised_host) {
		snprintf(why, why_size, "advertised_host (MC_TCP_BIND_ADDRESS): %s", reason);
		return error;
	}
	bool is_numeric = !error && neap_sockaddr_from_numeric(parsed.host, 0, &numeric) == NEAP_OK;
	if (!options->advertised_host && !wildcard && (engine->bind_was_said || !is_numeric))
		return default_host(engine);
	if (error)
		return default_host(engine);
	snprintf(engine->host, sizeof engine->host, "%s", parsed.host);
	return NEAP_OK;
}

static int parse_local_name(struct neap_engine *engine, char *why, size_t why_size)
{
	char reason[NEAP_WHY_MAX];
	struct neap_host_port parsed;
	if (!engine->options.local_name)
		return default_host(engine);
	int error = neap_host_port_parse(engine->options.local_name, 1, &parsed, reason, sizeof reason);
	if (error) {
		snprintf(why, why_size, "local_name: %s", reason);
		return error;
	}
	snprintf(engine->host, sizeof engine->host, "%s", parsed.host);
	return NEAP_OK;
}

int neap_name_resolve(struct neap_engine *engine, char *why, size_t why_size)
{
	int error = engine->options.bind_address ? parse_bind_address(engine, why, why_size) : NEAP_OK;
	if (!error)
		error = neap_engine_stores(engine) ? host_for_store(engine, why, why_size) : parse_local_name(engine, why, why_size);
	if (error)
		return error;
	struct neap_sockaddr named;
	bool numeric = neap_sockaddr_from_numeric(engine->host, 0, &named) == 0;
	if (numeric && neap_sockaddr_is_wildcard(&named)) {
		snprintf(why, why_size, "local_name \"%s\" cannot be published: no peer can connect to it. Give the address or name that "
		         "peers reach this machine at, and bind_address \"%s\" to listen on all interfaces", engine->host, engine->host);
		return NEAP_EADDRESS;
	}
	if (engine->bind_was_said)
		return NEAP_OK;
	if (numeric)
		engine->view.bind_address = named;
	else
		(void)neap_sockaddr_from_numeric(LOOPBACK, 0, &engine->view.bind_address);
	return NEAP_OK;
}

/* Before the transport is made nobody can ask: that takes a turn. */
static int connection_asked(void *user, uint64_t ticket, const struct neap_connection_message *request,
                            struct neap_connection_message *reply)
{
	struct neap_engine *engine = user;
	struct neap_transport *remote = engine->remote;
	return remote->ops->asked ? remote->ops->asked(remote, ticket, request, reply) : NEAP_OK;
}

/* Whoever asked may have gone, and so may the service. */
void neap_engine_connection_answer(struct neap_engine *engine, uint64_t ticket, const struct neap_connection_message *reply)
{
	if (engine->service)
		(void)neap_handshake_answer(engine->service, ticket, reply);
}

static int start_service(struct neap_engine *engine, int *system_errno_p, char *why, size_t why_size)
{
	const struct neap_engine_options *options = &engine->options;
	const struct neap_handshake_handlers handlers = {
		.describe = neap_publish_describe,
		.notify = neap_notify_received,
		.connection = connection_asked,
		.user = engine,
	};
	const struct neap_handshake_service_options service = {
		.sessions_max = options->handshake_sessions_max,
		.length_max = options->handshake_length_max,
		.request_timeout_ns = (uint64_t)options->handshake_timeout_ms * 1000000u,
		.reply_timeout_ns = (uint64_t)options->handshake_timeout_ms * 1000000u,
	};
	struct neap_sockaddr address = engine->view.bind_address;
	neap_sockaddr_set_port(&address, options->handshake_port);
	return neap_handshake_service_create(&engine->service, engine->reactor, &address, options->port_min, options->port_max,
	                                     &service, &handlers, system_errno_p, why, why_size);
}

/* The name may be that of a gateway in front of us; then we can only listen on loopback, or where we are told. */
static int fall_back(struct neap_engine *engine, char *why, size_t why_size)
{
	int system_errno = 0;
	const char *loopback = engine->view.bind_address.any.sa_family == AF_INET6 ? "::1" : LOOPBACK;
	(void)neap_sockaddr_from_numeric(loopback, 0, &engine->view.bind_address);
	neap_log(engine->reactor, NEAP_LOG_WARNING, "engine",
	         "%s is not an address of this machine: listening on %s. Set bind_address if peers reach us through another one",
	         engine->host, loopback);
	return start_service(engine, &system_errno, why, why_size);
}

static void warn_unreachable(struct neap_engine *engine)
{
	struct neap_sockaddr named;
	bool numeric = neap_sockaddr_from_numeric(engine->host, 0, &named) == 0;
	if (!numeric && !engine->bind_was_said && strcmp(engine->host, "localhost") != 0)
		neap_log(engine->reactor, NEAP_LOG_WARNING, "engine",
		         "published as %s but listening on %s only: set bind_address to serve other machines", engine->name, LOOPBACK);
}

void neap_name_address(const struct neap_engine *engine, struct neap_host_port *address_p)
{
	*address_p = (struct neap_host_port){.port = engine->handshake_port, .has_port = true, .is_v6 = strchr(engine->host, ':') != NULL};
	snprintf(address_p->host, sizeof address_p->host, "%s", engine->host);
}

int neap_name_publish(struct neap_engine *engine, char *why, size_t why_size)
{
	int system_errno = 0;
	int error = start_service(engine, &system_errno, why, why_size);
	if (error == NEAP_ESOCKET && system_errno == EADDRNOTAVAIL && !engine->bind_was_said)
		error = fall_back(engine, why, why_size);
	if (error)
		return error;
	engine->handshake_port = neap_handshake_service_port(engine->service);
	struct neap_host_port published;
	neap_name_address(engine, &published);
	bool verbatim = neap_engine_stores(engine) && engine->options.local_name;
	int length = verbatim ? snprintf(engine->name, sizeof engine->name, "%s", engine->options.local_name)
	                      : neap_host_port_format(&published, engine->name, sizeof engine->name);
	if (length <= 0 || (size_t)length >= sizeof engine->name) {
		snprintf(why, why_size, "local_name is too long");
		return NEAP_EADDRESS;
	}
	warn_unreachable(engine);
	return NEAP_OK;
}
