//! Redis, as programs use it for leases: `SET NX PX` to claim, and scripts that compare before they change anything.
//!
//! How durable an answer is is Redis's setting: with `appendonly yes` and `appendfsync always` what is answered is
//! synced, as with us. A read is answered from memory by the one thread; there is no other copy to ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::StreamExt as _;
use redis::aio::{MultiplexedConnection, PubSub};
use redis::{AsyncConnectionConfig, Client, Cmd, FromRedisValue, RedisError, cmd};

use super::{EventKind, Failure, Target, VALUE, Watcher};
use crate::work::Work;

/// The stream that the measurement appends to.
const STREAM: &str = "tenure-bench";
/// Records that the stream keeps, about: what is older goes, so that the measurement does not fill the memory.
const STREAM_LENGTH: u64 = 1_000_000;
/// Deletes a key that has this value.
const RELEASE: &str = "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) else return 0 end";
/// Gives a key that has this value its TTL anew.
const RENEW: &str =
    "if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('pexpire',KEYS[1],ARGV[2]) else return 0 end";

/// One multiplexed connection.
pub struct Redis {
    client: Client,
    connection: MultiplexedConnection,
    release_sha: String,
    renew_sha: String,
    /// The value of the next claim: what tells one holder from the next. It is as long as the value that others write.
    next_owner: AtomicU64,
}

/// The value that was written.
#[derive(Clone, Debug)]
pub struct OwnerValue(String);

impl Redis {
    /// So many connections to `HOST:PORT`. A call that takes longer than the timeout fails.
    ///
    /// # Errors
    /// It cannot be reached, or is too old for scripts.
    pub async fn connect(address: &str, timeout: Duration, connections: usize) -> Result<Vec<Redis>, Failure> {
        let client = Client::open(format!("redis://{address}/"))?;
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(timeout))
            .set_response_timeout(Some(timeout));
        let mut all = Vec::with_capacity(connections);
        for number in 0..connections {
            let connection = client.get_multiplexed_async_connection_with_config(&config).await?;
            let load = |script: &str| cmd("SCRIPT").arg("LOAD").arg(script).to_owned();
            let release_sha = load(RELEASE).query_async(&mut connection.clone()).await?;
            let renew_sha = load(RENEW).query_async(&mut connection.clone()).await?;
            all.push(Redis {
                client: client.clone(),
                connection,
                release_sha,
                renew_sha,
                next_owner: AtomicU64::new((number as u64) << 40),
            });
        }
        Ok(all)
    }

    async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> Result<T, Failure> {
        Ok(command.query_async(&mut self.connection.clone()).await?)
    }

    fn owner(&self) -> String {
        let width = VALUE.len() - "worker ".len();
        format!("worker {:0width$x}", self.next_owner.fetch_add(1, Ordering::Relaxed))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Zero means that the script found another value.
fn changed(count: u64) -> Result<(), Failure> {
    match count {
        0 => Err(Failure::refused("the key has another value")),
        _ => Ok(()),
    }
}

impl Target for Redis {
    type Grant = OwnerValue;
    type Watcher = Notifications;

    async fn prepare(&self, _work: Work) -> Result<(), Failure> {
        // Events cost something at every write, so they are on only while they are watched.
        let mut off = cmd("CONFIG");
        self.ask(off.arg("SET").arg("notify-keyspace-events").arg("")).await
    }

    async fn claim(&self, key: &str, ttl: Duration) -> Result<OwnerValue, Failure> {
        let owner = self.owner();
        let mut set = cmd("SET");
        set.arg(key).arg(&owner).arg("NX").arg("PX").arg(millis(ttl));
        match self.ask::<Option<String>>(&set).await? {
            Some(_) => Ok(OwnerValue(owner)),
            None => Err(Failure::refused("the key exists")),
        }
    }

    async fn release(&self, key: &str, grant: &OwnerValue) -> Result<(), Failure> {
        let mut script = cmd("EVALSHA");
        script.arg(&self.release_sha).arg(1).arg(key).arg(&grant.0);
        changed(self.ask(&script).await?)
    }

    async fn renew(&self, key: &str, grant: &OwnerValue, ttl: Duration) -> Result<(), Failure> {
        let mut script = cmd("EVALSHA");
        script
            .arg(&self.renew_sha)
            .arg(1)
            .arg(key)
            .arg(&grant.0)
            .arg(millis(ttl));
        changed(self.ask(&script).await?)
    }

    async fn put(&self, key: &str, ttl: Duration) -> Result<(), Failure> {
        let mut set = cmd("SET");
        self.ask(set.arg(key).arg(self.owner()).arg("PX").arg(millis(ttl)))
            .await
    }

    async fn get(&self, key: &str) -> Result<(), Failure> {
        match self.ask::<Option<String>>(cmd("GET").arg(key)).await? {
            Some(_) => Ok(()),
            None => Err(Failure::refused("no such key")),
        }
    }

    async fn publish(&self, record: &[u8]) -> Result<(), Failure> {
        let mut add = cmd("XADD");
        add.arg(STREAM).arg("MAXLEN").arg("~").arg(STREAM_LENGTH).arg("*");
        self.ask::<String>(add.arg("r").arg(record)).await.map(drop)
    }

    async fn echo(&self) -> Result<(), Failure> {
        self.ask(&cmd("PING")).await
    }

    /// Notifications are sent when Redis notices the end of a TTL, and to whoever listens at that moment: they are
    /// neither kept nor sent again.
    async fn watch(&self, prefix: &str) -> Result<Notifications, Failure> {
        let mut on = cmd("CONFIG");
        // Keyspace channels, of string commands and of expiries.
        let () = self.ask(on.arg("SET").arg("notify-keyspace-events").arg("K$x")).await?;
        let mut channel = self.client.get_async_pubsub().await?;
        channel.psubscribe(format!("{CHANNEL}{prefix}*")).await?;
        Ok(Notifications { channel })
    }
}

/// What stands before the key in a channel's name; the measurement uses the first database.
const CHANNEL: &str = "__keyspace@0__:";

/// Events of keys.
pub struct Notifications {
    channel: PubSub,
}

impl Watcher for Notifications {
    async fn next(&mut self, kind: EventKind, keys: &mut Vec<String>) -> Result<(), Failure> {
        let wanted = match kind {
            EventKind::Written => "set",
            EventKind::Expired => "expired",
        };
        let mut messages = self.channel.on_message();
        while keys.is_empty() {
            let Some(message) = messages.next().await else {
                return Err(Failure::unexpected("the subscription has ended"));
            };
            if message.get_payload_bytes() == wanted.as_bytes() {
                let key = message.get_channel_name().strip_prefix(CHANNEL);
                keys.extend(key.map(str::to_owned));
            }
        }
        Ok(())
    }
}

impl From<RedisError> for Failure {
    fn from(error: RedisError) -> Failure {
        Failure::Redis(Arc::new(error))
    }
}
