// SPDX-License-Identifier: GPL-2.0

//! Time.

use kernel::bindings;

use super::helpers;

/// Nanoseconds on the clock that the kernel log is stamped with.
pub(crate) fn log_ns() -> u64 {
    helpers::log_ns()
}

/// A moment, to see how long something takes.
#[derive(Clone, Copy)]
pub(crate) struct Moment(u64);

impl Moment {
    pub(crate) fn now() -> Self {
        // SAFETY: May be called from anywhere.
        Self(unsafe { bindings::ktime_get_mono_fast_ns() })
    }

    /// Nanoseconds since then.
    pub(crate) fn elapsed(self) -> u64 {
        Self::now().0.saturating_sub(self.0)
    }
}
