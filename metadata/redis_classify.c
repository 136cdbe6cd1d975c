/* What the error replies of a Redis server mean. Pure. */
#include "metadata/json.h"
#include "metadata/redis.h"
#include <stdio.h>
#include <string.h>

static const struct {
	const char *begin;
	struct neap_redis_verdict verdict;
	const char *advice;
} rows[] = {
	{"NOAUTH", {NEAP_EREJECTED, true}, "it wants a password: set MC_REDIS_PASSWORD (redis_password)"},
	{"WRONGPASS", {NEAP_EREJECTED, true}, "check MC_REDIS_USERNAME and MC_REDIS_PASSWORD"},
	{"ERR invalid password", {NEAP_EREJECTED, true}, "check MC_REDIS_PASSWORD"},
	{"ERR AUTH", {NEAP_EREJECTED, true}, "the server has no password: unset MC_REDIS_PASSWORD, or check which server it is"},
	{"ERR Client sent AUTH", {NEAP_EREJECTED, true}, "the server has no password: unset MC_REDIS_PASSWORD"},
	{"ERR DB index", {NEAP_EREJECTED, false}, "check MC_REDIS_DB_INDEX (redis_database)"},
	{"NOPERM", {NEAP_EREJECTED, false}, "the user may not do this: its ACL needs GET, SET, DEL, EXISTS, PEXPIRE, PING, SELECT, "
	                                           "CLIENT and SUBSCRIBE on mooncake/*"},
	{"READONLY", {NEAP_EREJECTED, true}, "it is a replica that cannot be written: give the address of its primary"},
	{"MOVED", {NEAP_ENOTSUP, false}, "it is a node of a Redis Cluster: give one server without cluster mode"},
	{"ASK", {NEAP_ENOTSUP, false}, "it is a node of a Redis Cluster: give one server without cluster mode"},
	{"CROSSSLOT", {NEAP_ENOTSUP, false}, "it is a node of a Redis Cluster: give one server without cluster mode"},
	{"CLUSTERDOWN", {NEAP_ENOTSUP, false}, "it is a node of a Redis Cluster: give one server without cluster mode"},
	{"LOADING", {NEAP_EAGAIN, false}, "it is reading its data back in: wait"},
	{"MASTERDOWN", {NEAP_EAGAIN, false}, "it is a replica without its primary: wait, or give the primary's address"},
	{"BUSY", {NEAP_EAGAIN, false}, "it runs a script: wait"},
	{"ERR The client ID you want redirect to does not exist", {NEAP_EAGAIN, false}, "the connection for notices has ended"},
	{"TRYAGAIN", {NEAP_EAGAIN, false}, "try again"},
	{"OOM", {NEAP_ELIMIT, false}, "its memory is full: raise its maxmemory"},
	{"MISCONF", {NEAP_EREJECTED, false}, "it refuses writes because it cannot save: see its log"},
};

struct neap_redis_verdict neap_redis_classify(const struct neap_redis_reply *reply, char *why, size_t why_size)
{
	char text[120];
	if (reply->kind != NEAP_REDIS_ERROR) {
		(void)snprintf(why, why_size, "it answered with something that does not fit the question; is it a Redis server?");
		return (struct neap_redis_verdict){.error = NEAP_EPROTO, .reconnect = true};
	}
	neap_json_printable(reply->text, reply->length, text, sizeof text);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
		size_t length = strlen(rows[i].begin);
		bool ends = reply->length == length || (reply->length > length && (reply->text[length] == ' ' || strchr(rows[i].begin, ' ')));
		if (!ends || memcmp(reply->text, rows[i].begin, length) != 0)
			continue;
		(void)snprintf(why, why_size, "\"%s\": %s", text, rows[i].advice);
		return rows[i].verdict;
	}
	(void)snprintf(why, why_size, "\"%s\"", text);
	return (struct neap_redis_verdict){.error = NEAP_EREJECTED};
}
