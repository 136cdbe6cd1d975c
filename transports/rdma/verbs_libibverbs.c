/* Verbs by libibverbs: the handles of verbs.h are its pointers. Nothing is kept here, so whatever a call needs lies in its object. */
#include "transports/rdma/verbs.h"
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

/* What is translated by its number. */
_Static_assert((int)NEAP_WC_GENERAL == IBV_WC_GENERAL_ERR && (int)NEAP_WC_FLUSHED == IBV_WC_WR_FLUSH_ERR &&
               (int)NEAP_WC_REMOTE_ACCESS == IBV_WC_REM_ACCESS_ERR && (int)NEAP_WC_RETRY_EXCEEDED == IBV_WC_RETRY_EXC_ERR,
               "completion statuses");
_Static_assert((int)NEAP_QP_RESET == IBV_QPS_RESET && (int)NEAP_QP_RTS == IBV_QPS_RTS && (int)NEAP_QP_ERR == IBV_QPS_ERR, "QP states");
_Static_assert((int)NEAP_PORT_ACTIVE == IBV_PORT_ACTIVE && (int)NEAP_PORT_DEFERRED == IBV_PORT_ACTIVE_DEFER, "port states");

/* Calls that make something answer NULL and leave the cause in errno, which some drivers forget. */
static int made(const void *object)
{
	if (object)
		return 0;
	return errno ? -errno : -EIO;
}

/* Others answer errno, positive or negative. */
static int done(int answer)
{
	if (answer == -1 && errno)
		return -errno;
	return answer > 0 ? -answer : answer;
}

/* libibverbs sets O_CLOEXEC on its descriptors; this sets the rest. */
static int make_nonblocking(int fd)
{
	int flags = fcntl(fd, F_GETFL);
	return flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) ? -errno : 0;
}

/* --- devices and ports */

/* A kernel without RDMA has no list at all (ENOSYS); one where only the modules are loaded an empty one. */
static int list(void *user, char (*names)[NEAP_TOPOLOGY_NAME_SIZE], uint32_t capacity, uint32_t *count_p)
{
	(void)user;
	int found = 0;
	uint32_t count = 0;
	errno = 0;
	struct ibv_device **devices = ibv_get_device_list(&found);
	if (!devices && errno != ENOSYS && errno != ENOENT)
		return made(devices);
	for (int i = 0; devices && i < found && count < capacity; i++) {
		const char *name = ibv_get_device_name(devices[i]);
		size_t length = name ? strlen(name) : 0;
		if (length == 0 || length >= sizeof names[count])
			continue;
		memcpy(names[count++], name, length + 1);
	}
	if (devices)
		ibv_free_device_list(devices);
	*count_p = count;
	return 0;
}

/* Of a device file that may not be opened libibverbs says that there is none: it looks for another way then. */
static struct ibv_context *open_and_explain(struct ibv_device *device)
{
	char path[sizeof "/dev/infiniband/" + sizeof device->dev_name];
	struct ibv_context *context = ibv_open_device(device);
	if (context || errno != ENOENT)
		return context;
	(void)snprintf(path, sizeof path, "/dev/infiniband/%s", device->dev_name);
	if (access(path, R_OK | W_OK) == 0)
		errno = ENOENT;
	return NULL;
}

static struct ibv_context *open_named(struct ibv_device **devices, int count, const char *name)
{
	for (int i = 0; i < count; i++)
		if (strcmp(ibv_get_device_name(devices[i]), name) == 0)
			return open_and_explain(devices[i]);
	errno = ENODEV;
	return NULL;
}

static int open_device(void *user, const char *name, struct neap_verbs_context **context_p)
{
	(void)user;
	int count = 0;
	errno = 0;
	struct ibv_device **devices = ibv_get_device_list(&count);
	if (!devices)
		return made(devices);
	errno = 0;
	struct ibv_context *context = open_named(devices, count, name);
	int error = made(context);
	ibv_free_device_list(devices);
	if (!error)
		error = make_nonblocking(context->async_fd);
	if (error && context)
		ibv_close_device(context);
	*context_p = error ? NULL : (struct neap_verbs_context *)context;
	return error;
}

static int close_device(struct neap_verbs_context *context)
{
	return done(ibv_close_device((struct ibv_context *)context));
}

static int event_fd(struct neap_verbs_context *context)
{
	return ((struct ibv_context *)context)->async_fd;
}

