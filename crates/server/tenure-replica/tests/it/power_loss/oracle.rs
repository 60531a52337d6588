//! What must be found after a crash: the machine over the entries of the log alone, beside what anybody was told.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;

use tenure_core::codec;
use tenure_core::command::{Entry, Request};
use tenure_core::effect::{Change, Effect};
use tenure_core::ids::{GroupId, SessionRef};
use tenure_core::machine::{GroupKind, Machine};
use tenure_core::response::{Answer, Done, KeptAlive, Response, SystemDone};
use tenure_core::table::{MemTable, Overlay, Table, TableRead, Visit, Writes};
use tenure_core::time::Timestamp;

/// Behind every key of a table.
const KEYS_END: &[u8] = &[0xff; 16];
/// The bytes of an entry in the log: form, kind, term and, for what the machine applies, stamp and entry.
const KIND_AT: usize = 1;
const KIND_NORMAL: u8 = 1;
const ENTRY_AT: usize = 18;

/// What a crash must never do.
#[derive(Debug)]
#[expect(dead_code, reason = "the fields are for whoever reads of a failed test")]
pub(crate) enum Loss {
    /// The log or the state could not be opened, or a group did not serve.
    NotServed { group: Option<GroupId>, why: String },
    /// An entry that was never written, or others than were.
    UnknownEntry { group: GroupId, index: u64 },
    /// Somebody saw a state that had applied more than is left.
    EntriesLost {
        group: GroupId,
        last: Option<u64>,
        seen: u64,
    },
    /// The state has applied what the log does not have.
    StateAhead {
        group: GroupId,
        mark: u64,
        last: Option<u64>,
    },
    /// The log begins behind what the state needs.
    Gap {
        group: GroupId,
        mark: Option<u64>,
        first: u64,
    },
    /// The rows are not those of the entries.
    WrongRows {
        group: GroupId,
        index: Option<u64>,
        when: &'static str,
    },
    /// What memory holds is not what the rows say.
    WrongMemory { group: GroupId, index: Option<u64> },
    /// An answer that was given is not the log's.
    AnswerLost {
        group: GroupId,
        request: Box<Request>,
        answer: Box<Answer>,
    },
    /// A keep-alive that was answered is not in the log.
    KeepAliveLost { group: GroupId, kept: KeptAlive },
    /// A change or an end that was told is not the log's.
    EffectLost { group: GroupId, effect: Box<Effect> },
    /// Something that was never asked is in the log.
    NeverAsked { group: GroupId, request: Box<Request> },
    /// A number that is handed out once was handed out twice.
    HandedOutTwice { group: GroupId, number: u64 },
    /// Revision or time are below what somebody was told.
    WentBack { group: GroupId, what: &'static str },
    /// A request that was answered was run again, or answered otherwise.
    NotRepeated {
        group: GroupId,
        request: Box<Request>,
        answer: Box<Answer>,
    },
    /// A query says something else than the machine over the entries.
    WrongAnswer { group: GroupId, what: String },
    /// The feed has a gap, a change twice, or another one.
    WrongFeed { group: GroupId, what: String },
}

/// The machine over the entries of a log.
pub(crate) struct Oracle {
    pub(crate) table: MemTable,
    pub(crate) machine: Machine,
    /// The last entry that it has applied.
    pub(crate) index: Option<u64>,
    /// Every request with its answer, in order.
    pub(crate) answers: Vec<(Request, Answer)>,
    pub(crate) kept: Vec<(SessionRef, KeptAlive, Timestamp)>,
    /// Every effect with the index of its entry, in order.
    pub(crate) effects: Vec<(u64, Effect)>,
}

impl Oracle {
    /// Over rows as they are after this entry.
    pub(crate) fn over(kind: GroupKind, table: MemTable, index: Option<u64>) -> Oracle {
        Oracle {
            machine: Machine::open(kind, &table),
            table,
            index,
            answers: Vec::new(),
            kept: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Applies the entries behind the last applied one, up to this one.
    pub(crate) fn apply_to(&mut self, entries: &BTreeMap<u64, Bytes>, last: Option<u64>) {
        let Some(last) = last else { return };
        for index in self.index.map_or(0, |index| index + 1)..=last {
            self.apply(index, &entries[&index]);
        }
    }

    /// Applies the next entry, and says what it wrote and changed.
    pub(crate) fn apply(&mut self, index: u64, bytes: &Bytes) -> (Writes, Vec<Change>) {
        self.index = Some(index);
        let Some(entry) = entry_of(bytes) else {
            return Default::default();
        };
        let mut overlay = Overlay::new(&self.table);
        let applied = self.machine.apply(&mut overlay, &entry);
        let writes = overlay.into_writes();
        self.table.commit(writes.clone());
        self.answers.extend(entry.requests.into_iter().zip(applied.answers));
        let kept = entry.keep_alives.into_iter().zip(applied.kept_alive);
        self.kept
            .extend(kept.map(|(session, kept)| (session, kept, applied.time)));
        let changes = applied.effects.iter().filter_map(changed).cloned().collect();
        self.effects
            .extend(applied.effects.into_iter().map(|effect| (index, effect)));
        (writes, changes)
    }

    pub(crate) fn memory_matches(&self) -> bool {
        self.machine.memory_matches(&self.table)
    }

    /// The changes of all entries, in order.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Change> {
        self.effects.iter().filter_map(|(_, effect)| changed(effect))
    }

    /// Says which number was handed out twice, if one was.
    fn handed_out_twice(&self) -> Option<u64> {
        let mut seen = BTreeSet::new();
        let first_answers = self.answers.iter().filter(|(_, answer)| !answer.repeated);
        let numbers = first_answers.filter_map(|(_, answer)| match &answer.response {
            Response::Done(Done::Put { version, .. }) => Some(*version),
            Response::Done(Done::Deleted {
                removed: Some(removed), ..
            }) => Some(removed.revision),
            Response::Done(Done::System(SystemDone::BlockReserved { first })) => Some(*first),
            _ => None,
        });
        numbers.into_iter().find(|number| !seen.insert(*number))
    }
}

/// What a group's log has held, and what was asked and told of it, each with the number of changes that its disk had
/// recorded at that moment.
#[derive(Clone)]
pub(crate) struct History {
    pub(crate) group: GroupId,
    pub(crate) kind: GroupKind,
    /// Every entry that was ever appended, by index.
    pub(crate) entries: BTreeMap<u64, Bytes>,
    pub(crate) asked: Vec<Asked>,
    pub(crate) kept: Vec<(usize, (SessionRef, KeptAlive, Timestamp))>,
    pub(crate) told: Vec<Told>,
    /// Up to which entry somebody saw the state.
    pub(crate) seen: Vec<(usize, u64)>,
}

/// A request, and its answer if it has got one.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) events: usize,
    pub(crate) request: Request,
    pub(crate) answered: Option<(usize, Answer)>,
}

/// The effects that one process told, from its first entry on.
#[derive(Clone)]
pub(crate) struct Told {
    /// The entry that was applied when it began.
    pub(crate) after: Option<u64>,
    pub(crate) effects: Vec<(usize, Effect)>,
}

impl History {
    pub(crate) fn new(group: GroupId, kind: GroupKind) -> History {
        History {
            group,
            kind,
            entries: BTreeMap::new(),
            asked: Vec::new(),
            kept: Vec::new(),
            told: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// What is known if everything ends after so many changes. For the next disk all of it lies before the first.
    pub(crate) fn until(&self, events: usize) -> History {
        let mut until = self.clone();
        until.asked.retain(|asked| asked.events <= events);
        for asked in &mut until.asked {
            asked.events = 0;
            asked.answered = asked.answered.take().filter(|(at, _)| *at <= events);
            asked.answered.iter_mut().for_each(|(at, _)| *at = 0);
        }
        until.kept.retain(|(at, _)| *at <= events);
        until.kept.iter_mut().for_each(|(at, _)| *at = 0);
        for told in &mut until.told {
            told.effects.retain(|(at, _)| *at <= events);
            told.effects.iter_mut().for_each(|(at, _)| *at = 0);
        }
        until.seen.retain(|(at, _)| *at <= events);
        until.seen.iter_mut().for_each(|(at, _)| *at = 0);
        until
    }

    /// Checks what a log shows against what was ever appended and seen, and forgets what did not survive. Returns the
    /// last entry.
    pub(crate) fn check_log(&mut self, shown: &[(u64, Bytes)], purged: Option<u64>) -> Result<Option<u64>, Loss> {
        let group = self.group;
        for (index, bytes) in shown {
            if self.entries.get(index) != Some(bytes) {
                return Err(Loss::UnknownEntry { group, index: *index });
            }
        }
        let last = shown.last().map(|(index, _)| *index).or(purged);
        let seen = self.seen.iter().map(|(_, index)| *index).max();
        if let Some(seen) = seen.filter(|seen| last.is_none_or(|last| last < *seen)) {
            return Err(Loss::EntriesLost { group, last, seen });
        }
        self.entries.retain(|index, _| last.is_some_and(|last| *index <= last));
        Ok(last)
    }

    /// Checks everything that was told against the machine over the entries that are left.
    pub(crate) fn check_told(&self, oracle: &Oracle) -> Result<(), Loss> {
        let group = self.group;
        for asked in &self.asked {
            let Some((_, answer)) = &asked.answered else { continue };
            let found = oracle
                .answers
                .iter()
                .any(|(request, found)| found == answer && *request == asked.request);
            if !found {
                return Err(Loss::AnswerLost {
                    group,
                    request: Box::new(asked.request.clone()),
                    answer: Box::new(answer.clone()),
                });
            }
        }
        if let Some((_, (_, kept, _))) = self.kept.iter().find(|(_, kept)| !oracle.kept.contains(kept)) {
            return Err(Loss::KeepAliveLost { group, kept: *kept });
        }
        for told in &self.told {
            let found = oracle
                .effects
                .iter()
                .filter(|(index, _)| told.after.is_none_or(|after| *index > after))
                .map(|(_, effect)| Some(effect))
                .chain(std::iter::repeat(None));
            let lost = told
                .effects
                .iter()
                .zip(found)
                .find(|((_, told), found)| Some(told) != *found);
            if let Some(((_, effect), _)) = lost {
                return Err(Loss::EffectLost {
                    group,
                    effect: Box::new(effect.clone()),
                });
            }
        }
        self.check_asked(oracle)?;
        match oracle.handed_out_twice() {
            None => Ok(()),
            Some(number) => Err(Loss::HandedOutTwice { group, number }),
        }
    }

    /// Each request in the log was asked, and as often.
    fn check_asked(&self, oracle: &Oracle) -> Result<(), Loss> {
        let mut asked: Vec<&Request> = self.asked.iter().map(|asked| &asked.request).collect();
        for (request, _) in &oracle.answers {
            match asked.iter().position(|asked| *asked == request) {
                Some(place) => asked.remove(place),
                None => {
                    return Err(Loss::NeverAsked {
                        group: self.group,
                        request: Box::new(request.clone()),
                    });
                }
            };
        }
        Ok(())
    }
}

fn changed(effect: &Effect) -> Option<&Change> {
    match effect {
        Effect::Changed(change) => Some(change),
        Effect::SessionEnded { .. } | Effect::ObjectDeleted { .. } | Effect::Appended { .. } => None,
    }
}

/// The rows of a table.
pub(crate) fn rows_of(table: &dyn TableRead) -> MemTable {
    let mut rows = MemTable::new();
    table.scan(&[], KEYS_END, &mut |key, value| {
        rows.put(key.to_vec(), value.clone());
        Visit::Continue(())
    });
    rows
}

/// The entry that the machine applies, if it is one.
fn entry_of(bytes: &Bytes) -> Option<Entry> {
    (bytes[KIND_AT] == KIND_NORMAL)
        .then(|| codec::decode_entry(&bytes[ENTRY_AT..]).expect("an entry of the log decodes"))
}
