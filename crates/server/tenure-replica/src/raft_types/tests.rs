//! What goes to disk comes back, and no bytes make a decoder panic.

use std::collections::BTreeSet;

use bytes::Bytes;
use openraft::EntryPayload;

use tenure_core::time::Timestamp;

use super::{
    AppliedState, EntryData, LogEntry, Membership, StoredMembership, Vote, decode_applied, decode_entry, decode_log_id,
    decode_stamp, decode_term, decode_vote, encode_applied, encode_entry, encode_log_id, encode_vote, log_id,
};

fn membership() -> Membership {
    Membership::new_with_defaults(vec![BTreeSet::from([1, 2, 3]), BTreeSet::from([2, 3, 4])], [9])
}

fn entries() -> Vec<LogEntry> {
    vec![
        LogEntry {
            log_id: log_id(3, 7),
            payload: EntryPayload::Blank,
        },
        LogEntry {
            log_id: log_id(u64::MAX, u64::MAX),
            payload: EntryPayload::Normal(EntryData {
                stamp: Timestamp(1_234_567),
                bytes: Bytes::from_static(b"whatever the core wrote"),
            }),
        },
        LogEntry {
            log_id: log_id(4, 0),
            payload: EntryPayload::Membership(membership()),
        },
        LogEntry {
            log_id: log_id(4, 0),
            payload: EntryPayload::Membership(Membership::default()),
        },
    ]
}

#[test]
fn entries_come_back_as_they_were() {
    for entry in entries() {
        let bytes = encode_entry(&entry);
        assert_eq!(decode_entry(entry.log_id.index, &bytes), Ok(entry.clone()));
        assert_eq!(decode_term(&bytes), Ok(entry.log_id.leader_id.term));
        let stamp = match &entry.payload {
            EntryPayload::Normal(data) => Some(data.stamp),
            EntryPayload::Blank | EntryPayload::Membership(_) => None,
        };
        assert_eq!(decode_stamp(&bytes), Ok(stamp));
    }
}

#[test]
fn votes_log_ids_and_applied_marks_come_back_as_they_were() {
    for vote in [Vote::new(3, 9), Vote::new_committed(u64::MAX, 1)] {
        assert_eq!(decode_vote(&encode_vote(&vote)), Ok(vote));
    }
    for id in [None, Some(log_id(5, 6))] {
        assert_eq!(decode_log_id(&encode_log_id(id)), Ok(id));
    }
    for applied in [
        AppliedState::default(),
        AppliedState {
            last: Some(log_id(2, 30)),
            membership: StoredMembership::new(Some(log_id(1, 2)), membership()),
        },
    ] {
        assert_eq!(decode_applied(&encode_applied(&applied)), Ok(applied));
    }
}

#[test]
fn the_written_bytes_do_not_change() {
    let entry = LogEntry {
        log_id: log_id(2, 5),
        payload: EntryPayload::Normal(EntryData {
            stamp: Timestamp(258),
            bytes: Bytes::from_static(b"x"),
        }),
    };
    assert_eq!(
        encode_entry(&entry).as_ref(),
        [1, 1, 2, 0, 0, 0, 0, 0, 0, 0, 2, 1, 0, 0, 0, 0, 0, 0, b'x'],
        "form, kind, term, stamp, entry"
    );
    assert_eq!(
        encode_vote(&Vote::new_committed(1, 2)).as_ref(),
        [1, 1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1]
    );
}

#[test]
fn broken_bytes_are_refused_and_never_panic() {
    let mut forms: Vec<Bytes> = entries().iter().map(encode_entry).collect();
    forms.push(encode_vote(&Vote::new(3, 9)));
    forms.push(encode_applied(&AppliedState {
        last: Some(log_id(2, 30)),
        membership: StoredMembership::new(None, membership()),
    }));
    for form in forms {
        for cut in 0..form.len() {
            decode_all(&form.slice(..cut));
        }
        for at in 0..form.len() {
            for bit in 0..8 {
                let mut broken = form.to_vec();
                broken[at] ^= 1 << bit;
                decode_all(&Bytes::from(broken));
            }
        }
    }
    assert!(decode_entry(0, &Bytes::new()).is_err());
    assert!(decode_vote(&Bytes::from_static(&[2; 18])).is_err(), "another form");
}

fn decode_all(bytes: &Bytes) {
    let _ = decode_entry(1, bytes);
    let _ = decode_stamp(bytes);
    let _ = decode_term(bytes);
    let _ = decode_vote(bytes);
    let _ = decode_log_id(bytes);
    let _ = decode_applied(bytes);
}
