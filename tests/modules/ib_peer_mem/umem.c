// SPDX-License-Identifier: GPL-2.0
/*
 * The life of one memory region: get, activate, invalidate, stop, release.
 */
#include <linux/align.h>
#include <linux/capability.h>
#include <linux/export.h>
#include <linux/mm.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/slab.h>
#include <rdma/ib_verbs.h>

#include "core.h"

static struct peer_umem *to_peer(struct ib_umem *umem)
{
	return container_of(umem, struct peer_umem, umem);
}

static void peer_umem_free(struct kref *kref)
{
	struct peer_umem *peer = container_of(kref, struct peer_umem, kref);

	mutex_destroy(&peer->mapping_lock);
	mmdrop(peer->umem.owning_mm);
	kfree(peer);
}

static void peer_umem_put(struct peer_umem *peer)
{
	kref_put(&peer->kref, peer_umem_free);
}

/* Before any pinning, in this order (umem.c, OFED 25.10 and Linux 7.3). */
static int check_request(unsigned long addr, size_t size, int access)
{
	if (addr + size < addr || PAGE_ALIGN(addr + size) < addr + size)
		return -EINVAL;
	if (!can_do_mlock())
		return -EPERM;
	if (access & IB_ACCESS_ON_DEMAND)
		return -EOPNOTSUPP;
	return 0;
}

static struct peer_umem *peer_umem_alloc(struct ib_device *ibdev,
					 struct device *dma_device,
					 unsigned long addr, size_t size,
					 int access)
{
	struct peer_umem *peer = kzalloc_obj(*peer);

	if (!peer)
		return NULL;
	peer->umem.ibdev = ibdev;
	peer->umem.address = addr;
	peer->umem.iova = addr;
	peer->umem.length = size;
	peer->umem.writable = ib_access_writable(access);
	peer->umem.owning_mm = current->mm;
	mmgrab(current->mm);
	peer->dma_device = peer_dma_device(dma_device);
	peer->id = PEER_NO_ID;
	kref_init(&peer->kref);
	mutex_init(&peer->mapping_lock);
	return peer;
}

/* Peer memory counts as locked memory, like any other (umem.c, OFED 25.10). */
static int charge(struct peer_umem *peer)
{
	unsigned long npages = ib_umem_num_pages(&peer->umem);
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	struct mm_struct *mm = peer->umem.owning_mm;

	if (!npages || npages > UINT_MAX)
		return -EINVAL;
	if (atomic64_add_return(npages, &mm->pinned_vm) > limit &&
	    !capable(CAP_IPC_LOCK)) {
		atomic64_sub(npages, &mm->pinned_vm);
		return -ENOMEM;
	}
	return 0;
}

static void uncharge(struct peer_umem *peer)
{
	atomic64_sub(ib_umem_num_pages(&peer->umem),
		     &peer->umem.owning_mm->pinned_vm);
}

static int get_pages(struct peer_umem *peer)
{
	int err = peer_call_get_pages(peer->client->ops, peer->umem.address,
				      peer->umem.length, !peer->umem.writable,
				      peer->context, peer->id);

	return peer_audit_result(peer->client, "get_pages", err);
}

static int dma_map(struct peer_umem *peer)
{
	int err = peer_call_dma_map(peer->client->ops, peer_sgt(peer),
				    peer->context, peer->dma_device);

	err = peer_audit_result(peer->client, "dma_map", err);
	if (err)
		peer_audit_failed_mapping(peer);
	return err;
}

static void dma_unmap_and_put(struct peer_umem *peer)
{
	const struct peer_memory_client *ops = peer->client->ops;

	peer_audit_unmapping(peer);
	peer_call_dma_unmap(ops, peer_sgt(peer), peer->context,
			    peer->dma_device);
	peer_pass(POINT_UNMAPPED);
	peer_call_put_pages(ops, peer_sgt(peer), peer->context);
}

/* Called with mapping_lock held, as are all three steps (OFED 25.10). */
static int map_pages(struct peer_umem *peer)
{
	const struct peer_memory_client *ops = peer->client->ops;
	unsigned long page_size;
	int err;

	err = get_pages(peer);
	if (err)
		return err;
	peer_pass(POINT_GOT_PAGES);
	err = dma_map(peer);
	if (err) {
		/* No dma_unmap() then, but put_pages() (OFED 25.10). */
		peer_call_put_pages(ops, peer_sgt(peer), peer->context);
		return err;
	}
	page_size = ops->get_page_size(peer->context);
	if (!peer_audit_mapping(peer, page_size)) {
		dma_unmap_and_put(peer);
		return -EINVAL;
	}
	if (page_size != PAGE_SIZE)
		peer_trim(peer, page_size);
	return 0;
}

