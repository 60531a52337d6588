//! From the machine's words to the wire.

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1;
use tenure_core::command::FenceMode;
use tenure_core::effect::{Change, ChangeKind};
use tenure_core::ids::{GroupId, Namespace, Secret, SessionId, SessionRef};
use tenure_core::query::{KeyView, RecordView, SessionView};
use tenure_core::refusal::{EndReason, KeyFacts, Refusal};
use tenure_core::response::{Answer, Appended, CacheRecord, Removed, StreamRecord};
use tenure_core::time::Span;

use crate::service::Read;

/// Where and when an answer was given.
pub(super) fn header_of_answer(group: GroupId, answer: &Answer) -> Option<v1::Header> {
    Some(v1::Header {
        group: group.0,
        revision: answer.revision.0,
        time_us: answer.time.0,
    })
}

/// Where and when a read was true.
pub(super) fn header_of_read(group: GroupId, read: &Read) -> Option<v1::Header> {
    Some(v1::Header {
        group: group.0,
        revision: read.revision.0,
        time_us: read.time.0,
    })
}

pub(super) fn scope(namespace: &Namespace) -> Option<v1::Scope> {
    Some(v1::Scope {
        tenant: namespace.tenant.clone(),
        namespace: namespace.name.clone(),
    })
}

/// A verdict, with what stood in the way.
pub(super) fn refusal(refusal: &Refusal, copies: u32) -> v1::Refusal {
    use v1::refusal::{ConditionFailed, Detail, ExistsOtherwise};
    let (code, detail) = match refusal {
        Refusal::ConditionFailed(facts) => {
            let key = facts.as_ref().map(key_facts);
            (
                ErrorCode::ConditionFailed,
                Detail::ConditionFailed(ConditionFailed { key }),
            )
        }
        Refusal::ExistsOtherwise(record) => {
            let cache = Some(cache_info(record, copies));
            (
                ErrorCode::ExistsOtherwise,
                Detail::ExistsOtherwise(ExistsOtherwise { cache, stream: None }),
            )
        }
        Refusal::StreamExistsOtherwise(record) => {
            let stream = Some(stream_info(record, copies));
            (
                ErrorCode::ExistsOtherwise,
                Detail::ExistsOtherwise(ExistsOtherwise { cache: None, stream }),
            )
        }
        Refusal::WrongTail { tail } => (ErrorCode::WrongTail, Detail::WrongTail(*tail)),
        Refusal::StaleToken { current } => (ErrorCode::StaleToken, Detail::StaleToken(*current)),
    };
    v1::Refusal {
        code: code.name().to_owned(),
        detail: Some(detail),
    }
}

fn key_facts(facts: &KeyFacts) -> v1::KeyFacts {
    v1::KeyFacts {
        version: facts.version,
        created: facts.created,
        holder: facts.holder.map(|holder| holder.0),
        remaining_us: facts.remaining.map(|remaining| remaining.0),
        value: facts.value.clone(),
        value_len: facts.value_len,
    }
}

pub(super) fn cache_info(record: &CacheRecord, copies: u32) -> v1::CacheInfo {
    v1::CacheInfo {
        scope: scope(&record.name.namespace),
        name: record.name.name.clone(),
        shards: 1,
        replication: record.settings.replication,
        replication_actual: copies.min(record.settings.replication),
        consistency: v1::Consistency::Quorum.into(),
        incarnation: record.incarnation.0,
    }
}

pub(super) fn stream_info(record: &StreamRecord, copies: u32) -> v1::StreamInfo {
    let settings = &record.settings;
    let fence = match settings.fence {
        FenceMode::Optional => v1::FenceMode::Optional,
        FenceMode::Mandatory => v1::FenceMode::Mandatory,
    };
    v1::StreamInfo {
        scope: scope(&record.name.namespace),
        name: record.name.name.clone(),
        settings: Some(v1::StreamSettings {
            retention_ms: settings.retention.map(Span::as_millis),
            retention_bytes: settings.retention_bytes,
            fence: fence.into(),
            dedup_window_ms: Some(settings.dedup_window.as_millis()),
            shards: Some(1),
            replication: Some(settings.replication),
            consistency: v1::Consistency::Quorum.into(),
        }),
        replication_actual: copies.min(settings.replication),
        incarnation: record.incarnation.0,
    }
}

