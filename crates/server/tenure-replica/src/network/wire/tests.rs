//! What a message holds, and what comes back of what was sent.

use bytes::Bytes;

use tenure_core::time::Timestamp;

use super::*;
use crate::raft_types::EntryData;

fn entry(index: u64, len: usize) -> LogEntry {
    let data = EntryData {
        stamp: Timestamp(index),
        bytes: Bytes::from(vec![7; len]),
    };
    openraft::Entry {
        log_id: raft_types::log_id(3, index),
        payload: EntryPayload::Normal(data),
    }
}

#[test]
fn an_append_holds_at_least_one_entry_and_no_more_than_fits() {
    let small: Vec<LogEntry> = (5..25).map(|index| entry(index, 1 << 19)).collect();
    let sent = from_entries(&small);
    assert_eq!(
        sent.len(),
        7,
        "with their heads, eight of half a mebibyte are over four"
    );
    assert_eq!(to_entries(5, &sent), Ok(small[..7].to_vec()));
    let large = [entry(5, 6 << 20), entry(6, 1)];
    assert_eq!(from_entries(&large).len(), 1);
    assert_eq!(from_entries(&[]).len(), 0);
}

#[test]
fn a_malformed_append_is_refused() {
    assert!(to_entries(1, &[Bytes::from_static(b"\xff")]).is_err());
    assert!(to_entries(u64::MAX, &from_entries(&[entry(1, 1)])).is_err());
}

#[test]
fn every_reason_comes_back_as_it_was_sent() {
    let reasons = [
        Unavailable::NotLeader { leader: None },
        Unavailable::NotLeader {
            leader: Some(NodeId(3)),
        },
        Unavailable::NoLeader,
        Unavailable::Deadline,
        Unavailable::Overloaded {
            retry_after: Duration::from_millis(70),
        },
        Unavailable::LeadershipLost,
        Unavailable::QuorumTimeout,
        Unavailable::Stopped {
            why: "gone".into(),
            proposed: false,
        },
        Unavailable::Stopped {
            why: "gone".into(),
            proposed: true,
        },
        Unavailable::Internal("odd".into()),
    ];
    for reason in reasons {
        assert_eq!(to_unavailable(&to_refused(&reason)), reason);
    }
    let newer = peer::Refused {
        reason: 99,
        ..peer::Refused::default()
    };
    assert_eq!(to_unavailable(&newer).outcome(), crate::error::Outcome::Unknown);
}
