// SPDX-License-Identifier: GPL-2.0

//! The life of a registration: every cell of the table, and every sequence of calls.

use peermem_logic::lifecycle::{
    step, Action, Action::*, Event, Event::*, Illegal, State, State::*,
};

const STATES: [State; 6] = [Acquired, Pinned, Mapping, Mapped, Unmapping, Put];
const EVENTS: [Event; 7] = [
    GetPages, DmaMap, MapDone, MapFailed, DmaUnmap, UnmapDone, PutPages,
];

/// The legal cells, as Documentation/design.rst has them.
const LEGAL: [(State, Event, State, Action); 7] = [
    (Acquired, GetPages, Pinned, Nothing),
    (Pinned, DmaMap, Mapping, Map),
    (Mapping, MapDone, Mapped, Nothing),
    (Mapping, MapFailed, Pinned, Nothing),
    (Mapped, DmaUnmap, Unmapping, Unmap),
    (Unmapping, UnmapDone, Pinned, Nothing),
    (Pinned, PutPages, Put, Unpin),
];

#[test]
fn every_cell() {
    for state in STATES {
        for event in EVENTS {
            let expected = LEGAL
                .iter()
                .find(|cell| (cell.0, cell.1) == (state, event))
                .map(|cell| (cell.2, cell.3))
                .ok_or(Illegal);
            assert_eq!(step(state, event), expected, "{state:?} x {event:?}");
        }
    }
}

/// What a registration holds, told by the actions alone.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Holds {
    pin: bool,
    mapping: bool,
}

/// Follows every sequence of `depth` more events; at any point the core may release.
fn explore(state: State, holds: Holds, depth: u32) {
    // What `release` finds is what the state promises.
    let promised = Holds {
        pin: state != Put,
        mapping: matches!(state, Mapped | Unmapping),
    };
    assert_eq!(holds, promised, "{state:?}");
    if depth == 0 {
        return;
    }
    for event in EVENTS {
        let Ok((next, action)) = step(state, event) else {
            continue;
        };
        let mut holds = holds;
        match (event, action) {
            (_, Map) => assert!(holds.pin && !holds.mapping),
            (_, Unmap) => assert!(holds.pin && holds.mapping),
            (_, Unpin) => {
                assert!(holds.pin && !holds.mapping, "unpinned while mapped");
                holds.pin = false;
            }
            (MapDone, Nothing) => holds.mapping = true,
            (UnmapDone, Nothing) => holds.mapping = false,
            _ => {}
        }
        explore(next, holds, depth - 1);
    }
}

#[test]
fn every_sequence_of_calls_balances() {
    let acquired = Holds {
        pin: true,
        mapping: false,
    };
    explore(Acquired, acquired, 14);
}
