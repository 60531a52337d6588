//! One life of a node: what a crash left is opened and checked, served and checked, worked with, and crashed again.

use std::cell::RefCell;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::join_all;

use tenure_core::command::{Acknowledged, Command, Origin, Request};
use tenure_core::effect::{Change, Effect};
use tenure_core::ids::{GroupId, NodeId, Revision, SessionId, SessionRef};
use tenure_core::machine::GroupKind;
use tenure_core::query::Query;
use tenure_core::refusal::Refusal;
use tenure_core::response::{Answer, Done, KeptAlive, Response};
use tenure_core::time::Timestamp;
use tenure_replica::{EffectSink, OpenError, PurgeLimits, Replica, ReplicaOptions, Runtime};
use tenure_storage::disk::RecordingDisk;
use tenure_storage::feed::{Feed, FeedLimits};
use tenure_storage::log::{GroupLog, Log, LogOptions};
use tenure_storage::state::{DiskEngine, DiskOptions, GroupState, StateEngine};

use crate::power_loss::Random;
use crate::power_loss::folder::Folder;
use crate::power_loss::oracle::{Asked, History, Loss, Oracle, Told, rows_of};
use crate::power_loss::watched::{Copied, WatchedDisk};
use crate::power_loss::workload;
use crate::world::{GROUP, VirtualNode, namespace};

/// The folder of the log.
pub(crate) const LOG: &str = "/log";
const READY_WITHIN: Duration = Duration::from_secs(30);
/// Changes of the feed that are read at once: few, so that pages end everywhere.
const FEED_PAGE: usize = 7;

/// How a life is lived.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    /// Steps of the workload.
    pub(crate) steps: usize,
    pub(crate) state: DiskOptions,
    /// What is wrong with this life.
    pub(crate) fault: Option<Fault>,
}

/// A planted fault.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The log's disk says that it syncs, and does not.
    SyncsNothing,
    /// The home group's log is purged up to what is applied, whatever the state has synced.
    PurgesTooEarly,
}

/// What is left of a node by a crash.
#[derive(Clone)]
pub(crate) struct Left {
    pub(crate) log: RecordingDisk,
    /// The folder of the state: what a power loss may leave, the last one being what a process finds now.
    pub(crate) folders: Vec<Arc<Folder>>,
    /// What was asked and told before, the system group's first.
    pub(crate) histories: [History; 2],
    /// How many lives were before.
    pub(crate) lives: u64,
}

/// A life that has ended, to be crashed at any moment of it.
pub(crate) struct Life {
    pub(crate) log: RecordingDisk,
    pub(crate) copies: Vec<Copied>,
    pub(crate) histories: [History; 2],
    pub(crate) is_feed_trimmed: bool,
    lives: u64,
}

/// A node that lives.
pub(crate) struct Node {
    pub(crate) groups: [Group; 2],
    pub(crate) lives: u64,
}

/// One group of it.
pub(crate) struct Group {
    pub(crate) replica: Replica,
    log: GroupLog,
    state: GroupState,
    recording: RecordingDisk,
    history: RefCell<History>,
    sink: Arc<Sink>,
    /// Applies every entry there ever was.
    oracle: RefCell<Oracle>,
    /// Applies what came after the rows that were found.
    reopened: RefCell<Oracle>,
    /// Nothing of its feed is ever trimmed.
    is_feed_whole: bool,
}

/// What a group was found to be before it is opened.
struct Checked {
    log: GroupLog,
    state: GroupState,
    history: History,
    oracle: Oracle,
    reopened: Oracle,
    is_feed_whole: bool,
}

impl Left {
    /// A node that has never lived.
    pub(crate) fn nothing() -> Left {
        Left {
            log: RecordingDisk::new(),
            folders: vec![Arc::default()],
            histories: [
                History::new(GroupId::SYSTEM, GroupKind::System),
                History::new(GROUP, GroupKind::Home),
            ],
            lives: 0,
        }
    }
}

/// Opens what is left, checks it, works, and ends without a word.
///
/// # Errors
/// The first thing that is not as it must be.
pub(crate) fn live(left: Left, plan: &Plan) -> Result<Life, Loss> {
    let folder = tempfile::tempdir().unwrap();
    left.folders
        .last()
        .expect("there is always one")
        .write_to(folder.path());
    let runtime = paused_runtime();
    let lived = runtime.block_on(live_in(left, plan, folder.path()));
    // Every task is dropped where it is, as a kill would.
    drop(runtime);
    lived
}

