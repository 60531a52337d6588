//! A long read holds up only what has no other lane, and what nobody waits for is not done.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;

use futures_util::FutureExt;
use futures_util::future::{BoxFuture, join_all};
use tenure_replica::Runtime;

use super::*;

type Reading<'a> = BoxFuture<'a, Result<(), ServiceError>>;

/// A read that takes until its sender is dropped.
fn long<'a>(aside: &'a Aside, runtime: &'a Runtime) -> (mpsc::Sender<()>, Reading<'a>) {
    let (sender, receiver) = mpsc::channel::<()>();
    let read = move || {
        // The sender is dropped without having sent.
        let _ = receiver.recv();
    };
    let mut reading = aside.run(&*runtime.tasks, read).boxed();
    assert!((&mut reading).now_or_never().is_none(), "it is under way");
    (sender, reading)
}

#[tokio::test]
async fn a_long_read_leaves_all_other_lanes_to_the_others() {
    let (aside, runtime) = (Aside::default(), Runtime::system());
    let mut under_way = Vec::new();
    for _ in 1..LANES {
        under_way.push(long(&aside, &runtime));
        for number in 0..10 {
            let read = aside.run(&*runtime.tasks, move || number).await;
            assert_eq!(read.expect("there is a free lane"), number);
        }
    }
    let (senders, readings): (Vec<_>, Vec<_>) = under_way.into_iter().unzip();
    drop(senders);
    for read in join_all(readings).await {
        read.expect("it came to its end");
    }
    assert_eq!(*locked(&aside.reads), [0; LANES]);
}

#[tokio::test]
async fn a_read_that_was_given_up_before_its_turn_is_not_done() {
    let (aside, runtime) = (Aside::default(), Runtime::system());
    let (senders, readings): (Vec<_>, Vec<_>) = (0..LANES).map(|_| long(&aside, &runtime)).unzip();
    let done = Arc::new(AtomicBool::new(false));
    let note = done.clone();
    let given_up = aside.run(&*runtime.tasks, move || note.store(true, Ordering::Relaxed));
    assert!(given_up.now_or_never().is_none(), "every lane has a read");
    drop(senders);
    for read in join_all(readings).await {
        read.expect("it came to its end");
    }
    // One behind it on every lane.
    let behind = join_all((0..LANES).map(|_| aside.run(&*runtime.tasks, || ()))).await;
    assert!(behind.into_iter().all(|read| read.is_ok()));
    assert_eq!(*locked(&aside.reads), [0; LANES]);
    assert!(!done.load(Ordering::Relaxed));
}

#[tokio::test]
async fn a_read_that_panics_is_lost_alone() {
    let (aside, runtime) = (Aside::default(), Runtime::system());
    let lost = aside.run(&*runtime.tasks, || panic!("on purpose")).await;
    assert!(matches!(lost, Err::<(), _>(ServiceError::Internal(_))));
    assert_eq!(aside.run(&*runtime.tasks, || 2).await.expect("the lane goes on"), 2);
    assert_eq!(*locked(&aside.reads), [0; LANES]);
}
