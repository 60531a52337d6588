//! Bytes of every form: `tests/vectors/v1` must decode to the values below and encode to the same bytes again.
//!
//! A vector is never changed: bytes that were written once must be read for ever. `WRITE_VECTORS=1` writes those
//! that are missing, for a form or a command that is new. A file is a line of comment and lines of hex; a file of
//! rows has the key and the value of one row on each line.

use std::fmt::Debug;
use std::fs;
use std::hash::Hasher;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;
use serde::Serialize;
use serde::de::DeserializeOwned;
use siphasher::sip128::{Hasher128, SipHasher13};
use tenure_core::codec::{CodecError, decode_change, decode_entry, encode_change, encode_entry, fingerprint};
use tenure_core::command::{
    Acknowledged, CacheSettings, Command, Entry, Guard, NodeRecord, Origin, Request, SystemCommand,
};
use tenure_core::effect::{Change, ChangeKind};
use tenure_core::ids::{
    Fingerprint, GroupId, Incarnation, NodeId, Nonce, ObjectName, OneShotId, Secret, SessionId, SessionRef,
};
use tenure_core::keyspace::{ClusterRow, KeyRow, OneShotRow, ResultRow, SessionRow};
use tenure_core::limits::BLOCK_REVISIONS;
use tenure_core::machine::GroupKind;
use tenure_core::refusal::EndReason;
use tenure_core::response::{CacheRecord, Done, Response};
use tenure_core::restore::NewCluster;
use tenure_core::revision::Revisions;
use tenure_core::snapshot;
use tenure_core::table::{MemTable, TableRead};
use tenure_core::time::{Span, Timestamp};

use crate::lab::{Lab, anonymous, cache, export, import, namespace, restored, rows, secret_of};

mod answers;
mod streams;

const SECOND: Span = Span::from_secs(1);

#[test]
fn entries_of_every_command_keep_their_bytes() {
    for (name, entry) in entries() {
        let bytes = vector(&format!("entry_{name}"), &encode_entry(&entry));
        assert_eq!(decode_entry(&bytes), Ok(entry.clone()), "{name}");
        assert_eq!(encode_entry(&entry), bytes, "{name}");
    }
}

#[test]
fn every_command_has_a_vector() {
    let entries = entries();
    for (name, entry) in &entries {
        let named = entry.requests.iter().any(|request| name_of(&request.command) == *name);
        assert!(
            named || ["origins_and_keep_alives", "system_nodes", "system_blocks"].contains(name),
            "{name} is called after its command"
        );
    }
    let names: Vec<&str> = entries.iter().map(|(name, _)| *name).collect();
    for command in COMMANDS {
        assert!(names.contains(&command), "{command} has no vector");
    }
}

#[test]
fn changes_of_every_kind_keep_their_bytes() {
    for (name, change) in changes() {
        let bytes = vector(&format!("change_{name}"), &encode_change(&change));
        assert_eq!(decode_change(&bytes), Ok(change.clone()), "{name}");
        assert_eq!(encode_change(&change), bytes, "{name}");
    }
}

#[test]
fn rows_of_every_kind_keep_their_bytes() {
    for (group, lab) in groups() {
        let table = rows(&lab.table);
        let mut kinds: Vec<u8> = table.iter().map(|(key, _)| key[0]).collect();
        kinds.dedup();
        for kind in kinds {
            let of_kind: Vec<_> = table.iter().filter(|(key, _)| key[0] == kind).cloned().collect();
            let name = format!("rows_{group}_{}", name_of_kind(kind));
            assert_eq!(row_vector(&name, &of_kind), of_kind, "{name}");
        }
    }
}

#[test]
fn every_kind_of_row_is_on_the_page_of_the_keyspace() {
    let page = fs::read_to_string(root().join("src/keyspace.rs")).expect("the page can be read");
    for (_, lab) in groups() {
        for (key, _) in rows(&lab.table) {
            let kind = char::from(key[0]);
            assert!(page.contains(&format!("//! | `{kind}` |")), "{kind} is not on the page");
        }
    }
}

