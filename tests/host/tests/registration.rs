// SPDX-License-Identifier: GPL-2.0

//! What the functions of a registration do and answer, call by call, with pins that are counted.
//!
//! What happens when calls meet is in `loom.rs`.

use std::{
    cell::{Cell, RefCell},
    mem,
    panic::{catch_unwind, resume_unwind, AssertUnwindSafe},
    rc::Rc,
};

use peermem_logic::{
    errno::{Errno, Failure},
    lifecycle::State,
    registration::{
        dma_map, dma_unmap, freed, get_pages, pin_failed, pinned, put_pages, release, Found, Life,
        Monitor, Pages,
    },
};
use proptest::prelude::*;

/// What became of pins, mappings and lists.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counts {
    /// Given back to the GPU driver, which took them.
    unpinned: usize,
    /// Not taken back.
    refused: usize,
    /// Found dead on the way to the GPU driver.
    overtaken: usize,
    /// Dropped without a word.
    forgotten: usize,
    mapped: usize,
    unmapped: usize,
    lists: usize,
    lists_dropped: usize,
}

/// What the pins are told, and what they tell.
#[derive(Default)]
struct Ledger {
    counts: Cell<Counts>,
    map_fails: Cell<bool>,
    put_fails: Cell<bool>,
    /// What happens next in the middle of a call.
    meanwhile: RefCell<Option<Box<dyn FnOnce()>>>,
}

impl Ledger {
    fn count(&self, change: impl FnOnce(&mut Counts)) {
        let mut counts = self.counts.get();
        change(&mut counts);
        self.counts.set(counts);
    }

    fn meanwhile(&self) {
        let act = self.meanwhile.borrow_mut().take();
        if let Some(act) = act {
            act();
        }
    }
}

struct Pin(Rc<Ledger>);
struct Mapping(Pin);
struct List(Rc<Ledger>);

impl Pages for Pin {
    type Device = u32;
    type Mapped = Mapping;
    type List = List;

    fn map(self, device: u32) -> Result<(Mapping, List), (Self, Failure)> {
        assert_eq!(device, DEVICE);
        self.0.meanwhile();
        if self.0.map_fails.get() {
            return Err((self, FAILURE));
        }
        self.0.count(|counts| {
            counts.mapped += 1;
            counts.lists += 1;
        });
        let list = List(self.0.clone());
        Ok((Mapping(self), list))
    }

    fn unmap(mapping: Mapping) -> Self {
        mapping.0 .0.meanwhile();
        mapping.0 .0.count(|counts| counts.unmapped += 1);
        mapping.0
    }

    fn unpin(self, due: impl FnOnce() -> bool) -> Result<(), Self> {
        self.0.meanwhile();
        let due = due();
        if due && self.0.put_fails.get() {
            self.0.count(|counts| counts.refused += 1);
            return Err(self);
        }
        self.0.count(|counts| match due {
            true => counts.unpinned += 1,
            false => counts.overtaken += 1,
        });
        // It is not dropped without a word.
        mem::forget(self);
        Ok(())
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        self.0.count(|counts| counts.forgotten += 1);
    }
}

impl Drop for List {
    fn drop(&mut self) {
        self.0.count(|counts| counts.lists_dropped += 1);
    }
}

/// What a thread that is alone does instead of waiting for ever.
struct Waits;

/// A lock for a single thread.
struct Alone<T>(RefCell<T>);

impl<T> Monitor for Alone<T> {
    type Value = T;

    fn update<R>(&self, change: impl FnOnce(&mut T) -> R) -> R {
        change(&mut *self.0.borrow_mut())
    }

    fn update_when<R>(&self, mut change: impl FnMut(&mut T) -> Option<R>) -> R {
        let result = change(&mut *self.0.borrow_mut());
        result.unwrap_or_else(|| resume_unwind(Box::new(Waits)))
    }
}

fn waits<R>(call: impl FnOnce() -> R) -> bool {
    match catch_unwind(AssertUnwindSafe(call)) {
        Ok(_) => false,
        Err(payload) => payload.is::<Waits>() || resume_unwind(payload),
    }
}

const DEVICE: u32 = 7;
const CONTEXT: u64 = 42;
const FAILURE: Failure = Failure::Map(Errno::ENOMEM);

/// A registration, and what its pins tell.
struct Registration {
    life: Rc<Alone<Life<Pin>>>,
    ledger: Rc<Ledger>,
}

impl Registration {
    fn of(life: Life<Pin>, ledger: Rc<Ledger>) -> Self {
        let life = Rc::new(Alone(RefCell::new(life)));
        Self { life, ledger }
    }

    fn pinning() -> Self {
        Self::of(Life::pinning(), Rc::default())
    }

