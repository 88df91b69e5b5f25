/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The peer-memory client interface of DOCA-OFED's RDMA core, in our own words.
 *
 * Layout and semantics were established from <rdma/peer_mem.h> and peer_mem.c
 * of MLNX_OFED 5.8 to DOCA-OFED 25.10 (the header is the same in all of them)
 * and of NVIDIA's and Ubuntu's patched kernels. Mainline has no such interface.
 */
#ifndef _NVIDIA_PEERMEM_PEER_MEM_H
#define _NVIDIA_PEERMEM_PEER_MEM_H

#include <linux/build_bug.h>
#include <linux/stddef.h>
#include <linux/types.h>

struct device;
struct sg_table;

#define IB_PEER_MEMORY_NAME_MAX	64
#define IB_PEER_MEMORY_VER_MAX	16

/* The core context is a number, not a pointer (since MLNX_OFED 4). */
#define PEER_MEM_U64_CORE_CONTEXT

/**
 * enum peer_mem_flags - what a client with an extended descriptor asks for
 * @PEER_MEM_INVALIDATE_UNMAPS: after an invalidation the client unmaps and
 *	unpins by itself; the core will not call dma_unmap and put_pages
 */
enum peer_mem_flags {
	PEER_MEM_INVALIDATE_UNMAPS = 1 << 0,
};

/**
 * struct peer_memory_client - a driver that can pin and map foreign memory
 * @name: what the core shows; unique where the core has sysfs entries
 * @version: at most 14 characters; a non-zero last byte says that this
 *	descriptor is the first member of a struct peer_memory_client_ex
 * @acquire: > 0 claims the range; 0 and errors both mean "not mine".
 *	Called with the core's global mutex held
 * @get_pages: pin; 0 or -errno. After a failure only @release follows
 * @dma_map: map for @dma_device and describe the result in @sg_head and @nmap;
 *	0 or -errno. After a failure @put_pages follows, then @release
 * @dma_unmap: undo @dma_map
 * @put_pages: undo @get_pages
 * @get_page_size: the granularity, in bytes, to which the client rounded the
 *	range; called after each @dma_map, so it is not optional
 * @release: end of the context of a successful @acquire
 *
 * The core keeps the pointer and reads the descriptor until the client is
 * unregistered: it must neither move nor change.
 */
struct peer_memory_client {
	char	name[IB_PEER_MEMORY_NAME_MAX];
	char	version[IB_PEER_MEMORY_VER_MAX];
	int	(*acquire)(unsigned long addr, size_t size,
			   void *peer_mem_private_data, char *peer_mem_name,
			   void **client_context);
	int	(*get_pages)(unsigned long addr, size_t size, int write,
			     int force, struct sg_table *sg_head,
			     void *client_context, u64 core_context);
	int	(*dma_map)(struct sg_table *sg_head, void *client_context,
			   struct device *dma_device, int dmasync, int *nmap);
	int	(*dma_unmap)(struct sg_table *sg_head, void *client_context,
			     struct device *dma_device);
	void	(*put_pages)(struct sg_table *sg_head, void *client_context);
	unsigned long (*get_page_size)(void *client_context);
	void	(*release)(void *client_context);
};

/**
 * struct peer_memory_client_ex - descriptor with flags
 * @client: the basic descriptor, with a non-zero last byte of its version
 * @ex_size: size of this structure in bytes
 * @flags: of enum peer_mem_flags
 */
struct peer_memory_client_ex {
	struct peer_memory_client client;
	size_t	ex_size;
	u32	flags;
};

static_assert(sizeof(struct peer_memory_client) == 136);
static_assert(offsetof(struct peer_memory_client, version) == 64);
static_assert(offsetof(struct peer_memory_client, acquire) == 80);
static_assert(offsetof(struct peer_memory_client, release) == 128);
static_assert(sizeof(struct peer_memory_client_ex) == 152);
static_assert(offsetof(struct peer_memory_client_ex, ex_size) == 136);
static_assert(offsetof(struct peer_memory_client_ex, flags) == 144);

/*
 * Given to a client that can lose its memory: when it returns, the HCA does no
 * more DMA to the registration that @core_context names. Sleeps.
 */
typedef int (*invalidate_peer_memory)(void *reg_handle, u64 core_context);

/*
 * Returns a handle, or NULL on any failure. A client that passes a non-NULL
 * @invalidate_callback is used only by drivers that can invalidate.
 */
void *ib_register_peer_memory_client(const struct peer_memory_client *client,
				     invalidate_peer_memory *invalidate_callback);

/* Returns when no registration of the client is left. */
void ib_unregister_peer_memory_client(void *reg_handle);

#endif /* _NVIDIA_PEERMEM_PEER_MEM_H */
