//! Watchers get what they asked for, in order, once, or are told where to resume.

use tenure_core::effect::ChangeKind;
use tenure_core::refusal::EndReason;

use super::buffer::{WATCHER_BYTES_MAX, WATCHER_CHANGES_MAX};
use super::*;

const GROUP: GroupId = GroupId(1);
const CACHE: Incarnation = Incarnation(3);

fn change(revision: u64, key: &str) -> Effect {
    Effect::Changed(Change {
        revision,
        incarnation: CACHE,
        key: Bytes::copy_from_slice(key.as_bytes()),
        kind: ChangeKind::Removed {
            reason: EndReason::Delete,
        },
        previous_version: None,
    })
}

fn watch(hub: &Arc<WatchHub>, target: Target, behind: u64) -> Registration {
    hub.register(GROUP, CACHE, target, || Revision(behind))
        .expect("there is room")
        .0
}

fn tell(hub: &WatchHub, revision: u64, effects: &[Effect]) {
    hub.applied(GROUP, effects, Revision(revision), Timestamp(0));
}

fn revisions(taken: Taken) -> Vec<u64> {
    match taken {
        Taken::Changes(changes) => changes.into_iter().map(|change| change.revision).collect(),
        other => panic!("no changes: {other:?}"),
    }
}

#[test]
fn a_watcher_gets_the_changes_of_its_key_or_prefix_and_no_others() {
    let hub = Arc::new(WatchHub::default());
    let key = watch(&hub, Target::Key(Bytes::from_static(b"a/1")), 0);
    let prefix = watch(&hub, Target::Prefix(Bytes::from_static(b"a/")), 0);
    let all = watch(&hub, Target::Prefix(Bytes::new()), 0);
    tell(&hub, 12, &[change(10, "a/1"), change(11, "a/2"), change(12, "b")]);
    assert_eq!(revisions(key.take(usize::MAX, usize::MAX)), [10]);
    assert_eq!(revisions(prefix.take(usize::MAX, usize::MAX)), [10, 11]);
    assert_eq!(revisions(all.take(usize::MAX, usize::MAX)), [10, 11, 12]);
    assert_eq!(all.take(usize::MAX, usize::MAX), Taken::Nothing);
}

#[test]
fn what_came_before_the_registration_is_left_to_the_feed() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Prefix(Bytes::new()), 11);
    tell(&hub, 12, &[change(11, "k"), change(12, "k")]);
    assert_eq!(revisions(watcher.take(usize::MAX, usize::MAX)), [12]);
}

#[test]
fn a_watcher_that_does_not_keep_up_is_told_where_to_resume_and_harms_nobody() {
    let hub = Arc::new(WatchHub::default());
    let slow = watch(&hub, Target::Prefix(Bytes::new()), 0);
    let quick = watch(&hub, Target::Prefix(Bytes::new()), 0);
    let mut seen = 0;
    let last = WATCHER_CHANGES_MAX as u64 + 10;
    for revision in 1..=last {
        tell(&hub, revision, &[change(revision, "k")]);
        seen += revisions(quick.take(usize::MAX, usize::MAX)).len() as u64;
    }
    assert_eq!(seen, last);
    let taken = revisions(slow.take(usize::MAX, usize::MAX));
    assert_eq!(taken, (1..=WATCHER_CHANGES_MAX as u64).collect::<Vec<_>>());
    assert_eq!(
        slow.take(usize::MAX, usize::MAX),
        Taken::Ended(WatchEnd::Lagged {
            resume_from: WATCHER_CHANGES_MAX as u64 + 1
        })
    );
    // It is still there until its reader has heard of its end.
    assert_eq!(hub.len(), 2);
    drop(slow);
    assert_eq!(hub.len(), 1);
}

#[test]
fn a_revision_of_which_not_all_fits_is_taken_back_whole() {
    let hub = Arc::new(WatchHub::default());
    let slow = watch(&hub, Target::Prefix(Bytes::new()), 0);
    tell(&hub, 1, &[change(1, "k")]);
    let many: Vec<Effect> = (0..=WATCHER_CHANGES_MAX).map(|n| change(2, &format!("k{n}"))).collect();
    tell(&hub, 2, &many);
    assert_eq!(revisions(slow.take(usize::MAX, usize::MAX)), [1]);
    assert_eq!(
        slow.take(usize::MAX, usize::MAX),
        Taken::Ended(WatchEnd::Lagged { resume_from: 2 })
    );
}

