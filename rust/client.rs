// SPDX-License-Identifier: GPL-2.0

//! The policy: what the peer-memory clients `nv_mem` and `nv_mem_nc` answer.
//!
//! One pin per registration: `acquire` has to pin to learn whether the range is GPU memory, and
//! the pin it got serves the registration. If it is GPU memory that cannot be pinned, the client
//! claims it all the same, so that the application sees the driver's own errno and not the "Bad
//! address" of the attempt to pin it as host memory.

use core::marker::PhantomData;

use kernel::{
    prelude::*,
    sync::Arc, //
};
use peermem_logic::{
    errno::{
        Errno,
        Failure, //
    },
    range::PinRange,
    reason::Reason,
    registration::{
        Life,
        Pages, //
    },
};

use crate::{
    failures::{
        self,
        Stage, //
    },
    ffi::{
        compat::current_tgid,
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
        trace::Call, //
    },
    measured::{
        timed,
        Device,
        Measured, //
    },
    peers,
    registration::{
        Client,
        Registration,
        Request, //
    },
    stats::{
        SETTINGS,
        STATS, //
    },
};

/// The client for NVIDIA GPU memory, with pins of kind `P`; `NC` if it stands beside another.
pub(crate) struct NvMem<P, const NC: bool>(PhantomData<P>);

impl<P, const NC: bool> NvMem<P, NC> {
    const CLIENT: Client = if NC { Client::NvMemNc } else { Client::NvMem };
}

/// A kind of pin, and how a registration gets one.
pub(crate) trait Pinning: Pages<Device = PciDevice, List = ScatterList> {
    /// Whether the application can free the memory while it is pinned.
    const REVOCABLE: bool;

    /// Pins what is asked for, and makes the registration that owns the pin.
    fn register(request: Request) -> Result<Arc<Registration<Measured<Self>>>, PinError>;
}

/// 4 GiB: of this many pages, a try with the first is cheap in comparison.
const MANY_PAGES: u64 = 1 << 16;

const NO_MEMORY: PinError = PinError::Failed(Failure::NoMemory);

impl Pinning for PinnedPages {
    const REVOCABLE: bool = false;

    fn register(request: Request) -> Result<Arc<Registration<Measured<Self>>>, PinError> {
        let range = request.range;
        let pages = timed(&STATS.pin, || Self::pin(range))?;
        let gpu = peers::gpu(&pages.gpu());
        let (client, size) = (request.client.stats(), request.size);
        let pages = Measured::new(pages, range.len(), gpu.clone(), client, size);
        let registration = Registration::new(request, Life::acquired(pages), None);
        let registration = Arc::pin_init(registration, GFP_KERNEL).map_err(|_| NO_MEMORY)?;
        registration.set_gpu(gpu);
        let id = registration.id();
        if id.open(registration.clone()).is_err() {
            registration.release();
            return Err(NO_MEMORY);
        }
        Ok(registration)
    }
}

impl Pinning for RevocablePages {
    const REVOCABLE: bool = true;

    fn register(request: Request) -> Result<Arc<Registration<Measured<Self>>>, PinError> {
        let range = request.range;
        // The addresses of a large range take much memory: not for a range that is nobody's.
        if range.pages() > MANY_PAGES && !is_gpu_memory(range) {
            return Err(PinError::NotGpuMemory);
        }
        let invalidation = Invalidation::get().ok_or(PinError::NotGpuMemory)?;
        let (client, size) = (request.client.stats(), request.size);
        // The callback can come before the pin is known here: it finds the registration, and waits.
        let registration = Registration::new(request, Life::pinning(), Some(invalidation));
        let registration = Arc::pin_init(registration, GFP_KERNEL).map_err(|_| NO_MEMORY)?;
        let id = registration.id();
        id.open(registration.clone()).map_err(|_| NO_MEMORY)?;
        match timed(&STATS.pin, || Self::pin(range, id)) {
            Err(error) => {
                registration.pin_failed();
                Err(error)
            }
            Ok((pages, usable)) => {
                let gpu = peers::gpu(&pages.gpu());
                registration.set_gpu(gpu.clone());
                registration.pinned(Measured::new(pages, range.len(), gpu, client, size));
                usable.map_err(|failure| {
                    registration.release();
                    PinError::Failed(failure)
                })?;
                Ok(registration)
            }
        }
    }
}

