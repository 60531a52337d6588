//! What the tests of the log share: a naive model of it, random operations, and ways to run them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use tenure_storage::disk::{Disk, RecordingDisk};
use tenure_storage::error::{LogFailed, OpenError};
use tenure_storage::log::{GroupId, GroupLog, Log, LogOptions, Spawner, WriterMode};

pub(crate) const DIR: &str = "data/log";

/// Small numbers, so that segments and the tail in memory turn over all the time.
pub(crate) fn small_options() -> LogOptions {
    LogOptions {
        segment_bytes: 4096,
        tail_bytes_max: 2000,
        salt: 0x5a17,
        ..LogOptions::default()
    }
}

pub(crate) fn open_on(disk: &RecordingDisk, options: LogOptions) -> Result<Log, OpenError> {
    Log::open(Arc::new(disk.clone()), Path::new(DIR), options, WriterMode::Inline)
}

pub(crate) fn open(disk: &RecordingDisk) -> Log {
    open_on(disk, small_options()).expect("the log opens")
}

#[expect(clippy::disallowed_methods, reason = "this is the runtime that hands threads in")]
pub(crate) fn threads() -> WriterMode {
    let spawner: Spawner = Arc::new(|name, work| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map(|_| ())
    });
    WriterMode::Thread(spawner)
}

pub(crate) fn payload(text: &str) -> Bytes {
    Bytes::copy_from_slice(text.as_bytes())
}

/// Asks for something and waits until it is called back.
pub(crate) fn wait(ask: impl FnOnce(tenure_storage::log::Done)) -> Result<(), LogFailed> {
    let (sender, receiver) = mpsc::channel();
    ask(Box::new(move |result| sender.send(result).expect("somebody waits")));
    receiver
        .recv_timeout(Duration::from_secs(60))
        .expect("it is called back")
}

pub(crate) fn append(group: &GroupLog, first: u64, payloads: &[&str]) -> Result<(), LogFailed> {
    let entries = payloads
        .iter()
        .enumerate()
        .map(|(place, text)| (first + place as u64, payload(text)))
        .collect();
    wait(|done| group.append(entries, done))
}

/// Names of the files in the log's folder.
pub(crate) fn files(disk: &dyn Disk) -> Vec<String> {
    disk.list(Path::new(DIR)).expect("the folder is there")
}

/// A random number generator that depends on nothing but its seed.
#[derive(Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    /// A number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }
}

/// Something to ask of the log.
#[derive(Clone, Debug)]
pub(crate) enum Op {
    Append {
        group: u32,
        first: u64,
        payloads: Vec<Bytes>,
    },
    Vote {
        group: u32,
        vote: Bytes,
    },
    Committed {
        group: u32,
        committed: Bytes,
    },
    Truncate {
        group: u32,
        last_kept: Option<u64>,
    },
    Purge {
        group: u32,
        upto: u64,
        id: Bytes,
    },
    Remove {
        group: u32,
    },
}

/// What a log must hold, kept in the simplest way.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Model {
    pub(crate) groups: BTreeMap<u32, ModelGroup>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ModelGroup {
    pub(crate) entries: Vec<(u64, Bytes)>,
    /// The first index if there are entries, else the next one.
    pub(crate) first: Option<u64>,
    pub(crate) vote: Option<Bytes>,
    pub(crate) committed: Option<Bytes>,
    pub(crate) purged: Option<(u64, Bytes)>,
}

impl ModelGroup {
    pub(crate) fn next(&self) -> Option<u64> {
        self.entries.last().map(|(index, _)| index + 1).or(self.first)
    }
}

impl Model {
    pub(crate) fn apply(&mut self, op: &Op) {
        match op {
            Op::Append { group, first, payloads } => {
                let group = self.groups.entry(*group).or_default();
                if !payloads.is_empty() {
                    group.first.get_or_insert(*first);
                }
                group.entries.extend((*first..).zip(payloads.iter().cloned()));
            }
            Op::Vote { group, vote } => self.groups.entry(*group).or_default().vote = Some(vote.clone()),
            Op::Committed { group, committed } => {
                self.groups.entry(*group).or_default().committed = Some(committed.clone());
            }
            Op::Truncate { group, last_kept } => {
                let group = self.groups.entry(*group).or_default();
                group
                    .entries
                    .retain(|(index, _)| last_kept.is_some_and(|last| *index <= last));
            }
            Op::Purge { group, upto, id } => {
                let group = self.groups.entry(*group).or_default();
                if group.purged.as_ref().is_none_or(|(earlier, _)| earlier < upto) {
                    group.entries.retain(|(index, _)| index > upto);
                    group.first = Some(group.first.unwrap_or(0).max(upto + 1));
                    group.purged = Some((*upto, id.clone()));
                }
            }
            Op::Remove { group } => {
                self.groups.remove(group);
            }
        }
        self.groups.retain(|_, group| *group != ModelGroup::default());
    }

