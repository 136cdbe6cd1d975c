/* Any bytes behind a hello that was accepted: frames of requests, or noise. One grant is alive, over the second half of the
 * first OPEN region (whose bytes may be written anyway), with a secret that inputs can know: the rig's chance is constant. */
#include "tests/support/lane_fuzz.h"
#include "tests/support/wire_client.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void make_grant(struct session_rig *rig)
{
	struct neap_grant_token token;
	if (neap_registry_grant(rig->registry, rig->region[RIG_OPEN_A] + LANE_FUZZ_REGION / 2, LANE_FUZZ_REGION / 2,
	                        NEAP_MAY_READ | NEAP_MAY_WRITE, (const uint8_t *)"client instance.", &token) != NEAP_OK)
		abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct session_rig rig;
	unsigned char hello[96];
	struct wire_bytes w = {.at = hello, .size = sizeof hello};
	if (!rig.server) {
		session_rig_open_small(&rig, SESSION_RIG_VIRTUAL, LANE_FUZZ_REGION);
		make_grant(&rig);
		session_rig_start(&rig);
	}
	wire_hello(&w, &(struct wire_hello){"client instance.", (const char *)rig.view.instance, 1, 0, 1, 0, 1});
	lane_fuzz_run(&rig, data, size, hello, w.length, 40);
	return 0;
}
