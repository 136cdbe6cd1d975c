/* `neap-client topology`: the devices of this machine and what is near what, as a transfer engine here would see it. Asks nobody else. */
#ifndef APPS_CLIENT_TOPOLOGY_H
#define APPS_CLIENT_TOPOLOGY_H

/* argv[0] is the command's word. Returns the exit code. */
int client_topology(int argc, char **argv);

#endif
