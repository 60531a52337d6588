//! What a group's state promises, whichever engine keeps it.
#![expect(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use proptest::prelude::*;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::snapshot::ImportError;
use tenure_core::table::{Table, TableRead, Visit, Writes};
use tenure_core::time::Timestamp;
use tenure_storage::feed::FeedError;
use tenure_storage::state::{GroupState, StateError, Stops};

use crate::state_harness::{GROUP, Harness, MadeLog, Rows, mark, read_feed, rows_in, rows_of, with_both_engines};

with_both_engines!(
    a_fresh_state_is_empty_and_has_no_mark,
    a_commit_is_seen_at_once_and_on_disk_only_when_written_behind,
    nothing_is_written_beyond_the_flushed_log,
    steady_commits_cannot_starve_the_write_behind,
    marks_without_writes_are_kept_too,
    a_scan_merges_all_generations_and_the_disk,
    a_scan_stops_where_the_visitor_says,
    a_visitor_may_read_the_table_it_scans,
    the_overlay_is_empty_when_all_is_written,
    only_what_is_synced_counts_as_durable,
    a_commit_that_does_not_lie_behind_the_last_one_is_refused,
    groups_do_not_see_each_other,
    an_image_stays_as_it_was_while_commits_go_on,
    many_images_of_a_state_that_is_not_flushed_are_all_true,
    an_install_replaces_everything_and_survives_a_restart,
    an_install_that_fails_changes_nothing,
    an_install_out_of_order_changes_nothing,
    an_image_from_before_an_install_stays_readable,
    a_state_can_be_installed_again_and_again,
    a_state_that_begins_anew_is_empty_and_closes_its_old_handles,
    readers_see_all_of_the_old_state_or_all_of_the_new,
    random_histories_agree_with_a_plain_map,
);

fn a_fresh_state_is_empty_and_has_no_mark(harness: Harness) {
    let state = harness.state();
    assert_eq!(state.applied(), None);
    assert_eq!(rows_of(&state), Rows::new());
    assert_eq!(state.pending().written, None);
    assert_eq!(state.make_durable(100).unwrap(), None);
    assert_eq!(state.group(), GROUP);
}

fn a_commit_is_seen_at_once_and_on_disk_only_when_written_behind(mut harness: Harness) {
    let mut log = MadeLog::default();
    log.push([(1, Some(vec![1]))]);
    let state = harness.state();
    log.catch_up(&state);
    log.check_at(&state, 1);
    drop(state);

    harness.restart();
    let state = harness.state();
    log.check_at(&state, 0);
    log.catch_up(&state);
    state.write_behind(1).unwrap();
    drop(state);

    harness.restart();
    log.check_at(&harness.state(), 1);
}

fn nothing_is_written_beyond_the_flushed_log(mut harness: Harness) {
    let mut log = MadeLog::default();
    for value in 0..10 {
        log.push([(value % 3, Some(vec![value]))]);
        let state = harness.state();
        log.catch_up(&state);
        // The log is four entries behind.
        state.write_behind(log.last_index().saturating_sub(4)).unwrap();
        assert!(state.pending().written.unwrap_or(0) <= log.last_index().saturating_sub(4));
    }
    let written = harness.state().pending().written.unwrap_or(0);
    assert!(written > 0, "what is flushed is written in the end");
    harness.restart();
    log.check_at(&harness.state(), written);
}

fn steady_commits_cannot_starve_the_write_behind(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    let mut written = Vec::new();
    for round in 0..20_u8 {
        // Whenever it is written behind, the newest entry is not flushed yet.
        let flushed = log.last_index();
        log.push([(round, Some(vec![round]))]);
        log.catch_up(&state);
        state.write_behind(flushed).unwrap();
        written.push(state.pending().written.unwrap_or(0));
    }
    assert!(
        written.last().unwrap() + 3 >= log.last_index(),
        "it follows closely: {written:?}"
    );
}

