//! What is taken for answers is bounded, is given back, and stalls nobody who reads.

use std::time::Duration;

use futures_util::FutureExt;

use super::*;
use crate::front::connection::{ANSWER_BYTES_MAX, Connections, STALL_MAX};

const MIB: usize = 1 << 20;

fn connection(all: &Arc<Connections>) -> Arc<Connection> {
    Arc::new(Connection::new(all.clone()))
}

/// A body of one piece of so many bytes, and its room.
async fn piece(connection: &Arc<Connection>, bytes: usize) -> AnswerBytes {
    let room = Arc::new(Room::new(connection.clone()));
    room.put(room.hand_on_all(bytes));
    let mut body = AnswerBody::new(axum::body::Body::from(vec![1; bytes]), room);
    let polled = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await;
    let frame = polled.expect("a piece").expect("no error");
    frame.into_data().expect("it is data")
}

#[tokio::test(start_paused = true)]
async fn a_large_answer_waits_before_it_is_read_until_those_before_it_were_written() {
    let all = Arc::new(Connections::default());
    let connection = connection(&all);
    let rooms: Vec<_> = (0..100).map(|_| Room::new(connection.clone())).collect();
    let mut taking: Vec<_> = rooms.iter().map(|room| Box::pin(room.take(MIB))).collect();
    let ready = taking.iter_mut().filter_map(|take| take.now_or_never()).count();
    assert_eq!((ready, all.answer_bytes()), (4, 4 * MIB));
    // They were smaller than they might have been: the next one is read at once.
    let halves = [rooms[0].hand_on_all(MIB / 2), rooms[1].hand_on_all(MIB / 2)];
    assert_eq!(taking[4].as_mut().now_or_never(), Some(Ok(())));
    assert!(taking[5].as_mut().now_or_never().is_none());
    // One that nobody waits for any more gives its turn to the next.
    drop(taking.remove(5));
    drop(rooms[2].hand_on_all(MIB));
    assert_eq!(taking[5].as_mut().now_or_never(), Some(Ok(())));
    assert_eq!(all.answer_bytes(), 4 * MIB);
    drop((taking, halves));
    drop(rooms);
    assert_eq!(all.answer_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_piece_counts_until_it_is_written_and_not_only_until_it_is_taken_from_its_body() {
    let all = Arc::new(Connections::default());
    let connection = connection(&all);
    let mut held = piece(&connection, MIB).await;
    assert_eq!(all.answer_bytes(), MIB);
    held.advance(16 << 10);
    assert_eq!(all.answer_bytes(), MIB - (16 << 10));
    drop(held);
    assert_eq!(all.answer_bytes(), 0);
    let room = Room::new(connection);
    assert_eq!(room.take(4 * MIB).now_or_never(), Some(Ok(())), "all room is back");
}

#[tokio::test(start_paused = true)]
async fn when_the_node_has_as_much_waiting_as_it_may_nothing_large_is_read() {
    let all = Arc::new(Connections::default());
    let mut held = Vec::new();
    for _ in 0..ANSWER_BYTES_MAX / (4 * MIB) {
        let room = Room::new(connection(&all));
        assert_eq!(room.take(4 * MIB).await, Ok(()));
        held.push(room);
    }
    let other = Room::new(connection(&all));
    assert_eq!(other.take(MIB).await, Err(NodeFull));
    assert_eq!(all.answer_bytes(), ANSWER_BYTES_MAX);
    held.pop();
    assert_eq!(other.take(MIB).await, Ok(()));
}

#[tokio::test(start_paused = true)]
async fn a_connection_whose_answers_wait_in_the_way_of_others_is_closed_and_one_that_reads_is_not() {
    let all = Arc::new(Connections::default());
    let connection = connection(&all);
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(piece(&connection, MIB).await);
    }
    let mut watching = std::pin::pin!(connection.watch_for_stall());
    let watched = tokio::time::timeout(10 * STALL_MAX, &mut watching);
    assert!(watched.await.is_err(), "it is in nobody's way");
    let next = Room::new(connection.clone());
    let pause = STALL_MAX - Duration::from_secs(4);
    let read = std::cell::Cell::new(0);
    let reads = async {
        for _ in 0..20 {
            wait_in_paused_time(pause).await;
            held[0].advance(1);
            read.set(read.get() + 1);
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = watching => {}
        _ = next.take(MIB) => panic!("there is no room"),
        () = reads => {}
    }
    assert_eq!(read.get(), 20, "it read so often before it stopped");
    assert_eq!(all.stalled(), 1);
    assert!(connection.closing().now_or_never().is_some());
}

/// Lets the paused clock go on.
async fn wait_in_paused_time(time: Duration) {
    tokio::time::sleep(time).await;
}

#[tokio::test(start_paused = true)]
async fn whoever_waits_for_a_turn_holds_no_room_that_those_who_have_one_wait_for() {
    let connection = connection(&Arc::default());
    let rooms: Vec<_> = (0..6).map(|_| Room::new(connection.clone())).collect();
    for room in &rooms[2..] {
        assert_eq!(room.take(MIB).await, Ok(()));
    }
    let turns = (rooms[0].long_read().await, rooms[1].long_read().await);
    let mut taking = Box::pin(rooms[0].take(MIB));
    assert!(taking.as_mut().now_or_never().is_none());
    let mut waiting = Box::pin(rooms[2].long_read());
    assert!(waiting.as_mut().now_or_never().is_none());
    assert_eq!(taking.now_or_never(), Some(Ok(())));
    drop(turns);
}
