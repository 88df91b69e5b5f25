// SPDX-License-Identifier: GPL-2.0

//! What the administrator sees and sets. It shows what `registry`, `stats`, `peers` and `failures`
//! know, and decides nothing.

pub(crate) mod debugfs;
pub(crate) mod sysfs;
