//! Whatever bytes lie in the data folder: what they say, or an error that names them, and never a panic or much more
//! memory than they have.
//!
//! Checksums would end most damage at the door, so here they are made to fit it: what is behind them is driven too. Of
//! damage that they are to find, `log_damage` and `state_faults` tell.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use fjall::{Database, KeyspaceCreateOptions, PersistMode};
use tenure_core::ids::{GroupId, Revision};
use tenure_core::table::{MemTable, Table as _, TableRead, Visit};
use tenure_storage::backup::{BackupError, BackupHead, BackupReader, BackupWriter, Chunk, GroupHead, Item};
use tenure_storage::disk::{Disk, OpenMode, RecordingDisk, read_file, write_file};
use tenure_storage::error::{LogFailed, OpenError};
use tenure_storage::feed::{FeedError, FeedLimits};
use tenure_storage::layout::{DataDir, Identity};
use tenure_storage::log::{Log, LogOptions};
use tenure_storage::state::{DiskEngine, StateEngine, StateError};

use crate::log_support::{DIR, Model, Run, files, open_on, small_options};
use crate::mutations::{Seeded, assert_modest, damage, damaged};
use crate::state_harness::{KEYS_END, MadeLog, copy_folder, open_disk};

const LOGS: usize = 3_000;
const FOLDERS: usize = 3_000;
/// Each opens an engine on a disk, which takes a while, with so many groups that each have a damaged row.
const ENGINES: usize = 6;
const GROUPS: u32 = 8;
const BACKUPS: usize = 20_000;
/// A backup is read frame by frame, and these are small.
const BACKUP_GROWTH_MAX: usize = 24 << 20;
/// The logs are small, whatever a checkpoint whose checksum fits claims that they hold.
const LOG_GROWTH_MAX: usize = 16 << 20;
/// An engine sets up its own buffers, whatever is in its rows.
const ENGINE_GROWTH_MAX: usize = 512 << 20;
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where the checksum of a segment's header and of a slot of the mark stands, behind what it covers.
const SMALL_SUM_AT: usize = 60;
/// The header of a record: the checksum of the rest, the checksum of the payload, the payload's length, …
const RECORD_HEADER_BYTES: usize = 40;
const RECORD_MAGIC: [u8; 2] = [0x7a, 0x5e];
const RECORD_MAGIC_AT: usize = 12;
const SEGMENT_HEADER_BYTES: usize = 64;
const MARK_SLOT_BYTES: usize = 4_096;

fn options() -> LogOptions {
    small_options()
}

/// A closed log of a few segments.
fn closed_log() -> RecordingDisk {
    let disk = RecordingDisk::new();
    let mut run = Run::new(open_on(&disk, options()).unwrap(), &disk, Model::default(), 5);
    for _ in 0..60 {
        run.step(3);
    }
    run.log.close();
    disk.after_power_loss(&mut |_| 1)
}

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn checksum_seed(options: &LogOptions) -> u32 {
    crc32c::crc32c(&options.salt.to_le_bytes())
}

/// Where the records of a segment begin.
fn records(bytes: &[u8]) -> Vec<usize> {
    let mut starts = Vec::new();
    let mut at = SEGMENT_HEADER_BYTES;
    while let Some(header) = bytes.get(at..at + RECORD_HEADER_BYTES) {
        if header[RECORD_MAGIC_AT..RECORD_MAGIC_AT + 2] != RECORD_MAGIC {
            break;
        }
        starts.push(at);
        at += RECORD_HEADER_BYTES + u32::from_le_bytes(header[8..12].try_into().unwrap()) as usize;
    }
    starts
}

