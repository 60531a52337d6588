//! What was found, against the same steps on what is written.

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Append(u64),
    Relocate(u64),
    Truncate(u64),
    Purge(u64),
    Remove,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0u64..3).prop_map(Step::Append),
        3 => (0u64..30).prop_map(Step::Relocate),
        1 => (0u64..30).prop_map(Step::Truncate),
        1 => (0u64..30).prop_map(Step::Purge),
        1 => Just(Step::Remove),
    ]
}

fn location(number: usize) -> Location {
    Location {
        segment: 1,
        offset: number as u32,
        payload_length: 0,
        crc: 0,
    }
}

/// A place that no record ever names.
const NOWHERE: Location = Location {
    segment: 0,
    offset: 0,
    payload_length: 0,
    crc: 0,
};

fn named(start: u64, count: u64) -> GroupMeta {
    GroupMeta {
        entries: (count > 0).then_some(start..start + count),
        ..GroupMeta::default()
    }
}

proptest! {
    #[test]
    fn what_is_found_is_what_is_written(start in 0u64..10, count in 0u64..10, steps in vec(step(), 0..60)) {
        let meta = named(start, count);
        let locations = std::iter::repeat_n(NOWHERE, count as usize).collect();
        let mut written = Written { meta: meta.clone(), locations };
        let mut found = Found::of_checkpoint(meta);
        for (number, step) in steps.into_iter().enumerate() {
            let place = location(number);
            match step {
                Step::Append(beside) => {
                    // Mostly the next one.
                    let index = written.meta.next().unwrap_or(start) + beside.saturating_sub(1);
                    prop_assert_eq!(found.append(index, place), written.append(index, place).is_ok());
                }
                Step::Relocate(index) => {
                    prop_assert_eq!(found.relocate(index, place), written.relocate(index, place).is_some());
                }
                Step::Truncate(next) => {
                    found.truncate(next);
                    written.truncate(next, |_| ());
                }
                Step::Purge(upto) => {
                    found.purge(upto, Bytes::new());
                    written.purge(upto, Bytes::new(), |_| ());
                }
                Step::Remove => {
                    found = Found::default();
                    written.remove(|_| ());
                }
            }
            prop_assert_eq!(&found.meta, &written.meta);
        }
        let missing = written.locations.iter().position(|location| *location == NOWHERE);
        let expected = match missing {
            Some(place) => Err(written.meta.live().start + place as u64),
            None => Ok(written.locations),
        };
        prop_assert_eq!(found.into_written().map(|written| written.locations), expected);
    }
}

#[test]
fn what_a_checkpoint_claims_takes_no_room() {
    let found = Found::of_checkpoint(named(1, u64::MAX - 1));
    assert!(!found.holds_at_most(1 << 24));
    assert_eq!(found.into_written().err(), Some(1));
}
