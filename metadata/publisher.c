/* The publisher. Each of its states waits for one answer, or for some that are asked for side by side. */
#include "metadata/publisher.h"
#include "metadata/descriptor.h"
#include "metadata/directory.h"
#include "metadata/publisher_fsm.h"
#include "reactor/pool.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define GRACE_NS UINT64_C(250000000) /* the back-end's own deadline comes first */
#define WHY_MAX 640u
#define CALLS_MAX 3
#define MS UINT64_C(1000000)
#define BLIND_MAX 20u
#define BLIND_LOOK_NS (1000 * MS) /* after the first look that nothing watches behind; doubled with each */

struct neap_publisher {
	struct neap_machine machine;
	struct neap_timer timer;
	struct neap_reactor *reactor;
	struct neap_dependent dependent;
	struct neap_reap reap;
	struct neap_publisher_options options; /* texts are copies below */
	struct neap_backend_watch watch;       /* of the address */
	uint64_t calls[CALLS_MAX];             /* to the back-end */
	uint64_t probe;                        /* to the other process */
	uint8_t awaited;
	uint8_t blind;    /* looks in a row since which nothing watches, although the back-end can */
	bool part_lost;   /* CONFIRMING: one of both is not there, or not what we wrote */
	uint64_t written; /* the digest of the descriptor that was written last */
	bool dirty;       /* the descriptor is not what was written last */
	bool doubted;     /* told that something changed while it was not PUBLISHED */
	bool closing, leaving;
	int told;         /* what the owner was told last; 1: nothing yet */
	int error;        /* of the last failure */
	uint32_t failures;
	struct neap_host_port other;
	void (*gone)(void *user);
	void *gone_user;
	char *address_text; /* heap: the document under the rpc key */
	size_t address_length;
	char rpc_key[NEAP_BACKEND_KEY_MAX], segment_key[NEAP_BACKEND_KEY_MAX];
	char name[NEAP_NAME_MAX + 1];
	char why[WHY_MAX];
};

static struct neap_publisher *publisher_of(const struct neap_machine *machine)
{
	return (struct neap_publisher *)(uintptr_t)((const char *)machine - offsetof(struct neap_publisher, machine));
}

static const struct neap_backend_ops *ops_of(const struct neap_publisher *publisher)
{
	return publisher->options.backend->ops;
}

static void note(struct neap_publisher *publisher, int error, const char *why)
{
	publisher->error = error;
	(void)snprintf(publisher->why, sizeof publisher->why, "segment '%.80s' is not published: %.500s", publisher->name,
	               why && why[0] ? why : neap_error_text(error));
}

static void cancel_calls(struct neap_publisher *publisher)
{
	struct neap_backend *backend = publisher->options.backend;
	for (int i = 0; i < CALLS_MAX; i++) {
		uint64_t call = publisher->calls[i];
		publisher->calls[i] = 0;
		if (call)
			backend->ops->cancel(backend, call);
	}
	if (publisher->probe)
		neap_handshake_cancel(publisher->options.caller, publisher->probe);
	publisher->probe = 0;
}

static void tell(struct neap_publisher *publisher, int error, const char *why)
{
	if (publisher->told == error)
		return;
	publisher->told = error;
	publisher->options.told(publisher->options.user, error, why);
}

/* --- facts to events ---------------------------------------------------------------------------------------------------- */

static void failed(struct neap_publisher *publisher, int error, const char *why)
{
	note(publisher, error, why);
	neap_step(&publisher->machine, publisher_on_FAILED, (uint64_t)-(int64_t)error);
}

/* A call that could not even begin. */
static void not_begun(struct neap_publisher *publisher, int error)
{
	char why[448];
	(void)snprintf(why, sizeof why, "%.320s: %s", publisher->options.backend->where, neap_error_text(error));
	cancel_calls(publisher);
	failed(publisher, error, why);
}

static bool same_address(const struct neap_host_port *a, const struct neap_host_port *b)
{
	return a->port == b->port && strcmp(a->host, b->host) == 0;
}

