#include "tests/support/script_peer.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define IN_MAX ((size_t)24 << 20)

static void die(const char *what)
{
	perror(what);
	abort();
}

static int listen_at(uint16_t *port_p)
{
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(*port_p), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
	if (fd < 0)
		die("socket");
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
	if (bind(fd, (struct sockaddr *)&address, sizeof address) || listen(fd, 64) ||
	    getsockname(fd, (struct sockaddr *)&address, &length))
		die("listen");
	*port_p = ntohs(address.sin_port);
	return fd;
}

void script_open(struct script_peer *peer, enum script_speech speech, void *memory, size_t memory_bytes)
{
	memset(peer, 0, sizeof *peer);
	peer->speech = speech;
	peer->memory = memory;
	peer->memory_bytes = memory_bytes;
	peer->word = NEAP_WORD_REJECTED;
	peer->fences = true;
	peer->split_at = SIZE_MAX;
	memset(peer->instance, 0x5c, sizeof peer->instance);
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		peer->connections[i].fd = peer->handshakes[i].fd = -1;
	peer->handshake_fd = listen_at(&peer->handshake_port);
	peer->data_fd = listen_at(&peer->data_port);
	snprintf(peer->name, sizeof peer->name, "127.0.0.1:%u", peer->handshake_port);
}

/* --- connections ---------------------------------------------------------------------------------------------------------- */

static void end_connection(struct script_connection *connection, bool reset)
{
	if (connection->fd < 0)
		return;
	if (reset) {
		struct linger linger = {.l_onoff = 1};
		setsockopt(connection->fd, SOL_SOCKET, SO_LINGER, &linger, sizeof linger);
	}
	close(connection->fd);
	free(connection->in);
	free(connection->out);
	memset(connection, 0, sizeof *connection);
	connection->fd = -1;
}

static void put(struct script_connection *connection, const void *bytes, size_t length)
{
	if (connection->out_have + length > connection->out_size) {
		connection->out_size = (connection->out_have + length) * 2;
		connection->out = realloc(connection->out, connection->out_size);
		if (!connection->out)
			die("realloc");
	}
	memcpy(connection->out + connection->out_have, bytes, length);
	connection->out_have += length;
}

static void accept_all(int listener, struct script_connection *connections, uint32_t *serial)
{
	for (int i = 0; i < SCRIPT_CONNECTIONS && listener >= 0; i++) {
		if (connections[i].fd >= 0)
			continue;
		int one = 1, fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
		if (fd < 0)
			return;
		setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
		memset(&connections[i], 0, sizeof connections[i]);
		connections[i].fd = fd;
		connections[i].serial = (*serial)++;
	}
}

static void take_in(struct script_peer *peer, struct script_connection *connection, uint64_t limit)
{
	while (connection->fd >= 0 && !connection->stuck) {
		size_t want = 65536;
		if (limit && connection->total_in + want > limit)
			want = (size_t)(limit - connection->total_in);
		if (want == 0)
			return;
		if (connection->in_have + want > connection->in_size) {
			connection->in_size = connection->in_have + want > 4096 ? (connection->in_have + want) * 2 : 4096 + want;
			connection->in = realloc(connection->in, connection->in_size);
			if (!connection->in || connection->in_size > IN_MAX * 4)
				die("realloc");
		}
		ssize_t got = recv(connection->fd, connection->in + connection->in_have, want, 0);
		if (got > 0) {
			connection->in_have += (size_t)got;
			connection->total_in += (uint64_t)got;
			continue;
		}
		if (got == 0)
			connection->ended = true;
		else if (errno != EAGAIN)
			end_connection(connection, false);
		return;
	}
	(void)peer;
}

