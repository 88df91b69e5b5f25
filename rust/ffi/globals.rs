// SPDX-License-Identifier: GPL-2.0

//! All that the module knows beyond one registration, each behind a lock of its own.

use core::pin::Pin;

use kernel::sync::{
    global_lock,
    SetOnce, //
};

use super::nvidia_p2p::revocable;
use crate::{
    control::sysfs::Root,
    failures::Failures,
    peers::Peers,
    registry::Registry, //
};

global_lock! {
    // SAFETY: By `Globals`.
    /// The live registrations.
    pub(crate) unsafe(uninit) static REGISTRY: Mutex<Registry> = Registry::new();
}

global_lock! {
    // SAFETY: By `Globals`.
    /// The last failures.
    pub(crate) unsafe(uninit) static FAILURES: Mutex<Failures> = Failures::new();
}

global_lock! {
    // SAFETY: By `Globals`.
    /// The GPUs seen so far.
    pub(crate) unsafe(uninit) static GPUS: Mutex<Peers> = Peers::new();
}

global_lock! {
    // SAFETY: By `Globals`.
    /// The RDMA devices seen so far.
    pub(crate) unsafe(uninit) static DEVICES: Mutex<Peers> = Peers::new();
}

global_lock! {
    // SAFETY: By `Globals`.
    /// Where GPUs and RDMA devices get their directories in sysfs.
    pub(crate) unsafe(uninit) static ROOT: Mutex<Option<Root>> = None;
}

global_lock! {
    // SAFETY: By `Globals`.
    /// Makes the coming and the going of the GPU driver's page tables take turns.
    ///
    /// The driver knows a page table by its address alone. If one dies with its memory while we
    /// are on the way to give it back, no new one may get that address before we are through.
    pub(super) unsafe(uninit) static TABLES: Mutex<()> = ();
}

/// The first thing that the module makes when it is loaded, and the last that it drops: nothing
/// of it runs before or after but the end of a callback.
pub(crate) struct Globals {
    /// Whether the GPU driver calls back.
    callbacks: bool,
}

impl Globals {
    /// Makes ready what is static. `callbacks` says whether there will be revocable pins.
    pub(crate) fn init(callbacks: bool) -> Self {
        static READY: SetOnce<()> = SetOnce::new();
        if READY.populate(()) {
            // SAFETY: `populate` is true only once, and nobody uses them before.
            unsafe {
                REGISTRY.init();
                FAILURES.init();
                GPUS.init();
                DEVICES.init();
                ROOT.init();
                TABLES.init();
            }
        }
        Self { callbacks }
    }
}

impl Drop for Globals {
    fn drop(&mut self) {
        // The GPU driver does not count calls of its free callback. One that gave back the last
        // reference to the module may still have its last few instructions to run.
        if self.callbacks {
            revocable::wait_for_callbacks();
        }
    }
}
