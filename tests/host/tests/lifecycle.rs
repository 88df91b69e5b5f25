// SPDX-License-Identifier: GPL-2.0

//! The life of a registration: every cell of the table, also as the page for developers has it, and
//! every sequence of events.

use std::collections::{BTreeMap, BTreeSet};

use peermem_logic::lifecycle::{
    step, Action, Action::*, Event, Event::*, Refusal, Refusal::*, State, State::*,
};

const STATES: [State; 11] = [
    Pinning,
    Acquired,
    Pinned,
    Mapping,
    Mapped,
    Unmapping,
    Put,
    Releasing,
    Invalidating,
    Orphan,
    State::Gone,
];

const EVENTS: [Event; 14] = [
    PinDone,
    PinFailed,
    GetPages,
    DmaMap,
    MapDone,
    MapFailed,
    DmaUnmap,
    UnmapDone,
    PutPages,
    Release,
    UnpinDone,
    UnpinFailed,
    Freed,
    Invalidated,
];

type Answer = Result<(State, Action), Refusal>;

const GONE: Answer = Err(Refusal::Gone);
const WAIT: Answer = Err(Wait);

/// All but what is illegal, as Documentation/design.rst has it.
const TABLE: &[(State, &[Event], Answer)] = &[
    (Pinning, &[PinDone], Ok((Acquired, Nothing))),
    (Pinning, &[PinFailed], Ok((State::Gone, Nothing))),
    (Pinning, &[Freed], WAIT),
    (Acquired, &[GetPages], Ok((Pinned, Nothing))),
    (Acquired, &[Release], Ok((Releasing, Unpin))),
    (Acquired, &[Freed], Ok((State::Gone, Forget))),
    (Pinned, &[DmaMap], Ok((Mapping, Map))),
    (Pinned, &[PutPages], Ok((Put, Nothing))),
    (Pinned, &[Release], Ok((Releasing, Unpin))),
    (Pinned, &[Freed], Ok((State::Gone, Forget))),
    (Mapping, &[MapDone], Ok((Mapped, Nothing))),
    (Mapping, &[MapFailed], Ok((Pinned, Nothing))),
    (Mapping, &[Release, Freed], WAIT),
    (Mapped, &[DmaUnmap, Release], Ok((Unmapping, Unmap))),
    (Mapped, &[Freed], Ok((Invalidating, Invalidate))),
    (Unmapping, &[UnmapDone], Ok((Pinned, Nothing))),
    (Unmapping, &[Release, Freed], WAIT),
    (Put, &[Release], Ok((Releasing, Unpin))),
    (Put, &[Freed], Ok((State::Gone, Forget))),
    (Releasing, &[UnpinDone], Ok((State::Gone, Nothing))),
    (Releasing, &[UnpinFailed], Ok((Orphan, Nothing))),
    (Releasing, &[Freed], Ok((State::Gone, Nothing))),
    (Invalidating, &[Invalidated], Ok((State::Gone, Nothing))),
    (Invalidating, &[Release], WAIT),
    (
        Invalidating,
        &[GetPages, DmaMap, DmaUnmap, PutPages, Freed],
        GONE,
    ),
    (Orphan, &[Freed], Ok((State::Gone, Forget))),
    (
        State::Gone,
        &[Release, UnpinDone, UnpinFailed],
        Ok((State::Gone, Nothing)),
    ),
    (
        State::Gone,
        &[GetPages, DmaMap, DmaUnmap, PutPages, Freed],
        GONE,
    ),
];

fn cells() -> impl Iterator<Item = (State, Event)> {
    STATES
        .into_iter()
        .flat_map(|state| EVENTS.map(|event| (state, event)))
}

fn expected(state: State, event: Event) -> Answer {
    TABLE
        .iter()
        .find(|row| row.0 == state && row.1.contains(&event))
        .map_or(Err(Illegal), |row| row.2)
}

#[test]
fn every_cell() {
    for (state, event) in cells() {
        assert_eq!(
            step(state, event),
            expected(state, event),
            "{state:?} x {event:?}"
        );
    }
    let rows: usize = TABLE.iter().map(|row| row.1.len()).sum();
    let legal = cells().filter(|&(s, e)| step(s, e) != Err(Illegal)).count();
    assert_eq!(rows, legal, "a cell is there twice");
}

const PAGE: &str = include_str!("../../../Documentation/design.rst");

/// The one of `all` that the page calls `name`.
fn named<T: Copy + std::fmt::Debug>(all: &[T], name: &str) -> T {
    let mut all = all.iter();
    *all.find(|one| format!("{one:?}") == name)
        .unwrap_or_else(|| panic!("the page says {name}"))
}

fn answer(next: &str, then: &str) -> Answer {
    let action = match then {
        "" => Nothing,
        "map" => Map,
        "unmap" => Unmap,
        "give the pin back" => Unpin,
        "forget the pin" => Forget,
        "invalidate, unmap, forget the pin" => Invalidate,
        other => panic!("the page says {other}"),
    };
    match next {
        "(wait)" => WAIT,
        "(gone)" => GONE,
        next => Ok((named(&STATES, next), action)),
    }
}

