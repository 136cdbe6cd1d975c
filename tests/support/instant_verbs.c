#include "tests/support/instant_verbs.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#define ENTRIES_MAX 65536u /* of a completion queue, a power of two */
#define DEPTH_MAX 8192u

struct neap_verbs_context {
	int event_fd;
};
struct neap_verbs_pd {
	int nothing;
};
struct neap_verbs_mr {
	int nothing;
};
struct neap_verbs_channel {
	int fd;
};
struct neap_verbs_cq {
	struct neap_verbs_channel *channel;
	uint32_t head, tail;
	bool armed;
	struct neap_verbs_completion ring[ENTRIES_MAX];
};
struct neap_verbs_qp {
	struct neap_verbs_cq *cq;
	uint32_t number;
	bool broken;
};

static _Atomic uint32_t numbers = 17;
bool instant_reads_doubtful;
uint64_t instant_reads;

/* Not freed by its maker: by the counterpart. */
static void *make(size_t bytes)
{
	return calloc(1, bytes);
}

static int list(void *user, char (*names)[NEAP_TOPOLOGY_NAME_SIZE], uint32_t capacity, uint32_t *count_p)
{
	(void)user;
	*count_p = capacity > 0;
	if (capacity > 0)
		snprintf(names[0], sizeof names[0], "%s", INSTANT_DEVICE);
	return 0;
}

static int open_device(void *user, const char *name, struct neap_verbs_context **context_p)
{
	(void)user;
	*context_p = NULL;
	if (strcmp(name, INSTANT_DEVICE) != 0)
		return -ENODEV;
	*context_p = make(sizeof **context_p);
	if (*context_p)
		(*context_p)->event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return *context_p ? 0 : -ENOMEM;
}

static int close_device(struct neap_verbs_context *context)
{
	(void)close(context->event_fd);
	free(context);
	return 0;
}

static int event_fd(struct neap_verbs_context *context)
{
	return context->event_fd;
}

static int next_event(struct neap_verbs_context *context, struct neap_verbs_event *event_p)
{
	(void)context;
	(void)event_p;
	return 0;
}

static int query_device(struct neap_verbs_context *context, struct neap_verbs_device_limits *limits_p)
{
	(void)context;
	*limits_p = (struct neap_verbs_device_limits){
		.mr_size_max = UINT64_C(1) << 40, .mr_max = 1u << 20, .qp_max = 1u << 20, .cq_max = 1u << 16, .cqe_max = ENTRIES_MAX,
		.wr_max = DEPTH_MAX, .sge_max = 4, .read_initiator_max = 16, .read_target_max = 16, .reads_doubtful = instant_reads_doubtful,
		.port_count = 1,
	};
	return 0;
}

static int query_port(struct neap_verbs_context *context, uint32_t port, struct neap_verbs_port *port_p)
{
	(void)context;
	(void)port;
	*port_p = (struct neap_verbs_port){.status = NEAP_PORT_ACTIVE, .ethernet = true, .mtu_bytes = 4096, .gid_count = 1};
	return 0;
}

static int query_gids(struct neap_verbs_context *context, uint32_t port, struct neap_gid_entry entries[NEAP_GIDS_MAX], uint32_t *count_p)
{
	static const uint8_t gid[16] = {[10] = 0xff, [11] = 0xff, [12] = 10, [13] = 77, [15] = 1};
	(void)context;
	(void)port;
	entries[0] = (struct neap_gid_entry){.type = NEAP_GID_ROCE_V2};
	memcpy(entries[0].gid, gid, sizeof gid);
	*count_p = 1;
	return 0;
}

static int allocate_pd(struct neap_verbs_context *context, struct neap_verbs_pd **pd_p)
{
	(void)context;
	*pd_p = make(sizeof **pd_p);
	return *pd_p ? 0 : -ENOMEM;
}

static int free_pd(struct neap_verbs_pd *pd)
{
	free(pd);
	return 0;
}

static int register_memory(struct neap_verbs_pd *pd, void *address, uint64_t length, unsigned access, struct neap_verbs_mr **mr_p,
                           struct neap_verbs_keys *keys_p)
{
	(void)pd;
	(void)address;
	(void)length;
	(void)access;
	*mr_p = make(sizeof **mr_p);
	keys_p->lkey = keys_p->rkey = ++numbers;
	return *mr_p ? 0 : -ENOMEM;
}

static int deregister_memory(struct neap_verbs_mr *mr)
{
	free(mr);
	return 0;
}

