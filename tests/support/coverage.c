#include "tests/support/coverage.h"
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* One write per block: with O_APPEND blocks of test processes that run side by side do not mix. */
static void write_block(int fd, const char *text, size_t length)
{
	if (length && write(fd, text, length) != (ssize_t)length)
		perror("NEAP_COVERAGE: write");
}

static void cover_class(int fd, const struct neap_machine_class *class_)
{
	static char block[256 * 1024];
	const struct neap_fsm *fsm = class_->fsm;
	size_t length = 0;
	for (uint8_t state = 0; state < fsm->state_count; state++)
		for (uint8_t event = 0; event < fsm->event_count; event++) {
			uint64_t hits = class_->hits[(size_t)state * fsm->event_count + event];
			if (!hits)
				continue;
			int added = snprintf(block + length, sizeof block - length, "%s %s %s %" PRIu64 "\n", fsm->name,
			                     fsm->states[state].name, fsm->event_names[event], hits);
			if (added < 0 || (size_t)added >= sizeof block - length) {
				write_block(fd, block, length);
				length = 0;
				event--;
				continue;
			}
			length += (size_t)added;
		}
	write_block(fd, block, length);
}

void support_cover(const struct neap_dispatcher *dispatcher)
{
	const char *path = getenv("NEAP_COVERAGE");
	if (!path || !*path)
		return;
	int fd = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
	if (fd < 0) {
		perror(path);
		return;
	}
	for (uint32_t i = 0; i < dispatcher->class_count; i++)
		cover_class(fd, dispatcher->classes[i]);
	close(fd);
}
