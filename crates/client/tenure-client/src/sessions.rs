//! Other people's sessions: reading and ending them.

use std::time::Duration;

use bytes::Bytes;

use tenure_api::v1::{
    CloseSessionRequest, GetSessionRequest, ListSessionsRequest, SessionInfo, SessionRef, client_frame, server_frame,
};

use crate::client::{Client, Mutation};
use crate::error::Error;
use crate::session::SessionKey;

/// A session has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionClosed {
    /// The revision of its end.
    pub revision: u64,
    /// How many keys were removed with it.
    pub removed: u64,
    /// Whether the server remembered this from an earlier attempt.
    pub repeated: bool,
}

impl Client {
    /// Reads the sessions of the namespace in order of opening, without what they own.
    ///
    /// # Errors
    /// Those of the call.
    pub async fn sessions(&self) -> Result<Vec<SessionInfo>, Error> {
        let mut sessions: Vec<SessionInfo> = Vec::new();
        loop {
            let after = sessions.last().map(|session| session.id);
            let make = || {
                let scope = Some(self.scope());
                client_frame::Body::ListSessions(ListSessionsRequest {
                    scope,
                    after,
                    limit: 0,
                    timeout_ms: 0,
                })
            };
            let server_frame::Body::ListSessions(page) = self.read(make).await?.body else {
                return Err(Error::unexpected("list_sessions"));
            };
            self.saw(page.header.as_ref());
            let more = page.more && !page.sessions.is_empty();
            sessions.extend(page.sessions);
            if !more {
                return Ok(sessions);
            }
        }
    }

    /// Reads a session and the first of what it owns; `None` if none of this id is known (any more).
    ///
    /// # Errors
    /// Those of the call.
    pub async fn session_info(&self, id: u64) -> Result<Option<SessionInfo>, Error> {
        let make = || {
            client_frame::Body::GetSession(GetSessionRequest {
                scope: Some(self.scope()),
                session: id,
                timeout_ms: 0,
            })
        };
        let server_frame::Body::GetSession(reply) = self.read(make).await?.body else {
            return Err(Error::unexpected("get_session"));
        };
        self.saw(reply.header.as_ref());
        Ok(reply.session)
    }

    /// Ends a session and removes what it owns in the same step.
    ///
    /// # Errors
    /// It has ended already (`session_expired`) or is not known with this secret; those of the call.
    pub async fn close_session(&self, key: &SessionKey) -> Result<SessionClosed, Error> {
        self.close_within(key.to_wire(), false, self.timeout()).await
    }

    /// Ends somebody else's session without its secret.
    ///
    /// # Errors
    /// It has ended already (`session_expired`) or is not known; those of the call.
    pub async fn force_close_session(&self, id: u64) -> Result<SessionClosed, Error> {
        self.close_within(
            SessionRef {
                id,
                secret: Bytes::new(),
            },
            true,
            self.timeout(),
        )
        .await
    }

    pub(crate) async fn close_within(
        &self,
        session: SessionRef,
        force: bool,
        timeout: Duration,
    ) -> Result<SessionClosed, Error> {
        let make = |request| {
            client_frame::Body::CloseSession(CloseSessionRequest {
                scope: Some(self.scope()),
                session: Some(session.clone()),
                force,
                request,
                timeout_ms: 0,
            })
        };
        let server_frame::Body::CloseSession(reply) = self.mutate(Mutation::HARMLESS, timeout, make).await?.body else {
            return Err(Error::unexpected("close_session"));
        };
        self.saw(reply.header.as_ref());
        Ok(SessionClosed {
            revision: reply.revision,
            removed: reply.removed,
            repeated: reply.repeated,
        })
    }
}
