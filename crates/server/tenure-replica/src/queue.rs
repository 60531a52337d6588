//! What waits to be proposed: bounded, fair between namespaces, each request answered exactly once.
//!
//! Everything that waits goes into the next entry as far as it has room: keep-alives first, then closes up to
//! their share, then the rest, one of each namespace in turn. Nothing waits for company, and what did not fit
//! into one entry begins the next.

mod keep_alives;

pub(crate) use keep_alives::WaitingKeepAlive;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use tenure_core::command::{Command, Guard, Origin, Request, SystemCommand};
use tenure_core::ids::{Namespace, SessionRef};
use tenure_core::limits::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, ENTRY_KEEP_ALIVES_MAX};
use tenure_core::response::{Answer, KeptAlive};
use tenure_core::time::Timestamp;

use self::keep_alives::KeepAliveLine;
use crate::error::Unavailable;

/// What a request is answered with.
pub(crate) type Answered = Result<Answer, Unavailable>;
/// What a keep-alive is answered with.
pub(crate) type KeptAliveAnswered = Result<(KeptAlive, Timestamp), Unavailable>;

/// When to come back to a queue that is full.
const RETRY_AFTER: Duration = Duration::from_millis(100);
/// So many closes of one entry come before everything else, and the rest of them behind it: many that close
/// must not keep those that want something waiting for ever.
const ENTRY_CLOSES_FIRST_MAX: usize = ENTRY_COMMANDS_MAX / 2;

/// How much may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests.
    pub queue_len_max: usize,
    /// Bytes of requests.
    pub queue_bytes_max: usize,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            queue_len_max: 65_536,
            queue_bytes_max: 64 << 20,
        }
    }
}

/// A request that waits.
pub(crate) struct WaitingRequest {
    pub(crate) request: Request,
    pub(crate) waiter: Waiter,
}

/// Who waits for the answer to a request, and until when.
pub(crate) struct Waiter {
    answer: oneshot::Sender<Answered>,
    slot: Arc<Slot>,
    deadline: Option<Duration>,
    arrived: Duration,
    bytes: usize,
}

impl Waiter {
    /// Hands over the answer. Nothing happens if nobody waits any more.
    pub(crate) fn answer(self, answer: Answered) {
        let _ = self.answer.send(answer);
    }
}

/// The caller's end of a waiting request.
pub(crate) struct Ticket {
    pub(crate) answer: oneshot::Receiver<Answered>,
    slot: Arc<Slot>,
}

impl Ticket {
    /// Takes the request back. True if it was not proposed, and then it never will be.
    pub(crate) fn give_up(&self) -> bool {
        self.slot.take(GIVEN_UP)
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Nobody waits for the answer any more, so a request that still waits need not run.
        self.give_up();
    }
}

/// Who was first: the proposer that takes the request, or the caller that gives it up.
struct Slot(AtomicU8);

const WAITING: u8 = 0;
const TAKEN: u8 = 1;
const GIVEN_UP: u8 = 2;

impl Slot {
    fn take(&self, state: u8) -> bool {
        self.0
            .compare_exchange(WAITING, state, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    }

    fn give_back(&self) {
        self.0.store(WAITING, Ordering::Release);
    }
}

/// What goes into one entry.
#[derive(Default)]
pub(crate) struct Batch {
    pub(crate) keep_alives: Vec<WaitingKeepAlive>,
    pub(crate) requests: Vec<WaitingRequest>,
}

impl Batch {
    pub(crate) fn is_empty(&self) -> bool {
        self.keep_alives.is_empty() && self.requests.is_empty()
    }

    /// Answers everything in it with this error.
    pub(crate) fn fail(self, error: &Unavailable) {
        for keep_alive in self.keep_alives {
            for caller in keep_alive.callers {
                let _ = caller.send(Err(error.clone()));
            }
        }
        for request in self.requests {
            request.waiter.answer(Err(error.clone()));
        }
    }
}

/// The waiting requests of one group.
pub(crate) struct WaitingLine {
    limits: QueueLimits,
    keep_alives: KeepAliveLine,
    /// What did not fit into the last entry and begins the next one. Behind everything that fits beside others a
    /// large request would wait for ever.
    bumped: Option<WaitingRequest>,
    closes: VecDeque<WaitingRequest>,
    others: BTreeMap<u64, VecDeque<WaitingRequest>>,
    turns: VecDeque<u64>,
    len: usize,
    bytes: usize,
}

impl WaitingLine {
    pub(crate) fn new(limits: QueueLimits) -> WaitingLine {
        WaitingLine {
            limits,
            keep_alives: KeepAliveLine::default(),
            bumped: None,
            closes: VecDeque::new(),
            others: BTreeMap::new(),
            turns: VecDeque::new(),
            len: 0,
            bytes: 0,
        }
    }