#[test]
fn every_kind_of_row_has_a_rule_in_a_restore() {
    for (name, lab) in groups() {
        let new = NewCluster {
            cluster: 9,
            folder: 9,
            floor: 1 << 50,
        };
        let (table, outcome) = restored(lab.kind, &lab.table, new).expect(name);
        Lab::over(lab.kind, table).check_memory();
        assert!(outcome.rows > 0, "{name}");
    }
}

#[test]
fn rows_of_a_home_group_hold_what_their_page_says() {
    let table = home_group().table;
    let session = SessionId(4);
    is_row(&table, b"T", &Timestamp(1_000_000));
    let revisions: Revisions = decode_row(&table.get(b"R").expect("blocks were taken"));
    assert_eq!((revisions.last(), revisions.left()), (12, 2 * BLOCK_REVISIONS - 12));
    let record = CacheRecord {
        name: cache("leases"),
        settings: CacheSettings { replication: 3 },
        incarnation: Incarnation(1),
    };
    is_row(&table, b"Cacme\0prod\0leases\0", &record);
    is_row(&table, &numbered(b'I', 1), &cache("leases"));
    assert_eq!(table.get(&numbered(b'W', 2)), Some(Bytes::new()));
    let owned = KeyRow {
        value: Bytes::from_static(b"v2"),
        version: 7,
        created: 6,
        deadline: Some(Timestamp(9_000_000)),
        owner: Some(session),
    };
    is_row(&table, &[&numbered(b'K', 1)[..], b"owned"].concat(), &owned);
    is_row(&table, &numbered(b'S', 4), &session_row());
    is_row(&table, &[&b"N"[..], &7u128.to_be_bytes()].concat(), &session);
    assert_eq!(
        table.get(&[&b"Lacme\0prod\0"[..], &4u64.to_be_bytes()].concat()),
        Some(Bytes::new())
    );
    let owned_key = [&numbered(b'O', 4)[..], &1u64.to_be_bytes(), b"owned"].concat();
    assert_eq!(table.get(&owned_key), Some(Bytes::new()));
    let result = ResultRow {
        fingerprint: Fingerprint(77),
        response: Response::Done(Done::Put { version: 8, created: 8 }),
    };
    is_row(&table, &[&numbered(b'Q', 4)[..], &2u64.to_be_bytes()].concat(), &result);
    let one_shot = OneShotRow {
        not_after: Timestamp(60_000_000),
        fingerprint: Fingerprint(78),
        response: Response::Done(Done::Put { version: 9, created: 9 }),
    };
    is_row(&table, &[&b"X"[..], &5u128.to_be_bytes()].concat(), &one_shot);
}

#[test]
fn rows_of_the_system_group_hold_what_their_page_says() {
    let table = system_group().table;
    let cluster = ClusterRow {
        cluster: 99,
        home_groups: 2,
        floor: 1 + BLOCK_REVISIONS,
        next_node: 2,
        namespaces: 1,
    };
    is_row(&table, b"c", &cluster);
    let node = NodeRecord {
        id: NodeId(1),
        folder: 7,
        address: "127.0.0.1:7400".to_owned(),
    };
    is_row(&table, &numbered(b'n', 1), &node);
    is_row(&table, &[&b"f"[..], &7u128.to_be_bytes()].concat(), &NodeId(1));
    is_row(&table, b"sacme\0prod\0", &GroupId(1));
}

#[test]
fn a_snapshot_keeps_its_bytes() {
    for (name, lab) in [("home", home_group()), ("streams", streams::group())] {
        let bytes = vector(&format!("snapshot_{name}"), &lab.snapshot());
        let table = import(&bytes);
        assert_eq!(table, lab.table);
        assert_eq!(export(&table), bytes);
        let reopened = Lab::over(GroupKind::Home, table);
        reopened.check_memory();
        assert_eq!(reopened.machine.revision(), lab.machine.revision());
    }
}

#[test]
fn a_snapshot_with_one_bit_changed_is_refused() {
    let bytes = home_group().snapshot();
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        let mut table = MemTable::new();
        assert!(snapshot::import(&damaged, &mut table).is_err(), "bit {bit}");
        assert!(table.is_empty(), "nothing is written before the checksum is compared");
    }
}

