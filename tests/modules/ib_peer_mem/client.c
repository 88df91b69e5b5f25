// SPDX-License-Identifier: GPL-2.0
/* The list of clients, and the question whose memory a range is. */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/export.h>
#include <linux/module.h>
#include <linux/slab.h>
#include <linux/string.h>

#include "core.h"

static bool unique_names = true;
module_param(unique_names, bool, 0444);
MODULE_PARM_DESC(unique_names, "Refuse a second client of a name, as cores with sysfs do (default Y)");

/* One mutex for all, acquire() runs under it (peer_mem.c, OFED 25.10). */
static DEFINE_MUTEX(peer_memory_mutex);
static LIST_HEAD(peer_memory_list);

/* The five that peer_mem.c of OFED 25.10 checks, in its order and words. */
static const char *missing_callback(const struct peer_memory_client *ops)
{
	if (!ops->acquire)
		return "acquire";
	if (!ops->get_pages)
		return "get_pages";
	if (!ops->put_pages)
		return "put_pages";
	if (!ops->dma_map)
		return "dma_map";
	if (!ops->dma_unmap)
		return "dma_unmap";
	return NULL;
}

/*
 * A sysfs directory for each client makes names unique (OFED with mm_kobj);
 * cores without sysfs, as NVIDIA's kernels have, take any number.
 */
static bool name_is_free(const char *name)
{
	struct peer_client *client;

	list_for_each_entry(client, &peer_memory_list, entry)
		if (!strncmp(client->ops->name, name, IB_PEER_MEMORY_NAME_MAX))
			return false;
	return true;
}

static bool list_client(struct peer_client *client)
{
	guard(mutex)(&peer_memory_mutex);
	if (unique_names && !name_is_free(client->ops->name)) {
		pr_err("a client %s is already registered\n", client->ops->name);
		return false;
	}
	peer_debugfs_add_client(client);
	/* Asked in the order of registration (peer_mem.c, OFED 25.10). */
	list_add_tail(&client->entry, &peer_memory_list);
	return true;
}

void *ib_register_peer_memory_client(const struct peer_memory_client *ops,
				     invalidate_peer_memory *invalidate)
{
	const char *missing = missing_callback(ops);
	struct peer_client *client;

	if (missing) {
		pr_err("Peer memory %s is missing mandatory function %s\n",
		       ops->name, missing);
		return NULL;
	}

	client = kzalloc_obj(*client);
	if (!client)
		return NULL;
	client->ops = ops;
	refcount_set(&client->users, 1);
	init_completion(&client->unused);
	xa_init_flags(&client->umems, XA_FLAGS_ALLOC);

	/* To ask for the function is to need it (peer_mem.c, OFED 25.10). */
	if (invalidate) {
		*invalidate = peer_invalidate;
		client->wants_invalidation = true;
	}

	if (!peer_audit_client(client) || !list_client(client)) {
		kfree(client);
		return NULL;
	}
	return client;
}
EXPORT_SYMBOL(ib_register_peer_memory_client);

void ib_unregister_peer_memory_client(void *reg_handle)
{
	struct peer_client *client = reg_handle;

	mutex_lock(&peer_memory_mutex);
	list_del(&client->entry);
	mutex_unlock(&peer_memory_mutex);

	/* No limit, no signal, no forced end (peer_mem.c, OFED 25.10). */
	peer_client_put(client);
	wait_for_completion(&client->unused);

	peer_debugfs_remove_client(client);
	xa_destroy(&client->umems);
	kfree(client);
}
EXPORT_SYMBOL(ib_unregister_peer_memory_client);

void peer_client_put(struct peer_client *client)
{
	if (refcount_dec_and_test(&client->users))
		complete(&client->unused);
}

struct peer_client *peer_client_claim(unsigned long addr, size_t size,
				      unsigned long flags, void **context)
{
	struct peer_client *client;

	guard(mutex)(&peer_memory_mutex);
	list_for_each_entry(client, &peer_memory_list, entry) {
		/* Passed over in silence (peer_mem.c, OFED 25.10). */
		if (client->wants_invalidation &&
		    !(flags & IB_PEER_MEM_INVAL_SUPP))
			continue;
		/* Only > 0 is "mine"; an errno is dropped like 0 (OFED 25.10). */
		if (peer_call_acquire(client->ops, addr, size, context) > 0) {
			refcount_inc(&client->users);
			return client;
		}
	}
	return NULL;
}
