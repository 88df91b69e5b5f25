/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What Rust cannot reach: static inlines, macros, and what only a macro can
 * put into a module. No decision is made here.
 */
#ifndef _NVIDIA_PEERMEM_HELPERS_H
#define _NVIDIA_PEERMEM_HELPERS_H

#include <linux/sched.h>
#include <linux/sysfs.h>
#include <linux/types.h>

#include "peer_mem.h"

/* A PCI address with a domain of 32 bits, and its NUL. */
#define PEERMEM_PCI_NAME 20

struct device;
struct kobj_attribute;
struct kobject;

extern int peermem_helper_peerdirect_support;
extern int peermem_helper_persistent_api_support;
extern const char peermem_helper_version[IB_PEER_MEMORY_VER_MAX];

unsigned int peermem_helper_dma_get_max_seg_size(struct device *dev);
int peermem_helper_dma_mapping_error(struct device *dev, dma_addr_t addr);
void peermem_helper_comm(char name[TASK_COMM_LEN]);
void peermem_helper_dev_name(const struct device *dev,
			     char name[PEERMEM_PCI_NAME]);
void peermem_helper_pci_name_at(phys_addr_t addr, char name[PEERMEM_PCI_NAME]);
int peermem_helper_sysfs_file(struct kobject *kobj, struct kobj_attribute *attr,
			      const char *name, umode_t mode,
			      ssize_t (*show)(struct kobject *kobj,
					      struct kobj_attribute *attr,
					      char *buf),
			      ssize_t (*store)(struct kobject *kobj,
					       struct kobj_attribute *attr,
					       const char *buf, size_t count));
u64 peermem_helper_log_ns(void);
void peermem_helper_wait_for_callbacks(void);
void peermem_helper_driver_enter(void);
void peermem_helper_driver_leave(void);

bool peermem_helper_tracing(void);
void peermem_helper_trace_acquire(u64 id, u64 address, u64 length, u64 pages,
				  int ret, u64 ns);
void peermem_helper_trace_get_pages(u64 id, u64 length, int ret, u64 ns);
void peermem_helper_trace_dma_map(u64 id, u64 length, u32 entries, int ret,
				  u64 ns);
void peermem_helper_trace_dma_unmap(u64 id, u64 length, int ret, u64 ns);
void peermem_helper_trace_put_pages(u64 id, u64 length, int ret, u64 ns);
void peermem_helper_trace_release(u64 id, u64 length, int ret, u64 ns);
void peermem_helper_trace_free_callback(u64 id, u64 length, bool mapped, u64 ns);

bool peermem_helper_may_log_failure(void);
bool peermem_helper_may_log_leak(void);

#endif /* _NVIDIA_PEERMEM_HELPERS_H */
