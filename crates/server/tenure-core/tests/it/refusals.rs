//! The rulebook: for each command every way in which it can be refused or fail, in order of precedence.
//!
//! Each row is a request that meets what the row says **and**, as far as one request can, everything that the rows
//! below it say. So the order of the rows is proved too. None of them changes anything.

use std::collections::BTreeSet;

use bytes::Bytes;
use tenure_core::command::{Acknowledged, CacheSettings, Command, Guard, Request, SystemCommand};
use tenure_core::ids::{Incarnation, Nonce, ObjectName, Secret, SessionId, SessionRef};
use tenure_core::keyspace::SessionRow;
use tenure_core::limits::{
    OBJECTS_PER_NAMESPACE_MAX, ONE_SHOTS_MAX, SESSION_OWNED_MAX, SESSION_RESULTS_MAX, SESSIONS_MAX,
};
use tenure_core::machine::GroupKind;
use tenure_core::refusal::{EndReason, Failure, KeyFacts, Missing, Refusal};
use tenure_core::response::{CacheRecord, Response};
use tenure_core::table::{MemTable, Table as _};
use tenure_core::time::{Span, Timestamp};

use crate::lab::{
    Lab, acknowledging, anonymous, cache, create, delete, namespace, numbered, one_shot, open, put, put_with,
    secret_of, touch, with_wrong_secret,
};

mod objects;
mod system;

const HOUR: Span = Span::from_secs(3_600);
/// When the requests of the tables are made.
const NOW_MS: u64 = 10_000;

/// The rules of one command.
struct Rules {
    of: &'static str,
    /// Where its rows are tried, each on a state of its own.
    table: MemTable,
    kind: GroupKind,
    rows: Vec<Row>,
}

struct Row {
    when: &'static str,
    request: Request,
    gives: Response,
}

/// A home group in which there is something to stand in the way.
struct Scene {
    lab: Lab,
    /// Lives, owns the key `mine`.
    alive: SessionRef,
    /// Was closed.
    closed: SessionRef,
    /// Has no TTL.
    identity: SessionRef,
    /// Owns all that a session may own, under `k0` and on.
    sated: SessionRef,
}

#[test]
fn a_numbered_request_is_judged_before_its_command() {
    check(numbered_rules());
}

#[test]
fn a_single_call_is_judged_before_its_command() {
    check(single_call_rules());
}

#[test]
fn every_command_belongs_to_a_group_and_most_need_revisions() {
    check(wrong_group_rules());
    check(revision_rules());
}

#[test]
fn opening_a_session_follows_its_rules() {
    check(open_rules());
    check(open_limit_rules());
}

#[test]
fn closing_a_session_follows_its_rules() {
    check(close_rules());
}

#[test]
fn acknowledging_follows_its_rules() {
    check(acknowledge_rules());
}

#[test]
fn creating_a_cache_follows_its_rules() {
    check(create_rules());
}

#[test]
fn deleting_a_cache_follows_its_rules() {
    check(delete_cache_rules());
}

#[test]
fn putting_a_key_follows_its_rules() {
    check(put_rules());
}

#[test]
fn deleting_a_key_follows_its_rules() {
    check(delete_rules());
}

#[test]
fn touching_a_key_follows_its_rules() {
    check(touch_rules());
}

#[test]
fn adding_and_deleting_by_prefix_follow_their_rules() {
    check(objects::add_rules());
    check(objects::delete_prefix_rules());
}

#[test]
fn streams_follow_their_rules() {
    check(objects::create_stream_rules());
    check(objects::stream_rules());
    check(objects::append_rules());
}

#[test]
fn transactions_follow_their_rules() {
    check(objects::txn_form_rules());
    check(objects::txn_rules());
}

#[test]
fn system_commands_follow_their_rules() {
    check(system::founding_rules());
    check(system::unfounded_rules());
    check(system::system_limit_rules());
    check(system::node_rules());
    check(system::last_node_rules());
}