fn marks_without_writes_are_kept_too(mut harness: Harness) {
    let state = harness.state();
    state.commit(Writes::new(), Vec::new(), Timestamp(0), mark(0)).unwrap();
    assert_eq!(state.make_durable(0).unwrap(), Some(0));
    drop(state);
    harness.restart();
    assert_eq!(harness.state().applied(), Some(mark(0)));
    assert_eq!(harness.state().pending().durable, Some(0));
}

/// Rows on disk, in two sealed generations and in the one in use.
fn layered(state: &GroupState, log: &mut MadeLog) {
    log.push((0..40).map(|key| (key, Some(vec![0]))));
    log.catch_up(state);
    state.write_behind(1).unwrap();
    log.push((0..40).step_by(2).map(|key| (key, Some(vec![1]))));
    log.catch_up(state);
    state.image().unwrap();
    log.push((0..40).step_by(3).map(|key| (key, None)));
    log.catch_up(state);
    state.image().unwrap();
    log.push((0..40).step_by(5).map(|key| (key, Some(vec![3]))));
    log.catch_up(state);
}

fn a_scan_merges_all_generations_and_the_disk(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    log.check_at(&state, 4);
    let expected = log.table_at(4);
    state
        .read(|table| {
            for key in 0..41_u8 {
                assert_eq!(table.get(&[key]).as_ref(), expected.get(&vec![key]), "key {key}");
            }
        })
        .unwrap();
    state.write_behind(3).unwrap();
    log.check_at(&state, 4);
    state.write_behind(4).unwrap();
    log.check_at(&state, 4);
}

fn a_scan_stops_where_the_visitor_says(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    let expected: Vec<Vec<u8>> = log
        .table_at(4)
        .range(vec![7]..vec![30])
        .map(|(key, _)| key.clone())
        .collect();
    for wanted in 0..=expected.len() {
        let mut seen = Vec::new();
        let visit_wanted = |table: &dyn TableRead| {
            table.scan(&[7], &[30], &mut |key, _| {
                if seen.len() == wanted {
                    return ControlFlow::Break(());
                }
                seen.push(key.to_vec());
                Visit::Continue(())
            });
        };
        state.read(visit_wanted).unwrap();
        assert_eq!(seen, expected[..wanted]);
    }
    let mut seen = 0;
    let backwards = |table: &dyn TableRead| {
        table.scan(&[30], &[7], &mut |_, _| {
            seen += 1;
            Visit::Continue(())
        });
    };
    state.read(backwards).unwrap();
    assert_eq!(seen, 0, "a range that ends before it begins is empty");
}

fn a_visitor_may_read_the_table_it_scans(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    let read_again = |table: &dyn TableRead| {
        table.scan(&[], &[0xff], &mut |key, value| {
            assert_eq!(table.get(key).as_ref(), Some(value));
            Visit::Continue(())
        });
    };
    state.read(read_again).unwrap();
}

fn the_overlay_is_empty_when_all_is_written(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    for round in 0..50_u8 {
        // The same rows again and again take their room once.
        log.push([(round % 2, Some(vec![round; 100])), (9, None)]);
        log.catch_up(&state);
    }
    let pending = state.pending();
    assert_eq!(pending.commits, 50);
    let changes = 100 * (128 + 101);
    assert!(pending.bytes > 200 && pending.bytes < changes + 3 * 300, "{pending:?}");
    state.write_behind(50).unwrap();
    let pending = state.pending();
    assert_eq!((pending.bytes, pending.commits, pending.written), (0, 0, Some(50)));
}

fn only_what_is_synced_counts_as_durable(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    log.push([(1, Some(vec![1]))]);
    log.push([(2, Some(vec![2]))]);
    log.catch_up(&state);
    state.write_behind(2).unwrap();
    assert_eq!((state.pending().written, state.pending().durable), (Some(2), None));
    assert_eq!(state.make_durable(2).unwrap(), Some(2));
    assert_eq!(state.pending().durable, Some(2));
    log.push([(3, Some(vec![3]))]);
    log.catch_up(&state);
    assert_eq!(state.make_durable(2).unwrap(), Some(2), "entry 3 is not flushed");
    harness.engine().sync_all().unwrap();
}

