#include "tests/support/coverage.h"

int support_reactor_destroy(struct neap_reactor *reactor)
{
	support_cover(neap_reactor_dispatcher(reactor));
	return neap_reactor_destroy(reactor);
}