static void count_mapped(struct peer_umem *peer)
{
	struct peer_stats *stats = &peer->client->stats;

	/* "pages" are entries (peer_mem.c, OFED 25.10) */
	atomic64_add(peer_sgt(peer)->nents, &stats->num_reg_pages);
	atomic64_add(peer->umem.length, &stats->num_reg_bytes);
	atomic64_inc(&stats->num_alloc_mrs);
}

/*
 * Two locks for lockdep. A client without callback calls its GPU driver under
 * the one (dma_map, and put_pages in stop): mapping_lock, then the driver's
 * lock. A client with callback is called by that driver, and invalidates: the
 * driver's lock, then the other mapping_lock. A client that does both with one
 * lock can deadlock, and lockdep says so.
 */
static void set_lock_class(struct peer_umem *peer)
{
	static struct lock_class_key without_callback, with_callback;

	if (peer->client->wants_invalidation)
		lockdep_set_class(&peer->mapping_lock, &with_callback);
	else
		lockdep_set_class(&peer->mapping_lock, &without_callback);
}

static int map_client(struct peer_umem *peer)
{
	struct peer_client *client = peer->client;
	int err;

	set_lock_class(peer);
	mutex_lock(&peer->mapping_lock);
	if (client->wants_invalidation) {
		/*
		 * An id and no pointer: the client may call with it when the
		 * region is long gone (peer_mem.c, OFED 25.10).
		 */
		err = xa_alloc_cyclic(&client->umems, &peer->id, peer,
				      XA_LIMIT(0, PEER_NO_ID - 1),
				      &client->next_id, GFP_KERNEL);
		if (err < 0)
			goto unlock;
	}
	err = map_pages(peer);
	if (err) {
		if (peer->id != PEER_NO_ID)
			xa_erase(&client->umems, peer->id);
		goto unlock;
	}
	peer->state = PEER_MAPPED;
	count_mapped(peer);
	/*
	 * An invalidation has to wait until the driver is ready for it, that
	 * is until ib_umem_activate_invalidation_notifier() (OFED 25.10).
	 */
	if (peer->id != PEER_NO_ID)
		return 0;
unlock:
	mutex_unlock(&peer->mapping_lock);
	return err < 0 ? err : 0;
}

static void release_client(struct peer_umem *peer)
{
	peer_call_release(peer->client->ops, peer->context);
	peer_client_put(peer->client);
}

struct ib_umem *ib_umem_get_peer(struct ib_device *ibdev,
				 struct device *dma_device, unsigned long addr,
				 size_t size, int access,
				 unsigned long peer_mem_flags, int gup_errno)
{
	struct peer_umem *peer;
	int err;

	err = check_request(addr, size, access);
	if (err)
		return ERR_PTR(err);
	peer = peer_umem_alloc(ibdev, dma_device, addr, size, access);
	if (!peer)
		return ERR_PTR(-ENOMEM);
	err = charge(peer);
	if (err)
		goto put;

	peer->client = peer_client_claim(addr, size, peer_mem_flags,
					 &peer->context);
	if (!peer->client) {
		/* Nobody's: as if there were no peers (OFED 25.10). */
		err = gup_errno;
		goto uncharge;
	}
	peer_pass(POINT_ACQUIRED);
	/* From here the client's errno is the answer (OFED 25.10). */
	err = map_client(peer);
	if (err)
		goto release;

	peer_debugfs_add_umem(peer);
	return &peer->umem;

release:
	release_client(peer);
uncharge:
	uncharge(peer);
put:
	peer_umem_put(peer);
	return ERR_PTR(err);
}
EXPORT_SYMBOL(ib_umem_get_peer);

/* Nothing to do for a client without callback (peer_mem.c, OFED 25.10). */
void ib_umem_activate_invalidation_notifier(struct ib_umem *umem,
					    umem_invalidate_func_t func,
					    void *priv)
{
	struct peer_umem *peer = to_peer(umem);

	peer_pass(POINT_MAPPED);
	if (peer->id == PEER_NO_ID)
		return;
	peer->revoke = func;
	peer->revoke_priv = priv;
	mutex_unlock(&peer->mapping_lock);	/* of map_client() */
}
EXPORT_SYMBOL(ib_umem_activate_invalidation_notifier);

/* Read anew each time, as the core does (peer_mem.c, OFED 25.10). */
static bool client_unmaps(const struct peer_client *client)
{
	const struct peer_memory_client *ops = client->ops;
	const struct peer_memory_client_ex *ex;

	if (!ops->version[IB_PEER_MEMORY_VER_MAX - 1])
		return false;
	ex = container_of(ops, const struct peer_memory_client_ex, client);
	return ex->ex_size >= offsetofend(struct peer_memory_client_ex, flags) &&
	       (ex->flags & PEER_MEM_INVALIDATE_UNMAPS);
}

