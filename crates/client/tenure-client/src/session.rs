//! A session: this program's liveness in one namespace, renewed in the background.
//!
//! The handle owns the right: while it lives the session is renewed, and when the last clone is dropped, or the
//! session is closed or lost, nothing is sent for it any more. Whether it may be acted upon is decided here, by the
//! local deadline, whatever any call is doing.

use std::fmt;
use std::future::IntoFuture;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tokio::sync::watch;

use tenure_api::limits::IDENTITY_BYTES;
use tenure_api::v1::server_frame;
use tenure_api::v1::{self, EndReason, KeepAliveRequest, SessionInGroup, SessionRef, client_frame, kept_alive};
use tenure_api::{ErrorCode, Outcome};
use tenure_recipes::outcome::Repeat;
use tenure_recipes::{EndCause, KeepAliveSchedule, LostReason, SessionState};

use crate::client::Client;
use crate::directory::hexadecimal;
use crate::error::Error;
use crate::keep_alive::Registration;
use crate::runtime::{Clock, Instants};

/// The waits of [`Session::lost`] are at most this long, so that a suspended machine is noticed soon after it wakes.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// A session that is kept alive in the background. Clones are the same session; when the last one is dropped, renewals
/// stop at once and the server is asked to end it, which its TTL does at the latest.
#[derive(Clone)]
pub struct Session {
    handle: Arc<Handle>,
}

struct Handle {
    kept: Arc<Kept>,
    client: Client,
    registration: Registration,
}

impl Drop for Handle {
    fn drop(&mut self) {
        let live = self.kept.is_valid();
        self.kept.stop();
        self.registration
            .remove(live.then(|| (self.client.scope(), self.kept.key.clone())));
    }
}

impl Session {
    /// Puts an opened session under the care of the keep-alive. `sent` is when the answered attempt was sent.
    pub(crate) fn keep(
        client: Client,
        key: SessionKey,
        group: u32,
        ttl: Duration,
        sent: Instants,
        remaining: Duration,
    ) -> Result<Session, Error> {
        let schedule = KeepAliveSchedule::new(ttl, sent, remaining);
        let kept = Arc::new(Kept::new(key, group, schedule, Arc::clone(&client.runtime().clock)));
        let registration = client.shared.keep_alive.add(Arc::clone(&kept))?;
        Ok(Session {
            handle: Arc::new(Handle {
                kept,
                client,
                registration,
            }),
        })
    }

    /// Its id: the revision of its opening.
    pub fn id(&self) -> u64 {
        self.handle.kept.key.id
    }

    /// Its id with the proof of the right to act for it.
    pub fn key(&self) -> &SessionKey {
        &self.handle.kept.key
    }

    /// Its TTL.
    pub fn ttl(&self) -> Duration {
        self.handle.kept.ttl
    }

    /// Whether the holder may act on it now. It is not if its deadline has passed, or if the machine was suspended
    /// since the server confirmed it; then it may become valid again once the server has confirmed it anew, unless it
    /// is lost. Ask before each act; between the answer and the act time passes, so let the resource check the fencing
    /// token, too.
    pub fn is_valid(&self) -> bool {
        self.handle.kept.is_valid()
    }

    /// How it stands.
    pub fn state(&self) -> SessionState {
        self.handle.kept.with(KeepAliveSchedule::state)
    }

    /// For how long it may still be believed in if no answer comes; zero if it is not valid.
    pub fn remaining(&self) -> Duration {
        self.handle.kept.with(KeepAliveSchedule::remaining)
    }