#[test]
fn every_failure_and_every_refusal_stands_in_some_table() {
    let all = [
        numbered_rules(),
        single_call_rules(),
        wrong_group_rules(),
        revision_rules(),
        open_rules(),
        close_rules(),
        acknowledge_rules(),
        create_rules(),
        delete_cache_rules(),
        put_rules(),
        delete_rules(),
        touch_rules(),
        objects::add_rules(),
        objects::create_stream_rules(),
        objects::append_rules(),
        system::founding_rules(),
        system::unfounded_rules(),
        system::system_limit_rules(),
        system::node_rules(),
    ];
    let seen: BTreeSet<&str> = all
        .iter()
        .flat_map(|rules| &rules.rows)
        .map(|row| name_of(&row.gives))
        .collect();
    assert_eq!(seen, NAMES.into_iter().collect());
}

fn numbered_rules() -> Rules {
    let mut scene = scene();
    let elsewhere = || delete_in("nowhere", "a");
    // A session that was closed with a full window, of which result 1 was acknowledged, and one that is open.
    let [full_and_closed, full] = [71, 72].map(|nonce| {
        let session = scene.lab.open(0, nonce, Some(HOUR));
        let requests = (1..=SESSION_RESULTS_MAX as u64 + 1).map(|seq| {
            let acknowledged = Acknowledged {
                below: 2,
                also: Vec::new(),
            };
            acknowledging(session, seq, acknowledged, delete("nothing", None))
        });
        scene.lab.run_many(Timestamp(0), requests.collect());
        session
    });
    let close = anonymous(close(full_and_closed));
    let revision = revision_after(&mut scene.lab, close);
    let bytes = match scene.lab.ask(0, numbered(full, 9_999, elsewhere())) {
        Response::Failed(Failure::WindowFull { bytes, .. }) => bytes,
        other => panic!("the window is not full: {other:?}"),
    };
    let nobody = nobody();
    Rules {
        of: "a numbered request",
        rows: vec![
            row(
                "nobody opened the session, or it is forgotten",
                numbered(nobody, 0, elsewhere()),
                Failure::SessionUnknown { session: nobody.id },
            ),
            row(
                "the secret is not the session's",
                numbered(with_wrong_secret(full_and_closed), 2, elsewhere()),
                Failure::WrongSecret {
                    session: full_and_closed.id,
                },
            ),
            row(
                "the number was used for another command",
                numbered(full_and_closed, 2, elsewhere()),
                Failure::RequestReused,
            ),
            row(
                "the result was acknowledged",
                numbered(full_and_closed, 1, elsewhere()),
                Failure::RequestForgotten { seq: 1 },
            ),
            row(
                "numbers begin with 1",
                numbered(full_and_closed, 0, elsewhere()),
                Failure::RequestForgotten { seq: 0 },
            ),
            row(
                "the session has ended",
                numbered(full_and_closed, 9_999, elsewhere()),
                Failure::SessionExpired {
                    session: full_and_closed.id,
                    reason: EndReason::Closed,
                    revision,
                },
            ),
            row(
                "the window of results is full",
                numbered(full, 9_999, elsewhere()),
                Failure::WindowFull {
                    seqs: SESSION_RESULTS_MAX as u64,
                    bytes,
                },
            ),
            row(
                "then the command itself",
                numbered(scene.alive, 1, elsewhere()),
                no_cache("nowhere"),
            ),
        ],
        ..Rules::at(scene.lab)
    }
}

