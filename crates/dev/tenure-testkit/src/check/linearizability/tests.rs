//! Histories that are right are accepted however their calls overlap, and each that is altered in one place is not.

use super::*;
use crate::history::ReadValue;

const KEYS: u64 = 3;
const CLIENTS: u64 = 5;
const CALLS: u64 = 400;

/// One key of the register that plays what a cluster does.
#[derive(Clone)]
struct Value {
    value: String,
    version: u64,
    created: u64,
}

/// Numbers that depend on the seed alone.
struct Dice(u64);

impl Dice {
    fn below(&mut self, sides: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % sides
    }
}

/// Calls that took effect one after another, one in each millisecond, while each was under way for longer than that.
fn played(seed: u64) -> Vec<Call> {
    let mut dice = Dice(seed);
    let mut state: BTreeMap<String, Value> = BTreeMap::new();
    let mut calls = Vec::new();
    for now in 1..=CALLS {
        let key = format!("k{}", dice.below(KEYS));
        let held = state.get(&key).cloned();
        let guard = match (dice.below(4), &held) {
            (0, _) => Guarded::Absent,
            (1, Some(held)) => Guarded::Version(held.version.saturating_sub(dice.below(2))),
            (2, Some(held)) => Guarded::Created(held.created),
            _ => Guarded::Nothing,
        };
        let lets_through = match (guard, &held) {
            (Guarded::Nothing, _) | (Guarded::Absent, None) => true,
            (Guarded::Absent, Some(_)) | (_, None) => false,
            (Guarded::Version(asked), Some(held)) => asked == held.version,
            (Guarded::Created(asked), Some(held)) => asked == held.created,
        };
        let refused = Told::Refused {
            version: held.as_ref().map(|held| held.version),
        };
        let (operation, told) = match dice.below(8) {
            0..4 => {
                let value = format!("v{now}");
                let created = held.as_ref().map_or(now, |held| held.created);
                let told = if lets_through {
                    let value = value.clone();
                    let version = now;
                    state.insert(
                        key.clone(),
                        Value {
                            value,
                            version,
                            created,
                        },
                    );
                    Told::Written { version, created }
                } else {
                    refused
                };
                (Operation::Put { key, value, guard }, told)
            }
            4 if lets_through => {
                state.remove(&key);
                let removed = held.map(|held| (now, held.version));
                (Operation::Delete { key, guard }, Told::Deleted { removed })
            }
            4 => (Operation::Delete { key, guard }, refused),
            _ => {
                let found = held.map(|held| ReadValue {
                    value: held.value,
                    version: held.version,
                    created: held.created,
                });
                (Operation::Get { key }, Told::Read { found })
            }
        };
        // One call in ten is never answered, whatever it did.
        let is_lost = dice.below(10) == 0;
        calls.push(Call {
            client: u32::try_from(now % CLIENTS).unwrap(),
            operation,
            called: Duration::from_micros(now * 1_000 - dice.below(3_000).min(now * 1_000)),
            returned: (!is_lost).then(|| Duration::from_micros(now * 1_000 + dice.below(3_000))),
            told: if is_lost { Told::Unknown } else { told },
            failure: None,
        });
    }
    calls
}

fn is_acknowledged_write(call: &Call) -> bool {
    matches!(call.told, Told::Written { .. })
}

/// The places of calls that are not first, in an order that the seed gives.
fn places(calls: &[Call], dice: &mut Dice, fits: impl Fn(&Call) -> bool) -> Option<usize> {
    let places: Vec<usize> = (0..calls.len()).filter(|place| fits(&calls[*place])).collect();
    let count = u64::try_from(places.len()).unwrap();
    (count > 0).then(|| places[usize::try_from(dice.below(count)).unwrap()])
}

