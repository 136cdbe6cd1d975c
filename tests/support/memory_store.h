/* A metadata store in memory, for tests and simulation: many back-ends, on reactors of one thread, over one set of keys. It answers after
 * a while of the reactor's time, and goes wrong as it is told to. */
#ifndef SUPPORT_MEMORY_STORE_H
#define SUPPORT_MEMORY_STORE_H

#include "metadata/backend.h"

#define MEMORY_STORE_KEYS 64u
#define MEMORY_STORE_BACKENDS 64u

struct memory_backend;

struct memory_store {
	/* set by the test */
	uint64_t delay_ns;     /* each answer comes so much later */
	bool down;             /* nothing is done and nothing is answered: calls run into their deadlines */
	int refuse;            /* an error with which each call is answered */
	bool loses_replies;    /* what is asked is done and not answered */
	bool blind;            /* cannot watch */
	int busy;              /* calls are not even taken: the error they fail with */
	/* Each change, at its moment; value NULL: it is gone. May be NULL */
	void (*changed)(void *user, const char *key, const char *value, size_t length);
	void *user;
	uint64_t calls, sets;  /* answered or lost */

	struct memory_store_key {
		char key[NEAP_BACKEND_KEY_MAX];
		char *value; /* heap; NULL: free */
		size_t length;
		uint64_t ends_ns; /* 0: never */
	} keys[MEMORY_STORE_KEYS];
	struct memory_backend *backends[MEMORY_STORE_BACKENDS];
};

/* As a maker for neap_engine_create_over: user is the store. */
int memory_store_open(struct neap_backend **backend_p, struct neap_reactor *reactor, void *store);
void memory_store_release(struct memory_store *store);

/* As another program would: who watches is told. value NULL: removed. */
void memory_store_put(struct memory_store *store, const char *key, const char *value);
/* NULL: none. */
const char *memory_store_value(struct memory_store *store, const char *key);
/* It lost all it had, without a word. */
void memory_store_wipe(struct memory_store *store);
void memory_store_tell_all(struct memory_store *store);
/* What has ended by `now_ns` goes, and who watches is told; without it that is seen when somebody asks. */
void memory_store_expire(struct memory_store *store, uint64_t now_ns);

#endif