fn single_call_rules() -> Rules {
    let mut lab = Lab::home_with_cache();
    let elsewhere = || delete_in("nowhere", "a");
    let requests = (0..ONE_SHOTS_MAX as u128).map(|id| one_shot(id, Timestamp(100_000_000), delete("nothing", None)));
    lab.run_many(Timestamp(0), requests.collect());
    Rules {
        of: "a single call without a session",
        rows: vec![
            row(
                "its not_after has passed",
                one_shot(7, Timestamp(NOW_MS * 1_000 - 1), elsewhere()),
                Failure::TooLate,
            ),
            row(
                "the id was used for another command",
                one_shot(7, Timestamp(1_000_000_000), elsewhere()),
                Failure::RequestReused,
            ),
            row(
                "its not_after lies too far ahead",
                one_shot(u128::MAX, Timestamp(130_000_001), elsewhere()),
                Failure::Invalid {
                    field: "not_after".to_owned(),
                    rule: "at most 120000 ms ahead of the group's time".to_owned(),
                },
            ),
            row(
                "too many are remembered",
                one_shot(u128::MAX, Timestamp(130_000_000), elsewhere()),
                Failure::Overloaded {
                    what: "remembered requests without a session".to_owned(),
                    retry_after: Span::from_secs(1),
                },
            ),
        ],
        ..Rules::at(lab)
    }
}

fn wrong_group_rules() -> Rules {
    let commands = [
        open(1, Some(HOUR)),
        close(nobody()),
        Command::Acknowledge {
            session: nobody(),
            acknowledged: Acknowledged::default(),
        },
        create("leases", 1),
        Command::DeleteCache { name: cache("leases") },
        put("a", "v"),
        delete("a", None),
        touch("a", HOUR, None),
        Command::TakeBlock { first: 1 },
    ];
    Rules {
        of: "any command of a home group, in the system group",
        rows: commands
            .into_iter()
            .chain(objects::commands())
            .map(|command| row("it belongs to another group", anonymous(command), Failure::WrongGroup))
            .collect(),
        ..Rules::at(Lab::empty(GroupKind::System))
    }
}

fn revision_rules() -> Rules {
    let commands = [
        open(1, Some(HOUR)),
        close(nobody()),
        create("leases", 1),
        Command::DeleteCache { name: cache("leases") },
        put("a", "v"),
        delete("a", None),
        touch("a", HOUR, None),
    ];
    let mut rows = vec![row(
        "a system command belongs to another group",
        anonymous(Command::System(SystemCommand::ReserveBlock)),
        Failure::WrongGroup,
    )];
    rows.extend(commands.into_iter().chain(objects::commands()).map(|command| {
        let failure = Failure::Overloaded {
            what: "revisions".to_owned(),
            retry_after: Span::from_millis(100),
        };
        row("no revisions are at hand", anonymous(command), failure)
    }));
    Rules {
        of: "any command, in a home group without revisions",
        rows,
        ..Rules::at(Lab::empty(GroupKind::Home))
    }
}

fn open_rules() -> Rules {
    let mut scene = scene();
    let revision = scene.closed_at();
    Rules {
        of: "opening a session",
        rows: vec![row(
            "the session of this nonce has ended and is not forgotten yet",
            anonymous(open(2, Some(HOUR))),
            Failure::SessionExpired {
                session: scene.closed.id,
                reason: EndReason::Closed,
                revision,
            },
        )],
        ..Rules::at(scene.lab)
    }
}

fn open_limit_rules() -> Rules {
    let mut lab = Lab::home();
    let row_of_a_session = bytes_of_row(&SessionRow {
        nonce: Nonce(1),
        secret: Secret(1),
        ttl: Some(HOUR),
        deadline: Timestamp(HOUR.0),
        label: String::new(),
        namespace: namespace("prod"),
        owned: 0,
        acknowledged_below: 1,
        acknowledged: Vec::new(),
        kept: 0,
        kept_bytes: 0,
        ended: None,
    });
    for number in 0..SESSIONS_MAX as u64 {
        let mut key = vec![b'S'];
        key.extend_from_slice(&number.to_be_bytes());
        lab.table.put(key, row_of_a_session.clone());
    }
    Rules {
        of: "opening a session in a full group",
        rows: vec![row(
            "there are as many sessions as a group may have",
            anonymous(open(1, Some(HOUR))),
            Failure::Limit {
                which: "sessions".to_owned(),
                value: SESSIONS_MAX as u64,
            },
        )],
        ..Rules::at(lab)
    }
}

