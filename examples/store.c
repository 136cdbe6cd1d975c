/* store: a cluster of one puts a value and gets it. store MASTER: the same as a member of the cluster of the neap-master at that address. */
#include <neap/store.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct neap_reactor *reactor;
static struct neap_engine *engine;
static struct neap_store *store;
static char memory[2][64], why[256];
static const struct neap_key key = {"greeting", 8};

static void must(int error, const char *reason)
{
	if (error) {
		fprintf(stderr, "%s: %s\n", neap_error_text(error), reason);
		exit(1);
	}
}

static void engine_gone(void *user)
{
	(void)user;
	neap_reactor_stop(reactor);
}

static void store_gone(void *user)
{
	(void)user;
	must(neap_engine_close(engine, engine_gone, NULL), "engine");
}

static void got(void *user, const struct neap_store_outcome *outcome)
{
	(void)user;
	printf("%s\n", outcome->status == NEAP_STORE_SUCCESS ? memory[1] : outcome->why);
	must(neap_store_close(store, store_gone, NULL), "close");
}

static void put(void *user, const struct neap_store_outcome *outcome)
{
	(void)user;
	printf("%s\n", outcome->status != NEAP_STORE_SUCCESS ? outcome->why : outcome->created ? "created" : "it was there");
	must(neap_store_get(store, &key, &(struct neap_slice_of){memory[1], sizeof memory[1]}, 1, NULL, got, NULL, NULL), "get");
}

static void ready(void *user, int error, const char *reason)
{
	(void)user;
	must(error, reason);
	snprintf(memory[0], sizeof memory[0], "hello from the store");
	must(neap_store_put(store, &key, &(struct neap_slice_of){memory[0], strlen(memory[0]) + 1}, 1, NULL, put, NULL, NULL), "put");
}

int main(int argc, char **argv)
{
	struct neap_store_options options = {.tiers = "{\"tiers\":[{\"type\":\"DRAM\",\"capacity\":\"64MB\",\"priority\":1}]}", .ready = ready};
	options.master = argc > 1 ? argv[1] : NULL;
	must(neap_reactor_create(&reactor, NULL), "reactor");
	must(neap_engine_create(&engine, reactor, &(struct neap_engine_options){0}, why, sizeof why), why);
	must(neap_store_create(&store, engine, &options, why, sizeof why), why);
	must(neap_reactor_run(reactor), "run");
	return neap_reactor_destroy(reactor) ? 1 : 0;
}
