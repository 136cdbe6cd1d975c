/* What the members of a simulated etcd cluster say. */
#include "tests/support/sim_etcd_inside.h"
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

void sim_etcd_text_begin(struct sim_etcd_text *text)
{
	*text = (struct sim_etcd_text){.out = NULL};
	text->out = open_memstream(&text->bytes, &text->length);
	if (!text->out)
		abort();
}

void sim_etcd_write_header(FILE *out, const struct sim_etcd_member *member, uint64_t revision)
{
	fprintf(out, "\"header\":{\"cluster_id\":\"324952591200643719\",\"member_id\":\"%u\",\"revision\":\"%" PRIu64 "\",\"raft_term\":\"%" PRIu64
	             "\"}",
	        (unsigned)(member - member->etcd->members) + 1, revision, member->etcd->state.term);
}

static void write_bytes(FILE *out, const char *name, const char *bytes, size_t length)
{
	fprintf(out, "\"%s\":\"", name);
	sim_etcd_write_base64(out, bytes, length);
	fputc('"', out);
}

/* The gateway leaves out what is 0 or empty. */
void sim_etcd_write_value(FILE *out, const struct sim_etcd_value *value, bool key_only)
{
	fputc('{', out);
	write_bytes(out, "key", value->key, strlen(value->key));
	if (value->created)
		fprintf(out, ",\"create_revision\":\"%" PRIu64 "\"", value->created);
	fprintf(out, ",\"mod_revision\":\"%" PRIu64 "\"", value->modified);
	if (value->version)
		fprintf(out, ",\"version\":\"%" PRIu64 "\"", value->version);
	if (value->value && value->length && !key_only) {
		fputc(',', out);
		write_bytes(out, "value", value->value, value->length);
	}
	if (value->lease)
		fprintf(out, ",\"lease\":\"%" PRIu64 "\"", value->lease);
	fputc('}', out);
}

void sim_etcd_text_end(struct sim_etcd_text *text)
{
	fclose(text->out);
}

struct sim_message *sim_etcd_answer(struct sim_etcd_text *text, long status)
{
	sim_etcd_text_end(text);
	struct sim_message *message = sim_message_create(0, status, 1, (const char *const[]){text->bytes}, &text->length);
	free(text->bytes);
	return message;
}

struct sim_message *sim_etcd_refuse(long status, int code, const char *said)
{
	struct sim_etcd_text text;
	sim_etcd_text_begin(&text);
	fprintf(text.out, "{\"error\":\"%s\",\"message\":\"%s\",\"code\":%d}", said, said, code);
	return sim_etcd_answer(&text, status);
}

struct sim_message *sim_etcd_say(const struct sim_etcd_member *member, const char *rest)
{
	struct sim_etcd_text text;
	sim_etcd_text_begin(&text);
	fputc('{', text.out);
	sim_etcd_write_header(text.out, member, member->etcd->state.revision);
	fprintf(text.out, "%s}", rest);
	return sim_etcd_answer(&text, 200);
}
