/* The announcer's calls, one at a time, and what their answers mean. */
#include "store/master/announcer.h"
#include "store/master/announcer_inside.h"
#include <string.h>

#define COMPLAINT_MS 60000u

static struct neap_announcer *announcer_of(const struct neap_machine *machine)
{
	return (struct neap_announcer *)(uintptr_t)((const char *)machine - offsetof(struct neap_announcer, machine));
}

void announcer_look(struct neap_announcer *announcer)
{
	if (announcer->gone)
		return;
	neap_ready_again(announcer->reactor, &announcer->look);
	neap_reactor_touch(announcer->reactor);
}

void announcer_owe(struct neap_announcer *announcer)
{
	announcer->owed = true;
	announcer_look(announcer);
}

void announcer_stranger(struct neap_announcer *announcer)
{
	announcer->unknown = true;
	announcer->round = 0;
	announcer_owe(announcer);
}

void neap_announcer_renew(struct neap_announcer *announcer)
{
	announcer_stranger(announcer); /* registering again is a small thing, and settles whose epoch it is */
}

/* --- later: what was put off, and the next full announcement after one that did not get all in --------------------------- */

static void later(struct neap_timer *timer, void *user)
{
	struct neap_announcer *announcer = user;
	(void)timer;
	announcer->later_runs = false;
	announcer_put_off(announcer);
	announcer_look(announcer);
}

static void look_later(struct neap_announcer *announcer)
{
	if (announcer->later_runs)
		return;
	announcer->later_runs =
		neap_timer_start(announcer->reactor, &announcer->later, announcer_after(announcer, announcer->options.later_ms), later,
	                     announcer) == NEAP_OK;
}

/* --- what to do next ---------------------------------------------------------------------------------------------------- */

static bool round_due(const struct neap_announcer *announcer)
{
	return announcer->owed && announcer->round == 0 && neap_now(announcer->reactor) >= announcer->round_after_ns;
}

static bool batch_due(const struct neap_announcer *announcer)
{
	uint32_t waiting = announcer->queue.places[ANNOUNCER_WAITING].count;
	return waiting >= announcer->options.batch_max || (announcer->urgent && waiting > 0);
}

static uint8_t next_step(const struct neap_announcer *announcer)
{
	if (announcer->unknown)
		return announcer_on_REGISTER;
	if (round_due(announcer))
		return announcer_on_ROUND;
	if (announcer->round && announcer->exhausted)
		return announcer_on_WALKED;
	if (announcer->round || batch_due(announcer))
		return announcer_on_BATCH;
	return announcer->queue.places[ANNOUNCER_WAITING].count ? announcer_on_CHANGED : announcer_on_QUIET;
}

static void look(struct neap_ready *ready)
{
	struct neap_announcer *announcer =
		(struct neap_announcer *)(void *)((char *)ready - offsetof(struct neap_announcer, look));
	announcer_run_ended(announcer);
	if (announcer->gone)
		return;
	if (announcer->left && announcer->closed) {
		void (*closed)(void *) = announcer->closed;
		announcer->closed = NULL;
		closed(announcer->closed_user);
	} else if (announcer->unknown || round_due(announcer)) {
		neap_step(&announcer->machine, announcer_on_LOOK, 0);
	} else if (batch_due(announcer)) {
		neap_step(&announcer->machine, announcer_on_NOW, 0);
	} else if (announcer->queue.places[ANNOUNCER_WAITING].count > 0) {
		neap_step(&announcer->machine, announcer_on_CHANGED, 0);
	}
}

static void do_choose(struct neap_machine *machine, uint64_t argument)
{
	(void)argument;
	(void)neap_post_first(machine, next_step(announcer_of(machine)), 0);
}

/* --- calls -------------------------------------------------------------------------------------------------------------- */

static void begin_call(struct neap_announcer *announcer, enum neap_key_op op, void (*done)(struct neap_key_call *call, int error))
{
	struct neap_key_call *call = &announcer->call;
	call->op = op;
	call->done = done;
	call->user = announcer;
	call->deadline_ns = announcer_after(announcer, announcer->options.call_ms);
	announcer->under_way = neap_key_begin(&announcer->options.directory, call) == NEAP_OK;
	if (!announcer->under_way) {
		announcer->failures++;
		announcer->stats.failed++;
		(void)neap_post(&announcer->machine, announcer_on_FAILED, 0);
	}
}

