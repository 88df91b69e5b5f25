/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * Points: places in the equipment where a test stops or slows down whoever gets
 * there, so that a race is not a matter of luck.
 *
 *   delay  "POINT MS": sleep there; "clear"
 *   stop   "POINT": wait there until "clear", or POINT_LIMIT seconds at most, so
 *          that a test that died leaves nobody behind. Reading shows each such
 *          point, and how many wait there: "POINT WAITING" a line.
 *
 * A module defines POINT_NAMES and its own enum, and includes this once.
 */
#ifndef TEST_POINTS_H
#define TEST_POINTS_H

#include <linux/atomic.h>
#include <linux/debugfs.h>
#include <linux/delay.h>
#include <linux/seq_file.h>
#include <linux/slab.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/wait.h>

#define POINT_LIMIT	120

struct point {
	unsigned int delay_ms;
	bool closed;
	atomic_t waiting;
};

static const char * const point_names[] = { POINT_NAMES };
static struct point points[ARRAY_SIZE(point_names)];
static DECLARE_WAIT_QUEUE_HEAD(points_opened);

static void point_pass(unsigned int i)
{
	struct point *point = &points[i];
	unsigned int ms = READ_ONCE(point->delay_ms);

	if (ms)
		msleep(ms);
	if (!READ_ONCE(point->closed))
		return;
	atomic_inc(&point->waiting);
	wait_event_timeout(points_opened, !READ_ONCE(point->closed),
			   POINT_LIMIT * HZ);
	atomic_dec(&point->waiting);
}

static int points_command(const char __user *ubuf, size_t count,
			  int (*command)(const char *text))
{
	char *text;
	int ret;

	if (count > 128)
		return -EINVAL;
	text = memdup_user_nul(ubuf, count);
	if (IS_ERR(text))
		return PTR_ERR(text);
	ret = command(strim(text));
	kfree(text);
	return ret ?: count;
}

static int point_delay_show(struct seq_file *m, void *unused)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(points); i++)
		if (points[i].delay_ms)
			seq_printf(m, "%s %u\n", point_names[i],
				   points[i].delay_ms);
	return 0;
}

static int point_delay_command(const char *text)
{
	unsigned int ms;
	char name[32];
	int i;

	if (!strcmp(text, "clear")) {
		for (i = 0; i < ARRAY_SIZE(points); i++)
			WRITE_ONCE(points[i].delay_ms, 0);
		return 0;
	}
	if (sscanf(text, "%31s %u", name, &ms) != 2)
		return -EINVAL;
	i = match_string(point_names, ARRAY_SIZE(points), name);
	if (i < 0)
		return i;
	WRITE_ONCE(points[i].delay_ms, ms);
	return 0;
}

static ssize_t point_delay_write(struct file *file, const char __user *ubuf,
				 size_t count, loff_t *pos)
{
	return points_command(ubuf, count, point_delay_command);
}
DEFINE_SHOW_STORE_ATTRIBUTE(point_delay);

static int point_stop_show(struct seq_file *m, void *unused)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(points); i++)
		if (READ_ONCE(points[i].closed))
			seq_printf(m, "%s %d\n", point_names[i],
				   atomic_read(&points[i].waiting));
	return 0;
}

static int point_stop_command(const char *text)
{
	int i;

	if (!strcmp(text, "clear")) {
		for (i = 0; i < ARRAY_SIZE(points); i++)
			WRITE_ONCE(points[i].closed, false);
		wake_up_all(&points_opened);
		return 0;
	}
	i = match_string(point_names, ARRAY_SIZE(points), text);
	if (i < 0)
		return i;
	WRITE_ONCE(points[i].closed, true);
	return 0;
}

static ssize_t point_stop_write(struct file *file, const char __user *ubuf,
				size_t count, loff_t *pos)
{
	return points_command(ubuf, count, point_stop_command);
}
DEFINE_SHOW_STORE_ATTRIBUTE(point_stop);

static void points_init(struct dentry *dir)
{
	debugfs_create_file("delay", 0600, dir, NULL, &point_delay_fops);
	debugfs_create_file("stop", 0600, dir, NULL, &point_stop_fops);
}

#endif /* TEST_POINTS_H */