#[test]
fn a_single_revision_larger_than_the_buffer_still_gets_through() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Prefix(Bytes::new()), 0);
    let many: Vec<Effect> = (0..2 * WATCHER_CHANGES_MAX)
        .map(|n| change(1, &format!("k{n}")))
        .collect();
    tell(&hub, 1, &many);
    assert_eq!(
        revisions(watcher.take(usize::MAX, usize::MAX)).len(),
        2 * WATCHER_CHANGES_MAX
    );
    assert_eq!(watcher.take(usize::MAX, usize::MAX), Taken::Nothing);
}

#[test]
fn deleting_the_cache_ends_its_watchers_after_what_they_still_have() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Prefix(Bytes::new()), 0);
    let deleted = Effect::ObjectDeleted {
        incarnation: CACHE,
        revision: 6,
    };
    tell(&hub, 6, &[change(5, "k"), deleted]);
    assert_eq!(revisions(watcher.take(usize::MAX, usize::MAX)), [5]);
    assert_eq!(
        watcher.take(usize::MAX, usize::MAX),
        Taken::Ended(WatchEnd::ObjectDeleted { revision: 6 })
    );
    drop(watcher);
    assert_eq!(hub.len(), 0);
}

#[test]
fn progress_never_passes_what_waits() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Key(Bytes::from_static(b"k")), 4);
    assert_eq!(watcher.take_progress(), Some(Revision(4)));
    tell(&hub, 9, &[change(9, "other")]);
    assert_eq!(watcher.take_progress(), Some(Revision(9)));
    tell(&hub, 10, &[change(10, "k")]);
    assert_eq!(watcher.take_progress(), None);
}

#[test]
fn a_dropped_watcher_leaves_nothing_behind() {
    let hub = Arc::new(WatchHub::default());
    let watchers: Vec<_> = (0..100)
        .map(|n| watch(&hub, Target::Key(Bytes::from(format!("k{n}"))), 0))
        .collect();
    assert_eq!(hub.len(), 100);
    drop(watchers);
    assert_eq!(hub.len(), 0);
    let group = hub.group(GROUP);
    assert!(locked(&group).by_cache.is_empty() && locked(&group).places.is_empty());
    assert_eq!(hub.bytes(), 0);
}

#[test]
fn one_watcher_too_many_is_refused() {
    let hub = Arc::new(WatchHub::default());
    let watchers: Vec<_> = (0..WATCHERS_MAX)
        .map(|_| watch(&hub, Target::Prefix(Bytes::new()), 0))
        .collect();
    let refused = hub.register(GROUP, CACHE, Target::Prefix(Bytes::new()), || Revision(0));
    assert_eq!(refused.map(|_| ()), Err(WATCHERS_MAX));
    drop(watchers);
}

#[test]
fn an_installed_snapshot_tells_every_watcher_that_it_missed_something() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Prefix(Bytes::new()), 0);
    hub.reset(GROUP, Revision(40));
    assert_eq!(
        watcher.take(usize::MAX, usize::MAX),
        Taken::Ended(WatchEnd::Lagged { resume_from: 41 })
    );
}

#[test]
fn a_watcher_that_looks_in_the_middle_of_an_entry_gets_whole_revisions_only() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Prefix(Bytes::new()), 0);
    let Effect::Changed(first) = change(7, "a") else {
        panic!("it is a change")
    };
    // The apply is between the first and the second change of a revision.
    let mut touched = Touched::default();
    locked(&hub.group(GROUP)).tell(&first, &hub.memory, &mut touched);
    assert_eq!(watcher.take(usize::MAX, usize::MAX), Taken::Nothing);
    assert_eq!(watcher.take_progress(), None);
    tell(&hub, 7, &[change(7, "b")]);
    assert_eq!(revisions(watcher.take(usize::MAX, usize::MAX)), [7, 7]);
}

