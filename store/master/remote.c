#include "store/master/remote.h"
#include "reactor/pool.h"
#include "store/master/codec.h"
#include "store/master/service.h"
#include <string.h>

#define MS_NS UINT64_C(1000000)
#define SCRATCH_BYTES (1u << 20)

/* A call on its way. Outlives a canceled neap_key_call until the RPC has ended it. */
struct remote_call {
	struct neap_key_call *call; /* NULL: canceled */
	struct neap_remote_directory *remote;
	uint64_t rpc;
};

struct neap_remote_directory {
	struct neap_reactor *reactor;
	struct neap_key_directory face;
	struct neap_remote_directory_options options;
	struct neap_remote_directory_stats stats;
	struct neap_rpc_client *client;
	struct neap_rpc_channel *beats, *rest;
	struct neap_pool calls;
	unsigned char *scratch;
	uint8_t master[16]; /* who welcomed us last */
	uint64_t epoch;
	struct neap_dependent dependent;
	struct neap_reap reap;
	bool closing;
};

/* --- ends --------------------------------------------------------------------------------------------------------------- */

static int error_of(const struct neap_rpc_outcome *outcome)
{
	switch (outcome->result) {
	case NEAP_RPC_OK:
		return NEAP_OK;
	case NEAP_RPC_REFUSED:
		if (outcome->status > NEAP_EAGAIN || outcome->status == NEAP_ETIMEDOUT)
			return outcome->status;
		return NEAP_STORE_RPC_FAIL;
	case NEAP_RPC_DEADLINE:
		return NEAP_ETIMEDOUT;
	case NEAP_RPC_CLOSED:
		return NEAP_ECLOSED;
	case NEAP_RPC_CANCELED:
	case NEAP_RPC_NOT_SENT:
	case NEAP_RPC_UNKNOWN:
		break;
	}
	return NEAP_STORE_RPC_FAIL;
}

/* A directory that timed out or was canceled in the middle of a batch has done a part of it. */
static enum neap_key_effect effect_of(const struct neap_rpc_outcome *outcome)
{
	bool no_room = outcome->result == NEAP_RPC_REFUSED && outcome->status == NEAP_EAGAIN;
	if (outcome->executed == NEAP_RPC_NOT_EXECUTED || no_room)
		return NEAP_KEY_EFFECT_NONE;
	bool answered = outcome->result == NEAP_RPC_OK || (outcome->result == NEAP_RPC_REFUSED && outcome->status > NEAP_EAGAIN);
	return answered && outcome->executed == NEAP_RPC_EXECUTED ? NEAP_KEY_EFFECT_DONE : NEAP_KEY_EFFECT_PERHAPS;
}

static struct neap_key_call *let_go(struct remote_call *mine)
{
	struct neap_key_call *call = mine->call;
	neap_pool_give(&mine->remote->calls, mine);
	if (call)
		call->list = call->extra = NULL;
	return call;
}

/* A batch that was refused as a whole: each of its items was. */
static void fail_items(struct neap_key_call *call, int error)
{
	if (call->op == NEAP_KEY_OP_ANNOUNCE)
		for (uint32_t i = 0; i < call->as.announce.count; i++)
			call->as.announce.changes[i].error = error;
	else if (call->op == NEAP_KEY_OP_WRITE_ROUTES)
		for (uint32_t i = 0; i < call->as.write_routes.count; i++)
			call->as.write_routes.items[i].error = error;
}

static void ended(void *user, const struct neap_rpc_outcome *outcome, const void *reply)
{
	struct remote_call *mine = user;
	struct neap_remote_directory *remote = mine->remote;
	struct neap_key_call *call = let_go(mine);
	if (!call)
		return;
	int error = reply ? neap_master_codecs[call->op].learn(call, reply) : error_of(outcome);
	call->effect = effect_of(outcome);
	remote->stats.failed += error == NEAP_STORE_RPC_FAIL;
	remote->stats.timed_out += error == NEAP_ETIMEDOUT;
	if (error)
		fail_items(call, error);
	call->done(call, error);
}

/* --- the interface ------------------------------------------------------------------------------------------------------ */

static int send_call(struct neap_remote_directory *remote, struct remote_call *mine, uint64_t timeout_ns)
{
	const struct neap_master_codec *codec = &neap_master_codecs[mine->call->op];
	struct neap_master_arena arena = {.at = remote->scratch, .left = SCRATCH_BYTES};
	struct neap_rpc_channel *channel = mine->call->op == NEAP_KEY_OP_HEARTBEAT ? remote->beats : remote->rest;
	union neap_master_body body = {.align = 0};
	int error = codec->ask(mine->call, &arena, body.bytes);
	return error ? error : neap_rpc_call(channel, codec->method, body.bytes, timeout_ns, NULL, ended, mine, &mine->rpc);
}

static int begin(void *directory, struct neap_key_call *call)
{
	struct neap_remote_directory *remote = directory;
	uint64_t now_ns = neap_now(remote->reactor);
	if (remote->closing)
		return NEAP_ECLOSED;
	if ((unsigned)call->op >= NEAP_KEY_OPS || !call->done || call->list || (call->deadline_ns && call->deadline_ns <= now_ns))
		return NEAP_EINVAL;
	struct remote_call *mine = neap_pool_take(&remote->calls);
	if (!mine)
		return NEAP_EAGAIN;
	*mine = (struct remote_call){.call = call, .remote = remote};
	int error = send_call(remote, mine, call->deadline_ns ? call->deadline_ns - now_ns : remote->options.call_timeout_ms * MS_NS);
	if (error) {
		neap_pool_give(&remote->calls, mine);
		return error;
	}
	remote->stats.calls++;
	call->list = remote;
	call->extra = mine;
	call->effect = NEAP_KEY_EFFECT_PERHAPS;
	return NEAP_OK;
}