/// Makes both checksums of the record fit what is there, as far as its payload is there.
fn seal_record(bytes: &mut [u8], at: usize, seed: u32) {
    let length = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
    let begin = at + RECORD_HEADER_BYTES;
    if let Some(payload) = bytes.get(begin..begin.saturating_add(length)) {
        let sum = crc32c::crc32c_append(seed, payload);
        bytes[at + 4..at + 8].copy_from_slice(&sum.to_le_bytes());
    }
    let sum = crc32c::crc32c_append(seed, &bytes[at + 4..begin]);
    bytes[at..at + 4].copy_from_slice(&sum.to_le_bytes());
}

fn seal_small(bytes: &mut [u8]) {
    let sum = crc32c::crc32c(&bytes[..SMALL_SUM_AT]);
    bytes[SMALL_SUM_AT..SMALL_SUM_AT + 4].copy_from_slice(&sum.to_le_bytes());
}

/// Damages one place of the log so that its checksums fit: a record's header, a payload, the header of a segment, a slot
/// of the mark, or a whole record put into the place of another.
fn damage_log(disk: &RecordingDisk, seeded: &mut Seeded) -> io::Result<String> {
    let names: Vec<String> = files(disk).into_iter().filter(|name| name.ends_with(".seg")).collect();
    let name = if seeded.below(5) == 0 {
        "synced".to_owned()
    } else {
        names[seeded.below(names.len())].clone()
    };
    let mut bytes = read_file(disk, &path(&name), FILE_BYTES_MAX)?.unwrap_or_default();
    let length = bytes.len();
    let starts = records(&bytes);
    let what;
    if name == "synced" {
        let slot = seeded.below(4) * MARK_SLOT_BYTES;
        overwrite(&mut bytes[slot + 8..slot + 40], seeded);
        seal_small(&mut bytes[slot..slot + 64]);
        what = "slot";
    } else if starts.is_empty() || seeded.below(8) == 0 {
        overwrite(&mut bytes[8..32], seeded);
        seal_small(&mut bytes[..64]);
        what = "header of the segment";
    } else {
        let at = starts[seeded.below(starts.len())];
        match seeded.below(3) {
            0 => {
                overwrite(&mut bytes[at + 8..at + RECORD_HEADER_BYTES], seeded);
                what = "header of a record";
            }
            1 => {
                let payload = u32::from_le_bytes(bytes[at + 8..at + 12].try_into().unwrap()) as usize;
                let begin = at + RECORD_HEADER_BYTES;
                // Damage before this one may have changed the length.
                overwrite(&mut bytes[begin..(begin + payload).min(length)], seeded);
                what = "payload";
            }
            _ => {
                let other = starts[seeded.below(starts.len())];
                let foreign = bytes[other..other + RECORD_HEADER_BYTES].to_vec();
                bytes[at + RECORD_MAGIC_AT + 2..at + RECORD_HEADER_BYTES]
                    .copy_from_slice(&foreign[RECORD_MAGIC_AT + 2..]);
                what = "foreign header";
            }
        }
        bytes[at + RECORD_MAGIC_AT..at + RECORD_MAGIC_AT + 2].copy_from_slice(&RECORD_MAGIC);
        seal_record(&mut bytes, at, checksum_seed(&options()));
    }
    assert_eq!(bytes.len(), length);
    disk.open(&path(&name), OpenMode::Write)?.write_at(0, &bytes)?;
    Ok(format!("{what} in {name}"))
}

/// Damages bytes in their place.
fn overwrite(place: &mut [u8], seeded: &mut Seeded) {
    let corpus = [place.to_vec()];
    let mut bytes = place.to_vec();
    damage(&mut bytes, &corpus, seeded);
    bytes.resize(place.len(), 0);
    place.copy_from_slice(&bytes);
}

/// Reads all that a log has. An error of it is an answer too.
fn read_all(log: &Log) -> Result<usize, LogFailed> {
    let mut bytes = 0;
    for id in log.groups() {
        let group = log.group(id);
        let state = group.state();
        bytes += state.vote.map_or(0, |vote| vote.len());
        let mut next = state.first_index.unwrap_or(0);
        loop {
            let page = group.read(next..u64::MAX, 1 << 16)?;
            let Some((last, _)) = page.last() else { break };
            next = last + 1;
            bytes += page.iter().map(|(_, entry)| entry.len()).sum::<usize>();
        }
    }
    Ok(bytes)
}

