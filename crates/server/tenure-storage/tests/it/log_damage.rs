//! Damaged bytes and missing files: found, named, refused; never a log that is shorter in silence.

use std::path::{Path, PathBuf};

use tenure_storage::disk::{Disk, RecordingDisk, read_file};
use tenure_storage::error::{Damage, LogFailed, OpenError};
use tenure_storage::log::{GroupId, LogOptions};

use crate::log_support::{DIR, Model, Run, append, files, open, open_on, payload, small_options};

/// Where the bits are turned.
const DAMAGED_TAIL_BYTES: u64 = 64 << 10;

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn segments(disk: &RecordingDisk) -> Vec<String> {
    files(disk).into_iter().filter(|name| name.ends_with(".seg")).collect()
}

fn options() -> LogOptions {
    LogOptions {
        segment_bytes: 16 << 10,
        ..small_options()
    }
}

/// A log of several segments, some of them used before, closed.
fn closed_log() -> (RecordingDisk, Model) {
    let disk = RecordingDisk::new();
    let mut run = Run::new(open_on(&disk, options()).unwrap(), &disk, Model::default(), 11);
    while run.log.stats().bytes < 60 << 10 {
        run.step(4);
    }
    // Entries that stay, so that the last segments are full of what is alive.
    let group = run.log.group(GroupId(9));
    for index in 1..400 {
        append(&group, index, &[&"stay ".repeat(index as usize % 60)]).unwrap();
    }
    assert!(segments(&disk).len() >= 5, "{:?}", files(&disk));
    run.log.close();
    let model = Model::of(&run.log);
    (disk.after_power_loss(&mut |_| 1), model)
}

fn damage(disk: &RecordingDisk) -> Damage {
    match open_on(disk, options()) {
        Err(OpenError::LogDamaged(damage)) => {
            let text = damage.to_string();
            assert!(
                text.contains("restore the data folder from a copy, or set it aside") && text.contains(DIR),
                "{text}"
            );
            damage
        }
        other => panic!("it must be refused: {other:?}"),
    }
}

/// The last segment and where the log ends in it, from the newest mark.
fn end_of_log(disk: &RecordingDisk) -> (String, u64) {
    let mark = read_file(disk, &path("synced"), 1 << 20).unwrap().unwrap();
    let number = |at: usize| u64::from_le_bytes(mark[at..at + 8].try_into().unwrap());
    let newest = [2 * 4096, 3 * 4096]
        .into_iter()
        .max_by_key(|slot| number(slot + 16))
        .unwrap();
    let segment = number(newest + 8) >> 32;
    (format!("{segment:010}.seg"), number(newest + 24))
}

/// Turns every bit of a quarter of the last bytes of the log, one at a time.
fn turn_every_bit(quarter: u64) {
    let (pristine, model) = closed_log();
    let mut disk = pristine.after_kill();
    let (last, end) = end_of_log(&pristine);
    assert_eq!(segments(&pristine).last(), Some(&last));
    let mut places = Vec::new();
    for name in segments(&pristine).iter().rev() {
        let length = read_file(&pristine, &path(name), 1 << 20).unwrap().unwrap().len() as u64;
        let length = if *name == last { end } else { length };
        places.extend((0..length).rev().map(|byte| (name.clone(), byte)));
    }
    let share = DAMAGED_TAIL_BYTES / 4;
    let (mut refused, mut healed) = (0, 0);
    for (name, byte) in &places[(quarter * share) as usize..((quarter + 1) * share) as usize] {
        for bit in byte * 8..byte * 8 + 8 {
            disk.flip_bit(&path(name), bit).unwrap();
            match open_on(&disk, options()) {
                Err(OpenError::LogDamaged(damage)) => {
                    refused += 1;
                    assert!(
                        damage.segment.is_some() && damage.offset <= *byte,
                        "{damage}, bit {bit} of {name}"
                    );
                    // Nothing was changed but the bit.
                    disk.flip_bit(&path(name), bit).unwrap();
                }
                Err(error) => panic!("bit {bit} of {name}: {error}"),
                Ok(log) => {
                    healed += 1;
                    assert_eq!(Model::of(&log), model, "bit {bit} of {name}");
                    disk = pristine.after_kill();
                }
            }
        }
    }
    assert_eq!(refused + healed, share * 8);
    assert!(
        refused > healed,
        "most of it is alive: {refused} refused, {healed} healed"
    );
    assert_eq!(Model::of(&open_on(&disk, options()).unwrap()), model);
}

