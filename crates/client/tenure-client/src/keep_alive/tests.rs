//! Registering and removing leaves nothing behind.

use std::sync::Arc;
use std::time::Duration;

use tenure_recipes::KeepAliveSchedule;

use super::{FAREWELLS_MAX, KeepAlive, Running};
use crate::channel::Dialer;
use crate::directory::{Directory, Home};
use crate::runtime::{ClientRuntime, KeepAliveOn};
use crate::session::{Kept, SessionKey};

const TTL: Duration = Duration::from_secs(3_600);

fn keep_alive(runtime: ClientRuntime) -> KeepAlive {
    let dialer = Dialer {
        runtime,
        directory: Arc::new(Directory::default()),
        scope: tenure_api::v1::Scope::default(),
        home: Arc::new(Home::default()),
        label: String::new(),
        connect_timeout: TTL,
        backoff_max: TTL,
    };
    KeepAlive::new(vec!["127.0.0.1:1".to_owned()], false, dialer)
}

fn kept(runtime: &ClientRuntime, id: u64) -> Arc<Kept> {
    let schedule = KeepAliveSchedule::new(TTL, runtime.clock.now(), TTL);
    Arc::new(Kept::new(
        SessionKey::new(id, [1; 16]),
        1,
        schedule,
        Arc::clone(&runtime.clock),
    ))
}

fn running(keep_alive: &KeepAlive) -> Arc<Running> {
    keep_alive.running().expect("a task can always be started")
}

#[tokio::test]
async fn a_hundred_thousand_sessions_that_come_and_go_leave_nothing_behind() {
    let runtime = ClientRuntime {
        keep_alive: KeepAliveOn::Task,
        ..ClientRuntime::system()
    };
    let keep_alive = keep_alive(runtime.clone());
    let mut last = None;
    for id in 1..=100_000 {
        let kept = kept(&runtime, id);
        let registration = keep_alive.add(Arc::clone(&kept)).expect("there is room");
        if id % 1_000 == 0 {
            tokio::task::yield_now().await;
        }
        kept.stop();
        registration.remove(None);
        registration.remove(None);
        last = Some(kept);
    }
    let last = last.expect("there was one");
    let running = running(&keep_alive);
    tokio::time::timeout(Duration::from_secs(10), async {
        while Arc::strong_count(&last) > 1 || !running.inbox.lock().removed.is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await
    .expect("the driver lets go of what was removed");
    let inbox = running.inbox.lock();
    assert_eq!((inbox.live, inbox.added.len(), inbox.farewells.len()), (0, 0, 0));
}

#[tokio::test]
async fn farewells_that_cannot_be_told_do_not_pile_up() {
    let runtime = ClientRuntime {
        keep_alive: KeepAliveOn::Task,
        ..ClientRuntime::system()
    };
    let keep_alive = keep_alive(runtime.clone());
    for id in 1..=5_000 {
        let registration = keep_alive.add(kept(&runtime, id)).expect("there is room");
        registration.remove(Some((tenure_api::v1::Scope::default(), SessionKey::new(id, [1; 16]))));
    }
    assert_eq!(running(&keep_alive).inbox.lock().farewells.len(), FAREWELLS_MAX);
}

#[tokio::test]
async fn a_driver_that_has_died_is_replaced_for_the_next_session() {
    let runtime = ClientRuntime {
        keep_alive: KeepAliveOn::Task,
        ..ClientRuntime::system()
    };
    let keep_alive = keep_alive(runtime.clone());
    let first = running(&keep_alive);
    first.inbox.lock().over = true;
    let second = running(&keep_alive);
    assert!(!Arc::ptr_eq(&first, &second));
    assert!(Arc::ptr_eq(&second, &running(&keep_alive)));
}
