// SPDX-License-Identifier: GPL-2.0

//! The one table of errors: what the GPU driver says, and what the application gets to see.
//!
//! `Documentation/errors.rst` shows the same table to users; a host test compares the two.

use core::fmt;

/// An error number that user space knows.
///
/// # Invariants
///
/// Positive and at most [`Errno::MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// I/O error.
    pub const EIO: Self = Self(5);
    /// Try again.
    pub const EAGAIN: Self = Self(11);
    /// Out of memory.
    pub const ENOMEM: Self = Self(12);
    /// Bad address.
    pub const EFAULT: Self = Self(14);
    /// Invalid argument.
    pub const EINVAL: Self = Self(22);
    /// Operation not supported.
    pub const EOPNOTSUPP: Self = Self(95);

    /// Largest number in `include/uapi/asm-generic/errno.h` (`EHWPOISON`).
    pub const MAX: i32 = 133;

    /// The number as kernel functions return it: negative.
    pub const fn to_negative(self) -> i32 {
        // By the type's invariant this cannot overflow.
        self.0.wrapping_neg()
    }

    /// What a failing call of the GPU driver means to user space.
    ///
    /// The driver's own -ENOTSUPP (524) and other numbers beyond [`Errno::MAX`] are internal to
    /// the kernel: `strerror` would print "Unknown error 524". A positive result is no error
    /// number at all.
    pub const fn from_driver(ret: i32) -> Self {
        const ENOTSUPP: i32 = 524;
        match ret.checked_neg() {
            Some(ENOTSUPP) => Self::EOPNOTSUPP,
            // INVARIANT: Just checked.
            Some(errno) if errno >= 1 && errno <= Self::MAX => Self(errno),
            _ => Self::EIO,
        }
    }
}

/// Outcome of an attempt to pin a range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pin {
    /// The range is pinned.
    Pinned,
    /// No GPU memory of this process; somebody else may know the range.
    NotGpuMemory,
    /// GPU memory that cannot be pinned.
    Failed(Errno),
}

/// Reads the result of `nvidia_p2p_get_pages_persistent` or `nvidia_p2p_get_pages`.
///
/// nv-p2p.c turns `NV_ERR_OBJECT_NOT_FOUND`, which means "no allocation of this process covers
/// the range", into -EINVAL; all else is trouble with memory that *is* the GPU's. The exception is
/// -ENOMEM, which can also come from the driver's own allocations before it looks the range up.
pub const fn pin(ret: i32) -> Pin {
    const NOT_FOUND: i32 = Errno::EINVAL.to_negative();
    match ret {
        0 => Pin::Pinned,
        NOT_FOUND => Pin::NotGpuMemory,
        _ => Pin::Failed(Errno::from_driver(ret)),
    }
}

/// Why a registration of GPU memory failed. Its text is what the kernel log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The GPU driver refused to pin.
    Pin(Errno),
    /// The GPU driver returned a page table of this version, which nobody here can read.
    PageTableVersion(u32),
    /// The page table does not describe the pinned range in pages of 64 KiB.
    PageTableShape,
    /// The DMA device is none, or is not a PCI device.
    NotPciDevice,
    /// The GPU driver refused to map.
    Map(Errno),
    /// The GPU driver returned a DMA mapping of this version, which nobody here can read.
    MappingVersion(u32),
    /// The DMA mapping does not describe the page table.
    MappingShape,
    /// The kernel has no memory for the registration or its scatterlist.
    NoMemory,
    /// The application freed the memory before it was registered.
    Freed,
    /// A revocable pin of memory that the CPU caches: only the GPU driver could map it, and its
    /// function for that may not be called for memory that may be freed meanwhile.
    CoherentMemory,
    /// The administrator wants no new registrations.
    Drain,
    /// The administrator's limit on pinned memory is reached.
    Limit,
    /// The peer-memory core called out of order or about another range.
    Contract,
}

impl Failure {
    /// What the application sees.
    pub const fn errno(self) -> Errno {
        match self {
            Self::Pin(errno) | Self::Map(errno) => errno,
            Self::PageTableVersion(_)
            | Self::PageTableShape
            | Self::MappingVersion(_)
            | Self::MappingShape
            | Self::CoherentMemory => Errno::EOPNOTSUPP,
            Self::Freed => Errno::EFAULT,
            Self::NotPciDevice | Self::Contract => Errno::EINVAL,
            Self::NoMemory | Self::Limit => Errno::ENOMEM,
            Self::Drain => Errno::EAGAIN,
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pin(Errno::ENOMEM) => {
                f.write_str("the GPU driver has no room to pin it (BAR1 exhausted?)")
            }
            Self::Pin(_) => f.write_str("the GPU driver cannot pin it"),
            Self::PageTableVersion(version) => {
                write!(
                    f,
                    "page table version {version:#x} of the GPU driver is unknown"
                )
            }
            Self::PageTableShape => {
                f.write_str("the GPU driver's page table does not fit the range")
            }
            Self::NotPciDevice => f.write_str("the RDMA device is not a PCI device"),
            Self::Map(_) => f.write_str("it cannot be mapped for the RDMA device"),
            Self::MappingVersion(version) => {
                write!(
                    f,
                    "DMA mapping version {version:#x} of the GPU driver is unknown"
                )
            }
            Self::MappingShape => {
                f.write_str("the GPU driver's DMA mapping does not fit the range")
            }
            Self::NoMemory => f.write_str("out of kernel memory"),
            Self::Freed => f.write_str("it was freed meanwhile"),
            Self::CoherentMemory => {
                f.write_str("memory of a coherent GPU needs persistent_api_support=1")
            }
            Self::Drain => f.write_str("no new registrations are wanted (state is drain)"),
            Self::Limit => f.write_str("max_pinned_bytes is reached"),
            Self::Contract => f.write_str("unexpected call by the peer-memory core"),
        }
    }
}

/// Whether a page table of this version can be read: 1.2 and later minor versions, and all of 2.
///
/// Version 2.0 (driver 580.65.06) only added a field at the end. NVIDIA's own compatibility macro
/// would reject it.
pub const fn page_table_version_known(version: u32) -> bool {
    matches!((version >> 16, version & 0xffff), (1, 2..) | (2, _))
}

/// Whether a page table of this version says in its flags if the CPU caches the memory.
pub const fn page_table_has_flags(version: u32) -> bool {
    version >> 16 == 2
}

/// Whether a DMA mapping of this version can be read: 2.3 and later minor versions.
pub const fn mapping_version_known(version: u32) -> bool {
    matches!((version >> 16, version & 0xffff), (2, 3..))
}
