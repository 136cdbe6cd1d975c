/* What the suite asks of a host loop. Each host_*.c implements it through the adapter of its kind; one program is one host. */
#ifndef TESTS_EMBED_HOST_H
#define TESTS_EMBED_HOST_H

#include <neap/reactor.h>

#ifdef __cplusplus
extern "C" {
#endif

extern const char *const host_name;
/* False: neap_reactor_run, which is a loop of its own: one reactor, no budgets, nothing runs beside it. */
extern const bool host_is_foreign;

#define HOST_REACTORS_MAX 2
#define HOST_TIMERS_MAX 256

void host_begin(void);
void host_end(void);

/* Before or during host_run. `budget` NULL: the default. */
void host_attach(struct neap_reactor *reactor, const struct neap_budget *budget);
/* Stops the adapter; the reactor is not run any more. Foreign hosts only; from callbacks too. */
void host_detach(struct neap_reactor *reactor);

/* A timer of the host, outside any reactor (under neap_reactor_run: the reactor's own). */
void host_after_ms(unsigned ms, void (*run)(void *user), void *user);

/* Runs the loop until host_break, or until as many reactors have ended as were attached and not detached. Returns how the last one
 * ended: NEAP_RUN_STOPPED, or an error. */
int host_run(void);
void host_break(void); /* foreign hosts only */

#ifdef __cplusplus
}
#endif
#endif
