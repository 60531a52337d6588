//! Which indexes a group takes, where its entries lie, and what is flushed and may leave memory.

use super::*;

fn bytes(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

fn location(offset: u32) -> Location {
    Location {
        segment: 1,
        offset,
        payload_length: 0,
        crc: 0,
    }
}

#[test]
fn the_first_entry_may_have_any_index_and_the_next_ones_follow() {
    let mut meta = GroupMeta::default();
    assert_eq!(meta.append(5), Ok(()));
    assert_eq!(meta.append(7), Err(6));
    assert_eq!(meta.append(6), Ok(()));
    meta.truncate(0);
    assert_eq!(meta.live(), 5..5);
    assert_eq!(meta.append(9), Err(5));
}

#[test]
fn a_purge_may_lie_beyond_the_last_entry_and_never_goes_back() {
    let mut meta = GroupMeta::default();
    meta.purge(9, bytes("nine"));
    assert_eq!(meta.live(), 10..10);
    assert_eq!(meta.append(10), Ok(()));
    meta.purge(3, bytes("three"));
    assert_eq!((meta.live(), meta.purged.clone()), (10..11, Some((9, bytes("nine")))));
    meta.purge(u64::MAX, bytes("all"));
    assert_eq!(meta.live(), u64::MAX..u64::MAX);
}

#[test]
fn the_state_of_a_group_is_read_back_as_it_was_written() {
    let states = [
        GroupMeta::default(),
        GroupMeta {
            entries: Some(3..9),
            ..GroupMeta::default()
        },
        GroupMeta {
            vote: Some(Bytes::new()),
            ..GroupMeta::default()
        },
        GroupMeta {
            entries: Some(7..7),
            vote: Some(bytes("vote")),
            committed: Some(bytes("c")),
            purged: Some((6, bytes("six"))),
        },
    ];
    for state in states {
        let mut encoded = Vec::new();
        state.encode(&mut encoded);
        assert_eq!(GroupMeta::decode(&encoded), Some(state));
        for length in 0..encoded.len() {
            assert_eq!(GroupMeta::decode(&encoded[..length]), None, "cut to {length} bytes");
        }
        encoded.push(0);
        assert_eq!(GroupMeta::decode(&encoded), None, "with a byte more");
    }
}

#[test]
fn locations_go_with_their_entries() {
    let mut written = Written::default();
    for index in 1..=6 {
        written.append(index, location(index as u32)).unwrap();
    }
    let mut dropped = Vec::new();
    written.truncate(5, |location| dropped.push(location.offset));
    written.purge(2, Bytes::new(), |location| dropped.push(location.offset));
    assert_eq!(dropped, [6, 5, 1, 2]);
    assert_eq!(written.location(3), Some(location(3)));
    assert_eq!((written.location(2), written.location(5)), (None, None));
    assert_eq!(written.relocate(4, location(40)), Some(location(4)));
    dropped.clear();
    written.purge(100, Bytes::new(), |location| dropped.push(location.offset));
    assert_eq!(dropped, [3, 40]);
    assert_eq!(written.append(101, location(7)), Ok(()));
    assert_eq!(written.location(101), Some(location(7)));
}

#[test]
fn a_queued_truncation_holds_back_what_counts_as_flushed() {
    let mut memory = GroupMemory::default();
    for index in 1..=9 {
        memory.seen.append(index).unwrap();
        memory.tail.push_back(Bytes::new());
    }
    assert_eq!(memory.flushed_index(), None);
    let before = memory.seen.live();
    memory.seen.truncate(5);
    memory.fit_tail(before);
    memory.truncations.push_back(5);
    // The write of the entries before the truncation ends only now.
    memory.flushed(10);
    assert_eq!(memory.flushed_index(), Some(4));
    memory.truncations.pop_front();
    memory.seen.append(5).unwrap();
    memory.tail.push_back(Bytes::new());
    assert_eq!(memory.flushed_index(), Some(4));
    memory.flushed(6);
    assert_eq!(memory.flushed_index(), Some(5));
}

#[test]
fn eviction_spares_what_is_not_synced_and_the_last_entry() {
    let mut memory = GroupMemory::default();
    for index in 1..=4 {
        memory.seen.append(index).unwrap();
        memory.tail.push_back(bytes("xx"));
    }
    memory.flushed(3);
    assert_eq!(memory.evict(4), 4);
    assert_eq!(memory.tail_start(), 3);
    memory.flushed(5);
    assert_eq!(memory.evict(4), 2);
    assert_eq!(memory.last(), Some((4, bytes("xx"))));
}
