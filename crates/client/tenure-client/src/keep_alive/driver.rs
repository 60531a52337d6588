//! The loop that carries out what the schedules want.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt};

use tenure_api::limits::KEEP_ALIVE_SESSIONS_MAX;
use tenure_api::v1::{
    CloseSessionRequest, KeepAliveReply, KeepAliveRequest, KeptAlive, Scope, SessionInGroup, client_frame, kept_alive,
    server_frame,
};
use tenure_recipes::LostReason;
use tenure_recipes::session::{DISAGREEMENT_MAX, Step};

use super::Inbox;
use crate::pool::Pool;
use crate::runtime::Instants;
use crate::session::{Kept, SessionKey, ended};

/// The driver looks at the clocks at least so often, so that a suspended machine is noticed soon after it wakes.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);
/// A connection over which nothing has come for so long, while an answer was due, is not used any more.
const SILENCE: Duration = Duration::from_secs(1);
/// Attempts and farewells on the way. A session whose attempt finds no room tries again like after a failure.
const UNDER_WAY_MAX: usize = 4_096;
/// An answer that comes later than this counts for nobody.
const ANSWER_WAIT_MAX: Duration = Duration::from_secs(60);
/// How long the server is given to hear of the last farewells when the client ends.
const FAREWELL_TIMEOUT: Duration = Duration::from_secs(1);

/// Renews sessions until nobody is left who could have one.
pub(super) struct Driver {
    pool: Arc<Pool>,
    inbox: Arc<Inbox>,
    sessions: BTreeMap<u64, Entry>,
    /// When each session is to be looked at, on the boot-time clock.
    wakes: BTreeSet<(Duration, u64)>,
    under_way: FuturesUnordered<BoxFuture<'static, Done>>,
    attempts: u64,
    last_look: Instants,
}

/// A session with what the driver knows of it.
struct Entry {
    kept: Arc<Kept>,
    wake: Duration,
    /// The endpoint to ask.
    endpoint: usize,
    /// An attempt without an answer: then the next one goes elsewhere.
    unanswered: bool,
}

/// What has come to its end.
enum Done {
    Attempt {
        attempt: u64,
        sessions: Vec<u64>,
        reply: Option<KeepAliveReply>,
    },
    Farewell,
}

impl Drop for Driver {
    fn drop(&mut self) {
        // Whatever ended the loop: the next session finds out at once and starts another.
        self.inbox.lock().over = true;
    }
}

impl Driver {
    pub(super) fn new(pool: Pool, inbox: Arc<Inbox>) -> Driver {
        Driver {
            last_look: pool.now(),
            pool: Arc::new(pool),
            inbox,
            sessions: BTreeMap::new(),
            wakes: BTreeSet::new(),
            under_way: FuturesUnordered::new(),
            attempts: 0,
        }
    }

    /// The loop.
    pub(super) async fn run(mut self) {
        while !self.take_inbox() {
            self.send_what_is_due();
            let wait = self.until_next_look();
            let inbox = Arc::clone(&self.inbox);
            tokio::select! {
                biased;
                done = self.under_way.next(), if !self.under_way.is_empty() => {
                    if let Some(done) = done {
                        self.take(done);
                    }
                }
                () = inbox.changed.notified() => {}
                () = tokio::time::sleep(wait) => {}
            }
        }
        let farewells = async { while self.under_way.next().await.is_some() {} };
        // Whom they do not reach the TTL ends.
        let _ = tokio::time::timeout(FAREWELL_TIMEOUT, farewells).await;
    }

    /// Takes up what has changed; says whether to stop.
    fn take_inbox(&mut self) -> bool {
        let (added, removed, farewells, stop) = {
            let mut inbox = self.inbox.lock();
            let added = std::mem::take(&mut inbox.added);
            (
                added,
                std::mem::take(&mut inbox.removed),
                std::mem::take(&mut inbox.farewells),
                inbox.stop,
            )
        };
        for (id, kept) in added {
            let endpoint = self.pool.first(Some(kept.group));
            self.sessions.insert(
                id,
                Entry {
                    kept,
                    wake: Duration::ZERO,
                    endpoint,
                    unanswered: false,
                },
            );
            self.wakes.insert((Duration::ZERO, id));
        }
        for id in removed {
            self.forget(id);
        }
        for (scope, key) in farewells {
            if self.under_way.len() < UNDER_WAY_MAX {
                self.under_way
                    .push(farewell(Arc::clone(&self.pool), scope, key).boxed());
            }
        }
        stop
    }

