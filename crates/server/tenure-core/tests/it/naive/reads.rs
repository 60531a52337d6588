//! What a reader sees by the naive rules.

use std::collections::BTreeMap;

use tenure_core::ids::ObjectName;
use tenure_core::query::{Found, KeyView, SessionView};
use tenure_core::refusal::EndReason;

use super::{Naive, Told, no_cache};

impl Naive {
    /// What a reader sees of a cache.
    pub(crate) fn list(&self, name: &ObjectName) -> Found {
        let Some(cache) = self.caches.get(name) else {
            return Found::Failed(no_cache(name));
        };
        let visible = cache.keys.iter().filter(|(_, row)| {
            let own = row.deadline.is_none_or(|deadline| deadline >= self.now);
            own && row.owner.is_none_or(|owner| self.sessions[&owner].deadline >= self.now)
        });
        let keys = visible.map(|(key, row)| KeyView {
            key: key.clone(),
            value: row.value.clone(),
            version: row.version,
            created: row.created,
            owner: row.owner,
            remaining: self.remaining(row),
        });
        Found::Keys {
            keys: keys.take(1_000).collect(),
            more: cache.keys.len() > 1_000,
        }
    }

    /// What a reader sees of each session, without what it owns by name.
    pub(crate) fn sessions(&self) -> Vec<SessionView> {
        self.sessions
            .iter()
            .map(|(id, session)| {
                let lapsed = session.ended.is_none() && session.deadline < self.now;
                let ended = session.ended.or(lapsed.then_some((EndReason::Expired, 0)));
                let open = ended.is_none();
                SessionView {
                    id: *id,
                    namespace: crate::lab::namespace("prod"),
                    label: session.label.clone(),
                    ttl: session.ttl,
                    remaining: session
                        .ttl
                        .filter(|_| open)
                        .map(|_| session.deadline.remaining_at(self.now)),
                    ended,
                    owned_count: if open { self.owned_by(*id).len() as u64 } else { 0 },
                    owned: Vec::new(),
                    results_kept: session.results.len() as u64,
                }
            })
            .collect()
    }

    /// Every key as the change feed tells it: its last put.
    pub(crate) fn state(&self) -> Told {
        let mut state = BTreeMap::new();
        for cache in self.caches.values() {
            for (key, row) in &cache.keys {
                let told = (row.value.clone(), row.version, row.created, row.owner);
                state.insert((cache.record.incarnation, key.clone()), told);
            }
        }
        state
    }
}
