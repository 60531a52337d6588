//! Power losses and kills at any point, over the real log and the real state.
//!
//! A node with a system group and a home group works on a disk that records every write of the log, and whose unsynced
//! writes a power loss drops, keeps or tears; the folder of its state is copied whenever it was written. Then the node
//! is crashed at random moments of that life: its log is what the moment left, its state any copy that the moment may
//! have left, from the last sync of the state on. Whatever anybody was told before must be there.

mod folder;
mod life;
mod oracle;
mod planted;
mod watched;
mod workload;

use tenure_core::effect::{ChangeKind, Effect};
use tenure_core::refusal::EndReason;
use tenure_core::time::Span;
use tenure_storage::feed::FeedLimits;
use tenure_storage::state::DiskOptions;

use life::{Left, Life, Plan, live};
use watched::Copied;

/// Moments at which each recorded life is crashed.
const MOMENTS: u64 = 50;
/// Steps of the life that is recorded, and of those that come after a crash.
const STEPS: usize = 120;
const STEPS_AFTER: usize = 3;

/// A random number generator that depends on nothing but its seed.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

fn plan(seed: u64) -> Plan {
    Plan {
        seed,
        steps: STEPS,
        state: DiskOptions {
            journal_bytes: 64 << 20,
            cache_bytes: 1 << 20,
            worker_threads: 1,
            ..DiskOptions::default()
        },
        fault: None,
    }
}

/// So little memory and so short a feed that the engine writes files and the feed is trimmed all the time.
fn tight_plan(seed: u64) -> Plan {
    let mut plan = plan(seed);
    plan.state.memtable_bytes = 32 << 10;
    plan.state.feed = FeedLimits {
        age_max: Span::from_secs(2),
        bytes_max: 40_000,
        ..FeedLimits::default()
    };
    plan
}

/// Lives a life and crashes it at random moments: two thirds of them twice, half of those by a kill first.
fn crash_everywhere(plan: &Plan) -> Life {
    let life = live(Left::nothing(), plan).expect("nothing is wrong before anything has happened");
    check_busy(&life);
    for number in 0..MOMENTS {
        crash(&life, plan, number);
    }
    life
}

/// Files were written beside the journal, and the feed was trimmed.
fn check_tight(life: &Life) {
    let files = |copied: Option<&Copied>| copied.expect("there are copies").folder.file_count();
    assert!(
        files(life.copies.last()) > files(life.copies.get(2)),
        "no file was written"
    );
    assert!(life.is_feed_trimmed, "the feed is whole");
}

fn crash(life: &Life, plan: &Plan, number: u64) {
    let mut random = Random(plan.seed * 1_000 + number);
    let moment = life.moment(&mut random);
    let after = Plan {
        steps: STEPS_AFTER,
        ..*plan
    };
    let what = format!("seed {}, moment {number}, {moment:?}", plan.seed);
    let first = match number % 3 {
        0 => life.killed(moment),
        _ => life.without_power(moment, &mut random),
    };
    let second = live(first, &after).unwrap_or_else(|loss| panic!("{what}: {loss:?}"));
    if number % 3 < 2 {
        let moment = second.moment(&mut random);
        let left = second.without_power(moment, &mut random);
        live(left, &after).unwrap_or_else(|loss| panic!("{what}, then {moment:?}: {loss:?}"));
    }
}

/// Everything that is to be crashed happens in this life.
fn check_busy(life: &Life) {
    let syncs = life.copies.iter().filter(|copied| copied.synced).count();
    let home = &life.histories[1];
    let ends = |wanted: EndReason| {
        let effects = home.told.iter().flat_map(|told| &told.effects);
        let ends = effects.filter(|(_, effect)| match effect {
            Effect::Changed(change) => change.kind == ChangeKind::Removed { reason: wanted },
            Effect::SessionEnded { reason, .. } => *reason == wanted,
            Effect::ObjectDeleted { .. } | Effect::Appended { .. } => false,
        });
        ends.count()
    };
    let ends = [
        EndReason::Delete,
        EndReason::Expired,
        EndReason::Session,
        EndReason::Closed,
    ]
    .map(ends);
    let facts = format!(
        "{syncs} syncs of {} states, {} writes of the log, {} entries, {} answers, {} keep-alives, ends {ends:?}",
        life.copies.len(),
        life.log.events(),
        home.entries.len(),
        home.asked.len(),
        home.kept.len(),
    );
    assert!(
        syncs > 5
            && life.copies.len() > 30
            && life.log.events() > 500
            && home.entries.len() > 100
            && home.asked.len() > 150
            && home.kept.len() > 20
            && ends.iter().all(|count| *count > 0),
        "the life is too quiet: {facts}"
    );
}

#[test]
fn a_power_loss_anywhere_loses_nothing_that_was_told() {
    crash_everywhere(&plan(1));
}

#[test]
fn a_power_loss_anywhere_in_another_life_loses_nothing_that_was_told() {
    crash_everywhere(&plan(2));
}

#[test]
fn a_power_loss_loses_nothing_while_the_engine_writes_files_and_the_feed_is_trimmed() {
    check_tight(&crash_everywhere(&tight_plan(3)));
}

#[test]
fn a_power_loss_loses_nothing_in_another_life_with_little_memory() {
    check_tight(&crash_everywhere(&tight_plan(4)));
}
