/* A host for tests: runs reactors of this thread until something holds, sleeping in poll in between. No test sleeps for a time. */
#ifndef SUPPORT_DRIVE_H
#define SUPPORT_DRIVE_H

#include <neap/reactor.h>

/* CLOCK_MONOTONIC */
uint64_t drive_now_ns(void);

/* Runs until *flag or `limit_ms` passed; returns *flag. Fails the Check test on an error of run_once. */
bool drive_until(struct neap_reactor *reactor, const bool *flag, unsigned limit_ms);

/* The same with a condition, and several reactors. */
bool drive_all_until(struct neap_reactor *const *reactors, size_t count, bool (*holds)(void *user), void *user, unsigned limit_ms);

/* Runs for the whole of `ms`: to see that something does not happen. Sleeps as a host would. */
void drive_for(struct neap_reactor *reactor, unsigned ms);

/* Runs `count` turns that no load of the machine cuts short: for what a test says of a number of turns. */
void drive_turns(struct neap_reactor *reactor, unsigned count);

/* Stops it, runs it until STOPPED and destroys it with its coverage recorded. Fails the test when it does not end within 5 s. */
void drive_to_end(struct neap_reactor *reactor);

#endif
