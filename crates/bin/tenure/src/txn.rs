//! `tenure txn`: a transaction from standard input, and what became of it.

mod parse;

use std::io::{self, Read as _};
use std::time::Duration;

use bytes::Bytes;
use serde::{Serialize, Serializer};

use tenure_client::{Client, Entry, OperationResult, SessionKey, Txn, TxnGuard, TxnOutcome, Verdict};

use crate::counter::naming;
use crate::exit::{Failure, refusal};
use crate::input;
use crate::output::{Blob, Decimal, Output, SignedDecimal, json};
use crate::session;
use parse::{Guard, Operation, Publish, Transaction};

/// Bytes of JSON. A transaction has at most 2 MiB, and a byte takes at most six characters.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Runs the transaction on standard input. The answer is JSON in either format.
///
/// # Errors
/// The text is no transaction: nothing was sent. A guard did not hold, and the other branch was run. Those of the call.
pub(crate) async fn run(client: &Client, output: &mut Output) -> Result<(), Failure> {
    let mut text = Vec::new();
    let unreadable = |error: io::Error| Failure::failed(format!("cannot read standard input: {error}"), "try again");
    let stdin = input::open("a transaction")?;
    stdin
        .take(TEXT_BYTES_MAX + 1)
        .read_to_end(&mut text)
        .map_err(unreadable)?;
    if text.len() as u64 > TEXT_BYTES_MAX {
        let what = format!("a transaction has at most {TEXT_BYTES_MAX} bytes as JSON");
        return Err(Failure::settings(what, "make it smaller"));
    }
    let written = Transaction::parse(&text)
        .map_err(|error| Failure::settings(format!("the transaction cannot be read: {error}"), "correct it"))?;
    let counters = written.counters();
    let done = described(written, client)?.await;
    let outcome = match done.map_err(|error| naming(error, &counters))? {
        Verdict::Done(outcome) => outcome,
        Verdict::Refused(refused) => {
            // In JSON it is reported so.
            if !output.is_json() {
                write(&refusal::object(&refused), output)?;
            }
            return Err(refused.into());
        }
    };
    let applied = outcome.applied;
    write(&Outcome::new(outcome), output)?;
    if applied { Ok(()) } else { Err(Failure::Otherwise) }
}

fn write(answer: &impl Serialize, output: &mut Output) -> Result<(), Failure> {
    let mut line = json(answer)?;
    line.push(b'\n');
    output.raw(&line)
}

/// The transaction as the client describes it.
fn described(written: Transaction, client: &Client) -> Result<Txn, Failure> {
    let mut txn = client.txn();
    for guard in written.guards {
        txn = txn.when(match guard {
            Guard::Key { cache, key, guard } => TxnGuard::Key { cache, key, guard },
            Guard::Counter { cache, key, min, max } => TxnGuard::Counter { cache, key, min, max },
            Guard::Tail { stream, tail } => TxnGuard::StreamTail { stream, tail },
            Guard::Alive { session } => TxnGuard::SessionAlive { session },
        });
    }
    for operation in written.then {
        txn = txn.then(described_operation(operation)?);
    }
    for operation in written.otherwise {
        txn = txn.otherwise(described_operation(operation)?);
    }
    Ok(txn)
}

fn described_operation(operation: Operation) -> Result<tenure_client::Operation, Failure> {
    use tenure_client::Operation as Described;
    let ttl = |ttl_ms: Option<u64>| ttl_ms.map(Duration::from_millis);
    Ok(match operation {
        Operation::Put {
            cache,
            key,
            value,
            ttl_ms,
            session,
        } => {
            let mut put = Described::put(cache, key, value);
            if let Some(ttl) = ttl(ttl_ms) {
                put = put.ttl(ttl);
            }
            if let Some(session) = session {
                let key: SessionKey = session::key(&session)?;
                put = put.owner(key);
            }
            put.into()
        }
        Operation::Delete { cache, key } => Described::Delete { cache, key },
        Operation::Add {
            cache,
            key,
            delta,
            ttl_ms,
        } => Described::Add {
            cache,
            key,
            delta,
            ttl: ttl(ttl_ms),
        },
        Operation::Publish { stream, publish } => described_publish(stream, publish),
        Operation::Get { cache, key } => Described::Get { cache, key },
    })
}

fn described_publish(stream: String, publish: Publish) -> tenure_client::Operation {
    let mut append = tenure_client::Operation::append(stream, publish.records);
    if let Some(offset) = publish.if_offset {
        append = append.if_offset(offset);
    }
    if let Some(token) = publish.fence_token {
        append = append.fence_token(token);
    }
    if let Some(id) = publish.dedup_id {
        append = append.message_id(id);
    }
    append.into()
}

/// What became of it.
#[derive(Serialize)]
struct Outcome {
    applied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    failed_guard: Option<usize>,
    revision: Option<Decimal>,
    results: Vec<Done>,
}

/// What an operation did, under its name.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
enum Done {
    Put {
        version: Decimal,
        created: Decimal,
    },
    Delete {
        deleted: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Decimal>,
    },
    Add {
        sum: SignedDecimal,
        version: Decimal,
        created: Decimal,
    },
    Publish {
        offset: Option<Decimal>,
        last: Option<Decimal>,
        count: u64,
        tail: Decimal,
        duplicate: bool,
    },
    Get(Got),
}

/// A key that was read; null if there is none.
struct Got(Option<Entry>);

impl Serialize for Got {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        #[derive(Serialize)]
        struct Found<'a> {
            #[serde(flatten)]
            key: Blob<&'a Bytes>,
            #[serde(flatten)]
            value: Blob<&'a Bytes>,
            version: Decimal,
            created: Decimal,
            holder: Option<Decimal>,
        }
        let found = self.0.as_ref().map(|entry| Found {
            key: Blob::key(&entry.key),
            value: Blob::value(&entry.value),
            version: Decimal(entry.version),
            created: Decimal(entry.created),
            holder: entry.owner_session.map(Decimal),
        });
        found.serialize(serializer)
    }
}

impl Outcome {
    fn new(outcome: TxnOutcome) -> Outcome {
        Outcome {
            applied: outcome.applied,
            failed_guard: outcome.failed_guard,
            revision: outcome.revision.map(Decimal),
            results: outcome.results.into_iter().map(Done::new).collect(),
        }
    }
}

impl Done {
    fn new(result: OperationResult) -> Done {
        match result {
            OperationResult::Put { version, created } => Done::Put {
                version: Decimal(version),
                created: Decimal(created),
            },
            OperationResult::Deleted { removed } => Done::Delete {
                deleted: removed.is_some(),
                version: removed.map(|removed| Decimal(removed.version)),
            },
            OperationResult::Added { sum, version, created } => Done::Add {
                sum: SignedDecimal(sum),
                version: Decimal(version),
                created: Decimal(created),
            },
            OperationResult::Appended(appended) => Done::Publish {
                offset: (appended.count > 0).then_some(Decimal(appended.first)),
                last: (appended.count > 0).then(|| Decimal(appended.next() - 1)),
                count: appended.count,
                tail: Decimal(appended.next()),
                duplicate: appended.duplicate,
            },
            OperationResult::Got(entry) => Done::Get(Got(entry)),
        }
    }
}
