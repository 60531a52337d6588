//! Planted faults, each of which the checks must find, and what the product itself says of a state that is too old.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;

use tenure_core::machine::GroupKind;
use tenure_replica::OpenError;
use tenure_storage::log::{Log, WriterMode};
use tenure_storage::state::{AppliedMark, DiskEngine, StateEngine};

use crate::power_loss::folder::Folder;
use crate::power_loss::life::{Fault, LOG, Left, Life, Moment, Plan, live, log_options, open_unchecked};
use crate::power_loss::oracle::{History, Loss, Oracle, rows_of};
use crate::power_loss::{Random, STEPS_AFTER, plan};
use crate::world::GROUP;

const MOMENTS: usize = 12;

fn lived(plan: &Plan) -> Life {
    live(Left::nothing(), plan).expect("a life ends well")
}

/// The same plan for the life after a crash.
fn after(plan: &Plan) -> Plan {
    Plan {
        steps: STEPS_AFTER,
        fault: None,
        ..*plan
    }
}

/// Moments late in a life, but not at its end.
fn late_moments(life: &Life, random: &mut Random) -> Vec<Moment> {
    let late = life.log.events() / 4 * 3..life.log.events() / 16 * 15;
    std::iter::repeat_with(|| life.moment(random))
        .filter(|moment| late.contains(&moment.events))
        .take(MOMENTS)
        .collect()
}

/// What is left when the state has applied three entries more than the log has, as that of a follower may that hears what
/// is committed before it has synced it, and was then written behind as far as this.
fn written_behind(left: Left, entries: &BTreeMap<u64, Bytes>, plan: &Plan, flushed: Option<u64>) -> Left {
    let log = Arc::new(left.log.after_kill());
    let log = Log::open(log, Path::new(LOG), log_options(), WriterMode::Inline).unwrap();
    let of_log = log.group(GROUP).state();
    let last = of_log.last.or(of_log.purged).expect("the log is not empty").0;
    let folder = tempfile::tempdir().unwrap();
    left.folders[0].write_to(folder.path());
    let engine = DiskEngine::open(folder.path(), plan.state).unwrap();
    let state = engine.group(GROUP).unwrap();
    let mark = state.applied().expect("the state is not empty");
    let rows = state.read(rows_of).unwrap();
    let mut oracle = Oracle::over(GroupKind::Home, rows, Some(mark.index));
    for (index, bytes) in entries.range(mark.index + 1..=last + 3) {
        let (writes, changes) = oracle.apply(*index, bytes);
        let mark = AppliedMark {
            index: *index,
            bytes: mark.bytes.clone(),
        };
        state.commit(writes, changes, oracle.machine.time(), mark).unwrap();
    }
    state.write_behind(flushed.unwrap_or(last)).unwrap();
    Left {
        folders: vec![Arc::new(Folder::copy(folder.path()))],
        ..left
    }
}

#[test]
fn a_state_that_was_written_beyond_the_log_is_found() {
    let plan = plan(11);
    let life = lived(&plan);
    let entries = &life.histories[1].entries;
    let mut random = Random(plan.seed);
    for moment in late_moments(&life, &mut random) {
        let left = life.without_power(moment, &mut random);
        let copy = || Left {
            log: left.log.after_kill(),
            ..left.clone()
        };
        let within = written_behind(copy(), entries, &plan, None);
        live(within, &after(&plan)).unwrap_or_else(|loss| panic!("{moment:?}: {loss:?}"));
        let beyond = written_behind(copy(), entries, &plan, Some(u64::MAX));
        let found = live(beyond, &after(&plan)).err();
        assert!(
            matches!(found, Some(Loss::StateAhead { group: GROUP, .. })),
            "{moment:?}: {found:?}"
        );
    }
}

#[test]
fn a_log_that_is_purged_before_the_state_is_synced_is_found() {
    let mut plan = plan(12);
    plan.fault = Some(Fault::PurgesTooEarly);
    let life = lived(&plan);
    let mut random = Random(plan.seed);
    let mut gaps = 0;
    for moment in late_moments(&life, &mut random) {
        let synced = life.honest_folders(moment.events)[0].clone();
        let left = life.without_power_over(moment, synced, &mut random);
        match live(left, &after(&plan)) {
            // The state was synced just before, as it happened.
            Ok(_) => {}
            Err(Loss::Gap { group: GROUP, .. }) => gaps += 1,
            Err(loss) => panic!("{moment:?}: {loss:?}"),
        }
    }
    assert!(gaps * 2 > MOMENTS, "{gaps} of {MOMENTS} are found");
}

