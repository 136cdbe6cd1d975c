#include "tests/unit/master_rig.h"
#include "tests/support/coverage.h"

struct master_rig rig;

/* --- the world ------------------------------------------------------------------------------------------------------------ */

void rig_open(void)
{
	memset(&rig, 0, sizeof rig);
	rig.sim = sim_create(7);
	rig.sim->net = (struct sim_net_options){.delay_min_ns = 10000, .delay_max_ns = 20000, .segment_max = 65536,
	                                        .window_min = 1u << 18, .window_max = 1u << 18};
	rig.sim->host = (struct sim_host_options){.latency_max_ns = 1000};
	rig.announcer_options.stamps_max = rig.directory_options.keys_max = 20000;
	rig.announcer_options.queue_max = 8192;
	rig.announcer_options.long_keys_max = 256;
}

static void close_master(struct sim_node *node, void *user)
{
	struct rig_master *master = user;
	(void)node;
	neap_rpc_server_destroy(master->server);
	neap_master_service_destroy(master->service);
	neap_local_directory_destroy(master->local);
}

static void close_client(struct sim_node *node, void *user)
{
	struct rig_client *client = user;
	(void)node;
	neap_announcer_destroy(client->announcer);
	neap_remote_directory_destroy(client->remote);
}

void rig_close(void)
{
	for (uint32_t i = 0; i < rig.client_count; i++) {
		support_cover(neap_reactor_dispatcher(rig.clients[i].node->reactor));
		ck_assert_uint_eq(sim_node_finish(rig.clients[i].node, close_client, &rig.clients[i]), 0);
		free(rig.clients[i].values);
	}
	for (uint32_t i = 0; i < rig.master_count; i++) {
		struct neap_master_service_stats stats;
		neap_master_service_stats(rig.masters[i].service, &stats);
		ck_assert(stats.calls_now > 0 || stats.bytes == 0);
		support_cover(neap_reactor_dispatcher(rig.masters[i].node->reactor));
		ck_assert_uint_eq(sim_node_finish(rig.masters[i].node, close_master, &rig.masters[i]), 0);
	}
	sim_destroy(rig.sim);
}

struct rig_master *rig_present(void)
{
	return &rig.masters[rig.master_count - 1];
}

void rig_master(bool first)
{
	struct rig_master *master = &rig.masters[rig.master_count++];
	struct neap_sockaddr address;
	uint32_t count;
	int system_errno;
	char why[320];
	rig.directory_options.first = first;
	rig.directory_options.epoch = 1000 * rig.master_count;
	rig.server_options.epoch = 1000 * rig.master_count;
	master->node = sim_node_create(rig.sim, 1);
	struct neap_reactor *reactor = master->node->reactor;
	ck_assert_int_eq(neap_local_directory_create(&master->local, reactor, &rig.directory_options, why, sizeof why), 0);
	ck_assert_int_eq(neap_master_service_create(&master->service, reactor, neap_local_directory_face(master->local),
	                                            &rig.service_options), 0);
	ck_assert_int_eq(neap_sockaddr_from_numeric("10.0.0.2", MASTER_PORT, &address), 0);
	const struct neap_rpc_handler *handlers = neap_master_service_handlers(&count);
	int error = neap_rpc_server_create(&master->server, reactor, &address, handlers, count, &rig.server_options, master->service,
	                                   &system_errno, why, sizeof why);
	ck_assert_msg(error == 0, "%s", why);
}

void rig_crash(void)
{
	sim_node_crash(rig_present()->node, false);
}

static void welcomed(void *user, bool another, uint64_t epoch)
{
	struct rig_client *client = user;
	ck_assert_uint_eq(epoch, 1000 * rig.master_count);
	client->welcomes++;
	client->others += another;
	if (client->announcer)
		neap_announcer_renew(client->announcer);
}

struct rig_client *rig_client(void)
{
	struct rig_client *client = &rig.clients[rig.client_count];
	struct neap_remote_directory_options options = {
		.master = {.host = "10.0.0.2", .port = MASTER_PORT, .has_port = true}, .welcomed = welcomed, .user = client};
	client->node = sim_node_create(rig.sim, rig.client_count++ * 2);
	client->values = calloc(VALUES_MAX, sizeof *client->values);
	client->segment = (struct neap_key_segment){.id = {rig.client_count, 5}, .name = "tier", .capacity = 1u << 30, .used = 4096,
	                                            .priority = 10, .memory_type = 3, .tag_count = 1, .tags = {"ssd"}};
	ck_assert_int_eq(neap_remote_directory_create(&client->remote, client->node->reactor, &options), 0);
	return client;
}

