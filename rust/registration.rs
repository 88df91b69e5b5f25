// SPDX-License-Identifier: GPL-2.0

//! One memory registration, as the kernel has it: `peermem_logic::registration` with kernel locks.

use kernel::{
    fmt, new_condvar, new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        lock::{
            mutex::MutexBackend,
            Guard, //
        },
        Arc,
        CondVar,
        Mutex,
        SetOnce, //
    },
    task::Task,
};
use peermem_logic::{
    errno::Failure,
    range::PinRange,
    registration::{
        self,
        Found,
        Life,
        Pages, //
    },
};

use crate::{
    ffi::{
        clock::Moment,
        compat::current_tgid,
        module::ModuleRef,
        peer_memory::Invalidation,
        process::Name,
        scatterlist::ScatterList,
        trace::Call, //
    },
    peers::Peer,
    registry::{
        Id,
        Registered, //
    },
    stats::{
        ClientStats,
        STATS, //
    },
};

/// A value, and how many wait for it to change. As a rule nobody does, and nobody need be woken.
struct Watched<T> {
    value: T,
    waiting: usize,
}

/// A mutex, and the wait queue of those who wait for a change of what it protects.
#[pin_data]
struct Monitor<T> {
    #[pin]
    watched: Mutex<Watched<T>>,
    #[pin]
    changed: CondVar,
}

impl<T> Monitor<T> {
    fn new(value: T) -> impl PinInit<Self> {
        let watched = Watched { value, waiting: 0 };
        pin_init!(Self {
            watched <- new_mutex!(watched, "nvidia_peermem_registration"),
            changed <- new_condvar!("nvidia_peermem_registration_changed"),
        })
    }

    /// Ends a change.
    fn changed(&self, watched: Guard<'_, Watched<T>, MutexBackend>) {
        let waiting = watched.waiting != 0;
        drop(watched);
        if waiting {
            self.changed.notify_all();
        }
    }
}

impl<T: Unpin> registration::Monitor for Monitor<T> {
    type Value = T;

    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let mut watched = self.watched.lock();
        let result = change(&mut watched.value);
        self.changed(watched);
        result
    }

    fn update_when<R>(&self, mut change: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut watched = self.watched.lock();
        loop {
            if let Some(result) = change(&mut watched.value) {
                self.changed(watched);
                return result;
            }
            watched.waiting = watched.waiting.wrapping_add(1);
            self.changed.wait(&mut watched);
            watched.waiting = watched.waiting.wrapping_sub(1);
        }
    }
}

/// Who registers what, and with which client.
pub(crate) struct Request {
    /// The range as the user gave it, in bytes and not rounded.
    pub(crate) addr: u64,
    pub(crate) size: u64,
    pub(crate) range: PinRange,
    pub(crate) client: Client,
    pub(crate) pid: i32,
    pub(crate) comm: Name,
    since: Moment,
    // The last to be dropped.
    module: ModuleRef,
}

impl Request {
    /// The current process's, for `size` bytes at `addr`, which `range` covers.
    pub(crate) fn new(
        addr: u64,
        size: u64,
        range: PinRange,
        client: Client,
        module: ModuleRef,
    ) -> Self {
        Self {
            addr,
            size,
            range,
            client,
            pid: current_tgid(),
            comm: Name::current(),
            since: Moment::now(),
            module,
        }
    }
}

/// A client.
#[derive(Clone, Copy)]
pub(crate) enum Client {
    /// The one for memory regions.
    NvMem,
    /// Beside a revocable one, for memory that must not be revoked.
    NvMemNc,
}

impl Client {
    /// Its name in the core, as with NVIDIA's module. NCCL, UCX and NVSHMEM look for `nv_mem` where
    /// the core shows clients in sysfs.
    pub(crate) const fn name(self) -> &'static CStr {
        match self {
            Self::NvMem => c"nv_mem",
            Self::NvMemNc => c"nv_mem_nc",
        }
    }

    /// Its figures.
    pub(crate) fn stats(self) -> &'static ClientStats {
        match self {
            Self::NvMem => &STATS.client,
            Self::NvMemNc => &STATS.client_nc,
        }
    }
}

/// A registration of GPU memory, from `acquire` to `release`, or to the end of a pin that `release`
/// could not give back.
///
/// The lock is never held while the GPU driver or the core is called.
#[pin_data]
pub(crate) struct Registration<P: Pages> {
    /// What the GPU driver knows it by, if its pin is revocable.
    id: Id,
    /// How the core is told of the end of the memory, if its pin is revocable.
    invalidation: Option<Invalidation>,
    /// The task that runs the free callback, as a number; 0 if none does.
    revoker: Atomic<usize>,
    #[pin]
    life: Monitor<Life<P>>,
    /// Where the memory is, and which device has it, for debugfs.
    gpu: SetOnce<Arc<Peer>>,
    device: SetOnce<Arc<Peer>>,
    // The last to be dropped.
    request: Request,
}

