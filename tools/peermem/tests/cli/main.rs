// SPDX-License-Identifier: GPL-2.0

//! The program on recorded trees.

mod behaviour;
mod golden;
mod program;
mod prometheus;
mod report;
mod schema;
mod tree;