static void give_out(struct script_peer *peer, struct script_connection *connection)
{
	while (connection->fd >= 0 && connection->out_sent < connection->out_have) {
		size_t length = connection->out_have - connection->out_sent;
		if (peer->piece && length > peer->piece)
			length = peer->piece;
		if (peer->split_at != SIZE_MAX) {
			if (connection->out_sent >= peer->split_at) {
				peer->stopped_once = true;
				return;
			}
			if (connection->out_sent + length > peer->split_at)
				length = peer->split_at - connection->out_sent;
		}
		ssize_t sent = send(connection->fd, connection->out + connection->out_sent, length, MSG_NOSIGNAL);
		if (sent < 0 && errno == EAGAIN)
			return;
		if (sent < 0) {
			end_connection(connection, false);
			return;
		}
		connection->out_sent += (size_t)sent;
		if (peer->piece)
			break;
	}
	if (connection->fd < 0 || connection->out_sent < connection->out_have)
		return;
	if (connection->reset_when_sent || connection->close_when_sent)
		end_connection(connection, connection->reset_when_sent);
}

/* --- requests ------------------------------------------------------------------------------------------------------------- */

static unsigned char *at(const struct script_request *request)
{
	return (unsigned char *)(uintptr_t)request->address;
}

static void put_payload(struct script_peer *peer, struct script_connection *connection, const struct script_request *request, bool right)
{
	put(connection, at(request), request->length);
	if (!peer->checksum || connection->plain)
		return;
	unsigned char trailer[NEAP_TRAILER_BYTES] = {0};
	neap_put32(trailer, neap_crc32c(0, at(request), request->length) ^ (right ? 0 : 1));
	put(connection, trailer, sizeof trailer);
}

static void put_status(struct script_connection *connection, uint32_t code)
{
	uint64_t status = connection->plain ? neap_plain_status(code) : neap_word_status(code);
	put(connection, &status, sizeof status);
}

static void answer(struct script_peer *peer, struct script_connection *connection, const struct script_request *request, bool right)
{
	peer->answered++;
	if (request->acknowledged)
		put_status(connection, 0);
	if (request->opcode == NEAP_READ)
		put_payload(peer, connection, request, right);
}

static void garbage(struct script_connection *connection)
{
	put(connection, "\1\2\3\4\5\6\7\10", 8);
}

static void act(struct script_peer *peer, struct script_connection *connection, const struct script_request *request)
{
	switch (peer->decide ? peer->decide(peer, request) : peer->act) {
	case SCRIPT_ANSWER:
		answer(peer, connection, request, true);
		break;
	case SCRIPT_ANSWER_AND_CLOSE:
		answer(peer, connection, request, true);
		connection->close_when_sent = connection->stuck = true;
		break;
	case SCRIPT_ANSWER_AND_RESET:
		answer(peer, connection, request, true);
		connection->reset_when_sent = connection->stuck = true;
		break;
	case SCRIPT_CLOSE:
		connection->close_when_sent = connection->stuck = true;
		break;
	case SCRIPT_RESET:
		connection->reset_when_sent = connection->stuck = true;
		break;
	case SCRIPT_REFUSE:
		if (request->acknowledged)
			put_status(connection, connection->plain ? NEAP_PLAIN_REJECTED : peer->word);
		if (connection->plain)
			connection->close_when_sent = connection->stuck = true;
		break;
	case SCRIPT_REFUSE_OPEN:
		put_status(connection, connection->plain ? NEAP_PLAIN_REJECTED : peer->word);
		break;
	case SCRIPT_BAD_MAGIC:
		garbage(connection);
		break;
	case SCRIPT_BAD_AND_CLOSE:
		garbage(connection);
		connection->close_when_sent = connection->stuck = true;
		break;
	case SCRIPT_BAD_TRAILER:
		answer(peer, connection, request, false);
		break;
	case SCRIPT_HOLD:
		peer->held[peer->held_count++] = (struct script_held){.request = *request, .connection = connection};
		break;
	case SCRIPT_NEVER:
		break;
	case SCRIPT_HALF: {
		struct script_request half = *request;
		half.length /= 2;
		answer(peer, connection, &half, true);
		connection->stuck = true;
		break;
	}
	}
}

static void whole_request(struct script_peer *peer, struct script_connection *connection, struct script_request *request,
                          const unsigned char *payload)
{
	request->connection = connection->serial;
	request->nth = connection->requests++;
	if (peer->requests < SCRIPT_HISTORY)
		peer->history[peer->requests] = *request;
	peer->requests++;
	bool inside = request->address >= (uintptr_t)peer->memory &&
	              request->address - (uintptr_t)peer->memory + request->length <= peer->memory_bytes;
	if (request->opcode == NEAP_WRITE && inside)
		memcpy(at(request), payload, request->length);
	act(peer, connection, request);
}