#[test]
fn the_page_for_developers() {
    let mut lines = PAGE
        .lines()
        .skip_while(|line| *line != "Life of a registration")
        .skip_while(|line| !line.starts_with("State "));
    let columns = lines.next().expect("the table's head");
    let [events, next, then] = ["Event", "Next state", "Then"].map(|c| columns.find(c).expect(c));
    let mut page = BTreeMap::new();
    for line in lines.skip(1).take_while(|line| !line.starts_with("===")) {
        let column = |from: usize, to: usize| {
            let to = to.min(line.len());
            line.get(from.min(to)..to).expect(line).trim()
        };
        let state = named(&STATES, column(0, events));
        let answer = answer(column(next, then), column(then, usize::MAX));
        for event in column(events, next).split(", ") {
            let event = named(&EVENTS, event);
            let cell = (state as u8, event as u8);
            assert_eq!(
                page.insert(cell, answer),
                None,
                "{state:?} x {event:?} twice"
            );
        }
    }
    for (state, event) in cells() {
        let cell = (state as u8, event as u8);
        let shown = page.remove(&cell).unwrap_or(Err(Illegal));
        assert_eq!(shown, step(state, event), "{state:?} x {event:?}");
    }
}

/// What there is of a registration, told by the events and actions alone.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Holds {
    pin: bool,
    mapping: bool,
}

/// What the state promises.
fn promised(state: State) -> Holds {
    Holds {
        pin: !matches!(state, Pinning | State::Gone),
        mapping: matches!(state, Mapped | Unmapping | Invalidating),
    }
}

/// What one step makes of it; each thing can only be taken from where it is.
fn follow(before: Holds, event: Event, action: Action) -> Holds {
    let mut holds = before;
    match action {
        Map | Unpin | Forget => assert!(before.pin && !before.mapping),
        Unmap | Invalidate => assert!(before.pin && before.mapping),
        Nothing => {}
    }
    match event {
        PinDone => holds.pin = true,
        MapDone => holds.mapping = true,
        UnmapDone => holds.mapping = false,
        Invalidated => {
            holds = Holds {
                pin: false,
                mapping: false,
            }
        }
        UnpinDone => holds.pin = false,
        // In `Mapped`, `Invalidated` is what ends them.
        Freed if action != Invalidate => holds.pin = false,
        _ => {}
    }
    holds
}

/// Every state that events of `possible` lead to.
fn reachable(from: State, possible: &[Event]) -> Vec<State> {
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    let mut ahead = vec![from];
    while let Some(state) = ahead.pop() {
        if seen.insert(state as u8) {
            found.push(state);
            ahead.extend(
                possible
                    .iter()
                    .filter_map(|&event| step(state, event).ok())
                    .map(|(next, _)| next),
            );
        }
    }
    found
}

/// As what is held is the same whenever a state is reached, all sequences of events are covered
/// with each step from each state: every pin and mapping begins, and ends once, by the end of life.
#[test]
fn every_sequence_of_events_balances() {
    let nothing = promised(Pinning);
    assert_eq!(nothing, promised(State::Gone));
    let states = reachable(Pinning, &EVENTS);
    assert_eq!(states.len(), STATES.len());
    for state in states {
        for event in EVENTS {
            if let Ok((next, action)) = step(state, event) {
                let holds = follow(promised(state), event, action);
                assert_eq!(holds, promised(next), "{state:?} x {event:?}");
            }
        }
    }
}

/// What a thread at work reports in the end.
const REPORTS: [Event; 8] = [
    PinDone,
    PinFailed,
    MapDone,
    MapFailed,
    UnmapDone,
    UnpinDone,
    UnpinFailed,
    Invalidated,
];

fn with_reports(event: Event) -> Vec<Event> {
    [&REPORTS[..], &[event]].concat()
}

#[test]
fn release_ends_every_life_but_that_of_an_orphan() {
    for state in STATES.into_iter().filter(|state| *state != Orphan) {
        let ends = reachable(state, &with_reports(Release));
        assert!(ends.contains(&State::Gone), "{state:?}");
    }
}

#[test]
fn the_end_of_the_memory_ends_every_life() {
    for state in STATES {
        let ends = reachable(state, &with_reports(Freed));
        assert!(ends.contains(&State::Gone), "{state:?}");
    }
    // Nothing but that ends it.
    assert_eq!(reachable(Orphan, &with_reports(Release)), [Orphan]);
}

#[test]
fn nothing_comes_back() {
    assert_eq!(reachable(State::Gone, &EVENTS), [State::Gone]);
}

/// What a thread is about in this state; `None` if there is none.
fn work(state: State) -> Option<Action> {
    STATES
        .into_iter()
        .flat_map(|from| EVENTS.map(|event| step(from, event)))
        .flatten()
        .find(|(next, action)| *next == state && !matches!(action, Nothing | Forget))
        .map(|(_, action)| action)
}

/// The free callback waits with the GPU driver's lock, so not for a thread that may need that lock,
/// nor for itself. (A thread that is pinning has it behind itself when the callback can come.)
#[test]
fn nobody_waits_for_a_lock_of_the_gpu_driver() {
    for (state, event) in cells() {
        if step(state, event) != WAIT {
            continue;
        }
        let work = work(state);
        match event {
            Freed => assert!(state == Pinning || matches!(work, Some(Map | Unmap))),
            // The core holds nothing then that any work could need.
            Release => assert!(matches!(work, Some(Map | Unmap | Invalidate))),
            event => panic!("{event:?} waits in {state:?}"),
        }
        assert!(
            REPORTS.iter().any(|&report| step(state, report).is_ok()),
            "nobody ends {state:?}"
        );
    }
}

/// The callback takes a lock of the core's in `Invalidate`: the core must not hold it while it
/// waits for the GPU driver. It does not call for the driver but in `Unpin`, from `release`.
#[test]
fn only_release_gives_pins_back() {
    for (state, event) in cells() {
        if let Ok((_, Unpin)) = step(state, event) {
            assert_eq!(event, Release, "{state:?}");
        }
    }
}