async fn live_in(left: Left, plan: &Plan, folder: &Path) -> Result<Life, Loss> {
    let recording = left.log.clone();
    recording.start_recording();
    let copies = left.folders.iter().enumerate().map(|(place, folder)| Copied {
        events: 0,
        synced: place == 0,
        folder: folder.clone(),
    });
    let disk = WatchedDisk::new(recording.clone(), folder, copies.collect(), plan.fault);
    let mut runtime = VirtualNode::new().runtime;
    runtime.disk = Arc::new(disk.clone());

    let log = Log::open(
        runtime.disk.clone(),
        Path::new(LOG),
        log_options(),
        runtime.log_writer(),
    );
    let log = log.map_err(|error| not_served(None, &error))?;
    let engine = DiskEngine::open(folder, plan.state).map_err(|error| not_served(None, &error))?;
    disk.copy_now(true);
    let is_feed_whole = plan.state.feed == FeedLimits::default();
    let mut checked = Vec::new();
    for history in left.histories {
        checked.push(check_left(history, &log, &engine, is_feed_whole)?);
    }
    disk.copy_now(false);
    disk.watch(checked.iter().map(|checked| checked.state.clone()).collect());

    let mut groups = Vec::new();
    for checked in checked {
        let group = Group::open(checked, &runtime, &recording).await?;
        group.check_served()?;
        groups.push(group);
    }
    let groups = groups.try_into().ok().expect("two groups have two histories");
    let node = Node {
        groups,
        lives: left.lives,
    };
    node.ask_again().await?;
    workload::run(&node, plan).await?;
    for group in &node.groups {
        group.check_served()?;
    }
    Ok(Life {
        log: recording,
        copies: disk.copies(),
        is_feed_trimmed: node.home().replica.feed().oldest() > Revision(1),
        histories: node.groups.map(|group| group.into_history()),
        lives: left.lives + 1,
    })
}

/// Opens the groups on what is left without looking at it first: what the product itself says of it.
pub(crate) fn open_unchecked(left: &Left, plan: &Plan) -> [Result<(), OpenError>; 2] {
    let folder = tempfile::tempdir().unwrap();
    left.folders
        .last()
        .expect("there is always one")
        .write_to(folder.path());
    let runtime = paused_runtime();
    let opened = runtime.block_on(async {
        let mut runtime = VirtualNode::new().runtime;
        runtime.disk = Arc::new(left.log.clone());
        let log = Log::open(
            runtime.disk.clone(),
            Path::new(LOG),
            log_options(),
            runtime.log_writer(),
        )
        .unwrap();
        let engine = DiskEngine::open(folder.path(), plan.state).unwrap();
        let [system, home] = left.histories.each_ref().map(|history| {
            let parts = (log.group(history.group), engine.group(history.group).unwrap());
            let sink = Sink::over(&left.log);
            options(history, parts, &runtime, sink)
        });
        [
            Replica::open(system).await.map(drop),
            Replica::open(home).await.map(drop),
        ]
    });
    drop(runtime);
    opened
}

/// Time stands still while anything can be done.
fn paused_runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
}

/// How a group is opened: its log is purged all the time.
fn options(history: &History, parts: (GroupLog, GroupState), runtime: &Runtime, sink: Arc<Sink>) -> ReplicaOptions {
    let mut options = ReplicaOptions::new(history.group, history.kind, NodeId(1), parts, runtime.clone(), sink);
    options.purge = PurgeLimits {
        entries_max: 30,
        bytes_max: 20_000,
        entries_kept: 12,
    };
    options
}

/// Small segments, so that they are used again, and next to nothing in memory.
pub(crate) fn log_options() -> LogOptions {
    LogOptions {
        segment_bytes: 8_192,
        tail_bytes_max: 2_000,
        salt: 0x5eed,
        ..LogOptions::default()
    }
}

fn not_served(group: Option<GroupId>, error: &dyn std::error::Error) -> Loss {
    Loss::NotServed {
        group,
        why: error.to_string(),
    }
}