#[test]
fn a_snapshot_that_ends_early_or_late_is_refused() {
    let bytes = home_group().snapshot();
    for len in 0..bytes.len() {
        assert!(
            snapshot::import(&bytes[..len], &mut MemTable::new()).is_err(),
            "{len} bytes"
        );
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(snapshot::import(&longer, &mut MemTable::new()).is_err());
}

#[test]
fn a_snapshot_comes_in_chunks_and_ends_with_the_first_error() {
    let mut lab = Lab::home_with_cache();
    let value = "v".repeat(100_000);
    for key in 0..10 {
        lab.run(
            0,
            vec![anonymous(put_in("leases", &key.to_string(), &value, None, None))],
        );
    }
    let mut chunks = Vec::new();
    let result: Result<(), ()> = snapshot::export(&lab.table, &mut |chunk| {
        chunks.push(chunk.to_vec());
        Ok(())
    });
    assert_eq!(result, Ok(()));
    assert!(chunks.len() > 2, "a snapshot is never in memory as a whole");
    assert!(chunks.iter().all(|chunk| chunk.len() < 400_000));
    assert_eq!(import(&chunks.concat()), lab.table);
    for failing in 0..chunks.len() {
        let mut taken = 0;
        let result = snapshot::export(&lab.table, &mut |_| {
            taken += 1;
            if taken > failing { Err("disk full") } else { Ok(()) }
        });
        assert_eq!((result, taken), (Err("disk full"), failing + 1));
    }
}

#[test]
fn fingerprints_keep_their_bytes() {
    // Nodes of two releases may see two attempts of one request, and must not take it for another command.
    for (name, entry) in entries() {
        let fingerprints = entry.requests.iter().map(|request| fingerprint(&request.command));
        let now: Vec<u8> = fingerprints
            .flat_map(|fingerprint| fingerprint.0.to_be_bytes())
            .collect();
        assert_eq!(vector(&format!("fingerprints_{name}"), &now), now, "{name}");
    }
}

#[test]
fn bytes_of_another_form_are_refused_by_name() {
    let mut bytes = encode_entry(&entries()[0].1).to_vec();
    bytes[0] = 9;
    assert_eq!(decode_entry(&bytes), Err(CodecError::UnknownForm(9)));
    assert_eq!(decode_change(&bytes), Err(CodecError::UnknownForm(9)));
    assert!(matches!(decode_entry(&[]), Err(CodecError::Malformed(_))));
    assert!(matches!(decode_change(&[]), Err(CodecError::Malformed(_))));
}

/// What may happen to bytes on their way.
#[derive(Clone, Debug)]
enum Damage {
    Flip(Index, u8),
    Set(Index, u8),
    Cut(Index),
    Insert(Index, Vec<u8>),
    Repeat(Index, Index),
}

fn damage() -> impl Strategy<Value = Damage> {
    prop_oneof![
        (any::<Index>(), 0u8..8).prop_map(|(at, bit)| Damage::Flip(at, bit)),
        (
            any::<Index>(),
            prop_oneof![Just(0u8), Just(127), Just(128), Just(255), any::<u8>()]
        )
            .prop_map(|(at, byte)| Damage::Set(at, byte)),
        any::<Index>().prop_map(Damage::Cut),
        (any::<Index>(), vec(any::<u8>(), 1..12)).prop_map(|(at, bytes)| Damage::Insert(at, bytes)),
        (any::<Index>(), any::<Index>()).prop_map(|(from, to)| Damage::Repeat(from, to)),
    ]
}

fn damaged(mut bytes: Vec<u8>, damages: &[Damage]) -> Vec<u8> {
    for damage in damages {
        if bytes.is_empty() {
            return bytes;
        }
        let len = bytes.len();
        match damage {
            Damage::Flip(at, bit) => bytes[at.index(len)] ^= 1 << bit,
            Damage::Set(at, byte) => bytes[at.index(len)] = *byte,
            Damage::Cut(at) => bytes.truncate(at.index(len)),
            Damage::Insert(at, more) => {
                let at = at.index(len);
                bytes.splice(at..at, more.iter().copied());
            }
            Damage::Repeat(from, to) => {
                let (from, to) = (from.index(len), to.index(len));
                let part = bytes[from.min(to)..from.max(to)].to_vec();
                bytes.splice(to..to, part);
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_to_an_entry_makes_the_decoder_panic(which in any::<Index>(), damages in vec(damage(), 1..6)) {
        let entries = entries();
        let bytes = damaged(encode_entry(&which.get(&entries).1).to_vec(), &damages);
        if let Ok(entry) = decode_entry(&bytes) {
            prop_assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
        }
    }

    #[test]
    fn no_damage_to_a_change_makes_the_decoder_panic(which in any::<Index>(), damages in vec(damage(), 1..6)) {
        let changes = changes();
        let bytes = damaged(encode_change(&which.get(&changes).1).to_vec(), &damages);
        if let Ok(change) = decode_change(&bytes) {
            prop_assert_eq!(decode_change(&encode_change(&change)), Ok(change));
        }
    }

    #[test]
    fn no_bytes_at_all_make_a_decoder_panic(bytes in vec(any::<u8>(), 0..200)) {
        let with_form = [&[1], &bytes[..]].concat();
        let _ = (decode_entry(&bytes), decode_entry(&with_form));
        let _ = (decode_change(&bytes), decode_change(&with_form));
        prop_assert!(snapshot::import(&bytes, &mut MemTable::new()).is_err());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, ..ProptestConfig::default() })]

    #[test]
    fn no_damage_to_a_snapshot_makes_the_import_panic(damages in vec(damage(), 1..6)) {
        let whole = home_group().snapshot();
        let bytes = damaged(whole.clone(), &damages);
        let imported = snapshot::import(&bytes, &mut MemTable::new());
        prop_assert!(imported.is_err() || bytes == whole);
        // The same with a checksum that matches, so that what lies behind the comparison is reached.
        let body = damaged(whole[..whole.len() - 16].to_vec(), &damages);
        let mut hasher = SipHasher13::new();
        hasher.write(&body);
        let forged = [&body[..], &hasher.finish128().as_u128().to_le_bytes()].concat();
        let _ = snapshot::import(&forged, &mut MemTable::new());
    }
}

/// One entry for each command, called after it.
fn entries() -> Vec<(&'static str, Entry)> {
    let guards = [
        None,
        Some(Guard::Absent),
        Some(Guard::Present),
        Some(Guard::Version(300)),
        Some(Guard::Value(Bytes::from_static(b"old"))),
        Some(Guard::Created(299)),
    ];
    let puts = guards.clone().map(|guard| Command::Put {
        cache: cache("leases"),
        key: Bytes::from_static(b"jobs/42"),
        value: Bytes::from_static(b"\0\xffvalue"),
        ttl: guard.is_some().then_some(Span(1_500_000)),
        owner: guard.is_none().then_some(session()),
        guard,
    });
    let deletes = guards.map(|guard| Command::Delete {
        cache: cache("leases"),
        key: Bytes::from_static(b"jobs/42"),
        guard,
    });
    let mut entries = vec![
        ("open_session", of(vec![opening(None), opening(Some(SECOND))])),
        (
            "close_session",
            of(vec![
                Command::CloseSession {
                    session: session().id,
                    secret: Some(session().secret),
                },
                Command::CloseSession {
                    session: session().id,
                    secret: None,
                },
            ]),
        ),
        (
            "acknowledge",
            of(vec![Command::Acknowledge {
                session: session(),
                acknowledged: acknowledged(),
            }]),
        ),
        (
            "create_cache",
            of(vec![Command::CreateCache {
                name: cache("leases"),
                settings: CacheSettings { replication: 3 },
            }]),
        ),
        ("delete_cache", of(vec![Command::DeleteCache { name: cache("leases") }])),
        ("put", of(puts.into())),
        ("delete", of(deletes.into())),
        (
            "touch",
            of(vec![Command::Touch {
                cache: cache("leases"),
                key: Bytes::from_static(b"jobs/42"),
                ttl: SECOND,
                guard: Some(Guard::Created(299)),
            }]),
        ),
        (
            "take_block",
            of(vec![Command::TakeBlock {
                first: 1 + BLOCK_REVISIONS,
            }]),
        ),
        ("system", of(system_commands())),
        ("system_nodes", of(node_commands())),
        ("system_blocks", of(block_commands())),
        ("origins_and_keep_alives", origins_and_keep_alives()),
    ];
    entries.extend(streams::entries());
    entries
}

fn origins_and_keep_alives() -> Entry {
    let origins = [
        Origin::Anonymous,
        Origin::OneShot {
            id: OneShotId(u128::MAX),
            not_after: Timestamp(60_000_000),
            fingerprint: Fingerprint(1 << 100),
        },
        Origin::Session {
            session: session(),
            seq: 12,
            acknowledged: acknowledged(),
            fingerprint: Fingerprint(3),
        },
    ];
    let command = Command::DeleteCache { name: cache("leases") };
    Entry {
        stamp: Timestamp(u64::MAX),
        keep_alives: vec![session(), session()],
        requests: origins
            .map(|origin| Request {
                origin,
                command: command.clone(),
            })
            .into(),
    }
}

fn system_commands() -> Vec<Command> {
    [
        SystemCommand::Found {
            cluster: 99,
            home_groups: 2,
        },
        SystemCommand::AddNode {
            folder: 7,
            address: "127.0.0.1:7400".to_owned(),
        },
        SystemCommand::AssignNamespace {
            namespace: namespace("prod"),
        },
        SystemCommand::ReserveBlock,
    ]
    .map(Command::System)
    .into()
}

/// Commands of the system group that came later.
fn node_commands() -> Vec<Command> {
    let node = NodeId(1);
    [
        SystemCommand::RemoveNode { node, of: 300 },
        SystemCommand::DrainNode { node, draining: false },
        SystemCommand::DrainNode { node, draining: true },
        SystemCommand::ChooseLeader {
            group: GroupId(2),
            node,
        },
    ]
    .map(Command::System)
    .into()
}

/// Of a group that was recovered.
fn block_commands() -> Vec<Command> {
    let at_least = 1 << 40;
    vec![Command::System(SystemCommand::ReserveBlockFrom { at_least })]
}

fn changes() -> Vec<(&'static str, Change)> {
    let change = |kind| Change {
        revision: 300,
        incarnation: Incarnation(2),
        key: Bytes::from_static(b"jobs/42"),
        kind,
        previous_version: None,
    };
    let put = |owner, ttl| ChangeKind::Put {
        value: Bytes::from_static(b"\0\xffvalue"),
        created: 299,
        owner,
        ttl,
    };
    let removed = |reason| Change {
        previous_version: Some(299),
        ..change(ChangeKind::Removed { reason })
    };
    vec![
        ("put", change(put(None, None))),
        ("put_owned", change(put(Some(SessionId(4)), Some(SECOND)))),
        ("removed_delete", removed(EndReason::Delete)),
        ("removed_expired", removed(EndReason::Expired)),
        ("removed_session", removed(EndReason::Session)),
        ("removed_closed", removed(EndReason::Closed)),
        ("removed_forced", removed(EndReason::Forced)),
        ("removed_object_deleted", removed(EndReason::ObjectDeleted)),
    ]
}

/// A group for every kind of row.
fn groups() -> [(&'static str, Lab); 5] {
    let mut nodes = system_group();
    nodes.run(2_000, node_commands().into_iter().map(anonymous).collect());
    [
        ("home", home_group()),
        ("system", system_group()),
        ("nodes", nodes),
        ("streams", streams::group()),
        ("restored", restored_group()),
    ]
}

/// What a restore makes of the group with streams: the only one with a gap.
fn restored_group() -> Lab {
    let new = NewCluster {
        cluster: 2,
        folder: 2,
        floor: 1 << 40,
    };
    let made = restored(GroupKind::Home, &streams::group().table, new);
    Lab::over(GroupKind::Home, made.expect("the group can be restored").0)
}

/// A home group with a row of every kind but those of streams, which came later.
fn home_group() -> Lab {
    let mut lab = Lab::home();
    let requests = vec![
        anonymous(Command::TakeBlock {
            first: 1 + BLOCK_REVISIONS,
        }),
        anonymous(Command::CreateCache {
            name: cache("leases"),
            settings: CacheSettings { replication: 3 },
        }),
        anonymous(Command::CreateCache {
            name: cache("gone"),
            settings: CacheSettings { replication: 1 },
        }),
        anonymous(put_in("gone", "swept", "v", None, None)),
        anonymous(opening(Some(Span::from_secs(10)))),
        anonymous(Command::OpenSession {
            nonce: Nonce(8),
            secret: Secret(8),
            ttl: None,
            label: String::new(),
            namespace: namespace("test"),
        }),
    ];
    lab.run(0, requests);
    let owner = SessionRef {
        id: SessionId(4),
        secret: secret_of(7),
    };
    let numbered = |seq, below, fingerprint, command| Request {
        origin: Origin::Session {
            session: owner,
            seq,
            acknowledged: Acknowledged {
                below,
                also: vec![5, 6],
            },
            fingerprint: Fingerprint(fingerprint),
        },
        command,
    };
    let one_shot = Request {
        origin: Origin::OneShot {
            id: OneShotId(5),
            not_after: Timestamp(60_000_000),
            fingerprint: Fingerprint(78),
        },
        command: put_in("leases", "other", "v", None, None),
    };
    let requests = vec![
        anonymous(put_in("leases", "owned", "v1", None, None)),
        numbered(
            1,
            0,
            76,
            put_in("leases", "owned", "v2", Some(Span::from_secs(8)), Some(owner)),
        ),
        numbered(2, 2, 77, put_in("leases", "plain", "v", None, None)),
        one_shot,
        anonymous(Command::CloseSession {
            session: SessionId(5),
            secret: None,
        }),
        anonymous(put_in("leases", "", "", None, None)),
        anonymous(Command::DeleteCache { name: cache("gone") }),
    ];
    lab.run(1_000, requests);
    lab
}

fn session_row() -> SessionRow {
    SessionRow {
        nonce: Nonce(7),
        secret: secret_of(7),
        ttl: Some(Span::from_secs(10)),
        deadline: Timestamp(10_000_000),
        label: "worker on host 3".to_owned(),
        namespace: namespace("prod"),
        owned: 1,
        acknowledged_below: 2,
        acknowledged: vec![(5, 6)],
        kept: 1,
        kept_bytes: 6,
        ended: None,
    }
}

/// The system group with a row of every kind.
fn system_group() -> Lab {
    let mut lab = Lab::empty(GroupKind::System);
    lab.run(1_000, system_commands().into_iter().map(anonymous).collect());
    lab
}

fn session() -> SessionRef {
    SessionRef {
        id: SessionId(4),
        secret: Secret(1 << 127),
    }
}

fn acknowledged() -> Acknowledged {
    Acknowledged {
        below: 10,
        also: vec![11, 300],
    }
}

fn opening(ttl: Option<Span>) -> Command {
    Command::OpenSession {
        nonce: Nonce(7),
        secret: secret_of(7),
        ttl,
        label: "worker on host 3".to_owned(),
        namespace: namespace("prod"),
    }
}

fn put_in(name: &str, key: &str, value: &str, ttl: Option<Span>, owner: Option<SessionRef>) -> Command {
    let cache: ObjectName = cache(name);
    Command::Put {
        cache,
        key: Bytes::copy_from_slice(key.as_bytes()),
        value: Bytes::copy_from_slice(value.as_bytes()),
        ttl,
        guard: None,
        owner,
    }
}

fn of(commands: Vec<Command>) -> Entry {
    Entry {
        stamp: Timestamp(1_234_567),
        keep_alives: Vec::new(),
        requests: commands.into_iter().map(anonymous).collect(),
    }
}

/// Every name that [`name_of`] can give.
const COMMANDS: [&str; 17] = [
    "open_session",
    "close_session",
    "acknowledge",
    "create_cache",
    "delete_cache",
    "put",
    "delete",
    "touch",
    "take_block",
    "system",
    "add",
    "delete_prefix",
    "txn",
    "create_stream",
    "delete_stream",
    "append",
    "trim_stream",
];

/// The name of a command. A new one is missing here when this is compiled, and then in [`COMMANDS`].
fn name_of(command: &Command) -> &'static str {
    match command {
        Command::OpenSession { .. } => "open_session",
        Command::CloseSession { .. } => "close_session",
        Command::Acknowledge { .. } => "acknowledge",
        Command::CreateCache { .. } => "create_cache",
        Command::DeleteCache { .. } => "delete_cache",
        Command::Put { .. } => "put",
        Command::Delete { .. } => "delete",
        Command::Touch { .. } => "touch",
        Command::TakeBlock { .. } => "take_block",
        Command::System(_) => "system",
        Command::Add { .. } => "add",
        Command::DeletePrefix { .. } => "delete_prefix",
        Command::Txn(_) => "txn",
        Command::CreateStream { .. } => "create_stream",
        Command::DeleteStream { .. } => "delete_stream",
        Command::Append { .. } => "append",
        Command::TrimStream { .. } => "trim_stream",
    }
}

fn name_of_kind(kind: u8) -> &'static str {
    match kind {
        b'T' => "time",
        b'R' => "revisions",
        b'C' => "caches",
        b'I' => "lives",
        b'W' => "sweeps",
        b'K' => "keys",
        b'S' => "sessions",
        b'N' => "nonces",
        b'L' => "sessions_of_a_namespace",
        b'O' => "owned",
        b'Q' => "results",
        b'X' => "single_calls",
        b'A' => "streams",
        b'H' => "heads",
        b'E' => "records",
        b'J' => "gaps",
        b'G' => "message_ids",
        b'U' => "ends_of_message_ids",
        b'c' => "cluster",
        b'n' => "nodes",
        b'f' => "folders",
        b's' => "homes",
        b'd' => "drained",
        b'l' => "chosen_leaders",
        other => panic!("a kind without a vector: {}", char::from(other)),
    }
}

fn numbered(kind: u8, number: u64) -> Vec<u8> {
    [&[kind][..], &number.to_be_bytes()].concat()
}

/// Whether the row has this value, and the value these bytes.
fn is_row<T: Serialize + DeserializeOwned + PartialEq + Debug>(table: &MemTable, key: &[u8], expected: &T) {
    let name = key.escape_ascii().to_string();
    let bytes = table.get(key).unwrap_or_else(|| panic!("there is no row {name}"));
    assert_eq!(decode_row::<T>(&bytes), *expected, "{name}");
    let again = postcard::to_extend(expected, vec![1]).expect("plain data always encodes");
    assert_eq!(again, bytes, "{name}");
}

fn decode_row<T: DeserializeOwned>(bytes: &[u8]) -> T {
    assert_eq!(bytes[0], 1, "the form of the row");
    postcard::from_bytes(&bytes[1..]).expect("the row decodes")
}

/// The bytes of a vector; written if it is missing and may be.
fn vector(name: &str, now: &[u8]) -> Vec<u8> {
    let path = vectors().join(format!("{name}.hex"));
    if may_write(&path) {
        let lines: Vec<String> = hex(now)
            .as_bytes()
            .chunks(96)
            .map(|part| String::from_utf8_lossy(part).into())
            .collect();
        let text = format!("# {}\n{}\n", name.replace('_', " "), lines.join("\n"));
        fs::write(&path, text).expect("the vector can be written");
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let hex: String = text.lines().filter(|line| !line.starts_with('#')).collect();
    unhex(&hex)
}

fn row_vector(name: &str, now: &[(Vec<u8>, Bytes)]) -> Vec<(Vec<u8>, Bytes)> {
    let path = vectors().join(format!("{name}.hex"));
    if may_write(&path) {
        let lines: Vec<String> = now
            .iter()
            .map(|(key, value)| format!("{} {}", hex(key), hex(value)).trim_end().to_owned())
            .collect();
        let text = format!(
            "# {}: key and value of each\n{}\n",
            name.replace('_', " "),
            lines.join("\n")
        );
        fs::write(&path, text).expect("the vector can be written");
    }
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| {
            let (key, value) = line.split_once(' ').unwrap_or((line, ""));
            (unhex(key), Bytes::from(unhex(value)))
        })
        .collect()
}

fn may_write(path: &Path) -> bool {
    std::env::var_os("WRITE_VECTORS").is_some() && !path.exists()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Vec<u8> {
    text.as_bytes()
        .chunks(2)
        .map(|pair| {
            let pair = std::str::from_utf8(pair).expect("hex is ASCII");
            u8::from_str_radix(pair, 16).expect("two hex digits make a byte")
        })
        .collect()
}

fn vectors() -> PathBuf {
    root().join("tests/vectors/v1")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}
