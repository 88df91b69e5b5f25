// SPDX-License-Identifier: GPL-2.0

//! Tracepoints. C header: `rust/helpers/trace.h`.

use kernel::prelude::*;
use peermem_logic::errno::Errno;

use super::clock::Moment;

unsafe extern "C" {
    safe fn peermem_helper_tracing() -> bool;
    safe fn peermem_helper_trace_acquire(
        id: u64,
        address: u64,
        length: u64,
        pages: u64,
        ret: c_int,
        ns: u64,
    );
    safe fn peermem_helper_trace_get_pages(id: u64, length: u64, ret: c_int, ns: u64);
    safe fn peermem_helper_trace_dma_map(id: u64, length: u64, entries: u32, ret: c_int, ns: u64);
    safe fn peermem_helper_trace_dma_unmap(id: u64, length: u64, ret: c_int, ns: u64);
    safe fn peermem_helper_trace_put_pages(id: u64, length: u64, ret: c_int, ns: u64);
    safe fn peermem_helper_trace_release(id: u64, length: u64, ret: c_int, ns: u64);
    safe fn peermem_helper_trace_free_callback(id: u64, length: u64, mapped: bool, ns: u64);
}

/// A call that is under way, and since when, if anybody wants to know.
pub(crate) struct Call(Option<Moment>);

fn ret(result: Result<(), Errno>) -> c_int {
    match result {
        Ok(()) => 0,
        Err(errno) => errno.to_negative(),
    }
}

impl Call {
    pub(crate) fn begin() -> Self {
        Self(peermem_helper_tracing().then(Moment::now))
    }

    fn ns(&self) -> u64 {
        self.0.map(Moment::elapsed).unwrap_or_default()
    }

    pub(crate) fn acquire(
        self,
        id: u64,
        address: u64,
        length: u64,
        pages: u64,
        result: Result<(), Errno>,
    ) {
        if self.0.is_some() {
            peermem_helper_trace_acquire(id, address, length, pages, ret(result), self.ns());
        }
    }

    pub(crate) fn get_pages(self, id: u64, length: u64, result: Result<(), Errno>) {
        if self.0.is_some() {
            peermem_helper_trace_get_pages(id, length, ret(result), self.ns());
        }
    }

    pub(crate) fn dma_map(self, id: u64, length: u64, entries: u32, result: Result<(), Errno>) {
        if self.0.is_some() {
            peermem_helper_trace_dma_map(id, length, entries, ret(result), self.ns());
        }
    }

    pub(crate) fn dma_unmap(self, id: u64, length: u64, result: Result<(), Errno>) {
        if self.0.is_some() {
            peermem_helper_trace_dma_unmap(id, length, ret(result), self.ns());
        }
    }

    pub(crate) fn put_pages(self, id: u64, length: u64, result: Result<(), Errno>) {
        if self.0.is_some() {
            peermem_helper_trace_put_pages(id, length, ret(result), self.ns());
        }
    }

    pub(crate) fn release(self, id: u64, length: u64) {
        if self.0.is_some() {
            peermem_helper_trace_release(id, length, 0, self.ns());
        }
    }

    pub(crate) fn free_callback(self, id: u64, length: u64, mapped: bool) {
        if self.0.is_some() {
            peermem_helper_trace_free_callback(id, length, mapped, self.ns());
        }
    }
}
