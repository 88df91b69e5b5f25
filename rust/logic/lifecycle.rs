// SPDX-License-Identifier: GPL-2.0

//! Life of a registration with a persistent pin.
//!
//! The peer-memory core drives it: `acquire` (which pins), `get_pages`, `dma_map`, `dma_unmap`,
//! `put_pages`, `release`. It may stop after any step: `release` can follow `acquire` at once,
//! and `put_pages` follows a failed `dma_map`. Nothing else ends a persistent pin, so whatever
//! the core left out is made up for by `release`.

/// Where a registration stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// `acquire` pinned the range; the pin is ours and `get_pages` has not asked for it.
    Acquired,
    /// `get_pages` succeeded: the pin belongs to the registration until `put_pages`.
    Pinned,
    /// `dma_map` is at work outside the lock; the pin is with it.
    Mapping,
    /// Mapped for one device; the scatterlist is with the core.
    Mapped,
    /// `dma_unmap` is at work outside the lock; pin and mapping are with it.
    Unmapping,
    /// `put_pages` gave the pin back. Only `release` can follow.
    Put,
}

/// What happens to a registration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
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
    /// Give the pin back.
    Unpin,
}

/// The event makes no sense in this state: the core broke its contract. Nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Illegal;

/// The transition table: every pair that is not listed is [`Illegal`].
pub const fn step(state: State, event: Event) -> Result<(State, Action), Illegal> {
    Ok(match (state, event) {
        (State::Acquired, Event::GetPages) => (State::Pinned, Action::Nothing),
        (State::Pinned, Event::DmaMap) => (State::Mapping, Action::Map),
        (State::Mapping, Event::MapDone) => (State::Mapped, Action::Nothing),
        (State::Mapping, Event::MapFailed) => (State::Pinned, Action::Nothing),
        (State::Mapped, Event::DmaUnmap) => (State::Unmapping, Action::Unmap),
        (State::Unmapping, Event::UnmapDone) => (State::Pinned, Action::Nothing),
        (State::Pinned, Event::PutPages) => (State::Put, Action::Unpin),
        _ => return Err(Illegal),
    })
}