static enum neap_verbs_event_kind kind_of(enum ibv_event_type type)
{
	switch ((int)type) {
	case IBV_EVENT_PORT_ACTIVE: return NEAP_VERBS_PORT_ACTIVE;
	case IBV_EVENT_PORT_ERR: return NEAP_VERBS_PORT_ERROR;
	case IBV_EVENT_GID_CHANGE:
	case IBV_EVENT_LID_CHANGE:
	case IBV_EVENT_PKEY_CHANGE:
	case IBV_EVENT_CLIENT_REREGISTER: return NEAP_VERBS_ADDRESS_CHANGE;
	case IBV_EVENT_DEVICE_FATAL: return NEAP_VERBS_DEVICE_FATAL;
	case IBV_EVENT_QP_FATAL:
	case IBV_EVENT_QP_REQ_ERR:
	case IBV_EVENT_QP_ACCESS_ERR: return NEAP_VERBS_QP_FATAL;
	case IBV_EVENT_CQ_ERR: return NEAP_VERBS_CQ_ERROR;
	default: return NEAP_VERBS_OTHER;
	}
}

/* The descriptor is non-blocking, so this one does not wait. Acknowledged at once: destroying an object waits for that. */
static int next_event(struct neap_verbs_context *context, struct neap_verbs_event *event_p)
{
	struct ibv_async_event event;
	errno = 0;
	if (ibv_get_async_event((struct ibv_context *)context, &event))
		return errno == EAGAIN || errno == EINTR ? 0 : -EIO;
	*event_p = (struct neap_verbs_event){.kind = kind_of(event.event_type)};
	if (event_p->kind == NEAP_VERBS_QP_FATAL)
		event_p->qp_number = event.element.qp->qp_num;
	else if (event_p->kind <= NEAP_VERBS_ADDRESS_CHANGE)
		event_p->port = (uint32_t)event.element.port_num;
	ibv_ack_async_event(&event);
	return 1;
}

static uint32_t count_of(int value)
{
	return value > 0 ? (uint32_t)value : 0;
}

#define SOFT_ROCE 0xffffffu /* the vendor of rdma_rxe */
#define SOFT_ROCE_WINDOW_BYTES (512u << 10) /* a core keeps 1000 received packets (netdev_max_backlog), of all senders together */

static int query_device(struct neap_verbs_context *context, struct neap_verbs_device_limits *limits_p)
{
	struct ibv_device_attr attr;
	int error = done(ibv_query_device((struct ibv_context *)context, &attr));
	if (error)
		return error;
	*limits_p = (struct neap_verbs_device_limits){
		.mr_size_max = attr.max_mr_size,
		.mr_max = count_of(attr.max_mr),
		.qp_max = count_of(attr.max_qp),
		.cq_max = count_of(attr.max_cq),
		.cqe_max = count_of(attr.max_cqe),
		.wr_max = count_of(attr.max_qp_wr),
		.sge_max = count_of(attr.max_sge),
		.read_initiator_max = count_of(attr.max_qp_init_rd_atom),
		.read_target_max = count_of(attr.max_qp_rd_atom),
		.port_count = attr.phys_port_cnt,
		.window_bytes = attr.vendor_id == SOFT_ROCE ? SOFT_ROCE_WINDOW_BYTES : 0,
		.reads_doubtful = attr.vendor_id == SOFT_ROCE,
	};
	return 0;
}

static int query_port(struct neap_verbs_context *context, uint32_t port, struct neap_verbs_port *port_p)
{
	struct ibv_port_attr attr;
	int error = done(ibv_query_port((struct ibv_context *)context, (uint8_t)port, &attr));
	if (error)
		return error;
	*port_p = (struct neap_verbs_port){
		.status = (enum neap_port_state)attr.state,
		.ethernet = attr.link_layer == IBV_LINK_LAYER_ETHERNET,
		.mtu_bytes = 128u << attr.active_mtu,
		.lid = attr.lid,
		.gid_count = count_of(attr.gid_tbl_len),
	};
	return 0;
}

static enum neap_gid_type gid_type_of(uint32_t type)
{
	switch (type) {
	case IBV_GID_TYPE_IB: return NEAP_GID_INFINIBAND;
	case IBV_GID_TYPE_ROCE_V1: return NEAP_GID_ROCE_V1;
	case IBV_GID_TYPE_ROCE_V2: return NEAP_GID_ROCE_V2;
	default: return NEAP_GID_OTHER;
	}
}