/* --- an owner ------------------------------------------------------------------------------------------------------------- */

struct neap_announcement rig_value(const struct rig_client *client, uint32_t value)
{
	const struct rig_value *v = &client->values[value];
	return (struct neap_announcement){.key = rig_text(v->key), .segment = v->below ? client->both[1].id : client->segment.id, .size = v->size,
	                                  .generation = v->generation, .has_crc = true, .crc = value};
}

static bool next_value(void *user, struct neap_announcer_cursor *cursor, struct neap_announcement *value_p)
{
	struct rig_client *client = user;
	while (cursor->first < client->value_count) {
		uint32_t at = (uint32_t)cursor->first++;
		if (client->values[at].generation == 0)
			continue;
		*value_p = rig_value(client, at);
		return true;
	}
	return false;
}

void rig_remove(struct rig_client *client, uint32_t value)
{
	struct neap_announcement gone = rig_value(client, value);
	client->values[value].generation = 0;
	neap_announcer_withdrawn(client->announcer, gone.key, gone.segment, gone.generation);
}

void rig_move(struct rig_client *client, uint32_t value)
{
	struct neap_announcement before = rig_value(client, value);
	client->values[value].below = !client->values[value].below;
	struct neap_announcement now = rig_value(client, value);
	neap_announcer_moved(client->announcer, &now, before.segment);
}

static void closed(void *user)
{
	((struct rig_client *)user)->closed = true;
}

static void withdraw(void *user, const struct neap_announcement *value, int why)
{
	struct rig_client *client = user;
	client->withdrawn++;
	client->why = why;
	for (uint32_t i = 0; i < client->value_count; i++)
		if (client->values[i].generation == value->generation && strlen(client->values[i].key) == value->key.length &&
		    memcmp(client->values[i].key, value->key.text, value->key.length) == 0)
			rig_remove(client, i);
	if (client->closes_on_withdraw)
		neap_announcer_close(client->announcer, closed, client);
}

static void usages(void *user, struct neap_key_usage *usage, uint32_t count)
{
	struct rig_client *client = user;
	ck_assert_uint_eq(count, client->has_below ? 2 : 1);
	usage->used = 1000 * client->value_count;
}

void rig_announcer(struct rig_client *client)
{
	struct neap_announcer_options options = rig.announcer_options;
	options.directory = *neap_remote_directory_face(client->remote);
	options.client = rig_self(client);
	(void)snprintf(options.host, sizeof options.host, "10.0.0.%u", 101 + (unsigned)(client - rig.clients));
	options.port = 12345;
	client->both[0] = client->both[1] = client->segment;
	client->both[1].id.second++;
	client->both[1].priority = 1;
	options.segments = client->has_below ? client->both : &client->segment;
	options.segment_count = client->has_below ? 2 : 1;
	options.next = next_value;
	options.withdraw = withdraw;
	options.usages = usages;
	options.user = client;
	ck_assert_int_eq(neap_announcer_create(&client->announcer, client->node->reactor, &options), 0);
	neap_announcer_start(client->announcer);
}

uint32_t rig_put(struct rig_client *client, const char *key, uint64_t size)
{
	uint32_t number = client->value_count++;
	ck_assert_uint_lt(number, VALUES_MAX);
	struct rig_value *value = &client->values[number];
	(void)snprintf(value->key, sizeof value->key, "%s", key);
	value->generation = ++client->generation;
	value->size = size;
	struct neap_announcement announcement = rig_value(client, number);
	if (client->announcer)
		neap_announcer_published(client->announcer, &announcement);
	return number;
}

struct neap_announcer_stats rig_announced(const struct rig_client *client)
{
	struct neap_announcer_stats stats;
	const char *wrong = neap_announcer_check(client->announcer);
	ck_assert_msg(!wrong, "%s", wrong);
	neap_announcer_stats(client->announcer, &stats);
	return stats;
}

