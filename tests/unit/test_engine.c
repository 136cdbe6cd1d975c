/* An engine from create to closed: options, names and addresses, what is published, notifies, more cores, and that a
 * failed start leaves nothing behind. */
#include "tests/support/drive.h"
#include "tests/support/small_engine.h"
#include "tests/support/engine_rig.h"
#include "transports/engine_state.h"
#include <check.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

static char why[400];
static struct neap_reactor *reactor;
static struct neap_engine *engine;
static bool closed;

static void quiet(void *user, enum neap_log_level level, const char *component, const char *message)
{
	(void)user, (void)level, (void)component, (void)message;
}

static void raise_flag(void *user)
{
	*(bool *)user = true;
}

static void setup(void)
{
	ck_assert_int_eq(neap_reactor_create(&reactor, &(struct neap_reactor_options){.log = quiet}), 0);
	engine = NULL;
}

static void close_engine(void)
{
	closed = false;
	ck_assert_int_eq(neap_engine_close(engine, raise_flag, &closed), 0);
	ck_assert(!closed);
	ck_assert(drive_until(reactor, &closed, 5000));
	engine = NULL;
}

static void teardown(void)
{
	if (engine)
		close_engine();
	drive_to_end(reactor);
}

static int create_exactly(const struct neap_engine_options *options)
{
	why[0] = 0;
	int error = neap_engine_create(&engine, reactor, options, why, sizeof why);
	ck_assert(error ? !engine && why[0] : engine != NULL);
	return error;
}

static int create(const struct neap_engine_options *options)
{
	struct neap_engine_options filled = small_engine(options);
	return create_exactly(&filled);
}

/* --- options */

static const struct {
	struct neap_engine_options options;
	int error;
	const char *said;
} bad_options[] = {
	{{.lanes_per_peer = 17}, NEAP_EINVAL, "lanes_per_peer is 17; allowed are 1 to 16"},
	{{.requests_max = 20000000}, NEAP_EINVAL, "requests_max"},
	{{.peers_max = 2000000}, NEAP_EINVAL, "peers_max"},
	{{.handshake_length_max = 4096}, NEAP_EINVAL, "allowed are 1048576 to 134217728"},
	{{.handshake_length_max = 200000000}, NEAP_EINVAL, "handshake_length_max"},
	{{.connect_timeout_ms = 90000000}, NEAP_EINVAL, "connect_timeout_ms"},
	{{.retries_max = 101}, NEAP_EINVAL, "retries_max"},
	{{.port_min = 20000}, NEAP_EINVAL, "port_max"},
	{{.port_min = 20000, .port_max = 19000}, NEAP_EINVAL, "port_min 20000"},
	{{.handshake_port = 18888, .data_port = 18888}, NEAP_EINVAL, "18888"},
	{{.congestion = "no such thing; rm"}, NEAP_EINVAL, "congestion"},
	{{.protocol = "ib"}, NEAP_EINVAL, "protocol \"ib\" is not \"tcp\", \"rdma\" or \"auto\""},
	{{.rdma.port = 256}, NEAP_EINVAL, "rdma.port is 256; allowed are 0 to 255"},
	{{.rdma.gid_index = 256}, NEAP_EINVAL, "rdma.gid_index"},
	{{.rdma.mtu_bytes = 256}, NEAP_EINVAL, "rdma.mtu_bytes is 256"},
	{{.rdma.mtu_bytes = 1500}, NEAP_EINVAL, "512, 1024, 2048 and 4096"},
	{{.rdma.service_level = 16}, NEAP_EINVAL, "rdma.service_level is 16; allowed are 0 to 15"},
	{{.rdma.qps_per_endpoint = 17}, NEAP_EINVAL, "rdma.qps_per_endpoint is 17; allowed are 1 to 16"},
	{{.rdma.endpoints_max = 65536}, NEAP_EINVAL, "rdma.endpoints_max"},
	{{.rdma.slice_bytes = 4095}, NEAP_EINVAL, "rdma.slice_bytes is 4095; allowed are 4096 to 1073741824"},
	{{.rdma.slice_bytes = 4096, .rdma.fragment_ratio = 4096}, NEAP_EINVAL, "rdma.fragment_ratio is 4096; allowed are 1 to"},
	{{.rdma.window_bytes = 4095}, NEAP_EINVAL, "rdma.window_bytes is 4095; allowed are 4096 to 4294967295"},
	{{.rdma.region_max_bytes = 4095}, NEAP_EINVAL, "rdma.region_max_bytes is 4095; allowed are 4096 to 70368744177664"},
	{{.rdma.advertised_host = "10.0.0.1:99"}, NEAP_EINVAL, "MC_RDMA_BIND_ADDRESS"},
	{{.bind_address = "localhost"}, NEAP_EADDRESS, "numeric"},
	{{.bind_address = "300.1.1.1"}, NEAP_EADDRESS, "bind_address"},
	{{.bind_address = "192.0.2.77"}, NEAP_ESOCKET, "192.0.2.77"},
	{{.local_name = "0.0.0.0"}, NEAP_EADDRESS, "cannot be published"},
	{{.local_name = "[::]:80"}, NEAP_EADDRESS, "cannot be published"},
	{{.local_name = "a:b:c"}, NEAP_EADDRESS, "local_name"},
	{{.local_name = "host:99999"}, NEAP_EADDRESS, "local_name"},
	{{.metadata = "etcd://"}, NEAP_EADDRESS, "no endpoint"},
	{{.metadata = "etcd://127.0.0.1:2379/3"}, NEAP_EADDRESS, "HOST[:PORT]"},
	{{.metadata = "etcd://ftp://127.0.0.1:2379"}, NEAP_EADDRESS, "HOST[:PORT]"},
	{{.metadata = "etcd://127.0.0.1:99999"}, NEAP_EADDRESS, "99999"},
	{{.metadata = "etcd://me:secret@127.0.0.1:2379"}, NEAP_EADDRESS, "no user name"},
	{{.metadata = "etcd://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p,q"}, NEAP_ELIMIT, "16 endpoints"},
	{{.metadata = "etcd://127.0.0.1:2379", .etcd_username = "me"}, NEAP_EINVAL, "MC_ETCD_PASSWORD"},
	{{.metadata = "etcd://127.0.0.1:2379", .etcd_password = "me"}, NEAP_EINVAL, "MC_ETCD_USERNAME"},
	{{.metadata = "etcd://127.0.0.1:2379", .etcd_username = "\xff", .etcd_password = "x"}, NEAP_EINVAL, "UTF-8"},
	{{.metadata = "etcd://127.0.0.1:2379", .metadata_key_file = "/nowhere/key.pem"}, NEAP_EINVAL, "metadata_key_file '/nowhere/key.pem'"},
	{{.metadata = "10.1.2.3:2379"}, NEAP_EADDRESS, "local_name"},
	{{.metadata = "rediss://127.0.0.1:6379"}, NEAP_ENOTSUP, "P2PHANDSHAKE"},
	{{.metadata = "redis://me:secret@127.0.0.1:6379"}, NEAP_EADDRESS, "MC_REDIS_PASSWORD"},
	{{.metadata = "redis://127.0.0.1:6379/3"}, NEAP_EADDRESS, "MC_REDIS_DB_INDEX"},
	{{.metadata = "redis://127.0.0.1:99999"}, NEAP_EADDRESS, "99999"},
	{{.metadata = "redis://127.0.0.1:6379", .redis_username = "me"}, NEAP_EINVAL, "MC_REDIS_PASSWORD"},
	{{.metadata = "redis://127.0.0.1:6379", .redis_database = 256}, NEAP_EINVAL, "0 to 255"},
	{{.metadata = "redis://127.0.0.1:6379", .metadata_lease_ms = 999}, NEAP_EINVAL, "1000"},
	{{.metadata = "redis://10.1.2.3:6379"}, NEAP_EADDRESS, "local_name"},
	{{.metadata = "redis://10.1.2.3:6379", .local_name = "a name"}, NEAP_EADDRESS, "local_name"},
	{{.metadata = "redis://127.0.0.1:6379", .advertised_host = "a:b:c:d"}, NEAP_EADDRESS, "advertised_host"},
	{{.metadata = "http://127.0.0.1:8080/metadata?x"}, NEAP_EADDRESS, "path"},
	{{.metadata = "http://me:secret@127.0.0.1:8080/metadata"}, NEAP_EADDRESS, "no user name"},
	{{.metadata = "http://127.0.0.1:8080/metadata", .metadata_lease_ms = 5000}, NEAP_EINVAL, "metadata_lease_ms"},
	{{.metadata = "https://127.0.0.1:8080/metadata", .metadata_ca_file = "/nowhere/ca.pem"}, NEAP_EINVAL, "/nowhere/ca.pem"},
	{{.metadata = "zookeeper://x"}, NEAP_EINVAL, "P2PHANDSHAKE"},
	{{.metadata = "p2phandshake"}, NEAP_EINVAL, "P2PHANDSHAKE"},
	{{.topology_file = "/nowhere/topology.json"}, NEAP_EINVAL, "topology file /nowhere/topology.json: cannot be read: No such file"},
	{{.topology_file = "/dev/null"}, NEAP_EJSON, "topology file /dev/null: document: the text ends at byte 0"},
};

