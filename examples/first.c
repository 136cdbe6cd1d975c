/* first: serves a greeting; first NAME: reads the greeting of the one that printed NAME. */
#include <neap/engine.h>
#include <stdio.h>
#include <stdlib.h>

static struct neap_reactor *reactor;
static struct neap_engine *engine;
static char memory[32], why[256];

static void must(int error, const char *reason)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", neap_error_text(error), reason);
		exit(1);
	}
}

static void finished(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	(void)user, (void)batch;
	printf("%s\n", summary->completed ? memory : "it did not arrive");
	neap_reactor_stop(reactor);
}

static void opened(void *user, int error, neap_segment_id segment, const char *reason)
{
	(void)user;
	must(error, reason);
	neap_batch_id batch;
	struct neap_request request = {.opcode = NEAP_READ, .source = memory, .segment = segment};
	must(neap_segment_buffer(engine, segment, 0, &request.target_offset, &request.length), "the peer has no memory");
	must(request.length > sizeof memory ? NEAP_ELIMIT : 0, "the peer's memory is not a greeting");
	must(neap_submit(engine, &request, 1, &(struct neap_batch_options){.on_batch = finished}, &batch), "submit");
}

int main(int argc, char **argv)
{
	must(neap_reactor_create(&reactor, NULL), "reactor");
	must(neap_engine_create(&engine, reactor, &(struct neap_engine_options){0}, why, sizeof why), why);
	if (argc > 1) {
		must(neap_segment_open(engine, argv[1], opened, NULL), argv[1]);
	} else {
		snprintf(memory, sizeof memory, "hello from another process");
		struct neap_memory region = {.address = memory, .length = sizeof memory, .access = NEAP_OPEN};
		must(neap_memory_register(engine, &region, 1, NULL, why, sizeof why), why);
		printf("%s\n", neap_engine_name(engine));
		fflush(stdout);
	}
	must(neap_reactor_run(reactor), "run");
	return neap_reactor_destroy(reactor) ? 1 : 0;
}
