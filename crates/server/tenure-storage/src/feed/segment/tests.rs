//! Segments by themselves.

use proptest::prelude::*;
use tenure_core::effect::ChangeKind;
use tenure_core::ids::Incarnation;

use super::*;

const GROUP: GroupId = GroupId(3);

fn change(revision: u64, value_len: usize) -> Change {
    let kind = ChangeKind::Put {
        value: vec![7; value_len].into(),
        created: 1,
        owner: None,
        ttl: None,
    };
    Change {
        revision,
        incarnation: Incarnation(1),
        key: Bytes::from_static(b"k"),
        kind,
        previous_version: Some(2),
    }
}

fn decoded(row: &[u8]) -> Result<Vec<Change>, StateError> {
    decode_segment(GROUP, row).collect()
}

#[test]
fn segments_end_between_revisions_and_give_back_what_went_in() {
    let changes: Vec<Change> = [1, 1, 1, 4, 5, 5, 9].map(|revision| change(revision, 60)).to_vec();
    let segments = encode_segments(&changes, Timestamp(5), 150);
    let spans: Vec<(u64, u64)> = segments
        .iter()
        .map(|(segment, _)| (segment.first, segment.last))
        .collect();
    assert_eq!(spans, [(1, 1), (4, 5), (9, 9)]);
    let back: Vec<Change> = segments
        .iter()
        .flat_map(|(_, row)| decoded(row).expect("it decodes"))
        .collect();
    assert_eq!(back, changes);
    assert!(
        segments
            .iter()
            .all(|(segment, row)| segment.bytes == row.len() as u64 && segment.time == Timestamp(5))
    );
    assert!(encode_segments(&[], Timestamp(5), 150).is_empty());
}

#[test]
fn a_segment_that_ends_early_is_damage() {
    let (_, row) = encode_segments(&[change(1, 10), change(2, 10)], Timestamp(0), 1 << 20).remove(0);
    let whole = [
        0,
        decoded(&row[..row.len() / 2])
            .expect("each change has the same length")
            .len()
            * row.len()
            / 2,
    ];
    for length in (0..row.len()).filter(|length| !whole.contains(length)) {
        let error = decoded(&row[..length]).expect_err("a part of a change is no change");
        assert!(matches!(error, StateError::Damaged { group: GROUP, .. }), "{error}");
    }
}

#[test]
fn whatever_the_bytes_are_decoding_ends() {
    proptest!(|(bytes in proptest::collection::vec(any::<u8>(), 0..200))| {
        let decoded: Vec<_> = decode_segment(GROUP, &bytes).collect();
        prop_assert!(decoded.len() <= bytes.len());
        prop_assert!(decoded.iter().rev().skip(1).all(Result::is_ok), "nothing follows an error");
    });
}
