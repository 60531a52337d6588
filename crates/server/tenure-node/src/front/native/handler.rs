//! The one handler behind unary calls and the multiplexed stream: from a request's body to its reply.

use std::time::Duration;

use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, WireError};
use tenure_core::command::Command;
use tenure_core::ids::{GroupId, Namespace};
use tenure_core::query::Query;
use tenure_core::response::{Answer, Done, Response};

use super::error::of_service;
use super::{catalog, cluster, decode, keys, sessions};
use crate::service::{Read, Reading, Service};

/// One call: the door, and how long the frame gave it.
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    /// From the frame; 0 leaves it to the request.
    pub(super) timeout_ms: u64,
}

/// Handles one request that has one reply.
///
/// # Errors
/// What the caller is told; its outcome says whether anything was done.
pub(super) async fn handle(call: &Call<'_>, ask: Ask) -> Result<Reply, WireError> {
    let metrics = call.service.metrics();
    metrics.requests.increment(1);
    let reply = answer(call, ask).await;
    if reply.is_err() {
        metrics.errors.increment(1);
    }
    reply
}

async fn answer(call: &Call<'_>, ask: Ask) -> Result<Reply, WireError> {
    Ok(match ask {
        Ask::Put(request) => Reply::Put(keys::put(call, request).await?),
        Ask::Get(request) => Reply::Get(keys::get(call, request).await?),
        Ask::Delete(request) => Reply::Delete(keys::delete(call, request).await?),
        Ask::Touch(request) => Reply::Touch(keys::touch(call, request).await?),
        Ask::List(request) => Reply::List(keys::list(call, request).await?),
        Ask::KeepAlive(request) => Reply::KeepAlive(sessions::keep_alive(call, request).await?),
        Ask::OpenSession(request) => Reply::OpenSession(sessions::open(call, request).await?),
        Ask::CloseSession(request) => Reply::CloseSession(sessions::close(call, request).await?),
        Ask::Acknowledge(request) => Reply::Acknowledge(sessions::acknowledge(call, request).await?),
        Ask::GetSession(request) => Reply::GetSession(sessions::get(call, request).await?),
        Ask::ListSessions(request) => Reply::ListSessions(sessions::list(call, request).await?),
        Ask::CreateCache(request) => Reply::CreateCache(catalog::create_cache(call, request).await?),
        Ask::ListCaches(request) => Reply::ListCaches(catalog::list_caches(call, request).await?),
        Ask::GetCache(request) => Reply::GetCache(catalog::get_cache(call, request).await?),
        Ask::DeleteCache(request) => Reply::DeleteCache(catalog::delete_cache(call, request).await?),
        Ask::Hello(request) => Reply::Hello(cluster::hello(call, request).await?),
        Ask::Status(request) => Reply::Status(cluster::status(call, request)?),
        Ask::ListNamespaces(request) => Reply::ListNamespaces(cluster::list_namespaces(call, request).await?),
        Ask::ListTenants(request) => Reply::ListTenants(cluster::list_tenants(call, request).await?),
        Ask::Watch(_) | Ask::Cancel(_) => {
            return Err(WireError::internal(
                "a watch and a cancel are no requests with one reply",
            ));
        }
    })
}

impl Call<'_> {
    /// When the request is given up.
    pub(super) fn deadline(&self, timeout_ms: u64) -> Duration {
        let timeout_ms = match (self.timeout_ms, timeout_ms) {
            (0, of_request) => of_request,
            (of_frame, 0) => of_frame,
            (of_frame, of_request) => of_frame.min(of_request),
        };
        self.service.deadline_in(timeout_ms)
    }

    /// Submits a command to the home group of a namespace that exists.
    pub(super) async fn submit(
        &self,
        namespace: &Namespace,
        id: Option<v1::RequestId>,
        command: Command,
        deadline: Duration,
    ) -> Result<(GroupId, Answer), WireError> {
        let request = decode::request(id, command)?;
        let group = self.service.home(namespace, deadline).await.map_err(of_service)?;
        let answer = self
            .service
            .submit(group, request, deadline)
            .await
            .map_err(of_service)?;
        if matches!(answer.response, Response::Refused(_)) {
            self.service.metrics().refusals.increment(1);
        }
        Ok((group, answer))
    }

    /// Reads from the home group of a namespace that exists.
    pub(super) async fn query(
        &self,
        namespace: &Namespace,
        query: &Query,
        reading: Reading,
        deadline: Duration,
    ) -> Result<(GroupId, Read), WireError> {
        let group = self.service.home(namespace, deadline).await.map_err(of_service)?;
        let read = self
            .service
            .query(group, query, reading, deadline)
            .await
            .map_err(of_service)?;
        Ok((group, read))
    }
}

/// The machine answered another command than was asked: a defect.
pub(super) fn unexpected(done: &Done) -> WireError {
    WireError::internal(format!("the machine answered {done:?}"))
}
