//! The keep-alives that wait: one for each session, however often it is asked for, first come, first served.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::sync::oneshot;

use tenure_core::ids::SessionRef;
use tenure_core::limits::SESSIONS_MAX;

use super::{KeptAliveAnswered, RETRY_AFTER};
use crate::error::Unavailable;

/// Callers that wait for the same keep-alive.
const CALLERS_PER_KEEP_ALIVE_MAX: usize = 64;

/// Session and secret: another secret is another keep-alive, which the machine refuses.
type Key = (u64, u128);

/// The waiting keep-alives of one group. Those that came first are taken first, so that no number of sessions
/// keeps another one from being kept alive.
#[derive(Default)]
pub(super) struct KeepAliveLine {
    waiting: BTreeMap<Key, WaitingKeepAlive>,
    /// Whose turn it is, by the number that each was given when it came.
    turns: BTreeMap<u64, Key>,
    next_turn: u64,
}

/// A keep-alive that waits, for everybody who asked for it.
pub(crate) struct WaitingKeepAlive {
    pub(crate) session: SessionRef,
    pub(crate) callers: Vec<oneshot::Sender<KeptAliveAnswered>>,
    arrived: Duration,
    turn: u64,
}

impl WaitingKeepAlive {
    /// Answers everybody who asked for it.
    pub(crate) fn answer(self, answered: &KeptAliveAnswered) {
        for caller in self.callers {
            let _ = caller.send(answered.clone());
        }
    }
}

impl KeepAliveLine {
    /// Puts a keep-alive at the back, or joins the one of the same session.
    ///
    /// # Errors
    /// [`Unavailable::Overloaded`] beyond what honest sessions can ask for.
    pub(super) fn push(
        &mut self,
        session: SessionRef,
        arrived: Duration,
    ) -> Result<oneshot::Receiver<KeptAliveAnswered>, Unavailable> {
        let overloaded = Unavailable::Overloaded {
            retry_after: RETRY_AFTER,
        };
        let full = self.waiting.len() >= SESSIONS_MAX;
        let (sender, receiver) = oneshot::channel();
        match self.waiting.get_mut(&key_of(session)) {
            Some(waiting) => {
                waiting.callers.retain(|caller| !caller.is_closed());
                if waiting.callers.len() >= CALLERS_PER_KEEP_ALIVE_MAX {
                    return Err(overloaded);
                }
                waiting.callers.push(sender);
            }
            None if full => return Err(overloaded),
            None => {
                let turn = self.next_turn;
                self.next_turn += 1;
                self.insert(WaitingKeepAlive {
                    session,
                    callers: vec![sender],
                    arrived,
                    turn,
                });
            }
        }
        Ok(receiver)
    }

    /// Takes the one that came first.
    pub(super) fn pop(&mut self) -> Option<WaitingKeepAlive> {
        let (_, key) = self.turns.pop_first()?;
        let keep_alive = self.waiting.remove(&key);
        Some(keep_alive.expect("whatever has a turn waits"))
    }

    /// Puts one that was taken back to where it was, together with whoever asked for the same meanwhile.
    pub(super) fn put_back(&mut self, mut keep_alive: WaitingKeepAlive) {
        if let Some(later) = self.waiting.remove(&key_of(keep_alive.session)) {
            self.turns.remove(&later.turn);
            keep_alive.callers.extend(later.callers);
        }
        self.insert(keep_alive);
    }

    /// Takes those that have waited since before this instant.
    pub(super) fn take_older(&mut self, arrived_before: Duration) -> Vec<WaitingKeepAlive> {
        let is_old = |_: &Key, keep_alive: &mut WaitingKeepAlive| keep_alive.arrived < arrived_before;
        let mut old: Vec<_> = self.waiting.extract_if(.., is_old).map(|(_, old)| old).collect();
        old.sort_unstable_by_key(|keep_alive| keep_alive.turn);
        for keep_alive in &old {
            self.turns.remove(&keep_alive.turn);
        }
        old
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// How many wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len()
    }

    fn insert(&mut self, keep_alive: WaitingKeepAlive) {
        let key = key_of(keep_alive.session);
        self.turns.insert(keep_alive.turn, key);
        self.waiting.insert(key, keep_alive);
    }
}

fn key_of(session: SessionRef) -> Key {
    (session.id.0, session.secret.0)
}
