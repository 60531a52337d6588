//! Messages of changes: bounded, and whole revisions where that is possible.

use tenure_core::effect::ChangeKind;
use tenure_core::refusal::EndReason;

use super::*;

fn change(revision: u64) -> Change {
    Change {
        revision,
        incarnation: Incarnation(1),
        key: Bytes::from_static(b"k"),
        kind: ChangeKind::Removed {
            reason: EndReason::Session,
        },
        previous_version: Some(1),
    }
}

fn shape(items: &VecDeque<WatchItem>) -> Vec<(usize, u64, bool)> {
    let of = |item: &WatchItem| match item {
        WatchItem::Changes {
            changes,
            revision,
            more,
        } => (changes.len(), *revision, *more),
        other => panic!("not changes: {other:?}"),
    };
    items.iter().map(of).collect()
}

#[test]
fn few_changes_are_one_message() {
    let items = messages((5..8).map(change).collect());
    assert_eq!(shape(&items), [(3, 7, false)]);
    assert!(messages(Vec::new()).is_empty());
}

#[test]
fn many_revisions_are_cut_between_revisions() {
    let items = messages((1..=MESSAGE_CHANGES_MAX as u64 + 1).map(change).collect());
    let full = MESSAGE_CHANGES_MAX as u64;
    assert_eq!(
        shape(&items),
        [(MESSAGE_CHANGES_MAX, full, false), (1, full + 1, false)]
    );
}

#[test]
fn a_revision_larger_than_a_message_is_flagged_and_not_counted_as_reached() {
    let items = messages(std::iter::repeat_n(change(9), 2 * MESSAGE_CHANGES_MAX).collect());
    assert_eq!(
        shape(&items),
        [(MESSAGE_CHANGES_MAX, 8, true), (MESSAGE_CHANGES_MAX, 9, false)]
    );
}
