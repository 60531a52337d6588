//! Workers: claims under sessions, and every way in which a claim ends.

use std::time::Duration;

use tenure_client::{Session, Verdict, Written};

use super::{Actor, Answer, CLAIMS, Stopped};

/// Keys that the workers compete for, and how often, of a hundred times, it is the first of them.
const KEYS: u64 = 3;
const FIRST_KEY_PERCENT: u64 = 60;
/// TTLs of their sessions.
const TTL_MS: (u64, u64) = (500, 2_500);
/// Claims that are tried under one session.
const CLAIMS_MAX: u64 = 12;
/// How long a claim is held.
const HOLD_MS: (u64, u64) = (50, 4_000);

/// Claims keys until the time is over.
pub(super) async fn work(actor: Actor) -> Result<(), Stopped> {
    while actor.at_work() {
        let ttl = Duration::from_millis(actor.random.between(TTL_MS.0, TTL_MS.1));
        let opened = actor.client.open_session(ttl).await;
        actor.note(format_args!(
            "open_session({} ms): {}",
            ttl.as_millis(),
            Answer(&opened)
        ));
        let Ok(session) = opened else { continue };
        let mut held = Vec::new();
        for _ in 0..actor.random.between(1, CLAIMS_MAX + 1) {
            if !actor.at_work() || !session.is_valid() {
                break;
            }
            held.extend(claim(&actor, &session).await);
            actor.pause(10, 200).await;
        }
        for (key, token) in held {
            actor.world.ledger.released(&key, token);
        }
        end(&actor, session).await;
    }
    Ok(())
}

/// Tries to claim a key, and holds it if that works. Returns it with its token if it is still held then.
async fn claim(actor: &Actor, session: &Session) -> Option<(String, u64)> {
    let number = match actor.random.percent(FIRST_KEY_PERCENT) {
        true => 0,
        false => actor.random.between(1, KEYS),
    };
    let key = format!("{CLAIMS}{number}");
    let put = actor.cache.put(&key, &actor.name).if_absent().owner(session);
    let claimed = put.await;
    actor.note(format_args!("claim {key}: {}", Answer(&claimed)));
    let Ok(Verdict::Done(written)) = claimed else {
        return None;
    };
    let ledger = &actor.world.ledger;
    ledger.granted(&key, &actor.name, written.token(), session);

    let hold = Duration::from_millis(actor.random.between(HOLD_MS.0, HOLD_MS.1));
    tokio::select! {
        biased;
        reason = session.lost() => {
            actor.note(format_args!("lost the session of {key}: {reason:?}"));
            return Some((key, written.token()));
        }
        () = tokio::time::sleep(hold) => {}
    }
    if actor.random.percent(40) {
        rewrite(actor, session, &key, &written).await;
    }
    if actor.random.percent(70) {
        ledger.released(&key, written.token());
        let deleted = actor.cache.delete(&key).if_created(written.created).await;
        actor.note(format_args!("release {key}: {}", Answer(&deleted)));
        return None;
    }
    let read = actor.cache.get(&key).await;
    actor.note(format_args!("leaves {key} to its session: {}", Answer(&read)));
    Some((key, written.token()))
}

/// Writes a claimed key anew: its token stays.
async fn rewrite(actor: &Actor, session: &Session, key: &str, written: &Written) {
    let value = format!("{} again", actor.name);
    let put = actor.cache.put(key, value).if_created(written.created).owner(session);
    let rewritten = put.await;
    actor.note(format_args!("rewrite {key}: {}", Answer(&rewritten)));
    if let Ok(Verdict::Done(again)) = rewritten
        && (again.token() != written.token() || again.version <= written.version)
    {
        actor
            .world
            .ledger
            .violated(format!("rewriting {key} turned {written:?} into {again:?}"));
    }
}

/// Ends a session by closing it, by dropping it, or by leaving it to its TTL.
async fn end(actor: &Actor, session: Session) {
    match actor.random.between(0, 3) {
        0 => {
            let closed = session.close().await;
            actor.note(format_args!("close session {}: {}", session.id(), Answer(&closed)));
        }
        1 => {
            actor.note(format_args!("drops session {}", session.id()));
            drop(session);
        }
        _ => abandon(actor).await,
    }
}

/// Opens a session that nobody renews, lets it own a key, and leaves both to its TTL.
async fn abandon(actor: &Actor) {
    let ttl = Duration::from_millis(actor.random.between(TTL_MS.0, TTL_MS.1));
    let opened = actor.client.open_session(ttl).detached().await;
    actor.note(format_args!("open a session for nobody: {}", Answer(&opened)));
    let Ok(opened) = opened else { return };
    let key = format!("{CLAIMS}left by {}", actor.name);
    let put = actor.cache.put(&key, "nobody").owner(&opened.key).await;
    actor.note(format_args!("put {key}: {}", Answer(&put)));
    let renewed = actor.client.renew_session(&opened.key).await;
    actor.note(format_args!("renew it once: {}", Answer(&renewed)));
    tokio::time::sleep(ttl * 2).await;
    let info = actor.client.session_info(opened.key.id()).await;
    actor.note(format_args!("what is known of it: {}", Answer(&info)));
    let read = actor.cache.get(&key).await;
    actor.note(format_args!("get {key}: {}", Answer(&read)));
}
