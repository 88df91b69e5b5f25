// SPDX-License-Identifier: GPL-2.0

//! The process that pinned.
//!
//! C header: [`include/linux/pid.h`](srctree/include/linux/pid.h)

use core::ptr::NonNull;

use kernel::{
    bindings,
    fmt,
    task::Task, //
};

use super::helpers;

/// A process, by an identity that no later one can have as long as this value lives.
///
/// # Invariants
///
/// `0` is a `struct pid` with one reference that is this value's.
pub(super) struct Process(NonNull<bindings::pid>);

// SAFETY: Such references may be used and given back by any thread.
unsafe impl Send for Process {}
// SAFETY: As above.
unsafe impl Sync for Process {}

impl Process {
    /// The process that runs now; `None` for a thread that was reaped, which runs no system calls.
    pub(super) fn current() -> Option<Self> {
        // SAFETY: The current task is alive.
        let pid =
            unsafe { bindings::get_task_pid(Task::current_raw(), bindings::pid_type_PIDTYPE_TGID) };
        // INVARIANT: `get_task_pid` took a reference.
        NonNull::new(pid).map(Self)
    }

    /// Whether this is the process that runs now.
    pub(super) fn is_current(&self) -> bool {
        Self::current().is_some_and(|current| current.0 == self.0)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // SAFETY: By the type invariant, the reference is ours to give back.
        unsafe { bindings::put_pid(self.0.as_ptr()) };
    }
}

/// The name of a thread, which may have set any bytes; shown in printable ASCII.
#[derive(Clone, Copy)]
pub(crate) struct Name([u8; Self::LEN]);

impl Name {
    /// `TASK_COMM_LEN`, which is asserted in the C helper.
    pub(super) const LEN: usize = 16;

    /// That of the current thread.
    pub(crate) fn current() -> Self {
        let mut name = [0; Self::LEN];
        // SAFETY: There is room for a name.
        unsafe { helpers::peermem_helper_comm(&mut name) };
        Self(name)
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut name = self.0;
        for byte in &mut name {
            if *byte != 0 && !byte.is_ascii_graphic() && *byte != b' ' {
                *byte = b'?';
            }
        }
        let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
        f.write_str(core::str::from_utf8(name).unwrap_or_default())
    }
}
