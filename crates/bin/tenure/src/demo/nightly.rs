//! Forty workers wake at the same time, and the nightly run happens once.

use std::collections::BTreeSet;
use std::time::Duration;

use tenure_client::{Client, Error, Refusal, Verdict};

use super::{Stage, Wrong, check};

const WORKERS: usize = 40;
const CACHE: &str = "jobs";
const NIGHT: &str = "reconcile/2026-07-01";
const TTL: Duration = Duration::from_secs(10);

/// What became of a worker.
enum Woke {
    /// It had the claim and has done the work.
    Ran { session: u64, token: u64 },
    /// Somebody else had it.
    LeftIt { holder: Option<u64> },
}

pub(super) async fn play(stage: &mut Stage<'_>) -> Result<String, Wrong> {
    stage.say(&format!(
        "{WORKERS} workers wake for the nightly run and claim it, each with a session of its own"
    ))?;
    stage.client.create_cache(CACHE).await?.done()?;
    let workers: Vec<_> = (0..WORKERS)
        .map(|worker| tokio::spawn(work(stage.client.clone(), worker)))
        .collect();
    let (mut ran, mut holders) = (Vec::new(), Vec::new());
    for worker in workers {
        let woke = worker
            .await
            .map_err(|error| Wrong::Story(format!("a worker ended: {error}")))?;
        match woke? {
            Woke::Ran { session, token } => ran.push((session, token)),
            Woke::LeftIt { holder } => holders.push(holder),
        }
    }
    let &[(session, token)] = &ran[..] else {
        return Err(Wrong::Story(format!("{} workers ran", ran.len())));
    };
    stage.say(&format!(
        "session {session} has it, with token {token}; the others are told who has it, and go home"
    ))?;
    // Who comes when the work is done and marked is refused by the mark, which nobody holds.
    let expected: BTreeSet<Option<u64>> = [Some(session), None].into();
    check(
        holders.len() == WORKERS - 1 && holders.iter().all(|holder| expected.contains(holder)),
        || format!("{} were refused by {holders:?}", holders.len()),
    )?;
    let runs = stage.client.cache(CACHE).counter("runs").await?;
    check(runs == Some(1), || format!("the work was done {runs:?} times"))?;
    let late = work(stage.client.clone(), WORKERS).await?;
    check(matches!(late, Woke::LeftIt { holder: None }), || {
        "a worker that came after the end ran once more".to_owned()
    })?;
    stage.say("a worker that wakes after the end finds the mark, although the session of the first is closed")?;
    Ok(format!(
        "of {WORKERS} workers 1 ran and {} were refused; the work was counted once; a late one was refused too",
        holders.len()
    ))
}

async fn work(client: Client, worker: usize) -> Result<Woke, Error> {
    let session = client.open_session(TTL).label(format!("worker-{worker}")).await?;
    let jobs = client.cache(CACHE);
    let claim = jobs.put(NIGHT, "running").if_absent().owner(&session).await?;
    let woke = match claim {
        Verdict::Done(claim) => {
            jobs.add("runs", 1).await?;
            // The mark stays when the session ends: nobody owns it.
            jobs.put(NIGHT, "done").if_version(claim.version).await?.done()?;
            Woke::Ran {
                session: session.id(),
                token: claim.token(),
            }
        }
        Verdict::Refused(refused @ Refusal::ConditionFailed { .. }) => Woke::LeftIt {
            holder: refused.key().and_then(|key| key.holder),
        },
        Verdict::Refused(other) => return Err(Error::Refused(Box::new(other))),
    };
    session.close().await?;
    Ok(woke)
}
