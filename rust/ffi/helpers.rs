// SPDX-License-Identifier: GPL-2.0

//! Safe names for the C helpers. C header: `rust/helpers/helpers.h`.

use kernel::{
    bindings,
    prelude::*, //
};

use super::{
    device::PciName,
    process::Name, //
};

/// `IB_PEER_MEMORY_VER_MAX`: room for a version, with its NUL.
pub(super) const VERSION_MAX: usize = 16;

#[allow(improper_ctypes)] // `struct device` has empty members in some configurations.
unsafe extern "C" {
    static peermem_helper_peerdirect_support: c_int;
    static peermem_helper_persistent_api_support: c_int;
    static peermem_helper_version: [u8; VERSION_MAX];
    pub(super) fn peermem_helper_dma_get_max_seg_size(dev: *mut bindings::device) -> c_uint;
    pub(super) fn peermem_helper_dma_mapping_error(
        dev: *mut bindings::device,
        addr: bindings::dma_addr_t,
    ) -> c_int;
    pub(super) fn peermem_helper_comm(name: *mut [u8; Name::LEN]);
    pub(super) fn peermem_helper_dev_name(
        dev: *mut bindings::device,
        name: *mut [u8; PciName::LEN],
    );
    pub(super) fn peermem_helper_pci_name_at(addr: u64, name: *mut [u8; PciName::LEN]);
    pub(super) fn peermem_helper_sysfs_file(
        kobj: *mut bindings::kobject,
        attr: *mut bindings::kobj_attribute,
        name: *const c_char,
        mode: bindings::umode_t,
        show: unsafe extern "C" fn(
            *mut bindings::kobject,
            *mut bindings::kobj_attribute,
            *mut c_char,
        ) -> isize,
        store: unsafe extern "C" fn(
            *mut bindings::kobject,
            *mut bindings::kobj_attribute,
            *const c_char,
            usize,
        ) -> isize,
    ) -> c_int;
    safe fn peermem_helper_log_ns() -> u64;
    safe fn peermem_helper_wait_for_callbacks();
    safe fn peermem_helper_driver_enter();
    safe fn peermem_helper_driver_leave();
    safe fn peermem_helper_may_log_failure() -> bool;
    safe fn peermem_helper_may_log_leak() -> bool;
}

/// The module parameter `peerdirect_support`.
pub(crate) fn peerdirect_support() -> i32 {
    // SAFETY: The kernel sets parameters before it calls our init, and 0444 lets nobody write later.
    unsafe { peermem_helper_peerdirect_support }
}

/// The module parameter `persistent_api_support`.
pub(crate) fn persistent_api_support() -> i32 {
    // SAFETY: As above.
    unsafe { peermem_helper_persistent_api_support }
}

/// Version of this module, as in its modinfo.
pub(crate) fn version() -> &'static CStr {
    // SAFETY: A constant of this module, which lives as long as any of its code runs.
    CStr::from_bytes_until_nul(unsafe { &peermem_helper_version }).unwrap_or_default()
}

/// Whether the kernel log may take another line about a failed registration now.
///
/// Any user can provoke such failures at will.
pub(crate) fn may_log_failure() -> bool {
    peermem_helper_may_log_failure()
}

/// Whether the kernel log may take another line about something the GPU driver did not take back.
pub(super) fn may_log_leak() -> bool {
    peermem_helper_may_log_leak()
}

/// Nanoseconds on the clock of the kernel log.
pub(super) fn log_ns() -> u64 {
    peermem_helper_log_ns()
}

/// Waits until each task was seen outside of the kernel, or asleep of its own will. Sleeps.
pub(super) fn wait_for_callbacks() {
    peermem_helper_wait_for_callbacks();
}

/// Tells lockdep that we are about to call the GPU driver, which takes its API lock.
///
/// Only told, not held: in the callback it is the driver's lock that is held first.
pub(super) fn entering_driver() {
    drop(InDriver::enter());
}

/// Tells lockdep that the GPU driver's API lock is held, as it is in the free callback.
pub(super) struct InDriver(());

impl InDriver {
    /// From here until the value is dropped.
    pub(super) fn enter() -> Self {
        peermem_helper_driver_enter();
        Self(())
    }
}

impl Drop for InDriver {
    fn drop(&mut self) {
        peermem_helper_driver_leave();
    }
}
