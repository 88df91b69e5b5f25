// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * GPU memory: who owns it, who keeps it alive, and the lock around it all.
 */
#include <linux/bitmap.h>
#include <linux/fs.h>
#include <linux/mm.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "mock.h"

static LIST_HEAD(owned);	/* not freed: found by process and address */

static DEFINE_MUTEX(rm_mutex);
static struct task_struct *rm_owner;

/*
 * Stands for the RM API lock. A caller that holds it already is inside a free
 * callback: rmapiLockAcquire() of 550.163.01 answers INVALID_LOCK_STATE, which
 * has no entry in the table of nv-p2p.c and so becomes -EIO.
 */
int mock_rm_lock(void)
{
	if (READ_ONCE(rm_owner) == current) {
		mock_misuse("call into the driver from inside a free callback");
		return -EIO;
	}
	mutex_lock(&rm_mutex);
	WRITE_ONCE(rm_owner, current);
	return 0;
}

/* false: somebody has it. */
bool mock_rm_trylock(void)
{
	if (!mutex_trylock(&rm_mutex))
		return false;
	WRITE_ONCE(rm_owner, current);
	return true;
}

void mock_rm_unlock(void)
{
	WRITE_ONCE(rm_owner, NULL);
	mutex_unlock(&rm_mutex);
}

void mock_rm_assert_held(void)
{
	lockdep_assert_held(&rm_mutex);
}

static void mock_alloc_destroy(struct mock_alloc *alloc)
{
	kvfree(alloc->frames);
	bitmap_free(alloc->touched);
	mutex_destroy(&alloc->map_lock);
	kfree(alloc);
}

static struct mock_alloc *mock_alloc_create(unsigned int nr)
{
	struct mock_alloc *alloc = kzalloc(sizeof(*alloc), GFP_KERNEL);

	if (!alloc)
		return NULL;
	mutex_init(&alloc->map_lock);
	INIT_LIST_HEAD(&alloc->tables);
	alloc->nr = nr;
	alloc->frames = kvmalloc_array(nr, sizeof(*alloc->frames), GFP_KERNEL);
	alloc->touched = bitmap_zalloc((unsigned long)nr * MOCK_FRAME / PAGE_SIZE,
				       GFP_KERNEL);
	if (!alloc->frames || !alloc->touched) {
		mock_alloc_destroy(alloc);
		return NULL;
	}
	return alloc;
}

/* cudaMalloc. The mapping gets the first of the references of mock_vma_get(). */
struct mock_alloc *mock_malloc(struct mock_gpu *gpu, struct vm_area_struct *vma)
{
	static pgoff_t next_pgoff;
	u64 frames = DIV_ROUND_UP((u64)vma->vm_end - vma->vm_start, MOCK_FRAME);
	struct mock_alloc *alloc;
	int ret;

	if (frames > gpu->nr_frames)
		return ERR_PTR(-ENOMEM);
	alloc = mock_alloc_create(frames);
	if (!alloc)
		return ERR_PTR(-ENOMEM);
	alloc->gpu = gpu;
	alloc->tgid = current->tgid;
	alloc->va = vma->vm_start;
	alloc->mapping = vma->vm_file->f_mapping;
	alloc->vmas = 1;

	ret = mock_rm_lock();
	if (ret)
		goto err;
	ret = gpu->gone ? -ENODEV :
			  mock_frames_alloc(gpu, alloc->frames, alloc->nr);
	if (!ret) {
		alloc->pgoff = next_pgoff;
		next_pgoff += frames * (MOCK_FRAME / PAGE_SIZE);
		list_add(&alloc->owned, &owned);
		gpu->live++;
		mock_gauge_add(GAUGE_ALLOCATIONS, 1);
	}
	mock_rm_unlock();
	if (ret)
		goto err;
	return alloc;

err:
	mock_alloc_destroy(alloc);
	return ERR_PTR(ret);
}

/*
 * osGetCurrentProcess() of 550.163.01 is current->tgid: memory is found only
 * from inside the process that allocated it (RmP2PGetInfoWithoutToken).
 */
struct mock_alloc *mock_find(u64 va)
{
	struct mock_alloc *alloc;

	mock_rm_assert_held();
	list_for_each_entry(alloc, &owned, owned) {
		if (alloc->tgid == current->tgid && va >= alloc->va &&
		    va - alloc->va < (u64)alloc->nr * MOCK_FRAME)
			return alloc;
	}
	return NULL;
}

