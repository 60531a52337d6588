//! Writing, deleting and renewing a key.

use std::future::IntoFuture;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;

use tenure_api::v1::{
    self, DeleteRequest, PutRequest, SessionRef, TouchRequest, client_frame, delete_reply, put_reply, server_frame,
    touch_reply,
};
use tenure_api::{Outcome, v1::RequestId};
use tenure_recipes::outcome::Repeat;

use super::{Cache, Guard, LocalDeadline, copied};
use crate::channel::{Answer, milliseconds};
use crate::client::Mutation;
use crate::error::Error;
use crate::session::{Session, SessionKey};
use crate::verdict::{Refusal, Verdict};

/// The verdict on a write.
pub type PutOutcome = Verdict<Written>;

/// Who owns what is written.
#[derive(Clone, Debug)]
pub enum Owner {
    /// A session that this program keeps alive: a write is not sent once it is lost.
    Session(Session),
    /// A session that somebody else keeps alive.
    Key(SessionKey),
}

impl From<&Session> for Owner {
    fn from(session: &Session) -> Owner {
        Owner::Session(session.clone())
    }
}

impl From<Session> for Owner {
    fn from(session: Session) -> Owner {
        Owner::Session(session)
    }
}

impl From<&SessionKey> for Owner {
    fn from(key: &SessionKey) -> Owner {
        Owner::Key(key.clone())
    }
}

impl From<SessionKey> for Owner {
    fn from(key: SessionKey) -> Owner {
        Owner::Key(key)
    }
}

impl Owner {
    pub(crate) fn to_wire(&self) -> SessionRef {
        match self {
            Owner::Session(session) => session.key().to_wire(),
            Owner::Key(key) => key.to_wire(),
        }
    }

    /// Whether the owner may still act, as far as this program knows.
    pub(crate) fn check(&self, outcome: Outcome) -> Result<(), Error> {
        match self {
            Owner::Session(session) => session.check(outcome),
            Owner::Key(_) => Ok(()),
        }
    }
}

/// A key was written.
#[derive(Clone, Debug)]
pub struct Written {
    /// Revision of this write, for compare-and-set.
    pub version: u64,
    /// Revision of the key's creation: its fencing token, which later writes and renewals leave alone.
    pub created: u64,
    /// How long the key lives as of the answer; `None`: without end; zero if it is gone already.
    pub remaining: Option<Duration>,
    /// Until when this program may believe in it if nobody renews it; `None`: without end.
    pub deadline: Option<LocalDeadline>,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

impl Written {
    /// The fencing token.
    pub fn token(&self) -> u64 {
        self.created
    }
}

impl PartialEq for Written {
    /// Whether it is the same write.
    fn eq(&self, other: &Written) -> bool {
        (self.version, self.created) == (other.version, other.created)
    }
}

impl Eq for Written {}

/// A write that is being described; awaiting it sends it.
#[derive(Clone, Debug)]
#[must_use = "a write is sent when it is awaited"]
pub struct Put {
    cache: Cache,
    key: Bytes,
    value: Bytes,
    ttl: Option<Duration>,
    guard: Option<Guard>,
    owner: Option<Owner>,
}

impl Put {
    pub(super) fn new(cache: Cache, key: Bytes, value: Bytes) -> Put {
        Put {
            cache,
            key,
            value,
            ttl: None,
            guard: None,
            owner: None,
        }
    }

    /// Only if the key does not exist.
    pub fn if_absent(self) -> Put {
        self.guard(Guard::Absent)
    }

    /// Only if the key exists.
    pub fn if_present(self) -> Put {
        self.guard(Guard::Present)
    }

    /// Only if its last write had this version.
    pub fn if_version(self, version: u64) -> Put {
        self.guard(Guard::Version(version))
    }

    /// Only if it has this value.
    pub fn if_value(self, value: impl AsRef<[u8]>) -> Put {
        self.guard(Guard::Value(copied(value.as_ref())))
    }

