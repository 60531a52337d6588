//! Applying one entry: the machine over the state, then the answers, then the effects.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
#[cfg(test)]
use std::sync::OnceLock;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use openraft::EntryPayload;
use openraft::storage::ApplyResponder;

use tenure_core::codec;
use tenure_core::command::{Command, Entry};
use tenure_core::effect::{Change, ChangeKind, Effect};
use tenure_core::ids::Revision;
use tenure_core::machine::{Applied, Counts, GroupKind, Machine};
use tenure_core::query::{Found, Query};
use tenure_core::refusal::EndReason;
use tenure_core::table::{MemTable, Overlay, Writes};
use tenure_core::time::Timestamp;
use tenure_storage::state::{AppliedMark, GroupState, Image, StateError, Stops};

use crate::error::OpenError;
use crate::raft_types::{self, AppliedState, EntryAnswers, LogEntry, LogId, SnapshotMeta, TypeConfig};
use crate::shared::{Progress, Shared, Told};

/// An entry of the log, and whom to answer if it was proposed here.
pub(crate) type Answerable = (LogEntry, Option<ApplyResponder<TypeConfig>>);

/// Looks at an entry before it is applied.
#[cfg(test)]
pub(crate) type Look = Box<dyn Fn(&Entry) + Send + Sync>;

/// One group's machine over its state. One thread applies; any number read.
pub(crate) struct Applier {
    pub(crate) shared: Arc<Shared>,
    pub(crate) state: GroupState,
    kind: GroupKind,
    /// Gone once an entry could not be applied: half of it may be in there.
    machine: RwLock<Option<Machine>>,
    applied: Mutex<AppliedState>,
    /// Looks at each entry before it is applied.
    #[cfg(test)]
    pub(crate) before_apply: OnceLock<Look>,
}

/// Why an entry was not applied. The group stops.
#[derive(Debug)]
struct Stop {
    why: String,
    told: Told,
}

impl Applier {
    /// Over a state as it was left.
    ///
    /// # Errors
    /// [`OpenError::Damaged`] if its mark is not one.
    pub(crate) fn open(
        shared: Arc<Shared>,
        kind: GroupKind,
        state: GroupState,
        machine: Machine,
    ) -> Result<Applier, OpenError> {
        let damaged = |what: String| OpenError::Damaged {
            group: shared.group,
            what,
        };
        let applied = match state.applied() {
            None => AppliedState::default(),
            Some(mark) => raft_types::decode_applied(&mark.bytes).map_err(|error| damaged(error.to_string()))?,
        };
        shared
            .progress
            .send_modify(|progress| observe(progress, &machine, applied.last));
        Ok(Applier {
            shared,
            state,
            kind,
            machine: RwLock::new(Some(machine)),
            applied: Mutex::new(applied),
            #[cfg(test)]
            before_apply: OnceLock::new(),
        })
    }

