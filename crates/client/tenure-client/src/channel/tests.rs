//! What is told to a node about its watches, and what is not.

use std::sync::Arc;
use std::time::Duration;

use tenure_api::v1::{
    Cancel, ClientFrame, ServerFrame, StatusReply, WatchEnd, WatchEvent, WireError, client_frame, server_frame,
};
use tokio::sync::mpsc;

use super::{Outgoing, Waiter, Waiting};
use crate::feed::FeedBuffer;
use crate::runtime::system::TokioTasks;

fn waiting_for_watch() -> Waiting {
    let waiting = Waiting::new(Duration::ZERO);
    assert!(waiting.add(7, Waiter::Feed(Arc::new(FeedBuffer::new()))));
    waiting
}

fn frame(body: server_frame::Body) -> ServerFrame {
    ServerFrame {
        id: 7,
        body: Some(body),
    }
}

#[tokio::test]
async fn a_cancel_that_finds_no_room_is_sent_once_there_is_some() {
    let (frames, mut taken) = mpsc::channel(1);
    let outgoing = Outgoing {
        frames,
        tasks: Arc::new(TokioTasks::new(tokio::runtime::Handle::current())),
    };
    let body = Some(client_frame::Body::Cancel(Cancel {}));
    for id in [7, 8, 9] {
        outgoing.cancel(id);
    }
    let mut ids = Vec::new();
    while ids.len() < 3 {
        let next = tokio::time::timeout(Duration::from_secs(10), taken.recv()).await;
        let frame: ClientFrame = next.expect("it comes").expect("the way is open");
        assert_eq!(frame.body, body);
        ids.push(frame.id);
    }
    assert_eq!(ids, [7, 8, 9]);
}

#[test]
fn a_watch_that_overflows_here_is_cancelled_once() {
    let waiting = waiting_for_watch();
    let event = || frame(server_frame::Body::WatchEvent(WatchEvent::default()));
    let mut events = 0;
    while !waiting.deliver(event()) {
        events += 1;
        assert!(events < 100_000, "the buffer is bounded");
    }
    assert!(!waiting.deliver(event()), "it has been said");
    assert!(!waiting.remove(7));
}

#[test]
fn a_watch_is_cancelled_if_it_is_answered_with_something_else_and_not_if_the_node_has_ended_it() {
    let other = server_frame::Body::Status(StatusReply::default());
    assert!(waiting_for_watch().deliver(frame(other)));
    let ended = server_frame::Body::WatchEnded(WatchEnd::default());
    assert!(!waiting_for_watch().deliver(frame(ended)));
    let refused = server_frame::Body::Error(WireError::internal(""));
    assert!(!waiting_for_watch().deliver(frame(refused)));
}
