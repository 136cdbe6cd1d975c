/* Simulated verbs: processes, their descriptors, and their deaths. */
#include "reactor/net.h"
#include "tests/support/sim_inside.h"
#include <assert.h>
#include <sys/eventfd.h>
#include <unistd.h>

/* --- descriptors */

#define FIRST_SIGNAL 1000000 /* not one of the system's */

void sim_signal_begin(struct sim_signal *signal, struct sim_verbs *sim, const struct sim_process *process)
{
	*signal = (struct sim_signal){.process = process};
	if (process->signaled) {
		signal->fd = FIRST_SIGNAL + sim->next_signal++;
		signal->next = sim->signals;
		sim->signals = signal;
		return;
	}
	signal->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	assert(signal->fd >= 0);
}

void sim_signal_end(struct sim_signal *signal, struct sim_verbs *sim)
{
	struct sim_signal **at = &sim->signals;
	if (!signal->process->signaled) {
		(void)close(signal->fd);
		return;
	}
	while (*at != signal)
		at = &(*at)->next;
	*at = signal->next;
}

void sim_signal_raise(struct sim_signal *signal)
{
	uint64_t one = 1;
	signal->raised = true;
	if (signal->process->signaled)
		signal->process->signaled(signal->process->user);
	else
		(void)!write(signal->fd, &one, sizeof one);
}

void sim_signal_take(struct sim_signal *signal)
{
	uint64_t count;
	signal->raised = false;
	if (!signal->process->signaled)
		(void)!read(signal->fd, &count, sizeof count);
}

unsigned sim_verbs_ready(const struct sim_verbs *sim, int fd)
{
	const struct sim_signal *signal = sim->signals;
	while (signal && signal->fd != fd)
		signal = signal->next;
	return signal && signal->raised ? NEAP_READABLE : 0;
}

/* --- processes */

void sim_process_begin(struct sim_process *process, struct sim_verbs *sim, uint32_t devices, void (*signaled)(void *user), void *user)
{
	*process = (struct sim_process){.verbs = {.ops = &sim->ops, .user = process}, .sim = sim, .devices = devices, .signaled = signaled,
	                                .user = user};
}

/* Nothing comes to it or from it any more; to its owner all that it was owed has come. */
static void bury_qp(struct neap_verbs_qp *qp)
{
	struct sim_verbs *sim = qp->pd->context->sim;
	sim_strays_leave(qp);
	sim_network_settle(sim, NULL, qp);
	sim_qp_fails(qp);
	for (; qp->send_count; qp->send_head++, qp->send_count--)
		if (!sim_head(qp)->completed)
			sim_complete(qp, sim_head(qp)->what.id, NEAP_WC_FLUSHED, 0);
}

static void bury_qps(const struct sim_process *process)
{
	struct neap_verbs_qp **at = &process->sim->qps;
	while (*at) {
		struct neap_verbs_qp *qp = *at;
		if (qp->pd->context->process != process) {
			at = &qp->next;
			continue;
		}
		bury_qp(qp);
		*at = qp->next;
	}
}

static void bury_regions(struct neap_verbs_context *context)
{
	struct neap_verbs_mr *next;
	for (struct neap_verbs_mr *mr = context->pd ? context->pd->regions : NULL; mr; mr = next) {
		next = mr->next;
		sim_network_settle(context->sim, mr, NULL);
		if (mr->ghost) {
			sim_delete(context->sim, mr);
			continue;
		}
		context->device->regions--;
		context->device->locked_bytes -= mr->length;
	}
	if (context->pd)
		context->pd->regions = NULL; /* ghosts are nobody's: its queue pairs are gone */
}

static void bury_contexts(const struct sim_process *process, struct sim_device *device)
{
	struct neap_verbs_context **at = &device->contexts;
	while (*at) {
		struct neap_verbs_context *context = *at;
		if (context->process != process) {
			at = &context->next;
			continue;
		}
		bury_regions(context);
		*at = context->next;
		context->lost = true;
		sim_signal_raise(&context->signal);
	}
}

void sim_process_kill(struct sim_process *process)
{
	struct sim_verbs *sim = process->sim;
	bury_qps(process);
	for (uint32_t i = 0; i < sim->device_count; i++)
		bury_contexts(process, &sim->devices[i]);
	process->dead = true;
	sim_network_wake(sim);
}

static bool has_under_way(const struct sim_process *process, enum neap_verbs_opcode opcode)
{
	for (const struct neap_verbs_qp *qp = process->sim->qps; qp; qp = qp->next)
		for (uint32_t i = 0; qp->pd->context->process == process && i < qp->send_count; i++) {
			const struct sim_send *send = &qp->sends[(qp->send_head + i) % (qp->send_max + 1)];
			if (!send->completed && send->what.opcode == opcode && send->what.length > 64) /* no probe, and no check */
				return true;
		}
	return false;
}

bool sim_process_writes(const struct sim_process *process)
{
	return has_under_way(process, NEAP_VERBS_WRITE);
}

bool sim_process_reads(const struct sim_process *process)
{
	return has_under_way(process, NEAP_VERBS_READ);
}
