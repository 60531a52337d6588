//! Unary calls over the handler that serves the multiplexed stream.

use std::pin::Pin;

use futures_util::stream::try_unfold;
use futures_util::{Stream, StreamExt};
use http::Extensions;
use tenure_api::v1::client_frame::Body as Ask;
use tenure_api::v1::server_frame::Body as Reply;
use tenure_api::v1::{self, WireError};
use tonic::{Request, Response, Status};

use super::handler::{Call, handle};
use super::subscription::{Subscribe, Subscription};
use super::watch;
use crate::front::answers::Room;
use crate::service::Service;

type Events = Pin<Box<dyn Stream<Item = Result<Reply, Status>> + Send>>;

/// All unary services of a node.
#[derive(Clone)]
pub(super) struct Doors {
    service: Service,
}

impl Doors {
    pub(super) fn new(service: Service) -> Doors {
        Doors { service }
    }

    async fn handle<T>(&self, request: Request<T>, ask: fn(T) -> Ask) -> Result<Reply, Status> {
        let room = Room::of(request.extensions());
        let call = Call {
            service: &self.service,
            timeout_ms: 0,
            room: &room,
        };
        let reply = handle(&call, ask(request.into_inner())).await.map_err(Status::from)?;
        // Kept for its body, piece by piece.
        room.put(room.hand_on_all(reply.encoded_len()));
        Ok(reply)
    }

