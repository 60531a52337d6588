//! A watcher that follows the lasting keys, and an auditor who compares the end with what was promised.

use std::collections::BTreeMap;
use std::time::Duration;

use tenure_client::{ChangeKind, EndReason, Entry, WatchItem};

use super::{ATTEMPTS_MAX, Actor, Answer, CLAIMS, COUNTER, FACTS, LAST_FACT, Stopped, objects, text, writes};

/// Longer than any TTL of the workload.
const EVERYTHING_ENDED: Duration = Duration::from_secs(12);

/// How often a client that waits for changes looks whether the work is over.
const LOOK_UP_EVERY: Duration = Duration::from_millis(200);

/// Follows the lasting keys until the last one.
pub(super) async fn watch(actor: Actor) -> Result<(), Stopped> {
    let mut begun = None;
    for _ in 0..ATTEMPTS_MAX {
        let watch = actor.cache.watch().prefix(FACTS).with_state().await;
        actor.note(format_args!("watch: {}", Answer(&watch)));
        if let Ok(watch) = watch {
            begun = Some(watch);
            break;
        }
    }
    let Some(mut watch) = begun else {
        return Err(actor.stopped("no watch could be begun"));
    };
    let mut reached = 0;
    let mut state = BTreeMap::new();
    loop {
        let Some(item) = watch.next().await else {
            return Err(actor.stopped("the watch ended without a reason"));
        };
        let item = item.map_err(|end| actor.stopped(format_args!("the watch ended: {end}")))?;
        actor.note(format_args!("sees {item:?}"));
        let revision = match &item {
            WatchItem::State { revision, .. } | WatchItem::Changes { revision, .. } => *revision,
            WatchItem::Progress { .. } => continue,
        };
        match item {
            WatchItem::State {
                entries, first, last, ..
            } => {
                if first {
                    state.clear();
                }
                state.extend(entries.into_iter().map(|entry| (text(&entry.key), entry.version)));
                if last {
                    reached = revision;
                    for (key, version) in std::mem::take(&mut state) {
                        actor.world.ledger.fact_seen(&key, version);
                    }
                }
            }
            WatchItem::Changes { changes, .. } => {
                if revision <= reached {
                    let what = format!("a watch went from revision {reached} to {revision}");
                    actor.world.ledger.violated(what);
                }
                reached = revision;
                for change in changes {
                    let key = text(&change.key);
                    match change.kind {
                        ChangeKind::Put { version, .. } => actor.world.ledger.fact_seen(&key, version),
                        ChangeKind::Removed { reason } => {
                            actor
                                .world
                                .ledger
                                .violated(format!("a watch showed the end of {key}: {reason:?}"));
                        }
                    }
                    if key == LAST_FACT {
                        return Ok(());
                    }
                }
            }
            WatchItem::Progress { .. } => {}
        }
    }
}

/// Follows the claimed keys while there is work: tokens rise, and what ends with its session's TTL is not rightly believed
/// in by its holder any more.
pub(super) async fn see_ends(actor: Actor) -> Result<(), Stopped> {
    let mut tokens: BTreeMap<String, u64> = BTreeMap::new();
    while actor.at_work() {
        let watch = actor.cache.watch().prefix(CLAIMS).with_state().await;
        actor.note(format_args!("watch claims: {}", Answer(&watch)));
        let Ok(mut watch) = watch else { continue };
        let mut reached = 0;
        while actor.at_work() {
            let Ok(item) = tokio::time::timeout(LOOK_UP_EVERY, watch.next()).await else {
                continue;
            };
            match item {
                Some(Ok(WatchItem::Changes { revision, changes, .. })) => {
                    if revision <= reached {
                        let what = format!("a watch of claims went from revision {reached} to {revision}");
                        actor.world.ledger.violated(what);
                    }
                    reached = revision;
                    for change in changes {
                        see(&actor, &mut tokens, &text(&change.key), &change.kind);
                    }
                }
                Some(Ok(WatchItem::State { entries, .. })) => {
                    let entries = entries.into_iter();
                    tokens.extend(entries.map(|entry| (text(&entry.key), entry.created)));
                }
                Some(Ok(WatchItem::Progress { .. })) => {}
                end => {
                    actor.note(format_args!("the watch of claims ended: {end:?}"));
                    break;
                }
            }
        }
    }
    Ok(())
}

/// What a watch shows of a claimed key.
fn see(actor: &Actor, tokens: &mut BTreeMap<String, u64>, key: &str, kind: &ChangeKind) {
    actor.note(format_args!("sees {key}: {kind:?}"));
    match kind {
        ChangeKind::Put { created, .. } => {
            let before = tokens.insert(key.to_owned(), *created);
            if before.is_some_and(|before| before > *created) {
                let what = format!("a watch showed {key} under token {created} after {before:?}");
                actor.world.ledger.violated(what);
            }
        }
        ChangeKind::Removed {
            reason: EndReason::Session | EndReason::Expired,
        } => {
            if let Some(token) = tokens.get(key) {
                actor.world.ledger.ended(key, *token);
            }
        }
        ChangeKind::Removed { .. } => {}
    }
}

/// Compares what is there with what was promised, when everything that ends has ended.
pub(super) async fn settle(actor: Actor) -> Result<(), Stopped> {
    tokio::time::sleep(EVERYTHING_ENDED).await;
    let mut facts: BTreeMap<String, u64> = BTreeMap::new();
    for entry in listed(&actor, FACTS).await? {
        facts.insert(text(&entry.key), entry.version);
    }
    let counter = listed(&actor, COUNTER).await?;
    let counter = counter.first().map_or(0, |entry| writes::number(&entry.value));
    for entry in listed(&actor, CLAIMS).await? {
        let what = format!("{} outlived its session: {entry:?}", text(&entry.key));
        actor.world.ledger.violated(what);
    }
    objects::settle(&actor).await?;
    if let Some(violation) = actor.world.calls.settle() {
        actor.world.ledger.violated(violation);
    }
    let sessions = actor.client.sessions().await;
    actor.note(format_args!("sessions: {}", Answer(&sessions)));
    let status = actor.client.status().await;
    actor.note(format_args!("status: {}", Answer(&status)));

    if !writes::write_fact(&actor, LAST_FACT.to_owned()).await {
        return Err(actor.stopped("the last key could not be written"));
    }
    let last = listed(&actor, LAST_FACT).await?;
    facts.extend(last.into_iter().map(|entry| (text(&entry.key), entry.version)));
    // The watcher takes its time to see it.
    tokio::time::sleep(Duration::from_secs(1)).await;
    actor.world.ledger.settle(&facts, counter);
    Ok(())
}

async fn listed(actor: &Actor, prefix: &str) -> Result<Vec<Entry>, Stopped> {
    let listed = actor.cache.list().prefix(prefix).await;
    match &listed {
        Ok(entries) => actor.note(format_args!("list {prefix}: {} keys", entries.len())),
        Err(_) => actor.note(format_args!("list {prefix}: {}", Answer(&listed))),
    }
    listed.map_err(|error| actor.stopped(error))
}
