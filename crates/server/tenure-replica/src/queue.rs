//! What waits to be proposed: bounded, fair between namespaces, each request answered exactly once.
//!
//! A request that would wait too long is refused when it comes: what may wait is what the line takes in
//! [`QueueLimits::wait_max`], as it was measured while it had more than it could take. A namespace may have as much
//! of that as is still free, so one that floods leaves half of it to the others, two leave a third, and so on; one
//! that has nothing waiting is not refused for the wait of others at all.
//!
//! Everything that waits goes into the next entry as far as it has room: keep-alives first, then closes up to
//! their share, then the rest, one of each namespace in turn. Nothing waits for company, and what did not fit
//! into one entry begins the next.

mod keep_alives;
mod pace;
mod weight;

pub(crate) use keep_alives::WaitingKeepAlive;
pub use weight::{namespace_of, request_bytes};

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

use tenure_core::command::Request;
use tenure_core::ids::SessionRef;
use tenure_core::limits::{ENTRY_BYTES_MAX, ENTRY_COMMANDS_MAX, ENTRY_KEEP_ALIVES_MAX};
use tenure_core::response::{Answer, KeptAlive};
use tenure_core::time::Timestamp;

use self::keep_alives::KeepAliveLine;
use self::pace::{Pace, units};
use self::weight::{Class, class};
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

/// How much may wait. Whoever fills it alone gets half of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// Requests.
    pub queue_len_max: usize,
    /// Bytes of requests.
    pub queue_bytes_max: usize,
    /// How long a request waits at most before it is taken, as far as can be known when it comes.
    pub wait_max: Duration,
}