    fn acquired() -> Self {
        let ledger: Rc<Ledger> = Rc::default();
        Self::of(Life::acquired(Pin(ledger.clone())), ledger)
    }

    /// One that came to this state in the usual way.
    fn in_state(state: State) -> Self {
        let this = match state {
            State::Pinning => return Self::pinning(),
            _ => Self::acquired(),
        };
        match state {
            State::Acquired => {}
            State::Pinned => this.get_pages().unwrap(),
            State::Mapped => this.map(),
            State::Put => {
                this.get_pages().unwrap();
                put_pages(&*this.life).unwrap();
            }
            State::Orphan => {
                this.ledger.put_fails.set(true);
                assert!(!release(&*this.life));
            }
            State::Gone => assert_eq!(this.freed().0, Found::Unmapped),
            other => panic!("{other:?} is not for long"),
        }
        assert_eq!(this.state(), state);
        this
    }

    fn state(&self) -> State {
        self.life.update(|life| life.state())
    }

    fn counts(&self) -> Counts {
        self.ledger.counts.get()
    }

    fn get_pages(&self) -> Result<(), Failure> {
        get_pages(&*self.life, CONTEXT)
    }

    fn dma_map(&self) -> Result<(), Failure> {
        dma_map(&*self.life, DEVICE, |_| {})
    }

    fn map(&self) {
        self.get_pages().unwrap();
        self.dma_map().unwrap();
    }

    /// What `freed` answers, and what it had invalidated.
    fn freed(&self) -> (Found, Vec<u64>) {
        let mut invalidated = Vec::new();
        let mapped = self.counts().mapped - self.counts().unmapped;
        let found = freed(&*self.life, |context| {
            assert_eq!(self.counts().mapped - self.counts().unmapped, mapped);
            invalidated.push(context);
        });
        (found, invalidated)
    }

    /// Lets `act` happen in the middle of the next call that leaves the lock.
    fn meanwhile(&self, act: impl FnOnce(&Alone<Life<Pin>>) + 'static) {
        let life = self.life.clone();
        *self.ledger.meanwhile.borrow_mut() = Some(Box::new(move || act(&life)));
    }
}

fn call_back(life: &Alone<Life<Pin>>) {
    let found = freed(life, |_| panic!("nothing is mapped"));
    assert_ne!(found, Found::Mapped);
}

const AT_REST: [State; 7] = [
    State::Pinning,
    State::Acquired,
    State::Pinned,
    State::Mapped,
    State::Put,
    State::Orphan,
    State::Gone,
];

#[test]
fn a_whole_life() {
    let this = Registration::pinning();
    pinned(&*this.life, Pin(this.ledger.clone()));
    assert_eq!(this.state(), State::Acquired);
    this.map();
    assert_eq!(this.state(), State::Mapped);
    dma_unmap(&*this.life).unwrap();
    put_pages(&*this.life).unwrap();
    assert_eq!(this.counts().unmapped, 1);
    assert_eq!(
        (this.counts().unpinned, this.counts().lists_dropped),
        (0, 0)
    );
    assert!(release(&*this.life));
    let expected = Counts {
        unpinned: 1,
        mapped: 1,
        unmapped: 1,
        lists: 1,
        lists_dropped: 1,
        ..Counts::default()
    };
    assert_eq!((this.state(), this.counts()), (State::Gone, expected));
}

#[test]
fn a_pin_that_failed() {
    let this = Registration::pinning();
    pin_failed(&*this.life);
    assert_eq!((this.state(), this.freed().0), (State::Gone, Found::Late));
    assert_eq!(this.counts(), Counts::default());
}

#[test]
fn release_in_every_state() {
    for state in AT_REST {
        let this = Registration::in_state(state);
        let before = this.counts();
        let over = release(&*this.life);
        let pinned = matches!(
            state,
            State::Acquired | State::Pinned | State::Mapped | State::Put
        );
        let mapped = usize::from(state == State::Mapped);
        assert_eq!(over, pinned || state == State::Gone, "{state:?}");
        let expected = Counts {
            unpinned: usize::from(pinned),
            unmapped: mapped,
            lists_dropped: mapped,
            ..before
        };
        assert_eq!(this.counts(), expected, "{state:?}");
        let next = if over { State::Gone } else { state };
        assert_eq!(this.state(), next);
    }
}

