// SPDX-License-Identifier: GPL-2.0

//! One registration: who does what in which order, for any kind of pin and of lock.
//!
//! Each function is one call of the core or of the GPU driver: it takes a step of
//! [`lifecycle`](crate::lifecycle) under the registration's lock, does what the step says without
//! the lock, and reports back. The module brings kernel locks and the GPU driver's pins; the host
//! tests bring loom's locks and pins that count.

use core::mem;

use crate::{
    errno::Failure,
    lifecycle::{step, Action, Event, Refusal, State},
};

/// Pinned pages: how they are mapped and given back. Nothing of it is bound to its place in memory.
pub trait Pages: Sized + Unpin {
    /// What they can be mapped for.
    type Device;
    /// They, mapped for a device. Dropping it unmaps.
    type Mapped: Unpin;
    /// The scatterlist for that device.
    type List: Unpin;

    /// Maps them. On failure they come back unharmed.
    fn map(self, device: Self::Device) -> Result<(Self::Mapped, Self::List), (Self, Failure)>;

    /// Undoes the mapping and keeps the pin.
    fn unmap(mapped: Self::Mapped) -> Self;

    /// Gives them back to the GPU driver. If it did not take them they come back: they stay pinned
    /// until their memory is freed.
    ///
    /// `due` tells whether they still are what they were. It must be asked when no others can be
    /// made that the driver would take for them; if it says no, there is nothing to give back.
    fn unpin(self, due: impl FnOnce() -> bool) -> Result<(), Self>;
}

/// A lock around a value, and a place to wait for changes of it.
pub trait Monitor {
    /// The value.
    type Value;

    /// Changes the value, and wakes whoever waits for that.
    fn update<R>(&self, change: impl FnOnce(&mut Self::Value) -> R) -> R;

    /// As [`Self::update`], but as long as `change` returns `None` waits, and tries again after
    /// each change by others.
    fn update_when<R>(&self, change: impl FnMut(&mut Self::Value) -> Option<R>) -> R;
}

/// What a registration owns of the GPU driver's.
enum Held<P: Pages> {
    Nothing,
    Pinned(P),
    Mapped(P::Mapped),
}

/// State and possessions of a registration.
///
/// # Invariants
///
/// `held` is `Pinned` in the states `Acquired`, `Pinned`, `Put` and `Orphan`, `Mapped` in `Mapped`, and
/// `Nothing` in all others: there, the pin is with the thread that is at work, or nobody has it.
pub struct Life<P: Pages> {
    state: State,
    held: Held<P>,
    /// From the first `dma_map` to `release`: the core may look at it all the time.
    list: Option<P::List>,
    /// By what name the core knows the registration, since `get_pages`.
    core_context: u64,
}

impl<P: Pages> Life<P> {
    /// A registration whose pin is still to come: see [`pinned`] and [`pin_failed`].
    pub const fn pinning() -> Self {
        Self {
            state: State::Pinning,
            held: Held::Nothing,
            list: None,
            core_context: 0,
        }
    }

    /// A registration that owns `pages`.
    pub const fn acquired(pages: P) -> Self {
        Self {
            state: State::Acquired,
            held: Held::Pinned(pages),
            list: None,
            core_context: 0,
        }
    }

    /// Where it stands.
    pub const fn state(&self) -> State {
        self.state
    }

    /// The scatterlist, while the core may look at it.
    pub const fn list(&self) -> Option<&P::List> {
        self.list.as_ref()
    }

    /// Takes one step, and takes out what its action is about.
    fn step(&mut self, event: Event) -> Result<(Action, Held<P>), Refusal> {
        let (state, action) = step(self.state, event)?;
        self.state = state;
        let held = match action {
            Action::Nothing => Held::Nothing,
            _ => mem::replace(&mut self.held, Held::Nothing),
        };
        Ok((action, held))
    }

    /// Takes the step that ends work, which is always legal, and puts in what came of it. If the
    /// memory went meanwhile that is of no more use, and is returned.
    fn finish(&mut self, event: Event, held: Held<P>) -> Held<P> {
        match self.step(event) {
            Ok(_) if self.state != State::Gone => mem::replace(&mut self.held, held),
            _ => held,
        }
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::Gone => Self::Freed,
            // The core does not call two at a time.
            Refusal::Wait | Refusal::Illegal => Self::Contract,
        }
    }
}

/// `acquire` has the pin. Frees the way for a callback that came meanwhile.
pub fn pinned<P: Pages>(life: &impl Monitor<Value = Life<P>>, pages: P) {
    drop(life.update(|life| life.finish(Event::PinDone, Held::Pinned(pages))));
}

/// `acquire` got no pin.
pub fn pin_failed<P: Pages>(life: &impl Monitor<Value = Life<P>>) {
    drop(life.update(|life| life.finish(Event::PinFailed, Held::Nothing)));
}

/// Hands the pin over to the registration, which the core will call `core_context`.
///
/// # Errors
///
/// [`Failure::Freed`] if the memory is gone already.
pub fn get_pages<P: Pages>(
    life: &impl Monitor<Value = Life<P>>,
    core_context: u64,
) -> Result<(), Failure> {
    life.update(|life| {
        life.step(Event::GetPages)?;
        life.core_context = core_context;
        Ok(())
    })
}

