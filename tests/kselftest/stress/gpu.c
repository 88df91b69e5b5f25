// SPDX-License-Identifier: GPL-2.0
#include <fcntl.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include "../../modules/mock_nvidia/mock_nvidia_uapi.h"
#include "gpu.h"

int gpu_open(unsigned int number)
{
	char path[32];

	snprintf(path, sizeof(path), "/dev/mock_nvidia%u", number);
	return open(path, O_RDWR | O_CLOEXEC);
}

int gpu_alloc(int gpu, unsigned long va, size_t length)
{
	void *at = mmap((void *)va, length, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, gpu, 0);

	return at == MAP_FAILED ? -1 : 0;
}

int gpu_free(int gpu, unsigned long va)
{
	struct mock_nvidia_free request = { .va = va };

	return ioctl(gpu, MOCK_NVIDIA_IOC_FREE, &request);
}

int gpu_reserve(unsigned long va, size_t length)
{
	void *at = mmap((void *)va, length, PROT_NONE,
			MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);

	return at == MAP_FAILED ? -1 : 0;
}
