//! ZooKeeper, as programs use it for leases: an ephemeral node is created by a session, and deleted under its version.
//!
//! It has no client crate: the protocol's four requests are written down here. A connection is a session; requests of all
//! its workers are sent as they come, several in one write, and answered in order. When a connection is lost, what was
//! under way has failed, and the session goes on at the next address.

mod session;
mod wire;

use std::time::Duration;

use tokio::sync::mpsc;

use self::session::Call;
use super::etcd::NoEvents;
use super::{Failure, Target, VALUE};
use crate::work::Work;

/// The node below which the measurement makes its own.
const PARENT: &str = "/tenure-bench";
/// Calls that wait to be sent, of one session.
const CALLS_MAX: usize = 1_024;

/// One session.
pub struct ZooKeeper {
    calls: mpsc::Sender<Call>,
    timeout: Duration,
}

/// The version of a node that was just created. A node that was deleted and created anew has it too: ZooKeeper has no
/// condition on the creation.
#[derive(Clone, Copy, Debug)]
pub struct Version(i32);

/// Why ZooKeeper did not do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Trouble {
    /// The connection is lost. Whether it was done is unknown.
    #[error("the connection is lost")]
    Lost,
    /// No answer came in time. Whether it was done is unknown.
    #[error("no answer in time")]
    Late,
    /// The session has ended, and what it held with it.
    #[error("the session has ended")]
    Expired,
    /// What came is not of the protocol.
    #[error("an answer that cannot be read")]
    Garbled,
    /// ZooKeeper's code for an error that has no name here.
    #[error("error {0}")]
    Code(i32),
}

impl ZooKeeper {
    /// So many sessions at the first of these `HOST:PORT`; the others are used when it is lost. A call that takes longer
    /// than the timeout fails.
    ///
    /// # Errors
    /// None of the addresses can be reached.
    pub async fn connect(
        addresses: &[String],
        timeout: Duration,
        connections: usize,
    ) -> Result<Vec<ZooKeeper>, Failure> {
        let mut all = Vec::with_capacity(connections);
        for _ in 0..connections {
            let (calls, to_send) = mpsc::channel(CALLS_MAX);
            session::open(addresses, timeout, to_send)
                .await
                .map_err(Failure::ZooKeeper)?;
            all.push(ZooKeeper { calls, timeout });
        }
        Ok(all)
    }

    async fn ask(&self, operation: i32, body: Vec<u8>) -> Result<(), Trouble> {
        let (answer, answered) = tokio::sync::oneshot::channel();
        let call = Call {
            operation,
            body,
            answer,
        };
        let asking = async {
            self.calls.send(call).await.map_err(|_| Trouble::Expired)?;
            // A session that has ended drops what it did not answer.
            answered.await.unwrap_or(Err(Trouble::Expired))
        };
        tokio::time::timeout(self.timeout, asking)
            .await
            .unwrap_or(Err(Trouble::Late))
    }
}

/// The path of a key: keys have slashes, which would be parents that do not exist.
fn path(key: &str) -> String {
    format!("{PARENT}/{}", key.replace('/', "-"))
}

impl Target for ZooKeeper {
    type Grant = Version;
    type Watcher = NoEvents;

    async fn prepare(&self, _work: Work) -> Result<(), Failure> {
        match self.ask(wire::CREATE, wire::create(PARENT, "", false)).await {
            Ok(()) | Err(Trouble::Code(wire::NODE_EXISTS)) => Ok(()),
            Err(trouble) => Err(Failure::ZooKeeper(trouble)),
        }
    }

    async fn claim(&self, key: &str, _ttl: Duration) -> Result<Version, Failure> {
        match self.ask(wire::CREATE, wire::create(&path(key), VALUE, true)).await {
            Ok(()) => Ok(Version(0)),
            Err(Trouble::Code(wire::NODE_EXISTS)) => Err(Failure::refused("the node exists")),
            Err(trouble) => Err(Failure::ZooKeeper(trouble)),
        }
    }

    async fn release(&self, key: &str, grant: &Version) -> Result<(), Failure> {
        match self.ask(wire::DELETE, wire::delete(&path(key), grant.0)).await {
            Ok(()) => Ok(()),
            Err(Trouble::Code(code @ (wire::NO_NODE | wire::BAD_VERSION))) => {
                Err(Failure::refused(format!("the node is another's or is gone: {code}")))
            }
            Err(trouble) => Err(Failure::ZooKeeper(trouble)),
        }
    }

    async fn renew(&self, _key: &str, _grant: &Version, _ttl: Duration) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Renew))
    }

    async fn put(&self, _key: &str, _ttl: Duration) -> Result<(), Failure> {
        Err(Failure::not_measured("put"))
    }

    async fn get(&self, _key: &str) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Get))
    }

    async fn publish(&self, _record: &[u8]) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Publish))
    }

    async fn echo(&self) -> Result<(), Failure> {
        Err(Failure::not_measured(Work::Echo))
    }

    async fn watch(&self, _prefix: &str) -> Result<NoEvents, Failure> {
        Err(Failure::not_measured(Work::Watch))
    }
}
