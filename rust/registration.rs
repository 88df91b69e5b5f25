// SPDX-License-Identifier: GPL-2.0

//! One memory registration: what it holds, and which call may change that.

use kernel::{
    new_mutex,
    prelude::*,
    sync::Mutex, //
};
use peermem_logic::{
    coalesce,
    errno::Failure,
    lifecycle::{
        step,
        Action,
        Event,
        Illegal,
        State, //
    },
};

use crate::ffi::{
    device::PciDevice,
    nvidia_p2p::{
        MappedPages,
        PinnedPages, //
    },
    scatterlist::ScatterList, //
};

/// What a registration owns of the GPU driver's. Dropping it gives everything back.
enum Held {
    Nothing,
    Pinned(PinnedPages),
    Mapped(MappedPages),
}

/// # Invariants
///
/// `held` is `Pinned` in the states `Acquired` and `Pinned`, `Mapped` in `Mapped`, and `Nothing`
/// in the others: there, the pin is with the thread that is at work, or gone.
struct Inner {
    state: State,
    held: Held,
    /// From the first `dma_map` to the end: the core may look at it until `release`.
    list: Option<ScatterList>,
}

impl Inner {
    /// Takes one step of the life cycle, and takes out what its action is about.
    fn advance(&mut self, event: Event) -> Result<Held, Failure> {
        let (state, action) = step(self.state, event).map_err(|Illegal| Failure::Contract)?;
        self.state = state;
        Ok(match action {
            Action::Nothing => Held::Nothing,
            Action::Map | Action::Unmap | Action::Unpin => {
                core::mem::replace(&mut self.held, Held::Nothing)
            }
        })
    }
}

/// A registration of GPU memory, from `acquire` to `release`.
///
/// Dropping it, at whatever point of its life, unmaps and unpins what is left.
#[pin_data]
pub(crate) struct Registration {
    /// The range as the user gave it, in bytes and not rounded.
    addr: u64,
    size: u64,
    /// Never held while the GPU driver is called.
    #[pin]
    inner: Mutex<Inner>,
}

impl Registration {
    /// The registration of `size` bytes at `addr`, for which `pages` are already pinned.
    pub(crate) fn new(addr: u64, size: u64, pages: PinnedPages) -> impl PinInit<Self> {
        pin_init!(Self {
            addr,
            size,
            inner <- new_mutex!(
                Inner {
                    state: State::Acquired,
                    held: Held::Pinned(pages),
                    list: None,
                },
                "nvidia_peermem_registration"
            ),
        })
    }

    /// Length of the range in bytes, as the user gave it.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Hands the pin over to the registration.
    pub(crate) fn get_pages(&self, addr: u64, size: u64) -> Result<(), Failure> {
        if (addr, size) != (self.addr, self.size) {
            return Err(Failure::Contract);
        }
        self.inner.lock().advance(Event::GetPages).map(|_| ())
    }

    /// Maps the pages for `device` and passes the scatterlist to `publish`. Sleeps.
    pub(crate) fn dma_map(
        &self,
        device: Option<PciDevice>,
        publish: impl FnOnce(&ScatterList),
    ) -> Result<(), Failure> {
        let device = device.ok_or(Failure::NotPciDevice)?;
        let Held::Pinned(pages) = self.begin(Event::DmaMap)? else {
            return Err(Failure::Contract);
        };
        let result = map(pages, device);
        let mut inner = self.inner.lock();
        match result {
            Ok((mapped, list)) => {
                inner.held = Held::Mapped(mapped);
                inner.advance(Event::MapDone)?;
                publish(inner.list.insert(list));
                Ok(())
            }
            Err((pages, failure)) => {
                inner.held = Held::Pinned(pages);
                inner.advance(Event::MapFailed)?;
                Err(failure)
            }
        }
    }

    /// Undoes [`Self::dma_map`]. Sleeps.
    pub(crate) fn dma_unmap(&self) -> Result<(), Failure> {
        let Held::Mapped(mapped) = self.begin(Event::DmaUnmap)? else {
            return Err(Failure::Contract);
        };
        let pages = mapped.unmap();
        let mut inner = self.inner.lock();
        inner.held = Held::Pinned(pages);
        inner.advance(Event::UnmapDone)?;
        Ok(())
    }

    /// Gives the pages back. Sleeps.
    pub(crate) fn put_pages(&self) -> Result<(), Failure> {
        drop(self.begin(Event::PutPages)?);
        Ok(())
    }

    /// Takes a step whose action the caller does next, without the lock.
    fn begin(&self, event: Event) -> Result<Held, Failure> {
        self.inner.lock().advance(event)
    }
}

/// Maps `pages` for `device` and describes the result. On failure the pin comes back.
fn map(
    pages: PinnedPages,
    device: PciDevice,
) -> Result<(MappedPages, ScatterList), (PinnedPages, Failure)> {
    let mapped = pages.map(device)?;
    let cap = mapped.device().run_cap();
    match ScatterList::new(coalesce::runs(mapped.addresses().iter().copied(), cap)) {
        Ok(list) => Ok((mapped, list)),
        Err(failure) => Err((mapped.unmap(), failure)),
    }
}