    /// Puts a request into the line. `deadline` and `arrived` are instants of the local clock.
    ///
    /// # Errors
    /// [`Unavailable::Overloaded`] if the line is full; [`Unavailable::Deadline`] if the deadline has passed.
    pub(crate) fn push(
        &mut self,
        request: Request,
        deadline: Option<Duration>,
        arrived: Duration,
    ) -> Result<Ticket, Unavailable> {
        if deadline.is_some_and(|deadline| deadline <= arrived) {
            return Err(Unavailable::Deadline);
        }
        let bytes = request_bytes(&request);
        if self.len >= self.limits.queue_len_max || self.bytes + bytes > self.limits.queue_bytes_max {
            return Err(Unavailable::Overloaded {
                retry_after: RETRY_AFTER,
            });
        }
        let (sender, receiver) = oneshot::channel();
        let slot = Arc::new(Slot(AtomicU8::new(WAITING)));
        let ticket = Ticket {
            answer: receiver,
            slot: slot.clone(),
        };
        let waiter = Waiter {
            answer: sender,
            slot,
            deadline,
            arrived,
            bytes,
        };
        self.insert(WaitingRequest { request, waiter }, End::Back);
        Ok(ticket)
    }

    /// Puts a keep-alive into the line; those of one session are one. Never refused because much is waiting.
    ///
    /// # Errors
    /// [`Unavailable::Overloaded`] beyond what honest sessions can ask for.
    pub(crate) fn push_keep_alive(
        &mut self,
        session: SessionRef,
        arrived: Duration,
    ) -> Result<oneshot::Receiver<KeptAliveAnswered>, Unavailable> {
        self.keep_alives.push(session, arrived)
    }

    /// Takes what goes into the next entry. Requests whose deadline has passed are answered, those that were
    /// given up are dropped.
    pub(crate) fn take(&mut self, now: Duration) -> Batch {
        let mut batch = Batch::default();
        while batch.keep_alives.len() < ENTRY_KEEP_ALIVES_MAX {
            let Some(keep_alive) = self.keep_alives.pop() else {
                break;
            };
            batch.keep_alives.push(keep_alive);
        }
        let mut bytes = 0;
        let mut closes = 0;
        while batch.requests.len() < ENTRY_COMMANDS_MAX {
            let Some(request) = self.pop_alive(now, closes < ENTRY_CLOSES_FIRST_MAX) else {
                break;
            };
            if !batch.requests.is_empty() && bytes + request.waiter.bytes > ENTRY_BYTES_MAX {
                self.bump(request);
                break;
            }
            if request.waiter.slot.take(TAKEN) {
                bytes += request.waiter.bytes;
                closes += usize::from(class(&request.request.command) == Class::Close);
                batch.requests.push(request);
            }
        }
        batch
    }

    /// Puts what was taken and provably not proposed back to where it was.
    pub(crate) fn put_back(&mut self, batch: Batch) {
        for keep_alive in batch.keep_alives {
            self.keep_alives.put_back(keep_alive);
        }
        // It came behind what is put back.
        if let Some(bumped) = self.bumped.take() {
            self.forget(&bumped);
            self.insert(bumped, End::Front);
        }
        for request in batch.requests.into_iter().rev() {
            request.waiter.slot.give_back();
            self.insert(request, End::Front);
        }
    }

    /// Takes everything that has waited since before this instant, to be failed.
    pub(crate) fn take_older(&mut self, arrived_before: Duration) -> Batch {
        let mut batch = Batch {
            keep_alives: self.keep_alives.take_older(arrived_before),
            requests: Vec::new(),
        };
        let mut left = Vec::new();
        while let Some(request) = self.pop(true) {
            if request.waiter.arrived >= arrived_before {
                left.push(request);
            } else if request.waiter.slot.take(TAKEN) {
                batch.requests.push(request);
            }
        }
        for request in left {
            self.insert(request, End::Back);
        }
        batch
    }

    /// Takes everything, to be failed.
    pub(crate) fn take_all(&mut self) -> Batch {
        self.take_older(Duration::MAX)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keep_alives.is_empty() && self.len == 0
    }

    /// Requests that wait, given-up ones included.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    fn pop_alive(&mut self, now: Duration, closes_first: bool) -> Option<WaitingRequest> {
        loop {
            let request = self.pop(closes_first)?;
            if request.waiter.deadline.is_none_or(|deadline| deadline > now) {
                return Some(request);
            }
            if request.waiter.slot.take(TAKEN) {
                request.waiter.answer(Err(Unavailable::Deadline));
            }
        }
    }