    /// What is applied, and the membership as of then.
    pub(crate) fn applied(&self) -> AppliedState {
        self.applied.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Applies entries in order and answers those that were proposed here. Stops the group at the first that
    /// cannot be applied and says why; it and what follows is then not applied.
    pub(crate) fn apply_all(&self, entries: Vec<Answerable>) -> Result<(), String> {
        for (entry, responder) in entries {
            if let Some(why) = self.shared.stopped() {
                return Err(why.to_string());
            }
            match self.apply_one(entry) {
                Ok((answers, effects)) => self.tell(answers, responder, &effects),
                Err(stop) => {
                    // Before the responder is dropped, which answers: whoever hears of it finds a stopped group.
                    self.shared.stop(&stop.why, stop.told);
                    return Err(stop.why);
                }
            }
        }
        Ok(())
    }

    fn tell(&self, answers: EntryAnswers, responder: Option<ApplyResponder<TypeConfig>>, effects: &[Effect]) {
        #[cfg(feature = "deterministic")]
        if crate::planted::is_silent(self.shared.node, &answers.answers, responder.is_some()) {
            crate::planted::silence(responder);
            return;
        }
        if let Some(responder) = responder {
            responder.send(answers);
        }
        if effects.is_empty() {
            return;
        }
        let (revision, time) = {
            let progress = self.shared.progress.borrow();
            (progress.revision, progress.time)
        };
        self.shared.sink.applied(self.shared.group, effects, revision, time);
    }

    fn apply_one(&self, entry: LogEntry) -> Result<(EntryAnswers, Vec<Effect>), Stop> {
        let id = entry.log_id;
        match entry.payload {
            EntryPayload::Normal(data) => {
                let entry = codec::decode_entry(&data.bytes)
                    .map_err(|error| stop(format!("entry {} cannot be read: {error}", id.index)))?;
                if entry.stamp != data.stamp {
                    return Err(stop(format!(
                        "entry {} is stamped {} in the log and {} in itself",
                        id.index, data.stamp.0, entry.stamp.0
                    )));
                }
                let applied = self.apply_to_machine(id, &entry)?;
                self.shared.expected.applied(&entry.requests, &applied.answers);
                let answers = EntryAnswers {
                    kept_alive: applied.kept_alive,
                    answers: applied.answers,
                    time: applied.time,
                };
                Ok((answers, applied.effects))
            }
            EntryPayload::Blank => {
                self.note(id, None)?;
                Ok(Default::default())
            }
            EntryPayload::Membership(membership) => {
                self.note(id, Some(raft_types::StoredMembership::new(Some(id), membership)))?;
                Ok(Default::default())
            }
        }
    }

    fn apply_to_machine(&self, id: LogId, entry: &Entry) -> Result<Applied, Stop> {
        let mut kept = self.machine.write().unwrap_or_else(PoisonError::into_inner);
        let machine = kept
            .as_mut()
            .ok_or_else(|| stop(format!("entry {} follows one that could not be applied", id.index)))?;
        let applied = self.run_machine(machine, id, entry);
        if applied.is_err() {
            // Under the lock, so that nobody reads it who comes before the group is told to stop.
            *kept = None;
        }
        applied
    }

    fn run_machine(&self, machine: &mut Machine, id: LogId, entry: &Entry) -> Result<Applied, Stop> {
        #[cfg(test)]
        let look = || {
            if let Some(look) = self.before_apply.get() {
                look(entry);
            }
        };
        #[cfg(not(test))]
        let look = || {};
        // The state's lock is released by the unwinding, and the machine is gone after a panic.
        let outcome = catch_unwind(AssertUnwindSafe(|| {
            self.state.read(|table| {
                look();
                let mut overlay = Overlay::new(table);
                let applied = machine.apply(&mut overlay, entry);
                (applied, overlay.into_writes())
            })
        }));
        let (applied, writes) = match outcome {
            Ok(read) => read.map_err(|error| failed(id, &error))?,
            Err(panic) => {
                let (index, kinds) = (id.index, kinds(entry));
                return Err(stop(format!(
                    "entry {index} ({kinds}) cannot be applied: {}",
                    message(&*panic)
                )));
            }
        };
        let changes = applied.effects.iter().filter_map(changed).collect();
        self.commit(id, writes, changes, applied.time, None)?;
        let due = self.shared.progress.borrow().next_deadline;
        self.shared
            .progress
            .send_modify(|progress| observe(progress, machine, Some(id)));
        let has_ended = applied.effects.iter().any(is_end_by_time);
        if let Some(due) = due.filter(|due| has_ended && *due < applied.time) {
            self.shared.sink.ended_late(self.shared.group, applied.time - due);
        }
        Ok(applied)
    }

    /// Notes an entry that the machine does not see.
    fn note(&self, id: LogId, membership: Option<raft_types::StoredMembership>) -> Result<(), Stop> {
        let time = self.shared.progress.borrow().time;
        self.commit(id, Writes::new(), Vec::new(), time, membership)?;
        self.shared.progress.send_modify(|progress| progress.applied = Some(id));
        self.shared.wake.notify_one();
        Ok(())
    }

    fn commit(
        &self,
        id: LogId,
        writes: Writes,
        changes: Vec<Change>,
        time: Timestamp,
        membership: Option<raft_types::StoredMembership>,
    ) -> Result<(), Stop> {
        let mut applied = self.applied.lock().unwrap_or_else(PoisonError::into_inner);
        applied.last = Some(id);
        if let Some(membership) = membership {
            applied.membership = membership;
        }
        let mark = AppliedMark {
            index: id.index,
            bytes: raft_types::encode_applied(&applied),
        };
        self.state
            .commit(writes, changes, time, mark)
            .map_err(|error| failed(id, &error))
    }

    /// Reads at the applied time. `None` if the group has stopped, or must because the state cannot be read.
    pub(crate) fn query(&self, query: &Query) -> Option<(Found, Revision, Timestamp)> {
        let kept = self.machine.read().unwrap_or_else(PoisonError::into_inner);
        if self.shared.progress.borrow().stopped.is_some() {
            return None;
        }
        let machine = kept.as_ref()?;
        // A row that does not decode panics, and whoever asked is not to go down with it.
        let read = catch_unwind(AssertUnwindSafe(|| {
            self.state.read(|table| machine.query(table, query))
        }));
        match read {
            Ok(Ok(found)) => Some((found, machine.revision(), machine.time())),
            Ok(Err(error)) => {
                drop(kept);
                self.fail(&error);
                None
            }
            Err(panic) => {
                drop(kept);
                let why = format!("the state cannot be read: {}", message(&*panic));
                self.shared.stop(&why, Told::Node);
                None
            }
        }
    }

    /// How many of what the machine remembers there are. `None` if the group has stopped.
    pub(crate) fn counts(&self) -> Option<Counts> {
        let kept = self.machine.read().unwrap_or_else(PoisonError::into_inner);
        kept.as_ref().map(Machine::counts)
    }

    /// The state as it is now, and what a snapshot of it is called.
    pub(crate) fn image(&self) -> Result<(SnapshotMeta, Image), String> {
        let image = self.state.image().map_err(|error| self.fail(&error))?;
        let applied = match image.mark() {
            None => AppliedState::default(),
            Some(mark) => raft_types::decode_applied(&mark.bytes).map_err(|error| error.to_string())?,
        };
        Ok((
            SnapshotMeta {
                last_log_id: applied.last,
                last_membership: applied.membership,
            },
            image,
        ))
    }

    /// Replaces the state by these rows. Nothing has changed if it fails, unless the group was stopped.
    pub(crate) fn install(&self, meta: &SnapshotMeta, snapshot: &[u8]) -> Result<(), String> {
        let id = meta.last_log_id.ok_or("a snapshot of nothing")?;
        if let Some(why) = self.shared.stopped() {
            return Err(why.to_string());
        }
        // Through a table in memory, because the rows themselves say which revision and time they are at.
        let mut rows = MemTable::new();
        tenure_core::snapshot::import(snapshot, &mut rows).map_err(|error| error.to_string())?;
        let next = catch_unwind(AssertUnwindSafe(|| Machine::open(self.kind, &rows))).map_err(|panic| {
            format!(
                "the snapshot at entry {} cannot be opened: {}",
                id.index,
                message(&*panic)
            )
        })?;
        let installed = AppliedState {
            last: Some(id),
            membership: meta.last_membership.clone(),
        };
        let mark = AppliedMark {
            index: id.index,
            bytes: raft_types::encode_applied(&installed),
        };
        let mut kept = self.machine.write().unwrap_or_else(PoisonError::into_inner);
        let fill = |table: &mut dyn tenure_core::table::Table| tenure_core::snapshot::import(snapshot, table);
        self.state
            .install(fill, mark, next.revision())
            .map_err(|error| self.fail(&error))?;
        let machine = kept.insert(next);
        *self.applied.lock().unwrap_or_else(PoisonError::into_inner) = installed;
        self.shared.time.installed(id.index, machine.time());
        self.shared
            .progress
            .send_modify(|progress| observe(progress, machine, Some(id)));
        let revision = machine.revision();
        drop(kept);
        self.shared.wake.notify_one();
        self.shared.sink.reset(self.shared.group, revision);
        Ok(())
    }

    /// Stops whoever must stop after an error of the state, and says what it was.
    pub(crate) fn fail(&self, error: &StateError) -> String {
        let why = error.to_string();
        match error.stops() {
            Stops::Nobody => {}
            Stops::Group(_) => self.shared.stop(&why, Told::Node),
            Stops::Node => self.shared.stop(&why, Told::NodeMustStop),
        }
        why
    }
}

/// The machine over a state.
///
/// # Errors
/// What is wrong with the state.
pub(crate) fn open_machine(kind: GroupKind, state: &GroupState) -> Result<Machine, String> {
    catch_unwind(AssertUnwindSafe(|| state.read(|table| Machine::open(kind, table))))
        .map_err(|panic| format!("the state cannot be opened: {}", message(&*panic)))?
        .map_err(|error| error.to_string())
}

fn observe(progress: &mut Progress, machine: &Machine, applied: Option<LogId>) {
    progress.applied = applied;
    progress.revision = machine.revision();
    progress.time = machine.time();
    progress.next_deadline = machine.next_deadline();
    progress.has_deadlines = machine.has_deadlines();
    progress.more_due = machine.has_due_work();
    progress.wants_block = machine.wants_block();
}

fn changed(effect: &Effect) -> Option<Change> {
    match effect {
        Effect::Changed(change) => Some(change.clone()),
        Effect::SessionEnded { .. } | Effect::ObjectDeleted { .. } | Effect::Appended { .. } => None,
    }
}

/// Whether an effect is an end that time has brought.
fn is_end_by_time(effect: &Effect) -> bool {
    match effect {
        Effect::Changed(change) => matches!(
            change.kind,
            ChangeKind::Removed {
                reason: EndReason::Expired
            }
        ),
        Effect::SessionEnded { reason, .. } => *reason == EndReason::Expired,
        Effect::ObjectDeleted { .. } | Effect::Appended { .. } => false,
    }
}

fn stop(why: String) -> Stop {
    Stop { why, told: Told::Node }
}

fn failed(id: LogId, error: &StateError) -> Stop {
    let told = if error.stops() == Stops::Node {
        Told::NodeMustStop
    } else {
        Told::Node
    };
    Stop {
        why: format!("entry {} cannot be applied: {error}", id.index),
        told,
    }
}

/// What a panic says, if that was written into the program. What was put together may hold what clients have stored;
/// standard error shows it.
fn message(panic: &(dyn std::any::Any + Send)) -> &'static str {
    let written = panic.downcast_ref::<&'static str>().copied();
    written.unwrap_or("a panic, whose message is on standard error")
}