static bool take_plain(struct script_peer *peer, struct script_connection *connection)
{
	const unsigned char *bytes = connection->in + connection->in_used;
	size_t have = connection->in_have - connection->in_used;
	if (have < NEAP_PLAIN_HEADER_BYTES)
		return false;
	struct neap_plain_header header = neap_plain_header_get(bytes);
	if (neap_is_hello(&header)) { /* a request of size 0, to a plain server */
		uint64_t status = neap_plain_status(NEAP_PLAIN_REJECTED);
		if (peer->hello == SCRIPT_HELLO_PLAIN)
			put(connection, &status, sizeof status);
		connection->close_when_sent = connection->stuck = true;
		return false;
	}
	struct script_request request = {.address = header.address,
	                                 .length = header.size,
	                                 .opcode = header.opcode & 0x7f,
	                                 .acknowledged = header.opcode & NEAP_PLAIN_ACKNOWLEDGED};
	if (request.opcode == NEAP_WRITE && peer->early) {
		put_status(connection, peer->early == 1 ? NEAP_PLAIN_REJECTED : NEAP_PLAIN_OK);
		connection->stuck = true;
		return false;
	}
	size_t whole = NEAP_PLAIN_HEADER_BYTES + (request.opcode == NEAP_WRITE ? request.length : 0);
	if (have < whole)
		return false;
	connection->in_used += whole;
	whole_request(peer, connection, &request, bytes + NEAP_PLAIN_HEADER_BYTES);
	return connection->fd >= 0;
}

static bool take_frame_head(struct script_connection *connection)
{
	const unsigned char *bytes = connection->in + connection->in_used;
	size_t have = connection->in_have - connection->in_used;
	struct neap_frame_head head;
	if (have < NEAP_FRAME_HEAD_BYTES)
		return false;
	if (neap_frame_head_get(bytes, &head))
		die("not a frame");
	size_t whole = NEAP_FRAME_HEAD_BYTES + head.count * NEAP_ENTRY_BYTES + head.grant_count * NEAP_TOKEN_BYTES;
	if (have < whole)
		return false;
	for (uint32_t i = 0; i < head.count; i++)
		neap_entry_get(bytes + NEAP_FRAME_HEAD_BYTES + i * NEAP_ENTRY_BYTES, &connection->frame[i]);
	connection->frame_count = head.count;
	connection->frame_at = 0;
	connection->in_used += whole;
	return true;
}

static bool take_neap(struct script_peer *peer, struct script_connection *connection)
{
	if (connection->frame_at == connection->frame_count && !take_frame_head(connection))
		return false;
	const struct neap_entry *entry = &connection->frame[connection->frame_at];
	const unsigned char *payload = connection->in + connection->in_used;
	size_t whole = entry->opcode == NEAP_WRITE ? entry->length + (peer->checksum ? NEAP_TRAILER_BYTES : 0) : 0;
	if (connection->in_have - connection->in_used < whole)
		return false;
	if (whole && peer->checksum && neap_get32(payload + entry->length) != neap_crc32c(0, payload, entry->length))
		die("a checksum of the library is wrong");
	connection->in_used += whole;
	connection->frame_at++;
	struct script_request request = {
		.address = entry->address, .length = entry->length, .opcode = entry->opcode, .acknowledged = true, .grant = entry->grant};
	whole_request(peer, connection, &request, payload);
	return connection->fd >= 0;
}