    /// The events of a subscription. Each is read when the one before it was taken, and counts from then on.
    async fn subscribe(&self, extensions: &Extensions, asked: Subscribe) -> Result<Events, Status> {
        let room = Room::of(extensions);
        let share = watch::share(room.connection()).map_err(Status::from)?;
        let call = Call {
            service: &self.service,
            timeout_ms: 0,
            room: &room,
        };
        let subscription = Subscription::begin(&call, asked).await.map_err(Status::from)?;
        let subscribed = (subscription, self.service.clone(), room, share);
        Ok(Box::pin(try_unfold(
            subscribed,
            |(mut subscription, service, room, share)| async move {
                tokio::select! {
                    event = subscription.next() => {
                        let (event, counted) = event.map_err(Status::from)?;
                        room.put(counted);
                        Ok(Some((event, (subscription, service, room, share))))
                    }
                    () = service.stopping() => Err(WireError::unavailable("the node is stopping").into()),
                }
            },
        )))
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
        match self.handle(request, Ask::Put).await? {
            Reply::Put(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get(&self, request: Request<v1::GetRequest>) -> Result<Response<v1::GetReply>, Status> {
        match self.handle(request, Ask::Get).await? {
            Reply::Get(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn delete(&self, request: Request<v1::DeleteRequest>) -> Result<Response<v1::DeleteReply>, Status> {
        match self.handle(request, Ask::Delete).await? {
            Reply::Delete(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn touch(&self, request: Request<v1::TouchRequest>) -> Result<Response<v1::TouchReply>, Status> {
        match self.handle(request, Ask::Touch).await? {
            Reply::Touch(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn add(&self, request: Request<v1::AddRequest>) -> Result<Response<v1::AddReply>, Status> {
        match self.handle(request, Ask::Add).await? {
            Reply::Add(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn delete_prefix(
        &self,
        request: Request<v1::DeletePrefixRequest>,
    ) -> Result<Response<v1::DeletePrefixReply>, Status> {
        match self.handle(request, Ask::DeletePrefix).await? {
            Reply::DeletePrefix(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list(&self, request: Request<v1::ListRequest>) -> Result<Response<v1::ListReply>, Status> {
        match self.handle(request, Ask::List).await? {
            Reply::List(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        let (_, extensions, asked) = request.into_parts();
        let events = self.subscribe(&extensions, Subscribe::Watch(asked)).await?;
        let events = events.map(|event| match event? {
            Reply::WatchEvent(event) => Ok(event),
            _ => Err(unexpected()),
        });
        Ok(Response::new(Box::pin(events)))
    }
}

#[tonic::async_trait]
impl v1::streams_server::Streams for Doors {
    type FollowStream = Pin<Box<dyn Stream<Item = Result<v1::FollowEvent, Status>> + Send>>;

    async fn create(
        &self,
        request: Request<v1::CreateStreamRequest>,
    ) -> Result<Response<v1::CreateStreamReply>, Status> {
        match self.handle(request, Ask::CreateStream).await? {
            Reply::CreateStream(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list(&self, request: Request<v1::ListStreamsRequest>) -> Result<Response<v1::ListStreamsReply>, Status> {
        match self.handle(request, Ask::ListStreams).await? {
            Reply::ListStreams(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get(&self, request: Request<v1::GetStreamRequest>) -> Result<Response<v1::GetStreamReply>, Status> {
        match self.handle(request, Ask::GetStream).await? {
            Reply::GetStream(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn delete(
        &self,
        request: Request<v1::DeleteStreamRequest>,
    ) -> Result<Response<v1::DeleteStreamReply>, Status> {
        match self.handle(request, Ask::DeleteStream).await? {
            Reply::DeleteStream(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn append(&self, request: Request<v1::AppendRequest>) -> Result<Response<v1::AppendReply>, Status> {
        match self.handle(request, Ask::Append).await? {
            Reply::Append(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn read(&self, request: Request<v1::ReadRecordsRequest>) -> Result<Response<v1::ReadRecordsReply>, Status> {
        match self.handle(request, Ask::ReadRecords).await? {
            Reply::ReadRecords(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn follow(&self, request: Request<v1::FollowRequest>) -> Result<Response<Self::FollowStream>, Status> {
        let (_, extensions, asked) = request.into_parts();
        let events = self.subscribe(&extensions, Subscribe::Follow(asked)).await?;
        let events = events.map(|event| match event? {
            Reply::FollowEvent(event) => Ok(event),
            _ => Err(unexpected()),
        });
        Ok(Response::new(Box::pin(events)))
    }

    async fn trim(&self, request: Request<v1::TrimStreamRequest>) -> Result<Response<v1::TrimStreamReply>, Status> {
        match self.handle(request, Ask::TrimStream).await? {
            Reply::TrimStream(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}

#[tonic::async_trait]
impl v1::transactions_server::Transactions for Doors {
    async fn execute(&self, request: Request<v1::TxnRequest>) -> Result<Response<v1::TxnReply>, Status> {
        match self.handle(request, Ask::Txn).await? {
            Reply::Txn(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}

#[tonic::async_trait]
impl v1::sessions_server::Sessions for Doors {
    async fn open(&self, request: Request<v1::OpenSessionRequest>) -> Result<Response<v1::OpenSessionReply>, Status> {
        match self.handle(request, Ask::OpenSession).await? {
            Reply::OpenSession(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn keep_alive(&self, request: Request<v1::KeepAliveRequest>) -> Result<Response<v1::KeepAliveReply>, Status> {
        match self.handle(request, Ask::KeepAlive).await? {
            Reply::KeepAlive(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn close(
        &self,
        request: Request<v1::CloseSessionRequest>,
    ) -> Result<Response<v1::CloseSessionReply>, Status> {
        match self.handle(request, Ask::CloseSession).await? {
            Reply::CloseSession(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn acknowledge(
        &self,
        request: Request<v1::AcknowledgeRequest>,
    ) -> Result<Response<v1::AcknowledgeReply>, Status> {
        match self.handle(request, Ask::Acknowledge).await? {
            Reply::Acknowledge(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get(&self, request: Request<v1::GetSessionRequest>) -> Result<Response<v1::GetSessionReply>, Status> {
        match self.handle(request, Ask::GetSession).await? {
            Reply::GetSession(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list(&self, request: Request<v1::ListSessionsRequest>) -> Result<Response<v1::ListSessionsReply>, Status> {
        match self.handle(request, Ask::ListSessions).await? {
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
        match self.handle(request, Ask::CreateCache).await? {
            Reply::CreateCache(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list_caches(
        &self,
        request: Request<v1::ListCachesRequest>,
    ) -> Result<Response<v1::ListCachesReply>, Status> {
        match self.handle(request, Ask::ListCaches).await? {
            Reply::ListCaches(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn get_cache(&self, request: Request<v1::GetCacheRequest>) -> Result<Response<v1::GetCacheReply>, Status> {
        match self.handle(request, Ask::GetCache).await? {
            Reply::GetCache(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn delete_cache(
        &self,
        request: Request<v1::DeleteCacheRequest>,
    ) -> Result<Response<v1::DeleteCacheReply>, Status> {
        match self.handle(request, Ask::DeleteCache).await? {
            Reply::DeleteCache(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}

#[tonic::async_trait]
impl v1::cluster_server::Cluster for Doors {
    async fn hello(&self, request: Request<v1::HelloRequest>) -> Result<Response<v1::HelloReply>, Status> {
        match self.handle(request, Ask::Hello).await? {
            Reply::Hello(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn status(&self, request: Request<v1::StatusRequest>) -> Result<Response<v1::StatusReply>, Status> {
        match self.handle(request, Ask::Status).await? {
            Reply::Status(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list_namespaces(
        &self,
        request: Request<v1::ListNamespacesRequest>,
    ) -> Result<Response<v1::ListNamespacesReply>, Status> {
        match self.handle(request, Ask::ListNamespaces).await? {
            Reply::ListNamespaces(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }

    async fn list_tenants(
        &self,
        request: Request<v1::ListTenantsRequest>,
    ) -> Result<Response<v1::ListTenantsReply>, Status> {
        match self.handle(request, Ask::ListTenants).await? {
            Reply::ListTenants(reply) => Ok(Response::new(reply)),
            _ => Err(unexpected()),
        }
    }
}
