#include "tests/support/sim_server.h"
#include <stdlib.h>
#include <string.h>

#define MS UINT64_C(1000000)

enum { TO_CLIENT, TO_SERVER, DIRECTIONS };
enum { TAG_OPEN = -1, TAG_ACCEPTED = -2, TAG_END = -3 }; /* the line's own messages */

struct queue {
	struct sim_message *first, **tail;
	uint64_t said_ns, last_ns; /* when its last message was said, and arrives */
	bool silent;
};

struct sim_line {
	struct sim_line *next;
	struct sim_server *server;
	struct sim_node *node;
	const struct sim_line_events *events; /* NULL: closed by the client */
	void *user;
	struct neap_ready ready;
	struct queue under_way[DIRECTIONS];
	struct queue arrived; /* at the client's host */
	uint32_t pending;     /* events of the world's heap */
	bool accepted, died;
	void *of_server;
};

/* --- messages ------------------------------------------------------------------------------------------------------------------ */

struct sim_message *sim_message_create(int tag, int64_t number, int count, const char *const *words, const size_t *lengths)
{
	size_t bytes = 0;
	for (int i = 0; i < count; i++)
		bytes += lengths[i] + 1;
	struct sim_message *message = calloc(1, sizeof *message + bytes);
	if (!message || count > SIM_WORDS_MAX)
		abort();
	message->tag = tag;
	message->number = number;
	message->count = count;
	char *at = (char *)(message + 1);
	for (int i = 0; i < count; i++) {
		memcpy(at, words[i], lengths[i]);
		message->words[i] = at;
		message->lengths[i] = lengths[i];
		at += lengths[i] + 1;
	}
	return message;
}

struct sim_message *sim_message_text(int tag, int64_t number, const char *text)
{
	size_t length = text ? strlen(text) : 0;
	return sim_message_create(tag, number, text ? 1 : 0, &text, &length);
}

static void put(struct queue *queue, struct sim_message *message)
{
	message->next = NULL;
	*queue->tail = message;
	queue->tail = &message->next;
}

static struct sim_message *take(struct queue *queue)
{
	struct sim_message *message = queue->first;
	if (!message)
		return NULL;
	queue->first = message->next;
	if (!queue->first)
		queue->tail = &queue->first;
	return message;
}

static void drop_all(struct queue *queue)
{
	while (queue->first)
		free(take(queue));
}

/* --- under way ----------------------------------------------------------------------------------------------------------------- */

static void arrive(struct sim *sim, void *user, uint64_t direction);

static uint64_t delay_ns(struct sim_server *server)
{
	struct sim_random *random = &server->sim->random[SIM_NET];
	uint64_t most = sim_random_chance(random, server->lag_per_mille) ? server->lag_max_ns : server->delay_max_ns;
	return 1000 + sim_random_below(random, most);
}

/* An arrival takes the first message, whichever it was made for: so the order is kept. */
static void post(struct sim_line *line, int direction, struct sim_message *message)
{
	struct queue *queue = &line->under_way[direction];
	struct sim *sim = line->server->sim;
	uint64_t at_ns = sim->now_ns + delay_ns(line->server);
	bool together = queue->first && queue->said_ns == sim->now_ns; /* what is said at once comes at once */
	queue->last_ns = together || at_ns < queue->last_ns ? queue->last_ns : at_ns;
	queue->said_ns = sim->now_ns;
	put(queue, message);
	line->pending++;
	sim_at(sim, queue->last_ns, arrive, line, (uint64_t)direction);
}

static void forget(struct sim_line *line)
{
	line->accepted = false;
	line->server->service->gone(line->server, line);
	line->of_server = NULL;
}

static void release(struct sim_line *line)
{
	struct sim_line **slot = &line->server->lines;
	while (*slot != line)
		slot = &(*slot)->next;
	*slot = line->next;
	if (line->accepted)
		forget(line);
	drop_all(&line->under_way[TO_CLIENT]);
	drop_all(&line->under_way[TO_SERVER]);
	drop_all(&line->arrived);
	free(line);
}

static void reset(struct sim_line *line, const char *why)
{
	post(line, TO_CLIENT, sim_message_text(TAG_END, 0, why));
}