/// Checks the log and the state of a group as they were found.
fn check_left(mut history: History, log: &Log, engine: &DiskEngine, is_feed_whole: bool) -> Result<Checked, Loss> {
    let (group, kind) = (history.group, history.kind);
    let log = log.group(group);
    let of_log = log.state();
    let shown = log
        .read(0..u64::MAX, usize::MAX)
        .map_err(|error| not_served(Some(group), &error))?;
    let last = history.check_log(&shown, of_log.purged.map(|(index, _)| index))?;

    let state = engine.group(group).map_err(|error| not_served(Some(group), &error))?;
    let mark = state.applied().map(|mark| mark.index);
    if let Some(mark) = mark.filter(|mark| last.is_none_or(|last| last < *mark)) {
        return Err(Loss::StateAhead { group, mark, last });
    }
    if let Some(first) = of_log
        .first_index
        .filter(|first| mark.map_or(0, |mark| mark + 1) < *first)
    {
        return Err(Loss::Gap { group, mark, first });
    }
    let rows = state.read(rows_of).map_err(|error| not_served(Some(group), &error))?;
    let mut oracle = Oracle::over(kind, Default::default(), None);
    oracle.apply_to(&history.entries, mark);
    if rows != oracle.table {
        return Err(Loss::WrongRows {
            group,
            index: mark,
            when: "found",
        });
    }
    check_feed(&history, state.feed(), &oracle, is_feed_whole)?;
    let mut reopened = Oracle::over(kind, rows, mark);
    oracle.apply_to(&history.entries, last);
    reopened.apply_to(&history.entries, last);
    history.check_told(&oracle)?;
    history.told.push(Told {
        after: mark,
        effects: Vec::new(),
    });
    Ok(Checked {
        log,
        state,
        history,
        oracle,
        reopened,
        is_feed_whole,
    })
}

/// Checks that the feed says what the entries changed, from the oldest change that it keeps on.
fn check_feed(history: &History, feed: &Feed, oracle: &Oracle, is_whole: bool) -> Result<(), Loss> {
    let group = history.group;
    let wrong = |what: String| Loss::WrongFeed { group, what };
    let oldest = feed.oldest();
    if is_whole && oldest != Revision(1) {
        return Err(wrong(format!("it begins at {oldest}, and nothing was to be trimmed")));
    }
    let mut changes: Vec<Change> = Vec::new();
    let mut next = oldest;
    loop {
        let page = feed.read(next, FEED_PAGE, usize::MAX, &|_| true);
        let page = page.map_err(|error| wrong(error.to_string()))?;
        if page.next <= next && !page.reached_end {
            return Err(wrong(format!("a page at {next} does not move on")));
        }
        changes.extend(page.changes);
        next = page.next;
        if page.reached_end {
            break;
        }
    }
    let expected = oracle.changes().filter(|change| change.revision >= oldest.0);
    if !changes.iter().eq(expected) {
        return Err(wrong(format!(
            "{} changes from {oldest} on are not the log's",
            changes.len()
        )));
    }
    if oldest > Revision(1) && feed.read(Revision(oldest.0 - 1), 1, usize::MAX, &|_| true).is_ok() {
        return Err(wrong(format!("it reads from before {oldest}")));
    }
    Ok(())
}

impl Group {
    /// Opens a group and waits until it serves.
    async fn open(checked: Checked, runtime: &Runtime, recording: &RecordingDisk) -> Result<Group, Loss> {
        let Checked {
            log,
            state,
            history,
            oracle,
            reopened,
            is_feed_whole,
        } = checked;
        let id = history.group;
        let sink = Sink::over(recording);
        let options = options(&history, (log.clone(), state.clone()), runtime, sink.clone());
        let replica = Replica::open(options)
            .await
            .map_err(|error| not_served(Some(id), &error))?;
        replica.found().await.map_err(|error| not_served(Some(id), &error))?;
        let ready = replica.wait_until_ready(READY_WITHIN).await;
        ready.map_err(|error| not_served(Some(id), &error))?;
        Ok(Group {
            replica,
            log,
            state,
            recording: recording.clone(),
            history: RefCell::new(history),
            sink,
            oracle: RefCell::new(oracle),
            reopened: RefCell::new(reopened),
            is_feed_whole,
        })
    }

