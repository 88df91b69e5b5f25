/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Rust cannot reach: static inlines, macros, and what only a macro can
 * put into a module. No decision is made here.
 */
#ifndef _NVIDIA_PEERMEM_HELPERS_H
#define _NVIDIA_PEERMEM_HELPERS_H

#include <linux/types.h>

#include "peer_mem.h"

struct device;
struct scatterlist;

extern int peermem_helper_peerdirect_support;
extern int peermem_helper_persistent_api_support;
extern const char peermem_helper_version[IB_PEER_MEMORY_VER_MAX];

unsigned int peermem_helper_dma_get_max_seg_size(struct device *dev);
void peermem_helper_sg_set_dma(struct scatterlist *sg, dma_addr_t addr,
			       unsigned int len);
int peermem_helper_dma_mapping_error(struct device *dev, dma_addr_t addr);
void peermem_helper_wait_for_callbacks(void);
void peermem_helper_driver_enter(void);
void peermem_helper_driver_leave(void);
bool peermem_helper_may_log_failure(void);
bool peermem_helper_may_log_leak(void);

#endif /* _NVIDIA_PEERMEM_HELPERS_H */
