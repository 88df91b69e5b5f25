// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * A GPU: QEMU's ivshmem-plain, whose BAR 2 is RAM that the host sees as a file.
 */
#include <linux/bitmap.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/pci-p2pdma.h>
#include <linux/vmalloc.h>

#include "mock.h"

#define MOCK_BAR	2

static unsigned int beyond_bar;
module_param(beyond_bar, uint, 0444);
MODULE_PARM_DESC(beyond_bar,
		 "GiB of memory that each GPU has beyond its BAR: addresses, for measuring, and nothing there");

static struct mock_gpu gpus[MOCK_MAX_GPUS];

/*
 * With @fragment set, runs of that many frames with a free frame after each:
 * no two neighbours of different runs can be merged by their address. With
 * @fragment_first set, the frames after so many are one run.
 */
int mock_frames_alloc(struct mock_gpu *gpu, u32 *frames, unsigned int nr)
{
	unsigned int run = READ_ONCE(gpu->fragment) ?: nr;
	unsigned int first = READ_ONCE(gpu->fragment_first) ?: nr;
	unsigned long start = 0;
	unsigned int done = 0;

	while (done < nr) {
		unsigned int n = done < first ? min(run, nr - done) : nr - done;

		start = bitmap_find_next_zero_area(gpu->used, gpu->nr_frames,
						   start, n, 0);
		if (start + n > gpu->nr_frames) {
			mock_frames_free(gpu, frames, done);
			return -ENOMEM;
		}
		bitmap_set(gpu->used, start, n);
		while (n--)
			frames[done++] = start++;
		start++;
	}
	return 0;
}

void mock_frames_free(struct mock_gpu *gpu, const u32 *frames, unsigned int nr)
{
	while (nr--)
		clear_bit(frames[nr], gpu->used);
}

u64 mock_gpu_free_bytes(struct mock_gpu *gpu)
{
	unsigned int used = bitmap_weight(gpu->used, gpu->nr_frames);

	return (u64)(gpu->nr_frames - used) * MOCK_FRAME;
}

/*
 * Pages of pci_alloc_p2pmem() come with a reference count of 0 (p2pdma.c).
 * One reference each, held by the driver, makes them safe to hand out.
 */
static void mock_gpu_set_page_refs(struct mock_gpu *gpu, int refs)
{
	u64 i;

	for (i = 0; i < gpu->bar_bytes; i += PAGE_SIZE)
		set_page_count(virt_to_page(gpu->vram + i), refs);
}

static int mock_gpu_claim_memory(struct mock_gpu *gpu, struct pci_dev *pdev)
{
	int ret;

	ret = pcim_enable_device(pdev);
	if (ret)
		return ret;
	ret = pcim_request_region(pdev, MOCK_BAR, KBUILD_MODNAME);
	if (ret)
		return ret;
	ret = pci_p2pdma_add_resource(pdev, MOCK_BAR, 0, 0);
	if (ret)
		return ret;

	gpu->bar_start = pci_resource_start(pdev, MOCK_BAR);
	gpu->bar_bytes = pci_resource_len(pdev, MOCK_BAR);
	gpu->vram = pci_alloc_p2pmem(pdev, gpu->bar_bytes);
	if (!gpu->vram)
		return -ENOMEM;
	mock_gpu_set_page_refs(gpu, 1);
	return 0;
}

static void mock_gpu_release_memory(struct mock_gpu *gpu, struct pci_dev *pdev)
{
	mock_gpu_set_page_refs(gpu, 0);
	pci_free_p2pmem(pdev, gpu->vram, gpu->bar_bytes);
}

static int mock_gpu_init_allocator(struct mock_gpu *gpu)
{
	gpu->nr_frames = (gpu->bar_bytes + (u64)beyond_bar * SZ_1G) / MOCK_FRAME;
	gpu->used = bitmap_zalloc(gpu->nr_frames, GFP_KERNEL);
	gpu->bar1_refs = vcalloc(gpu->nr_frames, sizeof(*gpu->bar1_refs));
	if (!gpu->used || !gpu->bar1_refs)
		return -ENOMEM;
	gpu->bar1_used = 0;
	gpu->bar1_limit = (u64)gpu->nr_frames * MOCK_FRAME;
	gpu->fragment = 0;
	gpu->fragment_first = 0;
	init_waitqueue_head(&gpu->idle);
	return 0;
}