/* The machine learns of the end. CLIENT_NOT_FOUND: register, everything anew. INVALID_VERSION: the round is not the present one. */
static void end_call(struct neap_announcer *announcer, int error)
{
	announcer->under_way = false;
	if (error == NEAP_STORE_CLIENT_NOT_FOUND)
		announcer_stranger(announcer);
	if (error == NEAP_STORE_INVALID_VERSION && announcer->round) {
		announcer->round = 0;
		announcer_owe(announcer);
	}
	announcer->failures = error ? announcer->failures + 1 : 0;
	announcer->stats.failed += error != NEAP_OK;
	neap_step(&announcer->machine, error ? announcer_on_FAILED : announcer_on_ANSWERED, 0);
}

static bool holds(const struct neap_announcer *announcer)
{
	struct neap_announcer_cursor cursor = {0, 0};
	struct neap_announcement value;
	return announcer->options.next(announcer->options.user, &cursor, &value);
}

void announcer_complain(struct neap_announcer *announcer, const char *what_not, int error)
{
	const char *at = announcer->options.at;
	const char *what = error == NEAP_STORE_RPC_FAIL ? "it is not reached"
	                   : error > NEAP_EAGAIN        ? neap_store_error_text(error)
	                                                : neap_error_text(error);
	if (announcer->complained_of == error && neap_now(announcer->reactor) < announcer->quiet_until_ns)
		return;
	announcer->complained_of = error;
	announcer->quiet_until_ns = announcer_after(announcer, COMPLAINT_MS);
	neap_log(announcer->reactor, NEAP_LOG_WARNING, "announcer", "the directory%s%s does not %s this client: %s; it is being tried on",
	         at ? " at " : "", at ? at : "", what_not, what);
}

void announcer_relieved(struct neap_announcer *announcer)
{
	const char *at = announcer->options.at;
	if (announcer->complained_of)
		neap_log(announcer->reactor, NEAP_LOG_INFO, "announcer", "the directory%s%s hears this client again", at ? " at " : "",
		         at ? at : "");
	announcer->complained_of = 0;
}

static void enrolled(struct neap_key_call *call, int error)
{
	struct neap_announcer *announcer = call->user;
	const struct neap_key_register *answer = &call->as.register_;
	if (!error) {
		announcer->unknown = false;
		announcer_relieved(announcer);
		announcer->stats.registrations++;
		announcer->stats.registered = true;
		announcer->owed = announcer->owed || answer->announce_all;
		announcer->epoch = answer->epoch;
		announcer_beat_begin(announcer);
	} else {
		announcer_complain(announcer, "register", error);
	}
	end_call(announcer, error);
}

static void do_enroll(struct neap_machine *machine, uint64_t argument)
{
	struct neap_announcer *announcer = announcer_of(machine);
	const struct neap_announcer_options *options = &announcer->options;
	(void)argument;
	announcer->call.as.register_ = (struct neap_key_register){
		.client = options->client,
		.start = options->start,
		.port = options->port,
		.holds = holds(announcer),
		.segments = options->segments,
		.segment_count = options->segment_count,
	};
	memcpy(announcer->call.as.register_.host, options->host, sizeof options->host);
	begin_call(announcer, NEAP_KEY_OP_REGISTER, enrolled);
}

static void round_begun(struct neap_key_call *call, int error)
{
	struct neap_announcer *announcer = call->user;
	if (!error && !announcer->unknown) { /* else it is a round of the time before */
		announcer->round = call->as.round.round;
		announcer->owed = announcer->exhausted = false;
		announcer->cursor = (struct neap_announcer_cursor){0, 0};
		announcer->stats.rounds_begun++;
	}
	end_call(announcer, error);
}

static void do_begin_round(struct neap_machine *machine, uint64_t argument)
{
	struct neap_announcer *announcer = announcer_of(machine);
	(void)argument;
	announcer->call.as.round = (struct neap_key_round){.client = announcer->options.client};
	begin_call(announcer, NEAP_KEY_OP_ROUND_BEGIN, round_begun);
}

static void round_ended(struct neap_key_call *call, int error)
{
	struct neap_announcer *announcer = call->user;
	if (!error && announcer->round) {
		announcer->round = 0;
		announcer->stats.rounds++;
		if (announcer->owed) { /* not all got in: not again at once */
			announcer->round_after_ns = announcer_after(announcer, announcer->options.later_ms);
			look_later(announcer);
		}
	}
	end_call(announcer, error);
}

