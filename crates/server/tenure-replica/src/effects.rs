//! What the node hears of what was applied.

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::time::{Span, Timestamp};

/// Whom a group tells what happened. Called on the thread of the apply, in the order of the log: it must hand
/// on quickly and never block.
///
/// Effects only wake those who wait; the outcome itself is state, already readable when this is called.
pub trait EffectSink: Send + Sync {
    /// An entry was applied. The answers to its requests have been given before.
    fn applied(&self, group: GroupId, effects: &[Effect], revision: Revision, time: Timestamp);

    /// A snapshot replaced the state: whoever follows the changes has missed some, and begins anew behind this
    /// revision.
    fn reset(&self, group: GroupId, revision: Revision);

    /// The group has stopped on this node and says why. It answers nothing any more; the node goes on.
    fn stopped(&self, group: GroupId, why: &str);

    /// An entry was proposed here that holds so much.
    fn proposed(&self, group: GroupId, size: EntrySize) {
        let _ = (group, size);
    }

    /// An entry ended something, and the first of what it ended was due so long before the entry's time.
    fn ended_late(&self, group: GroupId, late: Span) {
        let _ = (group, late);
    }

    /// What all groups share has failed, such as a sync of the log, which is never tried again: the node must
    /// stop. Called after [`stopped`](EffectSink::stopped) of the group that met it.
    fn node_must_stop(&self, why: &str) {
        let _ = why;
    }
}

/// What a proposed entry holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EntrySize {
    /// Requests.
    pub requests: usize,
    /// Keep-alives.
    pub keep_alives: usize,
    /// Bytes, encoded.
    pub bytes: usize,
}
