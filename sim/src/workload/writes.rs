//! Lasting keys, a counter, and a key with a TTL.

use std::time::Duration;

use futures_util::future::join_all;
use tenure_client::{LocalDeadline, Outcome, Verdict};

use super::{Actor, Answer, COUNTER, FACTS, Stopped};

/// The key that is kept alive by touching it.
const LEASE: &str = "lease";
/// Its TTLs.
const LEASE_TTL_MS: (u64, u64) = (500, 3_000);
/// Lasting keys that are written at the same time.
const BESIDE_MAX: u64 = 6;
/// Tries at one step of the counter.
const STEP_TRIES_MAX: u64 = 5;

/// Writes keys that stay, several at once.
pub(super) async fn record(actor: Actor) -> Result<(), Stopped> {
    let mut number = 0_u64;
    while actor.at_work() {
        let keys = number..number + actor.random.between(1, BESIDE_MAX + 1);
        number = keys.end;
        join_all(keys.map(|number| write_fact(&actor, format!("{FACTS}{number:04}")))).await;
        actor.pause(1, 150).await;
    }
    Ok(())
}

/// Writes one key that stays; says whether that was acknowledged.
pub(super) async fn write_fact(actor: &Actor, key: String) -> bool {
    let key = key.as_str();
    let ledger = &actor.world.ledger;
    let put = actor.cache.put(key, &actor.name).if_absent().await;
    actor.note(format_args!("put {key}: {}", Answer(&put)));
    match put {
        Ok(Verdict::Done(written)) => {
            ledger.fact_written(key, written.version);
            return true;
        }
        // Each key is written by one call, which is asked again under one identity.
        Ok(Verdict::Refused(refusal)) => ledger.violated(format!("nobody wrote {key} and it was refused: {refusal}")),
        Err(error) if error.outcome() == Outcome::Unknown => ledger.fact_unknown(key),
        Err(_) => {}
    }
    false
}

/// Adds one to the counter, again and again.
pub(super) async fn count(actor: Actor) -> Result<(), Stopped> {
    while actor.at_work() {
        for _ in 0..STEP_TRIES_MAX {
            if step(&actor).await {
                break;
            }
        }
        actor.pause(1, 100).await;
    }
    Ok(())
}

/// Tries one step; says whether it is over, made or not.
async fn step(actor: &Actor) -> bool {
    let read = actor.cache.get(COUNTER).await;
    actor.note(format_args!("get {COUNTER}: {}", Answer(&read)));
    let Ok(entry) = read else { return false };
    let put = match &entry {
        None => actor.cache.put(COUNTER, "1").if_absent(),
        Some(entry) => {
            let next = number(&entry.value) + 1;
            actor.cache.put(COUNTER, next.to_string()).if_version(entry.version)
        }
    };
    let written = put.await;
    actor.note(format_args!("count: {}", Answer(&written)));
    match written {
        Ok(Verdict::Done(_)) => actor.world.ledger.counted(true),
        Ok(Verdict::Refused(_)) => return false,
        Err(error) if error.outcome() == Outcome::Unknown => actor.world.ledger.counted(false),
        Err(_) => {}
    }
    true
}

/// The counter's number.
pub(super) fn number(value: &[u8]) -> u64 {
    std::str::from_utf8(value)
        .ok()
        .and_then(|text| text.parse().ok())
        .unwrap_or(0)
}

/// Keeps a key with a TTL alive by touching it, and then lets it end.
pub(super) async fn renew(actor: Actor) -> Result<(), Stopped> {
    while actor.at_work() {
        let ttl = Duration::from_millis(actor.random.between(LEASE_TTL_MS.0, LEASE_TTL_MS.1));
        let put = actor.cache.put(LEASE, "renewed").ttl(ttl).await;
        actor.note(format_args!("put {LEASE} for {} ms: {}", ttl.as_millis(), Answer(&put)));
        let Ok(Verdict::Done(written)) = put else { continue };
        let mut deadline = written.deadline.clone();
        for _ in 0..actor.random.between(0, 5) {
            tokio::time::sleep(ttl / 3).await;
            let touched = actor.cache.touch(LEASE, ttl).if_created(written.created).await;
            actor.note(format_args!("touch {LEASE}: {}", Answer(&touched)));
            match touched {
                Ok(Verdict::Done(touched)) => deadline = touched.deadline,
                Ok(Verdict::Refused(_)) => check_alive(&actor, deadline.as_ref(), "a touch was refused"),
                Err(_) => {}
            }
        }
        let read = actor.cache.get(LEASE).await;
        actor.note(format_args!("get {LEASE}: {}", Answer(&read)));
        if let Ok(None) = read {
            check_alive(&actor, deadline.as_ref(), "a read did not find it");
        }
        tokio::time::sleep(ttl + ttl / 2).await;
        let read = actor.cache.get(LEASE).await;
        actor.note(format_args!("get {LEASE} when it should be over: {}", Answer(&read)));
    }
    Ok(())
}

/// A key seems to be gone: not before its holder stops believing in it.
fn check_alive(actor: &Actor, deadline: Option<&LocalDeadline>, what: &str) {
    if deadline.is_some_and(|deadline| !deadline.has_passed()) {
        let what = format!("{what} and {LEASE} should be alive by its holder's clock");
        actor.world.ledger.violated(what);
    }
}