    /// Only if it has this fencing token.
    pub fn if_created(self, created: u64) -> Put {
        self.guard(Guard::Created(created))
    }

    /// Only if this holds. There is one guard: a later one replaces an earlier one.
    pub fn guard(mut self, guard: Guard) -> Put {
        self.guard = Some(guard);
        self
    }

    /// Its own TTL, from 1 ms to ten years. Without one it stays until it is deleted or its owner's session ends.
    pub fn ttl(mut self, ttl: Duration) -> Put {
        self.ttl = Some(ttl);
        self
    }

    /// The session that owns the key from now on, with which it goes; without one nobody does.
    pub fn owner(mut self, owner: impl Into<Owner>) -> Put {
        self.owner = Some(owner.into());
        self
    }

    async fn send(self) -> Result<PutOutcome, Error> {
        let client = &self.cache.client;
        if let Some(owner) = &self.owner {
            owner.check(Outcome::NotApplied)?;
        }
        let make = |request: Option<RequestId>| {
            client_frame::Body::Put(PutRequest {
                scope: Some(client.scope()),
                cache: self.cache.name.clone(),
                key: self.key.clone(),
                value: self.value.clone(),
                ttl_ms: self.ttl.map(milliseconds),
                guard: self.guard.as_ref().map(Guard::to_wire),
                owner: self.owner.as_ref().map(Owner::to_wire),
                request,
                timeout_ms: 0,
            })
        };
        let Answer { body, sent } = client.mutate(Mutation::ONCE, client.timeout(), make).await?;
        let server_frame::Body::Put(reply) = body else {
            return Err(Error::unexpected("put"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(put_reply::Verdict::Done(done)) => {
                if let Some(owner) = &self.owner {
                    // The answer may have come after the owner stopped believing in its session.
                    owner.check(Outcome::Unknown)?;
                }
                let remaining = reply.remaining_us.map(Duration::from_micros);
                let deadline = remaining.map(|time| LocalDeadline::new(&client.runtime().clock, sent, time));
                let (version, created) = (done.version, done.created);
                Ok(Verdict::Done(Written {
                    version,
                    created,
                    remaining,
                    deadline,
                    repeated: reply.repeated,
                }))
            }
            Some(put_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("put")),
        }
    }
}

impl IntoFuture for Put {
    type Output = Result<PutOutcome, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// A key is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Deleted {
    /// What was removed; `None`: there was no such key.
    pub removed: Option<Removal>,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

/// The removal of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removal {
    /// Its revision.
    pub revision: u64,
    /// The version that was removed.
    pub version: u64,
}

impl Removal {
    pub(crate) fn from_wire(removed: v1::delete_done::Removal) -> Removal {
        Removal {
            revision: removed.revision,
            version: removed.version,
        }
    }
}

/// A delete that is being described; awaiting it sends it.
#[derive(Clone, Debug)]
#[must_use = "a delete is sent when it is awaited"]
pub struct Delete {
    cache: Cache,
    key: Bytes,
    guard: Option<Guard>,
}

impl Delete {
    pub(super) fn new(cache: Cache, key: Bytes) -> Delete {
        Delete {
            cache,
            key,
            guard: None,
        }
    }

    /// Only if its last write had this version.
    pub fn if_version(self, version: u64) -> Delete {
        self.guard(Guard::Version(version))
    }

    /// Only if it has this value.
    pub fn if_value(self, value: impl AsRef<[u8]>) -> Delete {
        self.guard(Guard::Value(copied(value.as_ref())))
    }

    /// Only if it has this fencing token.
    pub fn if_created(self, created: u64) -> Delete {
        self.guard(Guard::Created(created))
    }

    /// Only if this holds. There is one guard: a later one replaces an earlier one.
    pub fn guard(mut self, guard: Guard) -> Delete {
        self.guard = Some(guard);
        self
    }

    async fn send(self) -> Result<Verdict<Deleted>, Error> {
        let client = &self.cache.client;
        let make = |request: Option<RequestId>| {
            client_frame::Body::Delete(DeleteRequest {
                scope: Some(client.scope()),
                cache: self.cache.name.clone(),
                key: self.key.clone(),
                guard: self.guard.as_ref().map(Guard::to_wire),
                request,
                timeout_ms: 0,
            })
        };
        let answer = client.mutate(Mutation::ONCE, client.timeout(), make).await?;
        let server_frame::Body::Delete(reply) = answer.body else {
            return Err(Error::unexpected("delete"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(delete_reply::Verdict::Done(done)) => {
                let removed = done.removed.map(Removal::from_wire);
                Ok(Verdict::Done(Deleted {
                    removed,
                    repeated: reply.repeated,
                }))
            }
            Some(delete_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("delete")),
        }
    }
}

impl IntoFuture for Delete {
    type Output = Result<Verdict<Deleted>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

/// The TTL of a key was renewed.
#[derive(Clone, Debug)]
pub struct Touched {
    /// Revision of its last write, unchanged.
    pub version: u64,
    /// Its fencing token, unchanged.
    pub created: u64,
    /// How long the key lives as of the answer; `None`: without end.
    pub remaining: Option<Duration>,
    /// Until when this program may believe in it if nobody renews it; `None`: without end.
    pub deadline: Option<LocalDeadline>,
}

/// The renewal of a key's TTL that is being described; awaiting it sends it.
#[derive(Clone, Debug)]
#[must_use = "a touch is sent when it is awaited"]
pub struct Touch {
    cache: Cache,
    key: Bytes,
    ttl: Duration,
    guard: Option<Guard>,
}

impl Touch {
    pub(super) fn new(cache: Cache, key: Bytes, ttl: Duration) -> Touch {
        Touch {
            cache,
            key,
            ttl,
            guard: None,
        }
    }

    /// Only if its last write had this version.
    pub fn if_version(self, version: u64) -> Touch {
        self.guard(Guard::Version(version))
    }

    /// Only if it has this fencing token.
    pub fn if_created(self, created: u64) -> Touch {
        self.guard(Guard::Created(created))
    }

    /// Only if this holds. There is one guard: a later one replaces an earlier one.
    pub fn guard(mut self, guard: Guard) -> Touch {
        self.guard = Some(guard);
        self
    }

    async fn send(self) -> Result<Verdict<Touched>, Error> {
        let client = &self.cache.client;
        let request = TouchRequest {
            scope: Some(client.scope()),
            cache: self.cache.name.clone(),
            key: self.key.clone(),
            ttl_ms: milliseconds(self.ttl),
            guard: self.guard.as_ref().map(Guard::to_wire),
            request: None,
            timeout_ms: 0,
        };
        let make = || client_frame::Body::Touch(request.clone());
        // A touch writes no result to be remembered; touching twice leaves what touching once leaves.
        let Answer { body, sent } = client.repeatable(Repeat::Harmless, client.timeout(), make).await?;
        let server_frame::Body::Touch(reply) = body else {
            return Err(Error::unexpected("touch"));
        };
        client.saw(reply.header.as_ref());
        match reply.verdict {
            Some(touch_reply::Verdict::Done(done)) => {
                let remaining = reply.remaining_us.map(Duration::from_micros);
                let deadline = remaining.map(|time| LocalDeadline::new(&client.runtime().clock, sent, time));
                let (version, created) = (done.version, done.created);
                Ok(Verdict::Done(Touched {
                    version,
                    created,
                    remaining,
                    deadline,
                }))
            }
            Some(touch_reply::Verdict::Refused(refused)) => Ok(Verdict::Refused(Refusal::from_wire(refused))),
            None => Err(Error::unexpected("touch")),
        }
    }
}

impl IntoFuture for Touch {
    type Output = Result<Verdict<Touched>, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}
