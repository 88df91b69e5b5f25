/* SPDX-License-Identifier: GPL-2.0 OR MIT */
/*
 * mock_nvidia: a GPU driver without a GPU.
 *
 * The memory of QEMU's ivshmem-plain plays video memory. What NVIDIA's open
 * driver promises to peer-memory clients, and what it punishes, is imitated;
 * each rule names its source where it is implemented.
 *
 *   gpu.c      PCI device, struct pages of the BAR, 64 KiB frames, device node
 *   memory.c   allocations: cudaMalloc, cudaFree, who keeps memory alive
 *   vma.c      what user space sees: mmap, faults, ioctls
 *   p2p.c      nvidia_p2p_*
 *   control.c  debugfs: counters, fault injection, overrides, delays
 *
 * Locks, outermost first:
 *   mmap_lock of an address space (munmap and exit free memory under it)
 *   rm lock: what NVIDIA calls the RM API lock
 *   table lock of one page table; map lock of one allocation
 * Nothing takes mmap_lock, so neither touches user memory, under the rm lock.
 */
#ifndef _MOCK_NVIDIA_MOCK_H
#define _MOCK_NVIDIA_MOCK_H

#include <linux/list.h>
#include <linux/miscdevice.h>
#include <linux/mutex.h>
#include <linux/sizes.h>
#include <linux/types.h>
#include <linux/wait.h>
#include <nv-p2p.h>

#define MOCK_FRAME	SZ_64K		/* one GPU page */
#define MOCK_MAX_GPUS	8

struct dentry;
struct pci_dev;
struct vm_area_struct;

/**
 * struct mock_gpu - one ivshmem device
 * @pdev: NULL while the slot is free
 * @gone: being removed, gives no memory any more
 * @index: number in the device name
 * @vram: kernel address of the BAR
 * @bar_start: physical address of the BAR
 * @bar_bytes: size of the BAR
 * @uuid: what page tables point to
 * @nr_frames: frames in the BAR, and those that have no more than an address
 * @used: bitmap of frames that are allocated or kept by a pin
 * @bar1_refs: pins of each frame
 * @bar1_used: bytes that pins hold in BAR1
 * @bar1_limit: the most that pins may hold
 * @fragment: frames in a run of new allocations, 0 for one run
 * @fragment_first: of so many frames of each, the rest is one run; 0 for all
 * @live: allocations whose memory is not given back
 * @idle: woken when @live gets 0
 * @misc: the device node
 * @name: of @misc
 * @debugfs: directory
 *
 * The rm lock protects all that changes.
 */
struct mock_gpu {
	struct pci_dev *pdev;
	bool gone;
	unsigned int index;
	void *vram;
	phys_addr_t bar_start;
	u64 bar_bytes;
	u8 uuid[NVIDIA_P2P_GPU_UUID_LEN + 1];
	unsigned int nr_frames;
	unsigned long *used;
	u32 *bar1_refs;
	u64 bar1_used;
	u64 bar1_limit;
	u32 fragment;
	u32 fragment_first;
	unsigned int live;
	wait_queue_head_t idle;
	struct miscdevice misc;
	char name[16];
	struct dentry *debugfs;
};

int mock_frames_alloc(struct mock_gpu *gpu, u32 *frames, unsigned int nr);
void mock_frames_free(struct mock_gpu *gpu, const u32 *frames, unsigned int nr);
u64 mock_gpu_free_bytes(struct mock_gpu *gpu);

/**
 * struct mock_alloc - a piece of GPU memory
 * @owned: link in the list of allocations that can be found by address
 * @gpu: where it is
 * @tgid: the process that it belongs to
 * @va: its virtual address there
 * @nr: size in frames
 * @frames: numbers of the frames, in order of virtual address
 * @touched: bitmap of the 4 KiB pages that a CPU has touched
 * @map_lock: taken by page faults
 * @freed: cudaFree was called; only pins keep the memory
 * @vmas: mappings, more than one only inside mremap
 * @pins: page tables
 * @tables: non-persistent page tables whose callback is armed
 * @mapping: address space of the device node, to find CPU mappings in
 * @pgoff: where in @mapping; differs from allocation to allocation
 *
 * The rm lock protects all that changes.
 */