/* What stands under our rpc key. What cannot be read is nobody's address, and replaced. */
static void address_read(void *user, int error, const char *value, size_t length, const char *why)
{
	struct neap_publisher *publisher = user;
	struct neap_machine *machine = &publisher->machine;
	char unheard[160];
	publisher->calls[0] = 0;
	if (error == NEAP_EMETADATA) {
		neap_step(machine, publisher_on_NONE, 0);
	} else if (error) {
		failed(publisher, error, why);
	} else if (neap_rpc_document_decode(value, length, &publisher->other, unheard, sizeof unheard)) {
		publisher->other.port = 0;
		neap_step(machine, publisher_on_OTHER, 0);
	} else if (same_address(&publisher->other, &publisher->options.address)) {
		const struct neap_publisher_options *options = &publisher->options;
		publisher->dirty |= options->is_old && options->is_old(options->user);
		bool old = publisher->dirty && machine->state == publisher_CHECKING;
		neap_step(machine, old ? publisher_on_OURS_OLD : publisher_on_OURS, 0);
	} else {
		neap_step(machine, publisher_on_OTHER, publisher->other.port);
	}
}

/* It lives when it answers as a transfer engine and does not say that it is another one. */
static void probed(void *user, int error, const char *json, size_t length, const char *why)
{
	struct neap_publisher *publisher = user;
	struct neap_descriptor *descriptor = NULL;
	char unheard[160];
	(void)why;
	publisher->probe = 0;
	bool alive = !error;
	if (alive && neap_descriptor_decode(json, length, &descriptor, unheard, sizeof unheard) == NEAP_OK)
		alive = strcmp(descriptor->name, publisher->name) == 0 &&
		        !(descriptor->neap.present && memcmp(descriptor->neap.instance, publisher->options.instance, 16) == 0);
	neap_descriptor_free(descriptor);
	neap_step(&publisher->machine, alive ? publisher_on_ALIVE : publisher_on_DEAD, 0);
}

static void changed_once(struct neap_publisher *publisher)
{
	if (!publisher->leaving && publisher->machine.state == publisher_PUBLISHED)
		neap_step(&publisher->machine, publisher_on_PUBLISH, 0);
}

static void address_changed(struct neap_backend_watch *watch)
{
	struct neap_publisher *publisher =
		(struct neap_publisher *)(void *)((char *)watch - offsetof(struct neap_publisher, watch));
	publisher->doubted = true;
	changed_once(publisher);
}

/* One of the answers of a state that needs no values. */
static void answered(struct neap_publisher *publisher, int which, int error, const char *why)
{
	bool lost = error == NEAP_EMETADATA && publisher->machine.state == publisher_CONFIRMING; /* elsewhere it is an odd answer */
	publisher->calls[which] = 0;
	publisher->part_lost |= lost;
	if (error && !lost) {
		cancel_calls(publisher);
		failed(publisher, error, why);
	} else if (--publisher->awaited == 0) {
		neap_step(&publisher->machine, publisher->part_lost ? publisher_on_LOST : publisher_on_DONE, 0);
	}
}

static void first_answered(void *user, int error, const char *value, size_t length, const char *why)
{
	(void)value, (void)length;
	answered(user, 0, error, why);
}

static void second_answered(void *user, int error, const char *value, size_t length, const char *why)
{
	(void)value, (void)length;
	answered(user, 1, error, why);
}

/* Of a document, which ends in a newline in some stores and not in others. */
static uint64_t digest(const char *text, size_t length)
{
	return neap_backend_hash(text, length > 0 && text[length - 1] == '\n' ? length - 1 : length);
}

/* A write that was given up may still be done, after the one that was made in its place; so may one of a process that had our name. */
static void descriptor_read(void *user, int error, const char *value, size_t length, const char *why)
{
	struct neap_publisher *publisher = user;
	if (!error && digest(value, length) != publisher->written) {
		publisher->part_lost = true;
		neap_log(publisher->reactor, NEAP_LOG_INFO, "metadata", "%s: the descriptor of '%.80s' is not what was written last; replaced",
		         publisher->options.backend->where, publisher->name);
	}
	answered(publisher, 2, error, why);
}

static void await(struct neap_publisher *publisher, uint8_t count)
{
	publisher->awaited = count;
	publisher->part_lost = false;
}

/* --- actions ------------------------------------------------------------------------------------------------------------ */

