/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The peer-to-peer interface of NVIDIA's open GPU kernel modules, in our own
 * words.
 *
 * Layout and semantics were established from nv-p2p.h and nv-p2p.c of
 * open-gpu-kernel-modules 515.43.04 to 595.45.04. Page tables of version 1.2
 * end before @flags; the dma mapping did not change.
 */
#ifndef _NVIDIA_PEERMEM_NV_P2P_H
#define _NVIDIA_PEERMEM_NV_P2P_H

#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>

struct pci_dev;

/* Versions are major << 16 | minor. */
#define NVIDIA_P2P_PAGE_TABLE_VERSION_1_2	0x00010002	/* 515 to 575 */
#define NVIDIA_P2P_PAGE_TABLE_VERSION_2_0	0x00020000	/* 580.65.06 on */
#define NVIDIA_P2P_DMA_MAPPING_VERSION_2_3	0x00020003	/* 515 on */

#define NVIDIA_P2P_GPU_UUID_LEN			16

enum nvidia_p2p_page_size_type {
	NVIDIA_P2P_PAGE_SIZE_4KB,
	NVIDIA_P2P_PAGE_SIZE_64KB,	/* the only one that the driver uses */
	NVIDIA_P2P_PAGE_SIZE_128KB,
	NVIDIA_P2P_PAGE_SIZE_COUNT,
};

/**
 * struct nvidia_p2p_page - one pinned GPU page
 * @physical_address: where the CPU sees it (BAR1)
 * @registers: offsets of rsync registers, unused since 570
 */
struct nvidia_p2p_page {
	u64	physical_address;
	union {
		struct {
			u32	wreqmb_h;
			u32	rreqmb_h;
			u32	rreqmb_0;
			u32	reserved[3];
		} fermi;
	} registers;
};

/**
 * struct nvidia_p2p_page_table - a pinned range
 * @version: of this structure
 * @page_size: enum nvidia_p2p_page_size_type
 * @pages: @entries pointers, in order of virtual address
 * @entries: number of pages
 * @gpu_uuid: NVIDIA_P2P_GPU_UUID_LEN bytes
 * @flags: from version 2.0 on
 */
struct nvidia_p2p_page_table {
	u32	version;
	u32	page_size;
	struct nvidia_p2p_page **pages;
	u32	entries;
	u8	*gpu_uuid;
	u32	flags;
};

/**
 * struct nvidia_p2p_dma_mapping - a pinned range as one PCI device sees it
 * @version: of this structure
 * @page_size_type: granularity of @dma_addresses
 * @entries: number of addresses
 * @dma_addresses: bus addresses, in order of virtual address
 * @private: the driver's
 * @pci_dev: the device that the range was mapped for
 */
struct nvidia_p2p_dma_mapping {
	u32	version;
	enum nvidia_p2p_page_size_type page_size_type;
	u32	entries;
	u64	*dma_addresses;
	void	*private;
	struct pci_dev *pci_dev;
};

static_assert(sizeof(struct nvidia_p2p_page) == 32);
static_assert(offsetof(struct nvidia_p2p_page_table, page_size) == 4);
static_assert(offsetof(struct nvidia_p2p_page_table, pages) == 8);
static_assert(offsetof(struct nvidia_p2p_page_table, entries) == 16);
static_assert(offsetof(struct nvidia_p2p_page_table, gpu_uuid) == 24);
static_assert(offsetof(struct nvidia_p2p_page_table, flags) == 32);
static_assert(sizeof(struct nvidia_p2p_dma_mapping) == 40);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, page_size_type) == 4);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, entries) == 8);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, dma_addresses) == 16);
static_assert(offsetof(struct nvidia_p2p_dma_mapping, pci_dev) == 32);

/* Pin until the free callback or put_pages; owner is the calling process. */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data);

/* Pin until put_pages_persistent, whatever happens to the owner. */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table,
				    u32 flags);

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_put_pages_persistent(u64 virtual_address,
				    struct nvidia_p2p_page_table *page_table,
				    u32 flags);

int nvidia_p2p_dma_map_pages(struct pci_dev *peer,
			     struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping);
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer,
			       struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping);

/* For the free callback only; both do nothing, the driver frees by itself. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table);
int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping);

#endif /* _NVIDIA_PEERMEM_NV_P2P_H */