struct mock_alloc {
	struct list_head owned;
	struct mock_gpu *gpu;
	pid_t tgid;
	u64 va;
	unsigned int nr;
	u32 *frames;
	unsigned long *touched;
	struct mutex map_lock;		/* page faults against @freed */
	bool freed;
	unsigned int vmas;
	unsigned int pins;
	struct list_head tables;
	struct address_space *mapping;
	pgoff_t pgoff;
};

int mock_rm_lock(void);
bool mock_rm_trylock(void);
void mock_rm_unlock(void);
void mock_rm_assert_held(void);

struct mock_alloc *mock_malloc(struct mock_gpu *gpu, struct vm_area_struct *vma);
struct mock_alloc *mock_find(u64 va);
void mock_free(struct mock_alloc *alloc);
void mock_vma_get(struct mock_alloc *alloc);
void mock_vma_put(struct mock_alloc *alloc);
int mock_pin(struct mock_alloc *alloc, unsigned int first, unsigned int nr);
void mock_unpin(struct mock_alloc *alloc, unsigned int first, unsigned int nr);

static inline phys_addr_t mock_frame_phys(const struct mock_alloc *alloc,
					  unsigned int i)
{
	return alloc->gpu->bar_start + (u64)alloc->frames[i] * MOCK_FRAME;
}

extern const struct file_operations mock_gpu_fops;

void mock_p2p_memory_freed(struct mock_alloc *alloc);
void mock_p2p_reclaim(void);
void mock_p2p_exit(void);

/* What can be stopped and made to fail, and but for the last three counted. */
enum mock_op {
	OP_GET_PAGES,
	OP_GET_PAGES_PERSISTENT,
	OP_PUT_PAGES,
	OP_PUT_PAGES_PERSISTENT,
	OP_DMA_MAP_PAGES,
	OP_DMA_UNMAP_PAGES,
	OP_FREE_PAGE_TABLE,
	OP_FREE_DMA_MAPPING,
	NR_CALLS,
	OP_FREE_CALLBACK = NR_CALLS,	/* rm lock held, before the client's */
	OP_FREE_CALLBACK_RETURN,	/* rm lock held, after the client's */
	OP_GET_PAGES_RETURN,		/* callback armed, caller does not know */
	NR_OPS
};

/* Cumulative; the first ones are the calls of enum mock_op. */
enum mock_counter {
	CNT_FREE_CALLBACKS = NR_CALLS,
	CNT_CPU_FAULTS,
	CNT_PUT_PAGES_FOREIGN,
	CNT_PUT_PAGES_UNKNOWN,
	CNT_PUT_PAGES_MAPPED,
	CNT_FAILED_CALLS,
	CNT_MISUSE,
	NR_COUNTERS
};

enum mock_gauge {
	GAUGE_ALLOCATIONS,
	GAUGE_PAGE_TABLES,
	GAUGE_PERSISTENT_TABLES,
	GAUGE_DMA_MAPPINGS,
	GAUGE_PINNED_BYTES,
	GAUGE_BAR1_USED_BYTES,
	NR_GAUGES
};

enum mock_override {
	OVERRIDE_TABLE_VERSION,
	OVERRIDE_TABLE_PAGE_SIZE,
	OVERRIDE_TABLE_ENTRIES,
	OVERRIDE_TABLE_FLAGS,
	OVERRIDE_TABLE_RAM,
	OVERRIDE_MAPPING_VERSION,
	OVERRIDE_MAPPING_PAGE_SIZE,
	OVERRIDE_MAPPING_ENTRIES,
	NR_OVERRIDES
};

int mock_enter(enum mock_op op);
int mock_leave(int ret);
void mock_call_back(void (*free_callback)(void *data), void *data);
void mock_pass(enum mock_op op);
int mock_fault(enum mock_op op);
void mock_count(enum mock_counter counter);
void mock_gauge_add(enum mock_gauge gauge, s64 n);
void mock_misuse(const char *what);
u32 mock_override(enum mock_override what, u32 truth);

void mock_control_init(void);
void mock_control_exit(void);
void mock_control_add_gpu(struct mock_gpu *gpu);
void mock_control_remove_gpu(struct mock_gpu *gpu);

#endif /* _MOCK_NVIDIA_MOCK_H */
