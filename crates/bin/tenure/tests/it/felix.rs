//! The client library against the real server: a program in the shape of the client of Felix, and the calls beneath it.

use std::time::Duration;

use rustix::process::Signal;
use tenure_client::{
    Client, ErrorCode, Guard, Operation, OperationResult, Outcome, Refusal, RequestMode, TxnGuard, Verdict,
};

use crate::binary::{LIMIT, Server, closed_address, folder};

#[path = "../../../../client/tenure-client/tests/it/felix_program.rs"]
mod felix_program;

/// Runs this against a server of its own.
fn with_server(test: impl AsyncFnOnce(&Server)) {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    block_on(test(&server));
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("a runtime can be made")
        .block_on(async { tokio::time::timeout(LIMIT, future).await.expect("it comes to its end") })
}

async fn client(server: &Server, mode: RequestMode) -> Client {
    let builder = Client::builder()
        .endpoints([server.address.as_str()])
        .request_mode(mode);
    builder.connect().await.expect("the server is ready")
}

#[test]
fn a_program_that_was_written_for_felix_runs_with_one_line_changed() {
    with_server(async |server| {
        let seeds = [server.address.parse().expect("it is an address")];
        let client = felix_program::connect(&seeds).await.expect("the server is ready");
        felix_program::everything(client).await.expect("everything works");
    });
}

#[test]
fn counters_count_and_prefixes_are_deleted_in_every_mode() {
    with_server(async |server| {
        for mode in [RequestMode::Numbered, RequestMode::OneShot, RequestMode::Anonymous] {
            let client = client(server, mode).await;
            client.create_cache("c").await.unwrap().done().unwrap();
            let cache = client.cache("c");
            let first = cache.add("hits", 5).ttl(Duration::from_secs(60)).await.unwrap();
            assert_eq!((first.sum, first.version), (5, first.created));
            assert!(first.remaining.is_some());
            let second = cache.add("hits", -7).await.unwrap();
            assert_eq!((second.sum, second.created), (-2, first.created));
            assert_eq!(cache.counter("hits").await.unwrap(), Some(-2));
            let _ = cache.put("text", "seven").await.unwrap();
            let error = cache.add("text", 1).await.unwrap_err();
            assert_eq!(
                (error.code(), error.outcome()),
                (ErrorCode::WrongType, Outcome::NotApplied)
            );
            assert_eq!(cache.counter("text").await.unwrap_err().code(), ErrorCode::WrongType);
            assert_eq!(cache.delete_prefix("h").await.unwrap(), 1);
            assert_eq!(cache.delete_prefix("").await.unwrap(), 1);
            assert_eq!(cache.counter("hits").await.unwrap(), None);
        }
    });
}

#[test]
fn a_stream_is_written_under_conditions_read_and_trimmed() {
    with_server(async |server| {
        let client = client(server, RequestMode::Numbered).await;
        let stream = client.stream("s");
        let created = stream.create().fence_mandatory().await.unwrap().done().unwrap();
        assert!(!created.existed);
        let other = stream.create().await.unwrap();
        assert!(
            matches!(other.refusal(), Some(Refusal::StreamExistsOtherwise { .. })),
            "{other:?}"
        );
        let error = stream.append(["a"]).await.unwrap_err();
        assert_eq!(
            (error.code(), error.outcome()),
            (ErrorCode::Invalid, Outcome::NotApplied)
        );
        let appended = stream
            .append(["a", "b"])
            .fence_token(7)
            .if_offset(0)
            .await
            .unwrap()
            .done()
            .unwrap();
        assert_eq!((appended.first, appended.next()), (0, 2));
        let verdict = stream.append(["c"]).fence_token(7).if_offset(0).await.unwrap();
        assert_eq!(verdict, Verdict::Refused(Refusal::WrongTail { tail: 2 }));
        let named = || stream.append(["c"]).fence_token(7).message_id("m").into_future();
        let (first, second) = (
            named().await.unwrap().done().unwrap(),
            named().await.unwrap().done().unwrap(),
        );
        assert_eq!((first.first, first.duplicate), (2, false));
        assert_eq!((second.first, second.count, second.duplicate), (2, 1, true));
        let sealed = stream.seal(9).await.unwrap().done().unwrap();
        assert_eq!((sealed.first, sealed.count), (3, 0));
        let verdict = stream.append(["late"]).fence_token(8).await.unwrap();
        assert_eq!(verdict, Verdict::Refused(Refusal::StaleToken { current: 9 }));
        let page = stream.read().limit(2).await.unwrap();
        assert_eq!((page.records.len(), page.next, page.tail), (2, 2, 3));
        assert_eq!(page.records[1].data, "b");
        assert_eq!(page.records[1].fence_token, Some(7));
        assert_eq!(stream.trim(1).await.unwrap(), 1);
        let error = stream.read().from_offset(0).await.unwrap_err();
        assert_eq!(error.server().and_then(|error| error.resume_from()), Some(1));
        let state = stream.info().await.unwrap();
        assert_eq!((state.first, state.tail, state.fence_token), (1, 3, Some(9)));
        assert_eq!(client.streams().await.unwrap().len(), 1);
    });
}

