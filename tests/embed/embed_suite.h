/* What the files of the suite share. */
#ifndef TESTS_EMBED_SUITE_H
#define TESTS_EMBED_SUITE_H

#include "reactor/connect.h"
#include "reactor/listen.h"
#include "tests/embed/host.h"
#include "tests/support/coverage.h"
#include "tests/support/fdcheck.h"

#include <check.h>

struct embedded {
	struct neap_reactor *reactor;
	int changes; /* calls of on_change */
};

/* A reactor attached to the host. Bits of `variant`: 1 the host keeps the deadline, 2 a budget of one event a turn. */
void embed_begin(struct embedded *e, int variant, enum neap_reactor_mode mode);
/* Runs the host until the reactor has stopped, and destroys it. */
void embed_run(struct embedded *e);
/* Stops it; has the type of a host timer. */
void embed_stop(void *user);

/* Fixture of every test: a host with nothing in it. */
void embed_fresh_host(void);

/* tests/embed/embed_engine.c */
void embed_add_engine_tests(Suite *suite);

#endif