#[test]
fn a_log_with_damage_that_its_checksums_fit_opens_or_is_refused() {
    let pristine = closed_log();
    let whole: usize = files(&pristine)
        .iter()
        .map(|name| {
            read_file(&pristine, &path(name), FILE_BYTES_MAX)
                .unwrap()
                .unwrap()
                .len()
        })
        .sum();
    let mut seeded = Seeded::new(11);
    let (mut opened, mut refused) = (0, 0);
    assert_modest(LOG_GROWTH_MAX, || {
        for case in 0..LOGS {
            let disk = pristine.after_kill();
            let mut what = damage_log(&disk, &mut seeded).expect("a disk in memory");
            if seeded.below(3) == 0 {
                what = format!("{what}, {}", damage_log(&disk, &mut seeded).expect("a disk in memory"));
            }
            let outcome = catch_unwind(AssertUnwindSafe(|| match open_on(&disk, options()) {
                Ok(log) => {
                    if let Ok(bytes) = read_all(&log) {
                        assert!(bytes <= whole, "{bytes} bytes were read of {whole}");
                    }
                    log.close();
                    true
                }
                Err(OpenError::LogDamaged(_)) => false,
                Err(other) => panic!("refused otherwise: {other}"),
            }));
            match outcome {
                Ok(true) => opened += 1,
                Ok(false) => refused += 1,
                Err(_) => panic!("case {case}: {what}"),
            }
        }
    });
    assert!(opened > 100 && refused > 100, "{opened} opened, {refused} refused");
}

#[test]
fn files_that_name_the_folder_are_read_or_refused_by_name() {
    let root = Path::new("data");
    let disk = RecordingDisk::new();
    let dir = DataDir::open_on(Arc::new(disk.clone()), root).unwrap();
    let identity = Identity {
        cluster: 7,
        node: 3,
        folder: u128::MAX,
    };
    dir.write_identity(&identity).unwrap();
    drop(dir);
    let corpus: Vec<Vec<u8>> = ["FORMAT", "IDENTITY"]
        .iter()
        .map(|name| read_file(&disk, &root.join(name), 4_096).unwrap().unwrap())
        .collect();
    let mut seeded = Seeded::new(12);
    let (mut read, mut refused) = (0, 0);
    for _ in 0..FOLDERS {
        let disk = disk.after_kill();
        let which = seeded.below(2);
        let mut bytes = damaged(&corpus[which..=which], 4_000, &mut seeded);
        if which == 1 && seeded.below(2) == 0 {
            fit_identity(&mut bytes);
        }
        write_file(&disk, &root.join(["FORMAT", "IDENTITY"][which]), &bytes).unwrap();
        let dir = match DataDir::open_on(Arc::new(disk), root) {
            Ok(dir) => dir,
            Err(OpenError::FormatUnknown { .. } | OpenError::FormatNewer { .. }) => {
                refused += 1;
                continue;
            }
            Err(other) => panic!("{other}: {}", bytes.escape_ascii()),
        };
        match dir.read_identity() {
            Ok(Some(found)) => {
                read += 1;
                // There is one way to write it, so what was read is what stands there.
                dir.write_identity(&found).unwrap();
                let again = read_file(&**dir.disk(), &root.join("IDENTITY"), 4_096)
                    .unwrap()
                    .unwrap();
                assert_eq!(again, if which == 1 { bytes } else { corpus[1].clone() });
            }
            Err(OpenError::IdentityDamaged { .. }) => refused += 1,
            other => panic!("{other:?}: {}", bytes.escape_ascii()),
        }
    }
    assert!(read > 20 && refused > FOLDERS / 2, "{read} read, {refused} refused");
}