static void do_end_round(struct neap_machine *machine, uint64_t argument)
{
	struct neap_announcer *announcer = announcer_of(machine);
	(void)argument;
	announcer->call.as.round = (struct neap_key_round){.client = announcer->options.client, .round = announcer->round};
	begin_call(announcer, NEAP_KEY_OP_ROUND_END, round_ended);
}

/* --- batches ------------------------------------------------------------------------------------------------------------ */

/* False: no room for the key. */
static bool put(struct neap_announcer *announcer, const struct neap_announcement *value, uint64_t hash, enum neap_key_change_kind kind,
                bool walked)
{
	const struct announcer_stamp *stamp = announcer_stamp_of(announcer, hash, value->generation);
	char *text = announcer->text + announcer->text_used;
	if (value->key.length > announcer->options.batch_bytes - announcer->text_used)
		return false;
	memcpy(text, value->key.text, value->key.length);
	announcer->text_used += value->key.length;
	announcer->walked[announcer->count] = walked;
	announcer->changes[announcer->count++] = (struct neap_key_change){
		.kind = kind,
		.key = {text, value->key.length},
		.segment = value->segment,
		.size = value->size,
		.generation = value->generation,
		.crc = value->crc,
		.has_crc = value->has_crc,
		.stamp = stamp && kind == NEAP_KEY_ADD ? stamp->stamp : (struct neap_key_stamp){0, 0},
	};
	return true;
}

/* A removal of what has moved goes behind its new route, so that there is one at every moment: into the same batch, or later. */
static bool is_early(struct neap_announcer *announcer, struct announcer_entry *entry)
{
	const struct announcer_entry *route = NULL;
	if (entry->follows)
		route = announcer_find(announcer, announcer_hash(announcer, entry->value.key, entry->to), entry->value.key, entry->to);
	if (!route || route->kind != NEAP_KEY_ADD || route->value.generation != entry->value.generation || route->place == ANNOUNCER_SENT)
		return false;
	announcer_move(announcer, entry, route->place);
	return true;
}

static void fill_from_queue(struct neap_announcer *announcer, uint32_t most)
{
	const struct announcer_list *waiting = &announcer->queue.places[ANNOUNCER_WAITING];
	while (waiting->first && announcer->count < most) {
		struct announcer_entry *entry = waiting->first;
		if (is_early(announcer, entry))
			continue;
		if (!put(announcer, &entry->value, entry->hash, entry->kind, false))
			return;
		entry->again = false;
		announcer_move(announcer, entry, ANNOUNCER_SENT);
	}
}

static void fill_from_walk(struct neap_announcer *announcer)
{
	struct neap_announcement value;
	while (announcer->count < announcer->options.batch_max) {
		struct neap_announcer_cursor before = announcer->cursor;
		if (!announcer->options.next(announcer->options.user, &announcer->cursor, &value)) {
			announcer->exhausted = true;
			return;
		}
		if (value.key.length == 0 || value.key.length > ANNOUNCER_KEY_MAX)
			continue;
		if (!put(announcer, &value, announcer_hash(announcer, value.key, value.segment), NEAP_KEY_ADD, true)) {
			announcer->cursor = before;
			return;
		}
	}
}

/* The directory cannot say yet, or not now. */
static bool is_for_later(int error)
{
	return error == NEAP_STORE_REPLICA_IS_NOT_READY || error == NEAP_STORE_CLIENT_UNHEALTHY || error == NEAP_STORE_KEYS_ULTRA_LIMIT ||
	       error == NEAP_STORE_SEGMENT_NOT_FOUND || error == NEAP_STORE_CLIENT_NOT_FOUND;
}

static struct neap_announcement value_of(const struct neap_key_change *change)
{
	return (struct neap_announcement){.key = change->key,
	                                  .segment = change->segment,
	                                  .size = change->size,
	                                  .generation = change->generation,
	                                  .crc = change->crc,
	                                  .has_crc = change->has_crc};
}

/* The item that was sent is through, or goes again: what has changed since at once, what was put off later. An item of the walk gives
 * way to an entry, which is newer, and to the next round when one is owed: the removal of it may have found the queue full. */