static void reply_to_hello(struct script_peer *peer, struct script_connection *connection, const struct neap_hello *hello)
{
	unsigned char bytes[NEAP_HELLO_REPLY_BYTES];
	bool odd = peer->hellos_odd == 0 || peer->hellos <= peer->hellos_odd;
	enum script_hello how = odd ? peer->hello : SCRIPT_HELLO_OK;
	struct neap_hello_reply reply = {.level = 1, .fenced_lane = peer->fences ? hello->fence_lane : 0};
	memcpy(reply.server, peer->instance, sizeof reply.server);
	reply.flags = peer->checksum ? hello->flags & NEAP_HELLO_CHECKSUM : 0;
	if (how == SCRIPT_HELLO_OTHER || how == SCRIPT_HELLO_LEVEL || how == SCRIPT_HELLO_BUSY) {
		reply.code = how == SCRIPT_HELLO_OTHER   ? NEAP_HELLO_OTHER_INSTANCE
		             : how == SCRIPT_HELLO_LEVEL ? NEAP_HELLO_LEVEL
		                                         : NEAP_HELLO_BUSY;
		connection->close_when_sent = true;
	}
	if (how == SCRIPT_HELLO_WRONG_ID)
		reply.server[0] ^= 1;
	neap_hello_reply_put(bytes, &reply);
	if (how == SCRIPT_HELLO_GARBAGE)
		garbage(connection);
	else if (how == SCRIPT_HELLO_PLAIN) {
		uint64_t status = neap_plain_status(NEAP_PLAIN_REJECTED);
		put(connection, &status, sizeof status);
		connection->close_when_sent = true;
	} else if (how == SCRIPT_HELLO_CLOSE)
		connection->close_when_sent = true;
	else if (how != SCRIPT_HELLO_SILENT)
		put(connection, bytes, sizeof bytes);
}

static bool take_hello(struct script_peer *peer, struct script_connection *connection)
{
	struct neap_hello hello;
	if (connection->in_have < NEAP_HELLO_BYTES)
		return false;
	if (neap_hello_get(connection->in, &hello))
		die("not a hello");
	connection->in_used = NEAP_HELLO_BYTES;
	connection->greeted = true;
	peer->hellos++;
	peer->last_lane = hello.lane;
	peer->last_fence = hello.fence_lane;
	peer->last_core = hello.core;
	memcpy(peer->last_client, hello.client, sizeof peer->last_client);
	reply_to_hello(peer, connection, &hello);
	return true;
}

static void serve(struct script_peer *peer, struct script_connection *connection)
{
	if (connection->total_in == 0)
		connection->plain = peer->speech != SCRIPT_NEAP;
	take_in(peer, connection, peer->read_limit);
	while (connection->fd >= 0 && !connection->stuck) {
		bool more = connection->plain      ? take_plain(peer, connection)
		            : !connection->greeted ? take_hello(peer, connection)
		                                   : take_neap(peer, connection);
		if (!more)
			break;
	}
	if (connection->fd >= 0 && connection->in_used > 0) {
		memmove(connection->in, connection->in + connection->in_used, connection->in_have - connection->in_used);
		connection->in_have -= connection->in_used;
		connection->in_used = 0;
	}
	give_out(peer, connection);
	if (connection->fd >= 0 && connection->ended && !connection->stuck && peer->held_count == 0 &&
	    connection->out_sent == connection->out_have)
		end_connection(connection, false);
}

/* --- handshakes ------------------------------------------------------------------------------------------------------------- */

static void describe(const struct script_peer *peer, char *text, size_t size)
{
	char neap[256] = "", id[33];
	for (int i = 0; i < 16; i++)
		snprintf(id + i * 2, 3, "%02x", peer->instance[i]);
	uint16_t port = peer->advertised_port ? peer->advertised_port : peer->data_port;
	char ports[64];
	snprintf(ports, sizeof ports, "%u", port);
	if (peer->speech == SCRIPT_NEAP)
		snprintf(neap, sizeof neap,
		         "\"neap\":{\"boot\":\"%032d\",\"caps\":[\"checksum\",\"grants\",\"fence\"],\"instance\":\"%s\",\"level\":1,"
		         "\"ports\":[%s],\"version\":1},",
		         0, id, peer->neap_ports ? peer->neap_ports : ports);
	snprintf(text, size,
	         "{\"buffers\":[{\"addr\":%llu,\"length\":%llu,\"name\":\"%s\"}],\"name\":\"%s\",%s\"protocol\":\"tcp\",\"tcp_data_port\":%u,"
	         "\"tcp_proto_version\":%d,\"timestamp\":\"2026-08-22 10:00:00.000001\"}\n",
	         (unsigned long long)(uintptr_t)peer->memory, (unsigned long long)peer->memory_bytes, peer->name, peer->name, neap, port,
	         peer->speech == SCRIPT_V1 ? 1 : 2);
}