static int create_channel(struct neap_verbs_context *context, struct neap_verbs_channel **channel_p)
{
	(void)context;
	*channel_p = make(sizeof **channel_p);
	if (*channel_p)
		(*channel_p)->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
	return *channel_p ? 0 : -ENOMEM;
}

static int destroy_channel(struct neap_verbs_channel *channel)
{
	(void)close(channel->fd);
	free(channel);
	return 0;
}

static int channel_fd(struct neap_verbs_channel *channel)
{
	return channel->fd;
}

static int take_wakeups(struct neap_verbs_channel *channel)
{
	uint64_t count = 0;
	(void)!read(channel->fd, &count, sizeof count);
	return (int)count;
}

static int create_cq(struct neap_verbs_context *context, uint32_t entries, struct neap_verbs_channel *channel, struct neap_verbs_cq **cq_p)
{
	(void)context;
	(void)entries;
	*cq_p = make(sizeof **cq_p);
	if (*cq_p)
		(*cq_p)->channel = channel;
	return *cq_p ? 0 : -ENOMEM;
}

static int destroy_cq(struct neap_verbs_cq *cq)
{
	free(cq);
	return 0;
}

static void wake(struct neap_verbs_cq *cq)
{
	uint64_t one = 1;
	if (cq->armed && cq->channel)
		(void)!write(cq->channel->fd, &one, sizeof one);
	cq->armed = false;
}

static int arm_cq(struct neap_verbs_cq *cq)
{
	cq->armed = true;
	return 0;
}

static int poll_cq(struct neap_verbs_cq *cq, struct neap_verbs_completion *completions, uint32_t max)
{
	uint32_t count = 0;
	while (count < max && cq->head != cq->tail)
		completions[count++] = cq->ring[cq->head++ % ENTRIES_MAX];
	return (int)count;
}

static int create_qp(struct neap_verbs_pd *pd, const struct neap_verbs_qp_options *options, struct neap_verbs_qp **qp_p, uint32_t *number_p)
{
	(void)pd;
	*qp_p = make(sizeof **qp_p);
	if (!*qp_p)
		return -ENOMEM;
	(*qp_p)->cq = options->cq;
	*number_p = (*qp_p)->number = ++numbers & 0xffffff;
	return 0;
}

static int modify_qp(struct neap_verbs_qp *qp, const struct neap_verbs_qp_change *change)
{
	qp->broken = change->to == NEAP_QP_ERR;
	return 0;
}

static int query_qp(struct neap_verbs_qp *qp, enum neap_verbs_qp_state *state_p)
{
	*state_p = qp->broken ? NEAP_QP_ERR : NEAP_QP_RTS;
	return 0;
}

static int destroy_qp(struct neap_verbs_qp *qp)
{
	free(qp);
	return 0;
}

static int post_send(struct neap_verbs_qp *qp, const struct neap_verbs_send *sends, uint32_t count, uint32_t *posted_p)
{
	struct neap_verbs_cq *cq = qp->cq;
	enum neap_verbs_status status = qp->broken ? NEAP_WC_FLUSHED : NEAP_WC_SUCCESS;
	for (uint32_t i = 0; i < count; i++)
		instant_reads += sends[i].opcode == NEAP_VERBS_READ;
	for (uint32_t i = 0; i < count; i++)
		cq->ring[cq->tail++ % ENTRIES_MAX] = (struct neap_verbs_completion){.id = sends[i].id, .status = status, .qp_number = qp->number};
	*posted_p = count;
	wake(cq);
	return 0;
}

static int post_receive(struct neap_verbs_qp *qp, const struct neap_verbs_receive *receive)
{
	(void)qp;
	(void)receive;
	return -ENOSYS;
}

static const struct neap_verbs_ops ops = {
	.list = list,
	.open = open_device,
	.close = close_device,
	.event_fd = event_fd,
	.next_event = next_event,
	.query_device = query_device,
	.query_port = query_port,
	.query_gids = query_gids,
	.allocate_pd = allocate_pd,
	.free_pd = free_pd,
	.register_memory = register_memory,
	.deregister_memory = deregister_memory,
	.create_channel = create_channel,
	.destroy_channel = destroy_channel,
	.channel_fd = channel_fd,
	.take_wakeups = take_wakeups,
	.create_cq = create_cq,
	.destroy_cq = destroy_cq,
	.arm_cq = arm_cq,
	.poll_cq = poll_cq,
	.create_qp = create_qp,
	.modify_qp = modify_qp,
	.query_qp = query_qp,
	.destroy_qp = destroy_qp,
	.post_send = post_send,
	.post_receive = post_receive,
};

const struct neap_verbs instant_verbs = {&ops, NULL};
