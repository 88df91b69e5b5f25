// SPDX-License-Identifier: GPL-2.0

//! Numbers that stand for registrations where the GPU driver wants a pointer.
//!
//! The driver hands it to the free callback, which may come when the registration is long gone.
//! A number that is never used again can be looked up then; a pointer could not.

use kernel::{
    prelude::*,
    rbtree::{
        RBTree,
        RBTreeNode, //
    },
    sync::{
        global_lock,
        Arc, //
    },
};

/// What the free callback does to a registration.
pub(crate) trait Revoke: Send + Sync {
    /// The memory is about to be freed; it is, when this returns.
    fn revoke(&self);
}

struct Book {
    last: u64,
    open: Option<RBTree<u64, Arc<dyn Revoke>>>,
}

global_lock! {
    // SAFETY: By the contract of `init`.
    unsafe(uninit) static TICKETS: Mutex<Book> = Book { last: 0, open: None };
}

/// Makes the tickets ready for use.
///
/// # Safety
///
/// Must be called once, and return before anything else in this file is called.
pub(super) unsafe fn init() {
    // SAFETY: By the safety requirements.
    unsafe { TICKETS.init() };
}

/// A number that stands for one registration until [`Ticket::close`].
#[derive(Clone, Copy)]
pub(crate) struct Ticket(u64);

impl Ticket {
    /// A number that nothing stands for yet.
    pub(crate) fn new() -> Self {
        let mut book = TICKETS.lock();
        // A billion a second would take it 500 years to wrap.
        book.last = book.last.wrapping_add(1);
        Self(book.last)
    }

    /// The ticket of this number, which may stand for nothing any more.
    pub(super) const fn from_number(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub(super) const fn number(self) -> u64 {
        self.0
    }

    /// Lets it stand for `target`, and keeps that alive.
    pub(crate) fn open(self, target: Arc<dyn Revoke>) -> Result {
        let node = RBTreeNode::new(self.0, target, GFP_KERNEL)?;
        let mut book = TICKETS.lock();
        let replaced = book.open.get_or_insert_with(RBTree::new).insert(node);
        drop(book);
        drop(replaced);
        Ok(())
    }

    /// What it stands for.
    pub(super) fn target(self) -> Option<Arc<dyn Revoke>> {
        TICKETS.lock().open.as_ref()?.get(&self.0).cloned()
    }

    /// It stands for nothing from here on.
    pub(crate) fn close(self) {
        let mut book = TICKETS.lock();
        let target = book.open.as_mut().and_then(|open| open.remove(&self.0));
        // Dropping it may be the end of a registration, which must not happen under the lock.
        drop(book);
        drop(target);
    }
}
