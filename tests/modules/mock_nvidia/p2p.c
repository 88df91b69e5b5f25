// SPDX-License-Identifier: GPL-2.0 OR MIT
/*
 * nvidia_p2p_*: what a peer-memory client sees of the driver.
 *
 * Rules are those of nv-p2p.c of open-gpu-kernel-modules 550.163.01 (550
 * below) unless a comment names another source. Where NVIDIA's driver would
 * use memory after it was freed, WARN or BUG, this one counts a misuse and
 * goes on, so that a test can tell.
 */
#include <linux/dma-mapping.h>
#include <linux/hashtable.h>
#include <linux/kref.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/pci.h>
#include <linux/poison.h>
#include <linux/sched.h>
#include <linux/slab.h>

#include "mock.h"
#include "nv-p2p-rest.h"

#ifndef ENOTSUPP
#define ENOTSUPP	524
#endif

static unsigned int table_version = NVIDIA_P2P_PAGE_TABLE_VERSION_1_2;
module_param(table_version, uint, 0444);
MODULE_PARM_DESC(table_version,
		 "version of page tables: 0x00010002 (515 to 575), 0x00020000 (580 on)");

/**
 * struct mock_table - a pinned range
 * @table: what the client gets a pointer to
 * @live: link in the list of tables that exist
 * @refs: one while it is live, one for each dma_unmap_pages at work on it
 * @alloc: the memory
 * @first: first frame of @alloc
 * @nr: number of frames
 * @persistent: pinned until put, whatever happens to the owner
 * @tgid: the owner
 * @free_callback: the client's
 * @data: for @free_callback
 * @armed: link in @alloc's list of tables to call back
 * @lock: all that dma_unmap_pages takes
 * @mappings: struct mock_mapping
 * @dead: the client must not use the table any more
 * @page_array: what @table.pages points into
 */
struct mock_table {
	struct nvidia_p2p_page_table table;
	struct hlist_node live;
	struct kref refs;
	struct mock_alloc *alloc;
	unsigned int first;
	unsigned int nr;
	bool persistent;
	pid_t tgid;
	void (*free_callback)(void *data);
	void *data;
	struct list_head armed;
	struct mutex lock;		/* @mappings and @dead */
	struct list_head mappings;
	bool dead;
	struct nvidia_p2p_page *page_array;
};

struct mock_mapping {
	struct nvidia_p2p_dma_mapping mapping;	/* what the client gets */
	struct list_head node;
	struct pci_dev *peer;
	unsigned int nr;
};

/*
 * Dead tables and mappings stay around poisoned for a while: the client that
 * looks at them sees nonsense at once, and no new one appears at the same
 * address, so that a call with a stale pointer is always noticed. KASAN does
 * the same, and better.
 */
static void *quarantine[256];
static unsigned int quarantine_next;
static DEFINE_SPINLOCK(quarantine_lock);

static void retire(void *object, size_t size)
{
	memset(object, POISON_FREE, size);
	if (!IS_ENABLED(CONFIG_KASAN)) {
		spin_lock(&quarantine_lock);
		swap(object, quarantine[quarantine_next]);
		quarantine_next = (quarantine_next + 1) % ARRAY_SIZE(quarantine);
		spin_unlock(&quarantine_lock);
	}
	kfree(object);
}

void mock_p2p_exit(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(quarantine); i++)
		kfree(quarantine[i]);
}

static DEFINE_HASHTABLE(live_tables, 8);
static DEFINE_SPINLOCK(live_lock);

static void table_release(struct kref *refs)
{
	struct mock_table *t = container_of(refs, struct mock_table, refs);

	mutex_destroy(&t->lock);
	retire(t, sizeof(*t));
}

static void table_put(struct mock_table *t)
{
	kref_put(&t->refs, table_release);
}

/* By pointer value only: the client's pointer may be anything. */
static struct mock_table *table_find(struct nvidia_p2p_page_table *table)
{
	struct mock_table *t;

	hash_for_each_possible(live_tables, t, live, (unsigned long)table)
		if (&t->table == table)
			return t;
	return NULL;
}

static struct mock_table *table_get(struct nvidia_p2p_page_table *table)
{
	struct mock_table *t;

	spin_lock(&live_lock);
	t = table_find(table);
	if (t)
		kref_get(&t->refs);
	spin_unlock(&live_lock);
	return t;
}

