/* The streams of changes of a simulated etcd cluster's members. */
#include "tests/support/sim_etcd_inside.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define BATCH_MAX 4u /* revisions in one line, while a stream catches up */
#define LIFE_BITS 16u

struct sim_etcd_stream {
	struct sim_etcd_stream *next;
	struct sim_line *line;
	char *key, *end;
	uint64_t from; /* the next revision it is to be told of */
	uint32_t dropped;
	bool fragment, progress;
};

/* --- lines --------------------------------------------------------------------------------------------------------------------- */

static void begin_line(struct sim_etcd_text *text, const struct sim_etcd_member *member)
{
	sim_etcd_text_begin(text);
	fprintf(text->out, "{\"result\":{");
	sim_etcd_write_header(text->out, member, member->applied);
}

static void end_line(struct sim_etcd_text *text, struct sim_line *line, const char *rest)
{
	fprintf(text->out, "%s}}\n", rest);
	sim_etcd_text_end(text);
	sim_line_answer(line, sim_http_part(200, text->bytes, text->length));
	free(text->bytes);
}

static void say_line(const struct sim_etcd_member *member, struct sim_line *line, const char *rest)
{
	struct sim_etcd_text text;
	begin_line(&text, member);
	end_line(&text, line, rest);
}

/* Half of a line, and then nothing more: the stream is no more. */
static void tear(struct sim_etcd_server *etcd, struct sim_etcd_text *text, struct sim_line *line)
{
	sim_etcd_text_end(text);
	sim_line_answer(line, sim_http_part(200, text->bytes, 1 + text->length / 2));
	free(text->bytes);
	etcd->tears = false;
	etcd->torn++;
	sim_line_hang_up(line);
}

/* --- changes ------------------------------------------------------------------------------------------------------------------- */

static bool covers(const struct sim_etcd_stream *stream, const struct sim_etcd_value *change)
{
	if (!stream->end)
		return strcmp(change->key, stream->key) == 0;
	return strcmp(change->key, stream->key) >= 0 && strcmp(change->key, stream->end) < 0;
}

static bool is_told(const struct sim_etcd_server *etcd, struct sim_etcd_stream *stream, const struct sim_etcd_value *change)
{
	bool is = covers(stream, change) && change->modified >= stream->from && !etcd->deaf;
	if (!is || stream->dropped == etcd->drops)
		return is;
	stream->dropped = etcd->drops;
	return false;
}

/* As one event among others of a line; what was said of it so far may go as a fragment first. */
static void write_event(const struct sim_etcd_member *member, const struct sim_etcd_stream *stream, const struct sim_etcd_value *change,
                        struct sim_etcd_text *text, uint32_t *events_p)
{
	if (*events_p && stream->fragment && sim_random_chance(&member->etcd->state.sim->random[SIM_NET], 400)) {
		end_line(text, stream->line, "],\"fragment\":true");
		*events_p = 0;
	}
	if (!*events_p)
		begin_line(text, member);
	fprintf(text->out, "%s{%s\"kv\":", *events_p ? "," : ",\"events\":[", change->value ? "" : "\"type\":\"DELETE\",");
	sim_etcd_write_value(text->out, change, false);
	fputc('}', text->out);
	(*events_p)++;
	member->etcd->told++;
}

/* Of one or a few revisions, in one line or in fragments. False: the stream is no more. */
static bool tell_batch(const struct sim_etcd_member *member, struct sim_etcd_stream *stream, uint64_t last)
{
	struct sim_etcd_server *etcd = member->etcd;
	const struct sim_etcd_list *changes = &etcd->state.changes;
	struct sim_etcd_text text;
	uint32_t events = 0;
	for (size_t i = 0; i < changes->count && changes->values[i].modified <= last; i++)
		if (is_told(etcd, stream, &changes->values[i]))
			write_event(member, stream, &changes->values[i], &text, &events);
	stream->from = last + 1;
	if (events && etcd->tears) {
		tear(etcd, &text, stream->line);
		return false;
	}
	if (events)
		end_line(&text, stream->line, "]");
	return true;
}

/* False: the stream is no more. */
static bool catch_up(const struct sim_etcd_member *member, struct sim_etcd_stream *stream)
{
	struct sim_random *random = &member->etcd->state.sim->random[SIM_NET];
	while (stream->from <= member->applied) {
		uint64_t last = stream->from + sim_random_below(random, BATCH_MAX);
		if (!tell_batch(member, stream, last < member->applied ? last : member->applied))
			return false;
	}
	return true;
}

/* A word that there was nothing else up to here: rarely, and only to who has been told everything. */
static void tell_progress(const struct sim_etcd_member *member, const struct sim_etcd_stream *stream)
{
	if (stream->progress && stream->from == member->applied + 1 && sim_random_chance(&member->etcd->state.sim->random[SIM_NET], 50))
		say_line(member, stream->line, "");
}

