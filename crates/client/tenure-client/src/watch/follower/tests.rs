//! What a follower makes of messages that no honest node sends.

use bytes::Bytes;
use tenure_api::v1::watch_event::{Changes, Event, StateChunk};
use tenure_api::v1::{self, WatchEvent};

use super::{CHANGES_MAX, Follower};
use crate::watch::Target;

fn follower(with_state: bool) -> Follower {
    Follower::new(v1::Scope::default(), "c".to_owned(), Target::All, None, with_state)
}

fn removal(revision: u64) -> v1::Change {
    let kind = Some(v1::change::Kind::Removed(v1::change::Removed {
        reason: v1::EndReason::Session.into(),
    }));
    v1::Change {
        revision,
        key: Bytes::from_static(b"k"),
        kind,
        previous_version: Some(1),
    }
}

fn changes(revision: u64, count: usize, more: bool) -> WatchEvent {
    let changes = std::iter::repeat_n(removal(revision), count).collect();
    WatchEvent {
        event: Some(Event::Changes(Changes {
            changes,
            revision: revision - u64::from(more),
            more,
        })),
    }
}

#[test]
fn a_step_without_end_is_not_followed() {
    let mut follower = follower(false);
    assert!(follower.take(changes(7, CHANGES_MAX, true)).is_ok());
    assert!(follower.take(changes(7, 1, true)).is_err());
    assert!(follower.pop().is_none());
}

#[test]
fn a_state_that_was_not_asked_for_and_an_empty_event_are_nothing() {
    let mut follower = follower(false);
    let state = Event::State(StateChunk {
        keys: Vec::new(),
        revision: 9,
        last: true,
    });
    follower.take(WatchEvent { event: Some(state) }).unwrap();
    follower.take(WatchEvent { event: None }).unwrap();
    assert!(follower.pop().is_none());
    assert_eq!(follower.request(0).from, None);
}

#[test]
fn as_long_as_the_state_is_wanted_a_resumed_watch_asks_for_it_whole() {
    let mut follower = follower(true);
    let part = Event::State(StateChunk {
        keys: Vec::new(),
        revision: 9,
        last: false,
    });
    follower.take(WatchEvent { event: Some(part) }).unwrap();
    let request = follower.request(5);
    assert!(request.with_state && request.from.is_none() && request.min_revision == 5);
    let whole = Event::State(StateChunk {
        keys: Vec::new(),
        revision: 11,
        last: true,
    });
    follower.take(WatchEvent { event: Some(whole) }).unwrap();
    let request = follower.request(5);
    assert!(!request.with_state && request.from == Some(12));
}