    /// Completes when the session is lost or closed, at or before its local deadline, by a timer of its own. The
    /// future does not keep the session alive.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static + use<> {
        let kept = Arc::clone(&self.handle.kept);
        async move { kept.lost().await }
    }

    /// `id:secret`, for another process of the same right. Whoever reads it can do what the session can.
    pub fn export(&self) -> String {
        self.handle.kept.key.to_string()
    }

    /// Ends the session and what it owns with it. Renewals stop at once and the session is not valid any more,
    /// whatever comes of this; it is tried until the server confirms it or has ended the session by itself.
    ///
    /// # Errors
    /// The server could not be reached in that time. It ends the session by its TTL.
    pub async fn close(&self) -> Result<(), Error> {
        let kept = &self.handle.kept;
        let belief = kept.with(KeepAliveSchedule::remaining);
        kept.stop();
        self.handle.registration.remove(None);
        let client = &self.handle.client;
        let timeout = client.timeout().max(belief);
        match client.close_within(kept.key.to_wire(), false, timeout).await {
            Ok(_) => Ok(()),
            Err(error) if is_over(&error) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Whether the session may own what is being written.
    pub(crate) fn check(&self, outcome: Outcome) -> Result<(), Error> {
        match self.state() {
            SessionState::Lost { reason } => Err(Error::SessionLost { reason, outcome }),
            SessionState::Suspect if !self.is_valid() => Err(Error::SessionLost {
                reason: LostReason::Unconfirmed,
                outcome,
            }),
            SessionState::Live | SessionState::Suspect => Ok(()),
        }
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("id", &self.id())
            .field("state", &self.state())
            .finish_non_exhaustive()
    }
}

/// Whether the server says that the session has ended already, or is not there any more.
fn is_over(error: &Error) -> bool {
    match error.code() {
        ErrorCode::SessionExpired => error.server().is_some(),
        ErrorCode::NotFound | ErrorCode::SessionUnknown => true,
        _ => false,
    }
}

/// What handle and keep-alive share of a session.
pub(crate) struct Kept {
    pub(crate) key: SessionKey,
    pub(crate) group: u32,
    pub(crate) ttl: Duration,
    clock: Arc<dyn Clock>,
    schedule: Mutex<KeepAliveSchedule>,
    lost: watch::Sender<Option<LostReason>>,
}

impl Kept {
    pub(crate) fn new(key: SessionKey, group: u32, schedule: KeepAliveSchedule, clock: Arc<dyn Clock>) -> Kept {
        let ttl = schedule.ttl();
        Kept {
            key,
            group,
            ttl,
            clock,
            schedule: Mutex::new(schedule),
            lost: watch::Sender::new(None),
        }
    }

    /// Does something with the schedule at the present moment, and tells everybody if that was its end. The clock is
    /// read under the lock, so that waiting for it makes no reading old.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut KeepAliveSchedule, Instants) -> T) -> T {
        let mut schedule = self.locked();
        let now = self.clock.now();
        let result = act(&mut schedule, now);
        if let SessionState::Lost { reason } = schedule.state(now) {
            self.lost.send_if_modified(|lost| {
                let first = lost.is_none();
                lost.get_or_insert(reason);
                first
            });
        }
        result
    }

    pub(crate) fn is_valid(&self) -> bool {
        self.with(KeepAliveSchedule::is_valid)
    }

    /// Nothing is sent for it any more.
    pub(crate) fn stop(&self) {
        self.with(|schedule, _| schedule.stop());
    }

    async fn lost(&self) -> LostReason {
        let mut lost = self.lost.subscribe();
        loop {
            if let Some(reason) = *lost.borrow_and_update() {
                return reason;
            }
            let left = self.with(|schedule, now| schedule.deadline().saturating_sub(now.boot));
            tokio::select! {
                // The sender is a field of this, so it is there.
                _ = lost.changed() => {}
                () = tokio::time::sleep(left.min(LOOK_INTERVAL)) => {}
            }
        }
    }

    fn locked(&self) -> MutexGuard<'_, KeepAliveSchedule> {
        self.schedule.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session's id with the proof of the right to act for it. Its text form is `id:secret`; whoever reads it can do
/// what the session can, so its debug form leaves the secret out.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionKey {
    id: u64,
    secret: [u8; IDENTITY_BYTES],
}

impl SessionKey {
    /// A key from its parts.
    pub fn new(id: u64, secret: [u8; IDENTITY_BYTES]) -> SessionKey {
        SessionKey { id, secret }
    }