    /// What is to be seen of a log.
    pub(crate) fn of(log: &Log) -> Model {
        let mut model = Model::default();
        for id in log.groups() {
            let group = log.group(id);
            let state = group.state();
            let entries = group.read(0..u64::MAX, usize::MAX).expect("the log reads");
            assert_eq!(state.last, entries.last().cloned(), "the last entry of {id:?}");
            if let Some((first, _)) = entries.first() {
                assert_eq!(state.first_index, Some(*first), "the first entry of {id:?}");
            }
            model.groups.insert(
                id.0,
                ModelGroup {
                    entries,
                    first: state.first_index,
                    vote: state.vote,
                    committed: state.committed,
                    purged: state.purged,
                },
            );
        }
        model
    }

    /// A random operation that the log must accept.
    pub(crate) fn random_op(&self, groups: u32, random: &mut Random) -> Op {
        let group = random.below(u64::from(groups)) as u32;
        let known = self.groups.get(&group).cloned().unwrap_or_default();
        let next = known.next().unwrap_or_else(|| random.below(3));
        let length = known.entries.len() as u64;
        match random.below(100) {
            0..55 => {
                let payloads = (0..1 + random.below(4)).map(|_| random_bytes(random, 200)).collect();
                Op::Append {
                    group,
                    first: next,
                    payloads,
                }
            }
            55..65 => Op::Vote {
                group,
                vote: random_bytes(random, 20),
            },
            65..75 => Op::Committed {
                group,
                committed: random_bytes(random, 20),
            },
            75..84 => {
                let keep = next.saturating_sub(random.below(length.min(6) + 2));
                Op::Truncate {
                    group,
                    last_kept: keep.checked_sub(1),
                }
            }
            84..97 => {
                let first = known.first.unwrap_or(0);
                Op::Purge {
                    group,
                    upto: first + random.below(length + 2),
                    id: random_bytes(random, 20),
                }
            }
            97 => Op::Purge {
                group,
                upto: next + random.below(1000),
                id: random_bytes(random, 20),
            },
            98 => Op::Remove { group },
            // Now and then one that is longer than a segment.
            _ => Op::Append {
                group,
                first: next,
                payloads: vec![Bytes::from(vec![7; 5000])],
            },
        }
    }
}

fn random_bytes(random: &mut Random, length_max: u64) -> Bytes {
    let length = random.below(length_max);
    (0..length).map(|_| random.below(256) as u8).collect::<Vec<u8>>().into()
}

/// Asks for an operation; `done` is called back, for what is committed at once.
pub(crate) fn ask(log: &Log, op: &Op, done: tenure_storage::log::Done) {
    match op.clone() {
        Op::Append { group, first, payloads } => {
            log.group(GroupId(group))
                .append((first..).zip(payloads).collect(), done);
        }
        Op::Vote { group, vote } => log.group(GroupId(group)).save_vote(vote, done),
        Op::Committed { group, committed } => done(log.group(GroupId(group)).save_committed(committed)),
        Op::Truncate { group, last_kept } => log.group(GroupId(group)).truncate_after(last_kept, done),
        Op::Purge { group, upto, id } => log.group(GroupId(group)).purge(upto, id, done),
        Op::Remove { group } => log.group(GroupId(group)).remove(done),
    }
}

/// A run of random operations on a log without a thread, in batches of one and of several, with what was called back
/// when.
pub(crate) struct Run {
    pub(crate) log: Log,
    disk: RecordingDisk,
    /// What must be seen after so many operations, oldest first: one more than there are operations.
    pub(crate) models: Vec<Model>,
    /// For each operation, how many changes the disk had recorded when it was asked for.
    asked: Vec<usize>,
    /// For each operation, how many there were when it was called back. `None`: never, or with an error.
    acknowledged: Arc<Mutex<Vec<Option<usize>>>>,
    pub(crate) random: Random,
}