impl Default for QueueLimits {
    fn default() -> QueueLimits {
        QueueLimits {
            queue_len_max: 65_536,
            queue_bytes_max: 64 << 20,
            wait_max: Duration::from_secs(1),
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
    of_peer: bool,
}

impl Waiter {
    /// Until when the answer is waited for.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.deadline
    }

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
    /// Takes out the requests that another node handed on.
    pub(crate) fn split_of_peers(&mut self) -> Batch {
        let requests = self.requests.extract_if(.., |waiting| waiting.waiter.of_peer);
        Batch {
            keep_alives: Vec::new(),
            requests: requests.collect(),
        }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.keep_alives.is_empty() && self.requests.is_empty()
    }

    /// Answers everything in it with this error.
    pub(crate) fn fail(self, error: &Unavailable) {
        for keep_alive in self.keep_alives {
            keep_alive.answer(&Err(error.clone()));
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
    closes: ClassLine,
    others: BTreeMap<u64, ClassLine>,
    turns: VecDeque<u64>,
    pace: Pace,
    held: Held,
}

/// The requests of one class.
#[derive(Default)]
struct ClassLine {
    requests: VecDeque<WaitingRequest>,
    held: Held,
}

/// How much waits.
#[derive(Clone, Copy, Default)]
struct Held {
    len: usize,
    bytes: usize,
    /// Commands or kibibytes, whichever is more, of each request.
    units: usize,
}

impl WaitingLine {
    pub(crate) fn new(limits: QueueLimits) -> WaitingLine {
        WaitingLine {
            limits,
            keep_alives: KeepAliveLine::default(),
            bumped: None,
            closes: ClassLine::default(),
            others: BTreeMap::new(),
            turns: VecDeque::new(),
            pace: Pace::default(),
            held: Held::default(),
        }
    }

    /// Puts a request into the line. `deadline` and `arrived` are instants of the local clock.
    ///
    /// # Errors
    /// [`Unavailable::Overloaded`] if the line is full or the request's class has its share of it;
    /// [`Unavailable::Deadline`] if the deadline has passed.
    pub(crate) fn push(
        &mut self,
        request: Request,
        deadline: Option<Duration>,
        arrived: Duration,
    ) -> Result<Ticket, Unavailable> {
        self.take_in(request, deadline, arrived, false)
    }

    /// Puts a request that another node handed on into the line. It is not handed on again.
    ///
    /// # Errors
    /// As [`push`](WaitingLine::push).
    pub(crate) fn push_of_peer(
        &mut self,
        request: Request,
        deadline: Option<Duration>,
        arrived: Duration,
    ) -> Result<Ticket, Unavailable> {
        self.take_in(request, deadline, arrived, true)
    }

    fn take_in(
        &mut self,
        request: Request,
        deadline: Option<Duration>,
        arrived: Duration,
        of_peer: bool,
    ) -> Result<Ticket, Unavailable> {
        if deadline.is_some_and(|deadline| deadline <= arrived) {
            return Err(Unavailable::Deadline);
        }
        let bytes = request_bytes(&request);
        if !self.has_room(class(&request.command), bytes, arrived) {
            return Err(Unavailable::Overloaded {
                retry_after: self.pace.retry_after(self.held.units),
            });
        }
        if self.held.len == 0 {
            self.pace.note_first(arrived);
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
            of_peer,
        };
        self.insert(WaitingRequest { request, waiter }, End::Back);
        Ok(ticket)
    }

    /// Whether a request of this class may come in. A class may hold as much as the line still has free.
    fn has_room(&self, class: Class, bytes: usize, now: Duration) -> bool {
        let own = match class {
            Class::Close => self.closes.held,
            Class::Of(namespace) => self.others.get(&namespace).map_or(Held::default(), |lane| lane.held),
        };
        let fits =
            |own: usize, all: usize, more: usize, max: usize| own.saturating_add(more) <= max.saturating_sub(all);
        let QueueLimits {
            queue_len_max,
            queue_bytes_max,
            wait_max,
        } = self.limits;
        let units_max = self.pace.room(wait_max, now);
        fits(own.len, self.held.len, 1, queue_len_max)
            && fits(own.bytes, self.held.bytes, bytes, queue_bytes_max)
            && (own.len == 0 || fits(own.units, self.held.units, units(bytes), units_max))
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
        let mut taken_units = 0;
        let mut closes = 0;
        let full = loop {
            if batch.requests.len() >= ENTRY_COMMANDS_MAX {
                break true;
            }
            let Some(request) = self.pop_alive(now, closes < ENTRY_CLOSES_FIRST_MAX) else {
                break false;
            };
            if !batch.requests.is_empty() && bytes + request.waiter.bytes > ENTRY_BYTES_MAX {
                self.bump(request);
                break true;
            }
            if request.waiter.slot.take(TAKEN) {
                bytes += request.waiter.bytes;
                taken_units += units(request.waiter.bytes);
                closes += usize::from(class(&request.request.command) == Class::Close);
                batch.requests.push(request);
            }
        };
        self.pace.note_taken(now, taken_units, full, self.held.len > 0);
        batch
    }

    /// Puts what was taken and provably not proposed back to where it was.
    pub(crate) fn put_back(&mut self, batch: Batch) {
        for keep_alive in batch.keep_alives {
            self.keep_alives.put_back(keep_alive);
        }
        // It came behind what is put back.
        if let Some(bumped) = self.bumped.take() {
            self.held.take(&bumped);
            self.insert(bumped, End::Front);
        }
        if let Some(oldest) = batch.requests.iter().map(|request| request.waiter.arrived).min() {
            self.pace.note_first(oldest);
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
        self.keep_alives.is_empty() && self.held.len == 0
    }

    /// Requests that wait, given-up ones included.
    pub(crate) fn len(&self) -> usize {
        self.held.len
    }

    /// Their bytes, about.
    pub(crate) fn bytes(&self) -> usize {
        self.held.bytes
    }

    /// Keep-alives that wait.
    pub(crate) fn keep_alives(&self) -> usize {
        self.keep_alives.len()
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
            None if closes_first => self.closes.pop().or_else(|| self.pop_turn())?,
            None => self.pop_turn().or_else(|| self.closes.pop())?,
        };
        self.held.take(&request);
        Some(request)
    }

    /// Takes the request whose namespace has its turn; then it is the next one's.
    fn pop_turn(&mut self) -> Option<WaitingRequest> {
        let turn = self.turns.pop_front()?;
        let waiting = self
            .others
            .get_mut(&turn)
            .expect("a namespace has a turn while it has requests");
        let request = waiting.pop().expect("a namespace without requests has no turn");
        if waiting.requests.is_empty() {
            self.others.remove(&turn);
        } else {
            self.turns.push_back(turn);
        }
        Some(request)
    }

    /// Keeps a request for the front of the next entry.
    fn bump(&mut self, request: WaitingRequest) {
        self.held.add(&request);
        self.bumped = Some(request);
    }

    fn insert(&mut self, request: WaitingRequest, end: End) {
        self.held.add(&request);
        let lane = match class(&request.request.command) {
            Class::Close => &mut self.closes,
            Class::Of(namespace) => {
                let lane = self.others.entry(namespace).or_default();
                if lane.requests.is_empty() {
                    match end {
                        End::Front => self.turns.push_front(namespace),
                        End::Back => self.turns.push_back(namespace),
                    }
                }
                lane
            }
        };
        lane.held.add(&request);
        match end {
            End::Front => lane.requests.push_front(request),
            End::Back => lane.requests.push_back(request),
        }
    }
}

impl ClassLine {
    fn pop(&mut self) -> Option<WaitingRequest> {
        let request = self.requests.pop_front()?;
        self.held.take(&request);
        Some(request)
    }
}

impl Held {
    fn add(&mut self, request: &WaitingRequest) {
        self.len += 1;
        self.bytes += request.waiter.bytes;
        self.units += units(request.waiter.bytes);
    }

    fn take(&mut self, request: &WaitingRequest) {
        self.len -= 1;
        self.bytes -= request.waiter.bytes;
        self.units -= units(request.waiter.bytes);
    }
}

#[derive(Clone, Copy)]
enum End {
    Front,
    Back,
}

#[cfg(test)]
mod tests;
