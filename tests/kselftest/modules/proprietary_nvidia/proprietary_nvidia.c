// SPDX-License-Identifier: GPL-2.0
/*
 * Exports what the proprietary flavour of NVIDIA's driver exports of what a
 * peer-memory client needs. To the kernel it says that it is not under the GPL,
 * which is all that matters of that flavour; nothing works.
 */
#include <linux/errno.h>
#include <linux/module.h>
#include <nv-p2p.h>

int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages);

int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table,
				    u32 flags)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_get_pages_persistent);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages);

int nvidia_p2p_put_pages_persistent(u64 virtual_address,
				    struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_put_pages_persistent);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer,
			     struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_dma_map_pages);

int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer,
			       struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return -ENODEV;
}
EXPORT_SYMBOL(nvidia_p2p_dma_unmap_pages);

MODULE_DESCRIPTION("Test equipment: a GPU driver that is not under the GPL");
MODULE_AUTHOR("nvidia-peermem-rs developers");
MODULE_LICENSE("Proprietary");
MODULE_INFO(test, "Y");