/* The name of an interface, and whether it is known to be down; `probe` is any socket. */
static void describe_interface(int probe, uint32_t ifindex, struct neap_gid_entry *entry)
{
	struct ifreq request = {0};
	_Static_assert(sizeof request.ifr_name == sizeof entry->netdev, "names of interfaces");
	if (probe < 0 || ifindex == 0 || !if_indextoname(ifindex, request.ifr_name))
		return;
	memcpy(entry->netdev, request.ifr_name, sizeof entry->netdev);
	int wanted = IFF_UP | IFF_RUNNING;
	entry->netdev_down = ioctl(probe, SIOCGIFFLAGS, &request) == 0 && (request.ifr_flags & wanted) != wanted;
}

static int query_gids(struct neap_verbs_context *context, uint32_t port, struct neap_gid_entry entries[NEAP_GIDS_MAX], uint32_t *count_p)
{
	int probe = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	uint32_t count = 0;
	for (uint32_t index = 0; index < NEAP_GIDS_MAX; index++) {
		struct ibv_gid_entry found;
		if (ibv_query_gid_ex((struct ibv_context *)context, port, index, &found, 0))
			continue; /* a hole, or the end */
		struct neap_gid_entry *entry = &entries[count++];
		*entry = (struct neap_gid_entry){.index = index, .type = gid_type_of(found.gid_type)};
		memcpy(entry->gid, found.gid.raw, sizeof entry->gid);
		describe_interface(probe, found.ndev_ifindex, entry);
	}
	if (probe >= 0)
		(void)close(probe);
	*count_p = count;
	return 0;
}

/* --- memory */

static int allocate_pd(struct neap_verbs_context *context, struct neap_verbs_pd **pd_p)
{
	errno = 0;
	*pd_p = (struct neap_verbs_pd *)ibv_alloc_pd((struct ibv_context *)context);
	return made(*pd_p);
}

static int free_pd(struct neap_verbs_pd *pd)
{
	return done(ibv_dealloc_pd((struct ibv_pd *)pd));
}

static unsigned flags_of(unsigned access)
{
	static const unsigned pairs[][2] = {
		{NEAP_VERBS_LOCAL_WRITE, IBV_ACCESS_LOCAL_WRITE},     {NEAP_VERBS_REMOTE_WRITE, IBV_ACCESS_REMOTE_WRITE},
		{NEAP_VERBS_REMOTE_READ, IBV_ACCESS_REMOTE_READ},     {NEAP_VERBS_REMOTE_ATOMIC, IBV_ACCESS_REMOTE_ATOMIC},
		{NEAP_VERBS_RELAXED_ORDERING, IBV_ACCESS_RELAXED_ORDERING},
	};
	unsigned flags = 0;
	for (size_t i = 0; i < sizeof pairs / sizeof pairs[0]; i++)
		flags |= access & pairs[i][0] ? pairs[i][1] : 0;
	return flags;
}

/* By its iova, as Mooncake does: that call drops optional access flags which an old kernel does not know. */
static int register_memory(struct neap_verbs_pd *pd, void *address, uint64_t length, unsigned access, struct neap_verbs_mr **mr_p,
                           struct neap_verbs_keys *keys_p)
{
	errno = 0;
	struct ibv_mr *mr = ibv_reg_mr_iova2((struct ibv_pd *)pd, address, (size_t)length, (uint64_t)(uintptr_t)address, flags_of(access));
	*mr_p = (struct neap_verbs_mr *)mr;
	if (mr)
		*keys_p = (struct neap_verbs_keys){mr->lkey, mr->rkey};
	return made(mr);
}

static int deregister_memory(struct neap_verbs_mr *mr)
{
	return done(ibv_dereg_mr((struct ibv_mr *)mr));
}

/* --- completion queues */

static int create_channel(struct neap_verbs_context *context, struct neap_verbs_channel **channel_p)
{
	errno = 0;
	struct ibv_comp_channel *channel = ibv_create_comp_channel((struct ibv_context *)context);
	int error = made(channel);
	if (!error)
		error = make_nonblocking(channel->fd);
	if (error && channel)
		ibv_destroy_comp_channel(channel);
	*channel_p = error ? NULL : (struct neap_verbs_channel *)channel;
	return error;
}

static int destroy_channel(struct neap_verbs_channel *channel)
{
	return done(ibv_destroy_comp_channel((struct ibv_comp_channel *)channel));
}

