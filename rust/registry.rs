// SPDX-License-Identifier: GPL-2.0

//! All live registrations, by number.
//!
//! The number is what the GPU driver's free callback is given, too: the callback may come when the
//! registration is long gone. A number that is never used again can be looked up then; a pointer
//! could not.

use kernel::{
    fmt,
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        atomic::{
            Atomic,
            Relaxed, //
        },
        Arc, //
    },
};

use crate::{
    ffi::globals::REGISTRY,
    registration::Client,
    stats::STATS, //
};

/// A registration, for those who know it by its number alone.
pub(crate) trait Registered: Send + Sync {
    /// The memory is about to be freed; it is, when this returns.
    fn revoke(&self);

    /// Writes what debugfs shows of it.
    fn describe(&self, to: &mut dyn fmt::Write) -> fmt::Result;
}

/// The free callback: the memory of the registration of this number is about to go.
pub(crate) fn revoke(id: Id) {
    // The one client with revocable pins.
    Client::NvMem.stats().num_free_callbacks.add(1);
    match id.registration() {
        Some(registration) => registration.revoke(),
        None => STATS.late_callbacks.add(1),
    }
}

/// The live registrations.
pub(crate) struct Registry {
    live: Option<RBTree<u64, Arc<dyn Registered>>>,
}

impl Registry {
    pub(crate) const fn new() -> Self {
        Self { live: None }
    }
}

/// A number that stands for one registration, until [`Id::close`].
#[derive(Clone, Copy)]
pub(crate) struct Id(u64);

impl Id {
    /// A number that nothing stands for yet.
    pub(crate) fn new() -> Self {
        static LAST: Atomic<u64> = Atomic::new(0);
        // A billion a second would take it 500 years to wrap.
        Self(LAST.fetch_add(1, Relaxed).wrapping_add(1))
    }

    /// The one of this number, which may stand for nothing any more.
    pub(crate) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(crate) const fn number(self) -> u64 {
        self.0
    }

    /// Lets it stand for `registration`, and keeps that alive.
    pub(crate) fn open(self, registration: Arc<dyn Registered>) -> Result {
        let node = RBTreeNode::new(self.0, registration, GFP_KERNEL)?;
        let mut registry = REGISTRY.lock();
        let replaced = registry.live.get_or_insert_with(RBTree::new).insert(node);
        drop(registry);
        drop(replaced);
        Ok(())
    }

    /// What it stands for.
    pub(crate) fn registration(self) -> Option<Arc<dyn Registered>> {
        REGISTRY.lock().live.as_ref()?.get(&self.0).cloned()
    }

    /// It stands for nothing from here on.
    pub(crate) fn close(self) {
        let mut registry = REGISTRY.lock();
        let registration = registry.live.as_mut().and_then(|live| live.remove(&self.0));
        // Dropping it may be the end of a registration, which must not happen under the lock.
        drop(registry);
        drop(registration);
    }

    /// The first live registration from this number on.
    pub(crate) fn next(self) -> Option<(Self, Arc<dyn Registered>)> {
        let registry = REGISTRY.lock();
        let cursor = registry.live.as_ref()?.cursor_lower_bound(&self.0)?;
        let (number, registration) = cursor.current();
        Some((Self(*number), registration.clone()))
    }
}