/// Puts the checksum that fits into the last line.
fn fit_identity(bytes: &mut Vec<u8>) {
    let Some(at) = bytes.windows(7).position(|window| window == b"crc32c ") else {
        return;
    };
    bytes.truncate(at);
    let sum = crc32c::crc32c(bytes);
    bytes.extend_from_slice(format!("crc32c {sum:08x}\n").as_bytes());
}

/// A folder of an engine with many groups, each with rows, a mark, and a feed of several segments.
fn recorded_engine(folder: &Path) {
    let engine = open_disk(folder, FeedLimits::default()).unwrap();
    for group in 1..=GROUPS {
        let state = engine.group(GroupId(group)).unwrap();
        let mut log = MadeLog::default();
        for round in 0..3u8 {
            log.push([(round, Some(vec![round; 40])), (round / 2, None), (200, Some(vec![1]))]);
            log.catch_up(&state);
            state.write_behind(log.last_index()).unwrap();
        }
    }
    engine.sync_all().unwrap();
}

/// Damages a row of every keyspace of a group, which the engine's own checksums then cover. Says how many.
fn damage_rows(folder: &Path, seeded: &mut Seeded) -> usize {
    let database = Database::builder(folder).worker_threads(1).open().unwrap();
    let mut damaged = 0;
    for name in database.list_keyspace_names() {
        let keyspace = database.keyspace(&name, KeyspaceCreateOptions::default).unwrap();
        let rows: Vec<(Vec<u8>, Vec<u8>)> = keyspace
            .iter()
            .map(|row| row.into_inner().unwrap())
            .map(|(key, value)| (key.to_vec(), value.to_vec()))
            .collect();
        // The keyspace that names the others has no rows of a group.
        if rows.is_empty() || !name.contains("-") {
            continue;
        }
        let values: Vec<Vec<u8>> = rows.iter().map(|(_, value)| value.clone()).collect();
        let (key, value) = rows[seeded.below(rows.len())].clone();
        let (mut new_key, mut new_value) = (key.clone(), value);
        if seeded.below(5) == 0 {
            damage(&mut new_key, &values, seeded);
        } else {
            damage(&mut new_value, &values, seeded);
        }
        keyspace.remove(key).unwrap();
        if !new_key.is_empty() {
            keyspace.insert(new_key, new_value).unwrap();
            damaged += 1;
        }
    }
    database.persist(PersistMode::SyncAll).unwrap();
    damaged
}

/// Opens a group and reads everything in it.
fn read_group(engine: &DiskEngine, group: GroupId) -> Result<usize, StateError> {
    let state = engine.group(group)?;
    let mut rows = state.read(|table: &dyn TableRead| {
        let mut rows = 0;
        table.scan(&[], KEYS_END, &mut |_, _: &Bytes| {
            rows += 1;
            Visit::Continue(())
        });
        rows
    })?;
    let mut next = state.feed().oldest();
    loop {
        let page = match state.feed().read(next, 1_000, 1 << 20, &|_| true) {
            Ok(page) => page,
            Err(FeedError::State(error)) => return Err(error),
            Err(FeedError::Compacted { .. }) => return Ok(rows),
        };
        rows += page.changes.len();
        if page.reached_end || page.next <= next {
            return Ok(rows);
        }
        next = Revision(page.next.0);
    }
}