static int channel_fd(struct neap_verbs_channel *channel)
{
	return ((struct ibv_comp_channel *)channel)->fd;
}

static int take_wakeups(struct neap_verbs_channel *channel)
{
	struct ibv_cq *cq;
	void *user;
	int count = 0;
	errno = 0;
	while (count < 64 && !ibv_get_cq_event((struct ibv_comp_channel *)channel, &cq, &user)) {
		ibv_ack_cq_events(cq, 1);
		count++;
	}
	return count || errno == EAGAIN || errno == EINTR ? count : -EIO;
}

static int create_cq(struct neap_verbs_context *context, uint32_t entries, struct neap_verbs_channel *channel, struct neap_verbs_cq **cq_p)
{
	errno = 0;
	*cq_p = (struct neap_verbs_cq *)ibv_create_cq((struct ibv_context *)context, (int)entries, NULL, (struct ibv_comp_channel *)channel, 0);
	return made(*cq_p);
}

static int destroy_cq(struct neap_verbs_cq *cq)
{
	return done(ibv_destroy_cq((struct ibv_cq *)cq));
}

static int arm_cq(struct neap_verbs_cq *cq)
{
	return done(ibv_req_notify_cq((struct ibv_cq *)cq, 0));
}

#define COMPLETIONS_AT_ONCE 64u

static int poll_cq(struct neap_verbs_cq *cq, struct neap_verbs_completion *completions, uint32_t max)
{
	struct ibv_wc found[COMPLETIONS_AT_ONCE];
	int count = ibv_poll_cq((struct ibv_cq *)cq, (int)(max < COMPLETIONS_AT_ONCE ? max : COMPLETIONS_AT_ONCE), found);
	for (int i = 0; i < count; i++)
		completions[i] = (struct neap_verbs_completion){
			.id = found[i].wr_id,
			.status = (enum neap_verbs_status)found[i].status,
			.qp_number = found[i].qp_num,
			.length = found[i].status == IBV_WC_SUCCESS ? found[i].byte_len : 0,
		};
	return count < 0 ? -EIO : count;
}

/* --- queue pairs */

static int create_qp(struct neap_verbs_pd *pd, const struct neap_verbs_qp_options *options, struct neap_verbs_qp **qp_p, uint32_t *number_p)
{
	struct ibv_qp_init_attr attr = {
		.send_cq = (struct ibv_cq *)options->cq,
		.recv_cq = (struct ibv_cq *)options->cq,
		.qp_type = IBV_QPT_RC,
		.cap = {.max_send_wr = options->send_max, .max_recv_wr = options->receive_max, .max_send_sge = 1, .max_recv_sge = 1,
	            .max_inline_data = options->inline_max_bytes},
	};
	errno = 0;
	struct ibv_qp *qp = ibv_create_qp((struct ibv_pd *)pd, &attr);
	*qp_p = (struct neap_verbs_qp *)qp;
	if (qp)
		*number_p = qp->qp_num;
	return made(qp);
}

static enum ibv_mtu mtu_of(uint32_t bytes)
{
	enum ibv_mtu mtu = IBV_MTU_256;
	while (mtu < IBV_MTU_4096 && bytes >= 256u << mtu)
		mtu++;
	return mtu;
}

static int fill_init(const struct neap_verbs_qp_change *change, struct ibv_qp_attr *attr)
{
	attr->port_num = (uint8_t)change->port;
	attr->pkey_index = change->pkey_index;
	attr->qp_access_flags = flags_of(change->access);
	return IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
}

static int fill_rtr(const struct neap_verbs_qp_change *change, struct ibv_qp_attr *attr)
{
	attr->path_mtu = mtu_of(change->mtu_bytes);
	attr->dest_qp_num = change->peer_qp_number;
	attr->rq_psn = change->receive_psn;
	attr->max_dest_rd_atomic = change->reads_served_max;
	attr->min_rnr_timer = change->rnr_timer;
	attr->ah_attr = (struct ibv_ah_attr){
		.is_global = 1,
		.port_num = (uint8_t)change->port,
		.dlid = (uint16_t)change->peer_lid,
		.sl = change->service_level,
		.grh = {.sgid_index = (uint8_t)change->gid_index, .hop_limit = change->hop_limit, .traffic_class = change->traffic_class},
	};
	memcpy(attr->ah_attr.grh.dgid.raw, change->peer_gid, sizeof change->peer_gid);
	return IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
}

