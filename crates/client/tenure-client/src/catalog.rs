//! The objects of a namespace, and the cluster itself.

use std::future::IntoFuture;

use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{
    CacheInfo, Consistency, CreateCacheRequest, DeleteCacheRequest, GetCacheRequest, ListCachesRequest,
    ListNamespacesRequest, ListTenantsRequest, NamespaceInfo, StatusReply, StatusRequest, client_frame,
    create_cache_reply, server_frame,
};

use crate::client::{Client, Mutation};
use crate::error::Error;
use crate::verdict::{Refusal, Verdict};

impl Client {
    /// Creates a cache. One that exists with the same settings is returned; with others it is refused.
    pub fn create_cache(&self, name: impl Into<String>) -> CreateCache {
        CreateCache {
            client: self.clone(),
            name: name.into(),
            shards: None,
            replication: None,
            consistency: Consistency::Unspecified,
        }
    }

    /// Reads the caches of the namespace by name.
    ///
    /// # Errors
    /// Those of the call; without such a namespace `not_found`.
    pub async fn caches(&self) -> Result<Vec<CacheInfo>, Error> {
        let make = || {
            client_frame::Body::ListCaches(ListCachesRequest {
                scope: Some(self.scope()),
                timeout_ms: 0,
            })
        };
        let server_frame::Body::ListCaches(reply) = self.read(make).await?.body else {
            return Err(Error::unexpected("list_caches"));
        };
        self.saw(reply.header.as_ref());
        Ok(reply.caches)
    }

    /// Reads one cache.
    ///
    /// # Errors
    /// Those of the call; without such a cache `not_found`.
    pub async fn cache_info(&self, name: impl Into<String>) -> Result<CacheInfo, Error> {
        let name = name.into();
        let make = || {
            let scope = Some(self.scope());
            client_frame::Body::GetCache(GetCacheRequest {
                scope,
                name: name.clone(),
                timeout_ms: 0,
            })
        };
        let server_frame::Body::GetCache(reply) = self.read(make).await?.body else {
            return Err(Error::unexpected("get_cache"));
        };
        self.saw(reply.header.as_ref());
        reply.cache.ok_or_else(|| Error::unexpected("get_cache"))
    }

    /// Deletes a cache with its keys, and ends every watch of it; returns the revision of the deletion.
    ///
    /// # Errors
    /// Those of the call; without such a cache `not_found`.
    pub async fn delete_cache(&self, name: impl Into<String>) -> Result<u64, Error> {
        let name = name.into();
        let make = |request| {
            let scope = Some(self.scope());
            client_frame::Body::DeleteCache(DeleteCacheRequest {
                scope,
                name: name.clone(),
                request,
                timeout_ms: 0,
            })
        };
        let server_frame::Body::DeleteCache(reply) = self.mutate(Mutation::ONCE, self.timeout(), make).await?.body
        else {
            return Err(Error::unexpected("delete_cache"));
        };
        self.saw(reply.header.as_ref());
        Ok(reply.revision)
    }

    /// What the first endpoint that can be reached knows of the cluster and of itself. A node answers even when it
    /// cannot serve.
    ///
    /// # Errors
    /// No endpoint could be reached.
    pub async fn status(&self) -> Result<StatusReply, Error> {
        let answer = self
            .ask_any_node(|| client_frame::Body::Status(StatusRequest {}))
            .await?;
        match answer.body {
            server_frame::Body::Status(reply) => Ok(reply),
            _ => Err(Error::unexpected("status")),
        }
    }

    /// Reads the namespaces of a tenant, or of all tenants.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn namespaces(&self, tenant: Option<&str>) -> Result<Vec<NamespaceInfo>, Error> {
        let tenant = tenant.unwrap_or_default();
        let make = || {
            let tenant = tenant.to_owned();
            client_frame::Body::ListNamespaces(ListNamespacesRequest { tenant, timeout_ms: 0 })
        };
        match self.read(make).await?.body {
            server_frame::Body::ListNamespaces(reply) => Ok(reply.namespaces),
            _ => Err(Error::unexpected("list_namespaces")),
        }
    }

    /// Reads the tenants: those that have a namespace.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn tenants(&self) -> Result<Vec<String>, Error> {
        let make = || client_frame::Body::ListTenants(ListTenantsRequest { timeout_ms: 0 });
        match self.read(make).await?.body {
            server_frame::Body::ListTenants(reply) => Ok(reply.tenants),
            _ => Err(Error::unexpected("list_tenants")),
        }
    }
}

/// The creation of a cache that is being described; awaiting it sends it. The namespace comes into being with it.
#[derive(Clone, Debug)]
#[must_use = "a cache is created when this is awaited"]
pub struct CreateCache {
    client: Client,
    name: String,
    shards: Option<u32>,
    replication: Option<u32>,
    consistency: Consistency,
}

/// A cache exists with the settings that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CacheCreated {
    /// Its settings.
    pub info: CacheInfo,
    /// Whether it existed before.
    pub existed: bool,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

impl CreateCache {
    /// How many groups to spread its keys over; 1 if nothing is chosen.
    pub fn shards(mut self, shards: u32) -> CreateCache {
        self.shards = Some(shards);
        self
    }

    /// How many copies are wished for; 3 if nothing is chosen.
    pub fn replication(mut self, copies: u32) -> CreateCache {
        self.replication = Some(copies);
        self
    }

    /// How its writes are made safe; by a quorum if nothing is chosen.
    pub fn consistency(mut self, consistency: Consistency) -> CreateCache {
        self.consistency = consistency;
        self
    }

    async fn send(self) -> Result<Verdict<CacheCreated>, Error> {
        let client = &self.client;
        let make = |request| {
            client_frame::Body::CreateCache(CreateCacheRequest {
                scope: Some(client.scope()),
                name: self.name.clone(),
                shards: self.shards,
                replication: self.replication,
                consistency: self.consistency.into(),
                request,
                timeout_ms: 0,
            })
        };
        let server_frame::Body::CreateCache(reply) =
            client.mutate(Mutation::CREATION, client.timeout(), make).await?.body
        else {
            return Err(Error::unexpected("create_cache"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(create_cache_reply::Verdict::Done(info)) => {
                let (existed, repeated) = (reply.existed, reply.repeated);
                Ok(Verdict::Done(CacheCreated {
                    info,
                    existed,
                    repeated,
                }))
            }
            Some(create_cache_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("create_cache")),
        }
    }
}

impl IntoFuture for CreateCache {
    type Output = Result<Verdict<CacheCreated>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