fn close_rules() -> Rules {
    let mut scene = scene();
    let revision = scene.closed_at();
    Rules {
        of: "closing a session",
        rows: vec![
            row("nobody opened it", anonymous(close(nobody())), no_session()),
            row(
                "it has ended",
                anonymous(close(with_wrong_secret(scene.closed))),
                Failure::SessionExpired {
                    session: scene.closed.id,
                    reason: EndReason::Closed,
                    revision,
                },
            ),
            row(
                "the secret is not its own",
                anonymous(close(with_wrong_secret(scene.alive))),
                Failure::WrongSecret {
                    session: scene.alive.id,
                },
            ),
        ],
        ..Rules::at(scene.lab)
    }
}

fn acknowledge_rules() -> Rules {
    let scene = scene();
    let acknowledge = |session| {
        anonymous(Command::Acknowledge {
            session,
            acknowledged: Acknowledged {
                below: 9,
                also: Vec::new(),
            },
        })
    };
    Rules {
        of: "acknowledging results",
        rows: vec![
            row(
                "nobody opened the session, or it is forgotten",
                acknowledge(nobody()),
                Failure::SessionUnknown { session: nobody().id },
            ),
            row(
                "the secret is not the session's",
                acknowledge(with_wrong_secret(scene.alive)),
                Failure::WrongSecret {
                    session: scene.alive.id,
                },
            ),
        ],
        ..Rules::at(scene.lab)
    }
}

fn create_rules() -> Rules {
    let mut lab = Lab::home_with_cache();
    let more = (1..OBJECTS_PER_NAMESPACE_MAX).map(|number| anonymous(create(&format!("c{number}"), 1)));
    lab.run_many(Timestamp(0), more.collect());
    Rules {
        of: "creating a cache",
        rows: vec![
            row(
                "it exists with other settings",
                anonymous(create("leases", 3)),
                Refusal::ExistsOtherwise(CacheRecord {
                    name: cache("leases"),
                    settings: CacheSettings { replication: 1 },
                    incarnation: Incarnation(1),
                }),
            ),
            row(
                "its namespace has as many as it may have",
                anonymous(create("new", 3)),
                Failure::Limit {
                    which: "caches and streams of a namespace".to_owned(),
                    value: OBJECTS_PER_NAMESPACE_MAX as u64,
                },
            ),
        ],
        ..Rules::at(lab)
    }
}

fn delete_cache_rules() -> Rules {
    Rules {
        of: "deleting a cache",
        rows: vec![row(
            "it does not exist",
            anonymous(Command::DeleteCache { name: cache("nowhere") }),
            no_cache("nowhere"),
        )],
        ..Rules::at(scene().lab)
    }
}

fn put_rules() -> Rules {
    let mut scene = scene();
    let revision = scene.closed_at();
    let owned_by = |owner| anonymous(put_with("new", "v", None, Some(Guard::Absent), Some(owner)));
    Rules {
        of: "putting a key",
        rows: vec![
            row(
                "the cache does not exist",
                anonymous(Command::Put {
                    cache: cache("nowhere"),
                    key: Bytes::from_static(b"mine"),
                    value: Bytes::new(),
                    ttl: None,
                    guard: Some(Guard::Absent),
                    owner: Some(nobody()),
                }),
                no_cache("nowhere"),
            ),
            row(
                "the guard does not hold",
                anonymous(put_with("mine", "v", None, Some(Guard::Absent), Some(nobody()))),
                condition_failed_by_mine(&scene),
            ),
            row(
                "the guard does not hold, and there is no key",
                anonymous(put_with("new", "v", None, Some(Guard::Present), Some(nobody()))),
                Refusal::ConditionFailed(None),
            ),
            row("nobody opened the owner", owned_by(nobody()), no_session()),
            row(
                "the owner has ended",
                owned_by(with_wrong_secret(scene.closed)),
                Failure::SessionExpired {
                    session: scene.closed.id,
                    reason: EndReason::Closed,
                    revision,
                },
            ),
            row(
                "the secret is not the owner's",
                owned_by(with_wrong_secret(scene.identity)),
                Failure::WrongSecret {
                    session: scene.identity.id,
                },
            ),
            row(
                "the owner has no TTL",
                owned_by(scene.identity),
                Failure::Invalid {
                    field: "owner".to_owned(),
                    rule: "a session without a TTL can own nothing".to_owned(),
                },
            ),
            row(
                "the owner has all that it may have",
                owned_by(scene.sated),
                Failure::Limit {
                    which: "what a session may own".to_owned(),
                    value: SESSION_OWNED_MAX as u64,
                },
            ),
        ],
        ..Rules::at(scene.lab)
    }
}