    /// Asks, and keeps the answer with the moment at which it came.
    ///
    /// # Errors
    /// [`Loss::NotServed`] if there is no answer.
    pub(crate) async fn ask(&self, request: Request) -> Result<Answer, Loss> {
        let place = {
            let mut history = self.history.borrow_mut();
            history.asked.push(Asked {
                events: self.recording.events(),
                request: request.clone(),
                answered: None,
            });
            history.asked.len() - 1
        };
        let answer = self.replica.propose(request, None).await;
        let answer = answer.map_err(|error| not_served(Some(self.id()), &error))?;
        let answered = Some((self.recording.events(), answer.clone()));
        self.history.borrow_mut().asked[place].answered = answered;
        self.note_seen();
        Ok(answer)
    }

    /// Keeps a session alive, and the answer.
    ///
    /// # Errors
    /// [`Loss::NotServed`] if there is no answer.
    pub(crate) async fn keep_alive(&self, session: SessionRef) -> Result<KeptAlive, Loss> {
        let kept = self.replica.keep_alive(session).await;
        let (kept, time) = kept.map_err(|error| not_served(Some(self.id()), &error))?;
        let events = self.recording.events();
        self.history.borrow_mut().kept.push((events, (session, kept, time)));
        self.note_seen();
        Ok(kept)
    }

    /// Takes note of the entries that were appended, before they are purged.
    pub(crate) fn note_entries(&self) {
        let entries = &mut self.history.borrow_mut().entries;
        let next = entries.last_key_value().map_or(0, |(index, _)| index + 1);
        let shown = self.log.read(next..u64::MAX, usize::MAX).expect("the log reads");
        for (place, (index, bytes)) in shown.into_iter().enumerate() {
            assert_eq!(index, next + place as u64, "entries are noted before they are purged");
            entries.insert(index, bytes);
        }
    }

    /// Purges the log up to what is applied, which nobody may do.
    pub(crate) fn purge_too_early(&self) {
        self.note_entries();
        // Everything is applied and committed here, so that the purge gets the id of what is committed.
        if let (Some(applied), Some(id)) = (self.state.applied(), self.log.state().committed) {
            let purged = |purged: Result<(), _>| purged.expect("the log purges");
            self.log.purge(applied.index, id, Box::new(purged));
        }
    }

    pub(crate) fn id(&self) -> GroupId {
        self.state.group()
    }

    /// Whatever is applied can be seen by anybody.
    fn note_seen(&self) {
        if let Some(applied) = self.replica.status().applied_index {
            let seen = (self.recording.events(), applied);
            self.history.borrow_mut().seen.push(seen);
        }
    }

    /// Checks everything that the group serves now against its entries, and against what was told before.
    pub(crate) fn check_served(&self) -> Result<(), Loss> {
        let group = self.id();
        self.note_entries();
        self.note_seen();
        let (mut oracle, mut reopened) = (self.oracle.borrow_mut(), self.reopened.borrow_mut());
        let index = self.state.applied().map(|mark| mark.index);
        oracle.apply_to(&self.history.borrow().entries, index);
        reopened.apply_to(&self.history.borrow().entries, index);
        if !oracle.memory_matches() || !reopened.memory_matches() {
            return Err(Loss::WrongMemory { group, index });
        }
        let rows = self
            .state
            .read(rows_of)
            .map_err(|error| not_served(Some(group), &error))?;
        if rows != oracle.table || rows != reopened.table {
            let when = "served";
            return Err(Loss::WrongRows { group, index, when });
        }
        self.check_told(&oracle)?;
        self.check_numbers()?;
        self.check_queries(&oracle)?;
        let is_whole = self.is_feed_whole;
        check_feed(&self.history.borrow(), &self.replica.feed(), &oracle, is_whole)
    }

    fn check_told(&self, oracle: &Oracle) -> Result<(), Loss> {
        let mut history = self.history.borrow_mut();
        let told = history.told.last_mut().expect("each life has its own");
        told.effects = self.sink.told.lock().unwrap().clone();
        let mut after = oracle
            .effects
            .iter()
            .filter(|(index, _)| told.after.is_none_or(|after| *index > after));
        let missing = after.nth(told.effects.len());
        if let Some((_, effect)) = missing {
            return Err(Loss::EffectLost {
                group: history.group,
                effect: Box::new(effect.clone()),
            });
        }
        history.check_told(oracle)
    }

