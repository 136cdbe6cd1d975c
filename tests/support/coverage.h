/* Which cells of which machines a test has taken.
 *
 * When the environment has NEAP_COVERAGE, the hit counters are appended to the file it names as lines `machine STATE EVENT count`;
 * `neap-fsm coverage FILE` adds them up over all tests. Without the variable nothing happens. */
#ifndef SUPPORT_COVERAGE_H
#define SUPPORT_COVERAGE_H

#include <neap/fsm.h>
#include <neap/reactor.h>

/* Appends what this dispatcher's machines have done so far. Call once, before its memory goes. */
void support_cover(const struct neap_dispatcher *dispatcher);

/* neap_reactor_destroy with support_cover before it: how every test ends a reactor. When destroy answers an error the hits are
 * recorded again by the next call; they are only compared with zero. */
int support_reactor_destroy(struct neap_reactor *reactor);

#endif