static void cancel(void *directory, struct neap_key_call *call)
{
	struct neap_remote_directory *remote = directory;
	struct remote_call *mine = call->extra;
	if (call->list != remote || !mine)
		return;
	remote->stats.canceled++;
	call->list = call->extra = NULL;
	mine->call = NULL;
	if (!remote->closing) /* else its record goes with the others */
		neap_rpc_cancel(remote->client, mine->rpc);
}

static void welcomed(void *user, const uint8_t instance[16], uint64_t epoch)
{
	struct neap_remote_directory *remote = user;
	bool another = memcmp(remote->master, instance, sizeof remote->master) != 0 || remote->epoch != epoch;
	bool first = remote->stats.welcomes++ == 0;
	memcpy(remote->master, instance, sizeof remote->master);
	remote->epoch = epoch;
	remote->stats.masters += another;
	if (!first && remote->options.welcomed && !remote->closing)
		remote->options.welcomed(remote->options.user, another, epoch);
}

/* --- life --------------------------------------------------------------------------------------------------------------- */

static void release(struct neap_remote_directory *remote)
{
	neap_pool_destroy(&remote->calls);
	if (remote->scratch)
		neap_release(remote->reactor, remote->scratch, SCRATCH_BYTES);
	neap_release(remote->reactor, remote, sizeof *remote);
}

static void fill(struct neap_remote_directory *remote)
{
	struct neap_remote_directory_options *o = &remote->options;
	uint8_t any = 0;
	o->lane = o->lane ? o->lane : 1;
	o->calls_max = o->calls_max ? o->calls_max : 256;
	o->call_timeout_ms = o->call_timeout_ms ? o->call_timeout_ms : 5000;
	o->rpc.channels_max = 4; /* closed ones included until their turn */
	o->rpc.calls_max = o->rpc.calls_max ? o->rpc.calls_max : o->calls_max;
	for (unsigned i = 0; i < sizeof o->rpc.instance; i++)
		any |= o->rpc.instance[i];
	if (!any)
		neap_random_fill(remote->reactor, o->rpc.instance, sizeof o->rpc.instance);
}

static int open_channels(struct neap_remote_directory *remote)
{
	const struct neap_remote_directory_options *o = &remote->options;
	struct neap_rpc_channel_options rest = {
		.server = o->master, .lane = o->lane, .calls_max = o->calls_max, .welcomed = welcomed, .user = remote};
	struct neap_rpc_channel_options beats = {.server = o->master, .calls_max = 16};
	int error = neap_rpc_client_create(&remote->client, remote->reactor, &o->rpc);
	if (!error)
		error = neap_rpc_channel_open(&remote->rest, remote->client, &rest);
	if (!error)
		error = neap_rpc_channel_open(&remote->beats, remote->client, &beats);
	return error;
}

int neap_remote_directory_create(struct neap_remote_directory **remote_p, struct neap_reactor *reactor,
                                 const struct neap_remote_directory_options *options)
{
	struct neap_remote_directory *remote = neap_allocate(reactor, sizeof *remote);
	*remote_p = NULL;
	if (!remote)
		return NEAP_ENOMEM;
	remote->reactor = reactor;
	remote->options = *options;
	remote->face = (struct neap_key_directory){.begin = begin, .cancel = cancel, .directory = remote};
	fill(remote);
	int error = neap_pool_create(&remote->calls, reactor, sizeof(struct remote_call), remote->options.calls_max);
	if (!error && !(remote->scratch = neap_allocate(reactor, SCRATCH_BYTES)))
		error = NEAP_ENOMEM;
	if (!error)
		error = open_channels(remote);
	if (error) {
		neap_rpc_client_destroy(remote->client);
		release(remote);
		return error;
	}
	remote->dependent.what = "a directory at a master";
	neap_reactor_attach(reactor, &remote->dependent);
	*remote_p = remote;
	return NEAP_OK;
}

static void reap(struct neap_reap *reap_)
{
	struct neap_remote_directory *remote =
		(struct neap_remote_directory *)(void *)((char *)reap_ - offsetof(struct neap_remote_directory, reap));
	struct remote_call *mine;
	uint32_t index = 0;
	while ((mine = neap_pool_next(&remote->calls, &index)) != NULL) {
		struct neap_key_call *call = let_go(mine);
		if (call)
			call->done(call, NEAP_ECLOSED);
	}
	neap_reactor_detach(remote->reactor, &remote->dependent);
	release(remote);
}

void neap_remote_directory_destroy(struct neap_remote_directory *remote)
{
	if (!remote || remote->closing)
		return;
	remote->closing = true;
	neap_rpc_client_destroy(remote->client);
	remote->reap.reap = reap;
	neap_reap_later(remote->reactor, &remote->reap);
}

const struct neap_key_directory *neap_remote_directory_face(struct neap_remote_directory *remote)
{
	return &remote->face;
}

uint64_t neap_remote_directory_instance(const struct neap_remote_directory *remote)
{
	return neap_master_instance(remote->options.rpc.instance);
}

void neap_remote_directory_stats(const struct neap_remote_directory *remote, struct neap_remote_directory_stats *stats_p)
{
	*stats_p = remote->stats;
	stats_p->calls_now = remote->calls.used;
}
