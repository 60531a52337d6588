//! Reads that may be long are done on threads of their own: while those are held up, everything short goes on.

use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use futures_util::future::BoxFuture;
use tenure_api::v1;
use tenure_api::v1::follow_event::Event;
use tenure_node::config::CONNECTIONS_MAX;
use tenure_replica::Runtime;
use tenure_replica::runtime::{TaskHandle, Tasks};
use tonic::Streaming;

use crate::overload_wire::{now, spawn, start};
use crate::streams_door::{Door, STREAM, earliest, latest, records};
use crate::support::CACHE;

const PATIENCE: Duration = Duration::from_secs(30);
/// Larger than what a follower reads in place.
const BACKLOG: u64 = 12;

/// Tasks of a world in which the threads for long reads wait until they are let go.
struct HeldReads {
    tasks: Arc<dyn Tasks>,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    state: Mutex<GateState>,
    changed: Condvar,
}

#[derive(Default)]
struct GateState {
    open: bool,
    /// Threads for long reads that were started.
    started: usize,
}

impl Tasks for HeldReads {
    fn spawn(&self, name: &'static str, task: BoxFuture<'static, ()>) -> TaskHandle {
        self.tasks.spawn(name, task)
    }

    fn spawn_thread(&self, name: &str, work: Box<dyn FnOnce() + Send>) -> io::Result<Option<JoinHandle<()>>> {
        if !name.starts_with("read-aside") {
            return self.tasks.spawn_thread(name, work);
        }
        self.gate.state.lock().expect("no panic").started += 1;
        let gate = self.gate.clone();
        let held = move || {
            let state = gate.state.lock().expect("no panic");
            drop(gate.changed.wait_while(state, |state| !state.open).expect("no panic"));
            work();
        };
        self.tasks.spawn_thread(name, Box::new(held))
    }

    fn inline(&self) -> bool {
        false
    }
}

impl Gate {
    fn started(&self) -> usize {
        self.state.lock().expect("no panic").started
    }

    fn open(&self) {
        self.state.lock().expect("no panic").open = true;
        self.changed.notify_all();
    }

    /// Waits until so many threads for long reads were started.
    async fn wait_for_threads(&self, count: usize) {
        let began = now();
        while self.started() < count {
            assert!(now() - began < PATIENCE, "{} threads", self.started());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }
}

fn world() -> (Runtime, Arc<Gate>) {
    let mut runtime = Runtime::system();
    let gate = Arc::new(Gate::default());
    runtime.tasks = Arc::new(HeldReads {
        tasks: runtime.tasks.clone(),
        gate: gate.clone(),
    });
    (runtime, gate)
}

async fn follow(door: &mut Door, from: Option<v1::ReadFrom>) -> Streaming<v1::FollowEvent> {
    let request = v1::FollowRequest {
        stream: STREAM.to_owned(),
        from,
        ..Default::default()
    };
    let mut events = door.streams.follow(request).await.expect("it begins").into_inner();
    assert!(matches!(next(&mut events).await, Event::Started(_)));
    events
}

async fn next(events: &mut Streaming<v1::FollowEvent>) -> Event {
    let message = tokio::time::timeout(PATIENCE, events.message()).await;
    let event = message.expect("something is told in time").expect("no error");
    event.and_then(|event| event.event).expect("an event")
}

/// Reads until it has so many records, and returns how many messages they were.
async fn read(events: &mut Streaming<v1::FollowEvent>, count: usize) -> usize {
    let (mut found, mut messages) = (0, 0);
    while found < count {
        let Event::Records(records) = next(events).await else {
            panic!("no records")
        };
        found += records.records.len();
        messages += 1;
    }
    assert_eq!(found, count);
    messages
}

#[tokio::test(flavor = "multi_thread")]
async fn long_reads_that_do_not_come_back_hold_up_neither_point_reads_nor_live_followers() {
    let (runtime, gate) = world();
    let node = start(CONNECTIONS_MAX, runtime).await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    let mut live = follow(&mut door, latest()).await;
    for _ in 0..BACKLOG {
        door.append(records(["one"])).await;
        read(&mut live, 1).await;
    }
    door.put("key", Bytes::from_static(b"value")).await;
    assert!(door.value("key").await.is_some());
    assert_eq!(gate.started(), 0, "nothing of this is long");

    // As many long reads as there are lanes, and one that waits behind them; a connection has a part of them at most.
    let mut behind = follow(&mut door, earliest()).await;
    gate.wait_for_threads(1).await;
    let list = v1::ListRequest {
        cache: CACHE.to_owned(),
        ..Default::default()
    };
    let mut listings = Vec::new();
    for _ in 0..4 {
        let (mut other, list) = (Door::of(&node).await, list.clone());
        listings.push(spawn(async move {
            let listed = other.keys.list(list).await.expect("it is answered").into_inner();
            assert_eq!(listed.keys.len(), 1);
        }));
    }
    // More than one connection may have under way: they wait, and its short reads do not.
    let more: Vec<_> = (0..4)
        .map(|_| {
            let (mut keys, list) = (door.keys.clone(), list.clone());
            spawn(async move {
                let _ = keys.list(list).await;
            })
        })
        .collect();
    gate.wait_for_threads(4).await;

    for _ in 0..BACKLOG {
        door.append(records(["one"])).await;
        read(&mut live, 1).await;
    }
    assert!(door.value("key").await.is_some());
    assert!(behind.message().now_or_never().is_none(), "its page is long");
    assert!(listings.iter().all(|listing| !listing.is_finished()));

    gate.open();
    assert_eq!(
        read(&mut behind, 2 * BACKLOG as usize).await,
        1,
        "a page holds them all"
    );
    for listing in listings {
        listing.await.expect("it was answered");
    }
    for listing in more {
        listing.await.expect("it is over");
    }
    assert_eq!(gate.started(), 4, "there are no more lanes");
    node.node.stop().await;
}