static void read_address(struct neap_publisher *publisher)
{
	struct neap_backend *backend = publisher->options.backend;
	int error = backend->ops->get(backend, publisher->rpc_key, publisher->options.timeout_ns, address_read, publisher,
	                              &publisher->calls[0]);
	if (error)
		not_begun(publisher, error);
}

static void do_check(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	publisher->doubted = false;
	publisher->watch.changed = address_changed;
	int error = ops_of(publisher)->watch(publisher->options.backend, publisher->rpc_key, &publisher->watch);
	if (!error || !neap_backend_can(publisher->options.backend, NEAP_BACKEND_WATCHES))
		publisher->blind = 0;
	else if (publisher->blind < BLIND_MAX)
		publisher->blind++;
	read_address(publisher);
}

static void do_rewrite(struct neap_machine *machine, uint64_t argument)
{
	publisher_of(machine)->dirty = true;
	do_check(machine, argument);
}

static void do_probe(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	if (publisher->other.port == 0) {
		(void)neap_post_first(machine, publisher_on_DEAD, 0);
		return;
	}
	int error = neap_handshake_call(publisher->options.caller, &publisher->other, NEAP_HANDSHAKE_METADATA, "{}\n", 3,
	                                publisher->options.timeout_ns, probed, publisher, &publisher->probe);
	if (error == NEAP_EAGAIN || error == NEAP_ENOMEM)
		failed(publisher, error, "no handshake call is free to look who has the name");
	else if (error)
		(void)neap_post_first(machine, publisher_on_DEAD, 0);
}

static void do_clear(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	struct neap_backend *backend = publisher->options.backend;
	(void)argument;
	neap_log(publisher->reactor, NEAP_LOG_INFO, "metadata", "%s: nobody answers at the address of '%.80s' that is stored there; replaced",
	         backend->where, publisher->name);
	await(publisher, 1);
	int error = backend->ops->remove(backend, publisher->rpc_key, publisher->options.timeout_ns, first_answered, publisher,
	                                 &publisher->calls[0]);
	if (error)
		not_begun(publisher, error);
}

static void store(struct neap_publisher *publisher, const char *key, const char *value, size_t length, bool create)
{
	struct neap_backend *backend = publisher->options.backend;
	struct neap_backend_set set = {.key = key, .value = value, .length = length, .lease_ns = publisher->options.lease_ns, .create = create};
	await(publisher, 1);
	int error =
		backend->ops->set(backend, &set, publisher->options.timeout_ns, first_answered, publisher, &publisher->calls[0]);
	if (error)
		not_begun(publisher, error);
}

static void do_announce(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	publisher->dirty = true;
	store(publisher, publisher->rpc_key, publisher->address_text, publisher->address_length, true);
}

static void do_write(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	size_t length = 0;
	(void)argument;
	publisher->dirty = false;
	char *text = publisher->options.describe(publisher->options.user, &length);
	publisher->written = digest(text, text ? length : 0);
	if (text)
		store(publisher, publisher->segment_key, text, length, false);
	else
		failed(publisher, NEAP_ENOMEM, "its descriptor cannot be made");
	free(text);
}

static void do_confirm(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	struct neap_backend *backend = publisher->options.backend;
	uint64_t lease_ns = publisher->options.lease_ns, timeout_ns = publisher->options.timeout_ns;
	int error = NEAP_OK;
	(void)argument;
	await(publisher, lease_ns ? 3 : 1); /* without a lease the address needs no touch: it has just been read */
	if (lease_ns)
		error = backend->ops->touch(backend, publisher->rpc_key, lease_ns, timeout_ns, second_answered, publisher, &publisher->calls[1]);
	if (lease_ns && !error)
		error = backend->ops->touch(backend, publisher->segment_key, lease_ns, timeout_ns, first_answered, publisher, &publisher->calls[0]);
	if (!error)
		error = backend->ops->get(backend, publisher->segment_key, timeout_ns, descriptor_read, publisher, &publisher->calls[2]);
	if (error)
		not_begun(publisher, error);
}

static void do_settle(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	publisher->failures = 0;
	if (publisher->dirty || publisher->doubted)
		(void)neap_post_first(machine, publisher_on_PUBLISH, 0);
	tell(publisher, NEAP_OK, "");
}

