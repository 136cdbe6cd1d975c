/* A Redis driver that records what passes through the one over hiredis, or plays it again. */
#ifndef SUPPORT_RECORD_REDIS_H
#define SUPPORT_RECORD_REDIS_H

#include "metadata/redis.h"
#include "tests/support/record_log.h"

#define RECORD_REDIS_WIRES 128u

struct record_redis {
	struct neap_redis_driver driver; /* first */
	struct record_log *log;
	struct record_wire {
		struct record_redis *redis;
		const struct neap_redis_events *events;
		void *user;
		struct neap_redis_wire *real; /* NULL: playing, or closed */
	} wires[RECORD_REDIS_WIRES];
	uint32_t count;
};

void record_redis_init(struct record_redis *redis, struct record_log *log);
/* Playing: an event of this driver is told. False: it is none. */
bool record_redis_play(struct record_redis *redis, const struct record_line *line);

#endif
