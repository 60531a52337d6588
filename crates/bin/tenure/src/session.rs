//! Sessions: open, renew, keep, look at and end them.

mod keep;

use std::time::Duration;

use serde::Serialize;
use tokio::time::Instant;

use tenure_api::v1::OwnedKey;
use tenure_client::{Client, Error, ErrorCode, SessionInfo, SessionKey};

use crate::args::session::SessionCommand;
use crate::duration::{display, whole_ms};
use crate::exit::Failure;
use crate::output::{Answer, Blob, Decimal, Output, escaped, fields};

pub(crate) use keep::become_kept;

/// How long a renewal waits if a busy node does not say how long.
const RETRY_AFTER: Duration = Duration::from_millis(100);

/// Runs a command of `tenure session`.
///
/// # Errors
/// Those of the command.
pub(crate) async fn run(command: SessionCommand, client: Client, output: &mut Output) -> Result<(), Failure> {
    match command {
        SessionCommand::Open { ttl, label } => open(ttl, label, &client, output).await,
        SessionCommand::Renew { session } => renew(&session, &client, output).await,
        SessionCommand::Keep { session, command } => keep::keep(&session, &command, &client).await,
        SessionCommand::Close { session, force, .. } => close(&session, force, &client, output).await,
        SessionCommand::Show { id } => show(&id, &client, output).await,
        SessionCommand::Ls { all } => ls(all, &client, output).await,
    }
}

/// Reads `ID:SECRET`.
///
/// # Errors
/// It is none. The message does not repeat it.
pub(crate) fn key(text: &str) -> Result<SessionKey, Failure> {
    text.parse()
        .map_err(|error: Error| Failure::settings(error.to_string(), "take it from `tenure session open`"))
}

/// Reads an id, with or without the `s-` with which refusals name it, and with or without a secret behind it.
fn id(text: &str) -> Result<u64, Failure> {
    let text = text.split(':').next().unwrap_or(text);
    let digits = text.strip_prefix("s-").unwrap_or(text);
    digits
        .parse()
        .map_err(|_| Failure::settings("a session's id is a number", "take it from `tenure session ls`"))
}

/// `session open`.
#[derive(Serialize)]
struct Opened {
    session: Decimal,
    secret: String,
    ttl_ms: Option<u64>,
    remaining_ms: Option<u64>,
}

impl Answer for Opened {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(format!("session {}:{}", self.session.0, self.secret).into_bytes());
    }
}

async fn open(ttl: Duration, label: Option<String>, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let mut opening = client.open_session(ttl);
    if let Some(label) = label {
        opening = opening.label(label);
    }
    let opened = opening.detached().await?;
    let text = opened.key.to_string();
    let (_, secret) = text.split_once(':').expect("a key's text form is ID:SECRET");
    output.answer(&Opened {
        session: Decimal(opened.key.id()),
        secret: secret.to_owned(),
        ttl_ms: opened.ttl.map(whole_ms),
        remaining_ms: opened.remaining.map(whole_ms),
    })
}

/// `session renew`.
#[derive(Serialize)]
struct Renewed {
    session: Decimal,
    remaining_ms: Option<u64>,
}

impl Answer for Renewed {
    fn text(&self, line: &mut Vec<u8>) {
        let remaining = match self.remaining_ms {
            Some(remaining_ms) => display(Duration::from_millis(remaining_ms)),
            None => "without end".to_owned(),
        };
        line.extend(format!("session {} remaining {remaining}", self.session.0).into_bytes());
    }
}

/// Renews once.
async fn renew(session: &str, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let key = key(session)?;
    let remaining = patiently(&key, client, async || client.renew_session(&key).await).await?;
    output.answer(&Renewed {
        session: Decimal(key.id()),
        remaining_ms: remaining.map(whole_ms),
    })
}

/// Asks for a renewal. A node drops renewals that come faster than anybody needs them and says when to come back; that
/// is waited for as long as the time for a request allows.
async fn patiently<T>(
    key: &SessionKey,
    client: &Client,
    ask: impl AsyncFn() -> Result<T, Error>,
) -> Result<T, Failure> {
    let deadline = Instant::now() + client.timeout();
    loop {
        let error = match ask().await {
            Ok(answer) => return Ok(answer),
            Err(error) => error,
        };
        let again = Instant::now() + error.retry_after().unwrap_or(RETRY_AFTER);
        if error.code() == ErrorCode::SessionUnknown {
            return Err(unknown(key, error, client).await);
        }
        if error.code() != ErrorCode::Overloaded || again >= deadline {
            return Err(error.into());
        }
        tokio::time::sleep_until(again).await;
    }
}

