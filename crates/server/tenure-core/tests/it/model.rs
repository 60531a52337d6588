//! The machine against the naive rules: equal answers, effects and reads for random scripts, and what must hold
//! after every entry.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::LazyLock;

use bytes::Bytes;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;
use tenure_core::command::Entry;
use tenure_core::effect::{Change, ChangeKind, Effect};
use tenure_core::ids::{Incarnation, ObjectName, SessionId};
use tenure_core::machine::{Applied, GroupKind};
use tenure_core::query::{Found, Query, ReadFrom, SessionView};
use tenure_core::response::{Done, Response};
use tenure_core::table::MemTable;

use crate::lab::{Lab, cache, namespace};
use crate::naive::{Naive, Told};
use crate::scripts::{CACHES, KEYS, STREAMS, Step, Writer, great_sessions, prelude, script};

/// How often the two run the same random script.
const CASES: u32 = 400;
/// The same with the great sessions, which take longer.
const GREAT_CASES: u32 = 40;

/// Machine and rules side by side, with what every entry must respect.
struct Pair {
    lab: Lab,
    naive: Naive,
    writer: Writer,
    watch: Watch,
}

/// Somebody who sees only answers and effects.
#[derive(Clone, Default)]
struct Watch {
    revision: u64,
    names: BTreeMap<Incarnation, ObjectName>,
    tails: BTreeMap<Incarnation, u64>,
    /// The highest token that each name ever had.
    tokens: BTreeMap<(ObjectName, Bytes), u64>,
    /// Every key, from the change feed alone.
    told: Told,
}

/// A state in which some sessions own as much as a session may.
static GREAT: LazyLock<(MemTable, Naive, Watch)> = LazyLock::new(|| {
    let mut pair = Pair::new();
    pair.lab.checks_memory = false;
    great_sessions(&mut |entry| pair.apply(entry));
    (pair.lab.table, pair.naive, pair.watch)
});

proptest! {
    #![proptest_config(ProptestConfig { cases: CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_machine_does_what_the_naive_model_does(steps in script(60, false)) {
        let mut pair = Pair::new();
        for step in &steps {
            pair.step(step);
            pair.check_reads();
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: GREAT_CASES, ..ProptestConfig::default() })]

    #[test]
    fn a_machine_does_what_the_naive_model_does_when_ends_are_held_up(steps in script(40, true)) {
        let (table, naive, watch) = GREAT.clone();
        let mut pair = Pair {
            lab: Lab::over(GroupKind::Home, table),
            naive,
            watch,
            ..Pair::new()
        };
        pair.lab.checks_memory = false;
        for step in &steps {
            pair.step(step);
        }
        pair.lab.check_memory();
        pair.check_reads();
    }
}