fn a_commit_that_does_not_lie_behind_the_last_one_is_refused(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    log.push([(1, Some(vec![1]))]);
    log.push([(2, Some(vec![2]))]);
    log.catch_up(&state);
    let again = log.entries[1].clone();
    let refused = state
        .commit(again.writes.clone(), Vec::new(), again.time, mark(2))
        .unwrap_err();
    assert!(matches!(refused, StateError::OutOfOrder { index: 2, .. }), "{refused}");
    let refused = state
        .commit(again.writes, again.changes, again.time, mark(3))
        .unwrap_err();
    assert!(matches!(refused, StateError::OutOfOrder { index: 3, .. }), "{refused}");
    assert_eq!(refused.stops(), Stops::Group(GROUP));
    log.check_at(&state, 2);
    state.write_behind(2).unwrap();
    let old = log.entries[1].changes.clone();
    let refused = state.commit(Writes::new(), old, Timestamp(9), mark(3)).unwrap_err();
    assert!(
        matches!(refused, StateError::OutOfOrder { index: 3, .. }),
        "a revision that is on disk: {refused}"
    );
}

fn groups_do_not_see_each_other(mut harness: Harness) {
    let mut one = MadeLog::default();
    one.push([(1, Some(vec![1]))]);
    let mut other = MadeLog::default();
    other.push([(1, Some(vec![2])), (2, Some(vec![2]))]);
    let (first, second) = (
        harness.engine().group(GroupId(1)).unwrap(),
        harness.engine().group(GroupId(2)).unwrap(),
    );
    one.catch_up(&first);
    other.catch_up(&second);
    first.write_behind(1).unwrap();
    second.write_behind(1).unwrap();
    drop((first, second));
    harness.restart();
    one.check_at(&harness.engine().group(GroupId(1)).unwrap(), 1);
    other.check_at(&harness.engine().group(GroupId(2)).unwrap(), 1);
    MadeLog::default().check_at(&harness.engine().group(GroupId(3)).unwrap(), 0);
}

fn an_image_stays_as_it_was_while_commits_go_on(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    let image = state.image().unwrap();
    for round in 0..30_u8 {
        log.push([(round, Some(vec![9; 10])), (round + 1, None)]);
        log.catch_up(&state);
        if round % 7 == 0 {
            state.write_behind(log.last_index()).unwrap();
        }
        assert_eq!(rows_in(&image), log.table_at(4));
    }
    assert_eq!(image.mark(), Some(&mark(4)));
    assert_eq!(image.get(&[1]).as_ref(), log.table_at(4).get(&vec![1]));
    image.verify().unwrap();
    log.check_at(&state, log.last_index());
}

fn many_images_of_a_state_that_is_not_flushed_are_all_true(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    let mut images = Vec::new();
    for round in 0..20_u8 {
        log.push([(round % 5, Some(vec![round]))]);
        log.catch_up(&state);
        images.push((log.last_index(), state.image().unwrap()));
        state.write_behind(0).unwrap();
    }
    for (index, image) in &images {
        assert_eq!(rows_in(image), log.table_at(*index));
    }
    log.check_at(&state, 20);
    state.write_behind(20).unwrap();
    assert_eq!(state.pending().bytes, 0);
    log.check_at(&state, 20);
}

fn put_rows(rows: &Rows) -> impl Fn(&mut dyn Table) -> Result<(), ImportError> {
    move |table: &mut dyn Table| {
        for (key, value) in rows {
            table.put(key.clone(), value.clone());
        }
        Ok(())
    }
}

fn other_rows(tag: u8) -> Rows {
    (0..60_u8)
        .map(|key| (vec![key, key], Bytes::from(vec![tag; 20])))
        .collect()
}