    /// The session.
    pub fn id(&self) -> u64 {
        self.id
    }

    pub(crate) fn to_wire(&self) -> SessionRef {
        SessionRef {
            id: self.id,
            secret: Bytes::copy_from_slice(&self.secret),
        }
    }

    pub(crate) fn from_wire(session: Option<SessionRef>) -> Result<SessionKey, Error> {
        let session = session.ok_or_else(|| Error::unexpected("open_session"))?;
        let secret = session
            .secret
            .as_ref()
            .try_into()
            .map_err(|_| Error::unexpected("open_session"))?;
        Ok(SessionKey { id: session.id, secret })
    }
}

impl fmt::Display for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.id, hexadecimal(&self.secret))
    }
}

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SessionKey")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}

impl FromStr for SessionKey {
    type Err = Error;

    /// Reads `id:secret`.
    fn from_str(text: &str) -> Result<SessionKey, Error> {
        let invalid = || Error::Invalid {
            what: "session",
            rule: format!("ID:SECRET, the secret of {} hexadecimal digits", 2 * IDENTITY_BYTES),
        };
        let (id, secret) = text.split_once(':').ok_or_else(invalid)?;
        let id = id.parse().map_err(|_| invalid())?;
        let digits = secret.as_bytes();
        if digits.len() != 2 * IDENTITY_BYTES || !digits.iter().all(u8::is_ascii_hexdigit) {
            return Err(invalid());
        }
        let mut bytes = [0; IDENTITY_BYTES];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| invalid())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| invalid())?;
        }
        Ok(SessionKey { id, secret: bytes })
    }
}

/// A session that is being described; awaiting it opens it and keeps it alive.
#[derive(Clone, Debug)]
#[must_use = "a session is opened when this is awaited"]
pub struct OpenSession {
    client: Client,
    ttl: Option<Duration>,
    label: Option<String>,
}

/// A session that was opened and is kept alive by nobody.
#[derive(Clone, Debug)]
pub struct OpenedSession {
    /// Its id with the proof of the right to act for it.
    pub key: SessionKey,
    /// The group in which it lives.
    pub group: u32,
    /// Its TTL; `None`: it is only an identity and can own nothing.
    pub ttl: Option<Duration>,
    /// How long it lives if nobody renews it, as of the answer; `None`: without a TTL.
    pub remaining: Option<Duration>,
}

impl OpenSession {
    pub(crate) fn new(client: Client, ttl: Option<Duration>) -> OpenSession {
        OpenSession {
            client,
            ttl,
            label: None,
        }
    }

    /// What is shown wherever the session holds something; the client's label if none is chosen.
    pub fn label(mut self, label: impl Into<String>) -> OpenSession {
        self.label = Some(label.into());
        self
    }

    /// Opens it and leaves its renewal to somebody else.
    ///
    /// # Errors
    /// Those of the call. Opening twice by itself leaves one session, so nothing is to be cleaned up; after an unknown
    /// outcome a session may exist that ends by its TTL.
    pub async fn detached(self) -> Result<OpenedSession, Error> {
        self.open().await.map(|(opened, _)| opened)
    }

    async fn open(&self) -> Result<(OpenedSession, Instants), Error> {
        let label = self.label.as_deref().unwrap_or(&self.client.shared.label);
        let (reply, sent) = self.client.open(self.ttl, label, self.client.timeout(), true).await?;
        let opened = OpenedSession {
            key: SessionKey::from_wire(reply.session)?,
            group: reply.header.unwrap_or_default().group,
            ttl: reply.ttl_ms.map(Duration::from_millis),
            remaining: reply.remaining_us.map(Duration::from_micros),
        };
        Ok((opened, sent))
    }

    async fn send(self) -> Result<Session, Error> {
        let (opened, sent) = self.open().await?;
        let (Some(ttl), Some(remaining)) = (opened.ttl, opened.remaining) else {
            return Err(Error::Invalid {
                what: "ttl",
                rule: "a session that is kept alive has one".to_owned(),
            });
        };
        Session::keep(self.client, opened.key, opened.group, ttl, sent, remaining)
    }
}

