/* Transfers under every host. */
#include "tests/embed/embed_suite.h"

void embed_add_engine_tests(Suite *suite)
{
	(void)suite;
}
