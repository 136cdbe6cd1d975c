/* Verbs without a device: everything succeeds, and what is posted has completed by the next poll. No byte is moved. What is left is the
 * cost of the machines above; the benchmarks are made with it.
 *
 * One device "instant0" with one ACTIVE port. One thread, but for what helpers call. */
#ifndef SUPPORT_INSTANT_VERBS_H
#define SUPPORT_INSTANT_VERBS_H

#include "transports/rdma/verbs.h"

#define INSTANT_DEVICE "instant0"

extern const struct neap_verbs instant_verbs;
extern bool instant_reads_doubtful;  /* as Soft-RoCE's are; for devices that are opened from then on */
extern uint64_t instant_reads;       /* posted so far */

#endif