#[test]
fn a_turned_bit_in_the_last_quarter_of_the_tail_is_found_or_without_effect() {
    turn_every_bit(0);
}

#[test]
fn a_turned_bit_in_the_third_quarter_of_the_tail_is_found_or_without_effect() {
    turn_every_bit(1);
}

#[test]
fn a_turned_bit_in_the_second_quarter_of_the_tail_is_found_or_without_effect() {
    turn_every_bit(2);
}

#[test]
fn a_turned_bit_in_the_first_quarter_of_the_tail_is_found_or_without_effect() {
    turn_every_bit(3);
}

#[test]
fn a_turned_bit_behind_the_end_of_the_log_is_without_effect() {
    let (pristine, model) = closed_log();
    let (last, end) = end_of_log(&pristine);
    let length = read_file(&pristine, &path(&last), 1 << 20).unwrap().unwrap().len() as u64;
    assert!(length > end, "there is something behind it");
    for byte in (end..length).step_by(5) {
        let disk = pristine.after_kill();
        disk.flip_bit(&path(&last), byte * 8 + byte % 8).unwrap();
        assert_eq!(
            Model::of(&open_on(&disk, options()).unwrap()),
            model,
            "byte {byte} of {last}"
        );
    }
}

#[test]
fn a_turned_bit_in_the_mark_is_healed_by_its_other_slots() {
    let (pristine, model) = closed_log();
    let length = read_file(&pristine, &path("synced"), 1 << 20).unwrap().unwrap().len() as u64;
    assert_eq!(length, 4 * 4096);
    for bit in (0..4).flat_map(|slot| slot * 4096 * 8..(slot * 4096 + 65) * 8) {
        let disk = pristine.after_kill();
        disk.flip_bit(&path("synced"), bit).unwrap();
        assert_eq!(Model::of(&open_on(&disk, options()).unwrap()), model, "bit {bit}");
    }
}

#[test]
fn damage_in_an_older_segment_is_named_with_its_group_and_place() {
    let (disk, _) = closed_log();
    // In the payload of a record of the group that stays, in the first segment that has one.
    let place = |name: &String| {
        let bytes = read_file(&disk, &path(name), 1 << 20).unwrap().unwrap();
        bytes
            .windows(10)
            .position(|window| window == b"stay stay ")
            .map(|text| (name.clone(), text))
    };
    let segments = segments(&disk);
    let (name, text) = segments.iter().find_map(place).unwrap();
    assert_ne!(Some(&name), segments.last());
    let number: u32 = name.trim_end_matches(".seg").parse().unwrap();
    disk.flip_bit(&path(&name), text as u64 * 8).unwrap();
    let damage = damage(&disk);
    assert_eq!(
        (damage.segment, damage.group),
        (Some(number), Some(GroupId(9))),
        "{damage}"
    );
    assert!(
        damage.offset < text as u64 && damage.offset + 400 > text as u64,
        "{damage}, turned at {text}"
    );
    assert!(
        damage
            .to_string()
            .contains(&format!("segment {number} at offset {}", damage.offset)),
        "{damage}"
    );
}

#[test]
fn a_missing_file_is_missed() {
    let (disk, _) = closed_log();
    let segments = segments(&disk);
    for (place, name) in segments.iter().enumerate() {
        let disk = disk.after_kill();
        disk.remove(&path(name)).unwrap();
        let damage = damage(&disk);
        if 0 < place && place < segments.len() - 1 {
            assert_eq!(damage.segment, name.trim_end_matches(".seg").parse().ok(), "{damage}");
        }
    }
    let without_mark = disk.after_kill();
    without_mark.remove(&path("synced")).unwrap();
    assert_eq!(damage(&without_mark).segment, None);
    let only_mark = disk.after_kill();
    segments.iter().for_each(|name| only_mark.remove(&path(name)).unwrap());
    damage(&only_mark);
}

