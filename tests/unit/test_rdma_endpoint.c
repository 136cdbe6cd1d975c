/* Endpoints of two processes over simulated verbs: from the first word to the last completion, and all that may come between. */
#include "tests/unit/endpoint_rig.h"

/* --- opening */

START_TEST(opened_by_one_used_by_both)
{
	struct user here, there;
	begin();
	use(&nodes[0], &here);
	ck_state(&here, rdma_endpoint_MAKING);
	ck_assert(!here.base.endpoint->usable);
	rig_pass(50 * MS);
	ck_assert_uint_eq(here.usable, 1);
	ck_state(&here, rdma_endpoint_READY);
	ck_assert(here.base.endpoint->peer_is_neap && here.base.endpoint->ever_usable);
	ck_assert_mem_eq(here.base.endpoint->peer_instance, nodes[1].instance, 16);
	ck_assert_uint_eq(here.base.endpoint->qp_count, 2);
	ck_assert_uint_eq(here.base.endpoint->mtu_bytes, SIM_MTU_BYTES);
	ck_assert_uint_eq(here.base.endpoint->depth, 8);
	use(&nodes[1], &there); /* the same pair of queue pairs */
	ck_assert(there.base.endpoint->usable);
	ck_assert_uint_eq(neap_rdma_endpoints_count(nodes[1].endpoints), 1);
	ck_carries(&nodes[0], &here);
	ck_carries(&nodes[1], &there);
	ck_assert_uint_eq(nodes[1].requests, 2); /* the list, and the ack */
	ck_assert_uint_eq(nodes[0].requests, 0);
	ck_assert_uint_eq(rig.sim.next_qp, 16 + 4);
	end();
	ck_assert_uint_eq(here.gone, 1);
	ck_assert_uint_eq(here.cause, NEAP_CAUSE_ENGINE_CLOSED);
}
END_TEST

int main(void)
{
	TCase *opening = tcase_create("opening");
	tcase_add_test(opening, opened_by_one_used_by_both);
	Suite *suite = suite_create("rdma_endpoint");
	suite_add_tcase(suite, opening);
	return rig_run(suite);
}