/* A member hears of a revision: in this life of the cluster, unless it has heard of it when it came back. */
static void apply(struct sim *sim, void *user, uint64_t what)
{
	struct sim_etcd_member *member = user;
	const struct sim_etcd_state *state = &member->etcd->state;
	uint64_t revision = what >> LIFE_BITS;
	(void)sim;
	if ((what & ((1u << LIFE_BITS) - 1)) != state->life || member->http.server.down || revision <= member->applied)
		return;
	member->applied = revision;
	for (struct sim_etcd_stream *stream = member->streams, *next; stream; stream = next) {
		next = stream->next;
		if (catch_up(member, stream))
			tell_progress(member, stream);
	}
}

void sim_etcd_watch_advanced(struct sim_etcd_state *state)
{
	struct sim_etcd_server *etcd = (struct sim_etcd_server *)state;
	for (uint32_t i = 0; i < etcd->member_count; i++) {
		struct sim_etcd_member *member = &etcd->members[i];
		uint64_t at_ns = state->sim->now_ns + member->lag_ns, still_ns = member->http.server.still_until_ns;
		sim_at(state->sim, at_ns > still_ns ? at_ns : still_ns, apply, member, state->revision << LIFE_BITS | state->life);
	}
}

/* --- streams ------------------------------------------------------------------------------------------------------------------- */

static void add_stream(struct sim_etcd_member *member, const struct sim_etcd_request *request, struct sim_line *line)
{
	struct sim_etcd_stream *stream = calloc(1, sizeof *stream);
	if (!stream)
		abort();
	stream->line = line;
	stream->key = strdup(request->key);
	stream->end = request->end ? strdup(request->end) : NULL;
	stream->fragment = request->fragment;
	stream->progress = request->progress;
	stream->dropped = member->etcd->drops;
	stream->from = request->from ? request->from : member->applied + 1;
	stream->next = member->streams;
	member->streams = stream;
	sim_line_keep(line, stream);
	(void)catch_up(member, stream);
}

void sim_etcd_watch_gone(struct sim_http_server *http, struct sim_line *line)
{
	struct sim_etcd_stream *stream = sim_line_kept(line), **slot = &((struct sim_etcd_member *)http)->streams;
	if (!stream)
		return;
	while (*slot != stream)
		slot = &(*slot)->next;
	*slot = stream->next;
	free(stream->key);
	free(stream->end);
	free(stream);
}

/* Whether it goes on in another life of the cluster, and nothing that is said lets its owner know. */
static bool is_overtaken(struct sim_etcd_member *member, const struct sim_etcd_request *request, const struct sim_line *line)
{
	const struct sim_etcd_state *state = &member->etcd->state;
	struct sim_etcd_life *last = &member->etcd->lives[sim_line_node(line)->number % SIM_NODES_MAX], before = *last;
	*last = (struct sim_etcd_life){.life = state->life, .term = state->term};
	return request->from && before.life != state->life && before.term <= state->term && request->from <= member->applied + 1;
}

static void count(struct sim_etcd_member *member, const struct sim_etcd_request *request, const struct sim_line *line)
{
	struct sim_etcd_server *etcd = member->etcd;
	etcd->resumed += request->from != 0;
	etcd->resumed_before += request->from > member->applied + 1;
	etcd->overtaken += is_overtaken(member, request, line);
}

/* That it was not let in is told on the stream, with the word that it has begun. */
void sim_etcd_watch(struct sim_etcd_member *member, const struct sim_etcd_request *request, const struct sim_http_asked *asked)
{
	struct sim_etcd_server *etcd = member->etcd;
	const char *refused = sim_etcd_refused_token(etcd, asked->token);
	char rest[200];
	if (refused) {
		(void)snprintf(rest, sizeof rest, ",\"watch_id\":\"-1\",\"created\":true,\"canceled\":true,\"cancel_reason\":\"rpc error: code = %s desc = %s\"",
		               strstr(refused, "invalid auth token") ? "Unauthenticated" : "InvalidArgument", refused);
		say_line(member, asked->line, rest);
		return;
	}
	count(member, request, asked->line);
	say_line(member, asked->line, ",\"created\":true");
	if (request->from && request->from < etcd->state.compacted && etcd->state.compacted <= member->applied) {
		(void)snprintf(rest, sizeof rest, ",\"canceled\":true,\"compact_revision\":\"%" PRIu64 "\"", etcd->state.compacted);
		say_line(member, asked->line, rest);
		etcd->compacted++;
	} else {
		add_stream(member, request, asked->line);
	}
}

void sim_etcd_watch_bid_farewell(struct sim_etcd_member *member)
{
	static const char farewell[] =
		"{\"error\":{\"grpc_code\":14,\"http_code\":503,\"message\":\"transport is closing\",\"http_status\":\"Service Unavailable\"}}\n";
	for (struct sim_etcd_stream *stream = member->streams; stream; stream = stream->next)
		sim_line_answer(stream->line, sim_http_part(200, farewell, strlen(farewell)));
}
