//! Keys of a cache: write, renew, read, delete and list them.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;

use tenure_api::limits::VALUE_BYTES_MAX;
use tenure_client::{Client, Entry, Guard, Verdict};

use crate::args::cache::{Condition, Delete, LsKeys, Put, Target, Touch};
use crate::duration::whole_ms;
use crate::exit::Failure;
use crate::input;
use crate::output::{Answer, Blob, Decimal, Output, escaped};
use crate::session;

/// `cache put` and `cache touch`.
#[derive(Serialize)]
struct Written {
    applied: bool,
    version: Decimal,
    created: Decimal,
    ttl_ms: Option<u64>,
}

impl Written {
    fn new(version: u64, created: u64, remaining: Option<Duration>) -> Written {
        let (version, created) = (Decimal(version), Decimal(created));
        Written {
            applied: true,
            version,
            created,
            ttl_ms: remaining.map(whole_ms),
        }
    }
}

impl Answer for Written {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(format!("version {}", self.version.0).into_bytes());
    }
}

/// `cache put`.
pub(super) async fn put(arguments: Put, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let owner = arguments.session.as_deref().map(session::key).transpose()?;
    let value = match (arguments.value, &arguments.file) {
        (Some(value), _) => value.into_vec(),
        (None, Some(path)) => {
            let unreadable =
                |error| Failure::failed(format!("cannot read {}: {error}", path.display()), "check the file");
            File::open(path).and_then(whole_value).map_err(unreadable)?
        }
        (None, None) => {
            let unreadable = |error| Failure::failed(format!("cannot read standard input: {error}"), "give it a value");
            whole_value(input::open("a value")?).map_err(unreadable)?
        }
    };
    let cache = client.cache(arguments.target.cache);
    let mut put = cache.put(arguments.target.key.as_bytes(), value);
    if let Some(ttl_ms) = arguments.ttl_ms {
        put = put.ttl(Duration::from_millis(ttl_ms));
    }
    if let Some(guard) = guard(arguments.condition) {
        put = put.guard(guard);
    }
    if let Some(owner) = owner {
        put = put.owner(owner);
    }
    match put.await? {
        Verdict::Done(done) => output.answer(&Written::new(done.version, done.created, done.remaining)),
        Verdict::Refused(refusal) => Err(refusal.into()),
    }
}

/// Reads a value to its end, or one byte more than a value may have, so that the node names the limit.
fn whole_value(from: impl io::Read) -> io::Result<Vec<u8>> {
    let mut value = Vec::new();
    from.take(VALUE_BYTES_MAX as u64 + 1).read_to_end(&mut value)?;
    Ok(value)
}

fn guard(condition: Condition) -> Option<Guard> {
    let Condition {
        if_absent,
        if_present,
        if_version,
        if_value,
        if_created,
    } = condition;
    match if_value {
        Some(value) => Some(Guard::Value(Bytes::from(value.into_vec()))),
        None if if_absent => Some(Guard::Absent),
        None if if_present => Some(Guard::Present),
        None => guard_of_numbers(if_version, if_created),
    }
}

fn guard_of_numbers(if_version: Option<u64>, if_created: Option<u64>) -> Option<Guard> {
    if_version.map(Guard::Version).or(if_created.map(Guard::Created))
}

/// `cache touch`.
pub(super) async fn touch(arguments: Touch, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let Target { cache, key } = arguments.target;
    let mut touch = client
        .cache(cache)
        .touch(key.as_bytes(), Duration::from_millis(arguments.ttl_ms));
    if let Some(guard) = guard_of_numbers(arguments.if_version, arguments.if_created) {
        touch = touch.guard(guard);
    }
    match touch.await? {
        Verdict::Done(done) => output.answer(&Written::new(done.version, done.created, done.remaining)),
        Verdict::Refused(refusal) => Err(refusal.into()),
    }
}

/// `cache get`, and in a watch what was there before.
#[derive(Serialize)]
struct Found {
    #[serde(flatten)]
    key: Blob<Bytes>,
    #[serde(flatten)]
    value: Blob<Bytes>,
    version: Decimal,
    created: Decimal,
    holder: Option<Decimal>,
    ttl_ms: Option<u64>,
    #[serde(skip)]
    with_meta: bool,
}

impl Found {
    fn new(entry: Entry, with_meta: bool) -> Found {
        Found {
            key: Blob::key(entry.key),
            value: Blob::value(entry.value),
            version: Decimal(entry.version),
            created: Decimal(entry.created),
            holder: entry.owner_session.map(Decimal),
            ttl_ms: entry.remaining.map(whole_ms),
            with_meta,
        }
    }
}

