/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the files of the peer-memory core share.
 *
 * "OFED 25.10" in this directory means drivers/infiniband/core/peer_mem.c and
 * umem.c of DOCA-OFED 25.10; a rule is marked with the file it comes from.
 */
#ifndef PEER_CORE_H
#define PEER_CORE_H

#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/kref.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/refcount.h>
#include <linux/xarray.h>

#include "ib_umem_peer.h"
#include "peer_mem.h"

struct dentry;

/* The same names as /sys/kernel/mm/memory_peers/<client>/ of OFED. */
struct peer_stats {
	atomic64_t num_alloc_mrs;
	atomic64_t num_dealloc_mrs;
	atomic64_t num_reg_pages;
	atomic64_t num_dereg_pages;
	atomic64_t num_reg_bytes;
	atomic64_t num_dereg_bytes;
	atomic64_t num_free_callbacks;
};

struct peer_client {
	struct list_head entry;
	const struct peer_memory_client *ops;	/* the client's own, no copy */
	bool wants_invalidation;

	struct xarray umems;			/* core_context -> peer_umem */
	u32 next_id;

	refcount_t users;			/* one for the registration */
	struct completion unused;

	struct peer_stats stats;
	struct dentry *dir;
};

enum peer_state {
	PEER_UNMAPPED,
	PEER_MAPPED,
	PEER_INVALIDATED,	/* the client unmaps; we must not */
};

/* Where a test can stop a thread; see points.h and debugfs.c. */
enum peer_point {
	POINT_ACQUIRED,
	POINT_GOT_PAGES,
	POINT_DMA_MAP,
	POINT_MAPPED,
	POINT_INVALIDATE,
	POINT_INVALIDATED,
	POINT_STOPPED,
	POINT_DMA_UNMAP,
	POINT_UNMAPPED,
	POINT_PUT,
};

void peer_pass(enum peer_point point);

/* core_context of a client without callback (peer_mem.c, OFED 25.10) */
#define PEER_NO_ID U32_MAX

struct peer_umem {
	struct ib_umem umem;
	struct peer_client *client;
	void *context;				/* the client's */
	struct device *dma_device;
	u32 id;
	struct kref kref;

	struct mutex mapping_lock;		/* protects what follows */
	enum peer_state state;
	umem_invalidate_func_t revoke;
	void *revoke_priv;

	/* what peer_trim() cut off */
	struct scatterlist *first_sg;
	struct scatterlist *last_sg;
	unsigned int head;
	unsigned int tail;

	struct sg_table mapped_header;		/* for the audit */
	struct list_head shown;			/* debugfs: umems */
};

static inline struct sg_table *peer_sgt(struct peer_umem *peer)
{
	return &peer->umem.sgt_append.sgt;
}

/* client.c */
struct peer_client *peer_client_claim(unsigned long addr, size_t size,
				      unsigned long flags, void **context);
void peer_client_put(struct peer_client *client);

/* calls.c */
int peer_call_acquire(const struct peer_memory_client *ops, unsigned long addr,
		      size_t size, void **context);
int peer_call_get_pages(const struct peer_memory_client *ops, unsigned long addr,
			size_t size, bool force, void *context, u64 core_context);
int peer_call_dma_map(const struct peer_memory_client *ops, struct sg_table *sgt,
		      void *context, struct device *dma_device);
void peer_call_dma_unmap(const struct peer_memory_client *ops,
			 struct sg_table *sgt, void *context,
			 struct device *dma_device);
void peer_call_put_pages(const struct peer_memory_client *ops,
			 struct sg_table *sgt, void *context);
void peer_call_release(const struct peer_memory_client *ops, void *context);
void peer_times_init(struct dentry *dir);
void peer_times_exit(void);

/* bench.c */
void peer_bench_init(struct dentry *dir);

/* umem.c */
int peer_invalidate(void *reg_handle, u64 core_context);

/* trim.c */
void peer_trim(struct peer_umem *peer, unsigned long page_size);
void peer_untrim(struct peer_umem *peer);

/* audit.c */
__printf(2, 3)
void peer_violation(const struct peer_client *client, const char *fmt, ...);
bool peer_audit_client(const struct peer_client *client);
int peer_audit_result(const struct peer_client *client, const char *call,
		      int result);
bool peer_audit_mapping(struct peer_umem *peer, unsigned long page_size);
void peer_audit_failed_mapping(struct peer_umem *peer);
void peer_audit_unmapping(struct peer_umem *peer);

/* watch.c */
void peer_watch_mappings(struct device *dma_device);
void peer_watch_init(struct dentry *root);
void peer_watch_exit(void);

/* debugfs.c */
int peer_debugfs_init(void);
void peer_debugfs_exit(void);
void peer_debugfs_add_client(struct peer_client *client);
void peer_debugfs_remove_client(struct peer_client *client);
void peer_debugfs_add_umem(struct peer_umem *peer);
void peer_debugfs_remove_umem(struct peer_umem *peer);
struct device *peer_dma_device(struct device *dma_device);

#endif /* PEER_CORE_H */
