// SPDX-License-Identifier: GPL-2.0
/*
 * Does one thing wrong for every checker of the instrumented kernel: what is
 * written to the parameter "fault" names it.
 */
#include <linux/delay.h>
#include <linux/dma-mapping.h>
#include <linux/list.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/pci.h>
#include <linux/rcupdate.h>
#include <linux/refcount.h>
#include <linux/slab.h>
#include <linux/timer.h>
#include <linux/vmalloc.h>

static DEFINE_MUTEX(first);
static DEFINE_MUTEX(second);
static DEFINE_SPINLOCK(spinlock);
static int __rcu *protected;

static int use_after_free(void)
{
	char *p = kmalloc(64, GFP_KERNEL);

	kfree(p);
	OPTIMIZER_HIDE_VAR(p);
	return READ_ONCE(p[8]) & 0;
}

static int out_of_bounds(void)
{
	char *p = vmalloc(PAGE_SIZE - 8);
	int ret;

	OPTIMIZER_HIDE_VAR(p);
	ret = READ_ONCE(p[PAGE_SIZE - 8]) & 0;
	vfree(p);
	return ret;
}

static void lock_both(struct mutex *outer, struct mutex *inner)
{
	mutex_lock(outer);
	mutex_lock(inner);
	mutex_unlock(inner);
	mutex_unlock(outer);
}

static int lock_inversion(void)
{
	lock_both(&first, &second);
	lock_both(&second, &first);
	return 0;
}

static int rcu_unlocked(void)
{
	return rcu_dereference(protected) != NULL;
}

static int sleep_atomic(void)
{
	spin_lock(&spinlock);
	kfree(kmalloc(64, GFP_KERNEL));
	spin_unlock(&spinlock);
	return 0;
}

/* Some: a pointer may be left in a stack, and counts as a reference. */
static int leak(void)
{
	for (int i = 0; i < 8; i++) {
		void *p = kmalloc(192, GFP_KERNEL);

		OPTIMIZER_HIDE_VAR(p);
	}
	return 0;
}

static int dma_unmap(void)
{
	struct pci_dev *pdev = pci_get_device(PCI_ANY_ID, PCI_ANY_ID, NULL);

	if (!pdev)
		return -ENODEV;
	dma_unmap_single(&pdev->dev, 0xfee1000, 64, DMA_TO_DEVICE);
	pci_dev_put(pdev);
	return 0;
}

static void never(struct timer_list *timer)
{
}

static int free_active(void)
{
	struct timer_list *timer = kmalloc_obj(*timer);

	if (!timer)
		return -ENOMEM;
	timer_setup(timer, never, 0);
	mod_timer(timer, jiffies + 100 * HZ);
	kfree(timer);
	return 0;
}

static int list_corruption(void)
{
	LIST_HEAD(list);
	struct list_head entry;

	list_add(&entry, &list);
	entry.next = &entry;
	list_del(&entry);
	return 0;
}

static int refcount_underflow(void)
{
	refcount_t count = REFCOUNT_INIT(0);

	return refcount_dec_and_test(&count);
}

/* Longer than two periods of the detector, which looks once in ten seconds. */
static int hang(void)
{
	msleep(25000);
	return 0;
}

/* Fails if an allocation of it is made to. */
static int allocate(void)
{
	void *p = kmalloc(64, GFP_KERNEL);

	OPTIMIZER_HIDE_VAR(p);
	if (!p)
		return -ENOMEM;
	kfree(p);
	return 0;
}

#define FAULT(name) { #name, name }
static const struct {
	const char *name;
	int (*commit)(void);
} faults[] = {
	FAULT(use_after_free),
	FAULT(out_of_bounds),
	FAULT(lock_inversion),
	FAULT(rcu_unlocked),
	FAULT(sleep_atomic),
	FAULT(leak),
	FAULT(dma_unmap),
	FAULT(free_active),
	FAULT(list_corruption),
	FAULT(refcount_underflow),
	FAULT(hang),
	FAULT(allocate),
};

static int commit(const char *value, const struct kernel_param *kp)
{
	for (int i = 0; i < ARRAY_SIZE(faults); i++)
		if (sysfs_streq(value, faults[i].name))
			return faults[i].commit();
	return -EINVAL;
}

static const struct kernel_param_ops ops = { .set = commit };
module_param_cb(fault, &ops, NULL, 0200);
MODULE_PARM_DESC(fault, "what to do wrong");

MODULE_DESCRIPTION("One fault for every checker of the instrumented kernel");
MODULE_LICENSE("GPL");