START_TEST(bad_options_are_refused_with_a_reason)
{
	int error = create(&bad_options[_i].options);
	ck_assert_msg(error == bad_options[_i].error, "%d: %s", error, why);
	ck_assert_msg(strstr(why, bad_options[_i].said) != NULL, "%s", why);
	/* And the next one starts. */
	ck_assert_int_eq(create(NULL), 0);
}
END_TEST

static const char *const long_texts[] = {"metadata", "local_name", "bind_address"};

START_TEST(texts_have_a_limit)
{
	char text[3000];
	memset(text, 'a', sizeof text - 1);
	text[sizeof text - 1] = 0;
	struct neap_engine_options options = {0};
	*(_i == 0 ? &options.metadata : _i == 1 ? &options.local_name : &options.bind_address) = text;
	ck_assert_msg(create(&options) < 0, "%s", long_texts[_i]);
}
END_TEST

START_TEST(defaults_work_on_one_machine)
{
	struct neap_engine_stats stats;
	uint8_t instance[16];
	const uint8_t none[16] = {0};
	char name[64];
	ck_assert_int_eq(create_exactly(NULL), 0);
	snprintf(name, sizeof name, "127.0.0.1:%u", neap_engine_handshake_port(engine));
	ck_assert_str_eq(neap_engine_name(engine), name);
	ck_assert_uint_ge(neap_engine_handshake_port(engine), 15000);
	ck_assert_uint_le(neap_engine_handshake_port(engine), 17000);
	ck_assert_uint_ge(neap_engine_data_port(engine), 15000);
	ck_assert_uint_le(neap_engine_data_port(engine), 17000);
	ck_assert_uint_ne(neap_engine_data_port(engine), neap_engine_handshake_port(engine));
	neap_engine_instance(engine, instance);
	ck_assert(memcmp(instance, none, 16) != 0);
	ck_assert_ptr_eq(neap_engine_reactor(engine), reactor);
	const struct neap_engine_options *filled = neap_engine_view(engine)->options;
	ck_assert_uint_eq(filled->lanes_per_peer, 1);
	ck_assert_uint_eq(filled->requests_max, 131072);
	ck_assert_uint_eq(filled->requests_per_peer_max, 131072);
	ck_assert_uint_eq(filled->progress_timeout_ms, 30000);
	ck_assert_str_eq(filled->congestion, "auto");
	neap_engine_stats(engine, &stats);
	ck_assert_uint_eq(stats.peers + stats.regions + stats.requests_pending + stats.batches, 0);
}
END_TEST

