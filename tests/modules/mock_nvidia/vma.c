// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * GPU memory as a process sees it.
 *
 * The mapping is VM_PFNMAP: get_user_pages() answers -EFAULT, as it does for
 * the address range of cudaMalloc, and RDMA core turns to the peer-memory
 * clients. Pages are inserted one by one on fault, so that every CPU that
 * touches GPU memory is seen.
 */
#include <linux/mm.h>
#include <linux/mman.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/sched.h>
#include <linux/sched/mm.h>
#include <linux/slab.h>
#include <linux/uaccess.h>

#include "mock.h"
#include "mock_nvidia_uapi.h"

#define PAGES_PER_FRAME	(MOCK_FRAME / PAGE_SIZE)

static_assert(MOCK_FRAME == MOCK_NVIDIA_PAGE_SIZE);

static struct mock_gpu *mock_gpu_of(struct file *file)
{
	return container_of(file->private_data, struct mock_gpu, misc);
}

static vm_fault_t mock_vma_fault(struct vm_fault *vmf)
{
	struct mock_alloc *alloc = vmf->vma->vm_private_data;
	unsigned long page = (vmf->address - alloc->va) / PAGE_SIZE;
	vm_fault_t ret = VM_FAULT_SIGBUS;

	mutex_lock(&alloc->map_lock);
	if (!alloc->freed && alloc->frames[page / PAGES_PER_FRAME] <
			     alloc->gpu->bar_bytes / MOCK_FRAME) {
		phys_addr_t frame = mock_frame_phys(alloc,
						    page / PAGES_PER_FRAME);

		ret = vmf_insert_pfn(vmf->vma, vmf->address & PAGE_MASK,
				     PHYS_PFN(frame) + page % PAGES_PER_FRAME);
		if (ret == VM_FAULT_NOPAGE &&
		    !test_and_set_bit(page, alloc->touched))
			mock_count(CNT_CPU_FAULTS);
	}
	mutex_unlock(&alloc->map_lock);
	return ret;
}

/* Only mremap gets here, before mock_vma_mremap() makes it turn back. */
static void mock_vma_open(struct vm_area_struct *vma)
{
	mock_vma_get(vma->vm_private_data);
}

/* Runs with mmap_lock held for writing, at munmap and at exit. */
static void mock_vma_close(struct vm_area_struct *vma)
{
	mock_vma_put(vma->vm_private_data);
}

/* cudaFree frees an allocation or nothing: no partial munmap, no mprotect. */
static int mock_vma_may_split(struct vm_area_struct *vma, unsigned long addr)
{
	return -EINVAL;
}

static int mock_vma_mremap(struct vm_area_struct *vma)
{
	return -EINVAL;
}

static const struct vm_operations_struct mock_vma_ops = {
	.open = mock_vma_open,
	.close = mock_vma_close,
	.may_split = mock_vma_may_split,
	.mremap = mock_vma_mremap,
	.fault = mock_vma_fault,
};

static int mock_mmap(struct file *file, struct vm_area_struct *vma)
{
	struct mock_alloc *alloc;

	if (!(vma->vm_flags & VM_MAYSHARE) ||
	    !IS_ALIGNED(vma->vm_start, MOCK_FRAME))
		return -EINVAL;

	alloc = mock_malloc(mock_gpu_of(file), vma);
	if (IS_ERR(alloc))
		return PTR_ERR(alloc);

	/* Offsets as given may be equal; cudaFree has to tell mappings apart. */
	vma->vm_pgoff = alloc->pgoff;
	vma->vm_private_data = alloc;
	vma->vm_ops = &mock_vma_ops;
	vm_flags_set(vma, VM_PFNMAP | VM_DONTCOPY | VM_DONTEXPAND | VM_DONTDUMP);
	return 0;
}

/* Looks for room for whole frames: nothing else lies in the last one at first. */
static unsigned long mock_get_unmapped_area(struct file *file,
					    unsigned long addr,
					    unsigned long len,
					    unsigned long pgoff,
					    unsigned long flags)
{
	if (flags & MAP_FIXED)
		return IS_ALIGNED(addr, MOCK_FRAME) ? addr : -EINVAL;

	addr = mm_get_unmapped_area(file, ALIGN(addr, MOCK_FRAME),
				    ALIGN(len, MOCK_FRAME) + MOCK_FRAME - PAGE_SIZE,
				    pgoff, flags);
	return IS_ERR_VALUE(addr) ? addr : ALIGN(addr, MOCK_FRAME);
}