static void count_deregistered(struct peer_umem *peer)
{
	struct peer_stats *stats = &peer->client->stats;

	atomic64_add(peer->mapped_header.nents, &stats->num_dereg_pages);
	atomic64_add(peer->umem.length, &stats->num_dereg_bytes);
}

/*
 * The region leaves MAPPED. Whoever unmaps then, we or the client, finds the
 * table as the client made it (peer_mem.c, OFED 25.10).
 */
static void end_mapping(struct peer_umem *peer, bool unmap)
{
	peer_untrim(peer);
	if (unmap)
		dma_unmap_and_put(peer);
	memset(peer_sgt(peer), 0, sizeof(*peer_sgt(peer)));
	atomic64_inc(&peer->client->stats.num_dealloc_mrs);
}

static void unmap_from(struct peer_umem *peer, enum peer_state from)
{
	if (from == PEER_MAPPED)
		end_mapping(peer, true);
	if (from != PEER_UNMAPPED)
		count_deregistered(peer);
}

/*
 * Called by the client, often with a lock of its GPU driver held. Waits for a
 * registration that is under way, and for a deregistration of a client that
 * does not unmap by itself (peer_mem.c, OFED 25.10).
 */
static void invalidate(struct peer_umem *peer)
{
	guard(mutex)(&peer->mapping_lock);

	if (peer->state != PEER_MAPPED)
		return;
	if (peer->revoke)
		peer->revoke(&peer->umem, peer->revoke_priv);
	if (client_unmaps(peer->client)) {
		end_mapping(peer, false);
		peer->state = PEER_INVALIDATED;
	} else {
		/* in the client's own callback, under the lock (OFED 25.10) */
		unmap_from(peer, PEER_MAPPED);
		peer->state = PEER_UNMAPPED;
	}
}

int peer_invalidate(void *reg_handle, u64 core_context)
{
	struct peer_client *client = reg_handle;
	struct peer_umem *peer;

	xa_lock(&client->umems);
	atomic64_inc(&client->stats.num_free_callbacks);
	peer = xa_load(&client->umems, core_context);
	if (peer)
		kref_get(&peer->kref);
	xa_unlock(&client->umems);

	if (peer) {
		peer_pass(POINT_INVALIDATE);
		invalidate(peer);
		peer_umem_put(peer);
	}
	peer_pass(POINT_INVALIDATED);
	return 0;
}

/*
 * The driver has ended all DMA and can take no more invalidations.
 *
 * mapping_lock is still held for a client with callback that was never
 * activated, free for all others. (OFED up to 24.10 had this test reversed;
 * fixed in 25.04.)
 */
void ib_umem_stop_invalidation_notifier(struct ib_umem *umem)
{
	struct peer_umem *peer = to_peer(umem);
	bool client_fences = client_unmaps(peer->client);
	enum peer_state from;

	if (peer->revoke || peer->id == PEER_NO_ID)
		mutex_lock(&peer->mapping_lock);
	peer->revoke = NULL;
	from = peer->state;
	/*
	 * Such a client needs a lock of its own around its calls, and takes it
	 * in dma_unmap() and put_pages() too: to hold ours would deadlock with
	 * its callback. If that runs just now it unmaps, finds entries that are
	 * trimmed or not, and dma_unmap() and put_pages() come all the same
	 * (peer_mem.c, OFED 25.10).
	 */
	if (!client_fences)
		unmap_from(peer, from);
	peer->state = PEER_UNMAPPED;
	mutex_unlock(&peer->mapping_lock);

	peer_pass(POINT_STOPPED);
	if (client_fences)
		unmap_from(peer, from);
}
EXPORT_SYMBOL(ib_umem_stop_invalidation_notifier);

void ib_peer_umem_release(struct ib_umem *umem)
{
	struct peer_umem *peer = to_peer(umem);

	/* An activated notifier must have been stopped (OFED 25.10). */
	WARN_ON(peer->revoke);

	/* For drivers that never call stop on such a client (OFED 25.10). */
	unmap_from(peer, peer->state);
	peer->state = PEER_UNMAPPED;

	peer_debugfs_remove_umem(peer);
	if (peer->id != PEER_NO_ID)
		xa_erase(&peer->client->umems, peer->id);
	peer_pass(POINT_PUT);
	release_client(peer);
	uncharge(peer);
	peer_umem_put(peer);
}
EXPORT_SYMBOL(ib_peer_umem_release);
