//! Proposing on a node that does not lead: what waits is handed to the leader, and the leader's half of that.
//!
//! What was surely not proposed, because it was never sent or the other node does not lead, is put back and tried again.
//! What was sent and has no reply is unknown, and is never sent again. A request with an identity is also answered by this
//! node's own apply, whichever comes first: unless its answer says how long something lives, which an entry of an earlier
//! attempt would say too generously.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tokio::sync::oneshot;

use tenure_core::codec;
use tenure_core::command::{Entry, Origin, Request};
use tenure_core::limits::{ENTRY_COMMANDS_MAX, ENTRY_KEEP_ALIVES_MAX};
use tenure_core::response::Answer;
use tenure_core::time::Timestamp;

use crate::error::Unavailable;
use crate::leadership::{self, Role};
use crate::network::{CallError, Link, peer, to_refused, to_unavailable};
use crate::queue::{Answered, Batch, KeptAliveAnswered, Ticket, WaitingRequest};
use crate::raft_types::Raft;
use crate::shared::Shared;
use peer::proposed_one::Result as One;
use peer::{peer_reply, peer_request};

/// Messages of requests that are on their way to one leader.
pub(crate) const FORWARDS_IN_FLIGHT_MAX: usize = 4;
/// How long the leader's reply is waited for.
const REPLY_WITHIN: Duration = Duration::from_secs(30);
/// How long nothing is handed on after that was in vain.
const PAUSE_AFTER_REFUSAL: Duration = Duration::from_millis(10);
/// Bytes of answers in one message. One answer may be longer by itself.
const ANSWERS_BYTES_MAX: usize = 3 << 20;

/// Messages on their way to one leader.
#[derive(Clone)]
pub(crate) struct Forwards {
    pub(crate) role: Role,
    pub(crate) in_flight: Arc<AtomicUsize>,
}

/// What was handed on in one message, until it is answered.
struct Handed {
    batch: Mutex<HandedBatch>,
}

struct HandedBatch {
    keep_alives: Vec<crate::queue::WaitingKeepAlive>,
    requests: Vec<Option<WaitingRequest>>,
}

impl Handed {
    fn lock(&self) -> MutexGuard<'_, HandedBatch> {
        self.batch
            .lock()
            .expect("nothing panics while it holds what was handed on")
    }
}

/// Hands a batch to the leader, and answers it when the reply has come.
pub(crate) async fn hand_on(shared: Arc<Shared>, link: Arc<Link>, batch: Batch, now: Duration) {
    let remaining_us = batch
        .requests
        .iter()
        .map(|waiting| match waiting.waiter.deadline() {
            None => 0,
            Some(deadline) => {
                let remaining = deadline.saturating_sub(now).as_micros();
                u64::try_from(remaining).unwrap_or(u64::MAX).max(1)
            }
        })
        .collect();
    let keep_alives = batch.keep_alives.iter().map(|waiting| waiting.session).collect();
    let (requests, waiters): (Vec<Request>, Vec<_>) = batch
        .requests
        .into_iter()
        .map(|waiting| (waiting.request, waiting.waiter))
        .unzip();
    let entry = Entry {
        stamp: Timestamp(0),
        keep_alives,
        requests,
    };
    let bytes = codec::encode_entry(&entry);
    let requests = entry.requests.into_iter().zip(waiters);
    let handed = Arc::new(Handed {
        batch: Mutex::new(HandedBatch {
            keep_alives: batch.keep_alives,
            requests: requests
                .map(|(request, waiter)| Some(WaitingRequest { request, waiter }))
                .collect(),
        }),
    });
    // Before it is sent: its apply here may be quicker than the reply.
    let registered = shared.expected.register(&handed);
    let body = peer_request::Body::Propose(peer::Propose {
        entry: bytes,
        remaining_us,
    });
    let replied = link.call(shared.group, body, REPLY_WITHIN).await;
    shared.expected.forget(&registered);
    settle(&shared, &handed, replied);
}

