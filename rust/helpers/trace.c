// SPDX-License-Identifier: GPL-2.0

#define CREATE_TRACE_POINTS
#include "trace.h"

#include "helpers.h"

/* Whether anybody looks: if not, nobody need take the time. */
bool peermem_helper_tracing(void)
{
	return trace_acquire_enabled() || trace_get_pages_enabled() ||
	       trace_dma_map_enabled() || trace_dma_unmap_enabled() ||
	       trace_put_pages_enabled() || trace_release_enabled() ||
	       trace_free_callback_enabled();
}

void peermem_helper_trace_acquire(u64 id, u64 address, u64 length, u64 pages,
				  int ret, u64 ns)
{
	trace_acquire(id, address, length, pages, ret, ns);
}

void peermem_helper_trace_get_pages(u64 id, u64 length, int ret, u64 ns)
{
	trace_get_pages(id, length, ret, ns);
}

void peermem_helper_trace_dma_map(u64 id, u64 length, u32 entries, int ret,
				  u64 ns)
{
	trace_dma_map(id, length, entries, ret, ns);
}

void peermem_helper_trace_dma_unmap(u64 id, u64 length, int ret, u64 ns)
{
	trace_dma_unmap(id, length, ret, ns);
}

void peermem_helper_trace_put_pages(u64 id, u64 length, int ret, u64 ns)
{
	trace_put_pages(id, length, ret, ns);
}

void peermem_helper_trace_release(u64 id, u64 length, int ret, u64 ns)
{
	trace_release(id, length, ret, ns);
}

void peermem_helper_trace_free_callback(u64 id, u64 length, bool mapped, u64 ns)
{
	trace_free_callback(id, length, mapped, ns);
}