static void settle_entry(struct neap_announcer *announcer, const struct neap_key_change *change, uint64_t hash, bool walked, bool again)
{
	struct announcer_entry *entry = announcer_find(announcer, hash, change->key, change->segment);
	if (walked) {
		struct neap_announcement value = value_of(change);
		if (again && !entry && !announcer->owed)
			(void)announcer_add(announcer, hash, &value, NEAP_KEY_ADD, ANNOUNCER_LATER);
	} else if (entry->again) {
		announcer_move(announcer, entry, ANNOUNCER_WAITING);
	} else if (again) {
		announcer_move(announcer, entry, ANNOUNCER_LATER);
	} else {
		announcer_drop(announcer, entry);
	}
}

static bool withdrawn_since(const struct neap_announcer *announcer, const struct neap_key_change *change, uint64_t hash, bool walked)
{
	const struct announcer_entry *entry = announcer_find(announcer, hash, change->key, change->segment);
	return (walked && announcer->owed) || (entry && entry->kind == NEAP_KEY_REMOVE && entry->value.generation >= change->generation);
}

static void settle_add(struct neap_announcer *announcer, const struct neap_key_change *change, uint64_t hash, bool walked)
{
	int error = change->error;
	bool accepted = error == NEAP_STORE_OK || error == NEAP_STORE_REPLICA_ALREADY_EXISTS;
	bool again = is_for_later(error), forget = withdrawn_since(announcer, change, hash, walked);
	settle_entry(announcer, change, hash, walked, again);
	if (error == NEAP_STORE_SEGMENT_NOT_FOUND)
		announcer->unknown = true; /* registering mounts it */
	if (again) {
		announcer->stats.put_off++;
		look_later(announcer);
		return;
	}
	announcer->stats.accepted += accepted;
	if (accepted && !forget)
		announcer_stamp_keep(announcer, hash, change->generation, change->stamp);
	announcer_tell(announcer, hash, change->key, change->segment, change->generation, false, accepted ? NEAP_STORE_OK : error);
	if (accepted || error == NEAP_STORE_CAS_FAILED) /* CAS_FAILED: a later value is there, so this one is gone */
		return;
	struct neap_announcement value = value_of(change);
	announcer->stats.lost++;
	announcer_stamp_forget(announcer, hash, change->generation);
	announcer->options.withdraw(announcer->options.user, &value, error);
}

static void settle_remove(struct neap_announcer *announcer, const struct neap_key_change *change, uint64_t hash)
{
	bool again = is_for_later(change->error);
	settle_entry(announcer, change, hash, false, again);
	announcer->stats.removed += !again;
	announcer->stats.put_off += again;
	if (again)
		look_later(announcer);
}

static void settle(struct neap_announcer *announcer)
{
	for (uint32_t i = 0; i < announcer->count && !announcer->gone; i++) {
		const struct neap_key_change *change = &announcer->changes[i];
		uint64_t hash = announcer_hash(announcer, change->key, change->segment);
		if (change->kind == NEAP_KEY_ADD)
			settle_add(announcer, change, hash, announcer->walked[i]);
		else
			settle_remove(announcer, change, hash);
	}
}

/* As if it had not been sent: the walk is at its begin again. */
static void take_back(struct neap_announcer *announcer)
{
	struct announcer_list *sent = &announcer->queue.places[ANNOUNCER_SENT];
	while (sent->first)
		announcer_move(announcer, sent->first, ANNOUNCER_WAITING);
	announcer->cursor = announcer->cursor_before;
	announcer->exhausted = false;
}

static void batch_done(struct neap_key_call *call, int error)
{
	struct neap_announcer *announcer = call->user;
	announcer->under_way = false; /* an item's `withdraw` may close this */
	if (error)
		take_back(announcer);
	else
		settle(announcer);
	announcer->count = 0;
	if (!announcer->gone && !announcer->leaving) /* `withdraw` may have closed it */
		end_call(announcer, error);
}