#[test]
fn a_group_with_a_damaged_row_opens_or_is_refused_and_harms_no_other() {
    let recorded = tempfile::tempdir().unwrap();
    recorded_engine(recorded.path());
    let mut seeded = Seeded::new(13);
    let (mut cases, mut read, mut refused) = (0, 0, 0);
    assert_modest(ENGINE_GROWTH_MAX, || {
        for _ in 0..ENGINES {
            let copy = tempfile::tempdir().unwrap();
            copy_folder(recorded.path(), copy.path());
            cases += damage_rows(copy.path(), &mut seeded);
            let engine = open_disk(copy.path(), FeedLimits::default()).expect("it opens, whatever a group's rows are");
            for group in 1..=GROUPS {
                match read_group(&engine, GroupId(group)) {
                    Ok(_) => read += 1,
                    Err(StateError::Damaged { group: named, .. }) => {
                        assert_eq!(named, GroupId(group));
                        refused += 1;
                    }
                    Err(StateError::UnknownFormat { .. }) => refused += 1,
                    Err(other) => panic!("group {group}: {other}"),
                }
            }
        }
    });
    assert!(cases >= ENGINES * GROUPS as usize, "{cases} rows were damaged");
    assert!(read > 10 && refused > 5, "{read} groups were read, {refused} refused");
}

/// A small backup.
fn backup() -> Vec<u8> {
    let head = BackupHead {
        cluster: 7,
        begun_unix_secs: 1_767_225_600,
        groups: 2,
    };
    let mut writer = BackupWriter::begin(Vec::new(), &head).unwrap();
    for group in [1, 0] {
        let about = GroupHead {
            group,
            applied: 5,
            revision: 6,
            time_us: 7,
        };
        writer.begin_group(&about).unwrap();
        let mut table = MemTable::new();
        for row in 0..20u8 {
            table.put(vec![b'K', row], vec![row; usize::from(row)].into());
        }
        writer.rows(&Chunk::read(&table, &[]).0).unwrap();
        writer.end_group().unwrap();
    }
    writer.end().unwrap()
}

/// Makes the checksums of a backup fit what is there, as far as it consists of frames.
fn seal_backup(bytes: &mut [u8]) {
    let Some(magic) = bytes.get(..8) else { return };
    let (mut at, mut sum) = (8, crc32c::crc32c(magic));
    while let Some(head) = bytes.get(at..at + 9) {
        let len = u32::from_le_bytes(head[1..5].try_into().unwrap()) as usize;
        let Some(payload) = bytes.get(at + 9..(at + 9).saturating_add(len)) else {
            return;
        };
        sum = crc32c::crc32c_append(crc32c::crc32c_append(sum, &head[..5]), payload);
        bytes[at + 5..at + 9].copy_from_slice(&sum.to_le_bytes());
        at += 9 + len;
    }
}

/// Reads a backup to its end and says how many rows it has.
fn rows_of_backup(bytes: &[u8]) -> Result<usize, BackupError> {
    let mut reader = BackupReader::begin(bytes)?;
    let mut rows = 0;
    loop {
        match reader.next_item()? {
            Item::Rows(chunk) => {
                assert_eq!(chunk.rows().count() as u64, chunk.counts().rows);
                rows += chunk.rows().count();
            }
            Item::End => return Ok(rows),
            Item::Group(_) | Item::GroupEnd(_) => {}
        }
    }
}

#[test]
fn no_damage_to_a_backup_makes_its_reader_panic_or_ask_for_much_memory() {
    let whole = backup();
    assert_eq!(rows_of_backup(&whole).unwrap(), 40);
    let corpus = vec![whole.clone()];
    let mut seeded = Seeded::new(17);
    let (found, readable) = assert_modest(BACKUP_GROWTH_MAX, || {
        let (mut found, mut readable) = (0, 0);
        for case in 0..BACKUPS {
            let mut bytes = damaged(&corpus, 1 << 16, &mut seeded);
            if case % 2 == 0 {
                // As it is: whatever differs is found.
                let read = rows_of_backup(&bytes);
                assert!(read.is_err() || bytes == whole, "damage was not found");
                found += usize::from(read.is_err());
            } else {
                seal_backup(&mut bytes);
                readable += usize::from(rows_of_backup(&bytes).is_ok());
            }
        }
        (found, readable)
    });
    assert!(found > BACKUPS / 3, "{found} were found");
    assert!(readable > BACKUPS / 50, "{readable} could still be read");
}