    fn check_numbers(&self) -> Result<(), Loss> {
        let history = self.history.borrow();
        let group = history.group;
        let status = self.replica.status();
        let answered = || history.asked.iter().filter_map(|asked| asked.answered.as_ref());
        let kept = history.kept.iter().map(|(_, (_, _, time))| *time);
        if answered().any(|(_, answer)| answer.revision > status.revision) {
            let what = "the revision";
            return Err(Loss::WentBack { group, what });
        }
        let is_behind = self.replica.stamp_now().is_some_and(|stamp| stamp < status.time);
        if is_behind
            || answered()
                .map(|(_, answer)| answer.time)
                .chain(kept)
                .any(|time| time > status.time)
        {
            let what = "the time";
            return Err(Loss::WentBack { group, what });
        }
        Ok(())
    }

    /// What the group says is what the machine over the entries says.
    fn check_queries(&self, oracle: &Oracle) -> Result<(), Loss> {
        let sessions = oracle.answers.iter().filter_map(|(_, answer)| match &answer.response {
            Response::Done(Done::SessionOpened { id, .. }) => Some(*id),
            _ => None,
        });
        for query in queries(self.history.borrow().kind, sessions) {
            let expected = oracle.machine.query(&oracle.table, &query);
            let expected = (expected, oracle.machine.revision(), oracle.machine.time());
            let found = self
                .replica
                .query(&query)
                .map_err(|error| not_served(Some(self.id()), &error))?;
            if found != expected {
                return Err(Loss::WrongAnswer {
                    group: self.id(),
                    what: format!("{query:?}: {found:?}, not {expected:?}"),
                });
            }
        }
        Ok(())
    }

    fn into_history(self) -> History {
        self.history.into_inner()
    }
}

fn queries(kind: GroupKind, sessions: impl Iterator<Item = SessionId>) -> Vec<Query> {
    match kind {
        GroupKind::System => vec![
            Query::Cluster,
            Query::Nodes,
            Query::Namespaces,
            Query::Home(namespace()),
        ],
        GroupKind::Home => {
            let mut queries = vec![
                Query::Caches(namespace()),
                Query::Sessions {
                    namespace: namespace(),
                    after: None,
                    limit: 1_000,
                },
                Query::List {
                    cache: crate::world::cache(),
                    prefix: Default::default(),
                    after: None,
                    limit: 1_000,
                },
            ];
            queries.extend(sessions.map(Query::Session));
            queries
        }
    }
}

impl Node {
    pub(crate) fn system(&self) -> &Group {
        &self.groups[0]
    }

    pub(crate) fn home(&self) -> &Group {
        &self.groups[1]
    }

    /// Asks again everything that has a number and was asked before, answered or not, as a client does that was not
    /// answered: what was answered is answered again in the same way, and nothing runs twice.
    async fn ask_again(&self) -> Result<(), Loss> {
        let home = self.home();
        let before: Vec<Asked> = home.history.borrow().asked.clone();
        let numbered = before.iter().filter(|asked| is_numbered(&asked.request, &before));
        let answers = join_all(numbered.clone().map(|asked| home.ask(asked.request.clone()))).await;
        for (asked, answer) in numbered.zip(answers) {
            let answer = answer?;
            let Some((_, first)) = &asked.answered else { continue };
            let is_kept = matches!(first.response, Response::Done(_) | Response::Refused(_));
            let same = answer.repeated && without_time(&answer.response) == without_time(&first.response);
            if is_kept && !same {
                return Err(Loss::NotRepeated {
                    group: home.id(),
                    request: Box::new(asked.request.clone()),
                    answer: Box::new(answer),
                });
            }
        }
        home.check_served()
    }
}

/// Whether a request has a number whose result nobody has acknowledged.
fn is_numbered(request: &Request, all: &[Asked]) -> bool {
    match &request.origin {
        Origin::Anonymous => false,
        Origin::OneShot { .. } => true,
        Origin::Session { session, seq, .. } => !all.iter().any(|asked| {
            matches!(&asked.request.origin, Origin::Session { session: other, acknowledged, .. }
                if other == session && acknowledged.below > *seq)
        }),
    }
}

