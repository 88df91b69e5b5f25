// SPDX-License-Identifier: GPL-2.0
/*
 * Memory regions of soft-RoCE on peer memory (GPU memory, say).
 *
 * Such a region has DMA addresses for the NIC under our netdev, and no struct
 * page. A real NIC would put the address on the bus; we do what the bus would
 * do with it: translate it by the NIC's IOMMU domain, and load or store at the
 * physical address that comes out. Each byte is looked up anew at each access,
 * so an address that is no longer mapped is an error here as it is there.
 */
#include <linux/debugfs.h>
#include <linux/iommu.h>
#include <linux/memory_hotplug.h>
#include <linux/module.h>
#include <linux/pci.h>

#include "ib_umem_peer.h"
#include "rxe.h"

/* mlx5_core sets 2 GiB on its PCI device (core/main.c, OFED 25.10). */
static uint peer_max_seg_size = SZ_2G;
module_param(peer_max_seg_size, uint, 0644);
MODULE_PARM_DESC(peer_max_seg_size, "Segment limit set on the NIC's PCI device at each registration of peer memory");

/* Bytes from @start, an offset into the region, on are at @dma and after. */
struct rxe_peer_run {
	u64		start;
	dma_addr_t	dma;
};

struct rxe_peer {
	/* Held for reading by each access, for writing to end them. */
	rwlock_t		lock;
	bool			revoked;
	struct device		*dma_device;
	unsigned int		nr_runs;
	struct rxe_peer_run	runs[] __counted_by(nr_runs);
};

static struct {
	atomic64_t bytes_to_peer;
	atomic64_t bytes_from_peer;
	atomic64_t atomics;
	atomic64_t unresolved;
	atomic64_t live_mrs;
} counters;

/* The first PCI device that the netdev stands on, or NULL. */
static struct device *rxe_peer_dma_device(struct rxe_dev *rxe)
{
	struct net_device *ndev = ib_device_get_netdev(&rxe->ib_dev, 1);
	struct device *dev;

	if (!ndev)
		return NULL;
	for (dev = ndev->dev.parent; dev && !dev_is_pci(dev);)
		dev = dev->parent;
	get_device(dev);
	dev_put(ndev);
	return dev;
}

static struct rxe_peer *rxe_peer_alloc(struct sg_table *sgt,
				       struct device *dma_device)
{
	struct rxe_peer *peer;
	struct scatterlist *sg;
	u64 start = 0;
	int i;

	peer = kvzalloc_flex(*peer, runs, sgt->nents);
	if (!peer)
		return NULL;
	peer->nr_runs = sgt->nents;
	peer->dma_device = dma_device;
	rwlock_init(&peer->lock);

	for_each_sgtable_dma_sg(sgt, sg, i) {
		peer->runs[i].start = start;
		peer->runs[i].dma = sg_dma_address(sg);
		start += sg_dma_len(sg);
	}
	return peer;
}

/* On return no access is under way, and none will come. */
static void rxe_peer_revoke(struct ib_umem *umem, void *priv)
{
	struct rxe_mr *mr = priv;

	write_lock_bh(&mr->peer->lock);
	mr->peer->revoked = true;
	mr->state = RXE_MR_STATE_INVALID;
	write_unlock_bh(&mr->peer->lock);
}

static int rxe_peer_attach(struct rxe_mr *mr, struct ib_umem *umem,
			   struct device *dma_device)
{
	/* No peer memory outlives a power cut; rxe asks the same of pages. */
	if (mr->access & IB_ACCESS_FLUSH_PERSISTENT)
		return -EINVAL;

	mr->peer = rxe_peer_alloc(&umem->sgt_append.sgt, dma_device);
	if (!mr->peer)
		return -ENOMEM;
	mr->umem = umem;
	mr->ibmr.type = IB_MR_TYPE_USER;
	mr->state = RXE_MR_STATE_VALID;
	atomic64_inc(&counters.live_mrs);

	/* Last: from here on the region may be revoked at any time. */
	ib_umem_activate_invalidation_notifier(umem, rxe_peer_revoke, mr);
	return 0;
}

int rxe_peer_reg_mr(struct rxe_dev *rxe, u64 start, u64 length, int access,
		    struct rxe_mr *mr, int gup_errno)
{
	struct device *dma_device = rxe_peer_dma_device(rxe);
	struct ib_umem *umem;
	int err;

	if (dma_device)
		dma_set_max_seg_size(dma_device, peer_max_seg_size);

	umem = ib_umem_get_peer(&rxe->ib_dev, dma_device, start, length, access,
				IB_PEER_MEM_INVAL_SUPP, gup_errno);
	if (IS_ERR(umem)) {
		err = PTR_ERR(umem);
		goto put_device;
	}
	err = rxe_peer_attach(mr, umem, dma_device);
	if (err)
		goto release;
	return 0;

release:
	ib_umem_stop_invalidation_notifier(umem);
	ib_peer_umem_release(umem);
put_device:
	put_device(dma_device);
	return err;
}

/* In the order of mlx5 (mr.c, OFED 25.10): revoke, stop, release. */
void rxe_peer_dereg_mr(struct rxe_mr *mr)
{
	rxe_peer_revoke(mr->umem, mr);
	ib_umem_stop_invalidation_notifier(mr->umem);
	ib_peer_umem_release(mr->umem);

	put_device(mr->peer->dma_device);
	kvfree(mr->peer);
	mr->peer = NULL;
	atomic64_dec(&counters.live_mrs);
}

