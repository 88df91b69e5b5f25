// SPDX-License-Identifier: GPL-2.0

//! The commands, one file each.

pub mod bench;
pub mod control;
pub mod generate;
pub mod report;
pub mod show;
pub mod stats;
pub mod status;
pub mod top;
pub mod watch;
