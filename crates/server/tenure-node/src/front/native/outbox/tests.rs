//! What waits is bounded, and a client that does not read loses it.

use futures_util::{FutureExt, StreamExt};
use tenure_api::v1::GetReply;
use tenure_api::v1::server_frame::Body;

use std::time::Duration;

use super::*;
use crate::front::connection::{CONNECTION_ANSWER_BYTES_MAX, Connections};

fn frame(id: u64, bytes: usize) -> ServerFrame {
    let key = tenure_api::v1::KeyValue {
        value: vec![1; bytes].into(),
        ..Default::default()
    };
    let reply = GetReply {
        key: Some(key),
        ..Default::default()
    };
    ServerFrame {
        id,
        body: Some(Body::Get(reply)),
    }
}

fn connection() -> (Arc<Connections>, Arc<Connection>) {
    let all = Arc::new(Connections::default());
    (all.clone(), Arc::new(Connection::new(all)))
}

/// The other end of a stream, and the room of its body: what is read was written.
struct Reader {
    written: Written,
    room: Arc<Room>,
}

impl Reader {
    async fn next(&mut self) -> Option<Result<ServerFrame, Status>> {
        let next = self.written.next().await;
        self.room.give_back();
        next
    }
}

fn open_on(connection: &Arc<Connection>) -> (Outbox, Reader) {
    let room = Arc::new(Room::new(connection.clone()));
    let (outbox, written) = open(room.clone());
    (outbox, Reader { written, room })
}

fn share(connection: &Arc<Connection>) -> AnswerShare {
    connection.count_answer(1)
}

/// Sends until an answer would have to wait, and returns how many were taken.
fn fill(outbox: &Outbox, bytes: usize) -> usize {
    (0..)
        .take_while(|id| outbox.send(frame(*id, bytes)).now_or_never().is_some())
        .count()
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_client_is_bounded_by_number_and_by_bytes() {
    let (all, connection) = connection();
    let (small, _unread) = open_on(&connection);
    assert_eq!(fill(&small, 1), ANSWERS_MAX);
    let (large, mut written) = open_on(&connection);
    let taken = fill(&large, 1 << 20);
    assert_eq!(taken, 3, "4 MiB hold three of a little more than one");
    assert!(all.answer_bytes() <= CONNECTION_ANSWER_BYTES_MAX);
    // Another stream of the same connection may still have one waiting.
    let (other, _unread) = open_on(&connection);
    assert_eq!(fill(&other, 1 << 20), 1);
    // What was written makes room.
    for _ in 0..2 {
        assert!(written.next().now_or_never().is_some());
    }
    assert_eq!(fill(&large, 1 << 20), 1);
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_nothing_loses_its_connection_and_what_waited() {
    let (all, connection) = connection();
    let (outbox, mut written) = open_on(&connection);
    fill(&outbox, 1 << 20);
    assert_eq!(outbox.send(frame(9, 1 << 20)).await, Err(Gone));
    assert_eq!((all.answer_bytes(), all.stalled()), (0, 1));
    assert!(connection.closing().now_or_never().is_some());
    assert!(written.next().now_or_never().is_some_and(|end| end.is_none()));
    assert_eq!(outbox.send(frame(10, 1)).await, Err(Gone));
}

#[tokio::test(start_paused = true)]
async fn a_client_that_reads_slowly_keeps_its_connection() {
    let (all, connection) = connection();
    let (outbox, mut written) = open_on(&connection);
    fill(&outbox, 1 << 20);
    let send = async {
        for id in 0..10 {
            outbox.send(frame(id, 1 << 20)).await.expect("the client reads");
        }
    };
    let read = async {
        for _ in 0..10 {
            wait_in_paused_time(STALL_MAX - Duration::from_millis(10)).await;
            written.next().await.expect("an answer").expect("no error");
        }
    };
    tokio::join!(send, read);
    assert_eq!(all.stalled(), 0);
}

#[tokio::test(start_paused = true)]
async fn the_stream_ends_when_all_writers_are_gone_and_all_is_written() {
    let (all, connection) = connection();
    let (outbox, mut written) = open_on(&connection);
    let second = outbox.clone();
    second.send(frame(1, 1)).await.expect("there is room");
    drop((outbox, second));
    assert!(written.next().await.is_some_and(|frame| frame.is_ok()));
    assert!(written.next().await.is_none());
    assert_eq!(all.answer_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn nothing_of_a_subscription_is_put_behind_its_end_however_far_its_task_had_come() {
    let (_all, connection) = connection();
    let (outbox, mut written) = open_on(&connection);
    let telling = outbox.telling();
    let mut taken = fill(&outbox, 1);
    // Its task has an event in its hands and waits for room when the subscription is cancelled.
    let event = telling.send(frame(1_000, 1), share(&connection));
    let mut event = std::pin::pin!(event);
    assert!(event.as_mut().now_or_never().is_none());
    assert!(telling.close(), "its end is still to be told");
    assert!(written.next().now_or_never().is_some());
    taken -= 1;
    assert_eq!(event.await, Err(Gone));
    assert_eq!(telling.send(frame(1_000, 1), share(&connection)).await, Err(Gone));
    assert_eq!(telling.send_last(frame(1_000, 1)).await, Err(Gone));
    // The end itself goes past it, and so does another subscription, which may have the same id.
    outbox.send(frame(1_001, 1)).await.expect("there is room");
    for _ in 0..taken {
        assert!(written.next().now_or_never().is_some());
    }
    outbox
        .telling()
        .send(frame(1_002, 1), share(&connection))
        .await
        .expect("there is room");
    for id in [1_001, 1_002] {
        let next = written.next().await.expect("an answer").expect("no error");
        assert_eq!(next.id, id);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_subscription_is_told_once() {
    let (_all, connection) = connection();
    let (outbox, mut written) = open_on(&connection);
    let telling = outbox.telling();
    telling
        .send(frame(1, 1), share(&connection))
        .await
        .expect("there is room");
    telling.send_last(frame(2, 1)).await.expect("there is room");
    assert!(!telling.close(), "whoever cancels it now has nothing to tell");
    assert_eq!(telling.send(frame(3, 1), share(&connection)).await, Err(Gone));
    for id in [1, 2] {
        assert_eq!(written.next().await.expect("an answer").expect("no error").id, id);
    }
    assert!(written.next().now_or_never().is_none());
}

/// Lets the paused clock go on.
async fn wait_in_paused_time(time: Duration) {
    tokio::time::sleep(time).await;
}
