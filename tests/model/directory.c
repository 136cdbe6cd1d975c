/* The directory as far as owners and accessors can notice it: it accepts one owner's value of a key and refuses another's, forgets all when
 * it dies, and learns it again (store/directory/routes.c, recovery.c). What an owner knows of it (store/master/announcer*.c), and calls
 * that are answered only then (store/peer/service_settle.c). Of the first key; that a value goes is heard at once. */
#include "tests/model/world.h"

static bool is_differing(const struct step *step, uint8_t version, uint8_t other)
{
	return scenario_of(step)->sums && version != other;
}

/* --- calls that wait */

/* conclude_look() */
static void conclude_look(const struct wait *wait, uint8_t verdict, struct message *answer)
{
	if (verdict == KNOWN) {
		answer->version = wait->version;
		answer->created = wait->created;
	} else {
		answer->id = verdict == TOO_LATE; /* pending */
		answer->created = verdict == TOO_LATE && wait->created;
	}
}

/* conclude_put() */
static void conclude_put(const struct wait *wait, uint8_t verdict, struct message *answer)
{
	bool refused = verdict == REFUSED_SAME || verdict == REFUSED_OTHER;
	if (!wait->created && refused) {
		answer->status = PROCESSING;
	} else if (verdict == KNOWN || verdict == GONE) {
		answer->id = wait->id;
		answer->version = wait->version;
		answer->created = wait->created;
	} else {
		answer->status = verdict == TOO_LATE ? NOT_READY : verdict == REFUSED_SAME ? ELSEWHERE : DIFFERS;
	}
}

static void conclude_wait(struct step *step, uint8_t owner, uint8_t op, const struct wait *wait, uint8_t verdict)
{
	struct message answer = {.method = wait->method, .status = OK};
	if (wait->method == LOOK_UP)
		conclude_look(wait, verdict, &answer);
	else
		conclude_put(wait, verdict, &answer);
	owner_answer(step, owner, op, wait->serial, wait->attempt, &answer);
}

/* peer_settle(), peer_settle_call(), peer_settle_look(). A later call of the same process takes the place of one that nobody waits for. */
void answer_settled(struct step *step, uint8_t owner, uint8_t op, const struct wait *wait)
{
	if (key_at(step, owner, op)->known || !has(step, PUTS_SETTLE))
		conclude_wait(step, owner, op, wait, KNOWN);
	else
		step->world->owners[owner].waits[op] = *wait;
}

static void end_wait(struct step *step, uint8_t owner, uint8_t op, uint8_t verdict)
{
	struct wait *wait = &step->world->owners[owner].waits[op], ended = *wait;
	*wait = (struct wait){0};
	if (ended.method != NO_METHOD)
		conclude_wait(step, owner, op, &ended, verdict);
}

void wait_too_late(struct step *step, uint8_t owner, uint8_t op)
{
	end_wait(step, owner, op, TOO_LATE);
}

/* announcer_tell(): all who wait for the value that is there. */
void settle_verdict(struct step *step, uint8_t owner, uint8_t key, uint8_t verdict)
{
	struct world *world = step->world;
	uint8_t version = world->owners[owner].keys[key].version;
	if (verdict == GONE) /* removed before it was known: it was there for a moment, and nobody looked */
		publish_seen(step, key, version);
	if (verdict == KNOWN || verdict == GONE)
		for (uint32_t i = 0; i < OPS; i++)
			world->ops[i].accepted |= version == i + 1;
	for (uint8_t i = 0; i < OPS; i++) {
		if (scenario_of(step)->keys[i] != key)
			continue;
		if (world->owners[owner].waits[i].version == version)
			end_wait(step, owner, i, verdict);
		if (world->ops[i].settling && scenario_of(step)->here[i] == owner + 1)
			settled(step, i, verdict);
	}
}

/* peer_is_settled(), node_settled(): what the directory has not accepted is not to be read. */
bool is_settled(struct step *step, uint8_t owner, uint8_t op)
{
	const struct key *key = key_at(step, owner, op);
	return key->value == NONE || key->known || !has(step, READS_SETTLED);
}

/* --- announcements */

bool may_announce(const struct world *world, const struct setting *setting, uint8_t owner)
{
	const struct key *key = &world->owners[owner].keys[0];
	if (!setting->scenario->directory || key->value == NONE || key->answer)
		return false;
	if (key->known)
		return world->directory.route == NONE;
	bool later = world->directory.route == NONE && world->directory.recovering && !setting->without[RECOVERY]; /* REPLICA_IS_NOT_READY */
	return !later;
}

/* add() in routes.c. One that has a stamp is answered at once: nobody waits for that. */
void announce(struct step *step, uint8_t owner)
{
	struct directory *directory = &step->world->directory;
	struct key *key = &step->world->owners[owner].keys[0];
	uint8_t verdict = KNOWN;
	if (directory->route == NONE) {
		directory->route = owner;
		directory->version = key->version;
		publish_seen(step, 0, key->version);
		note(step, "directory: the key is at owner %u", owner);
	} else if (directory->route != owner) {
		verdict = is_differing(step, key->version, directory->version) ? REFUSED_OTHER : REFUSED_SAME;
		note(step, "directory: owner %u has the key, and owner %u is refused", directory->route, owner);
	}
	key->answer = key->known ? 0 : (uint8_t)(verdict + 1);
}

/* settle_add() in announcer.c */
void announced(struct step *step, uint8_t owner)
{
	struct key *key = &step->world->owners[owner].keys[0];
	uint8_t verdict = (uint8_t)(key->answer - 1);
	key->answer = 0;
	if (verdict == KNOWN) {
		check_accept(step, key->version);
		key->known = true;
		settle_verdict(step, owner, 0, KNOWN);
		return;
	}
	settle_verdict(step, owner, 0, verdict);
	for (uint32_t i = 0; i < OPS; i++) {
		const struct op *op = &step->world->ops[i];
		if (key->version == i + 1 && op->told && op->outcome == SUCCESS && op->created)
			violated(step, "S12", "a put was told SUCCESS, and the directory refuses its value");
	}
	key->version = NOTHING; /* whoever asked for it has his answer */
	key_withdraw(step, owner, 0);
}

/* --- its life */

/* An owner is not away for as long as the recovery lasts: all that were accepted are heard before it ends. */
bool may_recover(const struct world *world, const struct setting *setting)
{
	if (!world->directory.recovering)
		return false;
	for (uint32_t i = 0; i < setting->scenario->owners; i++)
		if (world->owners[i].keys[0].known && world->directory.route == NONE && !setting->without[RECOVERY])
			return false;
	return true;
}

void master_restart(struct step *step)
{
	step->world->directory = (struct directory){.route = NONE, .recovering = true};
	for (uint32_t i = 0; i < OWNERS; i++)
		step->world->owners[i].keys[0].answer = 0; /* it goes again */
}