    /// Asks the schedules that are due what to do, and sends it in as few messages as can be.
    fn send_what_is_due(&mut self) {
        let mut batches: BTreeMap<usize, Vec<u64>> = BTreeMap::new();
        let now = self.pool.now().boot;
        let due: Vec<u64> = self.wakes.range(..=(now, u64::MAX)).map(|(_, id)| *id).collect();
        for id in due {
            self.look_at(id, &mut batches);
        }
        for (endpoint, sessions) in batches {
            for part in sessions.chunks(KEEP_ALIVE_SESSIONS_MAX) {
                self.send(endpoint, part);
            }
        }
    }

    /// Looks at one session: sends for it, waits on, or lets it go.
    fn look_at(&mut self, id: u64, batches: &mut BTreeMap<usize, Vec<u64>>) {
        let Some(entry) = self.sessions.get_mut(&id) else {
            return;
        };
        let step = entry.kept.with(|schedule, now| schedule.step(now));
        self.wakes.remove(&(entry.wake, id));
        match step {
            Step::Lost(reason) => {
                tracing::debug!(session = entry.kept.key.id(), ?reason, "a session is lost");
                self.sessions.remove(&id);
            }
            Step::Wait { until } => {
                entry.wake = until;
                self.wakes.insert((until, id));
            }
            Step::Send { .. } => {
                if std::mem::replace(&mut entry.unanswered, true) {
                    self.pool.retire_if_silent(entry.endpoint, SILENCE);
                    entry.endpoint = self.pool.after(entry.endpoint);
                } else if let Some(leader) = self.pool.open_leader(entry.kept.group) {
                    entry.endpoint = leader;
                }
                batches.entry(entry.endpoint).or_default().push(id);
            }
        }
    }

    fn send(&mut self, endpoint: usize, ids: &[u64]) {
        self.attempts += 1;
        let attempt = self.attempts;
        let mut asked = Vec::with_capacity(ids.len());
        let mut sessions = Vec::with_capacity(ids.len());
        let mut wait = Duration::ZERO;
        for id in ids {
            if let Some(entry) = self.sessions.get_mut(id) {
                let kept = &entry.kept;
                // The instant is read before anything is sent, and counts from there.
                entry.wake = kept.with(|schedule, now| {
                    schedule.sent(now, attempt);
                    schedule.deadline().min(now.boot + schedule.attempt_timeout())
                });
                self.wakes.insert((entry.wake, *id));
                wait = wait.max(kept.ttl);
                asked.push(*id);
                sessions.push(SessionInGroup {
                    group: kept.group,
                    session: Some(kept.key.to_wire()),
                });
            }
        }
        if self.under_way.len() >= UNDER_WAY_MAX {
            self.fail(attempt, &asked);
            return;
        }
        let request = KeepAliveRequest { sessions, attempt };
        let asking = ask(Arc::clone(&self.pool), endpoint, request, wait.min(ANSWER_WAIT_MAX));
        self.under_way.push(
            asking
                .map(move |reply| Done::Attempt {
                    attempt,
                    sessions: asked,
                    reply,
                })
                .boxed(),
        );
    }