/// A renewal is not told whether there is no such session or the secret is another. To a person both are said, as every
/// other command does.
async fn unknown(key: &SessionKey, error: Error, client: &Client) -> Failure {
    match client.session_info(key.id()).await {
        Ok(Some(info)) if info.ended.is_none() => Failure::settings(
            format!("session.secret: it is not that of session s-{}", key.id()),
            "correct it",
        ),
        Err(missing) if missing.code() == ErrorCode::NotFound => missing.into(),
        _ => error.into(),
    }
}

/// `session close`.
#[derive(Serialize)]
struct Closed {
    applied: bool,
    session: Decimal,
    revision: Decimal,
    removed: u64,
}

impl Answer for Closed {
    fn text(&self, line: &mut Vec<u8>) {
        let keys = if self.removed == 1 { "key" } else { "keys" };
        line.extend(format!("closed, {} {keys} removed", self.removed).into_bytes());
    }
}

async fn close(session: &str, force: bool, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let (id, closed) = if force {
        let id = id(session)?;
        (id, client.force_close_session(id).await?)
    } else {
        let key = key(session)?;
        (key.id(), client.close_session(&key).await?)
    };
    output.answer(&Closed {
        applied: true,
        session: Decimal(id),
        revision: Decimal(closed.revision),
        removed: closed.removed,
    })
}

/// A session in a listing, and in `session show` together with what it owns.
#[derive(Serialize)]
struct Shown {
    session: Decimal,
    label: String,
    ttl_ms: Option<u64>,
    remaining_ms: Option<u64>,
    ended: Option<Ended>,
    owns: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    owned: Option<Vec<Owned>>,
}

/// How a session ended.
#[derive(Serialize)]
struct Ended {
    reason: &'static str,
    revision: Decimal,
}

/// A key that a session owns.
#[derive(Serialize)]
struct Owned {
    tenant: String,
    namespace: String,
    cache: String,
    #[serde(flatten)]
    key: Blob<bytes::Bytes>,
}

impl Shown {
    fn new(info: &SessionInfo) -> Shown {
        Shown {
            session: Decimal(info.id),
            label: info.label.clone(),
            ttl_ms: info.ttl_ms,
            remaining_ms: info.remaining_us.map(|remaining_us| remaining_us / 1_000),
            ended: info.ended.as_ref().map(|end| Ended {
                reason: end.reason().name(),
                revision: Decimal(end.revision),
            }),
            owns: info.owned_count,
            owned: None,
        }
    }

    fn ttl(&self) -> String {
        self.ttl_ms
            .map_or_else(|| "-".to_owned(), |ttl_ms| display(Duration::from_millis(ttl_ms)))
    }

    fn remaining(&self) -> String {
        let display_ms = |remaining_ms| display(Duration::from_millis(remaining_ms));
        self.remaining_ms.map_or_else(|| "-".to_owned(), display_ms)
    }

    fn state(&self) -> String {
        match &self.ended {
            Some(end) => format!("ended ({}) at {}", end.reason, end.revision.0),
            None => "open".to_owned(),
        }
    }
}

impl Answer for Shown {
    fn text(&self, line: &mut Vec<u8>) {
        let pairs = [
            ("session", self.session.0.to_string()),
            ("label", self.label.clone()),
            ("state", self.state()),
            ("ttl", self.ttl()),
            ("remaining", self.remaining()),
            ("owns", self.owns.to_string()),
        ];
        line.extend(fields(&pairs).into_bytes());
        for owned in self.owned.iter().flatten() {
            line.extend(format!("\n  {}/{}/{} ", owned.tenant, owned.namespace, owned.cache).into_bytes());
            line.extend(escaped(&owned.key.bytes).into_bytes());
        }
    }
}

impl Owned {
    fn new(key: OwnedKey) -> Owned {
        let scope = key.scope.unwrap_or_default();
        Owned {
            tenant: scope.tenant,
            namespace: scope.namespace,
            cache: key.cache,
            key: Blob::key(key.key),
        }
    }
}

async fn show(session: &str, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let id = id(session)?;
    let Some(info) = client.session_info(id).await? else {
        return Err(Failure::Missing {
            what: format!("session s-{id}"),
            remedy: "look at `tenure session ls`".to_owned(),
        });
    };
    let mut shown = Shown::new(&info);
    shown.owned = Some(info.owned.into_iter().map(Owned::new).collect());
    output.answer(&shown)
}

async fn ls(all: bool, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let sessions = client.sessions().await?;
    let shown = sessions.iter().filter(|session| all || session.ended.is_none());
    let sessions: Vec<Shown> = shown.map(Shown::new).collect();
    output.rows(
        ["SESSION", "TTL", "REMAINING", "OWNS", "STATE", "LABEL"],
        &sessions,
        |session| {
            [
                session.session.0.to_string(),
                session.ttl(),
                session.remaining(),
                session.owns.to_string(),
                session.state(),
                session.label.clone(),
            ]
        },
    )
}