/* What could not be written has to be. */
static void do_fail(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	publisher->dirty = true;
	publisher->failures++;
	tell(publisher, publisher->error == NEAP_ETAKEN ? NEAP_EAGAIN : publisher->error, publisher->why);
}

static void do_give_up(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	cancel_calls(publisher);
	note(publisher, NEAP_ETIMEDOUT, "the metadata store did not answer in time");
	do_fail(machine, argument);
}

static void do_conflict(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	char address[NEAP_ADDRESS_TEXT_MAX], why[WHY_MAX - 120];
	(void)argument;
	publisher->dirty = true;
	publisher->failures = 0;
	if (neap_host_port_format(&publisher->other, address, sizeof address) < 0)
		address[0] = '\0';
	(void)snprintf(why, sizeof why, "%.160s: the process at %s has this name, and lives: give another local_name, or end that one",
	               publisher->options.backend->where, address);
	note(publisher, NEAP_ETAKEN, why);
	tell(publisher, NEAP_ETAKEN, publisher->why);
}

static void do_part(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	cancel_calls(publisher);
	neap_backend_unwatch(&publisher->watch);
	read_address(publisher);
}

static void do_remove(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	struct neap_backend *backend = publisher->options.backend;
	uint64_t timeout_ns = publisher->options.timeout_ns;
	(void)argument;
	await(publisher, 2);
	int error = backend->ops->remove(backend, publisher->rpc_key, timeout_ns, first_answered, publisher, &publisher->calls[0]);
	if (!error)
		error = backend->ops->remove(backend, publisher->segment_key, timeout_ns, second_answered, publisher, &publisher->calls[1]);
	if (error)
		not_begun(publisher, error);
}

static void do_end(struct neap_machine *machine, uint64_t argument)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)argument;
	cancel_calls(publisher);
	neap_backend_unwatch(&publisher->watch);
	publisher->gone(publisher->gone_user);
}

static neap_action_func *const actions[] = {
	[publisher_do_check] = do_check,       [publisher_do_probe] = do_probe,     [publisher_do_clear] = do_clear,
	[publisher_do_announce] = do_announce, [publisher_do_write] = do_write,     [publisher_do_confirm] = do_confirm,
	[publisher_do_rewrite] = do_rewrite,   [publisher_do_settle] = do_settle,   [publisher_do_fail] = do_fail,
	[publisher_do_give_up] = do_give_up,   [publisher_do_conflict] = do_conflict, [publisher_do_part] = do_part,
	[publisher_do_remove] = do_remove,     [publisher_do_end] = do_end,
};