/// A response without how long something that stood in the way still lives, which is never from memory.
fn without_time(response: &Response) -> Response {
    let mut response = response.clone();
    if let Response::Refused(Refusal::ConditionFailed(Some(facts))) = &mut response {
        facts.remaining = None;
    }
    response
}

impl Life {
    /// A moment of this life, with how much of the next write is on the disk.
    pub(crate) fn moment(&self, random: &mut Random) -> Moment {
        let events = usize::try_from(random.below(self.log.events() as u64 + 1)).unwrap();
        let torn = (random.below(2) == 0).then(|| usize::try_from(random.below(3_000)).unwrap());
        Moment { events, torn }
    }

    /// What a process finds that is started after a kill at this moment.
    pub(crate) fn killed(&self, moment: Moment) -> Left {
        let log = self.log.at(moment.events, moment.torn).after_kill();
        self.left(log, moment, self.honest_folders(moment.events))
    }

    /// What is found after a power loss at this moment. The folder of the state is as it was at the last sync, or at any
    /// moment from then on, or on its way from one to the next.
    pub(crate) fn without_power(&self, moment: Moment, random: &mut Random) -> Left {
        let folders = self.honest_folders(moment.events);
        let chosen = usize::try_from(random.below(folders.len() as u64)).unwrap();
        let torn = folders
            .get(chosen + 1)
            .filter(|_| random.below(2) == 0)
            .and_then(|later| folders[chosen].torn_towards(later, random));
        let folder = torn.map_or_else(|| folders[chosen].clone(), Arc::new);
        self.without_power_over(moment, folder, random)
    }

    /// The same over a folder of the state that somebody else has chosen.
    pub(crate) fn without_power_over(&self, moment: Moment, folder: Arc<Folder>, random: &mut Random) -> Left {
        let log = self.log.at(moment.events, moment.torn);
        let log = log.after_power_loss(&mut |bound| random.below(bound));
        self.left(log, moment, vec![folder])
    }

    /// What the folder of the state may be at this moment, the last one being what a process sees.
    pub(crate) fn honest_folders(&self, events: usize) -> Vec<Arc<Folder>> {
        let until: Vec<&Copied> = self
            .copies
            .iter()
            .take_while(|copied| copied.events <= events)
            .collect();
        let synced = until
            .iter()
            .rposition(|copied| copied.synced)
            .expect("the first copy is synced");
        until[synced..].iter().map(|copied| copied.folder.clone()).collect()
    }

    /// The last moment.
    pub(crate) fn end(&self) -> Moment {
        Moment {
            events: self.log.events(),
            torn: None,
        }
    }

    fn left(&self, log: RecordingDisk, moment: Moment, folders: Vec<Arc<Folder>>) -> Left {
        Left {
            log,
            folders,
            histories: self.histories.each_ref().map(|history| history.until(moment.events)),
            lives: self.lives,
        }
    }
}

/// A moment of a life.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// So many changes of the log's disk had been made.
    pub(crate) events: usize,
    /// And so many bytes of the next one.
    pub(crate) torn: Option<usize>,
}

/// Keeps what it is told with the moment.
struct Sink {
    recording: RecordingDisk,
    told: Mutex<Vec<(usize, Effect)>>,
}

impl Sink {
    fn over(recording: &RecordingDisk) -> Arc<Sink> {
        Arc::new(Sink {
            recording: recording.clone(),
            told: Mutex::default(),
        })
    }
}

impl EffectSink for Sink {
    fn applied(&self, _group: GroupId, effects: &[Effect], _revision: Revision, _time: Timestamp) {
        let events = self.recording.events();
        let mut told = self.told.lock().unwrap();
        told.extend(effects.iter().map(|effect| (events, effect.clone())));
    }

    fn reset(&self, group: GroupId, _revision: Revision) {
        panic!("nobody sends a snapshot to {group}");
    }

    fn stopped(&self, _group: GroupId, _why: &str) {}
}

/// A command under a number of a session.
pub(crate) fn numbered(session: SessionRef, seq: u64, acknowledged_below: u64, command: Command) -> Request {
    Request {
        origin: Origin::Session {
            session,
            seq,
            acknowledged: Acknowledged {
                below: acknowledged_below,
                also: Vec::new(),
            },
            fingerprint: tenure_core::codec::fingerprint(&command),
        },
        command,
    }
}
