// SPDX-License-Identifier: GPL-2.0

#include <linux/dma-mapping.h>
#include <linux/lockdep.h>
#include <linux/kobject.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/ratelimit.h>
#include <linux/rcupdate.h>
#include <linux/sched/clock.h>
#include <linux/string.h>

/* For their assertions: rust/ffi asserts the same numbers. */
#include "nv-p2p.h"
#include "peer_mem.h"

#include "helpers.h"

/* Parameters that the module! macro declares do not show in sysfs. */
int peermem_helper_peerdirect_support;
module_param_named(peerdirect_support, peermem_helper_peerdirect_support, int,
		   0444);
MODULE_PARM_DESC(peerdirect_support,
		 "Flavour of the peer-memory core: 0 = current (default), 1 = MLNX_OFED 4.9 and older");

int peermem_helper_persistent_api_support = 1;
module_param_named(persistent_api_support,
		   peermem_helper_persistent_api_support, int, 0444);
MODULE_PARM_DESC(persistent_api_support,
		 "How GPU memory is pinned: 1 = until deregistration, even if the application frees it (default), 0 = until deregistration or until the application frees it");

/* The module! macro has no version; NCCL, UCX and NVSHMEM look for it. */
MODULE_VERSION(NVIDIA_PEERMEM_VERSION);
const char peermem_helper_version[IB_PEER_MEMORY_VER_MAX] =
	NVIDIA_PEERMEM_VERSION;
/* The last byte of a client's version is a flag. */
static_assert(sizeof(NVIDIA_PEERMEM_VERSION) < IB_PEER_MEMORY_VER_MAX);

unsigned int peermem_helper_dma_get_max_seg_size(struct device *dev)
{
	return dma_get_max_seg_size(dev);
}

int peermem_helper_dma_mapping_error(struct device *dev, dma_addr_t addr)
{
	return dma_mapping_error(dev, addr);
}

static_assert(TASK_COMM_LEN == 16);

void peermem_helper_comm(char name[TASK_COMM_LEN])
{
	memcpy(name, current->comm, TASK_COMM_LEN);
}

void peermem_helper_dev_name(const struct device *dev,
			     char name[PEERMEM_PCI_NAME])
{
	strscpy(name, dev_name(dev), PEERMEM_PCI_NAME);
}

static bool has_address(struct pci_dev *pdev, phys_addr_t addr)
{
	struct resource *res;

	pci_dev_for_each_resource(pdev, res)
		if (resource_type(res) == IORESOURCE_MEM && res->parent &&
		    addr >= res->start && addr <= res->end &&
		    res < &pdev->resource[PCI_BRIDGE_RESOURCES])
			return true;
	return false;
}

void peermem_helper_pci_name_at(phys_addr_t addr, char name[PEERMEM_PCI_NAME])
{
	struct pci_dev *pdev = NULL;

	strscpy(name, "unknown", PEERMEM_PCI_NAME);
	for_each_pci_dev(pdev) {
		if (has_address(pdev, addr)) {
			strscpy(name, pci_name(pdev), PEERMEM_PCI_NAME);
			pci_dev_put(pdev);
			return;
		}
	}
}

/* For lockdep each place that adds files is a class of its own. */
int peermem_helper_sysfs_file(struct kobject *kobj, struct kobj_attribute *attr,
			      const char *name, umode_t mode,
			      ssize_t (*show)(struct kobject *kobj,
					      struct kobj_attribute *attr,
					      char *buf),
			      ssize_t (*store)(struct kobject *kobj,
					       struct kobj_attribute *attr,
					       const char *buf, size_t count))
{
	sysfs_attr_init(&attr->attr);
	attr->attr.name = name;
	attr->attr.mode = mode;
	attr->show = show;
	attr->store = store;
	return sysfs_create_file(kobj, &attr->attr);
}

u64 peermem_helper_log_ns(void)
{
	return local_clock();
}

/* Sleeps. A macro where the kernel needs no more than synchronize_rcu(). */
void peermem_helper_wait_for_callbacks(void)
{
	synchronize_rcu_tasks();
}

/*
 * Stands for the GPU driver's API lock in lockdep's eyes, which do not see the
 * driver's own: whatever is held where the driver is called must never be taken
 * in its free callback.
 */
#ifdef CONFIG_LOCKDEP
static struct lockdep_map driver_map =
	STATIC_LOCKDEP_MAP_INIT("nvidia_p2p", &driver_map);
#endif

void peermem_helper_driver_enter(void)
{
	lock_map_acquire(&driver_map);
}

void peermem_helper_driver_leave(void)
{
	lock_map_release(&driver_map);
}

/*
 * Any user can make registrations fail at will, but not leaks: the former must
 * not use up the lines of the latter. The name is what the kernel calls the
 * lines that it counted instead of showing.
 */
bool peermem_helper_may_log_failure(void)
{
	static DEFINE_RATELIMIT_STATE(state, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	return ___ratelimit(&state, KBUILD_MODNAME ": failed registration");
}

bool peermem_helper_may_log_leak(void)
{
	static DEFINE_RATELIMIT_STATE(state, DEFAULT_RATELIMIT_INTERVAL,
				      DEFAULT_RATELIMIT_BURST);

	return ___ratelimit(&state, KBUILD_MODNAME ": leak");
}
