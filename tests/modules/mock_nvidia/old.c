// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * mock_nvidia_old: exports what a driver before 525.105.17 did, that is without
 * the *_persistent functions and with nvidia_p2p_cap_persistent_pages in their
 * place. Nothing works; it is there to be recognised as too old.
 *
 * Plain EXPORT_SYMBOL, as in the open driver before 535.146.02.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <nv-p2p.h>

#include "nv-p2p-rest.h"

#ifndef ENOTSUPP
#define ENOTSUPP	524
#endif

int nvidia_p2p_cap_persistent_pages;
EXPORT_SYMBOL(nvidia_p2p_cap_persistent_pages);

int nvidia_p2p_init_mapping(u64 p2p_token, struct nvidia_p2p_params *params,
			    void (*destroy_callback)(void *data), void *data)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_init_mapping);

int nvidia_p2p_destroy_mapping(u64 p2p_token)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_destroy_mapping);

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer,
			     struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer,
			       struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_dma_unmap_pages);

int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_free_page_table);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_free_dma_mapping);

int nvidia_p2p_register_rsync_driver(struct nvidia_p2p_rsync_driver *driver,
				     void *data)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_register_rsync_driver);

void nvidia_p2p_unregister_rsync_driver(struct nvidia_p2p_rsync_driver *driver,
					void *data)
{
}
EXPORT_SYMBOL(nvidia_p2p_unregister_rsync_driver);

int nvidia_p2p_get_rsync_registers(struct nvidia_p2p_rsync_reg_info **reg_info)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL(nvidia_p2p_get_rsync_registers);

void nvidia_p2p_put_rsync_registers(struct nvidia_p2p_rsync_reg_info *reg_info)
{
}
EXPORT_SYMBOL(nvidia_p2p_put_rsync_registers);

MODULE_DESCRIPTION("NVIDIA GPU driver of a test bed, too old for persistent pins");
MODULE_AUTHOR("nvidia-peermem-rs developers");
MODULE_LICENSE("Dual MIT/GPL");
MODULE_VERSION("525.85.12-mock");
