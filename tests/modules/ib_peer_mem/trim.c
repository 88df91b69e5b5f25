// SPDX-License-Identifier: GPL-2.0
/*
 * A client rounds to its own page size, the driver wants PAGE_SIZE: cut the
 * first and the last entry, in the client's own table, and give back what was
 * cut before the client sees its table again (fix_peer_sgls() in peer_mem.c,
 * OFED 5.5 to 25.10; older cores told the driver the page size instead).
 */
#include <linux/align.h>
#include <linux/dma-mapping.h>
#include <linux/mm.h>

#include "core.h"

static void resize(struct scatterlist *sg, int change)
{
	sg->length += change;
	sg_dma_len(sg) += change;
}

void peer_trim(struct peer_umem *peer, unsigned long page_size)
{
	unsigned long start = peer->umem.address;
	unsigned long end = start + peer->umem.length;
	struct sg_table *sgt = peer_sgt(peer);

	peer->first_sg = sgt->sgl;
	peer->last_sg = sg_last(sgt->sgl, sgt->nents);
	peer->head = ALIGN_DOWN(start, PAGE_SIZE) - ALIGN_DOWN(start, page_size);
	peer->tail = ALIGN(end, page_size) - ALIGN(end, PAGE_SIZE);

	sg_dma_address(peer->first_sg) += peer->head;
	resize(peer->first_sg, -peer->head);
	resize(peer->last_sg, -peer->tail);
}

void peer_untrim(struct peer_umem *peer)
{
	if (!peer->first_sg)
		return;
	sg_dma_address(peer->first_sg) -= peer->head;
	resize(peer->first_sg, peer->head);
	resize(peer->last_sg, peer->tail);
	peer->first_sg = NULL;
}
