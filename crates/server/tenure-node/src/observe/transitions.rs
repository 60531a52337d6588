//! The last transitions of sessions and keys, with their reasons, for whoever asks why something is gone. Bounded by
//! number and by bytes; neither values nor secrets are kept.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use tenure_core::effect::{Change, ChangeKind, Effect};
use tenure_core::ids::{GroupId, Incarnation, SessionId};
use tenure_core::refusal::EndReason;
use tenure_core::time::Timestamp;

/// Transitions that are kept.
const TRANSITIONS_MAX: usize = 16_384;
/// Bytes of their keys.
const KEY_BYTES_MAX: usize = 4 << 20;

/// The ring.
#[derive(Debug, Default)]
pub(crate) struct Transitions(Mutex<Ring>);

#[derive(Debug, Default)]
struct Ring {
    kept: VecDeque<Transition>,
    key_bytes: usize,
}

/// One transition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Transition {
    pub(crate) group: GroupId,
    pub(crate) revision: u64,
    /// Cluster time of the entry that made it.
    pub(crate) time: Timestamp,
    pub(crate) what: What,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum What {
    SessionEnded {
        session: SessionId,
        reason: EndReason,
    },
    Put {
        incarnation: Incarnation,
        key: Bytes,
        created: u64,
        owner: Option<SessionId>,
    },
    Removed {
        incarnation: Incarnation,
        key: Bytes,
        reason: EndReason,
    },
}

impl What {
    fn key(&self) -> Option<(Incarnation, &Bytes)> {
        match self {
            What::SessionEnded { .. } => None,
            What::Put { incarnation, key, .. } | What::Removed { incarnation, key, .. } => Some((*incarnation, key)),
        }
    }

    fn concerns(&self, wanted: SessionId) -> bool {
        match self {
            What::SessionEnded { session, .. } => *session == wanted,
            What::Put { owner, .. } => *owner == Some(wanted),
            What::Removed { .. } => false,
        }
    }
}

impl Transitions {
    /// Notes what an entry did; what was noted first goes when there is no room.
    pub(crate) fn note(&self, group: GroupId, effects: &[Effect], time: Timestamp) {
        let mut ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        for effect in effects {
            let (revision, what) = match effect {
                Effect::Changed(change) => (change.revision, of_change(change)),
                Effect::SessionEnded {
                    session,
                    reason,
                    revision,
                } => {
                    let (session, reason) = (*session, *reason);
                    (*revision, What::SessionEnded { session, reason })
                }
                Effect::ObjectDeleted { .. } | Effect::Appended { .. } => continue,
            };
            ring.push(Transition {
                group,
                revision,
                time,
                what,
            });
        }
    }

    /// Those of a session: what it put, and its end. The oldest first.
    pub(crate) fn of_session(&self, group: GroupId, session: SessionId) -> Vec<Transition> {
        self.find(|transition| transition.group == group && transition.what.concerns(session))
    }

    /// Those of a key in one life of its cache. The oldest first.
    pub(crate) fn of_key(&self, group: GroupId, incarnation: Incarnation, key: &[u8]) -> Vec<Transition> {
        self.find(|transition| {
            let found = transition.what.key();
            transition.group == group && found.is_some_and(|(life, found)| life == incarnation && found == key)
        })
    }

    fn find(&self, wanted: impl Fn(&Transition) -> bool) -> Vec<Transition> {
        let ring = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ring.kept
            .iter()
            .filter(|transition| wanted(transition))
            .cloned()
            .collect()
    }
}

impl Ring {
    fn push(&mut self, transition: Transition) {
        self.key_bytes += key_bytes(&transition);
        self.kept.push_back(transition);
        while self.kept.len() > TRANSITIONS_MAX || self.key_bytes > KEY_BYTES_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            self.key_bytes -= key_bytes(&oldest);
        }
    }
}

fn key_bytes(transition: &Transition) -> usize {
    transition.what.key().map_or(0, |(_, key)| key.len())
}

fn of_change(change: &Change) -> What {
    let (incarnation, key) = (change.incarnation, change.key.clone());
    match &change.kind {
        ChangeKind::Put { created, owner, .. } => What::Put {
            incarnation,
            key,
            created: *created,
            owner: *owner,
        },
        ChangeKind::Removed { reason } => What::Removed {
            incarnation,
            key,
            reason: *reason,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn removed(revision: u64, key: Bytes) -> Effect {
        Effect::Changed(Change {
            revision,
            incarnation: Incarnation(1),
            key,
            kind: ChangeKind::Removed {
                reason: EndReason::Session,
            },
            previous_version: None,
        })
    }

    #[test]
    fn the_oldest_go_when_there_are_too_many_or_their_keys_are_too_long() {
        let transitions = Transitions::default();
        let group = GroupId(1);
        for revision in 1..=20_000 {
            transitions.note(
                group,
                &[removed(revision, Bytes::from_static(b"k"))],
                Timestamp(revision),
            );
        }
        let kept = transitions.of_key(group, Incarnation(1), b"k");
        assert_eq!(kept.len(), TRANSITIONS_MAX);
        assert_eq!(kept.last().map(|last| last.revision), Some(20_000));
        for revision in 20_001..=22_000 {
            transitions.note(
                group,
                &[removed(revision, Bytes::from(vec![1; 4_096]))],
                Timestamp(revision),
            );
        }
        let kept = transitions.of_key(group, Incarnation(1), &[1; 4_096]);
        assert_eq!(kept.len(), KEY_BYTES_MAX / 4_096);
        assert!(transitions.of_key(GroupId(2), Incarnation(1), b"k").is_empty());
    }
}
