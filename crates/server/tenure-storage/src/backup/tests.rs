//! The file of a backup: what was written is read, and nothing else is.

use tenure_core::table::{MemTable, Table as _};

use super::*;

/// A backup that was written once, with a line of comment.
const VECTOR: &str = include_str!("../../tests/vectors/backup_v1.hex");

fn head() -> BackupHead {
    BackupHead {
        cluster: 0x0123_4567_89ab_cdef,
        begun_unix_secs: 1_767_225_600,
        groups: 2,
    }
}

fn group(group: u32) -> GroupHead {
    GroupHead {
        group,
        applied: 17 + u64::from(group),
        revision: 300,
        time_us: 5_000_000,
    }
}

fn table(rows: u8, value: usize) -> MemTable {
    let mut table = MemTable::new();
    for row in 0..rows {
        table.put(vec![b'K', row], vec![row; value].into());
    }
    table
}

/// The chunks of a table.
fn chunks(table: &MemTable) -> Vec<Chunk> {
    let (mut chunks, mut from) = (Vec::new(), Some(Vec::new()));
    while let Some(key) = from {
        let (chunk, next) = Chunk::read(table, &key);
        chunks.push(chunk);
        from = next;
    }
    chunks
}

fn write(tables: &[(u32, MemTable)]) -> Vec<u8> {
    let mut writer = BackupWriter::begin(Vec::new(), &head()).unwrap();
    for (id, table) in tables {
        writer.begin_group(&group(*id)).unwrap();
        for chunk in chunks(table) {
            writer.rows(&chunk).unwrap();
        }
        writer.end_group().unwrap();
    }
    writer.end().unwrap()
}

fn read(bytes: &[u8]) -> Result<Vec<Item>, BackupError> {
    let mut reader = BackupReader::begin(bytes)?;
    assert_eq!(*reader.head(), head(), "what was not written was read");
    let mut items = Vec::new();
    loop {
        items.push(reader.next_item()?);
        if items.last() == Some(&Item::End) {
            assert_eq!(reader.next_item()?, Item::End, "the end stays the end");
            return Ok(items);
        }
    }
}

fn small() -> Vec<u8> {
    write(&[(1, table(3, 5)), (0, table(1, 0))])
}

#[test]
fn what_was_written_is_read() {
    let tables = [(1, table(7, CHUNK_BYTES / 3)), (0, MemTable::new())];
    let items = read(&write(&tables)).unwrap();
    let mut expected = Vec::new();
    for (id, table) in &tables {
        expected.push(Item::Group(group(*id)));
        let chunks = chunks(table);
        let bytes: usize = chunks.iter().map(|chunk| chunk.bytes().len()).sum();
        let end = GroupEnd {
            rows: table.len() as u64,
            bytes: (bytes - 8 * table.len()) as u64,
        };
        expected.extend(chunks.into_iter().map(Item::Rows));
        expected.push(Item::GroupEnd(end));
    }
    expected.push(Item::End);
    assert_eq!(items, expected);
    assert_eq!(items.iter().filter(|item| matches!(item, Item::Rows(_))).count(), 5);
}

#[test]
fn a_row_longer_than_a_chunk_has_one_of_its_own() {
    let mut table = table(2, 10);
    table.put(vec![b'K', 1, 0], vec![1; 2 * CHUNK_BYTES].into());
    table.put(vec![b'K', 2], vec![2].into());
    let rows: Vec<usize> = chunks(&table).iter().map(|chunk| chunk.rows().count()).collect();
    assert_eq!(rows, [2, 1, 1]);
}

#[test]
fn a_backup_that_was_written_once_is_read_for_ever() {
    let digits: Vec<u32> = VECTOR
        .lines()
        .filter(|line| !line.starts_with('#'))
        .flat_map(str::chars)
        .filter_map(|digit| digit.to_digit(16))
        .collect();
    let bytes: Vec<u8> = digits.chunks(2).map(|pair| (pair[0] * 16 + pair[1]) as u8).collect();
    let hex: String = small().iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(bytes, small(), "{hex}");
    assert_eq!(read(&bytes).unwrap().len(), 7);
}

#[test]
fn a_backup_that_is_cut_off_anywhere_is_refused() {
    let whole = small();
    for len in 0..whole.len() {
        let error = read(&whole[..len]).unwrap_err();
        let is_named = match len {
            0..8 => matches!(error, BackupError::NotABackup),
            _ => matches!(error, BackupError::Truncated { .. }),
        };
        assert!(is_named, "{len}: {error}");
    }
    assert!(matches!(
        read(&[&whole[..], b"x"].concat()),
        Err(BackupError::Damaged { .. })
    ));
}

#[test]
fn a_backup_with_any_bit_changed_is_refused() {
    let whole = small();
    for at in 0..whole.len() {
        for bit in 0..8 {
            let mut bytes = whole.clone();
            bytes[at] ^= 1 << bit;
            let error = read(&bytes).unwrap_err();
            match at {
                0..7 => assert!(matches!(error, BackupError::NotABackup), "{at}: {error}"),
                7 => assert!(matches!(error, BackupError::FormatNewer { .. }), "{at}: {error}"),
                _ => assert!(
                    matches!(error, BackupError::Damaged { .. } | BackupError::Truncated { .. }),
                    "{at}: {error}"
                ),
            }
        }
    }
}

#[test]
fn a_frame_that_is_missing_doubled_or_moved_is_refused() {
    let whole = small();
    let mut starts = vec![MAGIC.len()];
    while *starts.last().unwrap() < whole.len() {
        let at = *starts.last().unwrap();
        let len = u32::from_le_bytes(whole[at + 1..at + 5].try_into().unwrap()) as usize;
        starts.push(at + FRAME_HEAD_BYTES + len);
    }
    let frames: Vec<&[u8]> = starts.windows(2).map(|ends| &whole[ends[0]..ends[1]]).collect();
    let with = |frames: &[&[u8]]| [MAGIC.as_slice(), &frames.concat()].concat();
    assert_eq!(with(&frames), whole);
    for at in 1..frames.len() {
        let mut missing = frames.clone();
        missing.remove(at);
        assert!(read(&with(&missing)).is_err(), "{at} is missing");
        let mut doubled = frames.clone();
        doubled.insert(at, frames[at]);
        assert!(read(&with(&doubled)).is_err(), "{at} is there twice");
        let mut moved = frames.clone();
        moved.swap(at, at - 1);
        assert!(read(&with(&moved)).is_err(), "{at} is moved");
    }
}