pub(super) fn record(view: RecordView) -> v1::Record {
    v1::Record {
        offset: view.offset,
        data: view.data,
        time_us: view.time.0,
        fence_token: view.token,
    }
}

pub(super) fn appended(appended: Appended) -> v1::AppendDone {
    let Appended {
        first,
        count,
        duplicate,
    } = appended;
    v1::AppendDone {
        first,
        count,
        duplicate,
    }
}

/// A removal, or that there was nothing to remove.
pub(super) fn deleted(removed: Option<Removed>) -> v1::DeleteDone {
    let removed = removed.map(|removed| v1::delete_done::Removal {
        revision: removed.revision,
        version: removed.version,
    });
    v1::DeleteDone { removed }
}

/// A key as a reader sees it; what remains is counted at the leader's time.
pub(super) fn key_value(view: KeyView, behind_leader: Span, keys_only: bool) -> v1::KeyValue {
    v1::KeyValue {
        key: view.key,
        value: if keys_only { Bytes::new() } else { view.value },
        version: view.version,
        created: view.created,
        owner_session: view.owner.map(|owner| owner.0),
        remaining_us: view
            .remaining
            .map(|remaining| remaining.0.saturating_sub(behind_leader.0)),
    }
}

pub(super) fn session_info(view: &SessionView, behind_leader: Span) -> v1::SessionInfo {
    let owned = view.owned.iter().map(|(cache, key)| v1::OwnedKey {
        scope: scope(&cache.namespace),
        cache: cache.name.clone(),
        key: key.clone(),
    });
    v1::SessionInfo {
        id: view.id.0,
        scope: scope(&view.namespace),
        label: view.label.clone(),
        ttl_ms: view.ttl.map(Span::as_millis),
        remaining_us: view
            .remaining
            .map(|remaining| remaining.0.saturating_sub(behind_leader.0)),
        ended: view.ended.map(|(reason, revision)| session_end(reason, revision)),
        owned_count: view.owned_count,
        owned: owned.collect(),
        results_kept: view.results_kept,
    }
}

pub(super) fn session_end(reason: EndReason, revision: u64) -> v1::SessionEnd {
    v1::SessionEnd {
        reason: end_reason(reason).into(),
        revision,
    }
}

pub(super) fn session_ref(id: SessionId, secret: Secret) -> v1::SessionRef {
    let SessionRef { id, secret } = SessionRef { id, secret };
    v1::SessionRef {
        id: id.0,
        secret: identity(secret.0),
    }
}

/// 128 bits.
pub(super) fn identity(bits: u128) -> Bytes {
    Bytes::copy_from_slice(&bits.to_be_bytes())
}

pub(super) fn end_reason(reason: EndReason) -> v1::EndReason {
    match reason {
        EndReason::Delete => v1::EndReason::Delete,
        EndReason::Expired => v1::EndReason::Expired,
        EndReason::Session => v1::EndReason::Session,
        EndReason::Closed => v1::EndReason::Closed,
        EndReason::Forced => v1::EndReason::Forced,
        EndReason::ObjectDeleted => v1::EndReason::ObjectDeleted,
    }
}

pub(super) fn change(change: Change) -> v1::Change {
    let Change {
        revision,
        key,
        kind,
        previous_version,
        ..
    } = change;
    let kind = match kind {
        ChangeKind::Put {
            value,
            created,
            owner,
            ttl,
        } => v1::change::Kind::Put(v1::change::Put {
            value,
            version: revision,
            created,
            owner_session: owner.map(|owner| owner.0),
            ttl_ms: ttl.map(Span::as_millis),
        }),
        ChangeKind::Removed { reason } => v1::change::Kind::Removed(v1::change::Removed {
            reason: end_reason(reason).into(),
        }),
    };
    v1::Change {
        revision,
        key,
        kind: Some(kind),
        previous_version,
    }
}
