/* SPDX-License-Identifier: (GPL-2.0 WITH Linux-syscall-note) OR MIT */
/*
 * What user space sees of a mock GPU: /dev/mock_nvidia0, 1, ...
 *
 * mmap(MAP_SHARED) is cudaMalloc: each call makes a new allocation of its
 * length rounded up to 64 KiB, at a virtual address aligned to 64 KiB. The
 * allocation lives on the mapping; the file descriptor may be closed at once.
 * munmap or exit is cudaFree. The owner is the process that called mmap. The
 * memory is not cleared.
 */
#ifndef _MOCK_NVIDIA_UAPI_H
#define _MOCK_NVIDIA_UAPI_H

#include <linux/ioctl.h>
#include <linux/types.h>

#define MOCK_NVIDIA_PAGE_SIZE	65536

/**
 * struct mock_nvidia_info - one GPU
 * @gpu: its number, as in the device name
 * @page_size: MOCK_NVIDIA_PAGE_SIZE
 * @bar_bytes: size of the memory, all of it visible in the BAR
 * @free_bytes: not allocated and not kept by a pin
 * @pci: PCI address, NUL-terminated
 */
struct mock_nvidia_info {
	__u32	gpu;
	__u32	page_size;
	__u64	bar_bytes;
	__u64	free_bytes;
	char	pci[16];
};

/**
 * struct mock_nvidia_free - cudaFree without munmap
 * @va: start of an allocation of the caller
 *
 * The mapping stays, touching it raises SIGBUS.
 */
struct mock_nvidia_free {
	__u64	va;
};

/**
 * struct mock_nvidia_segment - a run of GPU memory
 * @bar_offset: offset in the BAR, and so in the file that the host keeps it in
 * @len: in bytes
 */
struct mock_nvidia_segment {
	__u64	bar_offset;
	__u64	len;
};

/**
 * struct mock_nvidia_segments - where an allocation lies
 * @va: any address in an allocation of the caller
 * @capacity: elements that fit at @segments_ptr
 * @count: out: runs that the allocation has, which may be more than @capacity
 * @segments_ptr: struct mock_nvidia_segment[], in order of virtual address
 */
struct mock_nvidia_segments {
	__u64	va;
	__u64	capacity;
	__u64	count;
	__u64	segments_ptr;
};

#define MOCK_NVIDIA_IOC_INFO		_IOR('M', 1, struct mock_nvidia_info)
#define MOCK_NVIDIA_IOC_FREE		_IOW('M', 2, struct mock_nvidia_free)
#define MOCK_NVIDIA_IOC_SEGMENTS	_IOWR('M', 3, struct mock_nvidia_segments)

#endif /* _MOCK_NVIDIA_UAPI_H */