impl Answer for Found {
    /// The value as it is; where more stands behind it, escaped as in listings, so that the columns stay what they are.
    fn text(&self, line: &mut Vec<u8>) {
        if !self.with_meta {
            line.extend_from_slice(&self.value.bytes);
        } else {
            line.extend(escaped(&self.value.bytes).into_bytes());
            let ttl_ms = self.ttl_ms.map_or_else(|| "-".to_owned(), |ttl_ms| ttl_ms.to_string());
            line.extend(format!("\t{}\t{}\t{ttl_ms}", self.version.0, self.created.0).into_bytes());
        }
    }
}

/// `cache get`.
pub(super) async fn get(target: Target, with_meta: bool, client: &Client, output: &mut Output) -> Result<(), Failure> {
    match client.cache(&target.cache).get(target.key.as_bytes()).await? {
        Some(entry) => output.answer(&Found::new(entry, with_meta)),
        None => Err(Failure::Missing {
            what: format!("key {} of cache {}", escaped(target.key.as_bytes()), target.cache),
            remedy: "write it first, or correct the name".to_owned(),
        }),
    }
}

/// `cache delete`.
#[derive(Serialize)]
struct Deleted {
    applied: bool,
    deleted: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    revision: Option<Decimal>,
    #[serde(skip_serializing_if = "Option::is_none")]
    version: Option<Decimal>,
}

impl Answer for Deleted {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend_from_slice(if self.deleted { b"deleted" } else { b"no such key" });
    }
}

/// `cache delete --prefix`.
#[derive(Serialize)]
struct PrefixDeleted {
    applied: bool,
    removed: u64,
}

impl Answer for PrefixDeleted {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(format!("deleted {}", self.removed).into_bytes());
    }
}

/// `cache delete`.
pub(super) async fn delete(arguments: Delete, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let cache = client.cache(&arguments.cache);
    let key = match (arguments.key, arguments.prefix) {
        (Some(key), _) => key,
        (None, prefix) => {
            let prefix = prefix.unwrap_or_default();
            if !arguments.yes {
                let what = format!(
                    "`cache delete {} --prefix {}` deletes every such key",
                    arguments.cache,
                    escaped(prefix.as_bytes())
                );
                return Err(Failure::unconfirmed(what));
            }
            let removed = cache.delete_prefix(prefix.as_bytes()).await?;
            return output.answer(&PrefixDeleted { applied: true, removed });
        }
    };
    let mut delete = cache.delete(key.as_bytes());
    if let Some(guard) = guard_of_numbers(arguments.if_version, arguments.if_created) {
        delete = delete.guard(guard);
    }
    match delete.await? {
        Verdict::Done(done) => output.answer(&Deleted {
            applied: true,
            deleted: done.removed.is_some(),
            revision: done.removed.map(|removed| Decimal(removed.revision)),
            version: done.removed.map(|removed| Decimal(removed.version)),
        }),
        Verdict::Refused(refusal) => Err(refusal.into()),
    }
}

/// A line of `cache ls-keys`.
#[derive(Serialize)]
struct Key {
    #[serde(flatten)]
    key: Blob<Bytes>,
    version: Decimal,
    created: Decimal,
    holder: Option<Decimal>,
    ttl_ms: Option<u64>,
}

impl Answer for Key {
    fn text(&self, line: &mut Vec<u8>) {
        line.extend(escaped(&self.key.bytes).into_bytes());
    }
}

/// `cache ls-keys`: a page is written before the next one is asked for.
pub(super) async fn ls_keys(arguments: LsKeys, client: &Client, output: &mut Output) -> Result<(), Failure> {
    let prefix = arguments.prefix.unwrap_or_default();
    let cache = client.cache(arguments.cache);
    let mut left = arguments.limit.unwrap_or(usize::MAX);
    let mut after: Option<Bytes> = None;
    loop {
        let mut list = cache.list().prefix(prefix.as_bytes()).keys_only().limit(left);
        if let Some(after) = &after {
            list = list.after(after);
        }
        // Asking for no key would be asking for a whole page. One key shows that the cache exists.
        let page = if left == 0 { list.limit(1) } else { list }.page().await?.value;
        let keys: Vec<Key> = page
            .entries
            .into_iter()
            .take(left)
            .map(|entry| Key {
                key: Blob::key(entry.key),
                version: Decimal(entry.version),
                created: Decimal(entry.created),
                holder: entry.owner_session.map(Decimal),
                ttl_ms: entry.remaining.map(whole_ms),
            })
            .collect();
        output.answers(&keys)?;
        left -= keys.len();
        after = keys.into_iter().last().map(|key| key.key.bytes);
        if left == 0 || !page.more || after.is_none() {
            return Ok(());
        }
    }
}
