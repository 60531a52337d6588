//! Power losses and kills at any point: what was called back is there, and nothing else than what was asked for.

use bytes::Bytes;
use tenure_storage::disk::RecordingDisk;
use tenure_storage::log::GroupId;

use crate::log_support::{Model, Random, Run, append, open, payload, wait};

const GROUPS: u32 = 4;

/// How many places of each recorded run are tried.
const CUTS: usize = 150;

/// A place in a recorded run: after so many changes, and with how much of a write behind them.
fn random_cut(disk: &RecordingDisk, random: &mut Random) -> (usize, Option<usize>) {
    let events = random.below(disk.events() as u64 + 1) as usize;
    let torn = (random.below(2) == 0).then(|| random.below(600) as usize);
    (events, torn)
}

fn recorded(seed: u64, steps: usize) -> (Run, RecordingDisk) {
    let (mut run, disk) = Run::recorded(seed);
    for _ in 0..steps {
        run.step(GROUPS);
    }
    let stats = run.log.stats();
    assert!(stats.batches > steps as u64 && run.log.failure().is_none(), "{stats:?}");
    (run, disk)
}

/// Goes on with a log that was found after a crash, and opens it once more.
fn go_on(disk: &RecordingDisk, model: &Model, seed: u64, what: &str) {
    let log = open(disk);
    assert_eq!(&Model::of(&log), model, "{what}: opened again");
    let mut run = Run::new(log, disk, model.clone(), seed);
    for _ in 0..10 {
        run.step(GROUPS);
    }
    run.log.close();
    let log = open(&disk.after_power_loss(&mut |_| 0));
    assert_eq!(&Model::of(&log), run.last_model(), "{what}: went on");
}

#[test]
fn after_a_power_loss_anywhere_everything_acknowledged_is_there_and_nothing_unasked() {
    for seed in 0..4 {
        let (run, disk) = recorded(seed, 150);
        let mut random = Random(seed + 1000);
        for cut in 0..CUTS {
            let (events, torn) = random_cut(&disk, &mut random);
            let what = format!("seed {seed}, cut {cut} after {events} changes, torn {torn:?}");
            let found = disk.at(events, torn).after_power_loss(&mut |bound| random.below(bound));
            let count = run.check(&open(&found), events, &what);
            go_on(&found, &run.models[count], seed, &what);
        }
    }
}

#[test]
fn what_a_restart_after_a_kill_has_shown_survives_a_power_loss() {
    for seed in 0..4 {
        let (run, disk) = recorded(seed + 50, 150);
        let mut random = Random(seed + 2000);
        for cut in 0..CUTS {
            let (events, torn) = random_cut(&disk, &mut random);
            let what = format!("seed {seed}, cut {cut} after {events} changes, torn {torn:?}");
            let killed = disk.at(events, torn).after_kill();
            let log = open(&killed);
            let count = run.check(&log, events, &what);
            let nothing_kept = killed.after_power_loss(&mut |_| 0);
            assert_eq!(
                Model::of(&open(&nothing_kept)),
                run.models[count],
                "{what}: nothing kept"
            );
            let some_kept = killed.after_power_loss(&mut |bound| random.below(bound));
            assert_eq!(Model::of(&open(&some_kept)), run.models[count], "{what}: some kept");
            go_on(&some_kept, &run.models[count], seed, &what);
        }
    }
}

#[test]
fn one_crash_after_the_other_loses_nothing() {
    for seed in 0..12 {
        let mut random = Random(seed + 3000);
        let mut disk = RecordingDisk::new();
        // What the next opening may show.
        let mut possible = vec![Model::default()];
        for life in 0..25 {
            disk.start_recording();
            let log = open(&disk);
            let model = Model::of(&log);
            assert!(
                possible.contains(&model),
                "seed {seed}, life {life}: none of {}\n{model:#?}",
                possible.len()
            );
            let opened = disk.events();
            let mut run = Run::new(log, &disk, model, seed * 100 + life);
            for _ in 0..random.below(12) {
                run.step(GROUPS);
            }
            // Anywhere in this life, its opening included; torn, killed or both.
            let (events, torn) = random_cut(&disk, &mut random);
            let mut found = disk.at(events, torn);
            if random.below(3) > 0 {
                found = found.after_power_loss(&mut |bound| random.below(bound));
            }
            // Before it was open it had promised nothing that the lives before had not.
            if events >= opened {
                possible = run.models[run.possible(events)].to_vec();
            }
            disk = found.after_kill();
        }
    }
}

/// Opens a log of one entry, appends to it, and gives the disk on which of that write only some sectors are kept.
fn torn_append(disk: &RecordingDisk, entries: Vec<(u64, Bytes)>, keep: impl Fn(u64) -> bool) -> RecordingDisk {
    let log = open(disk);
    assert_eq!(log.group(GroupId(1)).state().last, Some((1, payload("a"))));
    disk.start_recording();
    wait(|done| log.group(GroupId(1)).append(entries, done)).unwrap();
    let mut sector = 0;
    disk.at(1, None).after_power_loss(&mut |bound| match bound {
        // Some sectors of it.
        4 => 3,
        2 => {
            sector += 1;
            u64::from(keep(sector))
        }
        _ => 0,
    })
}

#[test]
fn a_batch_that_was_torn_in_an_earlier_run_never_comes_back() {
    let disk = RecordingDisk::new();
    append(&open(&disk).group(GroupId(1)), 1, &["a"]).unwrap();
    // The end of the first attempt is kept, and of the second one its beginning, which is as long.
    let several = |last: &str| -> Vec<(u64, Bytes)> {
        (2..6)
            .map(|index| (index, payload(&"x".repeat(500))))
            .chain([(6, payload(last))])
            .collect()
    };
    let found = torn_append(&disk.after_kill(), several("old"), |sector| sector > 2);
    let found = torn_append(&found, several("new"), |sector| sector <= 2);
    assert_eq!(open(&found).group(GroupId(1)).state().last, Some((1, payload("a"))));
    // The first attempt lacks one sector, and the second one brings just that.
    let long = |last: &str| vec![(2, payload(&("x".repeat(2500) + last)))];
    let found = torn_append(&disk.after_kill(), long("old"), |sector| sector != 3);
    let found = torn_append(&found, long("new"), |sector| sector == 3);
    assert_eq!(open(&found).group(GroupId(1)).state().last, Some((1, payload("a"))));
}
