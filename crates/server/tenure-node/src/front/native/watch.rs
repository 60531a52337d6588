//! Watches on the wire.

use std::sync::Arc;

use prost::Message;
use tenure_api::v1::watch_event::{Changes, Event, Progress, Started, StateChunk};
use tenure_api::v1::{self, WireError};
use tenure_core::time::Span;

use super::error::{of_service, of_watch};
use super::handler::Call;
use super::{decode, encode};
use crate::front::answers::{AnswerShare, Room};
use crate::front::connection::{CONNECTION_WATCHERS_MAX, Connection, WatcherShare};
use crate::notify::Target;
use crate::service::watch::{Watch, WatchItem, WatchSpec};

/// A watch and the name that its end speaks of.
pub(super) struct WireWatch {
    watch: Watch,
    cache: String,
}

/// The share of a watcher of the connection that the call came over; to be kept as long as the watcher.
pub(super) fn share(connection: &Arc<Connection>) -> Result<WatcherShare, WireError> {
    let share = connection.take_watcher();
    share.ok_or_else(|| WireError::limit("watchers of a connection", CONNECTION_WATCHERS_MAX as u64))
}

/// Begins a watch.
pub(super) async fn begin(call: &Call<'_>, request: v1::WatchRequest) -> Result<WireWatch, WireError> {
    use v1::watch_request::Target as Asked;
    let cache = decode::cache(request.scope.as_ref(), &request.cache)?;
    let target = match request.target {
        Some(Asked::Key(key)) => Target::Key(decode::key(key)?),
        Some(Asked::Prefix(prefix)) => Target::Prefix(decode::prefix(prefix)?),
        Some(Asked::All(true)) => Target::Prefix(bytes::Bytes::new()),
        Some(Asked::All(false)) | None => {
            return Err(WireError::invalid("target", "a key, a prefix, or all"));
        }
    };
    if request.with_state && request.from.is_some() {
        return Err(WireError::invalid(
            "from",
            "left out with with_state, which begins behind the state",
        ));
    }
    let deadline = call.deadline(0);
    let namespace = cache.namespace.clone();
    let name = cache.to_string();
    let spec = WatchSpec {
        cache,
        target,
        from: request.from,
        with_state: request.with_state,
        incarnation: request.incarnation,
        min_revision: request.min_revision,
    };
    let group = call.service.home(&namespace, deadline).await.map_err(of_service)?;
    let watch = call
        .service
        .watch(group, spec, deadline, Room::new(call.room.connection().clone()))
        .await
        .map_err(|stop| of_watch(stop, &name))?;
    Ok(WireWatch { watch, cache: name })
}

impl WireWatch {
    /// The next event, with its share of the connection's room, or why there is none any more.
    pub(super) async fn next(&mut self) -> Result<(v1::WatchEvent, AnswerShare), WireError> {
        let item = self.watch.next().await.map_err(|stop| of_watch(stop, &self.cache))?;
        let event = match item {
            WatchItem::Started { revision, incarnation } => Event::Started(Started { revision, incarnation }),
            WatchItem::State { keys, revision, last } => Event::State(StateChunk {
                keys: keys
                    .into_iter()
                    .map(|key| encode::key_value(key, Span(0), false))
                    .collect(),
                revision,
                last,
            }),
            WatchItem::Changes {
                changes,
                revision,
                more,
            } => Event::Changes(Changes {
                changes: changes.into_iter().map(encode::change).collect(),
                revision,
                more,
            }),
            WatchItem::Progress { revision } => Event::Progress(Progress { revision }),
        };
        let event = v1::WatchEvent { event: Some(event) };
        let share = self.watch.hand_on(event.encoded_len());
        Ok((event, share))
    }
}
