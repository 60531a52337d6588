//! Whatever bytes the log, the feed, a row or a snapshot holds: a value, an error or a named stop, and never much more
//! memory than they have.
//!
//! The corpus is every vector that was ever written, so a new command or row is driven as soon as it has one.

use std::any::Any;
use std::fs;
use std::hash::Hasher;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

use siphasher::sip128::{Hasher128, SipHasher13};
use tenure_core::codec::{decode_change, decode_entry, encode_change, encode_entry};
use tenure_core::machine::{GroupKind, Machine};
use tenure_core::snapshot;
use tenure_core::table::{MemTable, Table, TableRead, Visit};

use crate::mutations::{Seeded, assert_modest, damage, damaged};

const CASES: usize = 20_000;
/// Opening a machine and catching its panic takes longer.
const CASES_OF_ROWS: usize = 4_000;
/// Bytes of the longest damaged form.
const LENGTH_MAX: usize = 16 << 10;
/// A list may ask for a mebibyte ahead of its elements, once for each list around it.
const GROWTH_MAX: usize = 24 << 20;
/// Bytes at the end of a snapshot that check the others.
const SNAPSHOT_SUM_BYTES: usize = 16;

/// The vectors whose names begin so, as bytes.
fn vectors(prefix: &str) -> Vec<Vec<u8>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/vectors/v1");
    let mut paths: Vec<PathBuf> = fs::read_dir(&folder)
        .expect("the vectors are there")
        .map(|file| file.expect("a readable folder").path())
        .filter(|path| {
            path.file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with(prefix))
        })
        .collect();
    paths.sort();
    let texts = paths
        .iter()
        .map(|path| fs::read_to_string(path).expect("a readable vector"));
    let hex = texts.map(|text| text.lines().filter(|line| !line.starts_with('#')).collect::<String>());
    hex.map(|hex| unhex(&hex)).collect()
}

/// The rows of every vector of rows.
fn rows() -> Vec<(Vec<u8>, Vec<u8>)> {
    let bytes = vectors("snapshot_");
    let mut rows = Vec::new();
    for bytes in bytes {
        let mut table = MemTable::new();
        snapshot::import(&bytes, &mut table).expect("a vector");
        table.scan(&[], &[u8::MAX], &mut |key, value| {
            rows.push((key.to_vec(), value.to_vec()));
            Visit::Continue(())
        });
    }
    rows
}

fn unhex(hex: &str) -> Vec<u8> {
    let digits: Vec<u32> = hex.chars().filter_map(|digit| digit.to_digit(16)).collect();
    digits
        .chunks_exact(2)
        .map(|pair| (pair[0] * 16 + pair[1]) as u8)
        .collect()
}

#[test]
fn no_damage_to_an_entry_makes_its_reader_panic_or_ask_for_much_memory() {
    let corpus = vectors("entry_");
    let mut seeded = Seeded::new(1);
    let readable = assert_modest(GROWTH_MAX, || {
        let mut readable = 0;
        for _ in 0..CASES {
            let bytes = damaged(&corpus, LENGTH_MAX, &mut seeded);
            let Ok(entry) = decode_entry(&bytes) else { continue };
            readable += 1;
            let again = encode_entry(&entry);
            // A number may have been written longer than it needs to be, never shorter.
            assert!(again.len() <= bytes.len(), "{bytes:02x?}");
            assert_eq!(decode_entry(&again), Ok(entry), "{bytes:02x?}");
        }
        readable
    });
    assert!(readable > CASES / 20, "{readable} of {CASES} could still be read");
}

#[test]
fn no_damage_to_a_change_makes_its_reader_panic_or_ask_for_much_memory() {
    let corpus = vectors("change_");
    let mut seeded = Seeded::new(2);
    let readable = assert_modest(GROWTH_MAX, || {
        let mut readable = 0;
        for _ in 0..CASES {
            let bytes = damaged(&corpus, LENGTH_MAX, &mut seeded);
            let Ok(change) = decode_change(&bytes) else { continue };
            readable += 1;
            let again = encode_change(&change);
            assert!(again.len() <= bytes.len(), "{bytes:02x?}");
            assert_eq!(decode_change(&again), Ok(change), "{bytes:02x?}");
        }
        readable
    });
    assert!(readable > CASES / 20, "{readable} of {CASES} could still be read");
}

#[test]
fn a_damaged_snapshot_whose_checksum_fits_is_read_or_refused() {
    let corpus = vectors("snapshot_");
    let mut seeded = Seeded::new(3);
    let (mut read, mut refused) = (0, 0);
    assert_modest(GROWTH_MAX, || {
        for _ in 0..CASES {
            let mut bytes = damaged(&corpus, LENGTH_MAX, &mut seeded);
            bytes.truncate(bytes.len().saturating_sub(SNAPSHOT_SUM_BYTES));
            let mut hasher = SipHasher13::new();
            hasher.write(&bytes);
            bytes.extend_from_slice(&hasher.finish128().as_u128().to_le_bytes());
            let mut table = MemTable::new();
            match snapshot::import(&bytes, &mut table) {
                Err(_) => refused += 1,
                Ok(()) => {
                    read += 1;
                    let mut again = Vec::new();
                    let exported: Result<(), ()> = snapshot::export(&table, &mut |chunk| {
                        again.extend_from_slice(chunk);
                        Ok(())
                    });
                    assert_eq!(exported, Ok(()));
                    // Rows out of order or twice are put in order; nothing is added.
                    assert!(again.len() <= bytes.len());
                }
            }
        }
    });
    assert!(read > 0 && refused > CASES / 2, "{read} read, {refused} refused");
}

#[test]
fn a_machine_over_a_damaged_row_opens_or_stops_and_names_the_row() {
    let rows = rows();
    let values: Vec<Vec<u8>> = rows.iter().map(|(_, value)| value.clone()).collect();
    let mut seeded = Seeded::new(4);
    let (mut opened, mut stopped) = (0, 0);
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let strange = assert_modest(GROWTH_MAX, || {
        for _ in 0..CASES_OF_ROWS {
            let mut table = MemTable::new();
            let which = seeded.below(rows.len());
            for (number, (key, value)) in rows.iter().enumerate() {
                let (mut key, mut value) = (key.clone(), value.clone());
                if number == which && seeded.below(4) > 0 {
                    damage(&mut value, &values, &mut seeded);
                } else if number == which {
                    damage(&mut key, &values, &mut seeded);
                }
                table.put(key, value.into());
            }
            match catch_unwind(AssertUnwindSafe(|| Machine::open(GroupKind::Home, &table))) {
                Ok(_) => opened += 1,
                Err(panic) if names_a_row(&*panic) => stopped += 1,
                Err(panic) => return Some((rows[which].0.clone(), text_of(&*panic))),
            }
        }
        None
    });
    std::panic::set_hook(hook);
    assert_eq!(strange, None);
    assert!(opened > 100 && stopped > 100, "{opened} opened, {stopped} stopped");
}

/// Whether a stop says what is damaged, so that an operator knows.
fn names_a_row(panic: &(dyn Any + Send)) -> bool {
    let text = text_of(panic);
    text.contains("row") && (text.contains("is damaged") || text.contains("as this page says"))
}

fn text_of(panic: &(dyn Any + Send)) -> String {
    let owned = panic.downcast_ref::<String>().cloned();
    owned
        .or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()))
        .unwrap_or_default()
}