#[test]
fn freed_in_every_state() {
    for state in AT_REST {
        let this = Registration::in_state(state);
        let before = this.counts();
        if state == State::Pinning {
            assert!(waits(|| this.freed()));
            continue;
        }
        let (found, invalidated) = this.freed();
        let expected = match state {
            State::Mapped => Found::Mapped,
            State::Gone => Found::Late,
            _ => Found::Unmapped,
        };
        assert_eq!(found, expected, "{state:?}");
        let mapped = usize::from(state == State::Mapped);
        assert_eq!(invalidated, vec![CONTEXT; mapped], "{state:?}");
        let expected = Counts {
            forgotten: 1,
            unmapped: mapped,
            ..before
        };
        assert_eq!(this.counts(), expected, "{state:?}");
        assert_eq!(this.state(), State::Gone);
        // Once more, as it must not come.
        assert_eq!(this.freed(), (Found::Late, vec![]), "{state:?}");
        // The core goes on as if nothing was.
        dma_unmap(&*this.life).unwrap();
        put_pages(&*this.life).unwrap();
        assert_eq!(this.get_pages(), Err(Failure::Freed));
        assert_eq!(this.dma_map(), Err(Failure::Freed));
        assert_eq!(this.counts(), expected, "the core keeps the list");
        assert!(release(&*this.life));
        let lists_dropped = expected.lists;
        assert_eq!(
            this.counts(),
            Counts {
                lists_dropped,
                ..expected
            }
        );
    }
}

#[test]
fn unexpected_calls_change_nothing() {
    let error = Err(Failure::Contract);
    for state in AT_REST.into_iter().filter(|s| *s != State::Gone) {
        let this = Registration::in_state(state);
        let before = this.counts();
        if state != State::Acquired {
            assert_eq!(this.get_pages(), error, "{state:?}");
        }
        if state != State::Pinned {
            assert_eq!(this.dma_map(), error, "{state:?}");
            assert_eq!(put_pages(&*this.life), error, "{state:?}");
        }
        if state != State::Mapped {
            assert_eq!(dma_unmap(&*this.life), error, "{state:?}");
        }
        assert_eq!((this.state(), this.counts()), (state, before));
    }
}

#[test]
fn the_list_is_shown_once() {
    let this = Registration::in_state(State::Pinned);
    let mut shown = 0;
    dma_map(&*this.life, DEVICE, |list| {
        assert!(Rc::ptr_eq(&list.0, &this.ledger));
        // An invalidation has to wait until the core has the list.
        assert_eq!(this.state(), State::Mapping);
        shown += 1;
    })
    .unwrap();
    assert_eq!(shown, 1);
}

#[test]
fn a_failing_map() {
    let this = Registration::in_state(State::Pinned);
    this.ledger.map_fails.set(true);
    let result = dma_map(&*this.life, DEVICE, |_| panic!("there is no list"));
    assert_eq!((result, this.state()), (Err(FAILURE), State::Pinned));
    // The pin is as good as before.
    this.ledger.map_fails.set(false);
    this.dma_map().unwrap();
    dma_unmap(&*this.life).unwrap();
    put_pages(&*this.life).unwrap();
    assert!(release(&*this.life));
    assert_eq!((this.counts().unpinned, this.counts().forgotten), (1, 0));
}

#[test]
fn mapped_twice() {
    let this = Registration::in_state(State::Mapped);
    dma_unmap(&*this.life).unwrap();
    this.dma_map().unwrap();
    assert_eq!((this.counts().lists, this.counts().lists_dropped), (2, 1));
    assert!(release(&*this.life));
    assert_eq!((this.counts().mapped, this.counts().unmapped), (2, 2));
    assert_eq!(
        (this.counts().lists_dropped, this.counts().unpinned),
        (2, 1)
    );
}

#[test]
fn a_pin_that_is_not_taken_back() {
    let this = Registration::in_state(State::Mapped);
    this.ledger.put_fails.set(true);
    assert!(!release(&*this.life), "the callback will come");
    assert_eq!(this.state(), State::Orphan);
    assert_eq!((this.counts().refused, this.counts().lists_dropped), (1, 1));
    assert_eq!(this.counts().forgotten, 0, "it is still pinned");
    assert_eq!(this.freed(), (Found::Unmapped, vec![]));
    assert_eq!(this.freed(), (Found::Late, vec![]));
    assert_eq!(
        (
            this.state(),
            this.counts().unpinned,
            this.counts().forgotten
        ),
        (State::Gone, 0, 1)
    );
}

#[test]
fn freed_on_the_way_to_the_gpu_driver() {
    let this = Registration::in_state(State::Put);
    this.meanwhile(call_back);
    assert!(release(&*this.life));
    let expected = Counts {
        overtaken: 1,
        ..Counts::default()
    };
    assert_eq!((this.state(), this.counts()), (State::Gone, expected));
}

#[test]
fn the_callback_waits_for_a_mapping_that_is_made() {
    let this = Registration::in_state(State::Pinned);
    this.meanwhile(call_back);
    assert!(waits(|| this.dma_map()));
}