static void mock_gpu_free_allocator(struct mock_gpu *gpu)
{
	bitmap_free(gpu->used);
	vfree(gpu->bar1_refs);
	gpu->used = NULL;
	gpu->bar1_refs = NULL;
}

static int mock_gpu_add_node(struct mock_gpu *gpu, struct pci_dev *pdev)
{
	snprintf(gpu->name, sizeof(gpu->name), "mock_nvidia%u", gpu->index);
	gpu->misc = (struct miscdevice) {
		.minor = MISC_DYNAMIC_MINOR,
		.name = gpu->name,
		.fops = &mock_gpu_fops,
		.parent = &pdev->dev,
		.mode = 0666,
	};
	return misc_register(&gpu->misc);
}

static struct mock_gpu *mock_gpu_free_slot(void)
{
	unsigned int i;

	for (i = 0; i < MOCK_MAX_GPUS; i++) {
		if (gpus[i].pdev)
			continue;
		gpus[i].index = i;
		return &gpus[i];
	}
	return NULL;
}

/* Needs no lock: the driver does not ask for asynchronous probing. */
static int mock_gpu_probe(struct pci_dev *pdev, const struct pci_device_id *id)
{
	struct mock_gpu *gpu = mock_gpu_free_slot();
	int ret;

	if (!gpu)
		return -ENOSPC;

	ret = mock_gpu_claim_memory(gpu, pdev);
	if (ret)
		return ret;
	ret = mock_gpu_init_allocator(gpu);
	if (ret)
		goto err;
	snprintf(gpu->uuid, sizeof(gpu->uuid), "gpu:%s", pci_name(pdev));

	gpu->pdev = pdev;
	gpu->gone = false;
	pci_set_drvdata(pdev, gpu);
	ret = mock_gpu_add_node(gpu, pdev);
	if (ret)
		goto err;
	mock_control_add_gpu(gpu);
	pci_info(pdev, "mock GPU %u, %llu MiB\n", gpu->index,
		 gpu->bar_bytes / SZ_1M);
	return 0;

err:
	gpu->pdev = NULL;
	mock_gpu_free_allocator(gpu);
	mock_gpu_release_memory(gpu, pdev);
	return ret;
}

/*
 * nv-pci.c of 550.163.01 waits for the last user when a GPU in use is removed;
 * so do we. Open files stay valid: they see a GPU that is gone.
 */
static void mock_gpu_remove(struct pci_dev *pdev)
{
	struct mock_gpu *gpu = pci_get_drvdata(pdev);

	misc_deregister(&gpu->misc);
	mock_control_remove_gpu(gpu);
	mock_rm_lock();
	gpu->gone = true;
	mock_rm_unlock();
	wait_event(gpu->idle, !READ_ONCE(gpu->live));

	mock_gpu_free_allocator(gpu);
	mock_gpu_release_memory(gpu, pdev);
	gpu->pdev = NULL;
}

static const struct pci_device_id mock_gpu_ids[] = {
	{ PCI_DEVICE(PCI_VENDOR_ID_REDHAT_QUMRANET, 0x1110) },	/* ivshmem */
	{ }
};
MODULE_DEVICE_TABLE(pci, mock_gpu_ids);

static struct pci_driver mock_gpu_driver = {
	.name = KBUILD_MODNAME,
	.id_table = mock_gpu_ids,
	.probe = mock_gpu_probe,
	.remove = mock_gpu_remove,
	.driver.suppress_bind_attrs = true,
};

static int __init mock_init(void)
{
	int ret;

	mock_control_init();
	ret = pci_register_driver(&mock_gpu_driver);
	if (ret)
		mock_control_exit();
	return ret;
}

static void __exit mock_exit(void)
{
	pci_unregister_driver(&mock_gpu_driver);
	mock_control_exit();
	mock_p2p_exit();
}

module_init(mock_init);
module_exit(mock_exit);

MODULE_DESCRIPTION("NVIDIA GPU driver of a test bed: nvidia_p2p on ivshmem memory");
MODULE_AUTHOR("nvidia-peermem-rs developers");
MODULE_LICENSE("Dual MIT/GPL");		/* as nvidia.ko, open flavour */
MODULE_VERSION("550.163.01-mock");
