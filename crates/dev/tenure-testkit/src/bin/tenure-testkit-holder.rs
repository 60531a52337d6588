//! A holder as a process of its own, so that a proof can stop it where it is.
//!
//! `tenure-testkit-holder ENDPOINT CACHE KEY TTL_MS` claims the key and prints `holding TOKEN`. When its session is
//! lost it prints `lost REASON`. Each line of its input is a command, answered by one line: `state` by `valid` or
//! `invalid`; `write VALUE` by `written VERSION` or `refused WHY` after a write of the key, guarded by the token and
//! by nothing that this process believes; `guarded VALUE` by the same, or by `error WHY`, after one that names the
//! session as the owner, too.

use std::io::{BufRead, stdin};
use std::process::ExitCode;
use std::time::Duration;

use tenure_client::{Client, Put, Session, Verdict};

/// A bound on its life, should whoever started it be gone without a trace.
const LIFETIME_MAX: Duration = Duration::from_secs(300);

#[tokio::main]
async fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [endpoint, cache, key, ttl_ms] = arguments.as_slice() else {
        eprintln!("usage: tenure-testkit-holder ENDPOINT CACHE KEY TTL_MS");
        return ExitCode::from(2);
    };
    let Ok(ttl_ms) = ttl_ms.parse() else {
        eprintln!("{ttl_ms} is no number of milliseconds");
        return ExitCode::from(2);
    };
    let holding = hold(endpoint, cache, key, Duration::from_millis(ttl_ms));
    match tokio::time::timeout(LIFETIME_MAX, holding).await {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
        Err(_) => {
            eprintln!("nobody wanted anything in {LIFETIME_MAX:?}");
            ExitCode::FAILURE
        }
    }
}

async fn hold(endpoint: &str, cache: &str, key: &str, ttl: Duration) -> Result<(), tenure_client::Error> {
    let client = Client::connect([endpoint]).await?;
    let session = client.open_session(ttl).await?;
    let cache = client.cache(cache);
    let token = cache
        .put(key, "claimed")
        .if_absent()
        .owner(&session)
        .await?
        .done()?
        .token();
    println!("holding {token}");
    let mut commands = commands();
    let mut lost = Box::pin(session.lost());
    let mut told = false;
    loop {
        let command = tokio::select! {
            reason = &mut lost, if !told => {
                told = true;
                println!("lost {reason:?}");
                continue;
            }
            command = commands.recv() => command,
        };
        let Some(command) = command else { return Ok(()) };
        let (verb, value) = command.split_once(' ').unwrap_or((&command, ""));
        match verb {
            "state" => println!("{}", if session.is_valid() { "valid" } else { "invalid" }),
            "write" => println!("{}", write(cache.put(key, value).if_created(token)).await),
            "guarded" => println!(
                "{}",
                write(owned(&session, cache.put(key, value).if_created(token))).await
            ),
            other => println!("error no such command: {other}"),
        }
    }
}

fn owned(session: &Session, put: Put) -> Put {
    put.owner(session)
}

async fn write(put: Put) -> String {
    match put.await {
        Ok(Verdict::Done(written)) => format!("written {}", written.version),
        Ok(Verdict::Refused(refusal)) => format!("refused {refusal}"),
        Err(error) => format!("error {error}"),
    }
}

/// Lines of the standard input.
fn commands() -> tokio::sync::mpsc::Receiver<String> {
    let (sender, receiver) = tokio::sync::mpsc::channel(16);
    std::thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            if sender.blocking_send(line).is_err() {
                return;
            }
        }
    });
    receiver
}
