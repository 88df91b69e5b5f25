// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "nic.h"

#define PORT 1
#define MAX_GIDS 16
#define SECONDS_TO_COMPLETE 60
#define ACCESS (IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ)

static struct ibv_context *open_device(const char *name)
{
	struct ibv_device **devices = ibv_get_device_list(NULL);
	struct ibv_context *context = NULL;

	if (!devices)
		return NULL;
	errno = ENODEV;
	for (int i = 0; devices[i]; i++)
		if (!strcmp(ibv_get_device_name(devices[i]), name))
			context = ibv_open_device(devices[i]);
	ibv_free_device_list(devices);
	return context;
}

/* The first RoCE v2 address that is IPv4. */
static int find_gid(struct nic *nic)
{
	static const unsigned char ipv4[12] = { [10] = 0xff, [11] = 0xff };
	struct ibv_gid_entry entries[MAX_GIDS];
	ssize_t count = ibv_query_gid_table(nic->context, entries, MAX_GIDS, 0);

	for (ssize_t i = 0; i < count; i++) {
		if (entries[i].gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(&entries[i].gid, ipv4, sizeof(ipv4)))
			continue;
		nic->gid = entries[i].gid;
		nic->gid_index = entries[i].gid_index;
		return 0;
	}
	errno = EADDRNOTAVAIL;
	return -1;
}

static int find_mtu(struct nic *nic)
{
	struct ibv_port_attr port;

	if (ibv_query_port(nic->context, PORT, &port))
		return -1;
	nic->mtu = port.active_mtu;
	return 0;
}

struct nic *nic_open(const char *device)
{
	struct nic *nic = calloc(1, sizeof(*nic));

	if (!nic)
		return NULL;
	nic->context = open_device(device);
	if (!nic->context || find_gid(nic) || find_mtu(nic))
		goto failed;
	nic->pd = ibv_alloc_pd(nic->context);
	if (!nic->pd)
		goto failed;
	return nic;

failed:
	nic_close(nic);
	return NULL;
}

void nic_close(struct nic *nic)
{
	int error = errno;

	if (nic->pd)
		ibv_dealloc_pd(nic->pd);
	if (nic->context)
		ibv_close_device(nic->context);
	free(nic);
	errno = error;
}

int nic_command_fd(struct nic *nic)
{
	return nic->context->cmd_fd;
}

struct ibv_mr *nic_register(struct nic *nic, unsigned long va, size_t length)
{
	return ibv_reg_mr(nic->pd, (void *)va, length, ACCESS);
}

uint32_t nic_lkey(struct ibv_mr *mr)
{
	return mr->lkey;
}

uint32_t nic_rkey(struct ibv_mr *mr)
{
	return mr->rkey;
}

int nic_deregister(struct ibv_mr *mr)
{
	return ibv_dereg_mr(mr);
}

static struct ibv_qp *make_qp(struct loop *loop)
{
	struct ibv_qp_init_attr init = {
		.send_cq = loop->cq,
		.recv_cq = loop->cq,
		.qp_type = IBV_QPT_RC,
		.cap = { .max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1 },
	};

	return ibv_create_qp(loop->nic->pd, &init);
}

/* Times long enough for an emulated CPU: a repeat would only add to its work. */
static int connect_qp(struct nic *nic, struct ibv_qp *qp, uint32_t to)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = PORT,
		.qp_access_flags = ACCESS,
		.path_mtu = nic->mtu,
		.dest_qp_num = to,
		.max_rd_atomic = 1,
		.max_dest_rd_atomic = 1,
		.min_rnr_timer = 12,
		.timeout = 17,
		.retry_cnt = 7,
		.rnr_retry = 7,
		.ah_attr = {
			.is_global = 1,
			.port_num = PORT,
			.grh = { .dgid = nic->gid, .sgid_index = nic->gid_index, .hop_limit = 1 },
		},
	};

	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			  IBV_QP_ACCESS_FLAGS))
		return -1;
	attr.qp_state = IBV_QPS_RTR;
	if (ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			  IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			  IBV_QP_MIN_RNR_TIMER))
		return -1;
	attr.qp_state = IBV_QPS_RTS;
	return ibv_modify_qp(qp, &attr, IBV_QP_STATE | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
			     IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
}

struct loop *loop_open(struct nic *nic)
{
	struct loop *loop = calloc(1, sizeof(*loop));

	if (!loop)
		return NULL;
	loop->nic = nic;
	loop->cq = ibv_create_cq(nic->context, 16, NULL, NULL, 0);
	if (!loop->cq)
		goto failed;
	loop->near = make_qp(loop);
	loop->far = make_qp(loop);
	if (!loop->near || !loop->far ||
	    connect_qp(nic, loop->near, loop->far->qp_num) ||
	    connect_qp(nic, loop->far, loop->near->qp_num))
		goto failed;
	return loop;

failed:
	loop_close(loop);
	return NULL;
}

void loop_close(struct loop *loop)
{
	int error = errno;

	if (loop->near)
		ibv_destroy_qp(loop->near);
	if (loop->far)
		ibv_destroy_qp(loop->far);
	if (loop->cq)
		ibv_destroy_cq(loop->cq);
	free(loop);
	errno = error;
}

static double now(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return time.tv_sec + time.tv_nsec / 1e9;
}

static int wait_for_completion(struct loop *loop)
{
	double end = now() + SECONDS_TO_COMPLETE;
	struct ibv_wc completion;

	while (now() < end) {
		if (ibv_poll_cq(loop->cq, 1, &completion) == 1)
			return completion.status;
		sched_yield();
	}
	return LOOP_NO_COMPLETION;
}

static int transfer(struct loop *loop, enum ibv_wr_opcode opcode, unsigned long local,
		    uint32_t lkey, unsigned long remote, uint32_t rkey, uint32_t length)
{
	struct ibv_sge piece = { .addr = local, .length = length, .lkey = lkey };
	struct ibv_send_wr request = {
		.opcode = opcode,
		.send_flags = IBV_SEND_SIGNALED,
		.sg_list = &piece,
		.num_sge = 1,
		.wr.rdma = { .remote_addr = remote, .rkey = rkey },
	}, *bad;

	if (ibv_post_send(loop->near, &request, &bad))
		return LOOP_NO_COMPLETION;
	return wait_for_completion(loop);
}

int loop_write(struct loop *loop, unsigned long local, uint32_t lkey,
	       unsigned long remote, uint32_t rkey, uint32_t length)
{
	return transfer(loop, IBV_WR_RDMA_WRITE, local, lkey, remote, rkey, length);
}

int loop_read(struct loop *loop, unsigned long local, uint32_t lkey,
	      unsigned long remote, uint32_t rkey, uint32_t length)
{
	return transfer(loop, IBV_WR_RDMA_READ, local, lkey, remote, rkey, length);
}
