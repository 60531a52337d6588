//! What waits to be written, in the order in which it was asked for.

use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use bytes::Bytes;

use super::Done;
use super::group::Group;
use super::record::HEADER_LENGTH;
use crate::error::LogFailed;

/// So many notes of what is committed may wait for a batch to ride on before they make one of their own.
const PASSIVE_OPS_MAX: usize = 1024;

/// One thing to write, or to answer in its turn.
pub(super) enum Op {
    /// Entries of one group, contiguous, at most a batch. Only the last part of an append has somebody to call back.
    Append {
        group: Arc<Group>,
        entries: Vec<(u64, Bytes)>,
        done: Option<Done>,
    },
    Vote {
        group: Arc<Group>,
        vote: Bytes,
        done: Done,
    },
    Committed {
        group: Arc<Group>,
        committed: Bytes,
    },
    Truncate {
        group: Arc<Group>,
        next: u64,
        done: Done,
    },
    Purge {
        group: Arc<Group>,
        upto: u64,
        id: Bytes,
        done: Done,
    },
    Remove {
        group: Arc<Group>,
        done: Done,
    },
    /// Nothing is written; whoever asked is told so after those who asked before.
    Refused {
        error: LogFailed,
        done: Done,
    },
}

/// What to do after something was queued.
#[must_use]
pub(super) enum Queued {
    Nothing,
    /// Nobody writes at the moment and there is no thread for it: the caller does.
    DrainHere,
    /// The log is closed.
    Closed(Op),
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<QueueState>,
    filled: Condvar,
    ended: Condvar,
}

#[derive(Default)]
struct QueueState {
    ops: VecDeque<Op>,
    bytes: usize,
    bytes_max: usize,
    /// How many of the operations do not wait for others to make a batch.
    active_ops: usize,
    /// Without a writer's thread: somebody is writing.
    draining: bool,
    /// The writer's thread waits to be woken.
    waiting: bool,
    stopping: bool,
    writer_ended: bool,
}

impl Op {
    /// What it takes in a batch, in bytes.
    pub(super) fn length(&self) -> usize {
        match self {
            Op::Append { entries, .. } => entries.iter().map(|(_, payload)| HEADER_LENGTH + payload.len()).sum(),
            Op::Vote { vote: payload, .. }
            | Op::Committed { committed: payload, .. }
            | Op::Purge { id: payload, .. } => HEADER_LENGTH + payload.len(),
            Op::Truncate { .. } | Op::Remove { .. } => HEADER_LENGTH,
            Op::Refused { .. } => 0,
        }
    }

    fn is_passive(&self) -> bool {
        matches!(self, Op::Committed { .. })
    }

    /// Tells whoever asked.
    pub(super) fn finish(self, written: &Result<(), LogFailed>) {
        match self {
            Op::Append { done: Some(done), .. }
            | Op::Vote { done, .. }
            | Op::Truncate { done, .. }
            | Op::Purge { done, .. }
            | Op::Remove { done, .. } => done(written.clone()),
            Op::Refused { error, done } => done(Err(error)),
            Op::Append { done: None, .. } | Op::Committed { .. } => {}
        }
    }
}

impl Queue {
    /// Puts operations behind the others, all or none: `op` behind those in `before`. With `inline` the first caller
    /// that finds nobody writing is asked to.
    pub(super) fn push(&self, before: Vec<Op>, op: Op, inline: bool) -> Queued {
        let mut state = self.state();
        if state.writer_ended || state.stopping {
            return Queued::Closed(op);
        }
        for op in before {
            state.push(op);
        }
        state.push(op);
        if !state.has_work() {
            return Queued::Nothing;
        }
        if inline {
            return if std::mem::replace(&mut state.draining, true) {
                Queued::Nothing
            } else {
                Queued::DrainHere
            };
        }
        if std::mem::take(&mut state.waiting) {
            drop(state);
            self.filled.notify_one();
        }
        Queued::Nothing
    }

    /// Whether nothing more is accepted.
    pub(super) fn is_closed(&self) -> bool {
        let state = self.state();
        state.writer_ended || state.stopping
    }

    /// For the writer's thread: waits for work and moves one batch of it into `ops`. `false`: the log is being closed
    /// and nothing is left.
    pub(super) fn wait(&self, length_max: usize, ops: &mut Vec<Op>) -> bool {
        let mut state = self.state();
        while !state.has_work() && !state.stopping {
            state.waiting = true;
            state = self.filled.wait(state).expect(NO_PANIC);
        }
        state.waiting = false;
        state.take(length_max, ops);
        !ops.is_empty()
    }

    /// Without a thread: moves one batch of work into `ops`. `false`: nothing is left, and the next caller drains.
    pub(super) fn take_or_leave(&self, length_max: usize, ops: &mut Vec<Op>) -> bool {
        let mut state = self.state();
        if state.has_work() || state.stopping {
            state.take(length_max, ops);
        }
        state.draining = !ops.is_empty();
        state.draining
    }

    /// Accepts nothing more. With `inline`, whether the caller must drain what is left.
    pub(super) fn stop(&self, inline: bool) -> bool {
        let mut state = self.state();
        state.stopping = true;
        state.waiting = false;
        self.filled.notify_all();
        inline && !std::mem::replace(&mut state.draining, inline)
    }

    /// The writer is gone: nobody takes anything more. What is left is handed back.
    pub(super) fn end(&self) -> VecDeque<Op> {
        let mut state = self.state();
        state.writer_ended = true;
        state.bytes = 0;
        state.active_ops = 0;
        self.ended.notify_all();
        std::mem::take(&mut state.ops)
    }

    /// Waits until the writer is gone.
    pub(super) fn wait_ended(&self) {
        let mut state = self.state();
        while !state.writer_ended {
            state = self.ended.wait(state).expect(NO_PANIC);
        }
    }

    /// The bytes that wait, and the most that ever did.
    pub(super) fn bytes(&self) -> (usize, usize) {
        let state = self.state();
        (state.bytes, state.bytes_max)
    }

    fn state(&self) -> MutexGuard<'_, QueueState> {
        self.state.lock().expect(NO_PANIC)
    }
}

const NO_PANIC: &str = "nothing panics while it holds the queue";

impl QueueState {
    fn has_work(&self) -> bool {
        self.active_ops > 0 || self.ops.len() > PASSIVE_OPS_MAX
    }

    fn push(&mut self, op: Op) {
        self.bytes += op.length();
        self.bytes_max = self.bytes_max.max(self.bytes);
        if let (Op::Committed { group, .. }, Some(last)) = (&op, self.ops.back_mut())
            && matches!(last, Op::Committed { group: last_group, .. } if Arc::ptr_eq(group, last_group))
        {
            // Nothing lies between the two, so the first need not be written.
            self.bytes -= last.length();
            *last = op;
            return;
        }
        self.active_ops += usize::from(!op.is_passive());
        self.ops.push_back(op);
    }

    fn take(&mut self, length_max: usize, ops: &mut Vec<Op>) {
        let mut length = 0;
        while let Some(op) = self.ops.front() {
            let more = op.length();
            if !ops.is_empty() && length + more > length_max {
                break;
            }
            length += more;
            self.bytes -= more;
            self.active_ops -= usize::from(!op.is_passive());
            ops.extend(self.ops.pop_front());
        }
    }
}
