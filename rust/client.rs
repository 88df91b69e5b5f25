// SPDX-License-Identifier: GPL-2.0

//! The policy: what the peer-memory client `nv_mem` answers.
//!
//! One pin per registration: `acquire` has to pin to learn whether the range is GPU memory, and
//! the pin it got serves the registration. If it is GPU memory that cannot be pinned, the client
//! claims it all the same, so that the application sees the driver's own errno and not the "Bad
//! address" of the attempt to pin it as host memory.

use kernel::{
    current,
    prelude::*, //
};
use peermem_logic::{
    errno::{
        Errno,
        Failure, //
    },
    range::PinRange,
};

use crate::{
    ffi::{
        device::PciDevice,
        helpers,
        nvidia_p2p::{
            PinError,
            PinnedPages, //
        },
        peer_memory::{
            Claim,
            PeerMemoryClient, //
        },
        scatterlist::ScatterList,
    },
    registration::Registration,
};

/// The client for NVIDIA GPU memory with persistent pins.
pub(crate) struct NvMem;

impl PeerMemoryClient for NvMem {
    // NCCL, UCX and NVSHMEM look for this name where the core shows clients in sysfs.
    const NAME: &'static CStr = c"nv_mem";

    type Registration = Registration;

    fn acquire(addr: u64, size: u64) -> Claim<Pin<KBox<Registration>>> {
        let Some(range) = PinRange::covering(addr, size) else {
            return Claim::NotMine;
        };
        let registration = pin(range).and_then(|pages| {
            KBox::pin_init(Registration::new(addr, size, pages), GFP_KERNEL)
                .map_err(|_| PinError::Failed(Failure::NoMemory))
        });
        match registration {
            Ok(registration) => Claim::Mine(registration),
            Err(PinError::NotGpuMemory) => Claim::NotMine,
            Err(PinError::Failed(failure)) => Claim::Refused(report("registration", size, failure)),
        }
    }

    fn get_pages(registration: &Registration, addr: u64, size: u64) -> Result<(), Errno> {
        registration
            .get_pages(addr, size)
            .map_err(|failure| report("registration", size, failure))
    }

    fn dma_map(
        registration: &Registration,
        device: Option<PciDevice>,
        publish: impl FnOnce(&ScatterList),
    ) -> Result<(), Errno> {
        registration
            .dma_map(device, publish)
            .map_err(|failure| report("registration", registration.size(), failure))
    }

    fn dma_unmap(registration: &Registration) -> Result<(), Errno> {
        registration
            .dma_unmap()
            .map_err(|failure| report("deregistration", registration.size(), failure))
    }

    fn put_pages(registration: &Registration) {
        // The core does not want to know; `release` makes up for it.
        let _ = registration
            .put_pages()
            .map_err(|failure| report("deregistration", registration.size(), failure));
    }
}

/// Pins `range`, or says whether it is GPU memory at all.
fn pin(range: PinRange) -> Result<PinnedPages, PinError> {
    let result = PinnedPages::pin(range);
    if !matches!(result, Err(PinError::Failed(Failure::Pin(Errno::ENOMEM)))) {
        return result;
    }
    // The driver allocates before it looks the range up, in proportion to its length. So "no
    // memory" may be about a range that is somebody else's; a try with one page tells.
    match PinnedPages::pin(range.first_page()) {
        Err(PinError::NotGpuMemory) => Err(PinError::NotGpuMemory),
        _ => result,
    }
}

/// Tells the administrator why something failed, and returns what the application sees.
fn report(what: &str, size: u64, failure: Failure) -> Errno {
    let errno = failure.errno();
    if helpers::may_log_failure() {
        pr_warn!(
            "{} of {} bytes by process {} failed: {} (error {})\n",
            what,
            size,
            current!().tgid(),
            format_args!("{failure}"),
            errno.to_negative()
        );
    }
    errno
}
