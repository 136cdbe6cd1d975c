/* The store's client process, and the command line that asks one. */
#include "apps/client/command.h"
#include "apps/client/daemon.h"
#include "apps/client/replay.h"
#include "apps/client/topology.h"
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
	int result;
	if (client_command(argc, argv, &result))
		return result;
	if (argc > 1 && !strcmp(argv[1], "replay"))
		return client_replay(argc - 1, argv + 1);
	if (argc > 1 && !strcmp(argv[1], "topology"))
		return client_topology(argc - 1, argv + 1);
	if (argc > 1 && argv[1][0] != '-') {
		fprintf(stderr, "neap-client: %s is no command; there are put, get, rm, exists, ls, stat, health, replay and topology, and "
		                "without one it serves (`neap-client --help`)\n", argv[1]);
		return CLIENT_USAGE;
	}
	return client_daemon(argc, argv);
}