static void do_send(struct neap_machine *machine, uint64_t argument)
{
	struct neap_announcer *announcer = announcer_of(machine);
	bool walks = announcer->round != 0 && !announcer->exhausted;
	(void)argument;
	announcer->count = announcer->text_used = 0;
	announcer->cursor_before = announcer->cursor;
	announcer->urgent = false;
	fill_from_queue(announcer, walks ? announcer->options.batch_max / 2 : announcer->options.batch_max);
	if (walks)
		fill_from_walk(announcer);
	if (announcer->count == 0) { /* the walk had nothing more */
		(void)neap_post(machine, announcer_on_ANSWERED, 0);
		return;
	}
	announcer->stats.batches++;
	announcer->stats.items += announcer->count;
	announcer->call.as.announce = (struct neap_key_announce){
		.client = announcer->options.client,
		.number = ++announcer->number,
		.round = announcer->round,
		.changes = announcer->changes,
		.count = announcer->count,
	};
	begin_call(announcer, NEAP_KEY_OP_ANNOUNCE, batch_done);
	if (!announcer->under_way) {
		take_back(announcer);
		announcer->count = 0;
	}
}

/* --- the end ------------------------------------------------------------------------------------------------------------ */

static void said_farewell(struct neap_key_call *call, int error)
{
	end_call(call->user, error);
}

static void stop_calls(struct neap_announcer *announcer)
{
	if (announcer->under_way)
		neap_key_cancel(&announcer->options.directory, &announcer->call);
	announcer->under_way = false;
	announcer_beat_end(announcer);
	neap_timer_cancel(announcer->reactor, &announcer->later);
}

static void do_leave(struct neap_machine *machine, uint64_t argument)
{
	struct neap_announcer *announcer = announcer_of(machine);
	(void)argument;
	stop_calls(announcer);
	announcer->call.as.unregister = (struct neap_key_unregister){.client = announcer->options.client};
	begin_call(announcer, NEAP_KEY_OP_UNREGISTER, said_farewell);
}

static void do_close(struct neap_machine *machine, uint64_t argument)
{
	struct neap_announcer *announcer = announcer_of(machine);
	(void)argument;
	announcer->left = true;
	announcer_tell_all(announcer, NEAP_ECLOSED);
	announcer_look(announcer);
}

static neap_action_func *const actions[] = {
	[announcer_do_enroll] = do_enroll, [announcer_do_choose] = do_choose,       [announcer_do_send] = do_send,
	[announcer_do_begin_round] = do_begin_round, [announcer_do_end_round] = do_end_round, [announcer_do_leave] = do_leave,
	[announcer_do_close] = do_close,
};

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_announcer *announcer = announcer_of(machine);
	const struct neap_announcer_options *options = &announcer->options;
	uint64_t ms = options->gather_ms;
	if (timeout_class == announcer_timeout_PAUSE) {
		ms = options->pause_min_ms;
		for (uint32_t i = 1; i < announcer->failures && ms < options->pause_max_ms; i++)
			ms *= 2;
		ms = ms < options->pause_max_ms ? ms : options->pause_max_ms;
	}
	return now_ns + ms * UINT64_C(1000000);
}

/* In production: the event is dropped, the state and its deadline stay. */
static void broken(struct neap_machine *machine, uint8_t event)
{
	(void)machine;
	(void)event;
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_announcer,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_announcer),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- life --------------------------------------------------------------------------------------------------------------- */

static void release(struct neap_announcer *announcer)
{
	const struct neap_announcer_options *options = &announcer->options;
	announcer_queue_close(announcer);
	announcer_stamps_close(announcer);
	if (announcer->changes)
		neap_release(announcer->reactor, announcer->changes, options->batch_max * sizeof *announcer->changes);
	if (announcer->walked)
		neap_release(announcer->reactor, announcer->walked, options->batch_max * sizeof *announcer->walked);
	if (announcer->text)
		neap_release(announcer->reactor, announcer->text, options->batch_bytes);
	neap_release(announcer->reactor, announcer, sizeof *announcer);
}

static void set_default(uint32_t *number, uint32_t usual)
{
	if (*number == 0)
		*number = usual;
}

static int fill(struct neap_announcer_options *options)
{
	set_default(&options->batch_max, NEAP_MASTER_BATCH_MAX);
	set_default(&options->batch_bytes, 1u << 20);
	set_default(&options->queue_max, 65536);
	set_default(&options->long_keys_max, 4096);
	set_default(&options->stamps_max, 1u << 20);
	set_default(&options->gather_ms, 20);
	set_default(&options->heartbeat_ms, 1000);
	set_default(&options->call_ms, 5000);
	set_default(&options->pause_min_ms, 20);
	set_default(&options->pause_max_ms, 1000);
	set_default(&options->later_ms, 200);
	bool good = options->next && options->withdraw && options->batch_max <= NEAP_MASTER_BATCH_MAX &&
	            options->batch_bytes >= ANNOUNCER_KEY_MAX && options->queue_max <= 1u << 28 && options->stamps_max <= 1u << 28 &&
	            options->segment_count <= NEAP_MASTER_SEGMENTS_MAX;
	return good ? NEAP_OK : NEAP_EINVAL;
}