impl IntoFuture for OpenSession {
    type Output = Result<Session, Error>;
    type IntoFuture = BoxFuture<'static, Self::Output>;

    fn into_future(self) -> Self::IntoFuture {
        self.send().boxed()
    }
}

impl Client {
    /// Opens a session with this TTL, from 500 ms to 24 h, and keeps it alive. The namespace comes into being with it.
    pub fn open_session(&self, ttl: Duration) -> OpenSession {
        OpenSession::new(self.clone(), Some(ttl))
    }

    /// Opens a session without a TTL: only an identity, which can own nothing and ends after an hour without a
    /// request. Use [`OpenSession::detached`], as nothing needs to keep it alive.
    pub fn open_identity(&self) -> OpenSession {
        OpenSession::new(self.clone(), None)
    }

    /// Takes over a session that was [exported](Session::export), and keeps it alive from here. The server confirms it
    /// before this returns.
    ///
    /// # Errors
    /// The text is no `id:secret`; the session has ended (`session_expired`) or is not known with this secret
    /// (`session_unknown`); those of the call.
    pub async fn import_session(&self, text: &str) -> Result<Session, Error> {
        let key: SessionKey = text.parse()?;
        let (group, sent, remaining) = self.renewed(&key).await?;
        let Some(remaining) = remaining else {
            let rule = "it has no TTL, so nothing keeps it alive".to_owned();
            return Err(Error::Invalid { what: "session", rule });
        };
        // A renewal gives back the whole TTL.
        Session::keep(self.clone(), key, group, remaining, sent, remaining)
    }

    /// Renews a session once, without keeping it alive; returns how long it lives as of the answer (`None`: it has no
    /// TTL).
    ///
    /// # Errors
    /// The session has ended (`session_expired`) or is not known with this secret (`session_unknown`); those of the
    /// call.
    pub async fn renew_session(&self, key: &SessionKey) -> Result<Option<Duration>, Error> {
        self.renewed(key).await.map(|(_, _, remaining)| remaining)
    }

    async fn renewed(&self, key: &SessionKey) -> Result<(u32, Instants, Option<Duration>), Error> {
        let group = self.home(false, self.timeout()).await?;
        let session = SessionInGroup {
            group,
            session: Some(key.to_wire()),
        };
        let request = KeepAliveRequest {
            sessions: vec![session],
            attempt: 1,
        };
        let make = || client_frame::Body::KeepAlive(request.clone());
        let answer = self.repeatable(Repeat::Harmless, self.timeout(), make).await?;
        let server_frame::Body::KeepAlive(reply) = answer.body else {
            return Err(Error::unexpected("keep_alive"));
        };
        let kept = reply.sessions.into_iter().next().and_then(|kept| kept.result);
        match kept.ok_or_else(|| Error::unexpected("keep_alive"))? {
            kept_alive::Result::Renewed(renewed) => {
                Ok((group, answer.sent, renewed.remaining_us.map(Duration::from_micros)))
            }
            // The call has made errors of these, over all its attempts.
            kept_alive::Result::Ended(_) | kept_alive::Result::Unknown(_) | kept_alive::Result::Failed(_) => {
                Err(Error::unexpected("keep_alive"))
            }
        }
    }
}

/// Why a session that the server reports as ended is lost to its holder.
pub(crate) fn ended(end: &v1::SessionEnd) -> LostReason {
    let cause = match end.reason() {
        EndReason::Expired | EndReason::Session => EndCause::Expired,
        EndReason::Closed => EndCause::Closed,
        EndReason::Forced => EndCause::Forced,
        EndReason::Unspecified | EndReason::Delete | EndReason::ObjectDeleted => EndCause::Other,
    };
    LostReason::Ended {
        cause,
        revision: end.revision,
    }
}

#[cfg(test)]
mod tests;
