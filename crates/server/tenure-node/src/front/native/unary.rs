//! Unary calls over the handler that serves the multiplexed stream.

use std::pin::Pin;

use futures_util::Stream;
use futures_util::stream::try_unfold;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, WireError};
use tonic::{Request, Response, Status};

use super::handler::{Call, handle};
use super::watch;
use crate::service::Service;

/// All unary services of a node.
#[derive(Clone)]
pub(super) struct Doors {
    service: Service,
}

impl Doors {
    pub(super) fn new(service: Service) -> Doors {
        Doors { service }
    }

    async fn handle(&self, ask: Ask) -> Result<Reply, Status> {
        let call = Call {
            service: &self.service,
            timeout_ms: 0,
        };
        handle(&call, ask).await.map_err(Status::from)
    }
}

/// The handler gave the reply of another request: a defect.
fn unexpected() -> Status {
    WireError::internal("the handler gave the reply of another request").into()
}

#[tonic::async_trait]
impl v1::keys_server::Keys for Doors {
    type WatchStream = Pin<Box<dyn Stream<Item = Result<v1::WatchEvent, Status>> + Send>>;

    async fn put(&self, request: Request<v1::PutRequest>) -> Result<Response<v1::PutReply>, Status> {
        match self.handle(Ask::Put(request.into_inner())).await? {
            Reply::Put(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetReply>, Status> {
        match self.handle(Ask::Get(request.into_inner())).await? {
            Reply::Get(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Result<Response<v1::DeleteReply>, Status> {
        match self.handle(Ask::Delete(request.into_inner())).await? {
            Reply::Delete(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn touch(&self, request: Request<v1::TouchRequest>) -> Result<Response<v1::TouchReply>, Status> {
        match self.handle(Ask::Touch(request.into_inner())).await? {
            Reply::Touch(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListReply>, Status> {
        match self.handle(Ask::List(request.into_inner())).await? {
            Reply::List(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let call = Call {
            service: &self.service,
            timeout_ms: 0,
        };
        let watch = watch::begin(&call, request.into_inner()).await.map_err(Status::from)?;
        let service = self.service.clone();
        let events = try_unfold((watch, service), |(mut watch, service)| async move {
            tokio::select! {
                event = watch.next() => Ok(Some((event.map_err(Status::from)?, (watch, service)))),
                () = service.stopping() => Err(WireError::unavailable("the node is stopping").into()),
            }
        });
        Ok(Response::new(Box::pin(events)))
    }
}

#[tonic::async_trait]
impl v1::sessions_server::Sessions for Doors {
    async fn open(&self, request: Request<v1::OpenSessionRequest>) -> Result<Response<v1::OpenSessionReply>, Status> {
        match self.handle(Ask::OpenSession(request.into_inner())).await? {
            Reply::OpenSession(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn keep_alive(&self, request: Request<v1::KeepAliveRequest>) -> Result<Response<v1::KeepAliveReply>, Status> {
        match self.handle(Ask::KeepAlive(request.into_inner())).await? {
            Reply::KeepAlive(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn close(
        &self,
        request: Request<v1::CloseSessionRequest>,
    ) -> Result<Response<v1::CloseSessionReply>, Status> {
        match self.handle(Ask::CloseSession(request.into_inner())).await? {
            Reply::CloseSession(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn acknowledge(
        &self,
        request: Request<v1::AcknowledgeRequest>,
    ) -> Result<Response<v1::AcknowledgeReply>, Status> {
        match self.handle(Ask::Acknowledge(request.into_inner())).await? {
            Reply::Acknowledge(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get(&self, request: Request<v1::GetSessionRequest>) -> Result<Response<v1::GetSessionReply>, Status> {
        match self.handle(Ask::GetSession(request.into_inner())).await? {
            Reply::GetSession(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list(&self, request: Request<v1::ListSessionsRequest>) -> Result<Response<v1::ListSessionsReply>, Status> {
        match self.handle(Ask::ListSessions(request.into_inner())).await? {
            Reply::ListSessions(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}

#[tonic::async_trait]
impl v1::catalog_server::Catalog for Doors {
    async fn create_cache(
        &self,
        request: Request<v1::CreateCacheRequest>,
    ) -> Result<Response<v1::CreateCacheReply>, Status> {
        match self.handle(Ask::CreateCache(request.into_inner())).await? {
            Reply::CreateCache(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list_caches(
        &self,
        request: Request<v1::ListCachesRequest>,
    ) -> Result<Response<v1::ListCachesReply>, Status> {
        match self.handle(Ask::ListCaches(request.into_inner())).await? {
            Reply::ListCaches(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get_cache(&self, request: Request<v1::GetCacheRequest>) -> Result<Response<v1::GetCacheReply>, Status> {
        match self.handle(Ask::GetCache(request.into_inner())).await? {
            Reply::GetCache(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn delete_cache(
        &self,
        request: Request<v1::DeleteCacheRequest>,
    ) -> Result<Response<v1::DeleteCacheReply>, Status> {
        match self.handle(Ask::DeleteCache(request.into_inner())).await? {
            Reply::DeleteCache(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}

#[tonic::async_trait]
impl v1::cluster_server::Cluster for Doors {
    async fn hello(&self, request: Request<v1::HelloRequest>) -> Result<Response<v1::HelloReply>, Status> {
        match self.handle(Ask::Hello(request.into_inner())).await? {
            Reply::Hello(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        match self.handle(Ask::Status(request.into_inner())).await? {
            Reply::Status(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesReply>, Status> {
        match self.handle(Ask::ListNamespaces(request.into_inner())).await? {
            Reply::ListNamespaces(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Result<Response<v1::ListTenantsReply>, Status> {
        match self.handle(Ask::ListTenants(request.into_inner())).await? {
            Reply::ListTenants(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}
