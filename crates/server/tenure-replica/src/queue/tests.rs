//! The line: bounds, order, fairness, and that a request is answered by one side only.

use std::time::Duration;

use bytes::Bytes;

use tenure_core::codec::encode_entry;
use tenure_core::command::{
    Acknowledged, Append, CacheSettings, Command, Entry, FenceMode, Guard, Operation, Origin, Request, StreamSettings,
    Txn, TxnGuard,
};
use tenure_core::ids::{Fingerprint, Namespace, Nonce, ObjectName, Secret, SessionId, SessionRef};
use tenure_core::limits::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, ENTRY_KEEP_ALIVES_MAX};
use tenure_core::time::{Span, Timestamp};

use super::{ENTRY_CLOSES_FIRST_MAX, QueueLimits, Ticket, WaitingLine, request_bytes};
use crate::error::Unavailable;

fn namespace(name: &str) -> Namespace {
    Namespace {
        tenant: "acme".into(),
        name: name.into(),
    }
}

fn put_in(space: &str, key: &str, value_len: usize) -> Request {
    Request {
        origin: Origin::Anonymous,
        command: Command::Put {
            cache: ObjectName {
                namespace: namespace(space),
                name: "c".into(),
            },
            key: Bytes::copy_from_slice(key.as_bytes()),
            value: Bytes::from(vec![7; value_len]),
            ttl: None,
            guard: None,
            owner: None,
        },
    }
}

fn close(session: u64) -> Request {
    Request {
        origin: Origin::Anonymous,
        command: Command::CloseSession {
            session: SessionId(session),
            secret: None,
        },
    }
}

fn session(id: u64, secret: u128) -> SessionRef {
    SessionRef {
        id: SessionId(id),
        secret: Secret(secret),
    }
}

fn name_of(request: &Request) -> String {
    match &request.command {
        Command::Put { cache, key, .. } => {
            format!("{}:{}", cache.namespace.name, std::str::from_utf8(key).unwrap())
        }
        Command::CloseSession { session, .. } => format!("close {}", session.0),
        other => panic!("not used here: {other:?}"),
    }
}

fn names(line: &mut WaitingLine) -> Vec<String> {
    line.take(NOW)
        .requests
        .iter()
        .map(|waiting| name_of(&waiting.request))
        .collect()
}

const NOW: Duration = Duration::from_secs(100);

#[test]
fn closes_come_first_and_namespaces_take_turns() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let mut tickets = Vec::new();
    for request in [
        put_in("busy", "1", 1),
        put_in("busy", "2", 1),
        put_in("busy", "3", 1),
        put_in("quiet", "1", 1),
        close(9),
        put_in("other", "1", 1),
    ] {
        tickets.push(line.push(request, None, NOW).unwrap());
    }
    assert_eq!(
        names(&mut line),
        ["close 9", "busy:1", "quiet:1", "other:1", "busy:2", "busy:3"]
    );
    assert!(line.is_empty());
}

#[test]
fn what_was_not_proposed_goes_back_to_where_it_was() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let _tickets: Vec<_> = ["1", "2"]
        .iter()
        .map(|key| line.push(put_in("a", key, 1), None, NOW).unwrap())
        .collect();
    let kept = line.push_keep_alive(session(1, 1), NOW).unwrap();
    let batch = line.take(NOW);
    let _later = line.push(put_in("a", "3", 1), None, NOW).unwrap();
    line.put_back(batch);
    let batch = line.take(NOW);
    assert_eq!(batch.keep_alives.len(), 1);
    assert_eq!(
        batch
            .requests
            .iter()
            .map(|waiting| name_of(&waiting.request))
            .collect::<Vec<_>>(),
        ["a:1", "a:2", "a:3"]
    );
    drop(kept);
}

#[test]
fn an_entry_is_closed_at_its_number_of_commands_and_at_its_bytes() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let mut tickets: Vec<_> = (0..ENTRY_COMMANDS_MAX + 3)
        .map(|number| line.push(put_in("a", &number.to_string(), 1), None, NOW).unwrap())
        .collect();
    assert_eq!(line.take(NOW).requests.len(), ENTRY_COMMANDS_MAX);
    assert_eq!(line.take(NOW).requests.len(), 3);

    tickets.extend((0..3).map(|number| line.push(put_in("a", &number.to_string(), 400_000), None, NOW).unwrap()));
    assert_eq!(line.take(NOW).requests.len(), 2, "a third would not fit a mebibyte");
    assert_eq!(line.take(NOW).requests.len(), 1);

    tickets.push(line.push(put_in("a", "big", ENTRY_BYTES_MAX), None, NOW).unwrap());
    assert_eq!(
        line.take(NOW).requests.len(),
        1,
        "a single larger command has an entry of its own"
    );
}

