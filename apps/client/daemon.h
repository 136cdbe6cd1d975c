/* The program without a command: a store, its local service and its HTTP, until a signal. */
#ifndef APPS_CLIENT_DAEMON_H
#define APPS_CLIENT_DAEMON_H

int client_daemon(int argc, char **argv); /* an exit code */

#endif