static int asked_error;
static bool asked_done;
static void asked(struct neap_announcer_watch *watch, int error)
{
	(void)watch;
	asked_error = error;
	asked_done = true;
}
static bool asked_ended(void)
{
	return asked_done;
}

int rig_ask(struct rig_client *client, uint32_t value, unsigned ms)
{
	struct neap_announcement of = rig_value(client, value);
	struct neap_announcer_watch watch = {.key = of.key, .segment = of.segment, .generation = of.generation, .done = asked};
	watch.deadline_ns = rig.sim->now_ns + ms * MS;
	asked_done = false;
	int error = neap_announcer_ask(client->announcer, &watch);
	if (error)
		return error;
	ck_assert(!asked_done);
	ck_assert(rig_until(asked_ended, ms + 10));
	return asked_error;
}

/* --- time and calls ------------------------------------------------------------------------------------------------------- */

void rig_for(unsigned ms)
{
	sim_run_for(rig.sim, ms * MS);
}

bool rig_until(bool (*holds)(void), unsigned ms)
{
	uint64_t limit_ns = rig.sim->now_ns + ms * MS;
	while (!holds() && rig.sim->now_ns < limit_ns)
		sim_run_for(rig.sim, 20000);
	return holds();
}

static void done(struct neap_key_call *call, int error)
{
	struct rig_call *mine = (struct rig_call *)(void *)call;
	mine->times++;
	mine->error = error;
}

int rig_begin(struct rig_client *client, struct rig_call *call, enum neap_key_op op)
{
	call->call.op = op;
	call->call.done = done;
	call->times = 0;
	int error = neap_key_begin(neap_remote_directory_face(client->remote), &call->call);
	ck_assert_uint_eq(call->times, 0);
	return error;
}

int rig_do(struct rig_client *client, struct rig_call *call, enum neap_key_op op)
{
	ck_assert_int_eq(rig_begin(client, call, op), 0);
	uint64_t limit_ns = rig.sim->now_ns + 60000 * MS;
	while (call->times == 0 && rig.sim->now_ns < limit_ns)
		sim_run_for(rig.sim, 5000);
	ck_assert_uint_eq(call->times, 1);
	return call->error;
}

struct neap_key_client rig_self(const struct rig_client *client)
{
	return (struct neap_key_client){.id = {(uint64_t)(client - rig.clients) + 1, 77},
	                                .instance = neap_remote_directory_instance(client->remote)};
}

int rig_register(struct rig_client *client, bool holds)
{
	struct rig_call call = {.call.as.register_ = {.client = rig_self(client), .start = 1, .port = 12345,
	                                              .holds = holds, .segments = &client->segment, .segment_count = 1}};
	(void)snprintf(call.call.as.register_.host, NEAP_KEY_HOST_SIZE, "10.0.0.%u", 101 + (unsigned)(client - rig.clients));
	int error = rig_do(client, &call, NEAP_KEY_OP_REGISTER);
	if (!error)
		ck_assert_uint_eq(call.call.as.register_.epoch, 1000 * rig.master_count);
	return error;
}

struct neap_key_text rig_text(const char *text)
{
	return (struct neap_key_text){.text = text, .length = (uint32_t)strlen(text)};
}

int rig_exists(struct rig_client *client, const char *key)
{
	struct neap_key_read_item item = {.key = rig_text(key)};
	struct rig_call call = {.call.as.exist = {.items = &item, .count = 1}};
	int error = rig_do(client, &call, NEAP_KEY_OP_EXIST);
	return error ? error : item.error;
}

int rig_look(struct rig_client *client, const char *key)
{
	struct neap_key_read_item item = {.key = rig_text(key)};
	struct neap_key_replica replicas[4];
	struct rig_call call = {.call.as.replicas = {.config.priority_limit = INT32_MIN, .items = &item, .count = 1,
	                                             .replicas = replicas, .replicas_max = 4}};
	int error = rig_do(client, &call, NEAP_KEY_OP_REPLICAS);
	return error ? error : item.error ? item.error : (int)item.count;
}

uint64_t rig_keys(void)
{
	struct neap_local_directory_stats stats;
	neap_local_directory_stats(rig_present()->local, &stats);
	return stats.keys;
}

int rig_run(Suite *suite)
{
	SRunner *runner = srunner_create(suite);
	srunner_run_all(runner, CK_ENV);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
