//! A stream that knows as many message ids as it may, each of them accepted by an append of its own.

use bytes::Bytes;
use tenure_core::command::{Append, Command, FenceMode, Request, StreamSettings};
use tenure_core::limits::{ENTRY_COMMANDS_MAX, STREAM_MESSAGE_IDS_MAX};
use tenure_core::refusal::Failure;
use tenure_core::response::{Appended, Done, Response};
use tenure_core::time::Span;

use crate::lab::{Lab, anonymous, cache};

const WINDOW: Span = Span::from_secs(60);

/// Seals with a message id: no record is needed for the stream to know it.
fn seal(id: u64) -> Request {
    anonymous(Command::Append {
        stream: cache("log"),
        append: Append {
            token: Some(1),
            message_id: Some(Bytes::copy_from_slice(&id.to_be_bytes())),
            ..Append::default()
        },
    })
}

fn sealed(duplicate: bool) -> Response {
    Response::Done(Done::Appended(Appended {
        first: 0,
        count: 0,
        duplicate,
    }))
}

#[test]
fn a_stream_takes_a_million_message_ids_and_another_when_their_window_ends() {
    let mut lab = Lab::home();
    lab.checks_memory = false;
    let settings = StreamSettings {
        retention: None,
        retention_bytes: None,
        fence: FenceMode::Optional,
        dedup_window: WINDOW,
        replication: 1,
    };
    let name = cache("log");
    lab.ask(0, anonymous(Command::CreateStream { name, settings }));
    // The first one alone, so that it alone ends first.
    assert_eq!(lab.ask(0, seal(0)), sealed(false));
    let mut next = 1;
    while next < STREAM_MESSAGE_IDS_MAX {
        let end = STREAM_MESSAGE_IDS_MAX.min(next + ENTRY_COMMANDS_MAX as u64);
        let applied = lab.run(1_000, (next..end).map(seal).collect());
        assert!(applied.answers.iter().all(|answer| answer.response == sealed(false)));
        next = end;
    }

    let full = Response::Failed(Failure::Overloaded {
        what: "message ids of the stream".to_owned(),
        retry_after: Span::from_secs(1),
    });
    assert_eq!(lab.ask(1_000, seal(next)), full);
    assert_eq!(
        lab.ask(1_000, seal(next - 1)),
        sealed(true),
        "a known one needs no room"
    );
    let end_of_first = WINDOW.as_millis();
    assert_eq!(lab.ask(end_of_first, seal(next)), full, "its window ends behind that");
    assert_eq!(lab.ask(end_of_first + 1, seal(next)), sealed(false));
    assert_eq!(lab.ask(end_of_first + 1, seal(next + 1)), full);
    lab.check_memory();
}
