// SPDX-License-Identifier: GPL-2.0

//! The decisions of the module, without a kernel: ranges, runs, errors, life of a registration.
//!
//! Everything here is a pure function of its arguments. The module links this crate, and a cargo
//! package runs tests on the very same files (`tests/host`). Nothing here allocates, blocks, logs
//! or knows an address of kernel memory.

#![forbid(unsafe_code)]

pub mod coalesce;
pub mod errno;
pub mod histogram;
pub mod lifecycle;
pub mod range;
pub mod reason;
pub mod registration;
