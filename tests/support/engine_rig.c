#include "tests/support/engine_rig.h"
#include "tests/support/drive.h"
#include "tests/support/small_engine.h"
#include "transports/engine_state.h"
#include <check.h>
#include <stdlib.h>
#include <string.h>

static unsigned char source[64];

void rig_closed(void *user)
{
	struct engine_rig *rig = user;
	rig->closed = true;
}

void rig_opened(void *user, int error, neap_segment_id segment, const char *why)
{
	struct engine_rig *rig = user;
	rig->opened = true;
	rig->opened_error = error;
	rig->opened_segment = segment;
	strncpy(rig->why, why ? why : "", sizeof rig->why - 1);
}

static void on_request(void *user, neap_batch_id batch, uint32_t index, void *request_user, const struct neap_outcome *outcome)
{
	struct engine_rig *rig = user;
	rig->requests++;
	rig->outcome = *outcome;
	rig->last_index = index;
	rig->last_batch = batch;
	rig->last_user = request_user;
	if (index < RIG_REQUESTS_MAX)
		rig->seen[index]++;
	if (rig->inside_request)
		rig->inside_request(rig);
}

static void on_batch(void *user, neap_batch_id batch, const struct neap_batch_summary *summary)
{
	struct engine_rig *rig = user;
	rig->batches++;
	rig->summary = *summary;
	rig->last_batch = batch;
	rig->finished = true;
	if (rig->inside_batch)
		rig->inside_batch(rig);
}

static void on_released(void *user, neap_batch_id batch, uint32_t index, void *request_user)
{
	struct engine_rig *rig = user;
	rig->released++;
	rig->last_batch = batch;
	rig->last_index = index;
	rig->last_user = request_user;
	if (rig->inside_released)
		rig->inside_released(rig);
}

struct neap_batch_options rig_options(struct engine_rig *rig, bool keep)
{
	return (struct neap_batch_options){.on_request = on_request, .on_batch = on_batch, .on_released = on_released, .user = rig,
	                                   .keep = keep};
}

void rig_begin(struct engine_rig *rig, const struct neap_engine_options *options)
{
	memset(rig, 0, sizeof *rig);
	ck_assert_int_eq(neap_reactor_create(&rig->reactor, NULL), 0);
	const struct neap_engine_options filled = small_engine(options);
	int error = neap_engine_create_with(&rig->engine, rig->reactor, &filled, fake_transport_make, rig->why, sizeof rig->why);
	ck_assert_msg(error == 0, "%s", rig->why);
	/* It is only read from and notified: small, for the sanitizers' sake. */
	const struct neap_engine_options small = {.requests_max = 64, .batches_max = 16, .peers_max = 16, .regions_max = 64, .grants_max = 16};
	ck_assert_int_eq(neap_engine_create_with(&rig->peer, rig->reactor, &small, fake_transport_make, rig->why, sizeof rig->why), 0);
	rig->fake = fake_transport_of(rig->engine);
	ck_assert_int_eq(neap_segment_open(rig->engine, neap_engine_name(rig->peer), rig_opened, rig), 0);
	ck_assert(!rig->opened);
	ck_assert(drive_until(rig->reactor, &rig->opened, 5000));
	ck_assert_msg(rig->opened_error == 0, "%s", rig->why);
	rig->segment = rig->opened_segment;
	rig->opened = false;
}

bool rig_until(struct engine_rig *rig, const bool *flag)
{
	return drive_until(rig->reactor, flag, 5000);
}

void rig_turn(struct engine_rig *rig)
{
	drive_turns(rig->reactor, 2);
}

void rig_end(struct engine_rig *rig)
{
	struct neap_engine *const engines[] = {rig->engine, rig->peer};
	for (int i = 0; i < 2; i++) {
		if (!engines[i])
			continue;
		rig->closed = false;
		int error = neap_engine_close(engines[i], rig_closed, rig);
		ck_assert(error == 0 || error == NEAP_ECLOSED);
		ck_assert(!rig->closed);
		ck_assert(error != 0 || drive_until(rig->reactor, &rig->closed, 5000));
	}
	drive_to_end(rig->reactor);
}

int rig_submit(struct engine_rig *rig, uint32_t count, uint64_t length, const struct neap_batch_options *options, neap_batch_id *batch_p)
{
	struct neap_request *requests = calloc(count ? count : 1, sizeof *requests);
	for (uint32_t i = 0; i < count; i++)
		requests[i] = (struct neap_request){.opcode = NEAP_WRITE, .source = source, .segment = rig->segment, .target_offset = 4096,
		                                    .length = length, .user = &requests[i]};
	int error = neap_submit(rig->engine, requests, count, options, batch_p);
	/* Copied: nobody may look here any more. */
	memset(requests, 0xff, count * sizeof *requests);
	free(requests);
	return error;
}