#[test]
fn a_disk_that_only_says_that_it_syncs_is_found() {
    let mut plan = plan(13);
    plan.fault = Some(Fault::SyncsNothing);
    let life = lived(&plan);
    let mut random = Random(plan.seed);
    for moment in late_moments(&life, &mut random) {
        let found = live(life.without_power(moment, &mut random), &after(&plan)).err();
        assert!(
            matches!(
                found,
                // Of a log that was never synced there may be nothing that can be opened.
                Some(Loss::NotServed { group: None, .. } | Loss::EntriesLost { .. } | Loss::StateAhead { .. })
            ),
            "{moment:?}: {found:?}"
        );
        // To a process that is killed it makes no difference.
        let killed = live(life.killed(moment), &after(&plan));
        assert!(killed.is_ok(), "{moment:?}: {:?}", killed.err());
    }
}

#[test]
fn a_state_that_is_too_old_for_the_log_is_refused_and_the_right_one_is_served_afterwards() {
    let plan = plan(14);
    let life = lived(&plan);
    let left = life.killed(life.end());
    let old = life
        .copies
        .iter()
        .rfind(|copied| copied.synced && copied.events < life.log.events() / 2);
    for folder in [Arc::default(), old.expect("the state was synced early").folder.clone()] {
        let too_old = Left {
            folders: vec![folder],
            ..left.clone()
        };
        let [_, home] = open_unchecked(&too_old, &plan);
        let refused = home.expect_err("it cannot be served without the entries between");
        assert!(
            matches!(refused, OpenError::StateBehindLog { group: GROUP, applied, purged } if applied < Some(purged)),
            "{refused}"
        );
    }
    let served = live(left, &after(&plan));
    assert!(served.is_ok(), "{:?}", served.err());
}

/// What is left at the end of a life, found again by somebody who was told something else.
fn told_otherwise(left: &Left, change: impl FnOnce(&mut History)) -> Option<Loss> {
    let mut left = Left {
        log: left.log.after_kill(),
        ..left.clone()
    };
    change(&mut left.histories[1]);
    live(left, &after(&plan(15))).err()
}

#[test]
fn what_was_told_and_is_not_there_is_found() {
    let life = lived(&plan(15));
    let left = life.killed(life.end());
    let answered = left.histories[1].asked.len() / 2;

    let found = told_otherwise(&left, |history| {
        let (_, answer) = history.asked[answered].answered.as_mut().expect("it was answered");
        answer.revision.0 += 1;
    });
    assert!(matches!(found, Some(Loss::AnswerLost { .. })), "{found:?}");

    let found = told_otherwise(&left, |history| drop(history.asked.remove(answered)));
    assert!(matches!(found, Some(Loss::NeverAsked { .. })), "{found:?}");

    let found = told_otherwise(&left, |history| {
        let effects = &mut history.told[0].effects;
        drop(effects.remove(effects.len() / 2));
    });
    assert!(matches!(found, Some(Loss::EffectLost { .. })), "{found:?}");

    let found = told_otherwise(&left, |history| {
        let index = *history.entries.last_key_value().expect("there are entries").0;
        history.entries.insert(index, Bytes::from_static(b"another"));
    });
    assert!(matches!(found, Some(Loss::UnknownEntry { .. })), "{found:?}");

    // An entry of which only the state and its feed tell, since the log was purged of it.
    let found = told_otherwise(&left, |history| {
        let is_put = |bytes: &&mut Bytes| bytes.windows(6).any(|part| part == b"value ");
        let entry = history.entries.values_mut().find(is_put).expect("something was put");
        let at = entry
            .windows(6)
            .position(|part| part == b"value ")
            .expect("it was found");
        let mut other = entry.to_vec();
        other[at] = b'w';
        *entry = other.into();
    });
    assert!(
        matches!(found, Some(Loss::WrongRows { .. } | Loss::WrongFeed { .. })),
        "{found:?}"
    );

    let found = told_otherwise(&left, |_| ());
    assert!(found.is_none(), "{found:?}");
}