static int fill_rts(const struct neap_verbs_qp_change *change, struct ibv_qp_attr *attr)
{
	attr->sq_psn = change->send_psn;
	attr->timeout = change->timeout;
	attr->retry_cnt = change->retry_count;
	attr->rnr_retry = change->rnr_retry;
	attr->max_rd_atomic = change->reads_max;
	return IBV_QP_SQ_PSN | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
}

static int modify_qp(struct neap_verbs_qp *qp, const struct neap_verbs_qp_change *change)
{
	struct ibv_qp_attr attr = {.qp_state = (enum ibv_qp_state)change->to};
	int mask = IBV_QP_STATE;
	if (change->to == NEAP_QP_INIT)
		mask |= fill_init(change, &attr);
	else if (change->to == NEAP_QP_RTR)
		mask |= fill_rtr(change, &attr);
	else if (change->to == NEAP_QP_RTS)
		mask |= fill_rts(change, &attr);
	return done(ibv_modify_qp((struct ibv_qp *)qp, &attr, mask));
}

static int query_qp(struct neap_verbs_qp *qp, enum neap_verbs_qp_state *state_p)
{
	struct ibv_qp_attr attr;
	struct ibv_qp_init_attr init;
	int error = done(ibv_query_qp((struct ibv_qp *)qp, &attr, IBV_QP_STATE, &init));
	if (!error)
		*state_p = (enum neap_verbs_qp_state)attr.qp_state;
	return error;
}

static int destroy_qp(struct neap_verbs_qp *qp)
{
	return done(ibv_destroy_qp((struct ibv_qp *)qp));
}

#define SENDS_AT_ONCE 32u

static void fill_send(const struct neap_verbs_send *send, struct ibv_send_wr *wr, struct ibv_sge *piece)
{
	static const enum ibv_wr_opcode opcodes[] = {
		[NEAP_VERBS_WRITE] = IBV_WR_RDMA_WRITE, [NEAP_VERBS_READ] = IBV_WR_RDMA_READ, [NEAP_VERBS_SEND] = IBV_WR_SEND};
	*piece = (struct ibv_sge){.addr = send->local, .length = send->length, .lkey = send->lkey};
	*wr = (struct ibv_send_wr){
		.wr_id = send->id,
		.sg_list = piece,
		.num_sge = send->length > 0, /* a piece of 0 bytes may mean 2 GiB to a device */
		.opcode = opcodes[send->opcode],
		.send_flags = IBV_SEND_SIGNALED,
	};
	wr->wr.rdma.remote_addr = send->remote;
	wr->wr.rdma.rkey = send->rkey;
}

/* One call to the driver: how many were posted, and its answer. */
static int post_chain(struct ibv_qp *qp, const struct neap_verbs_send *sends, uint32_t count, uint32_t *posted_p)
{
	struct ibv_send_wr chain[SENDS_AT_ONCE], *bad = NULL;
	struct ibv_sge pieces[SENDS_AT_ONCE];
	for (uint32_t i = 0; i < count; i++) {
		fill_send(&sends[i], &chain[i], &pieces[i]);
		if (i)
			chain[i - 1].next = &chain[i];
	}
	int error = done(ibv_post_send(qp, chain, &bad));
	*posted_p += error && bad ? (uint32_t)(bad - chain) : error ? 0 : count;
	return error;
}

static int post_send(struct neap_verbs_qp *qp, const struct neap_verbs_send *sends, uint32_t count, uint32_t *posted_p)
{
	int error = 0;
	*posted_p = 0;
	for (uint32_t from = 0; from < count && !error; from += SENDS_AT_ONCE) {
		uint32_t length = count - from < SENDS_AT_ONCE ? count - from : SENDS_AT_ONCE;
		error = post_chain((struct ibv_qp *)qp, sends + from, length, posted_p);
	}
	return error;
}

static int post_receive(struct neap_verbs_qp *qp, const struct neap_verbs_receive *receive)
{
	struct ibv_sge piece = {.addr = receive->local, .length = receive->length, .lkey = receive->lkey};
	struct ibv_recv_wr wr = {.wr_id = receive->id, .sg_list = &piece, .num_sge = 1}, *bad;
	return done(ibv_post_recv((struct ibv_qp *)qp, &wr, &bad));
}

static const struct neap_verbs_ops system_ops = {
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

const struct neap_verbs neap_verbs_system = {.ops = &system_ops};