static void serve_handshake(struct script_peer *peer, struct script_connection *connection)
{
	take_in(peer, connection, 0);
	if (connection->fd < 0)
		return;
	if (connection->in_have >= 9 && !connection->greeted && connection->in_have >= 8 + neap_get64(connection->in)) {
		char text[2048];
		unsigned char head[9];
		connection->greeted = true;
		peer->fetches++;
		if (peer->handshake_silent)
			return;
		describe(peer, text, sizeof text);
		if (peer->handshake_garbage)
			text[0] = '!';
		neap_put64(head, strlen(text) + 1);
		head[8] = connection->in[8];
		put(connection, head, sizeof head);
		put(connection, text, strlen(text));
	}
	size_t piece = peer->piece, split = peer->split_at;
	peer->piece = 0;
	peer->split_at = SIZE_MAX;
	give_out(peer, connection);
	peer->piece = piece;
	peer->split_at = split;
	if (connection->ended)
		end_connection(connection, false);
}

/* --- orders ----------------------------------------------------------------------------------------------------------------- */

void script_pump(struct script_peer *peer)
{
	uint32_t ignored = 0;
	accept_all(peer->handshake_fd, peer->handshakes, &ignored);
	if (!peer->unaccepting)
		accept_all(peer->data_fd, peer->connections, &peer->accepted);
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++) {
		if (peer->handshakes[i].fd >= 0)
			serve_handshake(peer, &peer->handshakes[i]);
		if (peer->connections[i].fd >= 0 && !peer->deaf)
			serve(peer, &peer->connections[i]);
	}
}

void script_release(struct script_peer *peer)
{
	for (uint32_t i = 0; i < peer->held_count; i++) {
		const struct script_held *held = &peer->held[i];
		if (held->connection->fd >= 0 && peer->decide)
			act(peer, held->connection, &held->request);
		else if (held->connection->fd >= 0)
			answer(peer, held->connection, &held->request, true);
	}
	peer->held_count = 0;
}

void script_go_on(struct script_peer *peer)
{
	peer->split_at = SIZE_MAX;
}

void script_take_port(struct script_peer *peer, uint16_t port)
{
	close(peer->data_fd);
	peer->data_port = port;
	peer->data_fd = listen_at(&peer->data_port);
}

void script_drop_all(struct script_peer *peer, bool reset)
{
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		end_connection(&peer->connections[i], reset);
}

void script_move(struct script_peer *peer, bool reset)
{
	script_drop_all(peer, reset);
	close(peer->data_fd);
	peer->data_port = 0;
	peer->data_fd = listen_at(&peer->data_port);
}

void script_refuse_connections(struct script_peer *peer, bool refuse)
{
	if (refuse) {
		close(peer->data_fd);
		close(peer->handshake_fd);
		peer->data_fd = peer->handshake_fd = -1;
	} else {
		peer->handshake_fd = listen_at(&peer->handshake_port);
		peer->data_fd = listen_at(&peer->data_port);
	}
}

void script_babble(struct script_peer *peer)
{
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		if (peer->connections[i].fd >= 0)
			garbage(&peer->connections[i]);
}

uint32_t script_open_connections(const struct script_peer *peer)
{
	uint32_t count = 0;
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		count += peer->connections[i].fd >= 0;
	return count;
}

void script_close(struct script_peer *peer)
{
	script_drop_all(peer, false);
	for (int i = 0; i < SCRIPT_CONNECTIONS; i++)
		end_connection(&peer->handshakes[i], false);
	if (peer->handshake_fd >= 0)
		close(peer->handshake_fd);
	if (peer->data_fd >= 0)
		close(peer->data_fd);
	peer->handshake_fd = peer->data_fd = -1;
}