fn put(revision: u64, key: &str, bytes: usize) -> Effect {
    Effect::Changed(Change {
        revision,
        incarnation: CACHE,
        key: Bytes::copy_from_slice(key.as_bytes()),
        kind: ChangeKind::Put {
            value: Bytes::from(vec![1; bytes]),
            created: revision,
            owner: None,
            ttl: None,
        },
        previous_version: None,
    })
}

#[test]
fn what_waits_for_many_is_counted_once_and_what_was_taken_no_more() {
    let hub = Arc::new(WatchHub::default());
    let watchers: Vec<_> = (0..100).map(|_| watch(&hub, Target::Prefix(Bytes::new()), 0)).collect();
    tell(&hub, 1, &[put(1, "k", 100_000)]);
    let waiting = hub.bytes();
    assert!((100_000..110_000).contains(&waiting), "{waiting}");
    for watcher in &watchers[1..] {
        assert_eq!(revisions(watcher.take(usize::MAX, usize::MAX)), [1]);
    }
    assert!((100_000..101_000).contains(&hub.bytes()));
    drop(watchers);
    assert_eq!(hub.bytes(), 0);
}

#[test]
fn a_watcher_holds_at_most_its_bytes() {
    let hub = Arc::new(WatchHub::default());
    let slow = watch(&hub, Target::Prefix(Bytes::new()), 0);
    for revision in 1..=100 {
        tell(&hub, revision, &[put(revision, "k", 100_000)]);
        assert!(hub.bytes() <= WATCHER_BYTES_MAX + 100_000);
    }
    let seen = revisions(slow.take(usize::MAX, usize::MAX));
    let resume_from = seen.last().expect("it has some") + 1;
    assert_eq!(
        slow.take(usize::MAX, usize::MAX),
        Taken::Ended(WatchEnd::Lagged { resume_from })
    );
    assert_eq!(hub.bytes(), 0);
}

#[test]
fn when_all_together_hold_too_much_the_fattest_is_cut_off_and_the_others_go_on() {
    let hub = Arc::new(WatchHub::with_bytes_max(1 << 20));
    let watch_of = |key: &'static str| watch(&hub, Target::Key(Bytes::from_static(key.as_bytes())), 0);
    let (fat, lean, quick) = (watch_of("fat"), watch_of("lean"), watch_of("quick"));
    let mut revision = 0;
    let mut next = |key: &str, bytes| {
        revision += 1;
        tell(&hub, revision, &[put(revision, key, bytes)]);
        assert!(hub.bytes() <= 1 << 20);
        revision
    };
    let first = next("lean", 50_000);
    let cut = next("fat", 10_000);
    for _ in 0..200 {
        next("fat", 10_000);
        let told = next("quick", 10_000);
        assert_eq!(revisions(quick.take(usize::MAX, usize::MAX)), [told]);
    }
    // It is told of nothing that waited, and can go on from there.
    assert_eq!(
        fat.take(usize::MAX, usize::MAX),
        Taken::Ended(WatchEnd::Lagged { resume_from: cut })
    );
    assert_eq!(revisions(lean.take(usize::MAX, usize::MAX)), [first]);
    assert_eq!(hub.cut_off(), 1);
    assert_eq!(hub.bytes(), 0);
}

#[test]
fn what_is_taken_at_once_is_bounded_but_for_a_single_revision() {
    let hub = Arc::new(WatchHub::default());
    let watcher = watch(&hub, Target::Prefix(Bytes::new()), 0);
    tell(
        &hub,
        3,
        &[
            change(1, "a"),
            change(2, "a"),
            change(2, "b"),
            change(2, "c"),
            change(3, "a"),
        ],
    );
    assert_eq!(revisions(watcher.take(2, usize::MAX)), [1, 2, 2, 2]);
    assert_eq!(revisions(watcher.take(2, usize::MAX)), [3]);
    tell(&hub, 5, &[change(4, "a"), change(4, "b"), change(5, "a")]);
    assert_eq!(revisions(watcher.take(usize::MAX, 1)), [4, 4]);
    assert_eq!(revisions(watcher.take(usize::MAX, 1)), [5]);
}
