//! The loop over a target in memory.

use std::collections::BTreeSet;

use tokio::sync::mpsc;

use super::*;

const SETTINGS: Settings = Settings {
    workers: 4,
    duration: Duration::from_millis(200),
};

/// Keys in memory.
#[derive(Default)]
struct Memory {
    keys: Mutex<BTreeSet<String>>,
    calls: Mutex<BTreeMap<&'static str, u64>>,
    watcher: Mutex<Option<mpsc::UnboundedSender<(EventKind, String)>>>,
    fails: bool,
}

struct Told(mpsc::UnboundedReceiver<(EventKind, String)>);

impl Memory {
    fn call(&self, name: &'static str) -> Result<(), Failure> {
        *self.calls.lock().unwrap().entry(name).or_default() += 1;
        if self.fails {
            return Err(Failure::refused("it fails"));
        }
        Ok(())
    }

    fn tell(&self, kind: EventKind, key: &str) {
        if let Some(watcher) = &*self.watcher.lock().unwrap() {
            watcher.send((kind, key.to_owned())).unwrap();
        }
    }

    fn calls(&self, name: &str) -> u64 {
        self.calls.lock().unwrap().get(name).copied().unwrap_or_default()
    }
}

impl Target for Memory {
    type Grant = ();
    type Watcher = Told;

    async fn prepare(&self, _work: Work) -> Result<(), Failure> {
        Ok(())
    }

    async fn claim(&self, key: &str, ttl: Duration) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        self.call("claim")?;
        if !self.keys.lock().unwrap().insert(key.to_owned()) {
            return Err(Failure::refused("it exists"));
        }
        // The end of a short TTL is told at once: no test waits for it.
        if ttl < TTL {
            self.keys.lock().unwrap().remove(key);
            self.tell(EventKind::Expired, key);
        }
        Ok(())
    }

    async fn release(&self, key: &str, (): &()) -> Result<(), Failure> {
        self.call("release")?;
        let there = self.keys.lock().unwrap().remove(key);
        there.then_some(()).ok_or_else(|| Failure::refused("no such key"))
    }

    async fn renew(&self, key: &str, (): &(), _ttl: Duration) -> Result<(), Failure> {
        self.get(key).await
    }

    async fn put(&self, key: &str, _ttl: Duration) -> Result<(), Failure> {
        self.call("put")?;
        self.keys.lock().unwrap().insert(key.to_owned());
        self.tell(EventKind::Written, key);
        Ok(())
    }

    async fn get(&self, key: &str) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        self.call("get")?;
        let there = self.keys.lock().unwrap().contains(key);
        there.then_some(()).ok_or_else(|| Failure::refused("no such key"))
    }

    async fn publish(&self, _record: &[u8]) -> Result<(), Failure> {
        Err(Failure::NotMeasured {
            why: "there are no streams in memory".to_owned(),
        })
    }

    async fn echo(&self) -> Result<(), Failure> {
        tokio::task::yield_now().await;
        self.call("echo")
    }

    async fn watch(&self, _prefix: &str) -> Result<Told, Failure> {
        let (sender, receiver) = mpsc::unbounded_channel();
        *self.watcher.lock().unwrap() = Some(sender);
        Ok(Told(receiver))
    }
}

impl Watcher for Told {
    async fn next(&mut self, kind: EventKind, keys: &mut Vec<String>) -> Result<(), Failure> {
        while keys.is_empty() {
            let event = self.0.recv().await.ok_or_else(|| Failure::unexpected("ended"))?;
            keys.extend((event.0 == kind).then_some(event.1));
        }
        Ok(())
    }
}

#[tokio::test]
async fn every_work_is_done_and_counted() {
    for work in Work::ALL.into_iter().filter(|work| *work != Work::Publish) {
        let targets = [Arc::new(Memory::default()), Arc::new(Memory::default())];
        // One watcher sees one target of this kind.
        let targets = if work.is_watched() { &targets[..1] } else { &targets[..] };
        let report = run(work, targets, SETTINGS).await.unwrap();
        assert!(report.latencies.total() > 0, "{report}");
        assert_eq!((report.errors, report.first_error.clone()), (0, None), "{report}");
        assert_eq!((report.workers, report.connections), (4, targets.len()));
    }
}

#[tokio::test]
async fn a_claim_is_counted_once_with_its_release() {
    let target = Arc::new(Memory::default());
    let report = run(Work::Claim, &[Arc::clone(&target)], SETTINGS).await.unwrap();
    assert_eq!(target.calls("claim"), target.calls("release"));
    assert!(report.latencies.total() <= target.calls("claim"), "{report}");
    assert!(target.keys.lock().unwrap().is_empty(), "all of them were released");
}

#[tokio::test]
async fn failures_are_counted_and_are_no_operations() {
    let target = Arc::new(Memory {
        fails: true,
        ..Memory::default()
    });
    let report = run(Work::Echo, &[target], SETTINGS).await.unwrap();
    assert_eq!(report.latencies.total(), 0);
    assert!(report.errors > 0);
    assert_eq!(report.first_error.as_deref(), Some("refused: it fails"));
}

#[tokio::test]
async fn what_a_target_cannot_do_is_said_at_once() {
    let failed = run(Work::Publish, &[Arc::new(Memory::default())], SETTINGS).await;
    assert!(matches!(failed, Err(Failure::NotMeasured { .. })), "{failed:?}");
}

#[tokio::test]
async fn no_worker_and_no_connection_are_refused() {
    let none = Settings { workers: 0, ..SETTINGS };
    assert!(run(Work::Echo, &[Arc::new(Memory::default())], none).await.is_err());
    assert!(run::<Memory>(Work::Echo, &[], SETTINGS).await.is_err());
}