/// The kinds of the commands of an entry and how many there are of each, without anything of what is in them.
fn kinds(entry: &Entry) -> String {
    let mut counts: BTreeMap<&'static str, usize> = BTreeMap::new();
    for request in &entry.requests {
        *counts.entry(kind(&request.command)).or_default() += 1;
    }
    if !entry.keep_alives.is_empty() {
        counts.insert("keep-alive", entry.keep_alives.len());
    }
    if counts.is_empty() {
        return "a tick".to_owned();
    }
    let counted = counts.into_iter().map(|(kind, count)| format!("{count} {kind}"));
    counted.collect::<Vec<_>>().join(", ")
}

fn kind(command: &Command) -> &'static str {
    match command {
        Command::OpenSession { .. } => "open-session",
        Command::CloseSession { .. } => "close-session",
        Command::Acknowledge { .. } => "acknowledge",
        Command::CreateCache { .. } => "create-cache",
        Command::DeleteCache { .. } => "delete-cache",
        Command::Put { .. } => "put",
        Command::Delete { .. } => "delete",
        Command::Touch { .. } => "touch",
        Command::TakeBlock { .. } => "take-block",
        Command::System(_) => "system",
        Command::Add { .. } => "add",
        Command::DeletePrefix { .. } => "delete-prefix",
        Command::Txn(_) => "transaction",
        Command::CreateStream { .. } => "create-stream",
        Command::DeleteStream { .. } => "delete-stream",
        Command::Append { .. } => "append",
        Command::TrimStream { .. } => "trim-stream",
    }
}

#[cfg(test)]
mod tests;
