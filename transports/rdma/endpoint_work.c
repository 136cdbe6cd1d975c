/* What the helper does for endpoints: it makes queue pairs, connects and destroys them. Parameters: te spec 5.3, rdma-observed 3. */
#include "transports/rdma/endpoint_inside.h"
#include <errno.h>
#include <string.h>

#define ACCESS (NEAP_VERBS_LOCAL_WRITE | NEAP_VERBS_REMOTE_WRITE | NEAP_VERBS_REMOTE_READ | NEAP_VERBS_REMOTE_ATOMIC)
#define RNR_TIMER 12u
#define RNR_RETRY 7u
#define HOP_LIMIT 16u
#define PSN_MASK 0xffffffu

static uint32_t least(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

/* 256, 512 ... 4096; not above `bytes`. */
static uint32_t mtu_of(uint32_t bytes)
{
	uint32_t mtu = 256;
	while (mtu < 4096 && 2 * mtu <= bytes)
		mtu *= 2;
	return mtu;
}

/* --- jobs */

static void run_job(struct neap_helper_job *base)
{
	const struct rdma_job *job = (struct rdma_job *)(void *)base;
	job->run(&job->endpoint->work);
}

static void job_done(struct neap_helper_job *base);

static void feed_helper(struct neap_rdma_endpoints *endpoints)
{
	while (endpoints->first_job && endpoints->jobs < RDMA_JOBS_MAX) {
		struct rdma_job *job = endpoints->first_job;
		endpoints->first_job = job->next;
		if (!job->next)
			endpoints->last_job = &endpoints->first_job;
		endpoints->jobs++;
		neap_helper_submit(endpoints->helper, &job->job);
	}
}

static void job_done(struct neap_helper_job *base)
{
	const struct rdma_job *job = (struct rdma_job *)(void *)base;
	struct rdma_endpoint *endpoint = job->endpoint;
	endpoint->base.endpoints->jobs--;
	feed_helper(endpoint->base.endpoints);
	job->then(endpoint);
}

void rdma_work_submit(struct rdma_endpoint *endpoint, struct rdma_job *job)
{
	struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	job->job = (struct neap_helper_job){.run = run_job, .done = job_done};
	job->endpoint = endpoint;
	job->next = NULL;
	*endpoints->last_job = job;
	endpoints->last_job = &job->next;
	feed_helper(endpoints);
}

uint64_t rdma_work_runs_ns(const struct rdma_endpoint *endpoint)
{
	const struct neap_helper *helper = endpoint->base.endpoints->helper;
	return neap_helper_runs_ns(helper, &endpoint->make_job.job) + neap_helper_runs_ns(helper, &endpoint->connect_job.job) +
	       neap_helper_runs_ns(helper, &endpoint->destroy_job.job);
}

/* --- making */

static int make_one(struct rdma_work *work, uint32_t i)
{
	int error = work->ops->create_qp(work->pd, &work->options, &work->qps[i], &work->numbers[i]);
	if (!error)
		error = work->ops->modify_qp(work->qps[i], &(struct neap_verbs_qp_change){.to = NEAP_QP_RESET});
	if (!error)
		error = work->ops->modify_qp(work->qps[i], &work->init);
	return error;
}

static void run_make(struct rdma_work *work)
{
	for (uint32_t i = 0; i < work->wanted && !work->make_error; i++)
		work->make_error = make_one(work, i);
}

void rdma_work_make(struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_endpoints *endpoints = endpoint->base.endpoints;
	const struct neap_rdma_endpoint_options *options = &endpoints->options;
	const struct neap_rdma_device *device = endpoint->base.queue->device;
	struct rdma_work *work = &endpoint->work;
	endpoint->own_mtu_bytes = mtu_of(least(device->view.port.mtu_bytes, options->mtu_bytes));
	endpoint->own_reads = least(device->handle.limits.read_target_max, RDMA_READS_MAX);
	endpoint->own_depth = least(least(options->depth, device->handle.limits.wr_max), device->handle.cq_entries);
	work->ops = endpoints->verbs->ops;
	work->pd = device->handle.pd;
	work->wanted = options->qps;
	work->options = (struct neap_verbs_qp_options){.cq = device->handle.cq, .send_max = endpoint->own_depth, .receive_max = 1};
	work->init = (struct neap_verbs_qp_change){
		.to = NEAP_QP_INIT, .port = device->view.port_number, .pkey_index = options->pkey_index, .access = ACCESS};
	for (uint32_t i = 0; i < work->wanted; i++)
		work->send_psns[i] = (uint32_t)neap_random_u64(endpoints->reactor) & PSN_MASK; /* with Neap peers; never one of before */
	endpoint->make_job.run = run_make;
}

/* --- connecting */

static int connect_one(struct rdma_work *work, uint32_t i)
{
	struct neap_verbs_qp_change rtr = work->rtr, rts = work->rts;
	rtr.peer_qp_number = work->peer_numbers[i];
	rtr.receive_psn = work->receive_psns[i];
	rts.send_psn = work->send_psns[i];
	work->doing = RDMA_TO_RTR;
	int error = work->ops->modify_qp(work->qps[i], &rtr);
	if (error)
		return error;
	work->doing = "RTS";
	return work->ops->modify_qp(work->qps[i], &rts);
}

static void run_connect(struct rdma_work *work)
{
	for (uint32_t i = 0; i < work->connected && !work->connect_error; i++)
		work->connect_error = connect_one(work, i);
}

/* Between Neap peers the smaller of both ends' figures; else our own, by the rule that the other end follows too. */
static void agree(struct rdma_endpoint *endpoint)
{
	const struct rdma_half *peer = &endpoint->peer;
	struct rdma_work *work = &endpoint->work;
	bool neap = peer->is_neap;
	endpoint->base.peer_is_neap = neap;
	memcpy(endpoint->base.peer_instance, peer->instance, sizeof peer->instance);
	endpoint->base.mtu_bytes = neap ? mtu_of(least(endpoint->own_mtu_bytes, peer->mtu_bytes)) : endpoint->own_mtu_bytes;
	endpoint->base.reads_max = least(endpoint->base.queue->device->handle.limits.read_initiator_max, RDMA_READS_MAX);
	if (neap && peer->reads)
		endpoint->base.reads_max = least(endpoint->base.reads_max, peer->reads);
	endpoint->base.depth = neap && peer->depth ? least(endpoint->own_depth, peer->depth) : endpoint->own_depth;
	work->connected = least(endpoint->made, peer->count);
	for (uint32_t i = 0; i < work->connected; i++) {
		work->peer_numbers[i] = peer->numbers[i];
		work->receive_psns[i] = neap ? peer->psns[i] : 0;
		if (!neap)
			work->send_psns[i] = 0;
	}
}

void rdma_work_connect(struct rdma_endpoint *endpoint)
{
	const struct neap_rdma_endpoint_options *options = &endpoint->base.endpoints->options;
	const struct neap_rdma_device *device = endpoint->base.queue->device;
	struct rdma_work *work = &endpoint->work;
	agree(endpoint);
	work->rtr = (struct neap_verbs_qp_change){
		.to = NEAP_QP_RTR,
		.port = device->view.port_number,
		.mtu_bytes = endpoint->base.mtu_bytes,
		.peer_lid = endpoint->peer.lid,
		.gid_index = device->view.gid.index,
		.reads_served_max = (uint8_t)endpoint->own_reads,
		.rnr_timer = RNR_TIMER,
		.hop_limit = HOP_LIMIT,
		.traffic_class = options->traffic_class,
		.service_level = options->service_level,
	};
	memcpy(work->rtr.peer_gid, endpoint->peer.gid, sizeof work->rtr.peer_gid);
	work->rts = (struct neap_verbs_qp_change){
		.to = NEAP_QP_RTS,
		.timeout = options->timeout,
		.retry_count = options->retry_count,
		.rnr_retry = RNR_RETRY,
		.reads_max = (uint8_t)endpoint->base.reads_max,
	};
	endpoint->connect_job.run = run_connect;
}

/* --- destroying */

/* All that there are, also when not all could be made. */
static void destroy_all(struct rdma_work *work)
{
	work->destroy_error = 0;
	for (uint32_t i = 0; i < NEAP_RDMA_QPS_MAX; i++) {
		int error = work->qps[i] ? work->ops->destroy_qp(work->qps[i]) : 0;
		if (error)
			work->destroy_error = error;
		else
			work->qps[i] = NULL;
	}
}

void rdma_work_destroy(struct rdma_endpoint *endpoint)
{
	endpoint->destroy_again = false;
	endpoint->destroy_job.run = destroy_all;
}
