// SPDX-License-Identifier: GPL-2.0
/*
 * One call with its nth allocation failing (/proc/thread-self/fail-nth). In C, so
 * that no allocation of an interpreter is counted.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "nic.h"

static int open_fail_nth(void)
{
	return open("/proc/thread-self/fail-nth", O_RDWR | O_CLOEXEC);
}

static void arm(int fd, unsigned int nth)
{
	char text[16];
	int length = snprintf(text, sizeof(text), "%u", nth);

	if (pwrite(fd, text, length, 0) != length)
		abort();
}

/* 0 is left when the nth allocation was reached. */
static int disarm(int fd)
{
	char text[16] = "";

	if (pread(fd, text, sizeof(text) - 1, 0) <= 0)
		abort();
	arm(fd, 0);
	close(fd);
	return !atoi(text);
}

/* As nic_register(). *injected: whether there were as many allocations as nth. */
struct ibv_mr *nic_register_failing(struct nic *nic, unsigned long va, size_t length,
				    unsigned int nth, int *injected)
{
	int fd = open_fail_nth(), error;
	struct ibv_mr *mr;

	arm(fd, nth);
	mr = nic_register(nic, va, length);
	error = errno;
	*injected = disarm(fd);
	errno = error;
	return mr;
}

int nic_deregister_failing(struct ibv_mr *mr, unsigned int nth, int *injected)
{
	int fd = open_fail_nth(), error;

	arm(fd, nth);
	error = nic_deregister(mr);
	*injected = disarm(fd);
	return error;
}

/* As finit_module(2), but returns an errno. */
int load_failing(int module, const char *parameters, unsigned int nth, int *injected)
{
	int fd = open_fail_nth(), error;

	arm(fd, nth);
	error = syscall(SYS_finit_module, module, parameters, 0) ? errno : 0;
	*injected = disarm(fd);
	return error;
}
