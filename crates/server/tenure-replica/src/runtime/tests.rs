//! The real world does what it says.

use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Runtime;

#[tokio::test]
async fn the_boot_clock_does_not_go_back_and_random_bits_differ() {
    let runtime = Runtime::system();
    let first = runtime.clock.now();
    let second = runtime.clock.now();
    assert!(second >= first && first > Duration::ZERO);
    assert_ne!(runtime.random.next_u128(), runtime.random.next_u128());
    assert_ne!(runtime.random.next_u64(), runtime.random.next_u64());
}

#[tokio::test]
async fn a_task_is_started_and_ends_when_it_is_aborted() {
    let runtime = Runtime::system();
    let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
    let handle = runtime.tasks.spawn(
        "waiting",
        Box::pin(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        }),
    );
    handle.abort();
    assert!(
        receiver.await.is_err(),
        "the task was dropped, and what it held with it"
    );
}

#[tokio::test]
async fn a_thread_runs_its_work() {
    let runtime = Runtime::system();
    assert!(!runtime.tasks.inline());
    let (sender, receiver) = tokio::sync::oneshot::channel();
    let thread = runtime
        .tasks
        .spawn_thread("work", Box::new(move || sender.send(7).unwrap()))
        .unwrap();
    assert_eq!(receiver.await, Ok(7));
    thread.expect("there are threads").join().unwrap();
}

#[tokio::test]
async fn bytes_travel_between_a_connection_and_its_listener() {
    let runtime = Runtime::system();
    let listener = runtime.network.listen("127.0.0.1:0".parse().unwrap()).await.unwrap();
    let mut near = runtime.network.connect(listener.local_addr().unwrap()).await.unwrap();
    let (mut far, _) = listener.accept().await.unwrap();
    near.write_all(b"abc").await.unwrap();
    let mut read = [0; 3];
    far.read_exact(&mut read).await.unwrap();
    assert_eq!(&read, b"abc");
}