fn settle(shared: &Shared, handed: &Handed, replied: Result<peer_reply::Body, CallError>) {
    let mut again = Batch::default();
    {
        let mut batch = handed.lock();
        let keep_alives = std::mem::take(&mut batch.keep_alives);
        let requests = std::mem::take(&mut batch.requests);
        drop(batch);
        let count = keep_alives.len() + requests.len();
        let mut answers = match replied {
            Ok(peer_reply::Body::Proposed(proposed)) if proposed.answers.len() == count => {
                Ok(proposed.answers.into_iter())
            }
            Ok(_) => Err(Unavailable::Internal(
                "the leader's reply is not one to what was sent".into(),
            )),
            // It was not proposed: as if it had never left the line.
            Err(CallError::NotSent(_) | CallError::Unavailable(_)) => Err(Unavailable::NoLeader),
            Err(CallError::Broken(_)) => Err(Unavailable::LeadershipLost),
            Err(CallError::Late) => Err(Unavailable::QuorumTimeout),
        };
        let mut next = move || match &mut answers {
            Ok(answers) => answers.next().and_then(|one| one.result),
            Err(error) => Some(One::Refused(to_refused(error))),
        };
        for keep_alive in keep_alives {
            match to_kept_alive(next()) {
                Err(error) if is_to_be_tried_again(&error) => again.keep_alives.push(keep_alive),
                answered => keep_alive.answer(&answered),
            }
        }
        for waiting in requests {
            let answered = to_answered(next());
            // One that is gone was answered by this node's own apply.
            let Some(waiting) = waiting else { continue };
            match answered {
                Err(error) if is_to_be_tried_again(&error) => again.requests.push(waiting),
                answered => waiting.waiter.answer(answered),
            }
        }
    }
    if again.is_empty() {
        return;
    }
    let mut proposals = shared.proposals();
    proposals.paused_until = shared.runtime.clock.now() + PAUSE_AFTER_REFUSAL;
    if proposals.open || shared.stopped().is_none() {
        proposals.waiting.put_back(again);
    } else {
        drop(proposals);
        shared.fail(again, false);
    }
}

/// Whether the other node did not propose it and another one may.
fn is_to_be_tried_again(error: &Unavailable) -> bool {
    matches!(
        error,
        Unavailable::NotLeader { .. } | Unavailable::NoLeader | Unavailable::Stopped { proposed: false, .. }
    )
}

fn malformed() -> Unavailable {
    Unavailable::Internal("the leader's answer cannot be read".into())
}

fn to_answered(one: Option<One>) -> Answered {
    match one {
        Some(One::Answer(bytes)) => codec::decode_answer(&bytes).map_err(|_| malformed()),
        Some(One::Refused(refused)) => Err(to_unavailable(&refused)),
        Some(One::KeptAlive(_)) | None => Err(malformed()),
    }
}

fn to_kept_alive(one: Option<One>) -> KeptAliveAnswered {
    match one {
        Some(One::KeptAlive(bytes)) => codec::decode_kept_alive(&bytes).map_err(|_| malformed()),
        Some(One::Refused(refused)) => Err(to_unavailable(&refused)),
        Some(One::Answer(_)) | None => Err(malformed()),
    }
}

/// Takes in what another node handed on: into this node's own line if it leads, with deadlines counted from now.
pub(crate) async fn take_in(shared: &Shared, raft: &Raft, propose: peer::Propose) -> Vec<peer_reply::Body> {
    let refuse = |why: &str| vec![peer_reply::Body::Unavailable(why.to_owned())];
    let Ok(entry) = codec::decode_entry(&propose.entry) else {
        return refuse("what was handed on cannot be read");
    };
    if entry.requests.len() != propose.remaining_us.len()
        || entry.requests.len() > ENTRY_COMMANDS_MAX
        || entry.keep_alives.len() > ENTRY_KEEP_ALIVES_MAX
    {
        return refuse("what was handed on is not an entry");
    }
    let role = leadership::role(raft, shared);
    if !matches!(role, Role::Leads(_) | Role::Begins) {
        let refused = One::Refused(to_refused(&leadership::refusal(role)));
        let count = entry.keep_alives.len() + entry.requests.len();
        return replies(std::iter::repeat_n(refused, count));
    }
    let (kept, tickets) = put_into_line(shared, entry, &propose.remaining_us);
    let mut answers = Vec::with_capacity(kept.len() + tickets.len());
    for kept in kept {
        let answered = match kept {
            Ok(receiver) => receiver.await.unwrap_or_else(|_| Err(shared.stopped_error(true))),
            Err(refused) => Err(refused),
        };
        answers.push(match answered {
            Ok((kept, time)) => One::KeptAlive(codec::encode_kept_alive(kept, time)),
            Err(error) => One::Refused(to_refused(&error)),
        });
    }
    for ticket in tickets {
        let answered = match ticket {
            Ok(mut ticket) => (&mut ticket.answer)
                .await
                .unwrap_or_else(|_| Err(shared.stopped_error(true))),
            Err(refused) => Err(refused),
        };
        answers.push(match answered {
            Ok(answer) => One::Answer(codec::encode_answer(&answer)),
            Err(error) => One::Refused(to_refused(&error)),
        });
    }
    replies(answers)
}

type InLine = (
    Vec<Result<oneshot::Receiver<KeptAliveAnswered>, Unavailable>>,
    Vec<Result<Ticket, Unavailable>>,
);

