//! Transactions: every guard and operation by the rules of the single commands, and the bounds of the whole.

use bytes::Bytes;
use tenure_api::v1::{self, WireError, txn_guard, txn_operation};
use tenure_core::command::{Operation, Txn, TxnGuard};
use tenure_core::ids::{ObjectName, SessionId};

use super::super::error::of_failure;
use super::{cache, guard, key, key_ttl, object, session, streams, value, within};

/// What a transaction asks for.
pub(in super::super) struct Asked {
    pub(in super::super) guards: Vec<v1::TxnGuard>,
    pub(in super::super) then: Vec<v1::TxnOperation>,
    pub(in super::super) otherwise: Vec<v1::TxnOperation>,
}

/// A transaction over the objects of a namespace.
pub(in super::super) fn txn(scope: Option<&v1::Scope>, asked: Asked) -> Result<Txn, WireError> {
    Txn::check_items(asked.guards.len() + asked.then.len() + asked.otherwise.len()).map_err(of_failure)?;
    let guards = asked.guards.into_iter().enumerate();
    let guards: Vec<TxnGuard> = guards
        .map(|(place, given)| within(&format!("guards[{place}]"), txn_guard(scope, given)))
        .collect::<Result<_, _>>()?;
    let txn = Txn {
        guards,
        then: branch(scope, "then", asked.then)?,
        otherwise: branch(scope, "otherwise", asked.otherwise)?,
    };
    txn.check().map_err(of_failure)?;
    Ok(txn)
}

fn txn_guard(scope: Option<&v1::Scope>, given: v1::TxnGuard) -> Result<TxnGuard, WireError> {
    use txn_guard::Kind;
    match given.kind {
        Some(Kind::Key(asked)) => {
            let (cache, key) = within("key", key_of(scope, &asked.cache, asked.key))?;
            let guard = within("key", guard(asked.guard))?
                .ok_or_else(|| WireError::invalid("key.guard", "it must be given"))?;
            Ok(TxnGuard::Key { cache, key, guard })
        }
        Some(Kind::Counter(asked)) => {
            let (cache, key) = within("counter", key_of(scope, &asked.cache, asked.key))?;
            let (min, max) = (asked.min, asked.max);
            Ok(TxnGuard::Counter { cache, key, min, max })
        }
        Some(Kind::StreamTail(asked)) => Ok(TxnGuard::StreamTail {
            stream: within("stream_tail", object(scope, "stream", &asked.stream))?,
            tail: asked.tail,
        }),
        Some(Kind::SessionAlive(id)) => Ok(TxnGuard::SessionAlive { session: SessionId(id) }),
        None => Err(WireError::invalid("kind", "a guard that this node knows")),
    }
}

fn branch(scope: Option<&v1::Scope>, name: &str, asked: Vec<v1::TxnOperation>) -> Result<Vec<Operation>, WireError> {
    let operations = asked.into_iter().enumerate();
    operations
        .map(|(place, given)| within(&format!("{name}[{place}]"), txn_operation(scope, given)))
        .collect()
}

fn txn_operation(scope: Option<&v1::Scope>, given: v1::TxnOperation) -> Result<Operation, WireError> {
    use txn_operation::Kind;
    match given.kind {
        Some(Kind::Put(asked)) => within("put", put(scope, *asked)),
        Some(Kind::Delete(asked)) => {
            let (cache, key) = within("delete", key_of(scope, &asked.cache, asked.key))?;
            Ok(Operation::Delete { cache, key })
        }
        Some(Kind::Add(asked)) => {
            let (cache, key) = within("add", key_of(scope, &asked.cache, asked.key))?;
            let ttl = within("add", asked.ttl_ms.map(key_ttl).transpose())?;
            let delta = asked.delta;
            Ok(Operation::Add { cache, key, delta, ttl })
        }
        Some(Kind::Append(asked)) => Ok(Operation::Append {
            stream: within("append", object(scope, "stream", &asked.stream))?,
            append: within("append", streams::append(asked.append))?,
        }),
        Some(Kind::Get(asked)) => {
            let (cache, key) = within("get", key_of(scope, &asked.cache, asked.key))?;
            Ok(Operation::Get { cache, key })
        }
        None => Err(WireError::invalid("kind", "an operation that this node knows")),
    }
}

fn put(scope: Option<&v1::Scope>, asked: txn_operation::Put) -> Result<Operation, WireError> {
    let (cache, key) = key_of(scope, &asked.cache, asked.key)?;
    Ok(Operation::Put {
        cache,
        key,
        value: value(asked.value)?,
        ttl: asked.ttl_ms.map(key_ttl).transpose()?,
        owner: asked.owner.as_ref().map(|owner| session("owner", owner)).transpose()?,
    })
}

fn key_of(scope: Option<&v1::Scope>, of_cache: &str, given: Bytes) -> Result<(ObjectName, Bytes), WireError> {
    Ok((cache(scope, of_cache)?, key(given)?))
}
