// SPDX-License-Identifier: GPL-2.0

//! One memory registration, as the kernel has it: `peermem_logic::registration` with kernel locks.

use kernel::{
    new_condvar, new_mutex,
    prelude::*,
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        CondVar,
        Mutex, //
    },
    task::Task,
};
use peermem_logic::{
    errno::Failure,
    registration::{
        self,
        Life,
        Pages, //
    },
};

use crate::ffi::{
    module::ModuleRef,
    peer_memory::Invalidation,
    tickets::{
        Revoke,
        Ticket, //
    },
};

/// A mutex, and the wait queue of those who wait for a change of what it protects.
#[pin_data]
struct Monitor<T> {
    #[pin]
    value: Mutex<T>,
    #[pin]
    changed: CondVar,
}

impl<T> Monitor<T> {
    fn new(value: T) -> impl PinInit<Self> {
        pin_init!(Self {
            value <- new_mutex!(value, "nvidia_peermem_registration"),
            changed <- new_condvar!("nvidia_peermem_registration_changed"),
        })
    }
}

impl<T: Unpin> registration::Monitor for Monitor<T> {
    type Value = T;

    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        let result = change(&mut *self.value.lock());
        self.changed.notify_all();
        result
    }

    fn update_when<R>(&self, mut change: impl FnMut(&mut T) -> Option<R>) -> R {
        let mut value = self.value.lock();
        loop {
            if let Some(result) = change(&mut *value) {
                drop(value);
                self.changed.notify_all();
                return result;
            }
            self.changed.wait(&mut value);
        }
    }
}

/// What the end of the memory takes, for a registration that can lose it.
pub(crate) struct Revocation {
    /// What the GPU driver knows the registration by.
    pub(crate) ticket: Ticket,
    /// How the core is told.
    pub(crate) invalidation: Invalidation,
    /// The task that runs the free callback, as a number; 0 if none does.
    revoker: Atomic<usize>,
}

impl Revocation {
    pub(crate) fn new(ticket: Ticket, invalidation: Invalidation) -> Self {
        Self {
            ticket,
            invalidation,
            revoker: Atomic::new(0),
        }
    }

    /// Whether the current task is the one that runs the free callback.
    fn is_ours(&self) -> bool {
        self.revoker.load(Relaxed) == Task::current_raw().addr()
    }
}

/// A registration of GPU memory, from `acquire` to `release`, or to the end of a pin that `release`
/// could not give back.
///
/// The lock is never held while the GPU driver or the core is called.
#[pin_data]
pub(crate) struct Registration<P: Pages> {
    /// The range as the user gave it, in bytes and not rounded.
    addr: u64,
    size: u64,
    revocation: Option<Revocation>,
    #[pin]
    life: Monitor<Life<P>>,
    // The last to be dropped.
    module: ModuleRef,
}

impl<P: Pages> Registration<P> {
    /// The registration of `size` bytes at `addr`, with what it has so far.
    pub(crate) fn new(
        addr: u64,
        size: u64,
        life: Life<P>,
        revocation: Option<Revocation>,
        module: ModuleRef,
    ) -> impl PinInit<Self> {
        pin_init!(Self {
            addr,
            size,
            revocation,
            life <- Monitor::new(life),
            module,
        })
    }

    /// Length of the range in bytes, as the user gave it.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// See [`registration::pinned`].
    pub(crate) fn pinned(&self, pages: P) {
        registration::pinned(&self.life, pages);
    }

    /// See [`registration::pin_failed`].
    pub(crate) fn pin_failed(&self) {
        registration::pin_failed(&self.life);
        self.close_ticket();
    }

    /// See [`registration::get_pages`]. The range must be that of `acquire`.
    pub(crate) fn get_pages(&self, addr: u64, size: u64, core_context: u64) -> Result<(), Failure> {
        if (addr, size) != (self.addr, self.size) {
            return Err(Failure::Contract);
        }
        registration::get_pages(&self.life, core_context)
    }

    /// See [`registration::dma_map`]. Sleeps.
    pub(crate) fn dma_map(
        &self,
        device: Option<P::Device>,
        publish: impl FnOnce(&P::List),
    ) -> Result<(), Failure> {
        let device = device.ok_or(Failure::NotPciDevice)?;
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
        if self.revocation.as_ref().is_some_and(Revocation::is_ours) {
            return;
        }
        if registration::release(&self.life) {
            self.close_ticket();
        }
    }

    /// The GPU driver will not ask for this registration again. While it may, the ticket keeps the
    /// registration, and that the module.
    fn close_ticket(&self) {
        if let Some(revocation) = &self.revocation {
            revocation.ticket.close();
        }
    }
}

impl<P: Pages> Revoke for Registration<P>
where
    Self: Send + Sync,
{
    fn revoke(&self) {
        if let Some(revocation) = &self.revocation {
            revocation
                .revoker
                .store(Task::current_raw().addr(), Relaxed);
            registration::freed(&self.life, |core_context| {
                revocation
                    .invalidation
                    .invalidate(core_context, &self.module);
            });
            revocation.revoker.store(0, Relaxed);
            revocation.ticket.close();
        }
    }
}