static void open_at_server(struct sim_line *line)
{
	struct sim_server *server = line->server;
	if (server->dark)
		return;
	if (server->down) {
		reset(line, "Connection refused");
		return;
	}
	line->accepted = true;
	server->service->accepted(server, line);
	post(line, TO_CLIENT, sim_message_text(TAG_ACCEPTED, 0, NULL));
}

static void arrive_at_server(struct sim_line *line, struct sim_message *message)
{
	struct sim_server *server = line->server;
	if (message->tag == TAG_OPEN)
		open_at_server(line);
	else if (!line->accepted && message->tag != TAG_END && !server->dark)
		reset(line, "Connection reset by peer");
	else if (line->accepted && message->tag == TAG_END)
		forget(line);
	else if (line->accepted)
		server->service->received(server, line, message);
	free(message);
}

static void arrive_at_client(struct sim_line *line, struct sim_message *message)
{
	if (!line->events || line->died || line->node->crashed) {
		free(message);
		return;
	}
	put(&line->arrived, message);
	neap_ready_again(line->node->reactor, &line->ready);
	sim_node_wake(line->node);
}

/* A server that stands still reads later what lies in its sockets; that somebody connects is the business of its kernel. */
static bool waits(struct sim_line *line, uint64_t direction)
{
	struct sim_server *server = line->server;
	const struct sim_message *first = line->under_way[direction].first;
	if (direction != TO_SERVER || server->sim->now_ns >= server->still_until_ns || !first || first->tag == TAG_OPEN)
		return false;
	sim_at(server->sim, server->still_until_ns, arrive, line, direction);
	return true;
}

static void arrive(struct sim *sim, void *user, uint64_t direction)
{
	struct sim_line *line = user;
	(void)sim;
	if (waits(line, direction))
		return;
	line->pending--;
	struct sim_message *message = take(&line->under_way[direction]);
	if (message && line->under_way[direction].silent) {
		line->server->lost++;
		free(message);
	} else if (message && direction == TO_SERVER) {
		arrive_at_server(line, message);
	} else if (message) {
		arrive_at_client(line, message);
	}
	if (!line->events && line->pending == 0)
		release(line);
}

/* --- the client's end ---------------------------------------------------------------------------------------------------------- */

static void shut(struct sim_line *line)
{
	neap_ready_cancel(line->node->reactor, &line->ready);
	drop_all(&line->arrived);
	line->events = NULL;
	post(line, TO_SERVER, sim_message_text(TAG_END, 0, NULL));
}

/* The line outlives its callbacks: the message that says its end is still under way. */
static void tell(struct neap_ready *ready)
{
	struct sim_line *line = (struct sim_line *)(void *)((char *)ready - offsetof(struct sim_line, ready));
	const struct sim_line_events *events = line->events;
	struct sim_message *message = take(&line->arrived);
	if (!message)
		return;
	if (message->tag == TAG_END) {
		shut(line);
		events->ended(line->user, message->words[0]);
	} else if (message->tag == TAG_ACCEPTED) {
		events->opened(line->user);
	} else {
		events->arrived(line->user, message);
	}
	free(message);
	if (line->events && line->arrived.first)
		neap_ready_again(line->node->reactor, &line->ready);
}

struct sim_line *sim_line_open(struct sim_server *server, struct sim_node *node, const struct sim_line_events *events, void *user)
{
	struct sim_line *line = calloc(1, sizeof *line), **slot = &server->lines;
	if (!line)
		abort();
	line->server = server;
	line->node = node;
	line->events = events;
	line->user = user;
	line->ready.run = tell;
	line->arrived.tail = &line->arrived.first;
	for (int i = 0; i < DIRECTIONS; i++)
		line->under_way[i].tail = &line->under_way[i].first;
	while (*slot)
		slot = &(*slot)->next;
	*slot = line;
	post(line, TO_SERVER, sim_message_text(TAG_OPEN, 0, NULL));
	return line;
}

void sim_line_say(struct sim_line *line, struct sim_message *message)
{
	post(line, TO_SERVER, message);
}

void sim_line_close(struct sim_line *line)
{
	shut(line);
}

/* --- the server's end ---------------------------------------------------------------------------------------------------------- */

void sim_line_answer(struct sim_line *line, struct sim_message *message)
{
	post(line, TO_CLIENT, message);
}