    /// Takes what came of an attempt.
    fn take(&mut self, done: Done) {
        let Done::Attempt {
            attempt,
            sessions,
            reply,
        } = done
        else {
            return;
        };
        let Some(reply) = reply.filter(|reply| reply.attempt == attempt) else {
            self.fail(attempt, &sessions);
            return;
        };
        self.pool.saw(&reply.headers);
        let mut results = BTreeMap::new();
        for KeptAlive { group, session, result } in reply.sessions {
            results.entry((group, session)).or_insert(result);
        }
        for id in sessions {
            let Some(entry) = self.sessions.get_mut(&id) else {
                continue;
            };
            let kept = Arc::clone(&entry.kept);
            match results.get(&(kept.group, kept.key.id())).and_then(Option::as_ref) {
                Some(kept_alive::Result::Renewed(renewed)) => {
                    let remaining = renewed.remaining_us.map_or(kept.ttl, Duration::from_micros);
                    kept.with(|schedule, now| schedule.answered(now, attempt, remaining));
                    entry.unanswered = false;
                }
                Some(kept_alive::Result::Ended(end)) => {
                    kept.with(|schedule, now| schedule.ended(now, attempt, ended(end)));
                }
                Some(kept_alive::Result::Unknown(_)) => {
                    kept.with(|schedule, now| schedule.ended(now, attempt, LostReason::Unknown));
                }
                Some(kept_alive::Result::Failed(error)) => {
                    if let Some(hint) = &error.leader {
                        self.pool.led(hint);
                    }
                    kept.with(|schedule, now| schedule.failed(now, attempt));
                }
                None => {
                    kept.with(|schedule, now| schedule.failed(now, attempt));
                }
            }
            self.look_soon(id);
        }
    }

    /// Nothing is known of these: an error is not a loss.
    fn fail(&mut self, attempt: u64, sessions: &[u64]) {
        for id in sessions {
            if let Some(entry) = self.sessions.get(id) {
                entry.kept.with(|schedule, now| schedule.failed(now, attempt));
                self.look_soon(*id);
            }
        }
    }

    /// The session's schedule has changed: it says in the next round when it is to be looked at.
    fn look_soon(&mut self, id: u64) {
        if let Some(entry) = self.sessions.get_mut(&id) {
            self.wakes.remove(&(entry.wake, id));
            entry.wake = Duration::ZERO;
            self.wakes.insert((entry.wake, id));
        }
    }

    fn forget(&mut self, id: u64) {
        if let Some(entry) = self.sessions.remove(&id) {
            self.wakes.remove(&(entry.wake, id));
        }
    }

    /// How long nothing needs to be looked at. After a suspension every session is looked at at once.
    fn until_next_look(&mut self) -> Duration {
        let now = self.pool.now();
        let slept = now.disagreement_since(self.last_look) > DISAGREEMENT_MAX;
        self.last_look = now;
        if slept {
            let ids: Vec<u64> = self.sessions.keys().copied().collect();
            for id in ids {
                self.look_soon(id);
            }
            return Duration::ZERO;
        }
        match self.wakes.first() {
            Some((wake, _)) => wake.saturating_sub(now.boot).min(LOOK_INTERVAL),
            None => ANSWER_WAIT_MAX,
        }
    }
}

/// One attempt at one endpoint.
async fn ask(pool: Arc<Pool>, endpoint: usize, request: KeepAliveRequest, wait: Duration) -> Option<KeepAliveReply> {
    let asking = async {
        let stream = pool.link_stream(endpoint).await.ok()?;
        let body = client_frame::Body::KeepAlive(request);
        match stream.request(body, wait, &AtomicUsize::new(0)).await.ok()?.body {
            server_frame::Body::KeepAlive(reply) => Some(reply),
            _ => None,
        }
    };
    tokio::time::timeout(wait, asking).await.ok().flatten()
}

/// Tells the server that a session is not needed any more, once.
async fn farewell(pool: Arc<Pool>, scope: Scope, key: SessionKey) -> Done {
    let request = CloseSessionRequest {
        scope: Some(scope),
        session: Some(key.to_wire()),
        force: false,
        request: None,
        timeout_ms: 0,
    };
    let telling = async {
        if let Ok(stream) = pool.stream(pool.first(None), FAREWELL_TIMEOUT).await {
            let body = client_frame::Body::CloseSession(request);
            let _ = stream.request(body, FAREWELL_TIMEOUT, &AtomicUsize::new(0)).await;
        }
    };
    // Whom it does not reach the TTL ends.
    let _ = tokio::time::timeout(FAREWELL_TIMEOUT, telling).await;
    Done::Farewell
}