fn an_install_replaces_everything_and_survives_a_restart(mut harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    let snapshot = other_rows(1);
    state.install(put_rows(&snapshot), mark(100), Revision(5_000)).unwrap();
    let check = |state: &GroupState| {
        assert_eq!(state.applied(), Some(mark(100)));
        assert_eq!(rows_of(state), snapshot);
        assert_eq!(state.feed().oldest(), Revision(5_001));
        assert_eq!(state.feed().last(), Revision(5_000));
        let gone = read_feed(state, 5_000).unwrap_err();
        assert!(
            matches!(
                gone,
                FeedError::Compacted {
                    oldest: Revision(5_001)
                }
            ),
            "{gone}"
        );
        assert_eq!(read_feed(state, 5_001).unwrap(), Vec::new());
        let pending = state.pending();
        assert_eq!(
            (pending.bytes, pending.written, pending.durable),
            (0, Some(100), Some(100))
        );
    };
    check(&state);
    drop(state);
    harness.restart();
    check(&harness.state());

    let state = harness.state();
    let change = crate::state_harness::change(5_001, b"k", None);
    state
        .commit(Writes::new(), vec![change.clone()], Timestamp(1), mark(101))
        .unwrap();
    state.write_behind(101).unwrap();
    assert_eq!(read_feed(&state, 5_001).unwrap(), vec![change]);
}

fn an_install_that_fails_changes_nothing(mut harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    let failing = |table: &mut dyn Table| {
        table.put(vec![1], Bytes::from_static(b"half"));
        Err(ImportError::Damaged("it ends early"))
    };
    let error = state.install(failing, mark(100), Revision(5_000)).unwrap_err();
    assert!(
        matches!(error, StateError::Snapshot(ImportError::Damaged("it ends early"))),
        "{error}"
    );
    assert_eq!(error.stops(), Stops::Nobody);
    log.check_at(&state, 4);
    state.write_behind(4).unwrap();
    drop(state);
    harness.restart();
    log.check_at(&harness.state(), 4);
}

fn an_install_out_of_order_changes_nothing(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    for keys in [[[2], [1]], [[1], [1]]] {
        let backwards = |table: &mut dyn Table| {
            keys.iter().for_each(|key| table.put(key.to_vec(), Bytes::new()));
            Ok(())
        };
        let error = state.install(backwards, mark(100), Revision(5_000)).unwrap_err();
        assert!(matches!(error, StateError::Snapshot(_)), "{error}");
        log.check_at(&state, 4);
    }
}

fn an_image_from_before_an_install_stays_readable(harness: Harness) {
    let mut log = MadeLog::default();
    let state = harness.state();
    layered(&state, &mut log);
    let image = state.image().unwrap();
    state
        .install(put_rows(&other_rows(1)), mark(100), Revision(5_000))
        .unwrap();
    assert_eq!(rows_in(&image), log.table_at(4));
    assert_eq!(image.mark(), Some(&mark(4)));
    image.verify().unwrap();
    assert_eq!(rows_of(&state), other_rows(1));
}

fn a_state_can_be_installed_again_and_again(mut harness: Harness) {
    for round in 1..=4_u8 {
        let state = harness.state();
        let index = u64::from(round) * 10;
        state
            .install(put_rows(&other_rows(round)), mark(index), Revision(index))
            .unwrap();
        let writes = Writes::from([(vec![round], Some(Bytes::from_static(b"later")))]);
        state.commit(writes, Vec::new(), Timestamp(0), mark(index + 1)).unwrap();
        state.write_behind(index + 1).unwrap();
        drop(state);
        harness.restart();
        let mut expected = other_rows(round);
        expected.insert(vec![round], Bytes::from_static(b"later"));
        assert_eq!(rows_of(&harness.state()), expected);
        assert_eq!(harness.state().applied(), Some(mark(index + 1)));
    }
}

fn a_state_that_begins_anew_is_empty_and_closes_its_old_handles(mut harness: Harness) {
    let mut log = MadeLog::default();
    let old = harness.state();
    layered(&old, &mut log);
    old.make_durable(4).unwrap();
    let image = old.image().unwrap();
    let anew = harness.engine().begin_anew(GROUP).unwrap();
    MadeLog::default().check_at(&anew, 0);
    let error = old
        .commit(Writes::new(), Vec::new(), Timestamp(9), mark(5))
        .unwrap_err();
    assert!(matches!(error, StateError::Closed { group: GROUP }), "{error}");
    assert!(old.read(|_| ()).is_err() && old.write_behind(9).is_err() && image.verify().is_err());
    let mut other = MadeLog::default();
    other.push([(50, Some(vec![50]))]);
    other.catch_up(&anew);
    anew.write_behind(1).unwrap();
    drop((old, anew, image));
    harness.restart();
    other.check_at(&harness.state(), 1);
}

