// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * /sys/kernel/debug/mock_nvidia: what tests read and pull.
 *
 *   counters  "name value" lines: cumulative counters, then gauges
 *   reset     write anything: the cumulative counters start at 0 again
 *   misuse    in words, the last misuse since the reset
 *   fault     "FUNCTION ERRNO [SKIP [TIMES]]": let SKIP calls pass, then fail
 *             TIMES calls (default 1, 0 = for ever); "clear"
 *   override  "FIELD VALUE": what the next tables and mappings claim; "clear".
 *             table_ram 1: physical addresses of RAM, as those of coherent GPUs
 *   reclaim   write anything: persistent pins go that nobody will give back
 *   times     when the client called, and how long it took (times.h)
 *   delay     "FUNCTION MS": sleep at the start of the function, before any
 *             lock is taken; "clear" (points.h)
 *   stop      "FUNCTION": wait there until "clear" (points.h)
 *             Both also for free_callback and free_callback_return (before and
 *             after the client's callback, with the lock of the driver held) and
 *             get_pages_return (callback armed, caller not yet told; a fault
 *             there is returned after that).
 *   gpuN/     bar1_limit_bytes, fragment, fragment_first, free_bytes
 *
 * FUNCTION is a name without nvidia_p2p_.
 */
#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/module.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>

#include "mock.h"

#define POINT_NAMES \
	[OP_GET_PAGES] = "get_pages", \
	[OP_GET_PAGES_PERSISTENT] = "get_pages_persistent", \
	[OP_PUT_PAGES] = "put_pages", \
	[OP_PUT_PAGES_PERSISTENT] = "put_pages_persistent", \
	[OP_DMA_MAP_PAGES] = "dma_map_pages", \
	[OP_DMA_UNMAP_PAGES] = "dma_unmap_pages", \
	[OP_FREE_PAGE_TABLE] = "free_page_table", \
	[OP_FREE_DMA_MAPPING] = "free_dma_mapping", \
	[OP_FREE_CALLBACK] = "free_callback", \
	[OP_FREE_CALLBACK_RETURN] = "free_callback_return", \
	[OP_GET_PAGES_RETURN] = "get_pages_return",
#include "../points.h"

#define TIME_NAMES POINT_NAMES
#include "../times.h"

/* Those of the calls are named as the calls. */
static const char * const counter_names[NR_COUNTERS] = {
	[CNT_FREE_CALLBACKS] = "free_callbacks",
	[CNT_CPU_FAULTS] = "cpu_faults",
	[CNT_PUT_PAGES_FOREIGN] = "put_pages_foreign",
	[CNT_PUT_PAGES_UNKNOWN] = "put_pages_unknown",
	[CNT_PUT_PAGES_MAPPED] = "put_pages_mapped",
	[CNT_FAILED_CALLS] = "failed_calls",
	[CNT_MISUSE] = "misuse",
};

static const char * const gauge_names[NR_GAUGES] = {
	[GAUGE_ALLOCATIONS] = "live_allocations",
	[GAUGE_PAGE_TABLES] = "live_page_tables",
	[GAUGE_PERSISTENT_TABLES] = "live_persistent_tables",
	[GAUGE_DMA_MAPPINGS] = "live_dma_mappings",
	[GAUGE_PINNED_BYTES] = "pinned_bytes",
	[GAUGE_BAR1_USED_BYTES] = "bar1_used_bytes",
};

static const char * const override_names[NR_OVERRIDES] = {
	[OVERRIDE_TABLE_VERSION] = "table_version",
	[OVERRIDE_TABLE_PAGE_SIZE] = "table_page_size",
	[OVERRIDE_TABLE_ENTRIES] = "table_entries",
	[OVERRIDE_TABLE_FLAGS] = "table_flags",
	[OVERRIDE_TABLE_RAM] = "table_ram",
	[OVERRIDE_MAPPING_VERSION] = "mapping_version",
	[OVERRIDE_MAPPING_PAGE_SIZE] = "mapping_page_size",
	[OVERRIDE_MAPPING_ENTRIES] = "mapping_entries",
};

static atomic64_t counters[NR_COUNTERS];
static atomic64_t gauges[NR_GAUGES];
static const char *last_misuse;

static struct fault {
	int error;		/* 0: not armed */
	unsigned int skip;
	unsigned int times;
	bool forever;
} faults[NR_OPS];
static DEFINE_SPINLOCK(faults_lock);

static s64 overrides[NR_OVERRIDES];	/* -1: tell the truth */

static struct dentry *root;

void mock_count(enum mock_counter counter)
{
	atomic64_inc(&counters[counter]);
}

void mock_gauge_add(enum mock_gauge gauge, s64 n)
{
	atomic64_add(n, &gauges[gauge]);
}

void mock_misuse(const char *what)
{
	WRITE_ONCE(last_misuse, what);
	mock_count(CNT_MISUSE);
}

u32 mock_override(enum mock_override what, u32 truth)
{
	s64 value = READ_ONCE(overrides[what]);

	return value < 0 ? truth : value;
}

void mock_pass(enum mock_op op)
{
	point_pass(op);
}

/* The error to return there, or 0. */
int mock_fault(enum mock_op op)
{
	struct fault *fault = &faults[op];
	int error = 0;

	spin_lock(&faults_lock);
	if (fault->error && fault->skip) {
		fault->skip--;
	} else if (fault->error) {
		error = fault->error;
		if (!fault->forever && !--fault->times)
			fault->error = 0;
	}
	spin_unlock(&faults_lock);
	return error;
}

/* Start of a call of the client: 0, or the error to return at once. */
int mock_enter(enum mock_op op)
{
	time_enter(op, 0);
	mock_count((enum mock_counter)op);
	mock_pass(op);
	return mock_fault(op);
}

/* End of the call, which is the last one that this thread began. */
int mock_leave(int ret)
{
	if (ret)
		mock_count(CNT_FAILED_CALLS);
	time_leave(0, 1);
	return ret;
}

void mock_call_back(void (*free_callback)(void *data), void *data)
{
	time_leave(OP_FREE_CALLBACK, 0);
	free_callback(data);
	time_enter(OP_FREE_CALLBACK, 1);
}

static int counters_show(struct seq_file *m, void *unused)
{
	int i;

	for (i = 0; i < NR_COUNTERS; i++)
		seq_printf(m, "%s %lld\n", counter_names[i] ?: point_names[i],
			   atomic64_read(&counters[i]));
	for (i = 0; i < NR_GAUGES; i++)
		seq_printf(m, "%s %lld\n", gauge_names[i],
			   atomic64_read(&gauges[i]));
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(counters);

static int misuse_show(struct seq_file *m, void *unused)
{
	const char *what = READ_ONCE(last_misuse);

	if (what)
		seq_printf(m, "%s\n", what);
	return 0;
}
DEFINE_SHOW_ATTRIBUTE(misuse);

static ssize_t reset_write(struct file *file, const char __user *ubuf,
			   size_t count, loff_t *pos)
{
	int i;

	for (i = 0; i < NR_COUNTERS; i++)
		atomic64_set(&counters[i], 0);
	WRITE_ONCE(last_misuse, NULL);
	return count;
}

static const struct file_operations reset_fops = {
	.owner = THIS_MODULE,
	.write = reset_write,
};

static ssize_t reclaim_write(struct file *file, const char __user *ubuf,
			     size_t count, loff_t *pos)
{
	mock_p2p_reclaim();
	return count;
}

static const struct file_operations reclaim_fops = {
	.owner = THIS_MODULE,
	.write = reclaim_write,
};

static int fault_show(struct seq_file *m, void *unused)
{
	int i;

	spin_lock(&faults_lock);
	for (i = 0; i < NR_OPS; i++)
		if (faults[i].error)
			seq_printf(m, "%s %d %u %u\n", point_names[i],
				   faults[i].error, faults[i].skip,
				   faults[i].forever ? 0 : faults[i].times);
	spin_unlock(&faults_lock);
	return 0;
}

static int fault_command(const char *text)
{
	struct fault fault = { .times = 1 };
	char name[32];
	int i;

	if (!strcmp(text, "clear")) {
		spin_lock(&faults_lock);
		memset(faults, 0, sizeof(faults));
		spin_unlock(&faults_lock);
		return 0;
	}
	if (sscanf(text, "%31s %i %u %u", name, &fault.error, &fault.skip,
		   &fault.times) < 2 || !fault.error)
		return -EINVAL;
	i = match_string(point_names, NR_OPS, name);
	if (i < 0)
		return i;
	fault.forever = !fault.times;
	spin_lock(&faults_lock);
	faults[i] = fault;
	spin_unlock(&faults_lock);
	return 0;
}

static int override_show(struct seq_file *m, void *unused)
{
	int i;

	for (i = 0; i < NR_OVERRIDES; i++)
		if (overrides[i] >= 0)
			seq_printf(m, "%s %#llx\n", override_names[i],
				   overrides[i]);
	return 0;
}

static int override_command(const char *text)
{
	char name[32];
	int i, value;

	if (!strcmp(text, "clear")) {
		for (i = 0; i < NR_OVERRIDES; i++)
			WRITE_ONCE(overrides[i], -1);
		return 0;
	}
	if (sscanf(text, "%31s %i", name, &value) != 2)
		return -EINVAL;
	i = match_string(override_names, NR_OVERRIDES, name);
	if (i < 0)
		return i;
	WRITE_ONCE(overrides[i], (u32)value);
	return 0;
}

#define DEFINE_COMMAND(name)						\
static ssize_t name##_write(struct file *file, const char __user *ubuf,	\
			    size_t count, loff_t *pos)			\
{									\
	return points_command(ubuf, count, name##_command);		\
}									\
DEFINE_SHOW_STORE_ATTRIBUTE(name)

DEFINE_COMMAND(fault);
DEFINE_COMMAND(override);

static int free_bytes_get(void *data, u64 *value)
{
	int ret = mock_rm_lock();

	if (ret)
		return ret;
	*value = mock_gpu_free_bytes(data);
	mock_rm_unlock();
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(free_bytes_fops, free_bytes_get, NULL, "%llu\n");

static int bar1_limit_get(void *data, u64 *value)
{
	struct mock_gpu *gpu = data;

	*value = READ_ONCE(gpu->bar1_limit);
	return 0;
}

static int bar1_limit_set(void *data, u64 value)
{
	struct mock_gpu *gpu = data;

	WRITE_ONCE(gpu->bar1_limit, value);
	return 0;
}
DEFINE_DEBUGFS_ATTRIBUTE(bar1_limit_fops, bar1_limit_get, bar1_limit_set, "%llu\n");

void mock_control_add_gpu(struct mock_gpu *gpu)
{
	char name[16];

	snprintf(name, sizeof(name), "gpu%u", gpu->index);
	gpu->debugfs = debugfs_create_dir(name, root);
	debugfs_create_file("bar1_limit_bytes", 0600, gpu->debugfs, gpu,
			    &bar1_limit_fops);
	debugfs_create_file("free_bytes", 0400, gpu->debugfs, gpu,
			    &free_bytes_fops);
	debugfs_create_u32("fragment", 0600, gpu->debugfs, &gpu->fragment);
	debugfs_create_u32("fragment_first", 0600, gpu->debugfs, &gpu->fragment_first);
}

void mock_control_remove_gpu(struct mock_gpu *gpu)
{
	debugfs_remove(gpu->debugfs);
}

void mock_control_init(void)
{
	override_command("clear");
	root = debugfs_create_dir("mock_nvidia", NULL);	/* whatever the module is called */
	debugfs_create_file("counters", 0400, root, NULL, &counters_fops);
	debugfs_create_file("reset", 0200, root, NULL, &reset_fops);
	debugfs_create_file("reclaim", 0200, root, NULL, &reclaim_fops);
	debugfs_create_file("misuse", 0400, root, NULL, &misuse_fops);
	debugfs_create_file("fault", 0600, root, NULL, &fault_fops);
	debugfs_create_file("override", 0600, root, NULL, &override_fops);
	points_init(root);
	times_init(root);
}

void mock_control_exit(void)
{
	debugfs_remove(root);
	times_exit();
}