#[test]
fn a_request_whose_deadline_has_passed_is_answered_and_never_taken() {
    let mut line = WaitingLine::new(QueueLimits::default());
    assert_eq!(
        line.push(put_in("a", "1", 1), Some(NOW), NOW).err(),
        Some(Unavailable::Deadline)
    );
    let mut late = line
        .push(put_in("a", "2", 1), Some(NOW + Duration::from_millis(1)), NOW)
        .unwrap();
    let batch = line.take(NOW + Duration::from_millis(1));
    assert!(batch.requests.is_empty());
    assert_eq!(late.answer.try_recv().unwrap(), Err(Unavailable::Deadline));
}

#[test]
fn a_request_that_was_given_up_is_not_taken_and_one_that_was_taken_cannot_be_given_up() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let first = line.push(put_in("a", "1", 1), None, NOW).unwrap();
    let second = line.push(put_in("a", "2", 1), None, NOW).unwrap();
    drop(line.push(put_in("a", "3", 1), None, NOW).unwrap());
    assert!(first.give_up());
    assert_eq!(names(&mut line), ["a:2"]);
    assert!(!second.give_up());
}

#[test]
fn the_line_is_bounded_by_number_and_by_bytes_and_keep_alives_are_exempt() {
    let mut line = WaitingLine::new(QueueLimits {
        queue_len_max: 4,
        queue_bytes_max: 10_000,
        ..QueueLimits::default()
    });
    let _first = line.push(put_in("a", "1", 1), None, NOW).unwrap();
    assert!(is_overloaded(line.push(put_in("a", "2", 20_000), None, NOW)));
    let _second = line.push(put_in("a", "2", 1), None, NOW).unwrap();
    assert!(is_overloaded(line.push(put_in("a", "3", 1), None, NOW)));
    line.push_keep_alive(session(1, 1), NOW).unwrap();
    assert_eq!(line.len(), 2);
}

fn is_overloaded(pushed: Result<Ticket, Unavailable>) -> bool {
    matches!(pushed, Err(Unavailable::Overloaded { .. }))
}

#[test]
fn a_namespace_gets_what_is_still_free_so_that_the_next_one_finds_room() {
    let mut line = WaitingLine::new(QueueLimits {
        queue_len_max: 60,
        ..QueueLimits::default()
    });
    let mut tickets = Vec::new();
    let mut fill = |line: &mut WaitingLine, space: &str| {
        let before = tickets.len();
        while let Ok(ticket) = line.push(put_in(space, "k", 1), None, NOW) {
            tickets.push(ticket);
        }
        tickets.len() - before
    };
    assert_eq!(fill(&mut line, "first"), 30);
    assert_eq!(fill(&mut line, "second"), 15);
    assert_eq!(fill(&mut line, "third"), 8);
    // Taking turns, each gets the same of what is taken.
    let taken = names(&mut line);
    assert_eq!(taken[..3], ["first:k", "second:k", "third:k"]);
}

#[test]
fn what_would_wait_too_long_is_refused_when_it_comes_but_never_the_first_of_a_namespace() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let mut tickets = Vec::new();
    let mut now = NOW;
    // Full entries every 200 ms: about 5,000 commands a second.
    for _ in 0..20 {
        while line.len() < 2 * ENTRY_COMMANDS_MAX {
            tickets.push(line.push(put_in("a", "k", 1), None, now).unwrap());
        }
        assert_eq!(line.take(now).requests.len(), ENTRY_COMMANDS_MAX);
        now += Duration::from_millis(200);
    }
    let flood = std::iter::from_fn(|| line.push(put_in("a", "k", 1), None, now).ok());
    tickets.extend(flood);
    let waiting = line.len();
    // Alone it gets half of what the line takes in a second.
    assert!((2_400..2_700).contains(&waiting), "{waiting}");
    let Err(Unavailable::Overloaded { retry_after }) = line.push(put_in("a", "k", 1), None, now) else {
        panic!("it was let in")
    };
    assert!(retry_after > Duration::from_millis(200) && retry_after < Duration::from_millis(400));
    tickets.push(line.push(put_in("quiet", "k", 1), None, now).unwrap());
    assert!(names(&mut line).contains(&"quiet:k".to_owned()));
}

