/* HTTP of a neap-client, on loopback: metrics, health, and values for curl. */
#ifndef APPS_CLIENT_WEB_H
#define APPS_CLIENT_WEB_H

#include "apps/client/service.h"
#include "apps/common/http.h"

#define CLIENT_WEB_VALUE_MAX (UINT64_C(16) << 20) /* longer ones go through the command line */

struct client_web;

/* 0, or -1 with a sentence. */
int client_web_open(struct client_web **web_p, struct ev_loop *loop, struct neap_store *store, struct client_service *service,
                    uint16_t port, char *why, size_t why_size);
uint16_t client_web_port(const struct client_web *web);
/* Ends all connections; what the store has of them stays with it. NULL is fine. */
void client_web_close(struct client_web *web);
/* After the store was closed. NULL is fine. */
void client_web_free(struct client_web *web);

#endif