    fn pop(&mut self, closes_first: bool) -> Option<WaitingRequest> {
        let request = match self.bumped.take() {
            Some(bumped) => bumped,
            None if closes_first => self.closes.pop_front().or_else(|| self.pop_turn())?,
            None => self.pop_turn().or_else(|| self.closes.pop_front())?,
        };
        self.forget(&request);
        Some(request)
    }

    /// Takes the request whose namespace has its turn; then it is the next one's.
    fn pop_turn(&mut self) -> Option<WaitingRequest> {
        let turn = self.turns.pop_front()?;
        let waiting = self
            .others
            .get_mut(&turn)
            .expect("a namespace has a turn while it has requests");
        let request = waiting.pop_front().expect("a namespace without requests has no turn");
        if waiting.is_empty() {
            self.others.remove(&turn);
        } else {
            self.turns.push_back(turn);
        }
        Some(request)
    }

    /// Keeps a request for the front of the next entry.
    fn bump(&mut self, request: WaitingRequest) {
        self.len += 1;
        self.bytes += request.waiter.bytes;
        self.bumped = Some(request);
    }

    /// Counts a request that no longer waits.
    fn forget(&mut self, request: &WaitingRequest) {
        self.len -= 1;
        self.bytes -= request.waiter.bytes;
    }

    fn insert(&mut self, request: WaitingRequest, end: End) {
        self.len += 1;
        self.bytes += request.waiter.bytes;
        let line = match class(&request.request.command) {
            Class::Close => &mut self.closes,
            Class::Of(namespace) => {
                let line = self.others.entry(namespace).or_default();
                if line.is_empty() {
                    match end {
                        End::Front => self.turns.push_front(namespace),
                        End::Back => self.turns.push_back(namespace),
                    }
                }
                line
            }
        };
        match end {
            End::Front => line.push_front(request),
            End::Back => line.push_back(request),
        }
    }
}

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

/// Where in an entry a command belongs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    /// It gives something free, so it comes before those who want it.
    Close,
    /// It takes its turn among the namespaces. Two that share a number share their turns, no more.
    Of(u64),
}

fn class(command: &Command) -> Class {
    match command {
        Command::CloseSession { .. } => Class::Close,
        Command::OpenSession { namespace, .. } => Class::Of(number_of(namespace)),
        Command::CreateCache { name, .. } | Command::DeleteCache { name } => Class::Of(number_of(&name.namespace)),
        Command::Put { cache, .. } | Command::Delete { cache, .. } | Command::Touch { cache, .. } => {
            Class::Of(number_of(&cache.namespace))
        }
        Command::Acknowledge { .. } | Command::TakeBlock { .. } | Command::System(_) => Class::Of(0),
    }
}

/// A number for a namespace (FNV-1a): equal for equal names, and cheaper to keep than the name.
fn number_of(namespace: &Namespace) -> u64 {
    let bytes = namespace.tenant.bytes().chain([0]).chain(namespace.name.bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// About how many bytes a request takes in an entry, never less than it really takes.
pub(crate) fn request_bytes(request: &Request) -> usize {
    const FIXED: usize = 160;
    let origin = match &request.origin {
        Origin::Session { acknowledged, .. } => acknowledged.also.len() * 10,
        Origin::Anonymous | Origin::OneShot { .. } => 0,
    };
    FIXED + origin + command_bytes(&request.command)
}

fn command_bytes(command: &Command) -> usize {
    let of_namespace = |namespace: &Namespace| namespace.tenant.len() + namespace.name.len();
    let of_guard = |guard: &Option<Guard>| match guard {
        Some(Guard::Value(value)) => value.len(),
        _ => 0,
    };
    match command {
        Command::OpenSession { label, namespace, .. } => label.len() + of_namespace(namespace),
        Command::CloseSession { .. } | Command::TakeBlock { .. } => 0,
        Command::Acknowledge { acknowledged, .. } => acknowledged.also.len() * 10,
        Command::CreateCache { name, .. } | Command::DeleteCache { name } => {
            of_namespace(&name.namespace) + name.name.len()
        }
        Command::Put {
            cache,
            key,
            value,
            guard,
            ..
        } => of_namespace(&cache.namespace) + cache.name.len() + key.len() + value.len() + of_guard(guard),
        Command::Delete { cache, key, guard } | Command::Touch { cache, key, guard, .. } => {
            of_namespace(&cache.namespace) + cache.name.len() + key.len() + of_guard(guard)
        }
        Command::System(SystemCommand::AddNode { address, .. }) => address.len(),
        Command::System(SystemCommand::AssignNamespace { namespace }) => of_namespace(namespace),
        Command::System(_) => 0,
    }
}

#[cfg(test)]
mod tests;
