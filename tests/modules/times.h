/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Times: when control left the module under test, and when it came back. The file
 * "times" in debugfs starts anew with "1" and stops with "0"; reading it gives
 * "TICKS THREAD CALL begin" and "TICKS THREAD CALL end" a line.
 *
 * The clock is the CPU's, read without a call: where QEMU counts instructions
 * (-icount), its ticks are instructions. What the bookkeeping costs is on our
 * side of the clock, not on that of the module under test.
 *
 * A module defines TIME_NAMES and its own enum, and includes this once.
 */
#ifndef TEST_TIMES_H
#define TEST_TIMES_H

#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/kstrtox.h>
#include <linux/sched.h>
#include <linux/seq_file.h>
#include <linux/vmalloc.h>
#include <asm/msr.h>

#define TIMES_ROOM	(1 << 17)

struct time_mark {
	u64 ticks;
	pid_t thread;
	u16 call;
	u16 end;
};

static const char * const time_names[] = { TIME_NAMES };
static struct time_mark *times;
static atomic_t times_used = ATOMIC_INIT(TIMES_ROOM);	/* full: off */

static struct time_mark *time_mark(u16 call, u16 end)
{
	unsigned int i;

	if (atomic_read(&times_used) >= TIMES_ROOM)
		return NULL;
	i = atomic_fetch_inc(&times_used);
	if (i >= TIMES_ROOM)
		return NULL;
	times[i].thread = current->pid;
	times[i].call = call;
	times[i].end = end;
	return &times[i];
}

/* The next instructions are those of the module under test. */
static void time_leave(u16 call, u16 end)
{
	struct time_mark *mark = time_mark(call, end);

	if (mark)
		mark->ticks = rdtsc();
}

/* The last ones were. */
static void time_enter(u16 call, u16 end)
{
	u64 ticks = rdtsc();
	struct time_mark *mark = time_mark(call, end);

	if (mark)
		mark->ticks = ticks;
}

static int times_show(struct seq_file *m, void *unused)
{
	int i, used = atomic_read(&times_used);

	if (!times)
		return 0;
	/* Stopped, as it must be, it is beyond the room by what was used. */
	used = used >= TIMES_ROOM ? used - TIMES_ROOM : 0;
	for (i = 0; i < min(used, TIMES_ROOM); i++)
		seq_printf(m, "%llu %d %s %s\n", times[i].ticks,
			   times[i].thread, time_names[times[i].call],
			   times[i].end ? "end" : "begin");
	return 0;
}

static ssize_t times_write(struct file *file, const char __user *ubuf,
			   size_t count, loff_t *pos)
{
	bool on;
	int ret = kstrtobool_from_user(ubuf, count, &on);

	if (ret)
		return ret;
	if (on) {
		if (!times)
			times = vcalloc(TIMES_ROOM, sizeof(*times));
		if (!times)
			return -ENOMEM;
		atomic_set(&times_used, 0);
	} else if (atomic_read(&times_used) < TIMES_ROOM) {
		atomic_add(TIMES_ROOM, &times_used);
	} else {
		return -ENOSPC;		/* some are missing */
	}
	return count;
}
DEFINE_SHOW_STORE_ATTRIBUTE(times);

static void times_init(struct dentry *dir)
{
	debugfs_create_file("times", 0600, dir, NULL, &times_fops);
}

static void times_exit(void)
{
	vfree(times);
}

#endif /* TEST_TIMES_H */
