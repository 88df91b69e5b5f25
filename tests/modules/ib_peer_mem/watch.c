// SPDX-License-Identifier: GPL-2.0
/*
 * What the network card's DMA layer is asked to map and unmap. A client that
 * maps by itself and forgets to unmap leaves no trace without an IOMMU: here it
 * does. Mapping can be made to fail, and be stopped in the middle (points.h).
 *
 *   dma_mappings      number that is alive
 *   dma_mapped_bytes  and their size: an unmap of another size than the map shows
 *   dma_fault         "SKIP [TIMES]": let SKIP mappings pass, then fail TIMES of
 *                     them (default 1, 0 = for ever); "clear"
 *
 * Works where the kernel has per-device DMA operations, no IOMMU translates, and
 * the card is QEMU's virtio: its driver maps nothing in this way itself.
 * Otherwise it does nothing, and the numbers stay at 0.
 */
#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/dma-map-ops.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/uaccess.h>

#include "core.h"

static atomic64_t mappings, mapped_bytes;

/* Calls to let pass, then calls to fail. Races between callers do not matter. */
static atomic_t fault_skip, fault_times;
static bool fault_forever;

static bool take_fault(void)
{
	if (atomic_dec_if_positive(&fault_skip) >= 0)
		return false;
	return READ_ONCE(fault_forever) ||
	       atomic_dec_if_positive(&fault_times) >= 0;
}

#ifdef CONFIG_ARCH_HAS_DMA_OPS

static struct device *watched;
static DEFINE_MUTEX(watched_lock);

/* As without an IOMMU: the address is the physical one. */
static dma_addr_t watch_map_phys(struct device *dev, phys_addr_t phys,
				 size_t size, enum dma_data_direction dir,
				 unsigned long attrs)
{
	peer_pass(POINT_DMA_MAP);
	if (take_fault())
		return DMA_MAPPING_ERROR;
	atomic64_inc(&mappings);
	atomic64_add(size, &mapped_bytes);
	return phys;
}

static void watch_unmap_phys(struct device *dev, dma_addr_t dma, size_t size,
			     enum dma_data_direction dir, unsigned long attrs)
{
	peer_pass(POINT_DMA_UNMAP);
	atomic64_dec(&mappings);
	atomic64_sub(size, &mapped_bytes);
}

static const struct dma_map_ops watch_ops = {
	.map_phys = watch_map_phys,
	.unmap_phys = watch_unmap_phys,
};

static bool can_watch(struct device *dev)
{
	return dev_is_pci(dev) && !get_dma_ops(dev) && !device_iommu_mapped(dev) &&
	       to_pci_dev(dev)->vendor == PCI_VENDOR_ID_REDHAT_QUMRANET;
}

void peer_watch_mappings(struct device *dma_device)
{
	guard(mutex)(&watched_lock);
	if (watched || !can_watch(dma_device))
		return;
	set_dma_ops(dma_device, &watch_ops);
	watched = dma_device;
}

void peer_watch_exit(void)
{
	if (watched)
		set_dma_ops(watched, NULL);
}

#else

void peer_watch_mappings(struct device *dma_device)
{
}

void peer_watch_exit(void)
{
}

#endif

static int number_get(void *data, u64 *value)
{
	*value = atomic64_read(data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(number_fops, number_get, NULL, "%lld\n");

static ssize_t dma_fault_write(struct file *file, const char __user *ubuf,
			       size_t count, loff_t *pos)
{
	unsigned int skip = 0, times = 1;
	char text[32] = {};

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, ubuf, count))
		return -EFAULT;
	if (!strcmp(strim(text), "clear"))
		times = UINT_MAX;
	else if (sscanf(text, "%u %u", &skip, &times) < 1)
		return -EINVAL;
	WRITE_ONCE(fault_forever, !times);
	atomic_set(&fault_times, times == UINT_MAX ? 0 : times);
	atomic_set(&fault_skip, skip);
	return count;
}

static const struct file_operations dma_fault_fops = {
	.owner = THIS_MODULE,
	.write = dma_fault_write,
};

void peer_watch_init(struct dentry *root)
{
	debugfs_create_file("dma_mappings", 0444, root, &mappings, &number_fops);
	debugfs_create_file("dma_mapped_bytes", 0444, root, &mapped_bytes,
			    &number_fops);
	debugfs_create_file("dma_fault", 0200, root, NULL, &dma_fault_fops);
}