/// Maps the pages for `device` and shows the scatterlist to `publish`, for use until [`release`].
///
/// # Errors
///
/// Why the pages could not be mapped; [`Failure::Freed`] if the memory is gone already.
pub fn dma_map<P: Pages>(
    life: &impl Monitor<Value = Life<P>>,
    device: P::Device,
    publish: impl FnOnce(&P::List),
) -> Result<(), Failure> {
    let Held::Pinned(pages) = life.update(|life| life.step(Event::DmaMap))?.1 else {
        return Err(Failure::Contract);
    };
    match pages.map(device) {
        Ok((mapped, list)) => {
            publish(&list);
            drop(life.update(|life| {
                life.list = Some(list);
                life.finish(Event::MapDone, Held::Mapped(mapped))
            }));
            Ok(())
        }
        Err((pages, failure)) => {
            drop(life.update(|life| life.finish(Event::MapFailed, Held::Pinned(pages))));
            Err(failure)
        }
    }
}

/// Undoes [`dma_map`]. If the memory was freed, the callback does, or did.
///
/// # Errors
///
/// [`Failure::Contract`] if nothing is mapped.
pub fn dma_unmap<P: Pages>(life: &impl Monitor<Value = Life<P>>) -> Result<(), Failure> {
    match life.update(|life| life.step(Event::DmaUnmap)) {
        Ok((_, held)) => {
            unmap(life, held);
            Ok(())
        }
        Err(Refusal::Gone) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

fn unmap<P: Pages>(life: &impl Monitor<Value = Life<P>>, held: Held<P>) {
    if let Held::Mapped(mapped) = held {
        let pages = P::unmap(mapped);
        drop(life.update(|life| life.finish(Event::UnmapDone, Held::Pinned(pages))));
    }
}

/// Notes that the pin is of no more use; [`release`] gives it back.
///
/// The core may hold a lock here that the free callback of this very registration waits for, with
/// the GPU driver's lock held. In `release` it holds none.
///
/// # Errors
///
/// [`Failure::Contract`] if nothing is pinned, or still mapped.
pub fn put_pages<P: Pages>(life: &impl Monitor<Value = Life<P>>) -> Result<(), Failure> {
    match life.update(|life| life.step(Event::PutPages)) {
        Ok(_) | Err(Refusal::Gone) => Ok(()),
        Err(refusal) => Err(refusal.into()),
    }
}

/// Ends the registration: undoes what is left, or waits until the free callback has.
///
/// Returns whether it is all over; if not, the pin is still there and the callback will come.
pub fn release<P: Pages>(life: &impl Monitor<Value = Life<P>>) -> bool {
    loop {
        let step = life.update_when(|life| match life.step(Event::Release) {
            Err(Refusal::Wait) => None,
            step => Some(step),
        });
        match step {
            Ok((Action::Unmap, held)) => unmap(life, held),
            Ok((_, held)) => {
                let result = match held {
                    Held::Pinned(pages) => {
                        pages.unpin(|| life.update(|life| life.state == State::Releasing))
                    }
                    _ => Ok(()),
                };
                return finish_release(life, result);
            }
            Err(_) => return false,
        }
    }
}

fn finish_release<P: Pages>(life: &impl Monitor<Value = Life<P>>, result: Result<(), P>) -> bool {
    let (event, held) = match result {
        Ok(()) => (Event::UnpinDone, Held::Nothing),
        Err(pages) => (Event::UnpinFailed, Held::Pinned(pages)),
    };
    let (rest, list, over) = life.update(|life| {
        let rest = life.finish(event, held);
        (rest, life.list.take(), life.state == State::Gone)
    });
    drop((rest, list));
    over
}

/// What the free callback found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// A mapped registration, which was invalidated.
    Mapped,
    /// One that was pinned only.
    Unmapped,
    /// One that is gone, or being released by itself.
    Late,
}

/// The GPU driver's free callback: on return the memory may go, and nobody does DMA to it.
///
/// `invalidate` makes the core end all DMA of the registration of this core context; it takes
/// locks of the core.
pub fn freed<P: Pages>(
    life: &impl Monitor<Value = Life<P>>,
    invalidate: impl FnOnce(u64),
) -> Found {
    let step = life.update_when(|life| match life.step(Event::Freed) {
        Err(Refusal::Wait) => None,
        step => Some(step.map(|(action, held)| (action, held, life.core_context))),
    });
    match step {
        Ok((Action::Invalidate, held, core_context)) => {
            invalidate(core_context);
            forget(held);
            drop(life.update(|life| life.finish(Event::Invalidated, Held::Nothing)));
            Found::Mapped
        }
        Ok((Action::Forget, held, _)) => {
            forget(held);
            Found::Unmapped
        }
        _ => Found::Late,
    }
}

/// Undoes a mapping. The pin dies with the memory.
fn forget<P: Pages>(held: Held<P>) {
    match held {
        Held::Mapped(mapped) => drop(P::unmap(mapped)),
        Held::Pinned(pages) => drop(pages),
        Held::Nothing => {}
    }
}
