// SPDX-License-Identifier: GPL-2.0
/*
 * A peer-memory client that has the name nv_mem and claims nothing, as
 * nv_peer_mem would be for nvidia-peermem when both are loaded.
 */
#include <linux/errno.h>
#include <linux/mm.h>
#include <linux/module.h>

#include "peer_mem.h"

static int squatter_acquire(unsigned long addr, size_t size,
			    void *peer_mem_private_data, char *peer_mem_name,
			    void **client_context)
{
	return 0;
}

/* The core wants these to be there; without a claim it does not call them. */

static int squatter_get_pages(unsigned long addr, size_t size, int write,
			      int force, struct sg_table *sg_head,
			      void *client_context, u64 core_context)
{
	return -EINVAL;
}

static int squatter_dma_map(struct sg_table *sg_head, void *client_context,
			    struct device *dma_device, int dmasync, int *nmap)
{
	return -EINVAL;
}

static int squatter_dma_unmap(struct sg_table *sg_head, void *client_context,
			      struct device *dma_device)
{
	return -EINVAL;
}

static void squatter_put_pages(struct sg_table *sg_head, void *client_context)
{
}

static unsigned long squatter_get_page_size(void *client_context)
{
	return PAGE_SIZE;
}

static const struct peer_memory_client squatter = {
	.name = "nv_mem",
	.version = "1.0",
	.acquire = squatter_acquire,
	.get_pages = squatter_get_pages,
	.dma_map = squatter_dma_map,
	.dma_unmap = squatter_dma_unmap,
	.put_pages = squatter_put_pages,
	.get_page_size = squatter_get_page_size,
};

static void *registration;

static int __init squatter_init(void)
{
	registration = ib_register_peer_memory_client(&squatter, NULL);
	return registration ? 0 : -EBUSY;
}
module_init(squatter_init);

static void __exit squatter_exit(void)
{
	ib_unregister_peer_memory_client(registration);
}
module_exit(squatter_exit);

MODULE_DESCRIPTION("Test equipment: a peer-memory client nv_mem that claims nothing");
MODULE_AUTHOR("nvidia-peermem-rs developers");
MODULE_LICENSE("GPL");
MODULE_INFO(test, "Y");
