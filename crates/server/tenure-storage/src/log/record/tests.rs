//! Batches are read back as they were built, and anything else is no batch.

use super::*;

const SEED: u32 = 77;

fn batch() -> Vec<u8> {
    let mut builder = BatchBuilder::new(SEED, 3);
    builder.begin(9, b"prefix");
    builder.push(Kind::Entry, GroupId(4), 100, b"payload");
    builder.push(Kind::Vote, GroupId(5), 0, b"");
    builder.finish().unwrap().to_vec()
}

#[test]
fn a_batch_is_read_back_as_it_was_built() {
    let bytes = batch();
    assert_eq!(&bytes[..6], b"prefix");
    let first = Record::read(&bytes, 6, SEED).unwrap();
    assert_eq!(
        (first.header.kind, first.header.group, first.header.index),
        (Kind::Entry, GroupId(4), 100)
    );
    assert_eq!(
        (first.header.batch, first.header.run, first.payload),
        (9, 3, &b"payload"[..])
    );
    assert!(first.header.first && !first.header.last);
    let second = Record::read(&bytes, 6 + first.header.record_length(), SEED).unwrap();
    assert_eq!(
        (second.header.kind, second.header.group, second.payload),
        (Kind::Vote, GroupId(5), &b""[..])
    );
    assert!(!second.header.first && second.header.last);
    assert_eq!(
        6 + first.header.record_length() + second.header.record_length(),
        bytes.len()
    );
}

#[test]
fn a_batch_without_records_is_nothing_to_write() {
    let mut builder = BatchBuilder::new(SEED, 3);
    builder.begin(9, b"prefix");
    assert_eq!(builder.finish(), None);
}

#[test]
fn a_record_with_any_bit_turned_or_cut_short_or_of_another_log_is_none() {
    let bytes = batch()[6..].to_vec();
    let length = HEADER_LENGTH + 7;
    for bit in 0..length * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Record::read(&damaged, 0, SEED).is_none(), "bit {bit}");
    }
    for cut in 0..length {
        assert!(Record::read(&bytes[..cut], 0, SEED).is_none(), "cut to {cut}");
    }
    assert!(Record::read(&bytes, 0, SEED + 1).is_none());
    assert!(Record::read(&bytes, usize::MAX, SEED).is_none());
    assert!(Record::read(&[0; 100], 0, 0).is_none());
}