#[expect(clippy::disallowed_methods, reason = "readers and the installing thread run at once")]
fn readers_see_all_of_the_old_state_or_all_of_the_new(harness: Harness) {
    let state = harness.state();
    state.install(put_rows(&other_rows(0)), mark(10), Revision(10)).unwrap();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut reads = 0;
                    while !stop.load(Ordering::Relaxed) || reads == 0 {
                        let rows = rows_of(&state);
                        let tag = rows.values().next().expect("it has rows")[0];
                        assert_eq!(rows, other_rows(tag), "no row of another state is mixed in");
                        reads += 1;
                    }
                })
            })
            .collect();
        for round in 1..=5_u8 {
            let index = u64::from(round) * 10 + 10;
            state
                .install(put_rows(&other_rows(round)), mark(index), Revision(index))
                .unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        readers
            .into_iter()
            .for_each(|reader| reader.join().expect("a reader saw a mixture"));
    });
}

/// A step of a random history.
#[derive(Clone, Debug)]
enum Step {
    Commit(Vec<(u8, Option<Vec<u8>>)>),
    /// The log is flushed except for so many entries.
    WriteBehind(u64),
    MakeDurable(u64),
    Restart,
    TakeImage,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let value = proptest::option::weighted(0.7, proptest::collection::vec(any::<u8>(), 0..12));
    let commit = proptest::collection::btree_map(0..24_u8, value, 0..5);
    let step = prop_oneof![
        12 => commit.prop_map(|writes| Step::Commit(writes.into_iter().collect())),
        4 => (0..4_u64).prop_map(Step::WriteBehind),
        1 => (0..4_u64).prop_map(Step::MakeDurable),
        1 => Just(Step::Restart),
        1 => Just(Step::TakeImage),
    ];
    proptest::collection::vec(step, 1..60)
}

fn random_histories_agree_with_a_plain_map(harness: Harness) {
    // One folder serves all cases, a group each, since a database takes long to make.
    let harness = std::cell::RefCell::new(harness);
    let group = std::cell::Cell::new(1_000);
    let config = ProptestConfig {
        cases: 40,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(steps in steps())| {
        group.set(group.get() + 1);
        run_history(&mut harness.borrow_mut(), GroupId(group.get()), &steps);
    });
}

fn run_history(harness: &mut Harness, group: GroupId, steps: &[Step]) {
    let mut log = MadeLog::default();
    let mut images = Vec::new();
    let mut flushed = 0;
    let mut state = harness.engine().group(group).unwrap();
    for step in steps {
        let last = log.last_index();
        match step {
            Step::Commit(writes) => {
                log.push(writes.iter().cloned());
                log.catch_up(&state);
            }
            Step::WriteBehind(unflushed) => {
                flushed = last.saturating_sub(*unflushed).max(flushed);
                state.write_behind(flushed).unwrap();
                assert!(state.pending().written.unwrap_or(0) <= flushed);
            }
            Step::MakeDurable(unflushed) => {
                flushed = last.saturating_sub(*unflushed).max(flushed);
                let durable = state.make_durable(flushed).unwrap();
                assert!(durable.unwrap_or(0) <= flushed);
                assert_eq!(durable, state.pending().durable);
            }
            Step::Restart => {
                let written = state.pending().written.unwrap_or(0);
                images.clear();
                drop(state);
                harness.restart();
                state = harness.engine().group(group).unwrap();
                log.check_at(&state, written);
                // A log that was not flushed may lose entries with the process; here it keeps them.
                log.catch_up(&state);
            }
            Step::TakeImage => images.push((last, state.image().unwrap())),
        }
        log.check_at(&state, log.last_index());
    }
    for (index, image) in &images {
        assert_eq!(rows_in(image), log.table_at(*index));
        image.verify().unwrap();
    }
}
