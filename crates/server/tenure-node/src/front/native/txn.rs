//! Transactions.

use bytes::Bytes;
use tenure_api::v1::{self, WireError, txn_reply, txn_result};
use tenure_core::command::{Command, Operation, Txn};
use tenure_core::response::{Done, OperationResult, Response};

use super::error::{of_failure, of_service};
use super::handler::{Call, unexpected};
use super::{decode, encode};
use crate::front::answers::TXN_ANSWER_BYTES;

pub(super) async fn execute(call: &Call<'_>, request: v1::TxnRequest) -> Result<v1::TxnReply, WireError> {
    let namespace = decode::namespace(request.scope.as_ref())?;
    let asked = decode::txn::Asked {
        guards: request.guards,
        then: request.then,
        otherwise: request.otherwise,
    };
    let txn = decode::txn::txn(request.scope.as_ref(), asked)?;
    let names = Names::of(&txn);
    let deadline = call.deadline(request.timeout_ms);
    let reads = |branch: &[Operation]| {
        branch
            .iter()
            .any(|operation| matches!(operation, Operation::Get { .. }))
    };
    if reads(&txn.then) || reads(&txn.otherwise) {
        let taken = call
            .service
            .take_room(call.room, TXN_ANSWER_BYTES, false, deadline)
            .await;
        taken.map_err(of_service)?;
    }
    let (group, answer) = call
        .submit(&namespace, request.request, Command::Txn(txn), deadline)
        .await?;
    let header = encode::header_of_answer(group, &answer);
    let repeated = answer.repeated;
    let verdict = match answer.response {
        Response::Done(Done::Txn {
            applied,
            failed_guard,
            revision,
            results,
        }) => {
            let names = if applied { names.then } else { names.otherwise };
            txn_reply::Verdict::Done(v1::TxnDone {
                applied,
                failed_guard,
                revision,
                results: names.into_iter().zip(results).map(result).collect(),
            })
        }
        Response::Refused(refusal) => {
            txn_reply::Verdict::Refused(encode::refusal(&refusal, call.service.copies(group)))
        }
        Response::Failed(failure) => return Err(of_failure(failure)),
        Response::Done(other) => return Err(unexpected(&other)),
    };
    Ok(v1::TxnReply {
        header,
        repeated,
        verdict: Some(verdict),
    })
}

/// The key of each operation, which its result does not repeat; empty where it needs none.
struct Names {
    then: Vec<Bytes>,
    otherwise: Vec<Bytes>,
}

impl Names {
    fn of(txn: &Txn) -> Names {
        let keys = |branch: &[Operation]| {
            let key = |operation: &Operation| match operation {
                Operation::Get { key, .. } => key.clone(),
                _ => Bytes::new(),
            };
            branch.iter().map(key).collect()
        };
        Names {
            then: keys(&txn.then),
            otherwise: keys(&txn.otherwise),
        }
    }
}

fn result((key, result): (Bytes, OperationResult)) -> v1::TxnResult {
    use txn_result::{GetDone, Kind};
    let kind = match result {
        OperationResult::Put { version, created } => Kind::Put(v1::PutDone { version, created }),
        OperationResult::Deleted { removed } => Kind::Deleted(encode::deleted(removed)),
        OperationResult::Added { sum, version, created } => Kind::Added(v1::AddDone { sum, version, created }),
        OperationResult::Appended(appended) => Kind::Appended(encode::appended(appended)),
        OperationResult::Got(found) => Kind::Got(GetDone {
            key: found.map(|found| v1::KeyValue {
                key,
                value: found.value,
                version: found.version,
                created: found.created,
                owner_session: found.owner.map(|owner| owner.0),
                remaining_us: None,
            }),
        }),
    };
    v1::TxnResult { kind: Some(kind) }
}
