// SPDX-License-Identifier: GPL-2.0
/*
 * /sys/kernel/debug/ib_peer_mem: what tests look at; what they can change, the
 * device that clients are asked to map for; times (times.h) and bench (bench.c);
 * and the points at which they can
 * stop a thread (points.h):
 *
 *   acquired     between acquire and get_pages
 *   got_pages    between get_pages and dma_map, mapping_lock held
 *   dma_map      in the DMA layer, for each run that is mapped (watch.c)
 *   mapped       before the driver is ready for invalidations, mapping_lock held
 *   invalidate   called by the client, mapping_lock not yet taken
 *   invalidated  about to return to the client
 *   stopped      region unmapped as far as the core knows, the client not asked
 *   dma_unmap    in the DMA layer, for each run that is unmapped (watch.c)
 *   unmapped     between dma_unmap and put_pages
 *   put          between put_pages and release
 */
#include <linux/debugfs.h>
#include <linux/device.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/platform_device.h>
#include <linux/seq_file.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "audit.h"
#include "core.h"

#define POINT_NAMES \
	[POINT_ACQUIRED] = "acquired", \
	[POINT_GOT_PAGES] = "got_pages", \
	[POINT_DMA_MAP] = "dma_map", \
	[POINT_MAPPED] = "mapped", \
	[POINT_INVALIDATE] = "invalidate", \
	[POINT_INVALIDATED] = "invalidated", \
	[POINT_STOPPED] = "stopped", \
	[POINT_DMA_UNMAP] = "dma_unmap", \
	[POINT_UNMAPPED] = "unmapped", \
	[POINT_PUT] = "put",
#include "../points.h"

void peer_pass(enum peer_point point)
{
	point_pass(point);
}

static struct dentry *root;
static struct dentry *clients;

/* clients/<name>/ */

static int counter_get(void *data, u64 *value)
{
	*value = atomic64_read(data);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(counter_fops, counter_get, NULL, "%llu\n");

static int version_show(struct seq_file *file, void *unused)
{
	struct peer_client *client = file->private;

	seq_printf(file, "%.*s\n", IB_PEER_MEMORY_VER_MAX - 1,
		   client->ops->version);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(version);

/* A second client of a name (unique_names=N) gets a number behind it. */
static struct dentry *client_dir(const char *name)
{
	static unsigned int serial;
	struct dentry *taken = debugfs_lookup(name, clients);
	char other[IB_PEER_MEMORY_NAME_MAX + 16];

	if (!taken)
		return debugfs_create_dir(name, clients);
	dput(taken);
	snprintf(other, sizeof(other), "%s.%u", name, ++serial);
	return debugfs_create_dir(other, clients);
}

void peer_debugfs_add_client(struct peer_client *client)
{
	struct peer_stats *stats = &client->stats;
	struct dentry *dir = client_dir(client->ops->name);

	client->dir = dir;
	debugfs_create_file("version", 0444, dir, client, &version_fops);
#define COUNTER(name) \
	debugfs_create_file(#name, 0444, dir, &stats->name, &counter_fops)
	COUNTER(num_alloc_mrs);
	COUNTER(num_dealloc_mrs);
	COUNTER(num_reg_pages);
	COUNTER(num_dereg_pages);
	COUNTER(num_reg_bytes);
	COUNTER(num_dereg_bytes);
	COUNTER(num_free_callbacks);
#undef COUNTER
}

void peer_debugfs_remove_client(struct peer_client *client)
{
	debugfs_remove(client->dir);
}

/* umems */

static DEFINE_MUTEX(umems_lock);
static LIST_HEAD(umems);

void peer_debugfs_add_umem(struct peer_umem *peer)
{
	guard(mutex)(&umems_lock);
	list_add_tail(&peer->shown, &umems);
}

void peer_debugfs_remove_umem(struct peer_umem *peer)
{
	guard(mutex)(&umems_lock);
	list_del(&peer->shown);
}

static const char * const state_names[] = {
	[PEER_UNMAPPED] = "unmapped",
	[PEER_MAPPED] = "mapped",
	[PEER_INVALIDATED] = "invalidated",
};

static int umems_show(struct seq_file *file, void *unused)
{
	struct peer_umem *peer;

	guard(mutex)(&umems_lock);
	list_for_each_entry(peer, &umems, shown)
		seq_printf(file, "%s %#lx %zu %u %s\n", peer->client->ops->name,
			   peer->umem.address, peer->umem.length,
			   peer->mapped_header.nents,
			   state_names[READ_ONCE(peer->state)]);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(umems);

/* violations: the number, then the last one in words */

static int violations_show(struct seq_file *file, void *unused)
{
	struct peer_violations found;

	peer_violations_read(&found);
	seq_printf(file, "%llu\n", found.count);
	if (found.count)
		seq_printf(file, "%s\n", found.last);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(violations);

/* dma_device */

enum dma_device_kind { DMA_REAL, DMA_NULL, DMA_NONPCI };

static const char * const dma_device_names[] = {
	[DMA_REAL] = "real",
	[DMA_NULL] = "null",
	[DMA_NONPCI] = "nonpci",
};

static enum dma_device_kind dma_device_kind;
static struct platform_device *nonpci;

struct device *peer_dma_device(struct device *dma_device)
{
	if (dma_device)
		peer_watch_mappings(dma_device);
	switch (READ_ONCE(dma_device_kind)) {
	case DMA_NULL:
		return NULL;
	case DMA_NONPCI:
		return &nonpci->dev;
	default:
		return dma_device;
	}
}

static int dma_device_show(struct seq_file *file, void *unused)
{
	seq_printf(file, "%s\n", dma_device_names[dma_device_kind]);
	return 0;
}

static ssize_t dma_device_write(struct file *file, const char __user *buf,
				size_t count, loff_t *pos)
{
	char word[16] = {};
	int kind;

	if (count >= sizeof(word))
		return -EINVAL;
	if (copy_from_user(word, buf, count))
		return -EFAULT;
	kind = sysfs_match_string(dma_device_names, word);
	if (kind < 0)
		return kind;
	WRITE_ONCE(dma_device_kind, kind);
	return count;
}
DEFINE_SHOW_STORE_ATTRIBUTE(dma_device);

/*
 * pci_references: "ADDRESS NUMBER" for each PCI device. A client that forgets
 * one makes the number grow, and the device can never go.
 */
static int pci_references_show(struct seq_file *file, void *unused)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev)	/* which has a reference itself */
		seq_printf(file, "%s %u\n", pci_name(pdev),
			   kref_read(&pdev->dev.kobj.kref) - 1);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(pci_references);

int peer_debugfs_init(void)
{
	/* On a bus of its own, as the auxiliary devices of real NICs are. */
	nonpci = platform_device_register_simple(KBUILD_MODNAME, -1, NULL, 0);
	if (IS_ERR(nonpci))
		return PTR_ERR(nonpci);

	root = debugfs_create_dir(KBUILD_MODNAME, NULL);
	clients = debugfs_create_dir("clients", root);
	debugfs_create_file("umems", 0400, root, NULL, &umems_fops);
	debugfs_create_file("violations", 0444, root, NULL, &violations_fops);
	debugfs_create_file("dma_device", 0600, root, NULL, &dma_device_fops);
	debugfs_create_file("pci_references", 0400, root, NULL,
			    &pci_references_fops);
	points_init(root);
	peer_watch_init(root);
	peer_times_init(root);
	peer_bench_init(root);
	return 0;
}

void peer_debugfs_exit(void)
{
	peer_watch_exit();
	debugfs_remove(root);
	peer_times_exit();
	platform_device_unregister(nonpci);
}