impl Run {
    pub(crate) fn new(log: Log, disk: &RecordingDisk, model: Model, seed: u64) -> Run {
        Run {
            log,
            disk: disk.clone(),
            models: vec![model],
            asked: Vec::new(),
            acknowledged: Arc::default(),
            random: Random(seed),
        }
    }

    /// A new log on a new disk, recorded from before its first file on.
    pub(crate) fn recorded(seed: u64) -> (Run, RecordingDisk) {
        let disk = RecordingDisk::new();
        disk.start_recording();
        let log = open(&disk);
        (Run::new(log, &disk, Model::default(), seed), disk)
    }

    /// One batch of one operation, or of some that were asked for while another was called back.
    pub(crate) fn step(&mut self, groups: u32) {
        let count = if self.random.below(3) == 0 {
            2 + self.random.below(5)
        } else {
            1
        };
        let mut ops = Vec::new();
        let mut model = self.last_model().clone();
        for _ in 0..count {
            let op = model.random_op(groups, &mut self.random);
            model.apply(&op);
            ops.push(op);
        }
        let first = self.plan(&ops[0]);
        if count == 1 {
            return self.ask(first, &ops[0]);
        }
        // The first one's call back asks for the others, and the writer finds them all at once.
        let planned: Vec<(usize, Op)> = ops[1..].iter().map(|op| (self.plan(op), op.clone())).collect();
        let (log, disk, acknowledged) = (self.log.clone(), self.disk.clone(), self.acknowledged.clone());
        let acknowledge_first = acknowledge(first, &ops[0], &self.disk, &self.acknowledged);
        let started = Arc::new(Mutex::new(Vec::new()));
        let started_later = started.clone();
        ask(
            &self.log,
            &ops[0],
            Box::new(move |result| {
                acknowledge_first(result);
                for (number, op) in planned {
                    started_later.lock().unwrap().push((number, disk.events()));
                    let done = acknowledge(number, &op, &disk, &acknowledged);
                    ask(&log, &op, done);
                }
            }),
        );
        for (number, events) in started.lock().unwrap().iter() {
            self.asked[*number] = *events;
        }
    }

    /// The numbers of operations that may have happened when the disk had recorded `events` changes: from all that were
    /// called back to all that were asked for.
    pub(crate) fn possible(&self, events: usize) -> std::ops::RangeInclusive<usize> {
        let acknowledged = self.acknowledged.lock().unwrap();
        let must = acknowledged
            .iter()
            .rposition(|at| at.is_some_and(|at| at <= events))
            .map_or(0, |last| last + 1);
        let may = self.asked.iter().take_while(|at| **at <= events).count();
        must..=may.max(must)
    }

    /// How many operations the log shows, which must be a possible number of them.
    pub(crate) fn check(&self, log: &Log, events: usize, what: &str) -> usize {
        let seen = Model::of(log);
        let possible = self.possible(events);
        possible.clone().rev().find(|count| self.models[*count] == seen).unwrap_or_else(|| {
            let at = self.models.iter().position(|model| *model == seen);
            panic!(
                "{what}: the log shows the state after {at:?} operations, and {possible:?} are possible\n{seen:#?}\n{:#?}",
                self.models[*possible.start()]
            )
        })
    }

    pub(crate) fn last_model(&self) -> &Model {
        self.models.last().expect("there is always one")
    }

    fn plan(&mut self, op: &Op) -> usize {
        let mut model = self.last_model().clone();
        model.apply(op);
        self.models.push(model);
        self.asked.push(self.disk.events());
        self.acknowledged.lock().unwrap().push(None);
        self.asked.len() - 1
    }

    fn ask(&self, number: usize, op: &Op) {
        ask(&self.log, op, acknowledge(number, op, &self.disk, &self.acknowledged));
    }
}

fn acknowledge(
    number: usize,
    op: &Op,
    disk: &RecordingDisk,
    acknowledged: &Arc<Mutex<Vec<Option<usize>>>>,
) -> tenure_storage::log::Done {
    let passive = matches!(op, Op::Committed { .. });
    let (disk, acknowledged) = (disk.clone(), acknowledged.clone());
    Box::new(move |result| {
        if result.is_ok() && !passive {
            acknowledged.lock().unwrap()[number] = Some(disk.events());
        }
    })
}
