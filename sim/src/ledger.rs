//! What each client was promised, and whether it was kept. An outcome that is unknown to a client stays unknown here.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tenure_client::Session;

/// Promises of one run, and the violations that were found. Whoever runs a workload tells it what came of each call.
#[derive(Default)]
pub(crate) struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Default)]
struct Inner {
    facts: BTreeMap<String, Fact>,
    seen: BTreeMap<String, u64>,
    counter: Counter,
    claims: BTreeMap<String, Claim>,
    violations: Vec<String>,
}

/// A key that is written once and never removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fact {
    /// It was acknowledged with this version.
    Acknowledged(u64),
    /// Whether it was written is unknown.
    Unknown,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counter {
    acknowledged: u64,
    unknown: u64,
}

/// Who was told last that a key is theirs.
struct Claim {
    token: u64,
    holder: Option<(String, Session)>,
}

impl Ledger {
    /// The write of a lasting key was acknowledged.
    pub(crate) fn fact_written(&self, key: &str, version: u64) {
        self.lock().facts.insert(key.to_owned(), Fact::Acknowledged(version));
    }

    /// Nobody knows whether this lasting key was written.
    pub(crate) fn fact_unknown(&self, key: &str) {
        self.lock().facts.insert(key.to_owned(), Fact::Unknown);
    }

    /// A watch has shown this lasting key.
    pub(crate) fn fact_seen(&self, key: &str, version: u64) {
        let mut inner = self.lock();
        if inner.seen.insert(key.to_owned(), version).is_some() {
            inner.violated(format!("a watch showed {key} twice"));
        }
    }

    /// A step of the counter was acknowledged, or (`false`) nobody knows whether it was made.
    pub(crate) fn counted(&self, known: bool) {
        let mut inner = self.lock();
        match known {
            true => inner.counter.acknowledged += 1,
            false => inner.counter.unknown += 1,
        }
    }

    /// A key was granted to a session under this token.
    pub(crate) fn granted(&self, key: &str, who: &str, token: u64, session: &Session) {
        if !session.is_valid() {
            // The answer came too late for its holder to believe it.
            return;
        }
        let mut inner = self.lock();
        let mut violations = Vec::new();
        if let Some(earlier) = inner.claims.get(key) {
            if let Some((holder, held)) = &earlier.holder
                && held.is_valid()
            {
                violations.push(format!(
                    "{key} is held by {who} under token {token} while {holder} still rightly believes in {}",
                    earlier.token
                ));
            }
            if token <= earlier.token {
                violations.push(format!(
                    "{key} was granted to {who} under token {token} after {}",
                    earlier.token
                ));
            }
        }
        let claim = Claim {
            token,
            holder: Some((who.to_owned(), session.clone())),
        };
        inner.claims.insert(key.to_owned(), claim);
        for violation in violations {
            inner.violated(violation);
        }
    }

    /// The holder of this token is about to give the key up, or believes no more that it holds it.
    pub(crate) fn released(&self, key: &str, token: u64) {
        if let Some(claim) = self.lock().claims.get_mut(key)
            && claim.token == token
        {
            claim.holder = None;
        }
    }

    /// A watch has shown that a key ended under this token because of its session's TTL.
    pub(crate) fn ended(&self, key: &str, token: u64) {
        let mut inner = self.lock();
        let early = inner.claims.get(key).and_then(|claim| {
            let (holder, session) = claim.holder.as_ref()?;
            (claim.token == token && session.is_valid()).then(|| holder.clone())
        });
        if let Some(holder) = early {
            inner.violated(format!(
                "{key} ended while {holder} still rightly believes in token {token}"
            ));
        }
    }

    /// Something that must not happen has happened.
    pub(crate) fn violated(&self, what: String) {
        self.lock().violated(what);
    }

    /// Compares what is there at the end with what was promised: the lasting keys with their versions, and the
    /// counter.
    pub(crate) fn settle(&self, facts: &BTreeMap<String, u64>, counter: u64) {
        let mut inner = self.lock();
        let mut violations = Vec::new();
        for (key, fact) in &inner.facts {
            match (fact, facts.get(key)) {
                (Fact::Acknowledged(version), None) => {
                    violations.push(format!("{key} was acknowledged as version {version} and is gone"));
                }
                (Fact::Acknowledged(version), Some(found)) if found != version => {
                    violations.push(format!("{key} was acknowledged as version {version} and is {found}"));
                }
                _ => {}
            }
        }
        for (key, version) in facts {
            if !inner.facts.contains_key(key) {
                violations.push(format!("{key} is there and nobody wrote it"));
            }
            match inner.seen.get(key) {
                None => violations.push(format!("{key} is there and no watch showed it")),
                Some(seen) if seen != version => {
                    violations.push(format!("{key} is version {version} and a watch showed {seen}"));
                }
                Some(_) => {}
            }
        }
        for key in inner.seen.keys().filter(|key| !facts.contains_key(*key)) {
            violations.push(format!("a watch showed {key} and it is not there"));
        }
        let Counter { acknowledged, unknown } = inner.counter;
        if !(acknowledged..=acknowledged + unknown).contains(&counter) {
            violations.push(format!(
                "the counter is {counter} after {acknowledged} acknowledged steps and {unknown} of unknown outcome"
            ));
        }
        for violation in violations {
            inner.violated(violation);
        }
    }

    /// A line about all that was promised.
    pub(crate) fn summary(&self) -> String {
        let inner = self.lock();
        let unknown = inner.facts.values().filter(|fact| **fact == Fact::Unknown).count();
        format!(
            "{} lasting keys acknowledged, {unknown} of unknown outcome; counter {} and {}; {} keys claimed",
            inner.facts.len() - unknown,
            inner.counter.acknowledged,
            inner.counter.unknown,
            inner.claims.len()
        )
    }

    /// The promises that were broken, in the order in which that was found.
    pub(crate) fn violations(&self) -> Vec<String> {
        self.lock().violations.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn violated(&mut self, what: String) {
        self.violations.push(what);
    }
}

#[cfg(test)]
mod tests;
