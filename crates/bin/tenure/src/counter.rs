//! Counters: keys of a cache that hold a number.

use std::os::unix::ffi::OsStrExt as _;
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use tenure_api::v1::WireError;
use tenure_client::{Client, Error, ErrorCode};

use crate::args::cache::Target;
use crate::args::counter::CounterCommand;
use crate::duration::whole_ms;
use crate::exit::Failure;
use crate::output::{Answer, Blob, Decimal, Output, SignedDecimal, escaped};

/// Keys that a message names at most.
const NAMED_MAX: usize = 8;

/// Runs a command of `tenure counter`.
///
/// # Errors
/// Those of the command.
pub(crate) async fn run(command: CounterCommand, client: Client, output: &mut Output) -> Result<(), Failure> {
    match command {
        CounterCommand::Add { target, delta, ttl_ms } => add(target, delta, ttl_ms, &client, output).await,
        CounterCommand::Get { target } => get(target, &client, output).await,
    }
}

/// `counter add`.
#[derive(Serialize)]
struct Added {
    applied: bool,
    sum: SignedDecimal,
    version: Decimal,
    created: Decimal,
    ttl_ms: Option<u64>,
}

impl Answer for Added {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(self.sum.to_string().into_bytes());
    }
}

/// Names the keys of which one holds something else than a number, where that is what an error says.
pub(crate) fn naming(error: Error, keys: &[(String, Bytes)]) -> Error {
    let names: Vec<String> = keys
        .iter()
        .take(NAMED_MAX)
        .map(|(cache, key)| format!("{} of cache {cache}", escaped(key)))
        .collect();
    let what = match names.as_slice() {
        [] => return error,
        [name] => format!("key {name} holds"),
        _ => format!("one of the keys {} holds", names.join(", ")),
    };
    match error {
        Error::Server { error, outcome } if error.error_code() == Some(ErrorCode::WrongType) => Error::Server {
            error: Box::new(WireError {
                message: format!("{what} a value that is no counter: use another key"),
                ..*error
            }),
            outcome,
        },
        other => other,
    }
}

async fn add(
    target: Target,
    delta: i64,
    ttl_ms: Option<u64>,
    client: &Client,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut add = client.cache(&target.cache).add(target.key.as_bytes(), delta);
    if let Some(ttl_ms) = ttl_ms {
        add = add.ttl(Duration::from_millis(ttl_ms));
    }
    let added = add.await.map_err(|error| naming(error, &[named(&target)]))?;
    output.answer(&Added {
        applied: true,
        sum: SignedDecimal(added.sum),
        version: Decimal(added.version),
        created: Decimal(added.created),
        ttl_ms: added.remaining.map(whole_ms),
    })
}

/// `counter get`.
#[derive(Serialize)]
struct Counter {
    #[serde(flatten)]
    key: Blob<Bytes>,
    exists: bool,
    sum: SignedDecimal,
}

impl Answer for Counter {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(self.sum.to_string().into_bytes());
    }
}

async fn get(target: Target, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let sum = client
        .cache(&target.cache)
        .counter(target.key.as_bytes())
        .await
        .map_err(|error| naming(error, &[named(&target)]))?;
    output.answer(&Counter {
        key: Blob::key(Bytes::copy_from_slice(target.key.as_bytes())),
        exists: sum.is_some(),
        sum: SignedDecimal(sum.unwrap_or(0)),
    })
}

fn named(target: &Target) -> (String, Bytes) {
    let key = Bytes::copy_from_slice(target.key.as_bytes());
    (target.cache.clone(), key)
}