/// A test that never meets a verdict does not prove it.
#[test]
fn random_scripts_meet_everything_that_can_happen_to_them() {
    let mut met = BTreeSet::new();
    let mut runner = TestRunner::deterministic();
    for _ in 0..300 {
        let steps = script(60, false)
            .new_tree(&mut runner)
            .expect("a script is made")
            .current();
        let mut pair = Pair::new();
        pair.lab.checks_memory = false;
        for step in &steps {
            let applied = pair.step(step);
            met.extend(applied.answers.iter().map(|answer| first_words(&answer.response)));
            met.extend(
                applied
                    .answers
                    .iter()
                    .filter(|answer| answer.repeated)
                    .map(|_| "a repeat".to_owned()),
            );
            met.extend(applied.kept_alive.iter().map(first_words));
            met.extend(applied.effects.iter().map(first_words));
        }
    }
    let expected = [
        "Appended",
        "Changed(Change",
        "Done(Acknowledged)",
        "Done(Added",
        "Done(Appended(Appended",
        "Done(BlockTaken",
        "Done(CacheCreated",
        "Done(CacheDeleted",
        "Done(Deleted",
        "Done(PrefixDeleted",
        "Done(Put",
        "Done(SessionClosed",
        "Done(SessionOpened",
        "Done(StreamCreated",
        "Done(StreamDeleted",
        "Done(StreamTrimmed",
        "Done(Touched",
        "Done(Txn",
        "Ended",
        "Failed(Invalid",
        "Failed(NotFound",
        "Failed(RequestForgotten",
        "Failed(RequestReused)",
        "Failed(SessionExpired",
        "Failed(SessionUnknown",
        "Failed(TooLate)",
        "Failed(WrongGroup)",
        "Failed(WrongSecret",
        "Failed(WrongType",
        "ObjectDeleted",
        "Refused(ConditionFailed(None))",
        "Refused(ConditionFailed(Some(KeyFacts",
        "Refused(ExistsOtherwise(CacheRecord",
        "Refused(StaleToken",
        "Refused(StreamExistsOtherwise(StreamRecord",
        "Refused(WrongTail",
        "Renewed",
        "SessionEnded",
        "Unknown",
        "a repeat",
    ];
    assert_eq!(met.iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

impl Pair {
    fn new() -> Pair {
        let mut pair = Pair {
            lab: Lab::empty(GroupKind::Home),
            naive: Naive::default(),
            writer: Writer::default(),
            watch: Watch::default(),
        };
        for entry in prelude() {
            pair.apply(&entry);
        }
        pair
    }

    fn step(&mut self, step: &Step) -> Applied {
        let entry = self.writer.entry(step, &self.lab.machine);
        let applied = self.apply(&entry);
        self.writer.observe(&entry, &applied);
        applied
    }

    fn apply(&mut self, entry: &Entry) -> Applied {
        let applied = self.lab.apply(entry);
        let expected = self.naive.apply(entry);
        assert_eq!(applied, expected, "after {entry:?}");
        self.watch.see(&applied);
        applied
    }

    fn check_reads(&self) {
        assert_eq!(self.watch.told, self.naive.state(), "the change feed tells every key");
        for name in CACHES {
            let name = cache(name);
            let list = Query::List {
                cache: name.clone(),
                prefix: Bytes::new(),
                after: None,
                limit: usize::MAX,
            };
            let found = self.lab.query(&list);
            assert_eq!(found, self.naive.list(&name));
            let Found::Keys { keys, .. } = found else { continue };
            for key in KEYS {
                let one = Query::Get {
                    cache: name.clone(),
                    key: Bytes::from_static(key.as_bytes()),
                };
                let listed = keys.iter().find(|view| view.key == key.as_bytes());
                assert_eq!(self.lab.query(&one), Found::Key(listed.cloned()));
            }
            for key in keys {
                if let Some(owner) = key.owner {
                    assert_eq!(self.session(owner).ended, None, "an ended session owns nothing");
                }
            }
        }
        self.check_streams();
        self.check_sessions();
    }

    fn check_streams(&self) {
        assert_eq!(self.lab.query(&Query::Streams(namespace("prod"))), self.naive.streams());
        for name in STREAMS.map(cache) {
            let found = self.lab.query(&Query::Stream(name.clone()));
            assert_eq!(found, self.naive.stream(&name));
            let all = Query::Records {
                stream: name.clone(),
                from: ReadFrom::Earliest,
                limit: usize::MAX,
            };
            assert_eq!(self.lab.query(&all), self.naive.records(&name));
        }
    }

    fn check_sessions(&self) {
        let mut expected = self.naive.sessions();
        let mut ids: Vec<SessionId> = expected.iter().map(|session| session.id).collect();
        ids.push(SessionId(u64::MAX));
        let page = Query::Sessions {
            namespace: namespace("prod"),
            after: None,
            limit: usize::MAX,
        };
        let Found::Sessions { mut sessions, more } = self.lab.query(&page) else {
            panic!("sessions can be listed");
        };
        assert!(!more);
        for (session, expected) in sessions.iter_mut().zip(&mut expected) {
            let mut one = self.session(session.id);
            let owned = one.owned.len() as u64;
            one.owned.clear();
            assert_eq!(one, *session, "a page shows what each session shows");
            if self.naive.is_sweeping() {
                session.owned_count = expected.owned_count;
            } else {
                assert_eq!(owned, session.owned_count.min(1_000));
            }
        }
        assert_eq!(sessions, expected);
        let nobody = self.lab.query(&Query::Session(SessionId(u64::MAX)));
        assert_eq!(nobody, Found::Session(None));
    }

    fn session(&self, id: SessionId) -> SessionView {
        match self.lab.query(&Query::Session(id)) {
            Found::Session(Some(session)) => session,
            other => panic!("the session is known: {other:?}"),
        }
    }
}

impl Watch {
    fn see(&mut self, applied: &Applied) {
        for answer in &applied.answers {
            if let Response::Done(Done::CacheCreated { record, .. }) = &answer.response {
                self.names.insert(record.incarnation, record.name.clone());
            }
        }
        for effect in &applied.effects {
            let revision = match effect {
                Effect::Changed(change) => change.revision,
                Effect::SessionEnded { revision, .. }
                | Effect::ObjectDeleted { revision, .. }
                | Effect::Appended { revision, .. } => *revision,
            };
            assert!(revision >= self.revision, "revisions never go back");
            self.revision = revision;
            match effect {
                Effect::Changed(change) => self.see_change(change),
                Effect::ObjectDeleted { incarnation, .. } => {
                    self.told.retain(|(life, _), _| life != incarnation);
                    self.tails.remove(incarnation);
                }
                Effect::Appended { incarnation, tail, .. } => {
                    let before = self.tails.insert(*incarnation, *tail);
                    assert!(before.is_none_or(|before| before < *tail), "a tail only grows");
                }
                Effect::SessionEnded { session, .. } => {
                    let owns = self.told.values().any(|(_, _, _, owner)| *owner == Some(*session));
                    assert!(!owns, "what a session owns is told to be gone before its end is");
                }
            }
        }
        assert!(applied.revision.0 >= self.revision, "revisions never go back");
        self.revision = applied.revision.0;
    }

    fn see_change(&mut self, change: &Change) {
        let place = (change.incarnation, change.key.clone());
        let before = self.told.get(&place).map(|(_, version, ..)| *version);
        assert_eq!(before, change.previous_version, "the feed has no gap");
        match &change.kind {
            ChangeKind::Put {
                value, created, owner, ..
            } => {
                let name = (self.names[&change.incarnation].clone(), change.key.clone());
                let highest = self.tokens.entry(name).or_default();
                if before.is_none() {
                    assert!(created > highest, "a new tenure has a higher token");
                    assert_eq!(*created, change.revision);
                    *highest = *created;
                }
                assert_eq!(created, highest, "the token stays while the tenure lasts");
                let told = (value.clone(), change.revision, *created, *owner);
                self.told.insert(place, told);
            }
            ChangeKind::Removed { .. } => {
                self.told.remove(&place);
            }
        }
    }
}

/// The names that a value begins with, without what its fields hold.
fn first_words(value: &impl Debug) -> String {
    let text = format!("{value:?}");
    let end = text.find(" {").unwrap_or(text.len());
    text[..end].to_owned()
}
