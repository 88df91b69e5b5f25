// SPDX-License-Identifier: GPL-2.0

//! What the kernel series that the module supports have in different ways, and nothing else.
//!
//! `Kbuild` sets `linux_7_3` for Linux 7.3 and later; without it the kernel is 7.2. To give up a
//! series is to delete its lines here and in `Kbuild`.

use kernel::{
    bindings,
    error::Error,
    task::Pid, //
};

/// Our own `struct module`.
#[cfg(linux_7_3)]
#[inline]
pub(super) fn this_module() -> *mut bindings::module {
    kernel::module::this_module::<crate::LocalModule>().as_ptr()
}

/// Our own `struct module`.
#[cfg(not(linux_7_3))]
#[inline]
pub(super) fn this_module() -> *mut bindings::module {
    crate::THIS_MODULE.as_ptr()
}

/// The id of the current process, as its initial PID namespace has it.
#[cfg(linux_7_3)]
pub(crate) fn current_tgid() -> Pid {
    kernel::current!().tgid()
}

/// The id of the current process, as its initial PID namespace has it.
#[cfg(not(linux_7_3))]
pub(crate) fn current_tgid() -> Pid {
    kernel::current!().group_leader().pid()
}

/// DMA in both directions.
#[cfg(linux_7_3)]
pub(super) const DMA_BIDIRECTIONAL: bindings::dma_data_direction =
    bindings::dma_data_direction::DMA_BIDIRECTIONAL;

/// DMA in both directions.
#[cfg(not(linux_7_3))]
pub(super) const DMA_BIDIRECTIONAL: bindings::dma_data_direction =
    bindings::dma_data_direction_DMA_BIDIRECTIONAL;

/// "Operation not supported on transport endpoint".
#[cfg(linux_7_3)]
pub(super) fn eopnotsupp() -> Error {
    kernel::error::code::EOPNOTSUPP
}

/// "Operation not supported on transport endpoint".
#[cfg(not(linux_7_3))]
pub(super) fn eopnotsupp() -> Error {
    Error::from_errno(-(bindings::EOPNOTSUPP as kernel::ffi::c_int))
}