fn put_into_line(shared: &Shared, entry: Entry, remaining_us: &[u64]) -> InLine {
    let arrived = shared.runtime.clock.now();
    let mut proposals = shared.proposals();
    if !proposals.open {
        drop(proposals);
        let stopped = shared.stopped_error(false);
        let kept = entry.keep_alives.iter().map(|_| Err(stopped.clone())).collect();
        return (kept, entry.requests.iter().map(|_| Err(stopped.clone())).collect());
    }
    let line = &mut proposals.waiting;
    let keep_alives = entry.keep_alives.into_iter();
    let kept = keep_alives
        .map(|session| line.push_keep_alive(session, arrived))
        .collect();
    let requests = entry.requests.into_iter().zip(remaining_us);
    let tickets = requests
        .map(|(request, remaining_us)| {
            let deadline = match *remaining_us {
                0 => None,
                remaining => arrived.checked_add(Duration::from_micros(remaining)),
            };
            line.push_of_peer(request, deadline, arrived)
        })
        .collect();
    drop(proposals);
    shared.wake.notify_one();
    (kept, tickets)
}

/// Answers as messages that are not too long.
fn replies(answers: impl IntoIterator<Item = One>) -> Vec<peer_reply::Body> {
    let mut messages = vec![peer::Proposed::default()];
    let mut bytes = 0;
    for one in answers {
        let length = match &one {
            One::Answer(bytes) | One::KeptAlive(bytes) => bytes.len(),
            One::Refused(refused) => refused.why.len(),
        } + 64;
        if bytes > 0 && bytes + length > ANSWERS_BYTES_MAX {
            messages.push(peer::Proposed::default());
            bytes = 0;
        }
        bytes += length;
        let message = messages.last_mut().expect("there is at least one message");
        message.answers.push(peer::ProposedOne { result: Some(one) });
    }
    let last = messages.len() - 1;
    for message in &mut messages[..last] {
        message.more = true;
    }
    messages.into_iter().map(peer_reply::Body::Proposed).collect()
}

/// The requests with an identity that were handed on, as this node's own apply may answer them.
#[derive(Default)]
pub(crate) struct Expected {
    table: Mutex<Table>,
    /// How many there are, so that an apply that nobody expects anything of takes no lock.
    count: AtomicUsize,
}

#[derive(Default)]
struct Table {
    next: u64,
    expected: BTreeMap<(Identity, u64), (Arc<Handed>, usize)>,
}

/// Under what the machine remembers a request, its secret included.
type Identity = (u8, u128, u128, u64);

impl Expected {
    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table
            .lock()
            .expect("nothing panics while it holds what is expected")
    }

    fn register(&self, handed: &Arc<Handed>) -> Vec<(Identity, u64)> {
        let identities: Vec<_> = {
            let batch = handed.lock();
            let requests = batch.requests.iter().flatten().enumerate();
            requests
                .filter_map(|(position, waiting)| Some((identity(&waiting.request)?, position)))
                .collect()
        };
        if identities.is_empty() {
            return Vec::new();
        }
        let mut table = self.lock();
        let keys = identities.into_iter().map(|(identity, position)| {
            table.next += 1;
            let key = (identity, table.next);
            table.expected.insert(key, (handed.clone(), position));
            key
        });
        let keys = keys.collect();
        self.count.store(table.expected.len(), Ordering::Release);
        keys
    }

    fn forget(&self, keys: &[(Identity, u64)]) {
        if keys.is_empty() {
            return;
        }
        let mut table = self.lock();
        for key in keys {
            table.expected.remove(key);
        }
        self.count.store(table.expected.len(), Ordering::Release);
    }

    /// Answers those among the requests of an applied entry that are expected here.
    pub(crate) fn applied(&self, requests: &[Request], answers: &[Answer]) {
        if self.count.load(Ordering::Acquire) == 0 {
            return;
        }
        for (request, answer) in requests.iter().zip(answers) {
            let Some(identity) = identity(request).filter(|_| answer.remaining.is_none()) else {
                continue;
            };
            let found: Vec<_> = {
                let table = self.lock();
                let range = table.expected.range((identity, 0)..=(identity, u64::MAX));
                range.map(|(_, found)| found.clone()).collect()
            };
            for (handed, position) in found {
                let mut batch = handed.lock();
                let Some(place) = batch.requests.get_mut(position) else {
                    continue;
                };
                // Another command under the same number is refused, and this answer is not its.
                if let Some(waiting) = place.take_if(|waiting| waiting.request.command == request.command) {
                    waiting.waiter.answer(Ok(answer.clone()));
                }
            }
        }
    }
}

fn identity(request: &Request) -> Option<Identity> {
    match &request.origin {
        Origin::Anonymous => None,
        Origin::OneShot { id, .. } => Some((1, id.0, 0, 0)),
        Origin::Session { session, seq, .. } => Some((2, u128::from(session.id.0), session.secret.0, *seq)),
    }
}
