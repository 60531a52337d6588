//! The one handler behind unary calls and the multiplexed stream: from a request's body to its reply.

use std::borrow::Cow;
use std::time::Duration;

use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, WireError};
use tenure_core::command::{Command, Operation, Origin, Request};
use tenure_core::ids::{GroupId, Namespace, SessionId};
use tenure_core::query::Query;
use tenure_core::refusal::{Failure, Refusal};
use tenure_core::response::{Answer, Done, Response};

use super::error::{of_service, wrong_secret};
use super::{catalog, cluster, decode, keys, sessions, streams, txn};
use crate::front::answers::Room;
use crate::service::{Read, Reading, Service, ServiceError};

/// One call: the door, and how long the frame gave it.
pub(super) struct Call<'a> {
    pub(super) service: &'a Service,
    /// From the frame; 0 leaves it to the request.
    pub(super) timeout_ms: u64,
    /// Where the answer counts while it is made.
    pub(super) room: &'a Room,
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
        Ask::Add(request) => Reply::Add(keys::add(call, request).await?),
        Ask::DeletePrefix(request) => Reply::DeletePrefix(keys::delete_prefix(call, request).await?),
        Ask::Txn(request) => Reply::Txn(txn::execute(call, request).await?),
        Ask::CreateStream(request) => Reply::CreateStream(streams::create(call, request).await?),
        Ask::ListStreams(request) => Reply::ListStreams(streams::list(call, request).await?),
        Ask::GetStream(request) => Reply::GetStream(streams::get(call, request).await?),
        Ask::DeleteStream(request) => Reply::DeleteStream(streams::delete(call, request).await?),
        Ask::Append(request) => Reply::Append(streams::append(call, request).await?),
        Ask::ReadRecords(request) => Reply::ReadRecords(streams::read(call, request).await?),
        Ask::TrimStream(request) => Reply::TrimStream(streams::trim(call, request).await?),
        Ask::Watch(_) | Ask::Follow(_) | Ask::Cancel(_) => {
            return Err(WireError::internal(
                "a watch, following and a cancel are no requests with one reply",
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

    /// What the caller is told of a failure: where the group could not do it, also who leads there.
    pub(super) fn told(&self, error: ServiceError) -> WireError {
        let hint = match &error {
            ServiceError::Unavailable { group, .. } => cluster::leader_hint(self.service, *group),
            _ => None,
        };
        of_service(error).with_leader(hint)
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
        let secrets = SecretFields::of(&request);
        let group = self.service.home(namespace, deadline).await.map_err(of_service)?;
        let answer = self.service.submit(group, request, deadline).await;
        let answer = answer.map_err(|error| self.told(error))?;
        if let Response::Failed(Failure::WrongSecret { session }) = answer.response {
            return Err(wrong_secret(secrets.field(session), session));
        }
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
            .query_into(group, query, reading, deadline, Some(self.room))
            .await
            .map_err(|error| self.told(error))?;
        Ok((group, read))
    }
}

/// In which field of a request the secret of which session stands, so that a wrong one is named where it is.
struct SecretFields(Vec<(SessionId, Cow<'static, str>)>);

impl SecretFields {
    fn of(request: &Request) -> SecretFields {
        let mut fields = Vec::new();
        if let Origin::Session { session, .. } = &request.origin {
            fields.push((session.id, "request.session.session.secret".into()));
        }
        match &request.command {
            Command::Put { owner: Some(owner), .. } => fields.push((owner.id, "owner.secret".into())),
            Command::Txn(txn) => {
                for (name, branch) in [("then", &txn.then), ("otherwise", &txn.otherwise)] {
                    for (place, operation) in branch.iter().enumerate() {
                        if let Operation::Put { owner: Some(owner), .. } = operation {
                            fields.push((owner.id, format!("{name}[{place}].put.owner.secret").into()));
                        }
                    }
                }
            }
            _ => {}
        }
        SecretFields(fields)
    }

    /// The first of these fields that is this session's.
    fn field(&self, session: SessionId) -> &str {
        let found = self.0.iter().find(|(id, _)| *id == session);
        found.map_or("session.secret", |(_, field)| field)
    }
}

/// The machine refused what it never refuses: a defect.
pub(super) fn unexpected_refusal(refusal: &Refusal) -> WireError {
    WireError::internal(format!("the machine refused: {refusal:?}"))
}

/// The machine answered another command than was asked: a defect.
pub(super) fn unexpected(done: &Done) -> WireError {
    WireError::internal(format!("the machine answered {done:?}"))
}
