#include "tests/support/stream_rig.h"

#include <check.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

static struct rig the_rig;

static void keep_log(void *user, enum neap_log_level level, const char *component, const char *message)
{
	struct rig *rig = user;
	(void)level;
	if (strcmp(component, "reactor") == 0) /* long turns on a busy machine */
		return;
	rig->logs++;
	snprintf(rig->last_log, sizeof(rig->last_log), "%s: %s", component, message);
}

struct rig *rig_open(const struct neap_reactor_options *options)
{
	struct rig *rig = &the_rig;
	struct neap_reactor_options mine = options ? *options : (struct neap_reactor_options){0};
	memset(rig, 0, sizeof(*rig));
	fdcheck_begin(&rig->fds);
	rig->fds_before = fdcheck_count();
	mine.log = keep_log;
	mine.log_user = rig;
	ck_assert_int_eq(neap_reactor_create(&rig->reactor, &mine), 0);
	return rig;
}

void rig_close(struct rig *rig)
{
	fdcheck_assert(&rig->fds);
	neap_acceptor_close(&rig->acceptor);
	for (int i = 0; i < STREAM_RIG_MAX; i++) {
		neap_connect_cancel(&rig->connects[i]);
		if (rig->outcomes[i].stream)
			neap_stream_close(rig->outcomes[i].stream, false);
		if (rig->accepted[i])
			neap_stream_close(rig->accepted[i], false);
	}
	drive_to_end(rig->reactor);
	ck_assert_int_eq(fdcheck_count(), rig->fds_before);
}

static void on_accepted(struct neap_acceptor *acceptor, struct neap_stream *stream)
{
	struct rig *rig = acceptor->user;
	ck_assert_ptr_null(stream->ready);
	ck_assert_uint_lt(rig->accepted_count, STREAM_RIG_MAX);
	rig->accepted[rig->accepted_count++] = stream;
	rig->any_accepted = true;
}

uint16_t rig_listen(struct rig *rig, const char *numeric_host, uint16_t port)
{
	struct neap_sockaddr address;
	int system_errno = 0;
	ck_assert_int_eq(neap_sockaddr_from_numeric(numeric_host, port, &address), 0);
	if (!rig->acceptor.connections_max)
		rig->acceptor.connections_max = STREAM_RIG_MAX;
	if (!rig->acceptor.accepted_stream)
		rig->acceptor.accepted_stream = on_accepted;
	rig->acceptor.user = rig;
	rig->acceptor.what = "rig";
	int error = neap_acceptor_open(&rig->acceptor, rig->reactor, &address, &rig->options, &system_errno);
	ck_assert_msg(error == 0, "listen at %s: %s, %s", numeric_host, neap_error_name(error), strerror(system_errno));
	ck_assert_uint_ne(neap_acceptor_port(&rig->acceptor), 0);
	return neap_acceptor_port(&rig->acceptor);
}

static void on_done(struct neap_connect *connect, int error, int system_errno, struct neap_stream *stream)
{
	struct rig_outcome *outcome = connect->user;
	outcome->calls++;
	outcome->done = true;
	outcome->error = error;
	outcome->system_errno = system_errno;
	outcome->stream = stream;
	memcpy(outcome->detail, connect->detail, sizeof(outcome->detail));
}

int rig_connect(struct rig *rig, int i, const char *host, uint16_t port, unsigned timeout_ms)
{
	struct neap_host_port target = {.port = port, .has_port = true, .is_v6 = strchr(host, ':') != NULL};
	rig->outcomes[i] = (struct rig_outcome){0};
	snprintf(target.host, sizeof(target.host), "%s", host);
	int error = neap_connect_start(&rig->connects[i], rig->reactor, &target, &rig->options, timeout_ms * UINT64_C(1000000), on_done,
	                               &rig->outcomes[i]);
	ck_assert(!rig->outcomes[i].done); /* never from inside */
	return error;
}

void rig_pair(struct rig *rig, struct neap_stream **ours_p, struct neap_stream **theirs_p)
{
	uint16_t port = rig_listen(rig, "127.0.0.1", 0);
	ck_assert_int_eq(rig_connect(rig, 0, "127.0.0.1", port, 5000), 0);
	ck_assert(drive_until(rig->reactor, &rig->outcomes[0].done, 5000));
	ck_assert_msg(rig->outcomes[0].error == 0, "%s", rig->outcomes[0].detail);
	ck_assert(drive_until(rig->reactor, &rig->any_accepted, 5000));
	*ours_p = rig->outcomes[0].stream;
	*theirs_p = rig->accepted[0];
}

int rig_descriptor(struct neap_stream *stream)
{
	struct neap_sockaddr local, peer;
	if (stream->ops->local_address(stream, &local) || stream->ops->peer_address(stream, &peer))
		return -1;
	for (int fd = 3; fd < 4096; fd++) {
		struct neap_sockaddr a = {.length = sizeof(a.v6)}, b = {.length = sizeof(b.v6)};
		if (getsockname(fd, &a.any, &a.length) == 0 && getpeername(fd, &b.any, &b.length) == 0 && neap_sockaddr_equal(&a, &local) &&
		    neap_sockaddr_equal(&b, &peer))
			return fd;
	}
	return -1;
}
