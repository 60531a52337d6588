//! What a holder sees when a leader is killed.

use std::fmt;
use std::io;
use std::time::{Duration, Instant};

use crate::target::{Failure, Target};
use crate::work::Work;

/// The time for one call of a holder: what has not come back by then is asked anew.
pub const CALL_TIMEOUT: Duration = Duration::from_millis(500);
/// Claims before the leader is killed, so that everything is warm.
const CLAIMS_BEFORE: u32 = 50;
/// The TTL of everything that is claimed: longer than the whole measurement.
const TTL: Duration = Duration::from_secs(60);
/// How long a holder waits between two calls that failed.
const BETWEEN_CALLS: Duration = Duration::from_millis(10);
/// After so long nobody can claim any more.
const LIMIT: Duration = Duration::from_secs(30);

/// What a holder saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Failover {
    /// From the kill to the answer of the first claim that was sent after it and succeeded.
    pub until_claim: Duration,
    /// Claims that were sent for it, with that one.
    pub attempts: u32,
    /// Whether what was held before was still held then.
    pub kept: bool,
}

impl fmt::Display for Failover {
    /// `failover: N ms attempts=N kept=BOOL`.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failover {
            until_claim,
            attempts,
            kept,
        } = self;
        let millis = until_claim.as_millis();
        write!(formatter, "failover: {millis} ms attempts={attempts} kept={kept}")
    }
}

/// Claims one key and keeps it, claims and releases others, then kills the leader and claims new keys, one after
/// another, until a claim succeeds; then looks whether the first key is still held.
///
/// # Errors
/// What is asked before fails, the leader cannot be killed, or no claim succeeds for half a minute.
pub async fn measure<T: Target>(
    holder: &T,
    name: &str,
    kill: impl FnOnce() -> io::Result<()>,
) -> Result<Failover, Failure> {
    holder.prepare(Work::Claim).await?;
    let held_key = format!("failover/{name}/held");
    holder.claim(&held_key, TTL).await?;
    for number in 0..CLAIMS_BEFORE {
        let key = format!("failover/{name}/before/{number}");
        let grant = holder.claim(&key, TTL).await?;
        holder.release(&key, &grant).await?;
    }
    let killed = Instant::now();
    kill().map_err(|error| Failure::unexpected(format!("cannot kill the leader: {error}")))?;
    let mut attempts = 0;
    let until_claim = loop {
        attempts += 1;
        // A key of its own each time: a claim whose answer was lost may have been done.
        let key = format!("failover/{name}/after/{attempts}");
        match holder.claim(&key, TTL).await {
            Ok(_) => break killed.elapsed(),
            Err(failure) if killed.elapsed() > LIMIT => return Err(failure),
            Err(_) => tokio::time::sleep(BETWEEN_CALLS).await,
        }
    };
    let kept = loop {
        // Unlike a release this can be asked again: only the first claim of a free key succeeds.
        match holder.claim(&held_key, TTL).await {
            Ok(_) => break false,
            Err(Failure::Refused { .. }) => break true,
            Err(failure) if killed.elapsed() > LIMIT => return Err(failure),
            Err(_) => tokio::time::sleep(BETWEEN_CALLS).await,
        }
    };
    Ok(Failover {
        until_claim,
        attempts,
        kept,
    })
}

#[cfg(test)]
mod tests;
