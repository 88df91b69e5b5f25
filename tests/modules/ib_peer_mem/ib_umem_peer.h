/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Peer memory, as an RDMA driver sees it.
 *
 * OFED 25.10 hides the first step in ib_umem_get_peer(): pin host memory, and
 * ask the peers only when that failed. Here ib_core stays the distribution's
 * own, so the driver pins first, and calls ib_umem_get_peer() with the errno.
 *
 * Life of a region, in the order of mlx5 (mr.c, OFED 25.10):
 *
 *	umem = ib_umem_get_peer(...)
 *	... make the key usable ...
 *	ib_umem_activate_invalidation_notifier(umem, revoke, priv)
 *	... traffic; revoke() may be called at any time ...
 *	... make the key unusable, wait for traffic to end ...
 *	ib_umem_stop_invalidation_notifier(umem)
 *	ib_peer_umem_release(umem)
 */
#ifndef IB_UMEM_PEER_H
#define IB_UMEM_PEER_H

#include <linux/bits.h>
#include <rdma/ib_umem.h>

/* The driver can revoke a region; without it such clients are not asked. */
#define IB_PEER_MEM_INVAL_SUPP BIT(1)

/* On return the device touches the memory no more. Runs in process context. */
typedef void (*umem_invalidate_func_t)(struct ib_umem *umem, void *priv);

/*
 * @dma_device is what the client gets to map for; NULL is passed on as such.
 * @gup_errno is what the caller sees if no client wants the range.
 *
 * The addresses are in sgt_append.sgt, trimmed to PAGE_SIZE; entries have no
 * struct page. Until ib_umem_activate_invalidation_notifier() an invalidation
 * has to wait, so the driver must call it soon.
 */
struct ib_umem *ib_umem_get_peer(struct ib_device *ibdev,
				 struct device *dma_device, unsigned long addr,
				 size_t size, int access,
				 unsigned long peer_mem_flags, int gup_errno);

void ib_umem_activate_invalidation_notifier(struct ib_umem *umem,
					    umem_invalidate_func_t func,
					    void *priv);
void ib_umem_stop_invalidation_notifier(struct ib_umem *umem);
void ib_peer_umem_release(struct ib_umem *umem);

#endif /* IB_UMEM_PEER_H */
