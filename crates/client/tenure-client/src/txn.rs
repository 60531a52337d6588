//! Transactions: several objects of a namespace in one atomic step.

mod parts;

use std::future::IntoFuture;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::Outcome;
use tenure_api::v1::{self, RequestId, TxnRequest, client_frame, server_frame, txn_reply, txn_result};

use crate::cache::{Entry, Owner, Removal};
use crate::client::{Client, Mutation};
use crate::error::Error;
use crate::stream::Appended;
use crate::verdict::{Refusal, Verdict};

pub use parts::{AppendTo, Operation, PutKey, TxnGuard};

impl Client {
    /// Describes a transaction over caches and streams of the namespace.
    pub fn txn(&self) -> Txn {
        Txn {
            client: self.clone(),
            guards: Vec::new(),
            then: Vec::new(),
            otherwise: Vec::new(),
        }
    }
}

/// A transaction that is being described; awaiting it sends it. If all guards hold, `then` is done, else `otherwise`: all
/// of that branch or nothing, in one step and at one revision. At most 128 guards and operations together, and 2 MiB.
///
/// Guards that do not hold are no refusal: [`applied`](TxnOutcome::applied) is false then, with what `otherwise` gave. A
/// refusal comes from an append whose fencing token or expected offset is not right, and undoes its whole branch.
///
/// ```no_run
/// # async fn run(client: tenure_client::Client) -> Result<(), tenure_client::Error> {
/// use tenure_client::{Guard, Operation, OperationResult, TxnGuard};
///
/// let outcome = client
///     .txn()
///     .when(TxnGuard::counter("stock", "apples", 1..))
///     .when(TxnGuard::key("orders", "o-17", Guard::Absent))
///     .then(Operation::add("stock", "apples", -1))
///     .then(Operation::put("orders", "o-17", "one apple"))
///     .then(Operation::append("events", ["o-17 placed"]))
///     .otherwise(Operation::get("orders", "o-17"))
///     .await?
///     .done()?;
/// if outcome.applied {
///     println!("ordered, at revision {:?}", outcome.revision);
/// } else if let Some(OperationResult::Got(Some(order))) = outcome.results.first() {
///     println!("guard {:?}; the order exists: {:?}", outcome.failed_guard, order.value);
/// }
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "a transaction is sent when it is awaited"]
pub struct Txn {
    client: Client,
    guards: Vec<TxnGuard>,
    then: Vec<Operation>,
    otherwise: Vec<Operation>,
}

/// One branch of a transaction was run.
#[derive(Clone, Debug)]
pub struct TxnOutcome {
    /// Whether all guards held, and it was `then` that was run.
    pub applied: bool,
    /// If not: the place of the first guard that did not hold, from 0.
    pub failed_guard: Option<usize>,
    /// The revision that all its changes share; `None`: nothing changed.
    pub revision: Option<u64>,
    /// One for each operation of the branch that was run, in order.
    pub results: Vec<OperationResult>,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

/// What one operation of a transaction did.
#[derive(Clone, Debug)]
pub enum OperationResult {
    /// A key was written.
    Put {
        /// Revision of this write.
        version: u64,
        /// Revision of the key's creation: its fencing token.
        created: u64,
    },
    /// A key is not there.
    Deleted {
        /// What was removed; `None`: there was no such key.
        removed: Option<Removal>,
    },
    /// A counter was changed.
    Added {
        /// What it holds now.
        sum: i64,
        /// Revision of this write.
        version: u64,
        /// Revision of the counter's creation.
        created: u64,
    },
    /// Records are in a stream.
    Appended(Appended),
    /// A key was read, as the operations before it left it; `None`: there is none. Without the time that remains.
    Got(Option<Entry>),
}

impl Txn {
    /// This must hold too for `then` to be run.
    pub fn when(mut self, guard: TxnGuard) -> Txn {
        self.guards.push(guard);
        self
    }

    /// This is done, behind what was said before, if all guards hold.
    pub fn then(mut self, operation: impl Into<Operation>) -> Txn {
        self.then.push(operation.into());
        self
    }

    /// This is done, behind what was said before, if a guard does not hold.
    pub fn otherwise(mut self, operation: impl Into<Operation>) -> Txn {
        self.otherwise.push(operation.into());
        self
    }

    async fn send(self) -> Result<Verdict<TxnOutcome>, Error> {
        let client = &self.client;
        self.check_owners(&self.then, Outcome::NotApplied)?;
        self.check_owners(&self.otherwise, Outcome::NotApplied)?;
        let make = |request: Option<RequestId>| {
            client_frame::Body::Txn(TxnRequest {
                scope: Some(client.scope()),
                guards: self.guards.iter().map(TxnGuard::to_wire).collect(),
                then: self.then.iter().map(Operation::to_wire).collect(),
                otherwise: self.otherwise.iter().map(Operation::to_wire).collect(),
                request,
                timeout_ms: 0,
            })
        };
        let answer = client.mutate(Mutation::ONCE, client.timeout(), make).await?;
        let server_frame::Body::Txn(reply) = answer.body else {
            return Err(Error::unexpected("txn"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(txn_reply::Verdict::Done(done)) => {
                let branch = if done.applied { &self.then } else { &self.otherwise };
                // The answer may have come after an owner stopped believing in its session.
                self.check_owners(branch, Outcome::Unknown)?;
                let outcome = TxnOutcome::from_wire(done, reply.repeated)
                    .filter(|outcome| outcome.results.len() == branch.len())
                    .ok_or_else(|| Error::unexpected("txn"))?;
                Ok(Verdict::Done(outcome))
            }
            Some(txn_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("txn")),
        }
    }

    /// Whether the owners of what a branch writes may still act, as far as this program knows.
    fn check_owners(&self, branch: &[Operation], outcome: Outcome) -> Result<(), Error> {
        let mut owners = branch.iter().filter_map(Operation::owner);
        owners.try_for_each(|owner: &Owner| owner.check(outcome))
    }
}

impl IntoFuture for Txn {
    type Output = Result<Verdict<TxnOutcome>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    /// # Errors
    /// `invalid`: it breaks a rule; `not_found`: a cache or a stream of it does not exist; `wrong_type`: a counter that
    /// is none; `limit`: its reads together are too large. Nothing was done in all these cases. Those of the call
    /// besides.
    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

impl TxnOutcome {
    /// `None`: it has a result of a kind that this program does not know.
    fn from_wire(done: v1::TxnDone, repeated: bool) -> Option<TxnOutcome> {
        let results = done.results.into_iter();
        Some(TxnOutcome {
            applied: done.applied,
            failed_guard: done.failed_guard.and_then(|place| usize::try_from(place).ok()),
            revision: done.revision,
            results: results
                .map(|result| OperationResult::from_wire(result, repeated))
                .collect::<Option<_>>()?,
            repeated,
        })
    }
}

impl OperationResult {
    fn from_wire(result: v1::TxnResult, repeated: bool) -> Option<OperationResult> {
        Some(match result.kind? {
            txn_result::Kind::Put(done) => OperationResult::Put {
                version: done.version,
                created: done.created,
            },
            txn_result::Kind::Deleted(done) => OperationResult::Deleted {
                removed: done.removed.map(Removal::from_wire),
            },
            txn_result::Kind::Added(done) => OperationResult::Added {
                sum: done.sum,
                version: done.version,
                created: done.created,
            },
            txn_result::Kind::Appended(done) => OperationResult::Appended(Appended::from_wire(done, repeated)),
            txn_result::Kind::Got(done) => OperationResult::Got(done.key.map(Entry::from_wire)),
        })
    }
}