fn delete_rules() -> Rules {
    let scene = scene();
    Rules {
        of: "deleting a key",
        rows: vec![
            row(
                "the cache does not exist",
                anonymous(delete_in("nowhere", "mine")),
                no_cache("nowhere"),
            ),
            row(
                "the guard does not hold",
                anonymous(delete("mine", Some(Guard::Version(99)))),
                condition_failed_by_mine(&scene),
            ),
            row(
                "the guard does not hold, and there is no key",
                anonymous(delete("new", Some(Guard::Version(99)))),
                Refusal::ConditionFailed(None),
            ),
        ],
        ..Rules::at(scene.lab)
    }
}

fn touch_rules() -> Rules {
    let scene = scene();
    Rules {
        of: "touching a key",
        rows: vec![
            row(
                "the cache does not exist",
                anonymous(Command::Touch {
                    cache: cache("nowhere"),
                    key: Bytes::from_static(b"mine"),
                    ttl: HOUR,
                    guard: Some(Guard::Absent),
                }),
                no_cache("nowhere"),
            ),
            row(
                "the guard does not hold",
                anonymous(touch("mine", HOUR, Some(Guard::Absent))),
                condition_failed_by_mine(&scene),
            ),
            row(
                "the guard does not hold, and there is no key",
                anonymous(touch("new", HOUR, Some(Guard::Present))),
                Refusal::ConditionFailed(None),
            ),
            row(
                "there is no key",
                anonymous(touch("new", HOUR, None)),
                Failure::NotFound {
                    what: Missing::Key(Bytes::from_static(b"new")),
                },
            ),
        ],
        ..Rules::at(scene.lab)
    }
}

/// Tries every row on a state of its own, and that it changes nothing which anybody could see.
fn check(rules: Rules) {
    for row in rules.rows {
        let mut lab = Lab::over(rules.kind, rules.table.clone());
        lab.checks_memory = false;
        let revision = lab.machine.revision();
        let applied = lab.run(NOW_MS, vec![row.request]);
        let what = format!("{}, when {}", rules.of, row.when);
        let [answer] = applied.answers.as_slice() else {
            panic!("{what}: one request has one answer");
        };
        assert_eq!(answer.response, row.gives, "{what}");
        assert!(!answer.repeated, "{what}: it is not a repeat");
        assert_eq!(applied.effects, [], "{what}: nothing changes");
        assert_eq!(applied.revision, revision, "{what}: no revision is consumed");
    }
}

impl Rules {
    /// Rules without rows, to be tried on the state of this machine.
    fn at(lab: Lab) -> Rules {
        Rules {
            of: "",
            table: lab.table,
            kind: lab.kind,
            rows: Vec::new(),
        }
    }
}

impl Scene {
    /// Closes the session that is to be closed, and returns the revision of its end.
    fn closed_at(&mut self) -> u64 {
        let close = anonymous(close(self.closed));
        revision_after(&mut self.lab, close)
    }
}

fn scene() -> Scene {
    let mut lab = Lab::home_with_cache();
    let alive = lab.open(0, 1, Some(HOUR));
    let closed = lab.open(0, 2, Some(HOUR));
    let identity = lab.open(0, 3, None);
    let sated = lab.open(0, 4, Some(HOUR));
    lab.ask(0, anonymous(put_with("mine", "v", None, None, Some(alive))));
    let keys =
        (0..SESSION_OWNED_MAX).map(|number| anonymous(put_with(&format!("k{number}"), "v", None, None, Some(sated))));
    lab.run_many(Timestamp(0), keys.collect());
    Scene {
        lab,
        alive,
        closed,
        identity,
        sated,
    }
}

