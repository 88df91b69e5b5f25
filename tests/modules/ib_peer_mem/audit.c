// SPDX-License-Identifier: GPL-2.0
/*
 * Does the client keep its side of the contract?
 *
 * OFED looks at nothing here: a wrong table makes it compute garbage or crash.
 * In tests that must be an answer and not an accident, so each breach is
 * counted and named (debugfs: violations), and a table that cannot be used is
 * refused.
 */
#define pr_fmt(fmt) KBUILD_MODNAME ": " fmt

#include <linux/align.h>
#include <linux/dma-mapping.h>
#include <linux/log2.h>
#include <linux/mm.h>
#include <linux/printk.h>
#include <linux/string.h>

#include "audit.h"
#include "core.h"

static DEFINE_SPINLOCK(violation_lock);
static struct peer_violations violations;

void peer_violation(const struct peer_client *client, const char *fmt, ...)
{
	struct va_format text = { .fmt = fmt };
	va_list args;

	va_start(args, fmt);
	text.va = &args;

	spin_lock(&violation_lock);
	violations.count++;
	snprintf(violations.last, sizeof(violations.last), "%.*s: %pV",
		 IB_PEER_MEMORY_NAME_MAX, client->ops->name, &text);
	pr_warn_ratelimited("contract violation: %s\n", violations.last);
	spin_unlock(&violation_lock);

	va_end(args);
}

void peer_violations_read(struct peer_violations *copy)
{
	spin_lock(&violation_lock);
	*copy = violations;
	spin_unlock(&violation_lock);
}

/* false: OFED would oops on this client, with the first region or in sysfs */
bool peer_audit_client(const struct peer_client *client)
{
	const struct peer_memory_client *ops = client->ops;

	if (strnlen(ops->name, sizeof(ops->name)) == sizeof(ops->name)) {
		peer_violation(client, "name has no end");
		return false;
	}
	/* Printed with %s; its last byte may be in use as the flag. */
	if (strnlen(ops->version, sizeof(ops->version) - 1) ==
	    sizeof(ops->version) - 1 && ops->version[sizeof(ops->version) - 1]) {
		peer_violation(client, "version has no end");
		return false;
	}
	/* Called without a check after each dma_map (peer_mem.c, OFED 25.10). */
	if (!ops->get_page_size) {
		peer_violation(client, "get_page_size is missing");
		return false;
	}
	return true;
}

/*
 * OFED hands any result but 0 to ERR_PTR(): a positive one becomes a pointer,
 * and one beyond the uapi errnos (ENOTSUPP 524) reaches the application.
 */
int peer_audit_result(const struct peer_client *client, const char *call,
		      int result)
{
	if (result > 0) {
		peer_violation(client, "%s returned %d", call, result);
		return -EIO;
	}
	if (result < -EHWPOISON)
		peer_violation(client, "%s returned %d, no errno of user space",
			       call, result);
	return result;
}

/* NULL: this entry is sound. */
static const char *entry_fault(struct scatterlist *sg, bool last,
			       unsigned long page_size, unsigned int max_seg)
{
	if (!sg_dma_len(sg))
		return "is empty";
	if (!IS_ALIGNED(sg_dma_len(sg), page_size))
		return "is no multiple of the page size";
	if (sg_dma_len(sg) > max_seg)
		return "is longer than the device's segment limit";
	if (sg_dma_len(sg) != sg->length)
		return "has two different lengths";
	if (!PAGE_ALIGNED(sg_dma_address(sg)))
		return "is not page aligned";
	if (sg_dma_address(sg) + sg_dma_len(sg) < sg_dma_address(sg))
		return "wraps around";
	if (sg_is_last(sg) != last)
		return last ? "is the last but has no end mark"
			    : "has an end mark but is not the last";
	return NULL;
}

static bool audit_entries(struct peer_umem *peer, unsigned long page_size)
{
	unsigned long start = ALIGN_DOWN(peer->umem.address, page_size);
	unsigned long end = ALIGN(peer->umem.address + peer->umem.length,
				  page_size);
	/* dma_get_max_seg_size() does not take NULL. */
	unsigned int max_seg = peer->dma_device ?
		dma_get_max_seg_size(peer->dma_device) : UINT_MAX;
	struct sg_table *sgt = peer_sgt(peer);
	struct scatterlist *sg = sgt->sgl;
	unsigned long sum = 0;
	const char *fault;
	unsigned int i;

	for (i = 0; i < sgt->nents; i++, sg = sg_next(sg)) {
		fault = entry_fault(sg, i == sgt->nents - 1, page_size, max_seg);
		if (fault) {
			peer_violation(peer->client, "entry %u of %u %s", i,
				       sgt->nents, fault);
			return false;
		}
		sum += sg_dma_len(sg);
	}
	/*
	 * The core cuts the first entry by what lies between the start rounded
	 * to the client's pages and to ours: only right if entry 0 begins at
	 * the former and the last ends at the end rounded up.
	 */
	if (sum != end - start) {
		peer_violation(peer->client, "entries sum to %#lx, range is %#lx",
			       sum, end - start);
		return false;
	}
	return true;
}

bool peer_audit_mapping(struct peer_umem *peer, unsigned long page_size)
{
	struct sg_table *sgt = peer_sgt(peer);

	peer->mapped_header = *sgt;

	if (!is_power_of_2(page_size) || page_size < PAGE_SIZE) {
		peer_violation(peer->client, "page size is %#lx", page_size);
		return false;
	}
	if (!sgt->sgl || !sgt->nents || sgt->orig_nents != sgt->nents) {
		peer_violation(peer->client, "table has %u of %u entries",
			       sgt->nents, sgt->orig_nents);
		return false;
	}
	return audit_entries(peer, page_size);
}

/* put_pages() comes next, and must not find half a table in what we pass. */
void peer_audit_failed_mapping(struct peer_umem *peer)
{
	struct sg_table *sgt = peer_sgt(peer);

	if (sgt->sgl || sgt->nents || sgt->orig_nents)
		peer_violation(peer->client,
			       "dma_map failed and left %u entries",
			       sgt->nents);
}

/* The table is the core's from dma_map to dma_unmap. */
void peer_audit_unmapping(struct peer_umem *peer)
{
	if (memcmp(&peer->mapped_header, peer_sgt(peer),
		   sizeof(peer->mapped_header)))
		peer_violation(peer->client, "table header changed while mapped");
}