START_TEST(fixed_ports_are_taken_or_the_start_fails)
{
	struct neap_engine *second;
	ck_assert_int_eq(create(NULL), 0);
	uint16_t taken = neap_engine_handshake_port(engine);
	struct neap_engine_options options = {.handshake_port = taken};
	ck_assert_int_eq(neap_engine_create(&second, reactor, &options, why, sizeof why), NEAP_ESOCKET);
	ck_assert_ptr_null(second);
	char port[16];
	snprintf(port, sizeof port, "%u", taken);
	ck_assert_msg(strstr(why, port) != NULL, "%s", why);
	options = (struct neap_engine_options){.data_port = neap_engine_data_port(engine)};
	ck_assert_int_lt(neap_engine_create(&second, reactor, &options, why, sizeof why), 0);
	snprintf(port, sizeof port, "%u", neap_engine_data_port(engine));
	ck_assert_msg(strstr(why, port) != NULL, "%s", why);
	close_engine();
	options = (struct neap_engine_options){.handshake_port = taken};
	ck_assert_msg(create(&options) == 0, "%s", why);
	ck_assert_uint_eq(neap_engine_handshake_port(engine), taken);
}
END_TEST

/* --- names and addresses */

static bool reaches(const char *address, uint16_t port)
{
	struct neap_sockaddr to;
	ck_assert_int_eq(neap_sockaddr_from_numeric(address, port, &to), 0);
	int fd = socket(to.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
	bool reached = connect(fd, &to.any, to.length) == 0;
	close(fd);
	return reached;
}

static const struct {
	const char *local_name, *bind_address, *host, *reached, *not_reached;
} names[] = {
	{NULL, NULL, "127.0.0.1", "127.0.0.1", "127.0.0.2"},
	{"127.0.0.1", NULL, "127.0.0.1", "127.0.0.1", "127.0.0.2"},
	{"127.0.0.1:4711", NULL, "127.0.0.1", "127.0.0.1", NULL},
	{"127.0.0.2", NULL, "127.0.0.2", "127.0.0.2", "127.0.0.1"},
	{"localhost", NULL, "localhost", "127.0.0.1", "127.0.0.2"},
	{"node-a.example", NULL, "node-a.example", "127.0.0.1", "127.0.0.2"},
	{"192.0.2.9", NULL, "192.0.2.9", "127.0.0.1", "127.0.0.2"},
	{"192.0.2.9", "127.0.0.3", "192.0.2.9", "127.0.0.3", "127.0.0.1"},
	{NULL, "127.0.0.5", "127.0.0.5", "127.0.0.5", "127.0.0.1"},
	{NULL, "0.0.0.0", "127.0.0.1", "127.0.0.7", NULL},
	{"127.0.0.1", "0.0.0.0", "127.0.0.1", "127.0.0.9", NULL},
	{"::1", NULL, "[::1]", "::1", "127.0.0.1"},
	{"[::1]:55", NULL, "[::1]", "::1", NULL},
	{"2001:db8::9", NULL, "[2001:db8::9]", "::1", "127.0.0.1"},
};

START_TEST(what_is_published_and_what_is_bound)
{
	char expected[128];
	struct neap_engine_options options = {.local_name = names[_i].local_name, .bind_address = names[_i].bind_address};
	if (strchr(names[_i].reached, ':') && access("/proc/net/if_inet6", R_OK) != 0)
		return;
	ck_assert_msg(create(&options) == 0, "%s", why);
	uint16_t port = neap_engine_handshake_port(engine);
	snprintf(expected, sizeof expected, "%s:%u", names[_i].host, port);
	ck_assert_str_eq(neap_engine_name(engine), expected);
	ck_assert(reaches(names[_i].reached, port));
	ck_assert(reaches(names[_i].reached, neap_engine_data_port(engine)));
	if (names[_i].not_reached) {
		ck_assert(!reaches(names[_i].not_reached, port));
		ck_assert(!reaches(names[_i].not_reached, neap_engine_data_port(engine)));
	}
}
END_TEST

/* --- close */

START_TEST(close_once)
{
	bool again = false;
	ck_assert_int_eq(create(NULL), 0);
	ck_assert_int_eq(neap_engine_close(engine, raise_flag, &closed), 0);
	ck_assert_int_eq(neap_engine_close(engine, raise_flag, &again), NEAP_ECLOSED);
	struct neap_memory range = {.address = why, .length = 1};
	ck_assert_int_eq(neap_memory_register(engine, &range, 1, NULL, NULL, 0), NEAP_ECLOSED);
	ck_assert_int_eq(neap_segment_open(engine, "127.0.0.1:9", NULL, NULL), NEAP_ECLOSED);
	ck_assert_int_eq(neap_notify_send(engine, 0, "a", "b", NULL, NULL), NEAP_ECLOSED);
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_EBUSY);
	ck_assert(drive_until(reactor, &closed, 5000));
	ck_assert(!again);
	engine = NULL;
}
END_TEST

START_TEST(the_reactor_stops_its_engines)
{
	struct neap_engine *other;
	bool told = false;
	ck_assert_int_eq(create(NULL), 0);
	ck_assert_int_eq(neap_engine_create(&other, reactor, NULL, why, sizeof why), 0);
	neap_reactor_stop(reactor);
	ck_assert_int_eq(neap_engine_create(&engine, reactor, NULL, why, sizeof why), NEAP_ECLOSED);
	/* Its owner may still want to hear of it. */
	ck_assert_int_eq(neap_engine_close(other, raise_flag, &told), 0);
	ck_assert(drive_until(reactor, &told, 5000));
	engine = NULL;
}
END_TEST

struct openings {
	unsigned answers;
	int error;
};

static void count_opening(void *user, int error, neap_segment_id segment, const char *reason)
{
	struct openings *openings = user;
	(void)segment;
	openings->answers++;
	openings->error = error;
	ck_assert(error == 0 || reason[0]);
}