static uint64_t least(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A back-end that is still connecting cannot watch yet: it is looked again before long, when it can. */
static uint64_t refresh_ns(const struct neap_publisher *publisher)
{
	const struct neap_publisher_options *options = &publisher->options;
	uint64_t refresh = options->lease_ns ? least(options->lease_ns / 3, options->refresh_ns) : options->refresh_ns;
	return publisher->blind ? least(BLIND_LOOK_NS << (publisher->blind - 1), refresh) : refresh;
}

static uint64_t pause_ns(const struct neap_publisher *publisher)
{
	const struct neap_publisher_options *options = &publisher->options;
	return neap_backend_pause_ns(publisher->reactor, publisher->failures, options->pause_min_ns, options->pause_max_ns);
}

static uint64_t due_ns(const struct neap_machine *machine, uint8_t timeout_class, uint64_t now_ns)
{
	const struct neap_publisher *publisher = publisher_of(machine);
	switch (timeout_class) {
	case publisher_timeout_REFRESH:
		return now_ns + refresh_ns(publisher);
	case publisher_timeout_PAUSE:
		return now_ns + pause_ns(publisher);
	default:
		return now_ns + publisher->options.timeout_ns + GRACE_NS;
	}
}

static void broken(struct neap_machine *machine, uint8_t event)
{
	struct neap_publisher *publisher = publisher_of(machine);
	(void)event;
	cancel_calls(publisher);
	neap_backend_unwatch(&publisher->watch);
	note(publisher, NEAP_EINTERNAL, NULL);
	tell(publisher, NEAP_EINTERNAL, publisher->why);
	if (publisher->gone)
		publisher->gone(publisher->gone_user);
}

static const struct neap_machine_kind kind = {
	.fsm = &neap_fsm_publisher,
	.actions = actions,
	.timer_offset = NEAP_TIMER_OFFSET(struct neap_publisher),
	.due_ns = due_ns,
	.broken = broken,
};

/* --- calls ---------------------------------------------------------------------------------------------------------------- */

static int make_texts(struct neap_publisher *publisher, const struct neap_publisher_options *options)
{
	size_t length = strnlen(options->name, NEAP_NAME_MAX + 1);
	if (length == 0 || length > NEAP_NAME_MAX)
		return length ? NEAP_ELIMIT : NEAP_EINVAL;
	memcpy(publisher->name, options->name, length + 1);
	int error = neap_directory_rpc_key(options->cluster, options->name, publisher->rpc_key, sizeof publisher->rpc_key);
	if (!error)
		error = neap_directory_segment_key(options->cluster, options->name, publisher->segment_key, sizeof publisher->segment_key);
	return error ? error : neap_rpc_document_encode(&options->address, &publisher->address_text, &publisher->address_length);
}

int neap_publisher_create(struct neap_publisher **publisher_p, struct neap_reactor *reactor, const struct neap_publisher_options *options)
{
	struct neap_reactor_class *class_ = NULL;
	*publisher_p = NULL;
	if (!neap_backend_can(options->backend, NEAP_BACKEND_STORES | (options->lease_ns ? NEAP_BACKEND_LEASES : 0u)))
		return NEAP_ENOTSUP;
	int error = neap_reactor_class_of(reactor, &kind, &class_);
	struct neap_publisher *publisher = error ? NULL : neap_allocate(reactor, sizeof *publisher);
	if (!publisher)
		return error ? error : NEAP_ENOMEM;
	publisher->reactor = reactor;
	publisher->options = *options;
	publisher->options.cluster = publisher->options.name = NULL; /* the caller's */
	publisher->options.pause_min_ns = options->pause_min_ns ? options->pause_min_ns : 100 * MS;
	publisher->options.pause_max_ns = options->pause_max_ns ? options->pause_max_ns : 5000 * MS;
	publisher->told = 1;
	publisher->dirty = true;
	error = make_texts(publisher, options);
	if (error) {
		neap_release(reactor, publisher, sizeof *publisher);
		return error;
	}
	publisher->dependent.what = "a publisher";
	neap_reactor_attach(reactor, &publisher->dependent);
	neap_machine_begin(&publisher->machine, &class_->class_);
	(void)neap_post(&publisher->machine, publisher_on_PUBLISH, 0);
	neap_reactor_touch(reactor);
	*publisher_p = publisher;
	return NEAP_OK;
}

void neap_publisher_changed(struct neap_publisher *publisher)
{
	publisher->dirty = true;
	changed_once(publisher);
	neap_reactor_touch(publisher->reactor);
}

void neap_publisher_withdraw(struct neap_publisher *publisher, void (*done)(void *user), void *user)
{
	if (publisher->leaving)
		return;
	publisher->leaving = true;
	publisher->gone = done;
	publisher->gone_user = user;
	(void)neap_post(&publisher->machine, publisher_on_WITHDRAW, 0);
	neap_reactor_touch(publisher->reactor);
}

static void reap_publisher(struct neap_reap *reap)
{
	struct neap_publisher *publisher = (struct neap_publisher *)(void *)((char *)reap - offsetof(struct neap_publisher, reap));
	struct neap_reactor *reactor = publisher->reactor;
	neap_reactor_detach(reactor, &publisher->dependent);
	neap_release(reactor, publisher, sizeof *publisher);
}

void neap_publisher_destroy(struct neap_publisher *publisher)
{
	if (!publisher || publisher->closing)
		return;
	publisher->closing = true;
	cancel_calls(publisher);
	neap_backend_unwatch(&publisher->watch);
	neap_machine_end(&publisher->machine);
	free(publisher->address_text);
	publisher->address_text = NULL;
	publisher->reap.reap = reap_publisher;
	neap_reap_later(publisher->reactor, &publisher->reap);
}

bool neap_publisher_is_published(const struct neap_publisher *publisher)
{
	return publisher->told == NEAP_OK;
}