impl<P: Pinning, const NC: bool> PeerMemoryClient for NvMem<P, NC>
where
    Registration<Measured<P>>: Send + Sync + 'static,
{
    const NAME: &'static CStr = Self::CLIENT.name();

    const REVOCABLE: bool = P::REVOCABLE;

    type Registration = Registration<Measured<P>>;

    fn acquire(addr: u64, size: u64) -> Claim<Arc<Self::Registration>> {
        let Some(range) = PinRange::covering(addr, size) else {
            return Claim::NotMine;
        };
        // A module that is on its way out claims nothing.
        let Some(module) = ModuleRef::get() else {
            return Claim::NotMine;
        };
        let call = Call::begin();
        let result = match unwanted(range) {
            None => P::register(Request::new(addr, size, range, Self::CLIENT, module)),
            Some(failure) if is_gpu_memory(range) => Err(PinError::Failed(failure)),
            Some(_) => Err(PinError::NotGpuMemory),
        };
        match result {
            Ok(registration) => {
                call.acquire(
                    registration.id().number(),
                    addr,
                    size,
                    range.pages(),
                    Ok(()),
                );
                Claim::Mine(registration)
            }
            Err(PinError::Failed(failure)) if !out_of_memory(failure) || is_gpu_memory(range) => {
                let errno = report(Stage::Acquire, size, failure);
                call.acquire(0, addr, size, range.pages(), Err(errno));
                Claim::Refused(errno)
            }
            Err(_) => {
                STATS.not_gpu_memory.add(1);
                Claim::NotMine
            }
        }
    }

    fn get_pages(
        registration: &Self::Registration,
        addr: u64,
        size: u64,
        core_context: u64,
    ) -> Result<(), Errno> {
        let call = Call::begin();
        let result = registration
            .get_pages(addr, size, core_context)
            .map_err(|failure| report(Stage::GetPages, size, failure));
        call.get_pages(registration.id().number(), size, result);
        result
    }

    fn dma_map(
        registration: &Self::Registration,
        device: Option<PciDevice>,
        publish: impl FnOnce(&ScatterList),
    ) -> Result<(), Errno> {
        let call = Call::begin();
        let size = registration.request().size;
        let mut entries = 0;
        let result = device
            .ok_or(Failure::NotPciDevice)
            .and_then(|device| {
                let device = Device::new(device);
                registration.set_device(device.peer().cloned());
                registration.dma_map(device, |list| {
                    entries = list.entries();
                    publish(list);
                })
            })
            .map_err(|failure| report(Stage::DmaMap, size, failure));
        call.dma_map(registration.id().number(), size, entries, result);
        result
    }

    fn dma_unmap(registration: &Self::Registration) -> Result<(), Errno> {
        let call = Call::begin();
        let size = registration.request().size;
        let result = registration
            .dma_unmap()
            .map_err(|failure| report(Stage::DmaUnmap, size, failure));
        call.dma_unmap(registration.id().number(), size, result);
        result
    }

    fn put_pages(registration: &Self::Registration) {
        let call = Call::begin();
        let size = registration.request().size;
        // The core does not want to know; `release` makes up for it.
        let result = registration
            .put_pages()
            .map_err(|failure| report(Stage::PutPages, size, failure));
        call.put_pages(registration.id().number(), size, result);
    }

    fn release(registration: &Self::Registration) {
        let call = Call::begin();
        registration.release();
        call.release(registration.id().number(), registration.request().size);
    }
}

/// Why the administrator does not want `range` pinned, if so.
fn unwanted(range: PinRange) -> Option<Failure> {
    let limit = SETTINGS.max_pinned_bytes();
    // The core asks for one registration at a time: nothing else is pinned between this and its pin.
    let after = STATS.pinned_bytes.get().saturating_add(range.len());
    if SETTINGS.draining() {
        Some(Failure::Drain)
    } else if limit != 0 && after > limit {
        Some(Failure::Limit)
    } else {
        None
    }
}

/// Whether it may be about a range that is somebody else's. The driver, as we, allocates before it
/// looks the range up, in proportion to its length.
fn out_of_memory(failure: Failure) -> bool {
    matches!(failure, Failure::NoMemory | Failure::Pin(Errno::ENOMEM))
}

/// Whether `range` begins with GPU memory of this process at all: a try with one page tells.
fn is_gpu_memory(range: PinRange) -> bool {
    !matches!(
        PinnedPages::pin(range.first_page()),
        Err(PinError::NotGpuMemory)
    )
}

/// Tells the administrator why something failed, and returns what the application sees.
fn report(stage: Stage, size: u64, failure: Failure) -> Errno {
    let errno = failure.errno();
    failures::note(stage, size, errno, Reason::of(failure));
    if helpers::may_log_failure() {
        pr_warn!(
            "{} of {} bytes by process {} failed: {} (error {})\n",
            stage.what(),
            size,
            current_tgid(),
            format_args!("{failure}"),
            errno.to_negative()
        );
    }
    errno
}