static void table_publish(struct mock_table *t)
{
	spin_lock(&live_lock);
	hash_add(live_tables, &t->live, (unsigned long)&t->table);
	spin_unlock(&live_lock);
	mock_gauge_add(GAUGE_PAGE_TABLES, 1);
	if (t->persistent)
		mock_gauge_add(GAUGE_PERSISTENT_TABLES, 1);
}

static void table_unpublish(struct mock_table *t)
{
	spin_lock(&live_lock);
	hash_del(&t->live);
	spin_unlock(&live_lock);
	mock_gauge_add(GAUGE_PAGE_TABLES, -1);
	if (t->persistent)
		mock_gauge_add(GAUGE_PERSISTENT_TABLES, -1);
}

static void mapping_undo(struct mock_mapping *m, unsigned int nr)
{
	while (nr--)
		dma_unmap_resource(&m->peer->dev, m->mapping.dma_addresses[nr],
				   MOCK_FRAME, DMA_BIDIRECTIONAL, 0);
	pci_dev_put(m->peer);
	memset(m->mapping.dma_addresses, POISON_FREE,
	       m->nr * sizeof(*m->mapping.dma_addresses));
	kvfree(m->mapping.dma_addresses);
	retire(m, sizeof(*m));
}

static void mapping_destroy(struct mock_mapping *m)
{
	list_del(&m->node);
	mapping_undo(m, m->nr);
	mock_gauge_add(GAUGE_DMA_MAPPINGS, -1);
}

/*
 * Ends a table, published or not. nv_p2p_free_page_table() of 550 undoes the
 * mappings that are left, in put_pages as after the free callback.
 */
static void table_kill(struct mock_table *t)
{
	struct mock_mapping *m, *next;

	mock_rm_assert_held();
	mutex_lock(&t->lock);
	t->dead = true;
	list_for_each_entry_safe(m, next, &t->mappings, node)
		mapping_destroy(m);
	if (t->page_array)
		memset(t->page_array, POISON_FREE, t->nr * sizeof(*t->page_array));
	kvfree(t->page_array);
	kvfree(t->table.pages);
	memset(&t->table, POISON_FREE, sizeof(t->table));
	mutex_unlock(&t->lock);

	list_del(&t->armed);
	mock_unpin(t->alloc, t->first, t->nr);
	if (t->persistent)
		module_put(THIS_MODULE);
	table_put(t);
}

static struct mock_table *table_create(void)
{
	struct mock_table *t = kzalloc(sizeof(*t), GFP_KERNEL);

	if (!t)
		return NULL;
	kref_init(&t->refs);
	mutex_init(&t->lock);
	INIT_LIST_HEAD(&t->armed);
	INIT_LIST_HEAD(&t->mappings);
	return t;
}

/*
 * RM looks the range up by the calling process. One allocation must hold all
 * of it (third_party_p2p.c: address + length - 1 <= end of the allocation), or
 * the answer is OBJECT_NOT_FOUND, -EINVAL: "not GPU memory".
 */
static int table_pin(struct mock_table *t, u64 va, u64 length)
{
	struct mock_alloc *alloc;
	u64 offset;
	int ret;

	ret = mock_rm_lock();
	if (ret)
		return ret;
	ret = -EINVAL;
	alloc = mock_find(va);
	if (!alloc || !length)
		goto out;
	offset = va - alloc->va;
	if (length > (u64)alloc->nr * MOCK_FRAME - offset)
		goto out;

	t->first = offset / MOCK_FRAME;
	t->nr = length / MOCK_FRAME;
	ret = mock_pin(alloc, t->first, t->nr);
	if (ret)
		goto out;
	t->alloc = alloc;
	t->tgid = alloc->tgid;
	/* A persistent pin keeps the GPU open (nvidia_dev_get_uuid). */
	if (t->persistent)
		__module_get(THIS_MODULE);
out:
	mock_rm_unlock();
	return ret;
}

static phys_addr_t table_address(const struct mock_alloc *alloc, unsigned int i)
{
	if (mock_override(OVERRIDE_TABLE_RAM, 0))
		return ALIGN_DOWN(virt_to_phys((void *)alloc), MOCK_FRAME);
	return mock_frame_phys(alloc, i);
}

