//! The writer that is paused: it claims, writes, and then writes once more when it is told to, however much later.
//!
//! It does what a program does that looked at its lease a moment before it was paused: between the look and the write
//! there is nothing that could stop it. It prints `wrote TOKEN`, and `late ANSWER` for its second write.

use std::time::Duration;

use tenure_client::{Client, Error, Verdict};

use super::paused::{CACHE, KEY};
use super::resource;
use crate::exit::Failure;

/// Runs the writer to its end.
///
/// # Errors
/// It cannot claim or write, or is told nothing more.
pub(super) fn run(node: &str, resource: &str, ttl: Duration) -> Result<(), Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .map_err(|error| Failure::failed(format!("no thread could be started: {error}"), "free some resources"))?;
    let token = runtime.block_on(claim(node, ttl))?;
    let unreachable = |error| Failure::failed(format!("the resource cannot be reached: {error}"), "report it");
    let answer = resource::ask(resource, &format!("write {token} by the first writer")).map_err(unreachable)?;
    if answer != "ok" {
        return Err(Failure::failed(
            format!("the first write was answered {answer:?}"),
            "report it",
        ));
    }
    println!("wrote {token}");
    let mut told = String::new();
    let read = std::io::stdin().read_line(&mut told);
    if !matches!(read, Ok(length) if length > 0) {
        return Err(Failure::failed("the writer was told nothing more", "report it"));
    }
    let answer = resource::ask(resource, &format!("write {token} by the first writer, late")).map_err(unreachable)?;
    println!("late {answer}");
    runtime.shutdown_background();
    Ok(())
}

/// Claims the key with a session that the client renews in the background.
async fn claim(node: &str, ttl: Duration) -> Result<u64, Failure> {
    let client = Client::connect([node.to_owned()]).await?;
    let session = client.open_session(ttl).label("first writer").await?;
    let claim = client
        .cache(CACHE)
        .put(KEY, "first")
        .if_absent()
        .owner(&session)
        .await?;
    let claim = match claim {
        Verdict::Done(claim) => claim,
        Verdict::Refused(refused) => return Err(Error::Refused(Box::new(refused)).into()),
    };
    // It lives until the process ends or is paused.
    std::mem::forget(session);
    Ok(claim.token())
}
