// SPDX-License-Identifier: GPL-2.0
/* The client's callbacks, each with its time taken (times.h). */
#include "core.h"

enum { ACQUIRE, GET_PAGES, DMA_MAP, DMA_UNMAP, PUT_PAGES, RELEASE };

#define TIME_NAMES \
	[ACQUIRE] = "acquire", \
	[GET_PAGES] = "get_pages", \
	[DMA_MAP] = "dma_map", \
	[DMA_UNMAP] = "dma_unmap", \
	[PUT_PAGES] = "put_pages", \
	[RELEASE] = "release",
#include "../times.h"

void peer_times_init(struct dentry *dir)
{
	times_init(dir);
}

void peer_times_exit(void)
{
	times_exit();
}

/* The private data and the name are always NULL (peer_mem.c, OFED 25.10). */
int peer_call_acquire(const struct peer_memory_client *ops, unsigned long addr,
		      size_t size, void **context)
{
	int ret;

	time_leave(ACQUIRE, 0);
	ret = ops->acquire(addr, size, NULL, NULL, context);
	time_enter(ACQUIRE, 1);
	return ret;
}

/*
 * Always for writing; "force" says that a read-only area is fine. The client sees
 * the range as the user gave it, and no table yet (peer_mem.c, OFED 25.10).
 */
int peer_call_get_pages(const struct peer_memory_client *ops, unsigned long addr,
			size_t size, bool force, void *context, u64 core_context)
{
	int ret;

	time_leave(GET_PAGES, 0);
	ret = ops->get_pages(addr, size, 1, force, NULL, context, core_context);
	time_enter(GET_PAGES, 1);
	return ret;
}

/* nmap is a field of the very table (peer_mem.c, OFED 25.10). */
int peer_call_dma_map(const struct peer_memory_client *ops, struct sg_table *sgt,
		      void *context, struct device *dma_device)
{
	int ret;

	time_leave(DMA_MAP, 0);
	ret = ops->dma_map(sgt, context, dma_device, 0, (int *)&sgt->nents);
	time_enter(DMA_MAP, 1);
	return ret;
}

void peer_call_dma_unmap(const struct peer_memory_client *ops,
			 struct sg_table *sgt, void *context,
			 struct device *dma_device)
{
	time_leave(DMA_UNMAP, 0);
	ops->dma_unmap(sgt, context, dma_device);
	time_enter(DMA_UNMAP, 1);
}

void peer_call_put_pages(const struct peer_memory_client *ops,
			 struct sg_table *sgt, void *context)
{
	time_leave(PUT_PAGES, 0);
	ops->put_pages(sgt, context);
	time_enter(PUT_PAGES, 1);
}

void peer_call_release(const struct peer_memory_client *ops, void *context)
{
	if (!ops->release)
		return;
	time_leave(RELEASE, 0);
	ops->release(context);
	time_enter(RELEASE, 1);
}