#[test]
fn a_line_that_stands_still_takes_in_little_more() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let mut tickets = vec![line.push(put_in("a", "k", 1), None, NOW).unwrap()];
    let later = NOW + Duration::from_millis(501);
    tickets.extend(std::iter::from_fn(|| line.push(put_in("a", "k", 1), None, later).ok()));
    assert_eq!(line.len(), 2_048);
}

#[test]
fn keep_alives_of_one_session_are_one_and_another_secret_is_another() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let _receivers: Vec<_> = [session(1, 1), session(1, 1), session(1, 2), session(2, 1)]
        .into_iter()
        .map(|session| line.push_keep_alive(session, NOW).unwrap())
        .collect();
    let batch = line.take(NOW);
    assert_eq!(
        batch
            .keep_alives
            .iter()
            .map(|waiting| waiting.callers.len())
            .collect::<Vec<_>>(),
        [2, 1, 1]
    );
}

#[test]
fn a_namespace_of_large_requests_has_its_turn_although_others_and_closes_always_wait() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let mut tickets = Vec::new();
    for key in ["1", "2"] {
        tickets.push(line.push(put_in("large", key, ENTRY_BYTES_MAX), None, NOW).unwrap());
    }
    let mut entries = Vec::new();
    for number in 0..6 {
        tickets.push(line.push(put_in("busy", &number.to_string(), 1), None, NOW).unwrap());
        tickets.push(line.push(close(number), None, NOW).unwrap());
        entries.push(names(&mut line));
    }
    let place = |name: &str| entries.iter().position(|entry| entry.iter().any(|taken| taken == name));
    assert!(place("large:1").is_some_and(|entry| entry <= 1), "{entries:?}");
    assert!(place("large:2").is_some_and(|entry| entry <= 4), "{entries:?}");
    assert!(place("busy:1").is_some_and(|entry| entry <= 4), "{entries:?}");
    while !line.is_empty() {
        entries.push(names(&mut line));
    }
    assert_eq!(entries.concat().len(), tickets.len(), "each is taken once");
}

#[test]
fn what_did_not_fit_begins_the_next_entry_and_can_still_be_given_up() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let _small = line.push(put_in("a", "small", 1), None, NOW).unwrap();
    let large = line.push(put_in("b", "large", ENTRY_BYTES_MAX), None, NOW).unwrap();
    assert_eq!(names(&mut line), ["a:small"]);
    assert_eq!((line.len(), line.is_empty()), (1, false));
    assert!(large.give_up());
    assert!(names(&mut line).is_empty());
    assert!(line.is_empty());
}

#[test]
fn what_did_not_fit_comes_behind_what_was_not_proposed() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let _tickets: Vec<_> = [("1", 1), ("2", ENTRY_BYTES_MAX), ("3", 1)]
        .iter()
        .map(|(key, len)| line.push(put_in("a", key, *len), None, NOW).unwrap())
        .collect();
    let batch = line.take(NOW);
    line.put_back(batch);
    assert_eq!(line.len(), 3);
    let entries = [names(&mut line), names(&mut line), names(&mut line)].concat();
    assert_eq!(entries, ["a:1", "a:2", "a:3"]);
}

#[test]
fn closes_have_their_share_of_an_entry_and_no_more_while_others_wait() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let closes = u64::try_from(2 * ENTRY_COMMANDS_MAX).unwrap();
    let mut tickets: Vec<_> = (0..closes)
        .map(|number| line.push(close(number), None, NOW).unwrap())
        .collect();
    tickets.push(line.push(put_in("a", "1", 1), None, NOW).unwrap());
    let entry = names(&mut line);
    assert_eq!(entry.len(), ENTRY_COMMANDS_MAX, "there was room for more closes");
    assert_eq!(
        entry.iter().position(|name| name == "a:1"),
        Some(ENTRY_CLOSES_FIRST_MAX)
    );
}

#[test]
fn keep_alives_are_served_first_come_first_served_whatever_their_numbers_are() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let high = line.push_keep_alive(session(u64::MAX, 1), NOW).unwrap();
    let low: Vec<_> = (0..u64::try_from(ENTRY_KEEP_ALIVES_MAX).unwrap())
        .map(|id| line.push_keep_alive(session(id, 1), NOW).unwrap())
        .collect();
    let ids = |line: &mut WaitingLine| {
        let batch = line.take(NOW);
        let ids: Vec<_> = batch.keep_alives.iter().map(|waiting| waiting.session.id.0).collect();
        (ids, batch)
    };
    let (first, batch) = ids(&mut line);
    assert_eq!(first[..3], [u64::MAX, 0, 1]);
    // One that asks again meanwhile joins the one that was put back, where that was.
    let again = line.push_keep_alive(session(1, 1), NOW).unwrap();
    line.put_back(batch);
    let (second, batch) = ids(&mut line);
    assert_eq!(first, second);
    assert_eq!(batch.keep_alives[2].callers.len(), 2);
    assert_eq!(ids(&mut line).0.len(), 1);
    assert!(line.is_empty());
    drop((high, low, again));
}

