/* What the two lane fuzz targets share: one input is a conversation. Its first bytes choose how the stream is cut and what happens
 * between the pieces; the rest is what the peer sends. A byte written outside of what the peer may write ends the process. */
#ifndef SUPPORT_LANE_FUZZ_H
#define SUPPORT_LANE_FUZZ_H

#include "tests/support/session_rig.h"

#define LANE_FUZZ_REGION (64u * 1024u)
#define LANE_FUZZ_CONTROL 4u /* bytes in front */

/* Sends `prefix` whole and takes `prefix_answer` bytes of reply before the cutting begins. */
void lane_fuzz_run(struct session_rig *rig, const uint8_t *data, size_t size, const void *prefix, size_t prefix_length,
                   size_t prefix_answer);

#endif
