//! What a following makes of messages that no honest node sends, and what it asks for after honest ones.

use bytes::Bytes;
use tenure_api::v1::follow_event::{Event, Records, Started};
use tenure_api::v1::{self, FollowEvent};

use super::{Cursor, FollowEnd};
use crate::stream::ReadFrom;

fn started(next: u64, incarnation: u64) -> FollowEvent {
    FollowEvent {
        event: Some(Event::Started(Started { next, incarnation })),
    }
}

fn records(offsets: impl IntoIterator<Item = u64>) -> FollowEvent {
    let record = |offset| v1::Record {
        offset,
        data: Bytes::new(),
        time_us: 0,
        fence_token: None,
    };
    let records = offsets.into_iter().map(record).collect();
    FollowEvent {
        event: Some(Event::Records(Records { records })),
    }
}

#[test]
fn records_before_the_beginning_are_not_believed() {
    let mut cursor = Cursor::new(ReadFrom::Earliest, None);
    assert!(matches!(cursor.take(records([0])), Err(FollowEnd::Failed(_))));
}

#[test]
fn a_feed_that_begins_behind_what_is_wanted_is_a_gap() {
    let mut cursor = Cursor::new(ReadFrom::Offset(3), None);
    cursor.take(started(3, 1)).unwrap();
    cursor.take(records([3, 4])).unwrap();
    assert_eq!(cursor.wanted(), ReadFrom::Offset(5));
    let gap = cursor.take(started(7, 1));
    assert!(matches!(gap, Err(FollowEnd::Compacted { resume_from: 7 })), "{gap:?}");
}

#[test]
fn what_is_asked_for_first_is_kept_until_it_is_known_where_that_is() {
    for from in [ReadFrom::Earliest, ReadFrom::Latest, ReadFrom::Offset(3)] {
        assert_eq!(Cursor::new(from, None).wanted(), from);
    }
    let mut cursor = Cursor::new(ReadFrom::Latest, Some(1));
    cursor.take(started(9, 1)).unwrap();
    assert_eq!((cursor.wanted(), cursor.next_to_give()), (ReadFrom::Offset(9), 9));
}

#[test]
fn an_event_that_is_newer_than_this_program_changes_nothing() {
    let mut cursor = Cursor::new(ReadFrom::Latest, None);
    cursor.take(FollowEvent { event: None }).unwrap();
    assert_eq!(cursor.wanted(), ReadFrom::Latest);
}
