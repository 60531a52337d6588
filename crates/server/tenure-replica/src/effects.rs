//! What the node hears of what was applied.

use tenure_core::effect::Effect;
use tenure_core::ids::{GroupId, Revision};
use tenure_core::time::Timestamp;

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

    /// What all groups share has failed, such as a sync of the log, which is never tried again: the node must
    /// stop. Called after [`stopped`](EffectSink::stopped) of the group that met it.
    fn node_must_stop(&self, why: &str) {
        let _ = why;
    }
}