#[test]
fn what_has_waited_too_long_is_taken_to_be_failed_and_the_rest_stays_in_order() {
    let mut line = WaitingLine::new(QueueLimits::default());
    let mut old = line.push(put_in("a", "old", 1), None, NOW).unwrap();
    let later = NOW + Duration::from_secs(1);
    let _new: Vec<_> = ["1", "2"]
        .iter()
        .map(|key| line.push(put_in("a", key, 1), None, later).unwrap())
        .collect();
    line.take_older(later).fail(&Unavailable::NoLeader);
    assert_eq!(old.answer.try_recv().unwrap(), Err(Unavailable::NoLeader));
    assert_eq!(names(&mut line), ["a:1", "a:2"]);
}

#[test]
fn the_estimate_of_a_requests_bytes_is_never_too_low() {
    let long = "n".repeat(128);
    let cache = ObjectName {
        namespace: Namespace {
            tenant: long.clone(),
            name: long.clone(),
        },
        name: long.clone(),
    };
    let own = session(u64::MAX, u128::MAX);
    let origin = Origin::Session {
        session: own,
        seq: u64::MAX,
        acknowledged: Acknowledged {
            below: u64::MAX,
            also: vec![u64::MAX; 64],
        },
        fingerprint: Fingerprint(u128::MAX),
    };
    let append = Append {
        records: vec![Bytes::from(vec![1; 20_000]); 100],
        expected: Some(u64::MAX),
        token: Some(u64::MAX),
        message_id: Some(Bytes::from(vec![1; 255])),
    };
    let commands = [
        Command::Put {
            cache: cache.clone(),
            key: Bytes::from(vec![1; 4_096]),
            value: Bytes::from(vec![2; 10_000]),
            ttl: Some(Span(u64::MAX)),
            guard: Some(Guard::Value(Bytes::from(vec![3; 10_000]))),
            owner: Some(own),
        },
        Command::Delete {
            cache: cache.clone(),
            key: Bytes::new(),
            guard: Some(Guard::Version(u64::MAX)),
        },
        Command::OpenSession {
            nonce: Nonce(u128::MAX),
            secret: Secret(u128::MAX),
            ttl: Some(Span(u64::MAX)),
            label: "l".repeat(256),
            namespace: cache.namespace.clone(),
        },
        Command::CreateStream {
            name: cache.clone(),
            settings: StreamSettings {
                retention: Some(Span(u64::MAX)),
                retention_bytes: Some(u64::MAX),
                fence: FenceMode::Mandatory,
                dedup_window: Span(u64::MAX),
                replication: u32::MAX,
            },
        },
        Command::Append {
            stream: cache.clone(),
            append: append.clone(),
        },
        Command::Txn(Txn {
            guards: vec![
                TxnGuard::Key {
                    cache: cache.clone(),
                    key: Bytes::from(vec![1; 4_096]),
                    guard: Guard::Value(Bytes::from(vec![2; 10_000])),
                },
                TxnGuard::Counter {
                    cache: cache.clone(),
                    key: Bytes::new(),
                    min: Some(i64::MIN),
                    max: Some(i64::MAX),
                },
            ],
            then: vec![Operation::Put {
                cache: cache.clone(),
                key: Bytes::from(vec![1; 4_096]),
                value: Bytes::from(vec![2; 10_000]),
                ttl: Some(Span(u64::MAX)),
                owner: Some(own),
            }],
            otherwise: vec![Operation::Append {
                stream: cache.clone(),
                append,
            }],
        }),
        Command::CreateCache {
            name: cache,
            settings: CacheSettings { replication: u32::MAX },
        },
        Command::Acknowledge {
            session: own,
            acknowledged: Acknowledged {
                below: u64::MAX,
                also: vec![u64::MAX; 1_024],
            },
        },
    ];
    for command in commands {
        let request = Request {
            origin: origin.clone(),
            command,
        };
        let estimate = request_bytes(&request);
        let empty = Entry {
            stamp: Timestamp(0),
            keep_alives: vec![],
            requests: vec![],
        };
        let one = Entry {
            requests: vec![request],
            ..empty.clone()
        };
        let real = encode_entry(&one).len() - encode_entry(&empty).len();
        assert!(real <= estimate, "{real} bytes, estimated {estimate}");
    }
}
