//! What a holder is said to have seen, with a system in memory that loses its leader.

use std::collections::BTreeSet;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

use super::*;
use crate::target::{EventKind, Watcher};

/// Keys in memory. After the leader is killed so many calls fail.
#[derive(Default)]
struct Memory {
    keys: Mutex<BTreeSet<String>>,
    fails: AtomicU32,
}

enum Nothing {}

impl Watcher for Nothing {
    async fn next(&mut self, _kind: EventKind, _keys: &mut Vec<String>) -> Result<(), Failure> {
        match *self {}
    }
}

impl Target for Memory {
    type Grant = ();
    type Watcher = Nothing;

    async fn prepare(&self, _work: Work) -> Result<(), Failure> {
        Ok(())
    }

    async fn claim(&self, key: &str, _ttl: Duration) -> Result<(), Failure> {
        let left = self.fails.load(Ordering::Relaxed);
        if left > 0 {
            self.fails.store(left - 1, Ordering::Relaxed);
            return Err(Failure::unexpected("no leader"));
        }
        if self.keys.lock().unwrap().insert(key.to_owned()) {
            Ok(())
        } else {
            Err(Failure::refused("it exists"))
        }
    }

    async fn release(&self, key: &str, (): &()) -> Result<(), Failure> {
        assert!(self.keys.lock().unwrap().remove(key), "{key} was not held");
        Ok(())
    }

    async fn renew(&self, _key: &str, (): &(), _ttl: Duration) -> Result<(), Failure> {
        unreachable!("a holder claims and releases")
    }

    async fn put(&self, _key: &str, _ttl: Duration) -> Result<(), Failure> {
        unreachable!("a holder claims and releases")
    }

    async fn get(&self, _key: &str) -> Result<(), Failure> {
        unreachable!("a holder claims and releases")
    }

    async fn publish(&self, _record: &[u8]) -> Result<(), Failure> {
        unreachable!("a holder claims and releases")
    }

    async fn echo(&self) -> Result<(), Failure> {
        unreachable!("a holder claims and releases")
    }

    async fn watch(&self, _prefix: &str) -> Result<Nothing, Failure> {
        unreachable!("a holder claims and releases")
    }
}

#[tokio::test]
async fn the_first_claim_that_succeeds_after_the_kill_counts() {
    let memory = Memory::default();
    let kill = || {
        memory.fails.store(3, Ordering::Relaxed);
        Ok(())
    };
    let seen = measure(&memory, "test", kill).await.unwrap();
    assert_eq!((seen.attempts, seen.kept), (4, true));
    assert!(seen.until_claim >= BETWEEN_CALLS * 3, "{seen}");
}

#[tokio::test]
async fn a_key_that_was_lost_with_the_leader_is_told() {
    let memory = Memory::default();
    let kill = || {
        memory.keys.lock().unwrap().clear();
        Ok(())
    };
    let seen = measure(&memory, "test", kill).await.unwrap();
    assert_eq!((seen.attempts, seen.kept), (1, false));
}

#[tokio::test]
async fn a_leader_that_cannot_be_killed_is_no_measurement() {
    let kill = || Err(io::ErrorKind::NotFound.into());
    measure(&Memory::default(), "test", kill)
        .await
        .expect_err("nothing was killed");
}

#[test]
fn the_line_is_the_one_that_programs_read() {
    let seen = Failover {
        until_claim: Duration::from_millis(1_234),
        attempts: 5,
        kept: true,
    };
    assert_eq!(seen.to_string(), "failover: 1234 ms attempts=5 kept=true");
}