static dma_addr_t rxe_peer_dma(const struct rxe_peer *peer, u64 offset)
{
	unsigned int low = 0, high = peer->nr_runs;

	/* the last run that starts at or before offset; run 0 starts at 0 */
	while (high - low > 1) {
		unsigned int middle = low + (high - low) / 2;

		if (peer->runs[middle].start <= offset)
			low = middle;
		else
			high = middle;
	}
	return peer->runs[low].dma + (offset - peer->runs[low].start);
}

/* What the NIC's IOMMU makes of the address; 0 if nothing. */
static phys_addr_t rxe_peer_phys(const struct rxe_peer *peer, dma_addr_t dma)
{
	struct iommu_domain *domain = NULL;

	if (peer->dma_device)
		domain = iommu_get_domain_for_dev(peer->dma_device);
	return domain ? iommu_iova_to_phys(domain, dma) : dma;
}

/* Only what the direct map is sure to hold: P2PDMA pages, and RAM. */
static void *rxe_peer_direct_map(phys_addr_t phys)
{
	unsigned long pfn = PHYS_PFN(phys);
	struct page *page;

	if (!phys || !pfn_valid(pfn))
		return NULL;
	page = pfn_to_page(pfn);
	if (!is_zone_device_page(page) && !page_is_ram(pfn))
		return NULL;
	return page_address(page) + offset_in_page(phys);
}

/* Where the byte at iova is, good up to the end of its page. Under the lock. */
static void *rxe_peer_va(struct rxe_mr *mr, u64 iova)
{
	struct rxe_peer *peer = mr->peer;
	void *va;

	if (peer->revoked)
		return NULL;
	/* entries start at a page boundary, and iova is congruent to the VA */
	iova -= mr->ibmr.iova & PAGE_MASK;
	va = rxe_peer_direct_map(rxe_peer_phys(peer, rxe_peer_dma(peer, iova)));
	if (!va)
		atomic64_inc(&counters.unresolved);
	return va;
}

int rxe_peer_copy(struct rxe_mr *mr, u64 iova, void *addr, unsigned int length,
		  enum rxe_mr_copy_dir dir)
{
	unsigned int bytes;
	int err = 0;
	void *va;

	read_lock_bh(&mr->peer->lock);
	for (; length; length -= bytes, iova += bytes, addr += bytes) {
		va = rxe_peer_va(mr, iova);
		if (!va) {
			err = -EFAULT;
			break;
		}
		bytes = min_t(unsigned int, length,
			      PAGE_SIZE - offset_in_page(va));
		if (dir == RXE_TO_MR_OBJ) {
			memcpy(va, addr, bytes);
			atomic64_add(bytes, &counters.bytes_to_peer);
		} else {
			memcpy(addr, va, bytes);
			atomic64_add(bytes, &counters.bytes_from_peer);
		}
	}
	read_unlock_bh(&mr->peer->lock);
	return err;
}

/* The 8 bytes at iova, with the lock held; on error the lock is free. */
static enum resp_states rxe_peer_lock_u64(struct rxe_mr *mr, u64 iova,
					  u64 **va)
{
	enum resp_states state = RESPST_ERR_RKEY_VIOLATION;

	if (mr_check_range(mr, iova, sizeof(**va)))
		return state;
	if (!IS_ALIGNED(iova, sizeof(**va)))
		return RESPST_ERR_MISALIGNED_ATOMIC;

	read_lock_bh(&mr->peer->lock);
	*va = rxe_peer_va(mr, iova);
	if (*va)
		return RESPST_NONE;
	read_unlock_bh(&mr->peer->lock);
	return state;
}

enum resp_states rxe_peer_atomic_op(struct rxe_mr *mr, u64 iova, int opcode,
				    u64 compare, u64 swap_add, u64 *orig_val)
{
	enum resp_states state;
	u64 *va;

	state = rxe_peer_lock_u64(mr, iova, &va);
	if (state)
		return state;

	spin_lock(&atomic_ops_lock);
	*orig_val = *va;
	if (opcode != IB_OPCODE_RC_COMPARE_SWAP)
		*va = *orig_val + swap_add;
	else if (*orig_val == compare)
		*va = swap_add;
	spin_unlock(&atomic_ops_lock);

	atomic64_inc(&counters.atomics);
	read_unlock_bh(&mr->peer->lock);
	return RESPST_NONE;
}

enum resp_states rxe_peer_atomic_write(struct rxe_mr *mr, u64 iova, u64 value)
{
	enum resp_states state;
	u64 *va;

	state = rxe_peer_lock_u64(mr, iova, &va);
	if (state)
		return state;

	/* after all that came before, as in rxe_mr_do_atomic_write() */
	smp_store_release(va, value);

	atomic64_inc(&counters.atomics);
	read_unlock_bh(&mr->peer->lock);
	return RESPST_NONE;
}

/* /sys/kernel/debug/rxe_peer, counters of all rxe devices together */

static struct dentry *rxe_peer_root;

static int counter_get(void *data, u64 *value)
{
	*value = atomic64_read(data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(counter_fops, counter_get, NULL, "%llu\n");

void rxe_peer_init(void)
{
	rxe_peer_root = debugfs_create_dir("rxe_peer", NULL);
#define COUNTER(name) \
	debugfs_create_file(#name, 0444, rxe_peer_root, &counters.name, \
			    &counter_fops)
	COUNTER(bytes_to_peer);
	COUNTER(bytes_from_peer);
	COUNTER(atomics);
	COUNTER(unresolved);
	COUNTER(live_mrs);
#undef COUNTER
}

void rxe_peer_exit(void)
{
	debugfs_remove(rxe_peer_root);
}