#[test]
fn a_following_goes_on_over_a_restart_and_ends_with_its_stream() {
    let (_temporary, data) = folder();
    let server = Server::dev(&data);
    let address = server.address.clone();
    block_on(async {
        let client = client(&server, RequestMode::Numbered).await;
        let stream = client.stream("s");
        stream.create().await.unwrap().done().unwrap();
        stream.append(["a"]).await.unwrap().done().unwrap();
        let mut follow = stream.follow().await.unwrap();
        assert_eq!(follow.next().await.unwrap().unwrap().data, "a");
        server.stop(Signal::TERM);
        let mut command = crate::binary::command();
        command.args(["dev", "--listen", &address, "--data-dir"]).arg(&data);
        let _server = Server::ready(&mut command);
        let appended = stream.append(["b"]).await.unwrap().done().unwrap();
        assert_eq!(appended.first, 1);
        let record = follow.next().await.unwrap().unwrap();
        assert_eq!((record.offset, &record.data[..]), (1, &b"b"[..]));
        stream.delete().await.unwrap();
        let end = follow.next().await.unwrap().unwrap_err();
        assert_eq!(end.code(), ErrorCode::ObjectDeleted);
    });
}

#[test]
fn a_transaction_changes_several_objects_or_none() {
    with_server(async |server| {
        let client = client(server, RequestMode::Numbered).await;
        client.create_cache("c").await.unwrap().done().unwrap();
        client.stream("s").create().await.unwrap().done().unwrap();
        let session = client.open_session(Duration::from_secs(10)).await.unwrap();
        let txn = || {
            client
                .txn()
                .when(TxnGuard::key("c", "order", Guard::Absent))
                .when(TxnGuard::counter("c", "stock", -1..))
                .when(TxnGuard::stream_tail("s", 0))
                .when(TxnGuard::session_alive(session.key().id()))
                .then(Operation::put("c", "order", "one").owner(&session))
                .then(Operation::add("c", "stock", -1))
                .then(Operation::append("s", ["ordered"]))
                .then(Operation::get("c", "order"))
                .otherwise(Operation::get("c", "order"))
        };
        let done = txn().await.unwrap().done().unwrap();
        assert!(done.applied);
        let revision = done.revision.unwrap();
        match done.results.as_slice() {
            [
                OperationResult::Put { version, .. },
                OperationResult::Added { sum: -1, .. },
                OperationResult::Appended(appended),
                OperationResult::Got(Some(entry)),
            ] => {
                assert_eq!((*version, entry.version, appended.first), (revision, revision, 0));
                assert_eq!(entry.owner_session, Some(session.key().id()));
            }
            other => panic!("{other:?}"),
        }
        let refused = txn().await.unwrap().done().unwrap();
        assert_eq!(
            (refused.applied, refused.failed_guard, refused.revision),
            (false, Some(0), None)
        );
        let stale = client
            .txn()
            .then(Operation::put("c", "other", "x"))
            .then(Operation::append("s", ["y"]).if_offset(0));
        let verdict = stale.await.unwrap();
        assert_eq!(verdict.refusal(), Some(&Refusal::WrongTail { tail: 1 }));
        assert!(client.cache("c").get("other").await.unwrap().is_none());
        session.close().await.unwrap();
    });
}

#[test]
fn where_nobody_listens_a_call_ends_in_less_than_a_second() {
    block_on(async {
        let begun = std::time::Instant::now();
        let error = Client::connect([closed_address()]).await.unwrap_err();
        assert_eq!(
            (error.code(), error.outcome()),
            (ErrorCode::Unavailable, Outcome::NotApplied)
        );
        assert_eq!(error.exit_code(), 3);
        assert!(begun.elapsed() < Duration::from_secs(1));
    });
}
