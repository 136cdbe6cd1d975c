/* The choice of a path. Each pair of devices has a score, less is better; scores are compared field by field, and equal ones draw lots. */
#include "transports/topology/paths.h"
#include <string.h>

#define CLASSES 4u /* of distance: preferred or available, at each end */

struct score {
	struct neap_path path;
	uint32_t rank; /* what failed, then distance, then names */
	uint64_t bytes;
};

/* A number for each pair, another one for each question. The lowest of any set of pairs is evenly chosen, whoever else is paused. */
static uint64_t draw(uint64_t random, struct neap_path path)
{
	uint64_t value = random + ((uint64_t)path.local << 8 | path.remote) * UINT64_C(0x9e3779b97f4a7c15);
	value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
	return value ^ value >> 31;
}

static bool was_tried(const struct neap_path_question *question, struct neap_path path)
{
	for (uint32_t i = 0; i < question->tried_count; i++)
		if (question->tried[i].local == path.local && question->tried[i].remote == path.remote)
			return true;
	return false;
}

/* How many devices the path shares with the latest failure. */
static uint32_t shared(const struct neap_path_question *question, struct neap_path path)
{
	if (question->tried_count == 0)
		return 0;
	struct neap_path last = question->tried[question->tried_count - 1];
	return (uint32_t)(last.local == path.local) + (uint32_t)(last.remote == path.remote);
}

static uint32_t class_of(const struct neap_path_question *question, uint32_t at_local, uint32_t at_remote)
{
	return (at_local >= question->local->preferred ? 2u : 0u) + (at_remote >= question->remote->preferred ? 1u : 0u);
}

static struct score score_of(const struct neap_path_question *question, uint32_t at_local, uint32_t at_remote, struct neap_path path)
{
	bool other_name = question->same_name && strcmp(question->local->names[at_local], question->remote->names[at_remote]) != 0;
	struct score score = {.path = path};
	score.rank = was_tried(question, path);
	score.rank = score.rank * 3 + shared(question, path);
	score.rank = score.rank * CLASSES + class_of(question, at_local, at_remote);
	score.rank = score.rank * 2 + other_name;
	score.bytes = question->local_bytes ? question->local_bytes[path.local] : 0;
	uint64_t remote_bytes = question->remote_bytes ? question->remote_bytes[path.remote] : 0;
	score.bytes = score.bytes > UINT64_MAX - remote_bytes ? UINT64_MAX : score.bytes + remote_bytes;
	return score;
}

static bool is_better(const struct neap_path_question *question, const struct score *a, const struct score *b)
{
	if (a->rank != b->rank)
		return a->rank < b->rank;
	if (a->bytes != b->bytes)
		return a->bytes < b->bytes;
	return draw(question->random, a->path) < draw(question->random, b->path);
}

struct best {
	bool found;
	struct score score;
};

static void look_at(const struct neap_path_question *question, uint32_t at_local, uint32_t at_remote, struct best *best)
{
	struct neap_path path = {question->local->device[at_local], question->remote->device[at_remote]};
	struct score score = score_of(question, at_local, at_remote, path);
	if (best->found && !is_better(question, &score, &best->score))
		return;
	if (question->paused && question->paused(question->user, path))
		return;
	*best = (struct best){.found = true, .score = score};
}

/* All pairs of one class of distance. */
static void look_through(const struct neap_path_question *question, uint32_t class, struct best *best)
{
	const struct neap_path_side *local = question->local, *remote = question->remote;
	uint32_t local_end = class & 2 ? local->count : local->preferred, remote_end = class & 1 ? remote->count : remote->preferred;
	for (uint32_t i = class & 2 ? local->preferred : 0; i < local_end; i++)
		for (uint32_t k = class & 1 ? remote->preferred : 0; k < remote_end; k++)
			look_at(question, i, k, best);
}

bool neap_path_choose(const struct neap_path_question *question, struct neap_path *path_p)
{
	struct best best = {.found = false};
	/* Until something has failed the class comes first in the score, so that the first class with an answer has the best. */
	for (uint32_t class = 0; class < CLASSES && !(best.found && question->tried_count == 0); class++)
		look_through(question, class, &best);
	if (best.found)
		*path_p = best.score.path;
	return best.found;
}

/* --- all of them */

struct ranking {
	const struct neap_path_question *question;
	const struct neap_path *paths;
	uint32_t count;
};

static bool is_ranked_or_paused(void *user, struct neap_path path)
{
	const struct ranking *ranking = user;
	for (uint32_t i = 0; i < ranking->count; i++)
		if (ranking->paths[i].local == path.local && ranking->paths[i].remote == path.remote)
			return true;
	return ranking->question->paused && ranking->question->paused(ranking->question->user, path);
}

uint32_t neap_path_rank(const struct neap_path_question *question, struct neap_path *paths, uint32_t max)
{
	struct ranking ranking = {.question = question, .paths = paths};
	struct neap_path_question again = *question;
	again.paused = is_ranked_or_paused;
	again.user = &ranking;
	while (ranking.count < max && neap_path_choose(&again, &paths[ranking.count]))
		ranking.count++;
	return ranking.count;
}