/// Alters one place so that no order can explain it.
fn altered(calls: &mut [Call], dice: &mut Dice) -> &'static str {
    let read_something = |call: &Call| matches!(call.told, Told::Read { found: Some(_) });
    match dice.below(5) {
        0 => {
            // Long after everything: a value that was overwritten or removed before.
            let last = calls.iter().rposition(read_something).unwrap();
            let key = calls[last].operation.key().to_owned();
            let first = calls
                .iter()
                .find_map(|call| match &call.told {
                    Told::Read { found: Some(read) } if call.operation.key() == key => Some(read.clone()),
                    _ => None,
                })
                .unwrap();
            calls[last].told = Told::Read { found: Some(first) };
            "a read finds what was there long before"
        }
        1 => {
            let place = places(calls, dice, read_something).unwrap();
            let Told::Read { found: Some(read) } = &mut calls[place].told else {
                unreachable!()
            };
            read.value = "nobody wrote this".to_owned();
            "a read finds what nobody wrote"
        }
        2 => {
            let read = places(calls, dice, read_something).unwrap();
            let Told::Read { found: Some(found) } = &calls[read].told else {
                unreachable!()
            };
            let value = found.value.clone();
            let write = calls
                .iter()
                .position(|call| matches!(&call.operation, Operation::Put { value: written, .. } if *written == value));
            calls[write.unwrap()].told = Told::NotApplied;
            "what was denied is read"
        }
        3 => {
            let told = |value: &str| {
                calls.iter().any(|call| match &call.operation {
                    Operation::Put { value: written, .. } => written == value && is_acknowledged_write(call),
                    _ => false,
                })
            };
            let of_told = |call: &Call| match &call.told {
                Told::Read { found: Some(read) } => told(&read.value),
                _ => false,
            };
            let place = places(calls, dice, of_told).unwrap();
            let Told::Read { found: Some(read) } = &mut calls[place].told else {
                unreachable!()
            };
            read.version += 100_000;
            "a write has two versions"
        }
        _ => {
            let place = places(calls, dice, |call| {
                call.operation.guard() == Guarded::Absent && is_acknowledged_write(call)
            })
            .unwrap();
            calls[place].told = Told::Refused { version: None };
            "a guard held and the write was refused"
        }
    }
}

#[test]
fn what_one_register_does_is_accepted() {
    for seed in 1..=40 {
        let calls = played(seed);
        assert_eq!(linearizable(&calls), Ok(()), "seed {seed}");
    }
}

#[test]
fn forty_histories_altered_in_one_place_are_rejected() {
    for seed in 1..=40 {
        let mut calls = played(seed);
        let what = altered(&mut calls, &mut Dice(seed + 1_000));
        assert!(linearizable(&calls).is_err(), "seed {seed}: {what}");
    }
}

/// A call of one client on one key.
fn call(from: u64, to: Option<u64>, operation: Operation, told: Told) -> Call {
    Call {
        client: 1,
        operation,
        called: Duration::from_millis(from),
        returned: to.map(Duration::from_millis),
        told,
        failure: None,
    }
}

fn put(value: &str) -> Operation {
    Operation::Put {
        key: "k".to_owned(),
        value: value.to_owned(),
        guard: Guarded::Nothing,
    }
}

fn get() -> Operation {
    Operation::Get { key: "k".to_owned() }
}

fn read(value: &str, version: u64) -> Told {
    Told::Read {
        found: Some(ReadValue {
            value: value.to_owned(),
            version,
            created: 1,
        }),
    }
}

fn written(version: u64) -> Told {
    Told::Written { version, created: 1 }
}

#[test]
fn of_two_reads_the_later_one_does_not_find_the_older_value() {
    let calls = |first: Told, second: Told| {
        vec![
            call(0, Some(1), put("a"), written(1)),
            call(2, Some(20), put("b"), written(2)),
            call(3, Some(5), get(), first),
            call(6, Some(8), get(), second),
        ]
    };
    assert_eq!(linearizable(&calls(read("a", 1), read("b", 2))), Ok(()));
    assert_eq!(linearizable(&calls(read("b", 2), read("b", 2))), Ok(()));
    assert!(linearizable(&calls(read("b", 2), read("a", 1))).is_err());
}

#[test]
fn what_is_unknown_may_happen_late_once_or_never() {
    let unknown = || call(2, None, put("b"), Told::Unknown);
    let first = || call(0, Some(1), put("a"), written(1));
    let late = vec![
        first(),
        unknown(),
        call(10, Some(11), get(), read("a", 1)),
        call(12, Some(13), get(), read("b", 2)),
    ];
    assert_eq!(linearizable(&late), Ok(()));
    let twice = [
        late,
        vec![
            call(14, Some(15), put("c"), written(3)),
            call(16, Some(17), get(), read("b", 2)),
        ],
    ]
    .concat();
    assert!(linearizable(&twice).is_err());
    let never = vec![first(), unknown(), call(10, Some(11), get(), read("a", 1))];
    assert_eq!(linearizable(&never), Ok(()));
    let early = vec![
        first(),
        call(2, Some(3), get(), read("b", 2)),
        call(4, None, put("b"), Told::Unknown),
    ];
    assert!(linearizable(&early).is_err());
}
