// SPDX-License-Identifier: GPL-2.0

//! The kinds of failures that are counted, by the names of their counters.

use core::ffi::CStr;

use crate::errno::{Errno, Failure};

/// Why something failed, without the details of [`Failure`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The GPU driver has no room to pin.
    PinEnomem,
    /// The GPU driver cannot pin on this GPU.
    PinEopnotsupp,
    /// The GPU driver failed to pin.
    PinEio,
    /// The GPU driver did not pin, with another errno.
    PinOther,
    /// The page table is of an unknown version.
    PageTableVersion,
    /// The page table does not fit.
    PageTableShape,
    /// There is no PCI device to map for.
    NotPciDevice,
    /// There is no memory for a mapping.
    MapEnomem,
    /// The GPU cannot be reached by the device.
    MapEopnotsupp,
    /// Mapping failed.
    MapEio,
    /// Mapping failed with another errno.
    MapOther,
    /// The DMA mapping is of an unknown version.
    MappingVersion,
    /// The DMA mapping does not fit.
    MappingShape,
    /// The kernel has no memory.
    OutOfMemory,
    /// The core broke its contract.
    Contract,
    /// The memory was freed meanwhile.
    Freed,
    /// The GPU is coherent.
    CoherentMemory,
    /// No new registrations are wanted.
    Drain,
    /// The limit on pinned memory is reached.
    Limit,
    /// The GPU driver did not take a pin back.
    Unpin,
    /// The GPU driver did not unmap.
    Unmap,
}

impl Reason {
    /// How many there are.
    pub const COUNT: usize = Self::Unmap as usize + 1;

    /// All of them, in order.
    pub const ALL: [Self; Self::COUNT] = [
        Self::PinEnomem,
        Self::PinEopnotsupp,
        Self::PinEio,
        Self::PinOther,
        Self::PageTableVersion,
        Self::PageTableShape,
        Self::NotPciDevice,
        Self::MapEnomem,
        Self::MapEopnotsupp,
        Self::MapEio,
        Self::MapOther,
        Self::MappingVersion,
        Self::MappingShape,
        Self::OutOfMemory,
        Self::Contract,
        Self::Freed,
        Self::CoherentMemory,
        Self::Drain,
        Self::Limit,
        Self::Unpin,
        Self::Unmap,
    ];

    /// The kind of `failure`.
    pub const fn of(failure: Failure) -> Self {
        match failure {
            Failure::Pin(Errno::ENOMEM) => Self::PinEnomem,
            Failure::Pin(Errno::EOPNOTSUPP) => Self::PinEopnotsupp,
            Failure::Pin(Errno::EIO) => Self::PinEio,
            Failure::Pin(_) => Self::PinOther,
            Failure::PageTableVersion(_) => Self::PageTableVersion,
            Failure::PageTableShape => Self::PageTableShape,
            Failure::NotPciDevice => Self::NotPciDevice,
            Failure::Map(Errno::ENOMEM) => Self::MapEnomem,
            Failure::Map(Errno::EOPNOTSUPP) => Self::MapEopnotsupp,
            Failure::Map(Errno::EIO) => Self::MapEio,
            Failure::Map(_) => Self::MapOther,
            Failure::MappingVersion(_) => Self::MappingVersion,
            Failure::MappingShape => Self::MappingShape,
            Failure::NoMemory => Self::OutOfMemory,
            Failure::Contract => Self::Contract,
            Failure::Freed => Self::Freed,
            Failure::CoherentMemory => Self::CoherentMemory,
            Failure::Drain => Self::Drain,
            Failure::Limit => Self::Limit,
        }
    }

    /// The name of its counter.
    pub const fn name(self) -> &'static CStr {
        match self {
            Self::PinEnomem => c"pin_enomem",
            Self::PinEopnotsupp => c"pin_eopnotsupp",
            Self::PinEio => c"pin_eio",
            Self::PinOther => c"pin_other",
            Self::PageTableVersion => c"page_table_version",
            Self::PageTableShape => c"page_table_shape",
            Self::NotPciDevice => c"not_pci_device",
            Self::MapEnomem => c"map_enomem",
            Self::MapEopnotsupp => c"map_eopnotsupp",
            Self::MapEio => c"map_eio",
            Self::MapOther => c"map_other",
            Self::MappingVersion => c"mapping_version",
            Self::MappingShape => c"mapping_shape",
            Self::OutOfMemory => c"out_of_memory",
            Self::Contract => c"contract",
            Self::Freed => c"freed",
            Self::CoherentMemory => c"coherent_memory",
            Self::Drain => c"drain",
            Self::Limit => c"limit",
            Self::Unpin => c"unpin",
            Self::Unmap => c"unmap",
        }
    }
}
