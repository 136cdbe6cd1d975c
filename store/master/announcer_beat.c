/* Heartbeats: each second, beside everything else, one at a time. */
#include "store/master/announcer_inside.h"
#include <string.h>

static void due(struct neap_timer *timer, void *user);

static void begin_wait(struct neap_announcer *announcer)
{
	(void)neap_timer_start(announcer->reactor, &announcer->beat.timer, announcer_after(announcer, announcer->options.heartbeat_ms), due,
	                       announcer);
}

/* The directory tells it until the removal is announced, so it is announced whether or not the value is still there. */
static void let_go(struct neap_announcer *announcer, const struct neap_key_heartbeat *beat)
{
	for (uint32_t i = 0; i < beat->lost_count && !announcer->leaving && !announcer->gone; i++) {
		const struct neap_key_lost *lost = &beat->lost[i];
		struct neap_announcement value = {.key = {beat->lost_text + lost->offset, lost->length},
		                                  .segment = lost->segment,
		                                  .generation = lost->generation};
		announcer->stats.lost++;
		announcer->options.withdraw(announcer->options.user, &value, NEAP_STORE_REPLICA_NUM_EXCEEDED);
		if (!announcer->gone)
			neap_announcer_withdrawn(announcer, value.key, value.segment, value.generation);
	}
}

/* What it says of a time before the last registration or the last full announcement is passed over. */
static void learn(struct neap_announcer *announcer, const struct neap_key_heartbeat *beat)
{
	bool known_since = announcer->beat.registrations != announcer->stats.registrations;
	bool told_since = announcer->beat.rounds != announcer->stats.rounds || announcer->round != 0;
	if (beat->status == NEAP_KEY_UNDEFINED) {
		if (!known_since)
			announcer_stranger(announcer);
		return;
	}
	if (!known_since && !told_since && (beat->announce_all || beat->epoch != announcer->epoch)) {
		announcer->epoch = beat->epoch;
		announcer_owe(announcer);
	}
	let_go(announcer, beat);
}

static void done(struct neap_key_call *call, int error)
{
	struct neap_announcer *announcer = call->user;
	announcer->beat.under_way = false;
	begin_wait(announcer);
	announcer->stats.reached = !error;
	if (error) {
		announcer->stats.beats_failed++;
		announcer_complain(announcer, "hear", error);
	} else {
		announcer_relieved(announcer);
		learn(announcer, &call->as.heartbeat);
	}
}

/* A directory that has gone is to be noticed within a few beats. */
static uint32_t patience_ms(const struct neap_announcer_options *options)
{
	uint32_t beats_ms = 3 * options->heartbeat_ms;
	beats_ms = beats_ms < 1000 ? 1000 : beats_ms;
	return beats_ms < options->call_ms ? beats_ms : options->call_ms;
}

static void due(struct neap_timer *timer, void *user)
{
	struct neap_announcer *announcer = user;
	struct announcer_beat *beat = &announcer->beat;
	const struct neap_announcer_options *options = &announcer->options;
	(void)timer;
	for (uint32_t i = 0; i < options->segment_count; i++)
		beat->usages[i] = (struct neap_key_usage){.segment = options->segments[i].id, .used = options->segments[i].used};
	if (options->usages)
		options->usages(options->user, beat->usages, options->segment_count);
	beat->call = (struct neap_key_call){.op = NEAP_KEY_OP_HEARTBEAT,
	                                    .deadline_ns = announcer_after(announcer, patience_ms(options)),
	                                    .done = done,
	                                    .user = announcer};
	beat->call.as.heartbeat = (struct neap_key_heartbeat){
		.client = options->client,
		.epoch_known = announcer->epoch,
		.usages = beat->usages,
		.usage_count = options->segment_count,
		.lost = beat->lost,
		.lost_max = LOST_A_BEAT,
		.lost_text = beat->lost_text,
		.lost_text_size = LOST_TEXT_A_BEAT,
	};
	beat->registrations = announcer->stats.registrations;
	beat->rounds = announcer->stats.rounds;
	beat->under_way = neap_key_begin(&options->directory, &beat->call) == NEAP_OK;
	if (beat->under_way) {
		announcer->stats.beats++;
	} else {
		announcer->stats.beats_failed++;
		begin_wait(announcer);
	}
}

void announcer_beat_begin(struct neap_announcer *announcer)
{
	if (announcer->beat.begun)
		return;
	announcer->beat.begun = true;
	begin_wait(announcer);
}

void announcer_beat_end(struct neap_announcer *announcer)
{
	if (announcer->beat.under_way)
		neap_key_cancel(&announcer->options.directory, &announcer->beat.call);
	announcer->beat.under_way = false;
	neap_timer_cancel(announcer->reactor, &announcer->beat.timer);
}