/* Needs no lock, the pin keeps memory and frames; 550 does it outside RM too. */
static int table_fill(struct mock_table *t)
{
	struct nvidia_p2p_page_table *table = &t->table;
	unsigned int i;

	table->pages = kvmalloc_array(t->nr, sizeof(*table->pages), GFP_KERNEL);
	t->page_array = kvcalloc(t->nr, sizeof(*t->page_array), GFP_KERNEL);
	if (!table->pages || !t->page_array)
		return -ENOMEM;
	for (i = 0; i < t->nr; i++) {
		table->pages[i] = &t->page_array[i];
		table->pages[i]->physical_address =
			table_address(t->alloc, t->first + i);
	}

	table->version = mock_override(OVERRIDE_TABLE_VERSION, table_version);
	table->page_size = mock_override(OVERRIDE_TABLE_PAGE_SIZE,
					 NVIDIA_P2P_PAGE_SIZE_64KB);
	table->entries = mock_override(OVERRIDE_TABLE_ENTRIES, t->nr);
	table->gpu_uuid = t->alloc->gpu->uuid;
	/* Tables before 2.0 end in front of this field. */
	if (table->version >> 16 < 2)
		memset(&table->flags, POISON_INUSE, sizeof(table->flags));
	else
		table->flags = mock_override(OVERRIDE_TABLE_FLAGS, 0);
	return 0;
}

/*
 * The last step. Memory freed since table_pin() is not found any more when the
 * callback is to be registered: OBJECT_NOT_FOUND, -EINVAL.
 */
static int table_arm(struct mock_table *t)
{
	int ret = mock_rm_lock();

	if (ret)
		return ret;
	if (!t->persistent && t->alloc->freed) {
		ret = -EINVAL;
	} else {
		if (!t->persistent)
			list_add_tail(&t->armed, &t->alloc->tables);
		table_publish(t);
	}
	mock_rm_unlock();
	return ret;
}

static void table_discard(struct mock_table *t)
{
	if (t->alloc) {
		mock_rm_lock();
		table_kill(t);
		mock_rm_unlock();
	} else {
		table_put(t);
	}
}

/*
 * A failure after all that (issue 557 of open-gpu-kernel-modules): the callback
 * may have been called meanwhile, and the table be gone. 550 takes no RM lock
 * once the callback is armed, and we must not wait for it either: a callback
 * that is under way may wait for our caller. It is that callback then which
 * ends the table.
 */
static void table_disarm(struct nvidia_p2p_page_table *table)
{
	struct mock_table *t;

	if (!mock_rm_trylock())
		return;
	t = table_find(table);
	if (t) {
		table_unpublish(t);
		table_kill(t);
	}
	mock_rm_unlock();
}

static int get_pages(u64 va, u64 length, struct nvidia_p2p_page_table **out,
		     void (*free_callback)(void *data), void *data)
{
	struct nvidia_p2p_page_table *table;
	struct mock_table *t;
	int ret;

	/* From 555.42.02 on at the top of get_pages, before that in RM. */
	if (!IS_ALIGNED(va | length, MOCK_FRAME))
		return -EINVAL;
	t = table_create();
	if (!t)
		return -ENOMEM;
	t->persistent = !free_callback;
	t->free_callback = free_callback;
	t->data = data;

	/*
	 * Stored before the callback is armed, which may run before we return.
	 * It is not taken back on failure: 550 leaves a stale pointer.
	 */
	*out = table = &t->table;
	ret = table_pin(t, va, length);
	if (!ret)
		ret = table_fill(t);
	if (!ret)
		ret = table_arm(t);
	if (ret) {
		table_discard(t);
		return ret;
	}
	mock_pass(OP_GET_PAGES_RETURN);
	ret = mock_fault(OP_GET_PAGES_RETURN);
	if (ret)
		table_disarm(table);
	return ret;
}