/*
 * Memory goes when it is freed and the last pin is gone, the object when no
 * mapping points to it either.
 */
static void mock_reclaim(struct mock_alloc *alloc)
{
	struct mock_gpu *gpu = alloc->gpu;

	if (!alloc->freed || alloc->pins)
		return;
	if (alloc->nr) {
		mock_frames_free(gpu, alloc->frames, alloc->nr);
		alloc->nr = 0;
		mock_gauge_add(GAUGE_ALLOCATIONS, -1);
		if (!--gpu->live)
			wake_up(&gpu->idle);
	}
	if (!alloc->vmas)
		mock_alloc_destroy(alloc);
}

static void mock_revoke_cpu_mappings(struct mock_alloc *alloc)
{
	mutex_lock(&alloc->map_lock);
	alloc->freed = true;	/* page faults add nothing from here on */
	mutex_unlock(&alloc->map_lock);
	if (alloc->vmas)
		unmap_mapping_range(alloc->mapping,
				    (loff_t)alloc->pgoff << PAGE_SHIFT,
				    (loff_t)alloc->nr * MOCK_FRAME, 1);
}

/* cudaFree. @alloc may be gone afterwards. */
void mock_free(struct mock_alloc *alloc)
{
	mock_rm_assert_held();
	if (!alloc->freed) {
		list_del(&alloc->owned);
		mock_revoke_cpu_mappings(alloc);
		alloc->pins++;		/* the last table must not take it along */
		mock_p2p_memory_freed(alloc);
		alloc->pins--;
	}
	mock_reclaim(alloc);
}

void mock_vma_get(struct mock_alloc *alloc)
{
	mock_rm_lock();
	alloc->vmas++;
	mock_rm_unlock();
}

/*
 * A free callback that drops the last reference to an address space gets here
 * with the lock held: counted by mock_rm_lock(), and served.
 */
void mock_vma_put(struct mock_alloc *alloc)
{
	int in_callback = mock_rm_lock();

	if (!--alloc->vmas)
		mock_free(alloc);
	if (!in_callback)
		mock_rm_unlock();
}

/*
 * Takes BAR1 space for a range. _isSpaceAvailableForBar1P2PMapping() in p2p.c
 * of the resource manager (550.163.01) asks for
 * BAR1 size - mapped >= length + 36 MiB, else INSUFFICIENT_RESOURCES = -ENOMEM;
 * here bar1_limit_bytes is the size with those 36 MiB already taken off.
 * Ranges that are mapped already are shared and cost nothing. (RM counts
 * whole extents; frame by frame gives them back no later.)
 */
int mock_pin(struct mock_alloc *alloc, unsigned int first, unsigned int nr)
{
	struct mock_gpu *gpu = alloc->gpu;
	u64 need = 0;
	unsigned int i;

	mock_rm_assert_held();
	for (i = first; i < first + nr; i++)
		if (!gpu->bar1_refs[alloc->frames[i]])
			need += MOCK_FRAME;
	if (need && gpu->bar1_used + need > READ_ONCE(gpu->bar1_limit))
		return -ENOMEM;

	for (i = first; i < first + nr; i++)
		gpu->bar1_refs[alloc->frames[i]]++;
	gpu->bar1_used += need;
	alloc->pins++;
	mock_gauge_add(GAUGE_BAR1_USED_BYTES, need);
	mock_gauge_add(GAUGE_PINNED_BYTES, (u64)nr * MOCK_FRAME);
	return 0;
}

/* @alloc may be gone afterwards. */
void mock_unpin(struct mock_alloc *alloc, unsigned int first, unsigned int nr)
{
	struct mock_gpu *gpu = alloc->gpu;
	s64 released = 0;
	unsigned int i;

	mock_rm_assert_held();
	for (i = first; i < first + nr; i++)
		if (!--gpu->bar1_refs[alloc->frames[i]])
			released += MOCK_FRAME;
	gpu->bar1_used -= released;
	mock_gauge_add(GAUGE_BAR1_USED_BYTES, -released);
	mock_gauge_add(GAUGE_PINNED_BYTES, -(s64)nr * MOCK_FRAME);
	alloc->pins--;
	mock_reclaim(alloc);
}
