/* A metadata back-end that answers when the test says so: each call waits in a list until the test takes it, in order. */
#ifndef SUPPORT_SCRIPT_BACKEND_H
#define SUPPORT_SCRIPT_BACKEND_H

#include "metadata/backend.h"

#define SCRIPT_BACKEND_CALLS 64u

struct script_backend_call {
	const char *verb; /* "get", "set", "create", "remove", "touch" */
	char key[256];
	char value[2048];
	size_t length;
	uint64_t lease_ns, timeout_ns;
	neap_backend_done_func *done; /* NULL: answered or canceled */
	void *user;
};

struct script_backend {
	struct neap_backend base;
	struct neap_backend_ops ops;
	struct script_backend_call calls[SCRIPT_BACKEND_CALLS];
	uint32_t count, canceled, destroyed;
	int refuse;    /* calls fail with it at once */
	int refuse_after; /* only from the so-manieth of the calls that follow, counted from 1; 0: each */
	int no_watch;  /* what watch answers */
	struct neap_watches watches;
};

/* `capabilities` as in neap_backend_ops. */
void script_backend_open(struct script_backend *backend, unsigned capabilities);
/* The oldest call that is not answered; fails the test unless it is this one. */
struct script_backend_call *script_backend_expect(struct script_backend *backend, const char *verb, const char *key);
void script_backend_answer(struct script_backend_call *call, int error, const char *value);
uint32_t script_backend_pending(const struct script_backend *backend);

#endif