#[test]
fn a_log_that_was_cut_short_is_refused() {
    let (disk, _) = closed_log();
    let name = segments(&disk).pop().unwrap();
    let number: u32 = name.trim_end_matches(".seg").parse().unwrap();
    let length = read_file(&disk, &path(&name), 1 << 20).unwrap().unwrap().len() as u64;
    let (mut refused, mut whole) = (0, 0);
    for cut in (0..length).step_by(97) {
        let disk = disk.after_kill();
        disk.open(&path(&name), tenure_storage::disk::OpenMode::Write)
            .unwrap()
            .set_length(cut)
            .unwrap();
        match open_on(&disk, options()) {
            Err(OpenError::LogDamaged(damage)) => {
                assert_eq!(damage.segment, Some(number), "{damage}");
                refused += 1;
            }
            // Only what holds nothing was cut off.
            Ok(_) => whole += 1,
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 10 && refused > whole / 10, "{refused} refused, {whole} whole");
}

#[test]
fn a_batch_behind_the_mark_that_is_bad_before_a_good_one_is_damage_and_not_a_torn_tail() {
    // The mark is not synced: after a power loss it may be as old as the opening. A later batch still proves that the
    // one before it was synced.
    let disk = RecordingDisk::new();
    let log = open(&disk);
    append(&log.group(GroupId(1)), 1, &["first"]).unwrap();
    append(&log.group(GroupId(2)), 1, &["second"]).unwrap();
    let disk = disk.after_power_loss(&mut |_| 0);
    let bytes = read_file(&disk, &path("0000000001.seg"), 1 << 20).unwrap().unwrap();
    let place = |text: &[u8]| bytes.windows(text.len()).position(|window| window == text).unwrap() as u64;
    let first_damaged = disk.after_kill();
    first_damaged
        .flip_bit(&path("0000000001.seg"), place(b"first") * 8)
        .unwrap();
    assert_eq!(damage(&first_damaged).group, Some(GroupId(1)));
    // Of the very last batch nobody can tell after a power loss whether it was torn.
    let last_damaged = disk.after_kill();
    last_damaged
        .flip_bit(&path("0000000001.seg"), place(b"second") * 8)
        .unwrap();
    let log = open(&last_damaged);
    assert_eq!(log.group(GroupId(1)).state().last, Some((1, payload("first"))));
    assert_eq!(log.groups(), [GroupId(1)]);
}

#[test]
fn a_segment_of_another_log_is_refused() {
    let (disk, _) = closed_log();
    let other = RecordingDisk::new();
    let mut run = Run::new(
        open_on(&other, LogOptions { salt: 99, ..options() }).unwrap(),
        &other,
        Model::default(),
        11,
    );
    while run.log.stats().bytes < 300 << 10 {
        run.step(4);
    }
    let name = segments(&disk).pop().unwrap();
    let foreign = read_file(&other, &path(&segments(&other)[0]), 1 << 20)
        .unwrap()
        .unwrap();
    disk.open(&path(&name), tenure_storage::disk::OpenMode::Write)
        .unwrap()
        .write_at(0, &foreign)
        .unwrap();
    damage(&disk);
}

#[test]
fn an_entry_that_went_bad_on_the_disk_is_never_served() {
    let disk = RecordingDisk::new();
    let log = open_on(
        &disk,
        LogOptions {
            tail_bytes_max: 0,
            ..small_options()
        },
    )
    .unwrap();
    let group = log.group(GroupId(1));
    append(&group, 1, &["good", "went bad", "good too"]).unwrap();
    let bytes = read_file(&disk, &path("0000000001.seg"), 1 << 20).unwrap().unwrap();
    let place = bytes.windows(8).position(|window| window == b"went bad").unwrap() as u64;
    disk.flip_bit(&path("0000000001.seg"), place * 8).unwrap();
    let failed = group.read(1..4, 1000).unwrap_err();
    assert!(
        matches!(&failed, LogFailed::Damaged(damage) if damage.group == Some(GroupId(1))),
        "{failed}"
    );
    assert!(failed.stops_the_node() && log.failure().is_some());
    assert!(matches!(append(&group, 4, &["x"]), Err(LogFailed::Damaged(_))));
}
