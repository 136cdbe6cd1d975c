#include "apps/bench/pair.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

static void told(struct bench_pair *pair)
{
	ev_io_stop(pair->host->loop, &pair->readable);
	pair->told = true;
	ev_break(pair->host->loop, EVBREAK_ALL);
}

static void on_readable(struct ev_loop *loop, ev_io *watcher, int events)
{
	(void)loop;
	(void)events;
	struct bench_pair *pair = watcher->data;
	ssize_t got = read(pair->out, pair->line + pair->line_length, sizeof pair->line - 1 - pair->line_length);
	if (got < 0 && (errno == EAGAIN || errno == EINTR))
		return;
	if (got <= 0) {
		told(pair);
		return;
	}
	pair->line_length += (size_t)got;
	pair->line[pair->line_length] = 0;
	char *end = strchr(pair->line, '\n');
	if (!end && pair->line_length < sizeof pair->line - 1)
		return;
	sscanf(pair->line, "segment %511s", pair->segment);
	told(pair);
}

static void on_died(struct ev_loop *loop, ev_child *watcher, int events)
{
	(void)events;
	struct bench_pair *pair = watcher->data;
	ev_child_stop(loop, watcher);
	pair->ended = true;
	ev_break(loop, EVBREAK_ALL);
}

static void run_child(const struct bench_options *o, int out, pid_t parent)
{
	char flags[14][600];
	char *argv[18];
	size_t count = 0, used = 0;
	argv[count++] = (char *)"neap-bench";
#define FLAG(...) (snprintf(flags[used], sizeof flags[used], __VA_ARGS__), argv[count++] = flags[used++])
	FLAG("--mode=target");
	FLAG("--metadata_server=%s", o->node.metadata_server);
	if (!app_metadata_stores(o->node.metadata_server)) /* there it would be the name of both */
		FLAG("--local_server_name=%s", o->node.local_server_name);
	if (o->node.bind_address)
		FLAG("--bind_address=%s", o->node.bind_address);
	FLAG("--protocol=%s", o->node.protocol);
	if (*o->node.device_name)
		FLAG("--device_name=%s", o->node.device_name);
	FLAG("--buffer_size=%" PRIu64, o->buffer_size);
	FLAG("--threads=%" PRIu64, o->threads);
	FLAG("--congestion=%s", o->congestion);
	FLAG("--busy=%s", o->busy ? "true" : "false");
	FLAG("--pin=%s", o->pin ? "true" : "false");
#undef FLAG
	argv[count] = NULL;
	sigset_t none;
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	if (getppid() != parent || dup2(out, STDOUT_FILENO) < 0)
		_exit(APP_START);
	execv("/proc/self/exe", argv);
	fprintf(stderr, "neap-bench: cannot start the target: %s\n", strerror(errno));
	_exit(APP_START);
}

int bench_pair_start(struct bench_pair *pair, struct app_host *host, const struct bench_options *options, char *why,
                     size_t why_size)
{
	int ends[2];
	pid_t self = getpid();
	memset(pair, 0, sizeof *pair);
	pair->host = host;
	if (pipe2(ends, O_CLOEXEC)) {
		snprintf(why, why_size, "cannot make a pipe: %s; see `ulimit -n`", strerror(errno));
		return -1;
	}
	pair->pid = fork();
	if (pair->pid == 0)
		run_child(options, ends[1], self);
	close(ends[1]);
	pair->out = ends[0];
	if (pair->pid < 0) {
		snprintf(why, why_size, "cannot start a second process: %s; see `ulimit -u`", strerror(errno));
		close(ends[0]);
		return -1;
	}
	fcntl(pair->out, F_SETFL, O_NONBLOCK);
	ev_io_init(&pair->readable, on_readable, pair->out, EV_READ);
	ev_child_init(&pair->died, on_died, pair->pid, 0);
	pair->readable.data = pair->died.data = pair;
	ev_io_start(host->loop, &pair->readable);
	ev_child_start(host->loop, &pair->died);
	if (!app_host_wait(host, &pair->told, 60) || !pair->segment[0]) {
		snprintf(why, why_size, "%s",
		         host->interrupted ? "interrupted before the target process had started" : "the target process did not start");
		bench_pair_stop(pair);
		return -1;
	}
	return 0;
}

void bench_pair_stop(struct bench_pair *pair)
{
	if (pair->pid <= 0)
		return;
	ev_io_stop(pair->host->loop, &pair->readable);
	bool interrupted = pair->host->interrupted;
	pair->host->interrupted = false;
	if (!pair->ended)
		kill(pair->pid, SIGTERM);
	if (!app_host_wait(pair->host, &pair->ended, 10)) {
		kill(pair->pid, SIGKILL);
		app_host_wait(pair->host, &pair->ended, 10);
	}
	pair->host->interrupted = interrupted;
	ev_child_stop(pair->host->loop, &pair->died);
	close(pair->out);
	pair->pid = 0;
}
