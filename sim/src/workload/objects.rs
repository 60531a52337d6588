//! Streams and transactions: a publisher, a messenger that sends each message several times, a banker.

use std::time::Duration;

use tenure_client::{
    Appended, Client, Error, Guard, Operation, OperationResult, Outcome, Refusal, RequestMode, Stream, TxnGuard,
    Verdict,
};

use super::{Actor, Answer, CACHE, Stopped};
use crate::clock;
use crate::records::WINDOW;
use crate::setup::Planted;

/// The stream of the publisher and the messenger.
pub(super) const EVENTS: &str = "events";
/// The stream to which transactions append.
const TRANSFERS: &str = "transfers";
/// What one of them gains the other loses.
const ACCOUNTS: [&str; 2] = ["account/one", "account/other"];
/// Records of one append.
const RECORDS_MAX: u64 = 4;
/// Messages that are sent, each again and again.
const MESSAGES: u64 = 3;
/// How often a client of the planted kind sends an append anew.
const TRIES_MAX: usize = 8;
/// A page has at most so many records, so what is read in the end has a bound.
const PAGES_MAX: usize = 1_000;

/// The stream, which exists then.
async fn stream(actor: &Actor, name: &str) -> Result<Stream, Stopped> {
    let stream = actor.client.stream(name);
    for _ in 0..super::ATTEMPTS_MAX {
        let created = stream.create().dedup_window(WINDOW).await;
        actor.note(format_args!("create stream {name}: {}", Answer(&created)));
        if let Ok(Verdict::Done(_)) = created {
            return Ok(stream);
        }
    }
    Err(actor.stopped(format!("the stream {name} could not be created")))
}

/// Appends records, some at an expected tail.
pub(super) async fn publish(actor: Actor) -> Result<(), Stopped> {
    let stream = stream(&actor, EVENTS).await?;
    let hasty = hasty_client(&actor)?.map(|client| client.stream(EVENTS));
    let (mut number, mut tail) = (0_u64, 0);
    while actor.at_work() {
        let count = actor.random.between(1, RECORDS_MAX + 1);
        let records: Vec<String> = (number..number + count)
            .map(|number| format!("record {number}"))
            .collect();
        number += count;
        let expected = actor.random.percent(30).then_some(tail);
        let append = |stream: &Stream| match expected {
            Some(tail) => stream.append(&records).if_offset(tail),
            None => stream.append(&records),
        };
        let mut answer = append(hasty.as_ref().unwrap_or(&stream)).await;
        for _ in 0..TRIES_MAX {
            let unknown = answer.as_ref().is_err_and(|error| error.outcome() == Outcome::Unknown);
            let Some(hasty) = hasty.as_ref().filter(|_| unknown) else {
                break;
            };
            // The defect: what is unknown is sent once more as if it were new.
            answer = append(hasty).await;
        }
        actor.note(format_args!(
            "append {}+{count} at {expected:?}: {}",
            number - count,
            Answer(&answer)
        ));
        tail = told(&actor, &records, answer).unwrap_or(tail);
        actor.pause(1, 200).await;
    }
    Ok(())
}

/// A client that gives up early and has no numbers for its requests, if that is the planted defect.
fn hasty_client(actor: &Actor) -> Result<Option<Client>, Stopped> {
    if actor.world.setup.planted != Some(Planted::RepeatsAsNew) {
        return Ok(None);
    }
    let timeout = Duration::from_millis(400);
    let client = actor.world.client_with(&actor.name, timeout, RequestMode::Anonymous);
    let client = client.map_err(|error| actor.stopped(error))?;
    Ok(Some(client.namespace("acme", "prod")))
}

/// Tells the ledger what came of an append. Returns the tail, if that is known now.
fn told(actor: &Actor, records: &[String], answer: Result<Verdict<Appended>, Error>) -> Option<u64> {
    let ledger = &actor.world.records;
    match answer {
        Ok(Verdict::Done(appended)) => {
            for (record, offset) in records.iter().zip(appended.first..) {
                ledger.appended(record, offset);
            }
            return Some(appended.next());
        }
        Ok(Verdict::Refused(refusal)) => {
            for record in records {
                ledger.refused(record);
            }
            if let Refusal::WrongTail { tail } = refusal {
                return Some(tail);
            }
            actor.world.ledger.violated(format!("an append was refused: {refusal}"));
        }
        Err(error) => {
            for record in records {
                match error.outcome() {
                    Outcome::Unknown => ledger.unknown(record),
                    _ => ledger.refused(record),
                }
            }
        }
    }
    None
}