#[test]
fn the_callback_waits_for_a_mapping_that_is_undone() {
    let this = Registration::in_state(State::Mapped);
    this.meanwhile(call_back);
    assert!(waits(|| dma_unmap(&*this.life)));
}

#[test]
fn release_waits_for_an_invalidation_and_the_rest_does_not() {
    let this = Registration::in_state(State::Mapped);
    freed(&*this.life, |_| {
        assert_eq!(this.state(), State::Invalidating);
        dma_unmap(&*this.life).unwrap();
        put_pages(&*this.life).unwrap();
        assert_eq!(this.freed(), (Found::Late, vec![]));
        assert!(waits(|| release(&*this.life)));
        assert_eq!(this.counts().unmapped, 0);
    });
    assert_eq!((this.state(), this.counts().unmapped), (State::Gone, 1));
    assert!(release(&*this.life));
}

/// Where the core stands, to its own mind.
#[derive(Clone, Copy, PartialEq)]
enum Point {
    Claimed,
    Got,
    Mapped,
    Put,
}

/// A call, and where the core stands if it succeeds, and if it fails.
type Call = (fn(&Registration) -> Result<(), Failure>, Point, Point);

/// What a core can call, except `release`.
fn calls(point: Point) -> &'static [Call] {
    const GET: Call = (Registration::get_pages, Point::Got, Point::Claimed);
    const MAP: Call = (Registration::dma_map, Point::Mapped, Point::Got);
    const UNMAP: Call = (|this| dma_unmap(&*this.life), Point::Got, Point::Got);
    const PUT: Call = (|this| put_pages(&*this.life), Point::Put, Point::Put);
    match point {
        Point::Claimed => &[GET],
        Point::Got => &[MAP, MAP, PUT],
        Point::Mapped => &[UNMAP],
        Point::Put => &[],
    }
}

/// What happens next.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Happens {
    /// One of the calls that the core can make.
    Call(usize),
    Free,
    /// From here on, these fail or do not.
    Fails {
        map: bool,
        put: bool,
    },
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        8 => any::<usize>().prop_map(Happens::Call),
        1 => Just(Happens::Free),
        2 => any::<(bool, bool)>().prop_map(|(map, put)| Happens::Fails { map, put }),
    ]
}

proptest! {
    /// Whatever a core does and whenever the memory is freed, between calls or on the way to the GPU
    /// driver: each thing ends once.
    #[test]
    fn every_life_balances(
        script in prop::collection::vec(happens(), 0..24),
        overtaken: bool,
    ) {
        let this = Registration::acquired();
        let mut point = Point::Claimed;
        let mut alive = true;
        for next in script {
            match next {
                Happens::Call(choice) => {
                    let calls = calls(point);
                    if calls.is_empty() {
                        continue;
                    }
                    let (call, good, bad) = calls[choice % calls.len()];
                    let result = call(&this);
                    prop_assert_ne!(result, Err(Failure::Contract));
                    prop_assert_eq!(result == Err(Failure::Freed), result.is_err() && !alive);
                    point = if result.is_ok() { good } else { bad };
                }
                Happens::Free => {
                    let (found, invalidated) = this.freed();
                    let expected = match point {
                        _ if !alive => Found::Late,
                        Point::Mapped => Found::Mapped,
                        _ => Found::Unmapped,
                    };
                    prop_assert_eq!(found, expected);
                    prop_assert_eq!(invalidated.len(), usize::from(found == Found::Mapped));
                    alive = false;
                }
                Happens::Fails { map, put } => {
                    this.ledger.map_fails.set(map);
                    this.ledger.put_fails.set(put);
                }
            }
            let counts = this.counts();
            let mapped = alive && point == Point::Mapped;
            prop_assert_eq!(counts.mapped - counts.unmapped, usize::from(mapped));
            prop_assert_eq!(counts.forgotten, usize::from(!alive));
            prop_assert_eq!(counts.unpinned, 0);
        }
        let overtaken = overtaken && alive && point != Point::Mapped;
        if overtaken {
            this.meanwhile(call_back);
        }
        let over = release(&*this.life);
        prop_assert_eq!(over, this.counts().refused == 0);
        // If it is not over, the callback comes, and ends it.
        let found = if over { Found::Late } else { Found::Unmapped };
        prop_assert_eq!(this.freed(), (found, vec![]));
        prop_assert_eq!(this.state(), State::Gone);
        let counts = this.counts();
        prop_assert_eq!(counts.mapped, counts.unmapped);
        prop_assert_eq!(counts.lists, counts.lists_dropped);
        prop_assert_eq!(counts.overtaken, usize::from(overtaken));
        prop_assert_eq!(counts.unpinned + counts.overtaken + counts.forgotten, 1);
    }
}
