// SPDX-License-Identifier: GPL-2.0

//! The policy: what the peer-memory clients `nv_mem` and `nv_mem_nc` answer.
//!
//! One pin per registration: `acquire` has to pin to learn whether the range is GPU memory, and
//! the pin it got serves the registration. If it is GPU memory that cannot be pinned, the client
//! claims it all the same, so that the application sees the driver's own errno and not the "Bad
//! address" of the attempt to pin it as host memory.

use core::marker::PhantomData;

use kernel::{
    current,
    prelude::*,
    sync::Arc, //
};
use peermem_logic::{
    errno::{
        Errno,
        Failure, //
    },
    range::PinRange,
    registration::{
        Life,
        Pages, //
    },
};

use crate::{
    ffi::{
        device::PciDevice,
        helpers,
        module::ModuleRef,
        nvidia_p2p::{
            persistent::PinnedPages,
            revocable::RevocablePages,
            PinError, //
        },
        peer_memory::{
            Claim,
            Invalidation,
            PeerMemoryClient, //
        },
        scatterlist::ScatterList,
        tickets::Ticket,
    },
    registration::{
        Registration,
        Revocation, //
    },
};

/// The client for NVIDIA GPU memory, with pins of kind `P`.
pub(crate) struct NvMem<P>(PhantomData<P>);

/// A kind of pin, and how a registration gets one.
pub(crate) trait Pinning: Pages<Device = PciDevice, List = ScatterList> {
    /// Whether the application can free the memory while it is pinned.
    const REVOCABLE: bool;

    /// Pins `range`, and makes the registration of `size` bytes at `addr` that owns the pin.
    fn register(
        range: PinRange,
        addr: u64,
        size: u64,
        module: ModuleRef,
    ) -> Result<Arc<Registration<Self>>, PinError>;
}

/// 4 GiB: of this many pages, a try with the first is cheap in comparison.
const MANY_PAGES: u64 = 1 << 16;

const NO_MEMORY: PinError = PinError::Failed(Failure::NoMemory);

impl Pinning for PinnedPages {
    const REVOCABLE: bool = false;

    fn register(
        range: PinRange,
        addr: u64,
        size: u64,
        module: ModuleRef,
    ) -> Result<Arc<Registration<Self>>, PinError> {
        let life = Life::acquired(Self::pin(range)?);
        let registration = Registration::new(addr, size, life, None, module);
        Arc::pin_init(registration, GFP_KERNEL).map_err(|_| NO_MEMORY)
    }
}

impl Pinning for RevocablePages {
    const REVOCABLE: bool = true;

    fn register(
        range: PinRange,
        addr: u64,
        size: u64,
        module: ModuleRef,
    ) -> Result<Arc<Registration<Self>>, PinError> {
        // The addresses of a large range take much memory: not for a range that is nobody's.
        if range.pages() > MANY_PAGES && !is_gpu_memory(range) {
            return Err(PinError::NotGpuMemory);
        }
        let invalidation = Invalidation::get().ok_or(PinError::NotGpuMemory)?;
        let ticket = Ticket::new();
        let revocation = Revocation::new(ticket, invalidation);
        // The callback can come before the pin is known here: it finds the registration, and waits.
        let registration = Registration::new(addr, size, Life::pinning(), Some(revocation), module);
        let registration = Arc::pin_init(registration, GFP_KERNEL).map_err(|_| NO_MEMORY)?;
        ticket.open(registration.clone()).map_err(|_| NO_MEMORY)?;
        match Self::pin(range, ticket) {
            Err(error) => {
                registration.pin_failed();
                Err(error)
            }
            Ok((pages, usable)) => {
                registration.pinned(pages);
                usable.map_err(|failure| {
                    registration.release();
                    PinError::Failed(failure)
                })?;
                Ok(registration)
            }
        }
    }
}

impl<P: Pinning> PeerMemoryClient for NvMem<P>
where
    Registration<P>: Send + Sync + 'static,
{
    const REVOCABLE: bool = P::REVOCABLE;

    type Registration = Registration<P>;

    fn acquire(addr: u64, size: u64) -> Claim<Arc<Registration<P>>> {
        let Some(range) = PinRange::covering(addr, size) else {
            return Claim::NotMine;
        };
        // A module that is on its way out claims nothing.
        let Some(module) = ModuleRef::get() else {
            return Claim::NotMine;
        };
        match P::register(range, addr, size, module) {
            Ok(registration) => Claim::Mine(registration),
            Err(PinError::NotGpuMemory) => Claim::NotMine,
            Err(PinError::Failed(failure)) => {
                if failure.errno() == Errno::ENOMEM && !is_gpu_memory(range) {
                    return Claim::NotMine;
                }
                Claim::Refused(report("registration", size, failure))
            }
        }
    }

    fn get_pages(
        registration: &Registration<P>,
        addr: u64,
        size: u64,
        core_context: u64,
    ) -> Result<(), Errno> {
        registration
            .get_pages(addr, size, core_context)
            .map_err(|failure| report("registration", size, failure))
    }

    fn dma_map(
        registration: &Registration<P>,
        device: Option<PciDevice>,
        publish: impl FnOnce(&ScatterList),
    ) -> Result<(), Errno> {
        registration
            .dma_map(device, publish)
            .map_err(|failure| report("registration", registration.size(), failure))
    }

    fn dma_unmap(registration: &Registration<P>) -> Result<(), Errno> {
        registration
            .dma_unmap()
            .map_err(|failure| report("deregistration", registration.size(), failure))
    }

    fn put_pages(registration: &Registration<P>) {
        // The core does not want to know; `release` makes up for it.
        let _ = registration
            .put_pages()
            .map_err(|failure| report("deregistration", registration.size(), failure));
    }

    fn release(registration: &Registration<P>) {
        registration.release();
    }
}

/// Whether `range`, for which memory ran out, begins with GPU memory of this process at all.
///
/// The driver, as we, allocates before it looks the range up, in proportion to its length. So "no
/// memory" may be about a range that is somebody else's; a try with one page tells.
fn is_gpu_memory(range: PinRange) -> bool {
    !matches!(
        PinnedPages::pin(range.first_page()),
        Err(PinError::NotGpuMemory)
    )
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
