//! What streams are created with, what is appended to them, and where they are read from.

use tenure_api::v1::{self, WireError};
use tenure_core::command::{Append, FenceMode, StreamSettings};
use tenure_core::limits::DEDUP_WINDOW_DEFAULT;
use tenure_core::query::ReadFrom;
use tenure_core::time::Span;

use super::super::error::of_failure;
use super::{consistency, replication, shards};

/// What a stream is created with; what is left out has its default.
pub(in super::super) fn settings(given: Option<v1::StreamSettings>) -> Result<StreamSettings, WireError> {
    let given = given.unwrap_or_default();
    shards("shards", given.shards)?;
    consistency("consistency", given.consistency)?;
    let fence = match v1::FenceMode::try_from(given.fence) {
        Ok(v1::FenceMode::Unspecified | v1::FenceMode::Optional) => FenceMode::Optional,
        Ok(v1::FenceMode::Mandatory) => FenceMode::Mandatory,
        Err(_) => return Err(WireError::invalid("fence", "one that this node knows")),
    };
    let settings = StreamSettings {
        retention: given.retention_ms.map(Span::from_millis),
        retention_bytes: given.retention_bytes,
        fence,
        dedup_window: given.dedup_window_ms.map_or(DEDUP_WINDOW_DEFAULT, Span::from_millis),
        replication: replication("replication", given.replication)?,
    };
    settings.check().map_err(of_failure)?;
    Ok(settings)
}

/// What is appended, and what must hold.
pub(in super::super) fn append(given: Option<v1::Append>) -> Result<Append, WireError> {
    let given = given.ok_or_else(|| WireError::invalid("append", "it must be given"))?;
    let append = Append {
        records: given.records,
        expected: given.expected_offset,
        token: given.fence_token,
        message_id: given.message_id,
    };
    append.check().map_err(of_failure)?;
    Ok(append)
}

/// Where reading begins.
pub(in super::super) fn read_from(given: Option<v1::ReadFrom>) -> Result<ReadFrom, WireError> {
    use v1::read_from::From;
    match given {
        None => Ok(ReadFrom::Earliest),
        Some(v1::ReadFrom { from }) => match from {
            Some(From::Earliest(true)) => Ok(ReadFrom::Earliest),
            Some(From::Latest(true)) => Ok(ReadFrom::Latest),
            Some(From::Offset(offset)) => Ok(ReadFrom::Offset(offset)),
            Some(From::Earliest(false) | From::Latest(false)) => {
                Err(WireError::invalid("from", "earliest and latest are true or left out"))
            }
            None => Err(WireError::invalid("from", "earliest, latest, or an offset")),
        },
    }
}