/// Sends the same few messages again and again: each is new once in its window.
pub(super) async fn send(actor: Actor) -> Result<(), Stopped> {
    let stream = stream(&actor, EVENTS).await?;
    while actor.at_work() {
        let id = format!("message {}", actor.random.between(0, MESSAGES));
        let asked = clock::now().unwrap_or_default();
        let answer = stream.append([&id]).message_id(&id).await;
        actor.note(format_args!("send {id}: {}", Answer(&answer)));
        let now = clock::now().unwrap_or_default();
        match answer {
            Ok(Verdict::Done(done)) => {
                let records = &actor.world.records;
                if let Some(violation) = records.message(&id, asked, now, done.first, !done.duplicate) {
                    actor.world.ledger.violated(violation);
                }
            }
            Ok(Verdict::Refused(refusal)) => actor.world.ledger.violated(format!("{id} was refused: {refusal}")),
            Err(error) if error.outcome() == Outcome::Unknown => actor.world.records.message_unknown(&id),
            Err(_) => {}
        }
        actor.pause(50, 600).await;
    }
    Ok(())
}

/// Moves amounts between two accounts, with a key and a record for each, and looks that nothing is ever missing.
pub(super) async fn transfer(actor: Actor) -> Result<(), Stopped> {
    stream(&actor, TRANSFERS).await?;
    let mut number = 0_u64;
    while actor.at_work() {
        number += 1;
        let amount = i64::try_from(actor.random.between(1, 100)).unwrap_or(1);
        let key = format!("transfer/{number}");
        let txn = actor
            .client
            .txn()
            .when(TxnGuard::key(CACHE, &key, Guard::Absent))
            .then(Operation::add(CACHE, ACCOUNTS[0], -amount))
            .then(Operation::put(CACHE, &key, "done"))
            .then(Operation::append(TRANSFERS, [&key]))
            .then(Operation::add(CACHE, ACCOUNTS[1], amount));
        let outcome = txn.await;
        actor.note(format_args!("{key} of {amount}: {}", Answer(&outcome)));
        match outcome {
            Ok(Verdict::Done(outcome)) if !outcome.applied => {
                actor
                    .world
                    .ledger
                    .violated(format!("{key} was done before it was asked for"));
            }
            Ok(Verdict::Refused(refusal)) => actor.world.ledger.violated(format!("{key} was refused: {refusal}")),
            _ => {}
        }
        balance(&actor).await;
        actor.pause(1, 250).await;
    }
    Ok(())
}

/// Reads both accounts at one moment.
async fn balance(actor: &Actor) {
    let look = ACCOUNTS.map(|account| Operation::get(CACHE, account));
    let outcome = look
        .into_iter()
        .fold(actor.client.txn(), |txn, get| txn.then(get))
        .await;
    let Ok(Verdict::Done(outcome)) = outcome else { return };
    let numbers = outcome.results.iter().map(|result| match result {
        OperationResult::Got(Some(entry)) => String::from_utf8_lossy(&entry.value).parse().unwrap_or(i64::MAX / 4),
        _ => 0,
    });
    let sum: i64 = numbers.sum();
    if sum != 0 {
        actor
            .world
            .ledger
            .violated(format!("half of a transaction was seen: {sum} is missing"));
    }
}

/// Compares what is in the streams with what was promised.
pub(super) async fn settle(actor: &Actor) -> Result<(), Stopped> {
    balance(actor).await;
    let (mut kept, mut from) = (Vec::new(), 0);
    for _ in 0..PAGES_MAX {
        let page = actor.client.stream(EVENTS).read().from_offset(from).await;
        let page = page.map_err(|error| actor.stopped(format!("the stream could not be read: {error}")))?;
        kept.extend(
            page.records
                .iter()
                .map(|record| (record.offset, super::text(&record.data))),
        );
        from = page.next;
        if from >= page.tail {
            break;
        }
    }
    for violation in actor.world.records.settle(&kept) {
        actor.world.ledger.violated(violation);
    }
    Ok(())
}
