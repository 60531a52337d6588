//! Messages of changes: bounded, and whole revisions where that is possible.

use tenure_core::effect::ChangeKind;
use tenure_core::refusal::EndReason;
use tenure_storage::feed::FeedLimits;
use tenure_storage::mem::MemEngine;
use tenure_storage::state::StateEngine;

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

/// A clock that stands still.
struct Still;

impl Clock for Still {
    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

#[tokio::test(start_paused = true)]
async fn a_state_is_kept_while_it_is_read_on_and_let_go_when_it_is_not() {
    let state = MemEngine::new(FeedLimits::default())
        .group(GroupId(1))
        .expect("a fresh state");
    let pinned = Pinned {
        image: Mutex::new(Some(state.image().expect("an image"))),
        pages: AtomicU64::new(0),
    };
    let query = Query::Cluster;
    let read_on = async {
        for _ in 0..10 {
            wait_in_paused_time(STATE_IDLE_MAX / 2).await;
            assert!(pinned.query(&query).is_some());
        }
        wait_in_paused_time(2 * STATE_IDLE_MAX).await;
        assert!(pinned.query(&query).is_none());
    };
    tokio::join!(pinned.release_when_idle(&Still), read_on);
}

/// Lets the paused clock go on.
async fn wait_in_paused_time(time: Duration) {
    tokio::time::sleep(time).await;
}
