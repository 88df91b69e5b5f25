/* SPDX-License-Identifier: GPL-2.0 */
/*
 * A soft-RoCE device, registrations on it, and a connection from it to itself.
 * Used by the stress program, and from Python through ctypes, which lets other
 * threads run during a call (pyverbs does not).
 *
 * Functions that return a pointer return NULL and set errno on failure.
 */
#ifndef NIC_H
#define NIC_H

#include <infiniband/verbs.h>

struct nic {
	struct ibv_context *context;
	struct ibv_pd *pd;
	union ibv_gid gid;
	int gid_index;
	enum ibv_mtu mtu;
};

struct nic *nic_open(const char *device);
void nic_close(struct nic *nic);
/* What the kernel closes everything for when the last process has closed it. */
int nic_command_fd(struct nic *nic);

struct ibv_mr *nic_register(struct nic *nic, unsigned long va, size_t length);
uint32_t nic_lkey(struct ibv_mr *mr);
uint32_t nic_rkey(struct ibv_mr *mr);
/* 0 or an errno */
int nic_deregister(struct ibv_mr *mr);

struct loop {
	struct nic *nic;
	struct ibv_cq *cq;
	struct ibv_qp *near, *far;
};

#define LOOP_NO_COMPLETION (-1)

struct loop *loop_open(struct nic *nic);
void loop_close(struct loop *loop);
/*
 * From local to remote or back, and the completion is waited for. Returns its
 * status, which is one of enum ibv_wc_status, or LOOP_NO_COMPLETION. After
 * anything but IBV_WC_SUCCESS the loop is of no more use.
 */
int loop_write(struct loop *loop, unsigned long local, uint32_t lkey,
	       unsigned long remote, uint32_t rkey, uint32_t length);
int loop_read(struct loop *loop, unsigned long local, uint32_t lkey,
	      unsigned long remote, uint32_t rkey, uint32_t length);

#endif