static int build(struct neap_announcer *announcer)
{
	struct neap_reactor *reactor = announcer->reactor;
	const struct neap_announcer_options *options = &announcer->options;
	struct neap_reactor_class *class_ = NULL;
	announcer->changes = neap_allocate(reactor, options->batch_max * sizeof *announcer->changes);
	announcer->walked = neap_allocate(reactor, options->batch_max * sizeof *announcer->walked);
	announcer->text = neap_allocate(reactor, options->batch_bytes);
	int error = announcer->changes && announcer->walked && announcer->text ? NEAP_OK : NEAP_ENOMEM;
	if (!error)
		error = announcer_queue_open(announcer);
	if (!error)
		error = announcer_stamps_open(announcer);
	if (!error)
		error = neap_reactor_class_of(reactor, &kind, &class_);
	if (!error)
		neap_machine_begin(&announcer->machine, &class_->class_);
	return error;
}

int neap_announcer_create(struct neap_announcer **announcer_p, struct neap_reactor *reactor,
                          const struct neap_announcer_options *options)
{
	struct neap_announcer_options filled = *options;
	int error = fill(&filled);
	*announcer_p = NULL;
	if (error)
		return error;
	struct neap_announcer *announcer = neap_allocate(reactor, sizeof *announcer);
	if (!announcer)
		return NEAP_ENOMEM;
	announcer->reactor = reactor;
	announcer->options = filled;
	announcer->seed = neap_random_u64(reactor);
	announcer->look.run = look;
	announcer->unknown = true;
	error = build(announcer);
	if (error) {
		release(announcer);
		return error;
	}
	announcer->dependent.what = "an announcer";
	neap_reactor_attach(reactor, &announcer->dependent);
	*announcer_p = announcer;
	return NEAP_OK;
}

void neap_announcer_start(struct neap_announcer *announcer)
{
	neap_step(&announcer->machine, announcer_on_START, 0);
}

void neap_announcer_close(struct neap_announcer *announcer, void (*closed)(void *user), void *user)
{
	if (announcer->leaving || announcer->gone)
		return;
	announcer->leaving = true;
	announcer->closed = closed;
	announcer->closed_user = user;
	neap_step(&announcer->machine, announcer_on_CLOSE, 0);
}

static void reap(struct neap_reap *reap_)
{
	struct neap_announcer *announcer = (struct neap_announcer *)(void *)((char *)reap_ - offsetof(struct neap_announcer, reap));
	neap_reactor_detach(announcer->reactor, &announcer->dependent);
	release(announcer);
}

void neap_announcer_destroy(struct neap_announcer *announcer)
{
	if (!announcer || announcer->gone)
		return;
	announcer_tell_all(announcer, NEAP_ECLOSED);
	while (announcer->ended)
		neap_announcer_forget(announcer->ended);
	announcer->gone = true;
	stop_calls(announcer);
	neap_machine_end(&announcer->machine);
	neap_ready_cancel(announcer->reactor, &announcer->look);
	announcer->reap.reap = reap;
	neap_reap_later(announcer->reactor, &announcer->reap);
}

void neap_announcer_stats(const struct neap_announcer *announcer, struct neap_announcer_stats *stats_p)
{
	*stats_p = announcer->stats;
	stats_p->queued = announcer->queue.entries.used;
	stats_p->stamps = announcer->stamps.used;
	stats_p->owes_all = announcer->owed || announcer->round != 0;
	stats_p->registered = announcer->stats.registered && !announcer->unknown;
}

const char *neap_announcer_check(const struct neap_announcer *announcer)
{
	const struct announcer_list *places = announcer->queue.places;
	if (places[ANNOUNCER_WAITING].count + places[ANNOUNCER_LATER].count + places[ANNOUNCER_SENT].count != announcer->queue.entries.used)
		return "an entry is in no list";
	if (places[ANNOUNCER_SENT].count > announcer->count)
		return "an entry counts as sent and is in no batch";
	return NULL;
}