fn condition_failed_by_mine(scene: &Scene) -> Refusal {
    Refusal::ConditionFailed(Some(KeyFacts {
        version: 6,
        created: 6,
        holder: Some(scene.alive.id),
        remaining: Some(Span(HOUR.0 - NOW_MS * 1_000)),
        value: Some(Bytes::from_static(b"v")),
        value_len: 1,
    }))
}

fn revision_after(lab: &mut Lab, request: Request) -> u64 {
    lab.run(0, vec![request]).revision.0
}

fn row(when: &'static str, request: Request, gives: impl Verdict) -> Row {
    Row {
        when,
        request,
        gives: gives.into_response(),
    }
}

/// A refusal or a failure.
trait Verdict {
    fn into_response(self) -> Response;
}

impl Verdict for Refusal {
    fn into_response(self) -> Response {
        Response::Refused(self)
    }
}

impl Verdict for Failure {
    fn into_response(self) -> Response {
        Response::Failed(self)
    }
}

fn nobody() -> SessionRef {
    SessionRef {
        id: SessionId(999_999_999),
        secret: secret_of(999),
    }
}

fn no_session() -> Failure {
    Failure::NotFound {
        what: Missing::Session(nobody().id),
    }
}

fn no_cache(name: &str) -> Failure {
    Failure::NotFound {
        what: Missing::Cache(cache(name)),
    }
}

fn close(session: SessionRef) -> Command {
    Command::CloseSession {
        session: session.id,
        secret: Some(session.secret),
    }
}

fn delete_in(name: &str, key: &str) -> Command {
    Command::Delete {
        cache: ObjectName {
            namespace: namespace("prod"),
            name: name.to_owned(),
        },
        key: Bytes::copy_from_slice(key.as_bytes()),
        guard: Some(Guard::Present),
    }
}

fn bytes_of_row(row: &impl serde::Serialize) -> Bytes {
    Bytes::from(postcard::to_extend(row, vec![1]).expect("plain data always encodes"))
}

/// Every name that [`name_of`] can give.
const NAMES: [&str; 18] = [
    "condition_failed",
    "exists_otherwise",
    "invalid",
    "limit",
    "not_found",
    "overloaded",
    "request_forgotten",
    "request_reused",
    "session_expired",
    "session_unknown",
    "stale_token",
    "stream_exists_otherwise",
    "too_late",
    "window_full",
    "wrong_group",
    "wrong_secret",
    "wrong_tail",
    "wrong_type",
];

/// The name of a refusal or failure. A new one is missing here when this is compiled, and then in [`NAMES`].
fn name_of(response: &Response) -> &'static str {
    match response {
        Response::Done(done) => panic!("no refusal: {done:?}"),
        Response::Refused(Refusal::ConditionFailed(_)) => "condition_failed",
        Response::Refused(Refusal::ExistsOtherwise(_)) => "exists_otherwise",
        Response::Refused(Refusal::WrongTail { .. }) => "wrong_tail",
        Response::Refused(Refusal::StaleToken { .. }) => "stale_token",
        Response::Refused(Refusal::StreamExistsOtherwise(_)) => "stream_exists_otherwise",
        Response::Failed(failure) => match failure {
            Failure::SessionExpired { .. } => "session_expired",
            Failure::SessionUnknown { .. } => "session_unknown",
            Failure::WrongSecret { .. } => "wrong_secret",
            Failure::RequestForgotten { .. } => "request_forgotten",
            Failure::TooLate => "too_late",
            Failure::RequestReused => "request_reused",
            Failure::WindowFull { .. } => "window_full",
            Failure::NotFound { .. } => "not_found",
            Failure::Invalid { .. } => "invalid",
            Failure::Limit { .. } => "limit",
            Failure::Overloaded { .. } => "overloaded",
            Failure::WrongGroup => "wrong_group",
            Failure::WrongType { .. } => "wrong_type",
        },
    }
}
