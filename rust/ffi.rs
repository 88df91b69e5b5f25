// SPDX-License-Identifier: GPL-2.0

//! Everything foreign: the only part of the module with `unsafe`, `extern` and raw kernel types.
//!
//! Each file wraps one thing of the outside in safe types that clean up after themselves; what the
//! module *does* is decided above, in `client` and `registration`.

pub(crate) mod clock;
pub(crate) mod compat;
pub(crate) mod debugfs;
pub(crate) mod device;
pub(crate) mod globals;
pub(crate) mod helpers;
pub(crate) mod module;
pub(crate) mod nvidia_p2p;
pub(crate) mod peer_memory;
pub(crate) mod process;
pub(crate) mod providers;
pub(crate) mod scatterlist;
pub(crate) mod sysfs;
pub(crate) mod trace;