/* Token and address space other than 0 name objects that do not exist here. */
int nvidia_p2p_get_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 u64 length, struct nvidia_p2p_page_table **page_table,
			 void (*free_callback)(void *data), void *data)
{
	int ret = mock_enter(OP_GET_PAGES);

	if (!ret && (!free_callback || p2p_token || va_space))
		ret = -EINVAL;
	if (!ret)
		ret = get_pages(virtual_address, length, page_table,
				free_callback, data);
	return mock_leave(ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages);

/* Before 570 no flag is known and any is -EINVAL. */
int nvidia_p2p_get_pages_persistent(u64 virtual_address, u64 length,
				    struct nvidia_p2p_page_table **page_table,
				    u32 flags)
{
	int ret = mock_enter(OP_GET_PAGES_PERSISTENT);

	if (!ret && flags)
		ret = -EINVAL;
	if (!ret)
		ret = get_pages(virtual_address, length, page_table, NULL, NULL);
	return mock_leave(ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_pages_persistent);

/*
 * RM searches the tables of the calling process for the pointer. What is not
 * there (put before, freed with the memory, another process') is success, and
 * nothing is unpinned.
 */
static void put_pages(struct nvidia_p2p_page_table *page_table)
{
	struct mock_table *t = table_find(page_table);

	if (!t || t->persistent) {
		mock_count(CNT_PUT_PAGES_UNKNOWN);
	} else if (t->tgid != current->tgid) {
		mock_count(CNT_PUT_PAGES_FOREIGN);
	} else {
		table_unpublish(t);
		table_kill(t);
	}
}

int nvidia_p2p_put_pages(u64 p2p_token, u32 va_space, u64 virtual_address,
			 struct nvidia_p2p_page_table *page_table)
{
	int ret = mock_enter(OP_PUT_PAGES);

	if (ret || !page_table)
		return mock_leave(ret);
	ret = mock_rm_lock();
	if (!ret) {
		put_pages(page_table);
		mock_rm_unlock();
	}
	return mock_leave(ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages);

/*
 * From any process: RM keeps the object to put in the table, and so trusts the
 * pointer.
 */
static int put_pages_persistent(u64 va, struct nvidia_p2p_page_table *page_table)
{
	struct mock_table *t = table_find(page_table);

	if (!t) {
		mock_misuse("put_pages_persistent: no such page table");
		return -EINVAL;
	}
	if (!t->persistent) {
		mock_misuse("put_pages_persistent: page table is not persistent");
		return -EINVAL;
	}
	/* The driver unmaps what is left; a client that relies on it forgot it. */
	if (!list_empty(&t->mappings))
		mock_count(CNT_PUT_PAGES_MAPPED);
	table_unpublish(t);
	table_kill(t);
	return 0;
}

int nvidia_p2p_put_pages_persistent(u64 virtual_address,
				    struct nvidia_p2p_page_table *page_table,
				    u32 flags)
{
	int ret = mock_enter(OP_PUT_PAGES_PERSISTENT);

	if (!ret && flags)
		ret = -EINVAL;
	if (ret || !page_table)
		return mock_leave(ret);
	ret = mock_rm_lock();
	if (!ret) {
		ret = put_pages_persistent(virtual_address, page_table);
		mock_rm_unlock();
	}
	return mock_leave(ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_pages_persistent);

/* What only a restart does in earnest. */
void mock_p2p_reclaim(void)
{
	struct hlist_node *next;
	struct mock_table *t;
	unsigned int bucket;

	if (mock_rm_lock())
		return;
	hash_for_each_safe(live_tables, bucket, next, t, live) {
		if (!t->persistent)
			continue;
		table_unpublish(t);
		table_kill(t);
	}
	mock_rm_unlock();
}

/*
 * CliDelThirdPartyP2PVidmemInfo of 550: callback in the freeing thread with the
 * RM lock held, before BAR1 is unmapped and the memory goes. When it returns,
 * the driver frees mappings and table by itself.
 */
void mock_p2p_memory_freed(struct mock_alloc *alloc)
{
	struct mock_table *t;

	while (!list_empty(&alloc->tables)) {
		t = list_first_entry(&alloc->tables, struct mock_table, armed);
		mock_pass(OP_FREE_CALLBACK);
		mock_count(CNT_FREE_CALLBACKS);
		mock_call_back(t->free_callback, t->data);
		mock_pass(OP_FREE_CALLBACK_RETURN);
		table_unpublish(t);
		table_kill(t);
	}
}

/*
 * A client that turns a device into a PCI device without looking passes a
 * pointer to anything. Compare, never look. The caller puts the reference.
 */
static struct pci_dev *real_pci_dev(struct pci_dev *suspect)
{
	struct pci_dev *pdev = NULL;

	for_each_pci_dev(pdev)
		if (pdev == suspect)
			return pdev;
	return NULL;
}

static struct mock_mapping *mapping_create(struct mock_table *t,
					   struct pci_dev *peer)
{
	struct mock_mapping *m = kzalloc(sizeof(*m), GFP_KERNEL);

	if (!m)
		return NULL;
	m->mapping.dma_addresses = kvmalloc_array(t->nr, sizeof(u64), GFP_KERNEL);
	if (!m->mapping.dma_addresses) {
		kfree(m);
		return NULL;
	}
	m->nr = t->nr;
	m->peer = pci_dev_get(peer);
	m->mapping.version = mock_override(OVERRIDE_MAPPING_VERSION,
					   NVIDIA_P2P_DMA_MAPPING_VERSION_2_3);
	m->mapping.page_size_type = mock_override(OVERRIDE_MAPPING_PAGE_SIZE,
						  NVIDIA_P2P_PAGE_SIZE_64KB);
	m->mapping.entries = mock_override(OVERRIDE_MAPPING_ENTRIES, t->nr);
	m->mapping.pci_dev = peer;
	return m;
}

/*
 * nv-dma.c, nv_dma_map_peer: one dma_map_resource() for each GPU page. The end
 * of the range is compared with the inclusive end of the BAR, so that the last
 * page of it is refused. INVALID_REQUEST, as a failing dma_map_resource(),
 * becomes -EIO.
 */
static int map_frame(struct mock_table *t, struct pci_dev *peer,
		     unsigned int i, u64 *dma_address)
{
	struct mock_gpu *gpu = t->alloc->gpu;
	phys_addr_t last = gpu->bar_start + (u64)gpu->nr_frames * MOCK_FRAME - 1;
	phys_addr_t phys = mock_frame_phys(t->alloc, t->first + i);

	if (phys + MOCK_FRAME > last)
		return -EIO;
	*dma_address = dma_map_resource(&peer->dev, phys, MOCK_FRAME,
					DMA_BIDIRECTIONAL, 0);
	return dma_mapping_error(&peer->dev, *dma_address) ? -EIO : 0;
}

static int table_map(struct mock_table *t, struct pci_dev *peer,
		     struct nvidia_p2p_dma_mapping **out)
{
	struct mock_mapping *m = mapping_create(t, peer);
	unsigned int i;
	int ret;

	if (!m)
		return -ENOMEM;
	for (i = 0; i < t->nr; i++) {
		ret = map_frame(t, peer, i, &m->mapping.dma_addresses[i]);
		if (ret) {
			mapping_undo(m, i);
			return ret;
		}
	}
	mutex_lock(&t->lock);
	list_add_tail(&m->node, &t->mappings);
	mutex_unlock(&t->lock);
	mock_gauge_add(GAUGE_DMA_MAPPINGS, 1);
	*out = &m->mapping;
	return 0;
}

static int dma_map_pages(struct pci_dev *peer,
			 struct nvidia_p2p_page_table *page_table,
			 struct nvidia_p2p_dma_mapping **out)
{
	struct mock_table *t = table_find(page_table);

	if (!t) {
		mock_misuse("dma_map_pages: no such page table");
		return -EINVAL;
	}
	/* BUG_ON in 550. */
	if (page_table->page_size <= NVIDIA_P2P_PAGE_SIZE_4KB ||
	    page_table->page_size >= NVIDIA_P2P_PAGE_SIZE_COUNT) {
		mock_misuse("dma_map_pages: page size that the driver cannot map");
		return -EINVAL;
	}
	return table_map(t, peer, out);
}

int nvidia_p2p_dma_map_pages(struct pci_dev *peer,
			     struct nvidia_p2p_page_table *page_table,
			     struct nvidia_p2p_dma_mapping **dma_mapping)
{
	struct pci_dev *real;
	int ret = mock_enter(OP_DMA_MAP_PAGES);

	if (!ret && (!peer || !page_table || !dma_mapping))
		ret = -EINVAL;
	if (ret)
		return mock_leave(ret);
	real = real_pci_dev(peer);
	if (!real) {
		mock_misuse("dma_map_pages: not a PCI device");
		return mock_leave(-EINVAL);
	}

	*dma_mapping = NULL;
	ret = mock_rm_lock();
	if (!ret) {
		ret = dma_map_pages(peer, page_table, dma_mapping);
		mock_rm_unlock();
	}
	pci_dev_put(real);
	return mock_leave(ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_map_pages);

static void table_unmap(struct mock_table *t, struct pci_dev *peer,
			struct nvidia_p2p_dma_mapping *dma_mapping)
{
	struct mock_mapping *m;

	list_for_each_entry(m, &t->mappings, node) {
		if (&m->mapping != dma_mapping)
			continue;
		if (m->peer != peer)	/* WARN_ON in 550, which goes on */
			mock_misuse("dma_unmap_pages: of another PCI device");
		mapping_destroy(m);
		return;
	}
	/* Success in 550: "already unlinked". No client has a reason to. */
	mock_misuse("dma_unmap_pages: no such mapping, or unmapped before");
}

/* Takes the lock of the table only, and so may be called in the callback. */
int nvidia_p2p_dma_unmap_pages(struct pci_dev *peer,
			       struct nvidia_p2p_page_table *page_table,
			       struct nvidia_p2p_dma_mapping *dma_mapping)
{
	struct mock_table *t;
	int ret = mock_enter(OP_DMA_UNMAP_PAGES);

	if (!ret && (!peer || !page_table || !dma_mapping))
		ret = -EINVAL;
	if (ret)
		return mock_leave(ret);

	t = table_get(page_table);
	if (!t) {
		mock_misuse("dma_unmap_pages: no such page table");
		return mock_leave(-EINVAL);
	}
	mutex_lock(&t->lock);
	if (t->dead) {
		mock_misuse("dma_unmap_pages: page table freed meanwhile");
		ret = -EINVAL;
	} else {
		table_unmap(t, peer, dma_mapping);
	}
	mutex_unlock(&t->lock);
	table_put(t);
	return mock_leave(ret);
}
EXPORT_SYMBOL_GPL(nvidia_p2p_dma_unmap_pages);

/* No-ops in every open release; the driver frees after the free callback. */
int nvidia_p2p_free_page_table(struct nvidia_p2p_page_table *page_table)
{
	return mock_leave(mock_enter(OP_FREE_PAGE_TABLE));
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_page_table);

int nvidia_p2p_free_dma_mapping(struct nvidia_p2p_dma_mapping *dma_mapping)
{
	return mock_leave(mock_enter(OP_FREE_DMA_MAPPING));
}
EXPORT_SYMBOL_GPL(nvidia_p2p_free_dma_mapping);

int nvidia_p2p_init_mapping(u64 p2p_token, struct nvidia_p2p_params *params,
			    void (*destroy_callback)(void *data), void *data)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_init_mapping);

int nvidia_p2p_destroy_mapping(u64 p2p_token)
{
	return -ENOTSUPP;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_destroy_mapping);

/* nv-rsync.c: one driver at a time. It is never asked for anything here. */
static struct nvidia_p2p_rsync_driver *rsync_driver;

static bool rsync_driver_valid(const struct nvidia_p2p_rsync_driver *driver)
{
	return driver &&
	       driver->version >> 16 == NVIDIA_P2P_RSYNC_DRIVER_VERSION >> 16 &&
	       driver->version >= NVIDIA_P2P_RSYNC_DRIVER_VERSION &&
	       driver->get_relaxed_ordering_mode &&
	       driver->put_relaxed_ordering_mode && driver->wait_for_rsync;
}

int nvidia_p2p_register_rsync_driver(struct nvidia_p2p_rsync_driver *driver,
				     void *data)
{
	if (!rsync_driver_valid(driver))
		return -EINVAL;
	return cmpxchg(&rsync_driver, NULL, driver) ? -EBUSY : 0;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_register_rsync_driver);

void nvidia_p2p_unregister_rsync_driver(struct nvidia_p2p_rsync_driver *driver,
					void *data)
{
	if (!driver || cmpxchg(&rsync_driver, driver, NULL) != driver)
		mock_misuse("unregister_rsync_driver: not registered");
}
EXPORT_SYMBOL_GPL(nvidia_p2p_unregister_rsync_driver);

/* Only a POWER9 machine had such registers; -ENODEV everywhere else. */
int nvidia_p2p_get_rsync_registers(struct nvidia_p2p_rsync_reg_info **reg_info)
{
	return reg_info ? -ENODEV : -EINVAL;
}
EXPORT_SYMBOL_GPL(nvidia_p2p_get_rsync_registers);

void nvidia_p2p_put_rsync_registers(struct nvidia_p2p_rsync_reg_info *reg_info)
{
}
EXPORT_SYMBOL_GPL(nvidia_p2p_put_rsync_registers);
