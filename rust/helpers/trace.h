/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints: a call of the peer-memory core or of the GPU driver each.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM nvidia_peermem

#if !defined(_NVIDIA_PEERMEM_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _NVIDIA_PEERMEM_TRACE_H

#include <linux/tracepoint.h>

/* id: 0 if there is no registration; ret: 0 or -errno; ns: how long it took */
TRACE_EVENT(acquire,
	TP_PROTO(u64 id, u64 address, u64 length, u64 pages, int ret, u64 ns),
	TP_ARGS(id, address, length, pages, ret, ns),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, address)
		__field(u64, length)
		__field(u64, pages)
		__field(u64, ns)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->address = address;
		__entry->length = length;
		__entry->pages = pages;
		__entry->ns = ns;
		__entry->ret = ret;
	),
	TP_printk("id=%llu address=0x%llx length=%llu pages=%llu ret=%d ns=%llu",
		  __entry->id, __entry->address, __entry->length,
		  __entry->pages, __entry->ret, __entry->ns)
);

TRACE_EVENT(dma_map,
	TP_PROTO(u64 id, u64 length, u32 entries, int ret, u64 ns),
	TP_ARGS(id, length, entries, ret, ns),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, length)
		__field(u64, ns)
		__field(u32, entries)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->length = length;
		__entry->ns = ns;
		__entry->entries = entries;
		__entry->ret = ret;
	),
	TP_printk("id=%llu length=%llu entries=%u ret=%d ns=%llu",
		  __entry->id, __entry->length, __entry->entries, __entry->ret,
		  __entry->ns)
);

DECLARE_EVENT_CLASS(nvidia_peermem_call,
	TP_PROTO(u64 id, u64 length, int ret, u64 ns),
	TP_ARGS(id, length, ret, ns),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, length)
		__field(u64, ns)
		__field(int, ret)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->length = length;
		__entry->ns = ns;
		__entry->ret = ret;
	),
	TP_printk("id=%llu length=%llu ret=%d ns=%llu",
		  __entry->id, __entry->length, __entry->ret, __entry->ns)
);

#define NVIDIA_PEERMEM_CALL(name)					\
DEFINE_EVENT(nvidia_peermem_call, name,					\
	TP_PROTO(u64 id, u64 length, int ret, u64 ns),			\
	TP_ARGS(id, length, ret, ns))

NVIDIA_PEERMEM_CALL(get_pages);
NVIDIA_PEERMEM_CALL(dma_unmap);
NVIDIA_PEERMEM_CALL(put_pages);
NVIDIA_PEERMEM_CALL(release);

TRACE_EVENT(free_callback,
	TP_PROTO(u64 id, u64 length, bool mapped, u64 ns),
	TP_ARGS(id, length, mapped, ns),
	TP_STRUCT__entry(
		__field(u64, id)
		__field(u64, length)
		__field(u64, ns)
		__field(bool, mapped)
	),
	TP_fast_assign(
		__entry->id = id;
		__entry->length = length;
		__entry->ns = ns;
		__entry->mapped = mapped;
	),
	TP_printk("id=%llu length=%llu mapped=%d ns=%llu", __entry->id,
		  __entry->length, __entry->mapped, __entry->ns)
);

#endif /* _NVIDIA_PEERMEM_TRACE_H */

#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE trace
#include <trace/define_trace.h>
