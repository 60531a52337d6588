//! A writer is paused, its successor takes over, and the late write is refused by its old token.

use std::time::Duration;

use tenure_client::{ChangeKind, Client, Verdict, WatchItem};

use super::child::Part;
use super::{Stage, Wrong, check, resource};

pub(super) const CACHE: &str = "files";
pub(super) const KEY: &str = "report.csv";
/// How long the lease of the writer that is paused lasts.
const TTL: Duration = Duration::from_millis(1_500);
const SUCCESSOR_TTL: Duration = Duration::from_secs(10);

pub(super) async fn play(stage: &mut Stage<'_>) -> Result<String, Wrong> {
    stage.client.create_cache(CACHE).await?.done()?;
    let mut protected = Part::start(&["resource"])?;
    let resource = protected.said("listening").await?;
    let ttl_ms = TTL.as_millis().to_string();
    let mut first = Part::start(&[
        "writer",
        "--node",
        &stage.address,
        "--resource",
        &resource,
        "--ttl-ms",
        &ttl_ms,
    ])?;
    let old = number(&first.said("wrote").await?)?;
    stage.say(&format!(
        "a writer claims the report and writes under token {old}; then its process is paused"
    ))?;
    first.pause()?;

    let session = stage.client.open_session(SUCCESSOR_TTL).label("successor").await?;
    let files = stage.client.cache(CACHE);
    let early = files.put(KEY, "successor").if_absent().owner(&session).await?;
    check(!early.is_done(), || {
        "the lease was given away while it lasted".to_owned()
    })?;
    wait_for_its_end(&stage.client).await?;
    let claim = match files.put(KEY, "successor").if_absent().owner(&session).await? {
        Verdict::Done(claim) => claim,
        Verdict::Refused(refused) => return Err(Wrong::Story(format!("the report was not free: {refused}"))),
    };
    let new = claim.token();
    check(new > old, || format!("token {new} follows {old}"))?;
    stage.say(&format!(
        "its lease of {TTL:?} ends, and a successor takes over under token {new}"
    ))?;
    let answer = ask(&resource, format!("write {new} by the successor")).await?;
    check(answer == "ok", || format!("the successor was answered {answer:?}"))?;

    first.tell("write once more")?;
    first.resume()?;
    let late = first.said("late").await?;
    check(late == format!("refused {new}"), || {
        format!("the late write was answered {late:?}")
    })?;
    stage.say("the first writer goes on, knows nothing of all that, and writes: refused")?;
    let lines = ask(&resource, "lines".to_owned()).await?;
    check(lines == "by the first writer; by the successor", || {
        format!("the resource holds {lines:?}")
    })?;
    session.close().await?;
    Ok(format!(
        "no claim while the lease lasted; the late write under token {old} was refused by a resource that had seen {new}"
    ))
}

/// Waits until the key of the paused writer goes with its session.
async fn wait_for_its_end(client: &Client) -> Result<(), Wrong> {
    let mut watch = client.cache(CACHE).watch().key(KEY).with_state().await?;
    while let Some(item) = watch.next().await {
        let gone = match item.map_err(|end| Wrong::from(end.into_error()))? {
            WatchItem::State { entries, .. } => entries.is_empty(),
            WatchItem::Changes { changes, .. } => changes
                .iter()
                .any(|change| matches!(change.kind, ChangeKind::Removed { .. })),
            WatchItem::Progress { .. } => false,
        };
        if gone {
            return Ok(());
        }
    }
    Err(Wrong::Story("the watch ended".to_owned()))
}

async fn ask(resource: &str, line: String) -> Result<String, Wrong> {
    let resource = resource.to_owned();
    let asked = tokio::task::spawn_blocking(move || resource::ask(&resource, &line)).await;
    let answer = asked.map_err(|error| Wrong::Story(error.to_string()))?;
    answer.map_err(|error| Wrong::Story(format!("the resource cannot be reached: {error}")))
}

fn number(text: &str) -> Result<u64, Wrong> {
    text.parse().map_err(|_| Wrong::Story(format!("{text:?} is no token")))
}
