//! Transactions by the naive rules: a branch is tried on a copy of everything, and the copy is taken if all went well.

use bytes::Bytes;
use tenure_core::command::{Command, Operation, Txn, TxnGuard};
use tenure_core::ids::ObjectName;
use tenure_core::refusal::Failure;
use tenure_core::response::{Done, KeyFound, OperationResult, Response};

use super::{Naive, counter, no_cache};

impl Naive {
    pub(super) fn txn(&mut self, txn: &Txn) -> Response {
        for (field, branch) in [("then", &txn.then), ("otherwise", &txn.otherwise)] {
            if let Some(failure) = writes_twice(field, branch) {
                return Response::Failed(failure);
            }
        }
        let failed_guard = match self.first_failed(&txn.guards) {
            Ok(failed) => failed,
            Err(failure) => return Response::Failed(failure),
        };
        let branch = match failed_guard {
            None => &txn.then,
            Some(_) => &txn.otherwise,
        };
        let mut tried = (self.clone(), Vec::new());
        for count in 1..=branch.len() {
            // What has lapsed ends before, whatever becomes of the rest.
            self.meet(&branch[count - 1]);
            match self.tried(&branch[..count]) {
                Ok(whole) => tried = whole,
                Err(verdict) => return *verdict,
            }
        }
        let (after, results) = tried;
        let revision = after.step.flatten();
        *self = Naive { step: None, ..after };
        Response::Done(Done::Txn {
            applied: failed_guard.is_none(),
            failed_guard,
            revision,
            results,
        })
    }

    /// The whole state after these operations, under one revision.
    fn tried(&self, operations: &[Operation]) -> Result<(Naive, Vec<OperationResult>), Box<Response>> {
        let mut after = Naive {
            step: Some(None),
            ..self.clone()
        };
        let mut results = Vec::new();
        for operation in operations {
            results.push(after.operate(operation)?);
        }
        Ok((after, results))
    }

    fn first_failed(&mut self, guards: &[TxnGuard]) -> Result<Option<u32>, Failure> {
        for (at, guard) in (0..).zip(guards) {
            let holds = match guard {
                TxnGuard::Key { cache, key, guard } => match self.refuses(cache, key, Some(guard)) {
                    Some(Response::Failed(failure)) => return Err(failure),
                    Some(_) => false,
                    None => true,
                },
                TxnGuard::Counter { cache, key, min, max } => {
                    self.see(cache, key)?;
                    let value = counter(self.caches[cache].keys.get(key))?;
                    min.is_none_or(|min| value >= min) && max.is_none_or(|max| value <= max)
                }
                TxnGuard::StreamTail { stream, tail } => self.tail(stream)? == *tail,
                TxnGuard::SessionAlive { session } => self.alive(*session).is_ok(),
            };
            if !holds {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    /// Lets end what an operation meets and what has lapsed.
    fn meet(&mut self, operation: &Operation) {
        let (cache, key, owner) = match operation {
            Operation::Put { cache, key, owner, .. } => (cache, key, *owner),
            Operation::Delete { cache, key } | Operation::Add { cache, key, .. } | Operation::Get { cache, key } => {
                (cache, key, None)
            }
            Operation::Append { .. } => return,
        };
        if self.see(cache, key).is_ok()
            && let Some(owner) = owner
        {
            let _ = self.alive(owner.id);
        }
    }

    fn see(&mut self, cache: &ObjectName, key: &Bytes) -> Result<(), Failure> {
        match self.refuses(cache, key, None) {
            Some(_) => Err(no_cache(cache)),
            None => Ok(()),
        }
    }

    fn operate(&mut self, operation: &Operation) -> Result<OperationResult, Box<Response>> {
        let command = match operation.clone() {
            Operation::Put {
                cache,
                key,
                value,
                ttl,
                owner,
            } => Command::Put {
                cache,
                key,
                value,
                ttl,
                guard: None,
                owner,
            },
            Operation::Delete { cache, key } => Command::Delete {
                cache,
                key,
                guard: None,
            },
            Operation::Add { cache, key, delta, ttl } => Command::Add { cache, key, delta, ttl },
            Operation::Append { stream, append } => Command::Append { stream, append },
            Operation::Get { cache, key } => {
                self.see(&cache, &key)
                    .map_err(|failure| Box::new(Response::Failed(failure)))?;
                return Ok(OperationResult::Got(self.caches[&cache].keys.get(&key).map(|row| {
                    KeyFound {
                        value: row.value.clone(),
                        version: row.version,
                        created: row.created,
                        owner: row.owner,
                    }
                })));
            }
        };
        match self.execute(&command) {
            Response::Done(Done::Put { version, created }) => Ok(OperationResult::Put { version, created }),
            Response::Done(Done::Deleted { removed }) => Ok(OperationResult::Deleted { removed }),
            Response::Done(Done::Added { sum, version, created }) => {
                Ok(OperationResult::Added { sum, version, created })
            }
            Response::Done(Done::Appended(appended)) => Ok(OperationResult::Appended(appended)),
            other => Err(Box::new(other)),
        }
    }
}

fn writes_twice(field: &str, branch: &[Operation]) -> Option<Failure> {
    let target = |operation: &Operation| match operation {
        Operation::Put { cache, key, .. } | Operation::Delete { cache, key } | Operation::Add { cache, key, .. } => {
            Some((cache.clone(), Some(key.clone())))
        }
        Operation::Append { stream, .. } => Some((stream.clone(), None)),
        Operation::Get { .. } => None,
    };
    let targets: Vec<_> = branch.iter().map(target).collect();
    let twice = (0..targets.len()).find(|at| targets[*at].is_some() && targets[..*at].contains(&targets[*at]))?;
    let rule = match targets[twice].as_ref()?.1 {
        Some(_) => "a key is written at most once",
        None => "a stream is appended to at most once",
    };
    Some(Failure::Invalid {
        field: format!("{field}[{twice}]"),
        rule: rule.to_owned(),
    })
}