void sim_line_hang_up(struct sim_line *line)
{
	if (!line->accepted)
		return;
	forget(line);
	reset(line, "Connection reset by peer");
}

void sim_line_keep(struct sim_line *line, void *of_server)
{
	line->of_server = of_server;
}

void *sim_line_kept(const struct sim_line *line)
{
	return line->of_server;
}

const struct sim_node *sim_line_node(const struct sim_line *line)
{
	return line->node;
}

void sim_server_init(struct sim_server *server, struct sim *sim, const struct sim_service *service)
{
	static const uint64_t delays[] = {20 * 1000, 500 * 1000, 5 * MS, 60 * MS};
	struct sim_random *random = &sim->random[SIM_NET];
	*server = (struct sim_server){.sim = sim, .service = service};
	server->delay_max_ns = delays[sim_random_below(random, 4)];
	server->lag_per_mille = sim_random_chance(random, 500) ? (uint32_t)sim_random_below(random, 30) : 0;
	server->lag_max_ns = (100 + sim_random_below(random, 4000)) * MS;
}

void sim_server_release(struct sim_server *server)
{
	while (server->lines)
		release(server->lines);
}

/* --- faults -------------------------------------------------------------------------------------------------------------------- */

void sim_server_stop(struct sim_server *server)
{
	server->down = true;
	server->still_until_ns = 0;
	for (struct sim_line *line = server->lines; line; line = line->next)
		sim_line_hang_up(line);
}

void sim_server_stand_still(struct sim_server *server, uint64_t ns)
{
	uint64_t until_ns = server->sim->now_ns + ns;
	server->still_until_ns = until_ns > server->still_until_ns ? until_ns : server->still_until_ns;
}

void sim_server_node_died(struct sim_server *server, const struct sim_node *node, bool host_dies)
{
	for (struct sim_line *line = server->lines; line; line = line->next) {
		if (line->node != node || line->died || !line->events)
			continue;
		line->died = true;
		if (!host_dies)
			post(line, TO_SERVER, sim_message_text(TAG_END, 0, NULL));
	}
}

static struct sim_line *choose(struct sim_server *server)
{
	uint64_t count = 0;
	for (struct sim_line *line = server->lines; line; line = line->next)
		count += line->events && !line->died;
	uint64_t chosen = count ? sim_random_below(&server->sim->random[SIM_FAULTS], count) : 0;
	for (struct sim_line *line = server->lines; line; line = line->next)
		if (line->events && !line->died && chosen-- == 0)
			return line;
	return NULL;
}

/* What is under way to the server may have arrived there, and then the answer is what is lost. */
bool sim_server_cut_one(struct sim_server *server)
{
	struct sim_line *line = choose(server);
	if (!line)
		return false;
	if (sim_random_chance(&server->sim->random[SIM_FAULTS], 500))
		drop_all(&line->under_way[TO_SERVER]);
	drop_all(&line->under_way[TO_CLIENT]);
	reset(line, "Connection reset by peer");
	post(line, TO_SERVER, sim_message_text(TAG_END, 0, NULL));
	return true;
}

static void keepalive_failed(struct sim *sim, void *user, uint64_t argument)
{
	struct sim_line *line = user;
	(void)sim;
	(void)argument;
	line->pending--;
	if (line->events)
		arrive_at_client(line, sim_message_text(TAG_END, 0, "Connection timed out"));
	else if (line->pending == 0)
		release(line);
}

bool sim_server_silence_one(struct sim_server *server)
{
	struct sim_line *line = choose(server);
	if (!line)
		return false;
	uint64_t which = sim_random_below(&server->sim->random[SIM_FAULTS], 3);
	if (which != TO_CLIENT)
		line->under_way[TO_SERVER].silent = true;
	if (which != TO_SERVER)
		line->under_way[TO_CLIENT].silent = true;
	line->pending++;
	sim_after(server->sim, SIM_KEEPALIVE_NS, keepalive_failed, line, 0);
	return true;
}

uint32_t sim_server_lines_of(const struct sim_server *server, const struct sim_node *node)
{
	uint32_t count = 0;
	for (const struct sim_line *line = server->lines; line; line = line->next)
		count += line->events && line->node == node;
	return count;
}
