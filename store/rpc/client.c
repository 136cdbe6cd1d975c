#include "store/rpc/client_inside.h"

#define MS_NS UINT64_C(1000000)

const char *neap_rpc_result_name(enum neap_rpc_result result)
{
	switch (result) {
	case NEAP_RPC_OK: return "OK";
	case NEAP_RPC_REFUSED: return "REFUSED";
	case NEAP_RPC_DEADLINE: return "DEADLINE";
	case NEAP_RPC_CANCELED: return "CANCELED";
	case NEAP_RPC_NOT_SENT: return "NOT_SENT";
	case NEAP_RPC_UNKNOWN: return "UNKNOWN";
	case NEAP_RPC_CLOSED: return "CLOSED";
	}
	return "?";
}

static void set_options(struct neap_rpc_client *client, const struct neap_rpc_client_options *options)
{
	struct neap_rpc_client_options *o = &client->options;
	uint8_t any = 0;
	if (options)
		*o = *options;
	for (unsigned i = 0; i < sizeof o->instance; i++)
		any |= o->instance[i];
	if (!any)
		neap_random_fill(client->room.reactor, o->instance, sizeof o->instance);
	o->channels_max = o->channels_max ? o->channels_max : 256;
	o->calls_max = o->calls_max ? o->calls_max : 4096;
	o->body_max = o->body_max ? o->body_max : NEAP_RPC_BODY_MAX_DEFAULT;
	o->bytes_max = o->bytes_max ? o->bytes_max : (size_t)64 << 20;
	o->connect_timeout_ns = o->connect_timeout_ns ? o->connect_timeout_ns : 3000 * MS_NS;
	o->hello_timeout_ns = o->hello_timeout_ns ? o->hello_timeout_ns : 3000 * MS_NS;
	o->frame_timeout_ns = o->frame_timeout_ns ? o->frame_timeout_ns : 30000 * MS_NS;
	o->progress_timeout_ns = o->progress_timeout_ns ? o->progress_timeout_ns : 10000 * MS_NS;
	o->leave_timeout_ns = o->leave_timeout_ns ? o->leave_timeout_ns : 10000 * MS_NS;
	o->silence_ns = o->silence_ns ? o->silence_ns : 10000 * MS_NS;
	o->backoff_min_ns = o->backoff_min_ns ? o->backoff_min_ns : 20 * MS_NS;
	o->backoff_max_ns = o->backoff_max_ns ? o->backoff_max_ns : 1000 * MS_NS;
	client->room.body_max = o->body_max;
	client->room.frame_timeout_ns = o->frame_timeout_ns;
	client->room.progress_timeout_ns = o->progress_timeout_ns;
}

static void release(struct neap_rpc_client *client)
{
	struct neap_reactor *reactor = client->room.reactor;
	neap_rpc_decoder_close(&client->decoder);
	neap_pool_destroy(&client->calls);
	neap_pool_destroy(&client->channels);
	neap_rpc_blocks_close(&client->room.blocks);
	neap_release(reactor, client, sizeof *client);
}

static int build(struct neap_rpc_client *client)
{
	struct neap_reactor *reactor = client->room.reactor;
	const struct neap_rpc_client_options *o = &client->options;
	int error = neap_reactor_class_of(reactor, &rpc_call_kind, &client->call_class);
	if (!error)
		error = neap_reactor_class_of(reactor, &rpc_channel_kind, &client->channel_class);
	if (!error)
		error = neap_rpc_blocks_open(&client->room.blocks, reactor, o->calls_max + 2 * o->channels_max, o->bytes_max);
	if (!error)
		error = neap_pool_create(&client->calls, reactor, sizeof(struct rpc_call), o->calls_max);
	if (!error)
		error = neap_pool_create(&client->channels, reactor, sizeof(struct neap_rpc_channel), o->channels_max);
	if (!error)
		error = neap_rpc_decoder_open(&client->decoder, reactor, 0);
	return error;
}

int neap_rpc_client_create(struct neap_rpc_client **client_p, struct neap_reactor *reactor,
                           const struct neap_rpc_client_options *options)
{
	*client_p = NULL;
	if (options && options->body_max != 0 && options->body_max < NEAP_RPC_BODY_MAX_LEAST)
		return NEAP_EINVAL;
	struct neap_rpc_client *client = neap_allocate(reactor, sizeof *client);
	if (!client)
		return NEAP_ENOMEM;
	client->room.reactor = reactor;
	set_options(client, options);
	int error = build(client);
	if (error) {
		release(client);
		return error;
	}
	client->dependent.what = "an RPC client";
	neap_reactor_attach(reactor, &client->dependent);
	*client_p = client;
	return NEAP_OK;
}

static void reap_client(struct neap_reap *reap)
{
	struct neap_rpc_client *client = (struct neap_rpc_client *)(void *)((char *)reap - offsetof(struct neap_rpc_client, reap));
	neap_reactor_detach(client->room.reactor, &client->dependent);
	release(client);
}

void neap_rpc_client_destroy(struct neap_rpc_client *client)
{
	struct neap_rpc_channel *channel;
	struct rpc_call *call;
	uint32_t index = 0;
	if (!client || client->closing)
		return;
	client->closing = true;
	while ((call = neap_pool_next(&client->calls, &index)) != NULL)
		rpc_call_drop(call);
	for (index = 0; (channel = neap_pool_next(&client->channels, &index)) != NULL;)
		rpc_channel_drop(channel);
	client->reap.reap = reap_client;
	neap_reap_later(client->room.reactor, &client->reap);
}

void neap_rpc_client_stats(const struct neap_rpc_client *client, struct neap_rpc_client_stats *stats_p)
{
	*stats_p = client->stats;
	stats_p->bytes = client->room.blocks.bytes;
	stats_p->calls_now = client->calls.used;
	stats_p->channels_now = client->channels.used;
}
