// SPDX-License-Identifier: GPL-2.0

//! References to this module, and the end of them.
//!
//! C header: [`include/linux/module.h`](srctree/include/linux/module.h)

use kernel::bindings;

use super::compat::this_module;

/// A reference that keeps the module loaded.
///
/// # Invariants
///
/// The value holds one reference.
pub(crate) struct ModuleRef(());

impl ModuleRef {
    /// `None` if the module is on its way out.
    pub(crate) fn get() -> Option<Self> {
        // SAFETY: Our own module.
        // INVARIANT: The reference is this value's.
        unsafe { bindings::try_module_get(this_module()) }.then(|| Self(()))
    }

    /// Keeps the reference without a value that stands for it.
    pub(super) fn into_foreign(self) {
        core::mem::forget(self);
    }

    /// Takes over a reference.
    ///
    /// # Safety
    ///
    /// The caller makes up for one [`Self::into_foreign`].
    pub(super) unsafe fn from_foreign() -> Self {
        // INVARIANT: By the safety requirements.
        Self(())
    }
}

impl Drop for ModuleRef {
    fn drop(&mut self) {
        // SAFETY: By the type invariant there is a reference to give back. Our code cannot vanish
        // before the caller of our callback has control again: in calls of the peer-memory core,
        // unloading first unregisters the client, which waits for them; in calls of the GPU driver
        // it waits when it drops `Globals`.
        unsafe { bindings::module_put(this_module()) };
    }
}
