/* Any bytes on a fresh data connection: plain requests, a hello, or noise. */
#include "tests/support/lane_fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct session_rig rig;
	if (!rig.server) {
		session_rig_open_small(&rig, SESSION_RIG_VIRTUAL, LANE_FUZZ_REGION);
		session_rig_start(&rig);
	}
	lane_fuzz_run(&rig, data, size, NULL, 0, 0);
	return 0;
}
