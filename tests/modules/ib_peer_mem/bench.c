// SPDX-License-Identifier: GPL-2.0
/*
 * Registrations without an RDMA device, whose driver would take more time than the
 * client does. The file "bench" in debugfs takes one command at each write:
 *
 *   device DOMAIN:BUS:SLOT.FUNCTION    map for this PCI device from here on
 *   register ADDRESS LENGTH COUNT      make so many registrations, and keep them
 *   end COUNT                          end so many, the youngest first
 *   cycle ADDRESS LENGTH COUNT         register and end so many, one by one
 *
 * What is kept belongs to the open file, and ends with it. Reading gives
 * "registrations N", and of their scatterlists "entries N" and "bytes N".
 */
#include <linux/debugfs.h>
#include <linux/dma-mapping.h>
#include <linux/list.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/sched/signal.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "core.h"

struct bench {
	struct mutex lock;		/* protects what follows */
	struct pci_dev *device;
	struct list_head kept;		/* the youngest first */
};

struct kept {
	struct list_head entry;
	struct peer_client *client;
	void *context;
	struct sg_table table;
};

static int bench_map(struct bench *bench, struct kept *kept,
		     unsigned long addr, size_t size)
{
	const struct peer_memory_client *ops = kept->client->ops;
	int err;

	err = peer_call_get_pages(ops, addr, size, false, kept->context,
				  PEER_NO_ID);
	if (err)
		return err;
	err = peer_call_dma_map(ops, &kept->table, kept->context,
				&bench->device->dev);
	if (err)
		peer_call_put_pages(ops, &kept->table, kept->context);
	return err;
}

static int bench_register(struct bench *bench, unsigned long addr, size_t size)
{
	struct kept *kept = kzalloc(sizeof(*kept), GFP_KERNEL);
	int err = -EFAULT;

	if (!kept)
		return -ENOMEM;
	kept->client = peer_client_claim(addr, size, IB_PEER_MEM_INVAL_SUPP,
					 &kept->context);
	if (!kept->client)
		goto free;
	err = bench_map(bench, kept, addr, size);
	if (err)
		goto release;
	list_add(&kept->entry, &bench->kept);
	return 0;

release:
	peer_call_release(kept->client->ops, kept->context);
	peer_client_put(kept->client);
free:
	kfree(kept);
	return err;
}

static int bench_end(struct bench *bench)
{
	struct kept *kept = list_first_entry_or_null(&bench->kept, struct kept,
						     entry);
	const struct peer_memory_client *ops;

	if (!kept)
		return -ENOENT;
	ops = kept->client->ops;
	peer_call_dma_unmap(ops, &kept->table, kept->context,
			    &bench->device->dev);
	peer_call_put_pages(ops, &kept->table, kept->context);
	peer_call_release(ops, kept->context);
	peer_client_put(kept->client);
	list_del(&kept->entry);
	kfree(kept);
	return 0;
}

static int bench_device(struct bench *bench, const char *text)
{
	unsigned int domain, bus, slot, function;
	struct pci_dev *device;

	if (sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function) != 4)
		return -EINVAL;
	device = pci_get_domain_bus_and_slot(domain, bus,
					     PCI_DEVFN(slot, function));
	if (!device)
		return -ENODEV;
	pci_dev_put(bench->device);
	bench->device = device;
	/* As mlx5_core does (core/main.c, OFED 25.10). */
	dma_set_max_seg_size(&device->dev, SZ_2G);
	return 0;
}

static int bench_command(struct bench *bench, const char *text)
{
	unsigned long addr = 0, count;
	bool begin = true, end = true;
	size_t size = 0;
	int err = 0;

	if (!strncmp(text, "device ", 7))
		return bench_device(bench, text + 7);
	if (sscanf(text, "end %lu", &count) == 1)
		begin = false;
	else if (sscanf(text, "register %li %zu %lu", &addr, &size, &count) == 3)
		end = false;
	else if (sscanf(text, "cycle %li %zu %lu", &addr, &size, &count) != 3)
		return -EINVAL;
	if (begin && !bench->device)
		return -ENODEV;
	while (count-- && !err && !fatal_signal_pending(current)) {
		if (begin)
			err = bench_register(bench, addr, size);
		if (end && !err)
			err = bench_end(bench);
		cond_resched();
	}
	return err;
}

static ssize_t bench_write(struct file *file, const char __user *ubuf,
			   size_t count, loff_t *pos)
{
	struct seq_file *seq = file->private_data;
	struct bench *bench = seq->private;
	char text[96] = {};
	int err;

	if (count >= sizeof(text))
		return -EINVAL;
	if (copy_from_user(text, ubuf, count))
		return -EFAULT;
	guard(mutex)(&bench->lock);
	err = bench_command(bench, text);
	return err ?: count;
}

/* As sg_alloc_table() gets it: a page each for 127 and a link, the rest from slab. */
static size_t table_bytes(unsigned int entries)
{
	size_t bytes = 0;

	for (; entries > SG_MAX_SINGLE_ALLOC; entries -= SG_MAX_SINGLE_ALLOC - 1)
		bytes += PAGE_SIZE;
	return bytes + kmalloc_size_roundup(entries * sizeof(struct scatterlist));
}

static int bench_show(struct seq_file *m, void *unused)
{
	struct bench *bench = m->private;
	unsigned long count = 0, entries = 0, bytes = 0;
	struct kept *kept;

	guard(mutex)(&bench->lock);
	list_for_each_entry(kept, &bench->kept, entry) {
		count++;
		entries += kept->table.orig_nents;
		bytes += table_bytes(kept->table.orig_nents);
	}
	seq_printf(m, "registrations %lu\nentries %lu\nbytes %lu\n", count,
		   entries, bytes);
	return 0;
}

static int bench_open(struct inode *inode, struct file *file)
{
	struct bench *bench = kzalloc(sizeof(*bench), GFP_KERNEL);
	int err;

	if (!bench)
		return -ENOMEM;
	mutex_init(&bench->lock);
	INIT_LIST_HEAD(&bench->kept);
	err = single_open(file, bench_show, bench);
	if (err)
		kfree(bench);
	return err;
}

static int bench_release(struct inode *inode, struct file *file)
{
	struct seq_file *seq = file->private_data;
	struct bench *bench = seq->private;

	while (!bench_end(bench))
		cond_resched();
	pci_dev_put(bench->device);
	mutex_destroy(&bench->lock);
	kfree(bench);
	return single_release(inode, file);
}

static const struct file_operations bench_fops = {
	.owner = THIS_MODULE,
	.open = bench_open,
	.read = seq_read,
	.write = bench_write,
	.llseek = seq_lseek,
	.release = bench_release,
};

void peer_bench_init(struct dentry *dir)
{
	debugfs_create_file("bench", 0600, dir, NULL, &bench_fops);
}
