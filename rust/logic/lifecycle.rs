// SPDX-License-Identifier: GPL-2.0

//! Life of a registration, as a table of states and events.
//!
//! Two sides drive it. The peer-memory core calls `acquire` (which pins), `get_pages`, `dma_map`,
//! `dma_unmap`, `put_pages`, `release`, one at a time; it may leave out everything between
//! `acquire` and `release`. The GPU driver calls the free callback of a revocable pin, at any
//! time and at the same time, with its API lock held.
//!
//! So the callback waits only for work that needs no lock of the GPU driver ([`State::Pinning`]
//! once it can come, [`State::Mapping`], [`State::Unmapping`]), and it calls the core, which takes
//! a lock of the core's, only in [`State::Mapped`]: from there on the core holds that lock over
//! no call of ours that waits for the GPU driver, as pins are given back in `release` alone.

/// Where a registration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `acquire` is pinning. The GPU driver may know the pin already, but we do not.
    Pinning,
    /// `acquire` pinned the range; `get_pages` has not asked for the pin yet.
    Acquired,
    /// `get_pages` succeeded, or `dma_unmap` is done: pinned and not mapped.
    Pinned,
    /// `dma_map` is at work outside the lock; the pin is with it.
    Mapping,
    /// Mapped for one device; the scatterlist is with the core.
    Mapped,
    /// `dma_unmap` is at work outside the lock; pin and mapping are with it.
    Unmapping,
    /// `put_pages` was called: the pin is of no more use, and waits for `release`.
    Put,
    /// `release` is giving the pin back; the pin is with it.
    Releasing,
    /// The free callback is making the core end all DMA; pin and mapping are with it.
    Invalidating,
    /// Released, but the GPU driver did not take the pin back: the callback will still come.
    Orphan,
    /// Nothing is held, and no callback that matters will come.
    Gone,
}

/// What happens to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// Our own `acquire` has the pin.
    PinDone,
    /// Our own `acquire` got no pin.
    PinFailed,
    /// The core calls `get_pages`.
    GetPages,
    /// The core calls `dma_map`.
    DmaMap,
    /// Our own `dma_map` succeeded.
    MapDone,
    /// Our own `dma_map` failed.
    MapFailed,
    /// The core calls `dma_unmap`.
    DmaUnmap,
    /// Our own `dma_unmap` is through.
    UnmapDone,
    /// The core calls `put_pages`.
    PutPages,
    /// The core calls `release`.
    Release,
    /// The GPU driver took the pin back.
    UnpinDone,
    /// The GPU driver did not take the pin back.
    UnpinFailed,
    /// The GPU driver calls the free callback: when it returns, the memory is gone.
    Freed,
    /// The core has ended all DMA, and the mapping is undone.
    Invalidated,
}

/// What the caller of [`step`] has to do, after dropping the registration's lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Nothing,
    /// Map the pinned pages, then report [`Event::MapDone`] or [`Event::MapFailed`].
    Map,
    /// Unmap and keep the pin, then report [`Event::UnmapDone`].
    Unmap,
    /// Give the pin back, then report [`Event::UnpinDone`] or [`Event::UnpinFailed`].
    Unpin,
    /// Forget the pin without a call: it dies with the memory.
    Forget,
    /// Have the core end all DMA, unmap, forget the pin, then report [`Event::Invalidated`].
    Invalidate,
}

impl State {
    /// As debugfs shows it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pinning => "pinning",
            Self::Acquired => "acquired",
            Self::Pinned => "pinned",
            Self::Mapping => "mapping",
            Self::Mapped => "mapped",
            Self::Unmapping => "unmapping",
            Self::Put => "put",
            Self::Releasing => "releasing",
            Self::Invalidating => "invalidating",
            Self::Orphan => "orphan",
            Self::Gone => "gone",
        }
    }
}

/// Why a step is not taken. Nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// Somebody is at work: try again when the state has changed.
    Wait,
    /// The memory is gone, or about to go.
    Gone,
    /// The core broke its contract.
    Illegal,
}

/// The transition table: every pair that is not listed is [`Refusal::Illegal`].
// Inlined where the event is known, little of it is left.
#[inline]
pub const fn step(state: State, event: Event) -> Result<(State, Action), Refusal> {
    use Event::*;
    Ok(match (state, event) {
        (State::Pinning, PinDone) => (State::Acquired, Action::Nothing),
        (State::Pinning, PinFailed) => (State::Gone, Action::Nothing),
        (State::Acquired, GetPages) => (State::Pinned, Action::Nothing),
        (State::Pinned, DmaMap) => (State::Mapping, Action::Map),
        (State::Mapping, MapDone) => (State::Mapped, Action::Nothing),
        (State::Mapping, MapFailed) => (State::Pinned, Action::Nothing),
        // A core that forgot `dma_unmap` gets it with `release`.
        (State::Mapped, DmaUnmap | Release) => (State::Unmapping, Action::Unmap),
        (State::Unmapping, UnmapDone) => (State::Pinned, Action::Nothing),
        (State::Pinned, PutPages) => (State::Put, Action::Nothing),
        (State::Acquired | State::Pinned | State::Put, Release) => {
            (State::Releasing, Action::Unpin)
        }
        (State::Releasing, UnpinDone) => (State::Gone, Action::Nothing),
        (State::Releasing, UnpinFailed) => (State::Orphan, Action::Nothing),

        (State::Acquired | State::Pinned | State::Put | State::Orphan, Freed) => {
            (State::Gone, Action::Forget)
        }
        (State::Mapped, Freed) => (State::Invalidating, Action::Invalidate),
        (State::Invalidating, Invalidated) => (State::Gone, Action::Nothing),
        // `release` is waiting for the lock that our caller holds, and will find nothing to unpin.
        (State::Releasing, Freed) => (State::Gone, Action::Nothing),
        (State::Gone, UnpinDone | UnpinFailed | Release) => (State::Gone, Action::Nothing),

        (State::Pinning | State::Mapping | State::Unmapping, Freed) => return Err(Refusal::Wait),
        (State::Mapping | State::Unmapping | State::Invalidating, Release) => {
            return Err(Refusal::Wait)
        }
        (State::Invalidating | State::Gone, GetPages | DmaMap | DmaUnmap | PutPages | Freed) => {
            return Err(Refusal::Gone)
        }
        _ => return Err(Refusal::Illegal),
    })
}