/* Whoever asked is answered before `closed`. */
START_TEST(what_is_pending_is_answered_first)
{
	struct openings openings = {0};
	int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
	struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
	socklen_t length = sizeof address;
	char silent[64];
	ck_assert_int_eq(bind(listener, (struct sockaddr *)&address, length), 0);
	ck_assert_int_eq(listen(listener, 5), 0);
	getsockname(listener, (struct sockaddr *)&address, &length);
	snprintf(silent, sizeof silent, "127.0.0.1:%u", ntohs(address.sin_port));
	ck_assert_int_eq(create(NULL), 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(neap_segment_open(engine, silent, count_opening, &openings), 0);
	ck_assert_int_eq(neap_segment_open(engine, "127.0.0.9:1", count_opening, &openings), 0);
	for (int i = 0; i < 500 && openings.answers == 0; i++)
		drive_for(reactor, 10);
	ck_assert_uint_eq(openings.answers, 1);
	close_engine();
	ck_assert_uint_eq(openings.answers, 4);
	ck_assert_int_eq(openings.error, NEAP_ECLOSED);
	close(listener);
}
END_TEST

/* --- opening */

START_TEST(opening_what_is_not_there)
{
	struct openings openings = {0};
	char text[700];
	ck_assert_int_eq(create(NULL), 0);
	ck_assert_int_eq(neap_segment_open(engine, "127.0.0.1:1", count_opening, &openings), 0);
	ck_assert_uint_eq(openings.answers, 0);
	for (int i = 0; i < 200 && !openings.answers; i++)
		drive_for(reactor, 5);
	ck_assert_uint_eq(openings.answers, 1);
	ck_assert_int_lt(openings.error, 0);
	struct neap_engine_stats stats;
	neap_engine_stats(engine, &stats);
	ck_assert_uint_eq(stats.peers, 0);
	ck_assert_int_eq(neap_segment_open(engine, "", count_opening, &openings), NEAP_EINVAL);
	ck_assert_int_eq(neap_segment_open(engine, NULL, count_opening, &openings), NEAP_EINVAL);
	ck_assert_int_eq(neap_segment_open(engine, "x", NULL, &openings), NEAP_EINVAL);
	memset(text, 'x', sizeof text - 1);
	text[sizeof text - 1] = 0;
	ck_assert_int_eq(neap_segment_open(engine, text, count_opening, &openings), NEAP_EINVAL);
}
END_TEST

static struct engine_rig rig;

START_TEST(opening_twice_and_refreshing)
{
	struct neap_segment_info info;
	uint64_t address, length;
	rig_begin(&rig, &(struct neap_engine_options){.peers_max = 1});
	ck_assert_int_eq(neap_segment_open(rig.engine, neap_engine_name(rig.peer), rig_opened, &rig), 0);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_uint_eq(rig.opened_segment, rig.segment);
	ck_assert_int_eq(neap_segment_open(rig.engine, "127.0.0.1:2", rig_opened, &rig), NEAP_ELIMIT);
	ck_assert_int_eq(neap_segment_info(rig.engine, rig.segment, &info), 0);
	ck_assert_str_eq(info.name, neap_engine_name(rig.peer));
	ck_assert_str_eq(info.protocol, "tcp");
	ck_assert(info.is_neap);
	ck_assert_uint_eq(info.tcp_proto_version, 2);
	ck_assert_uint_eq(info.refreshed, 1);
	ck_assert_uint_eq(info.buffer_count, 0);
	ck_assert_int_eq(neap_segment_buffer(rig.engine, rig.segment, 0, &address, &length), NEAP_EINVAL);
	struct neap_memory range = {.address = &rig, .length = 4096};
	ck_assert_int_eq(neap_memory_register(rig.peer, &range, 1, NULL, NULL, 0), 0);
	rig.opened = false;
	ck_assert_int_eq(neap_segment_refresh(rig.engine, rig.segment, rig_opened, &rig), 0);
	ck_assert(!rig.opened);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_int_eq(rig.opened_error, 0);
	ck_assert_uint_eq(rig.opened_segment, rig.segment);
	ck_assert_int_eq(neap_segment_buffer(rig.engine, rig.segment, 0, &address, &length), 0);
	ck_assert_uint_eq(address, (uintptr_t)&rig);
	ck_assert_uint_eq(length, 4096);
	ck_assert_int_eq(neap_segment_refresh(rig.engine, 99, rig_opened, &rig), NEAP_ESTALE);
	ck_assert_int_eq(neap_segment_refresh(rig.engine, rig.segment, NULL, &rig), NEAP_EINVAL);
	/* The peer goes: the refresh fails, what is known stays. */
	rig.closed = false;
	ck_assert_int_eq(neap_engine_close(rig.peer, rig_closed, &rig), 0);
	ck_assert(rig_until(&rig, &rig.closed));
	rig.peer = NULL;
	rig.opened = false;
	ck_assert_int_eq(neap_segment_refresh(rig.engine, rig.segment, rig_opened, &rig), 0);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_int_lt(rig.opened_error, 0);
	ck_assert_uint_gt(strlen(rig.why), 10);
	ck_assert_int_eq(neap_segment_buffer(rig.engine, rig.segment, 0, &address, &length), 0);
	/* A refresh that is under way when its segment is closed is answered. */
	rig.opened = false;
	ck_assert_int_eq(neap_segment_refresh(rig.engine, rig.segment, rig_opened, &rig), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0); /* it was opened twice */
	struct neap_segment_info still;
	ck_assert_int_eq(neap_segment_info(rig.engine, rig.segment, &still), 0);
	ck_assert_int_eq(neap_segment_close(rig.engine, rig.segment), 0);
	ck_assert(rig_until(&rig, &rig.opened));
	ck_assert_int_eq(rig.opened_error, NEAP_ECLOSED);
	rig_end(&rig);
}
END_TEST

struct wanting {
	struct neap_segment_waiter waiter;
	unsigned answers;
	int error;
};

static void fresh(struct neap_segment_waiter *waiter, int error, const char *reason)
{
	struct wanting *wanting = (struct wanting *)(void *)waiter;
	(void)reason;
	wanting->answers++;
	wanting->error = error;
}

static bool all_answered(void *user)
{
	struct wanting *wanting = user;
	return wanting[0].answers && wanting[1].answers;
}

/* What transports ask for: several at once, one of them for knowledge that the running read cannot have. */
START_TEST(transports_want_fresh_descriptors)
{
	struct wanting wanting[3] = {0};
	rig_begin(&rig, NULL);
	struct neap_segment *segment = neap_segment_find(rig.engine, rig.segment);
	uint64_t now_ns = neap_reactor_now_ns(rig.reactor);
	ck_assert_int_eq(neap_segment_want_fresh(segment, &wanting[0].waiter, now_ns, fresh), 0);
	ck_assert_int_eq(neap_segment_want_fresh(segment, &wanting[1].waiter, now_ns + 20000000, fresh), 0);
	ck_assert_int_eq(neap_segment_want_fresh(segment, &wanting[2].waiter, now_ns, fresh), 0);
	neap_segment_waiter_cancel(segment, &wanting[2].waiter);
	struct neap_reactor *reactors[] = {rig.reactor};
	ck_assert(drive_all_until(reactors, 1, all_answered, wanting, 5000));
	ck_assert_int_eq(wanting[0].error, 0);
	ck_assert_int_eq(wanting[1].error, 0);
	ck_assert_uint_eq(wanting[2].answers, 0);
	ck_assert_uint_ge(segment->snapshot->fetched_ns, now_ns);
	ck_assert_int_eq(neap_segment_want_fresh(&rig.engine->self, &wanting[2].waiter, now_ns, fresh), NEAP_ECLOSED);
	rig_end(&rig);
}
END_TEST

/* --- what is published */

static struct neap_descriptor *published(struct neap_engine *of)
{
	size_t length;
	struct neap_descriptor *descriptor;
	char *json = neap_publish_describe(of, &length);
	ck_assert_ptr_nonnull(json);
	ck_assert_msg(neap_descriptor_decode(json, length, &descriptor, why, sizeof why) == 0, "%s", why);
	free(json);
	return descriptor;
}

START_TEST(the_document_follows_the_memory)
{
	static unsigned char bytes[3][64];
	neap_region_id ids[3];
	const enum neap_access access[3] = {NEAP_OPEN, NEAP_CLOSED, NEAP_GRANT_ONLY};
	uint8_t instance[16];
	ck_assert_int_eq(create(&(struct neap_engine_options){.checksum = true}), 0);
	struct neap_descriptor *empty = published(engine);
	ck_assert_uint_eq(empty->buffer_count, 0);
	ck_assert_str_eq(empty->name, neap_engine_name(engine));
	ck_assert_int_eq(empty->tcp_data_port, neap_engine_data_port(engine));
	ck_assert_int_eq(empty->tcp_proto_version, 2);
	ck_assert(empty->neap.present);
	neap_engine_instance(engine, instance);
	ck_assert_mem_eq(empty->neap.instance, instance, 16);
	ck_assert_uint_eq(empty->neap.port_count, 1);
	ck_assert_uint_eq(empty->neap.ports[0], neap_engine_data_port(engine));
	ck_assert_uint_eq(empty->neap.flags, NEAP_CAP_CHECKSUM | NEAP_CAP_GRANTS | NEAP_CAP_FENCE);
	for (int i = 0; i < 3; i++) {
		struct neap_memory range = {.address = bytes[i], .length = sizeof bytes[i], .access = access[i]};
		ck_assert_int_eq(neap_memory_register(engine, &range, 1, &ids[i], why, sizeof why), 0);
	}
	struct neap_descriptor *one = published(engine);
	ck_assert_uint_eq(one->buffer_count, 1);
	ck_assert_uint_eq(one->buffers[0].address, (uintptr_t)bytes[0]);
	ck_assert_str_eq(one->buffers[0].name, neap_engine_name(engine));
	ck_assert_uint_gt(one->neap.version, empty->neap.version);
	/* Unchanged: the same document, not made again. */
	const char *cached = engine->published.json;
	neap_descriptor_free(published(engine));
	ck_assert_ptr_eq(engine->published.json, cached);
	ck_assert_int_eq(neap_memory_unregister(engine, ids[1], NULL, NULL), 0);
	neap_descriptor_free(published(engine));
	ck_assert_ptr_eq(engine->published.json, cached);
	ck_assert_int_eq(neap_memory_unregister(engine, ids[0], NULL, NULL), 0);
	struct neap_descriptor *none = published(engine);
	ck_assert_uint_eq(none->buffer_count, 0);
	ck_assert_uint_gt(none->neap.version, one->neap.version);
	neap_descriptor_free(empty);
	neap_descriptor_free(one);
	neap_descriptor_free(none);
}
END_TEST

START_TEST(a_plain_engine_says_nothing_of_neap)
{
	ck_assert_int_eq(create(&(struct neap_engine_options){.plain_only = true}), 0);
	struct neap_descriptor *descriptor = published(engine);
	ck_assert(!descriptor->neap.present);
	neap_descriptor_free(descriptor);
}
END_TEST

/* As many OPEN regions as fit the document, and not one more: what peers would refuse is refused at registration. */
START_TEST(the_document_never_outgrows_its_limit)
{
	enum { STEP = 1000 };
	static struct neap_memory ranges[STEP];
	int error = 0;
	uint64_t next = UINT64_C(0x7fff00000000);
	ck_assert_int_eq(create(NULL), 0);
	while (!error) {
		for (int i = 0; i < STEP; i++, next += 4096)
			ranges[i] = (struct neap_memory){.address = (void *)(uintptr_t)next, .length = 4095};
		error = neap_memory_register(engine, ranges, STEP, NULL, why, sizeof why);
	}
	ck_assert_int_eq(error, NEAP_ELIMIT);
	for (int i = 0; i < STEP && neap_memory_register(engine, &ranges[i], 1, NULL, why, sizeof why) == 0; i++)
		;
	struct neap_descriptor *descriptor = published(engine);
	ck_assert_uint_gt(descriptor->buffer_count, 10000);
	ck_assert_uint_le(engine->published.length + 1, NEAP_HANDSHAKE_LENGTH_DEFAULT);
	ck_assert_uint_gt(engine->published.length, NEAP_HANDSHAKE_LENGTH_DEFAULT - 8192);
	neap_descriptor_free(descriptor);
	struct neap_memory closed_range = {.address = (void *)(uintptr_t)next, .length = 4096, .access = NEAP_CLOSED};
	ck_assert_int_eq(neap_memory_register(engine, &closed_range, 1, NULL, why, sizeof why), 0);
}
END_TEST

/* --- notify */

static void count_sent(void *user, int error, const char *reason)
{
	struct openings *sent = user;
	(void)reason;
	sent->answers++;
	sent->error = error;
}

static bool answered(void *user)
{
	return ((struct openings *)user)->answers > 0;
}

START_TEST(notifies_go_and_come)
{
	struct neap_notify notify;
	struct openings sent = {0};
	bool arrived = false;
	struct neap_reactor *reactors[1];
	rig_begin(&rig, NULL);
	reactors[0] = rig.reactor;
	neap_notify_watch(rig.peer, raise_flag, &arrived);
	ck_assert_int_eq(neap_notify_send(rig.engine, rig.segment, "n\"1", "m\xc3\xa4", count_sent, &sent), 0);
	ck_assert_uint_eq(sent.answers, 0);
	ck_assert(drive_all_until(reactors, 1, answered, &sent, 5000));
	ck_assert_int_eq(sent.error, 0);
	ck_assert(arrived);
	ck_assert_int_eq(neap_notify_take(rig.peer, &notify), 1);
	ck_assert_str_eq(notify.name, "n\"1");
	ck_assert_str_eq(notify.message, "m\xc3\xa4");
	ck_assert_int_eq(neap_notify_take(rig.peer, &notify), 0);
	ck_assert_int_eq(neap_notify_send(rig.engine, 77, "a", "b", count_sent, &sent), NEAP_ESTALE);
	ck_assert_int_eq(neap_notify_send(rig.engine, rig.segment, "a", "", count_sent, &sent), NEAP_EINVAL);
	ck_assert_int_eq(neap_notify_send(rig.engine, rig.segment, NULL, "b", count_sent, &sent), NEAP_EINVAL);
	/* To itself, and what was there before the watch. */
	sent = (struct openings){0};
	ck_assert_int_eq(neap_notify_send(rig.engine, NEAP_LOCAL_SEGMENT, "self", "hi", count_sent, &sent), 0);
	ck_assert(drive_all_until(reactors, 1, answered, &sent, 5000));
	arrived = false;
	neap_notify_watch(rig.engine, raise_flag, &arrived);
	ck_assert(rig_until(&rig, &arrived));
	ck_assert_int_eq(neap_notify_take(rig.engine, &notify), 1);
	ck_assert_str_eq(notify.name, "self");
	rig_end(&rig);
}
END_TEST

START_TEST(a_full_queue_refuses)
{
	struct openings sent = {0};
	struct neap_notify notify;
	struct neap_reactor *reactors[1];
	rig_begin(&rig, NULL);
	reactors[0] = rig.reactor;
	struct neap_engine_options *options = &rig.peer->options;
	options->notifies_max = 2;
	for (int i = 0; i < 3; i++) {
		sent = (struct openings){0};
		ck_assert_int_eq(neap_notify_send(rig.engine, rig.segment, "a", "b", count_sent, &sent), 0);
		ck_assert(drive_all_until(reactors, 1, answered, &sent, 5000));
		ck_assert_int_eq(sent.error, i < 2 ? 0 : NEAP_EREJECTED);
	}
	struct neap_engine_stats stats;
	neap_engine_stats(rig.peer, &stats);
	ck_assert_uint_eq(stats.notifies_received, 2);
	ck_assert_uint_eq(stats.notifies_refused, 1);
	ck_assert_int_eq(neap_notify_take(rig.peer, &notify), 1);
	sent = (struct openings){0};
	ck_assert_int_eq(neap_notify_send(rig.engine, rig.segment, "a", "b", count_sent, &sent), 0);
	/* One that is under way when the engine closes is answered. */
	ck_assert_int_eq(neap_engine_close(rig.engine, rig_closed, &rig), 0);
	ck_assert(rig_until(&rig, &rig.closed));
	ck_assert_uint_eq(sent.answers, 1);
	ck_assert_int_eq(sent.error, NEAP_ECLOSED);
	rig.engine = NULL;
	rig_end(&rig);
}
END_TEST

/* --- more cores */

struct other_core {
	pthread_t thread;
	struct neap_engine *home, *engine;
	int joined, memory, join_again;
	uint16_t port;
	_Atomic bool ready, quit;
	bool closed;
};

static void *run_other_core(void *argument)
{
	struct other_core *core = argument;
	struct neap_reactor *own;
	char reason[300];
	ck_assert_int_eq(neap_reactor_create(&own, &(struct neap_reactor_options){.log = quiet}), 0);
	struct neap_engine *none;
	core->join_again = neap_engine_join(&none, own, NULL, reason, sizeof reason);
	core->joined = neap_engine_join(&core->engine, own, core->home, reason, sizeof reason);
	if (core->joined == 0) {
		core->port = neap_engine_data_port(core->engine);
		struct neap_memory range = {.address = reason, .length = 1};
		core->memory = neap_memory_register(core->engine, &range, 1, NULL, NULL, 0);
	}
	/* The first turn settles who owns the reactor. */
	ck_assert_int_gt(neap_reactor_run_once(own, NULL), 0);
	atomic_store(&core->ready, true);
	while (!atomic_load(&core->quit))
		drive_for(own, 2);
	if (core->joined == 0) {
		ck_assert_int_eq(neap_engine_close(core->engine, raise_flag, &core->closed), 0);
		ck_assert(drive_until(own, &core->closed, 20000));
	}
	drive_to_end(own);
	return NULL;
}

static bool core_ready(void *user)
{
	return atomic_load(&((struct other_core *)user)->ready);
}

START_TEST(a_core_joins_and_leaves)
{
	struct other_core core = {0};
	struct neap_reactor *reactors[] = {reactor};
	ck_assert_int_eq(create(NULL), 0);
	core.home = engine;
	ck_assert_int_eq(pthread_create(&core.thread, NULL, run_other_core, &core), 0);
	ck_assert(drive_all_until(reactors, 1, core_ready, &core, 20000));
	ck_assert_int_eq(core.joined, 0);
	ck_assert_int_eq(core.join_again, NEAP_EINVAL);
	ck_assert_int_eq(core.memory, NEAP_EINVAL);
	ck_assert_str_eq(neap_engine_name(core.engine), neap_engine_name(engine));
	struct neap_descriptor *descriptor = published(engine);
	ck_assert_uint_eq(descriptor->neap.port_count, 2);
	ck_assert_uint_eq(descriptor->neap.ports[1], core.port);
	ck_assert_int_eq(descriptor->tcp_data_port, neap_engine_data_port(engine));
	neap_descriptor_free(descriptor);
	ck_assert(reaches("127.0.0.1", core.port));
	/* Its calls belong to its thread, and the home outlives it. */
	struct neap_request request = {.source = why, .length = 0};
	ck_assert_int_eq(neap_submit(core.engine, &request, 1, NULL, NULL), NEAP_ETHREAD);
	ck_assert_int_eq(neap_engine_close(engine, NULL, NULL), NEAP_EBUSY);
	/* Memory that goes waits for both cores. */
	static unsigned char bytes[64];
	struct neap_memory range = {.address = bytes, .length = sizeof bytes};
	neap_region_id id;
	bool released = false;
	ck_assert_int_eq(neap_memory_register(engine, &range, 1, &id, NULL, 0), 0);
	ck_assert_int_eq(neap_memory_unregister(engine, id, raise_flag, &released), 0);
	ck_assert(drive_until(reactor, &released, 5000));
	atomic_store(&core.quit, true);
	ck_assert_int_eq(pthread_join(core.thread, NULL), 0);
	descriptor = published(engine);
	ck_assert_uint_eq(descriptor->neap.port_count, 1);
	neap_descriptor_free(descriptor);
}
END_TEST

/* A stop of the home's reactor waits for the others to leave. */
START_TEST(the_home_stops_last)
{
	struct other_core core = {0};
	struct neap_reactor *reactors[] = {reactor};
	ck_assert_int_eq(create(NULL), 0);
	core.home = engine;
	ck_assert_int_eq(pthread_create(&core.thread, NULL, run_other_core, &core), 0);
	ck_assert(drive_all_until(reactors, 1, core_ready, &core, 20000));
	neap_reactor_stop(reactor);
	for (int i = 0; i < 20; i++)
		ck_assert_int_ne(neap_reactor_run_once(reactor, NULL), NEAP_RUN_STOPPED);
	ck_assert_int_eq(neap_reactor_destroy(reactor), NEAP_EBUSY);
	atomic_store(&core.quit, true);
	ck_assert_int_eq(pthread_join(core.thread, NULL), 0);
	engine = NULL;
}
END_TEST

/* --- a start that fails leaves nothing behind */

struct failing {
	uint32_t calls, fail_at;
	int64_t balance;
};

static void *allocate(void *user, size_t bytes)
{
	struct failing *failing = user;
	if (++failing->calls == failing->fail_at)
		return NULL;
	failing->balance++;
	return calloc(1, bytes);
}

static void release(void *user, void *memory, size_t bytes)
{
	struct failing *failing = user;
	(void)bytes;
	failing->balance--;
	free(memory);
}

static uint32_t start_with_failure(uint32_t fail_at, int *error_p)
{
	struct failing failing = {0};
	struct neap_engine_options options = {.local_name = "127.0.0.1", .bind_address = "127.0.0.1", .requests_max = 256,
	                                      .batches_max = 64, .peers_max = 8, .sessions_max = 8, .regions_max = 16, .grants_max = 16,
	                                      .handshake_sessions_max = 8};
	struct neap_reactor *own;
	struct neap_engine *started;
	ck_assert_int_eq(neap_reactor_create(&own, &(struct neap_reactor_options){.alloc = {allocate, release, &failing}, .log = quiet}), 0);
	failing.calls = 0;
	failing.fail_at = fail_at;
	why[0] = 0;
	*error_p = neap_engine_create(&started, own, &options, why, sizeof why);
	uint32_t calls = failing.calls;
	if (*error_p == 0) {
		bool ended = false;
		ck_assert_int_eq(neap_engine_close(started, raise_flag, &ended), 0);
		ck_assert(drive_until(own, &ended, 5000));
	} else {
		ck_assert_ptr_null(started);
		ck_assert_str_ne(why, "");
	}
	drive_to_end(own);
	ck_assert_msg(failing.balance == 0, "failing at %u: %ld allocations left", fail_at, (long)failing.balance);
	return calls;
}

START_TEST(any_allocation_may_fail)
{
	int error;
	uint32_t calls = start_with_failure(0, &error);
	ck_assert_int_eq(error, 0);
	ck_assert_uint_gt(calls, 20);
	for (uint32_t k = 1; k <= calls; k++) {
		start_with_failure(k, &error);
		ck_assert_msg(error == NEAP_ENOMEM, "allocation %u of %u: %d %s", k, calls, error, why);
	}
}
END_TEST

/* --- calls without an engine, from the wrong thread */

static void *from_elsewhere(void *unused)
{
	(void)unused;
	return (void *)(intptr_t)neap_engine_close(engine, NULL, NULL);
}

START_TEST(misuse_is_answered)
{
	pthread_t thread;
	void *answer;
	struct neap_batch_summary summary;
	struct neap_outcome outcome;
	ck_assert_int_eq(create(NULL), 0);
	ck_assert_int_eq(neap_reactor_run_once(reactor, NULL) > 0, 1);
	ck_assert_int_eq(pthread_create(&thread, NULL, from_elsewhere, NULL), 0);
	ck_assert_int_eq(pthread_join(thread, &answer), 0);
	ck_assert_int_eq((intptr_t)answer, NEAP_ETHREAD);
	ck_assert_int_eq(neap_engine_close(NULL, NULL, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_engine_create(NULL, reactor, NULL, NULL, 0), NEAP_EINVAL);
	ck_assert_int_eq(neap_memory_register(engine, NULL, 1, NULL, NULL, 0), NEAP_EINVAL);
	ck_assert_int_eq(neap_memory_find(engine, why, 1, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_memory_info(engine, 1, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_memory_unregister(engine, 1, NULL, NULL), NEAP_ESTALE);
	ck_assert_int_eq(neap_grant_end(engine, NULL, NULL, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_segment_info(engine, 0, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_segment_buffer(engine, 0, 0, NULL, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_batch_status(engine, 1, 0, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_batch_status(engine, 1, 0, &outcome), NEAP_ESTALE);
	ck_assert_int_eq(neap_batch_summary(engine, 1, &summary, NULL), NEAP_ESTALE);
	ck_assert_int_eq(neap_notify_take(engine, NULL), NEAP_EINVAL);
	ck_assert_int_eq(neap_outcome_text(engine, NULL, NULL, NULL, 0), NEAP_EINVAL);
}
END_TEST

/* A forked child has the parent's engine in its memory and must not use it. */
START_TEST(a_forked_child_is_refused)
{
	struct neap_request request = {.source = why, .length = 0};
	int status;
	ck_assert_int_eq(create(NULL), 0);
	pid_t child = fork();
	if (child == 0)
		_exit(neap_submit(engine, &request, 1, NULL, NULL) == NEAP_EFORKED && neap_engine_close(engine, NULL, NULL) == NEAP_EFORKED &&
		      neap_segment_open(engine, "127.0.0.1:1", count_opening, NULL) == NEAP_EFORKED ? 0 : 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}
END_TEST

/* Each cause has a number and a sentence. */
START_TEST(every_cause_has_a_sentence)
{
	struct neap_request request = {.opcode = _i % 2 ? NEAP_WRITE : NEAP_READ, .segment = 5, .length = 10, .target_offset = 0x1000};
	struct neap_outcome outcome;
	char text[300], small[8];
	ck_assert_int_eq(create(NULL), 0);
	neap_outcome_set(&outcome, _i == 0 ? NEAP_COMPLETED : NEAP_FAILED, _i == 0 ? NEAP_EFFECT_ALL : NEAP_EFFECT_UNKNOWN,
	                 (enum neap_cause)_i, _i == NEAP_CAUSE_CONNECT_FAILED ? 111 : 0, 10);
	ck_assert_int_eq(outcome.error == 0, _i == 0);
	int length = neap_outcome_text(engine, &request, &outcome, text, sizeof text);
	ck_assert_int_gt(length, 30);
	ck_assert_ptr_nonnull(strstr(text, "10 bytes"));
	ck_assert_ptr_nonnull(strstr(text, "0x1000"));
	if (_i == NEAP_CAUSE_CONNECT_FAILED)
		ck_assert_ptr_nonnull(strstr(text, "refused"));
	ck_assert_int_eq(neap_outcome_text(engine, &request, &outcome, small, sizeof small), length);
	outcome.cause = 200;
	ck_assert_int_gt(neap_outcome_text(engine, &request, &outcome, text, sizeof text), 0);
}
END_TEST

#ifndef __has_feature
#define __has_feature(feature) 0
#endif
/* Only there do threads meet; the rest would take minutes and tell nothing more. */
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define CASE "cores"
#else
#define CASE NULL
#endif

#define COUNT(list) ((int)(sizeof(list) / sizeof(list)[0]))

int main(void)
{
	Suite *suite = suite_create("engine");
	TCase *options = tcase_create("options"), *named = tcase_create("names"), *life = tcase_create("life"),
	      *documents = tcase_create("published"), *cores = tcase_create("cores"), *answers = tcase_create("answers"),
	      *segments = tcase_create("segments and notifies");
	TCase *const cases[] = {options, named, life, documents, cores, answers};
	for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
		tcase_add_checked_fixture(cases[i], setup, teardown);
		tcase_set_timeout(cases[i], 60);
		suite_add_tcase(suite, cases[i]);
	}
	tcase_set_timeout(segments, 60);
	suite_add_tcase(suite, segments);
	tcase_add_loop_test(options, bad_options_are_refused_with_a_reason, 0, COUNT(bad_options));
	tcase_add_loop_test(options, texts_have_a_limit, 0, COUNT(long_texts));
	tcase_add_test(options, defaults_work_on_one_machine);
	tcase_add_test(options, fixed_ports_are_taken_or_the_start_fails);
	tcase_add_loop_test(named, what_is_published_and_what_is_bound, 0, COUNT(names));
	tcase_add_test(life, close_once);
	tcase_add_test(life, the_reactor_stops_its_engines);
	tcase_add_test(life, what_is_pending_is_answered_first);
	tcase_add_test(life, any_allocation_may_fail);
	tcase_add_test(life, opening_what_is_not_there);
	tcase_add_test(documents, the_document_follows_the_memory);
	tcase_add_test(documents, a_plain_engine_says_nothing_of_neap);
	tcase_add_test(documents, the_document_never_outgrows_its_limit);
	tcase_add_test(cores, a_core_joins_and_leaves);
	tcase_add_test(cores, the_home_stops_last);
	tcase_add_test(answers, misuse_is_answered);
	tcase_add_test(answers, a_forked_child_is_refused);
	tcase_add_loop_test(answers, every_cause_has_a_sentence, 0, NEAP_CAUSE_INTERNAL + 1);
	tcase_add_test(segments, opening_twice_and_refreshing);
	tcase_add_test(segments, transports_want_fresh_descriptors);
	tcase_add_test(segments, notifies_go_and_come);
	tcase_add_test(segments, a_full_queue_refuses);
	SRunner *runner = srunner_create(suite);
	srunner_run(runner, NULL, CASE, CK_NORMAL);
	int failed = srunner_ntests_failed(runner);
	srunner_free(runner);
	return failed != 0;
}