impl<P: Pages<List = ScatterList>> Registration<P> {
    /// A registration with what it has so far.
    pub(crate) fn new(
        request: Request,
        life: Life<P>,
        invalidation: Option<Invalidation>,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            id: Id::new(),
            invalidation,
            revoker: Atomic::new(0),
            life <- Monitor::new(life),
            gpu: SetOnce::new(),
            device: SetOnce::new(),
            request,
        })
    }

    /// Its number.
    pub(crate) fn id(&self) -> Id {
        self.id
    }

    /// What was asked for.
    pub(crate) fn request(&self) -> &Request {
        &self.request
    }

    /// Notes the GPU, for debugfs.
    pub(crate) fn set_gpu(&self, gpu: Option<Arc<Peer>>) {
        gpu.map(|gpu| self.gpu.populate(gpu));
    }

    /// Notes the RDMA device, for debugfs: there is one for a registration.
    pub(crate) fn set_device(&self, device: Option<Arc<Peer>>) {
        device.map(|device| self.device.populate(device));
    }

    /// See [`registration::pinned`].
    pub(crate) fn pinned(&self, pages: P) {
        registration::pinned(&self.life, pages);
    }

    /// See [`registration::pin_failed`].
    pub(crate) fn pin_failed(&self) {
        registration::pin_failed(&self.life);
        self.id.close();
    }

    /// See [`registration::get_pages`]. The range must be that of `acquire`.
    pub(crate) fn get_pages(&self, addr: u64, size: u64, core_context: u64) -> Result<(), Failure> {
        if (addr, size) != (self.request.addr, self.request.size) {
            return Err(Failure::Contract);
        }
        registration::get_pages(&self.life, core_context)
    }

    /// See [`registration::dma_map`]. Sleeps.
    pub(crate) fn dma_map(
        &self,
        device: P::Device,
        publish: impl FnOnce(&P::List),
    ) -> Result<(), Failure> {
        registration::dma_map(&self.life, device, publish)
    }

    /// See [`registration::dma_unmap`]. Sleeps.
    pub(crate) fn dma_unmap(&self) -> Result<(), Failure> {
        registration::dma_unmap(&self.life)
    }

    /// See [`registration::put_pages`].
    pub(crate) fn put_pages(&self) -> Result<(), Failure> {
        registration::put_pages(&self.life)
    }

    /// See [`registration::release`]. Sleeps.
    pub(crate) fn release(&self) {
        // Old cores release from within the invalidation. Then the callback does the rest: to wait
        // for it here would be to wait for ourselves.
        if self.revoker.load(Relaxed) == Task::current_raw().addr() {
            return;
        }
        // While the GPU driver may ask for it, its number keeps it, and it the module.
        if registration::release(&self.life) {
            self.id.close();
        }
    }

    /// Calls back into the core, which may have let go of the registration already.
    fn freed(&self) -> Found {
        self.revoker.store(Task::current_raw().addr(), Relaxed);
        let found = registration::freed(&self.life, |core_context| {
            if let Some(invalidation) = self.invalidation {
                invalidation.invalidate(core_context, &self.request.module);
            }
        });
        self.revoker.store(0, Relaxed);
        found
    }
}

impl<P: Pages<List = ScatterList>> Registered for Registration<P>
where
    Self: Send + Sync,
{
    fn revoke(&self) {
        let call = Call::begin();
        let found = self.freed();
        match found {
            Found::Mapped => STATS.invalidations.add(1),
            Found::Unmapped => STATS.freed_unmapped.add(1),
            Found::Late => STATS.late_callbacks.add(1),
        }
        self.id.close();
        call.free_callback(self.id.number(), self.request.size, found == Found::Mapped);
    }

    fn describe(&self, to: &mut dyn fmt::Write) -> fmt::Result {
        let request = &self.request;
        let (state, entries) = {
            let life = &self.life.watched.lock().value;
            (life.state(), life.list().map_or(0, ScatterList::entries))
        };
        put!(
            to,
            "id={} pid={} client={}",
            self.id.number(),
            request.pid,
            request.client.name()
        )?;
        for (key, peer) in [("gpu", &self.gpu), ("device", &self.device)] {
            match peer.as_ref() {
                Some(peer) => put!(to, " {}={}", key, peer.name)?,
                None => put!(to, " {}=-", key)?,
            }
        }
        put!(
            to,
            " address={:#x} length={} pages={} entries={} state={} age_ms={} comm={}",
            request.addr,
            request.size,
            request.range.pages(),
            entries,
            state.name(),
            request.since.elapsed() / 1_000_000,
            request.comm
        )
    }
}