static int mock_ioc_info(struct mock_gpu *gpu, void __user *arg)
{
	struct mock_nvidia_info info = {
		.gpu = gpu->index,
		.page_size = MOCK_FRAME,
		.bar_bytes = gpu->bar_bytes,
	};
	int ret = mock_rm_lock();

	if (ret)
		return ret;
	if (gpu->gone) {
		ret = -ENODEV;
	} else {
		info.free_bytes = mock_gpu_free_bytes(gpu);
		strscpy(info.pci, pci_name(gpu->pdev));
	}
	mock_rm_unlock();
	if (!ret && copy_to_user(arg, &info, sizeof(info)))
		ret = -EFAULT;
	return ret;
}

static int mock_ioc_free(struct mock_gpu *gpu, void __user *arg)
{
	struct mock_nvidia_free req;
	struct mock_alloc *alloc;
	int ret;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	ret = mock_rm_lock();
	if (ret)
		return ret;
	alloc = mock_find(req.va);
	if (alloc && alloc->gpu == gpu && alloc->va == req.va)
		mock_free(alloc);
	else
		ret = -EINVAL;
	mock_rm_unlock();
	return ret;
}

/* Returns the number of runs, or -errno; *@segments is to be freed. */
static int mock_segments(struct mock_gpu *gpu, u64 va,
			 struct mock_nvidia_segment **segments)
{
	struct mock_nvidia_segment *s;
	struct mock_alloc *alloc;
	unsigned int i;
	int n = 0;

	alloc = mock_find(va);
	if (!alloc || alloc->gpu != gpu)
		return -EINVAL;
	s = kvmalloc_array(alloc->nr, sizeof(*s), GFP_KERNEL);
	if (!s)
		return -ENOMEM;

	for (i = 0; i < alloc->nr; i++) {
		u64 offset = (u64)alloc->frames[i] * MOCK_FRAME;

		if (n && offset == s[n - 1].bar_offset + s[n - 1].len)
			s[n - 1].len += MOCK_FRAME;
		else
			s[n++] = (struct mock_nvidia_segment){ offset, MOCK_FRAME };
	}
	*segments = s;
	return n;
}

static int mock_ioc_segments(struct mock_gpu *gpu, void __user *arg)
{
	struct mock_nvidia_segment *segments = NULL;
	struct mock_nvidia_segments req;
	int ret, n;

	if (copy_from_user(&req, arg, sizeof(req)))
		return -EFAULT;
	ret = mock_rm_lock();
	if (ret)
		return ret;
	n = mock_segments(gpu, req.va, &segments);
	mock_rm_unlock();
	if (n < 0)
		return n;

	req.count = n;
	if (copy_to_user(u64_to_user_ptr(req.segments_ptr), segments,
			 min_t(u64, req.count, req.capacity) * sizeof(*segments)) ||
	    copy_to_user(arg, &req, sizeof(req)))
		ret = -EFAULT;
	kvfree(segments);
	return ret;
}

static long mock_ioctl(struct file *file, unsigned int cmd, unsigned long arg)
{
	struct mock_gpu *gpu = mock_gpu_of(file);
	void __user *p = (void __user *)arg;

	switch (cmd) {
	case MOCK_NVIDIA_IOC_INFO:
		return mock_ioc_info(gpu, p);
	case MOCK_NVIDIA_IOC_FREE:
		return mock_ioc_free(gpu, p);
	case MOCK_NVIDIA_IOC_SEGMENTS:
		return mock_ioc_segments(gpu, p);
	default:
		return -ENOTTY;
	}
}

const struct file_operations mock_gpu_fops = {
	.owner = THIS_MODULE,
	.mmap = mock_mmap,
	.get_unmapped_area = mock_get_unmapped_area,
	.unlocked_ioctl = mock_ioctl,
	.compat_ioctl = compat_ptr_ioctl,
};
