//! Streams: creating, appending under conditions, reading in pages.

use tenure_api::v1::{self, FenceMode};
use tenure_client::{Client, ErrorCode, Outcome, Refusal, RequestMode, Stream, Verdict};

use crate::counters::meets;
use crate::fake::{Ask, Fate};
use crate::world::{World, ms};

/// A stream with the default settings and so many records.
async fn stream(client: &Client, records: usize) -> Stream {
    let stream = client.stream("s");
    stream.create().await.unwrap().done().unwrap();
    for number in 0..records {
        let appended = stream.append([format!("r{number}")]).await.unwrap().done().unwrap();
        assert_eq!((appended.first, appended.next()), (number as u64, number as u64 + 1));
    }
    stream
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_created_with_the_settings_that_were_chosen() {
    let world = World::new(1);
    let stream = world.client().stream("s");
    let create = || {
        stream
            .create()
            .retention(ms(60_000))
            .retention_bytes(1 << 20)
            .fence_mandatory()
    };
    let created = create()
        .dedup_window(ms(0))
        .replication(1)
        .await
        .unwrap()
        .done()
        .unwrap();
    assert!(!created.existed);
    let asked = world.cluster.received(|received| match &received.body {
        Ask::CreateStream(create) => create.settings,
        _ => None,
    });
    let settings = v1::StreamSettings {
        retention_ms: Some(60_000),
        retention_bytes: Some(1 << 20),
        fence: FenceMode::Mandatory.into(),
        dedup_window_ms: Some(0),
        shards: None,
        replication: Some(1),
        consistency: 0,
    };
    assert_eq!(asked, [settings]);
    assert_eq!(created.info.settings, Some(settings));
    let again = create()
        .dedup_window(ms(0))
        .replication(1)
        .await
        .unwrap()
        .done()
        .unwrap();
    assert!(again.existed);
    let other = create().await.unwrap();
    let Some(refusal @ Refusal::StreamExistsOtherwise { stream }) = other.refusal() else {
        panic!("{other:?}");
    };
    assert_eq!(
        (refusal.code(), stream.settings),
        (ErrorCode::ExistsOtherwise, Some(settings))
    );
    assert_eq!(
        refusal.to_string(),
        "s exists with fence mandatory, retention 60000 ms, 1048576 bytes, deduplication window 0 ms, replication 1, \
         consistency quorum"
    );
}

#[tokio::test(start_paused = true)]
async fn an_append_says_what_stood_in_its_way() {
    let world = World::new(1);
    let stream = stream(&world.client(), 2).await;
    let verdict = stream.append(["x"]).if_offset(1).await.unwrap();
    assert_eq!(verdict, Verdict::Refused(Refusal::WrongTail { tail: 2 }));
    let appended = stream
        .append(["a", "b", "c"])
        .if_offset(2)
        .fence_token(7)
        .await
        .unwrap()
        .done()
        .unwrap();
    assert_eq!((appended.first, appended.count, appended.duplicate), (2, 3, false));
    let sealed = stream.seal(9).await.unwrap().done().unwrap();
    assert_eq!((sealed.first, sealed.count), (5, 0));
    let verdict = stream.append(["late"]).fence_token(7).await.unwrap();
    assert_eq!(verdict, Verdict::Refused(Refusal::StaleToken { current: 9 }));
    let error = verdict.done().unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::StaleToken, Outcome::Refused)
    );
    assert_eq!(error.exit_code(), ErrorCode::StaleToken.exit());
    let state = stream.info().await.unwrap();
    assert_eq!((state.first, state.tail, state.fence_token), (0, 5, Some(9)));
}

#[tokio::test(start_paused = true)]
async fn a_known_message_id_is_answered_with_the_first_offsets() {
    let world = World::new(1);
    let stream = stream(&world.client(), 1).await;
    let first = stream
        .append(["a", "b"])
        .message_id("m-1")
        .await
        .unwrap()
        .done()
        .unwrap();
    let second = stream
        .append(["other"])
        .message_id("m-1")
        .if_offset(0)
        .await
        .unwrap()
        .done()
        .unwrap();
    assert_eq!((first.first, first.count, first.duplicate), (1, 2, false));
    assert_eq!((second.first, second.count, second.duplicate), (1, 2, true));
}

#[tokio::test(start_paused = true)]
async fn an_append_whose_answer_is_lost_is_found_again_and_an_anonymous_one_is_unknown() {
    for mode in [RequestMode::Numbered, RequestMode::OneShot, RequestMode::Anonymous] {
        let world = World::new(1);
        let client = world.builder(&["node-1:1"]).request_mode(mode).build().unwrap();
        let stream = stream(&client, 0).await;
        meets(
            &world.cluster,
            |ask| matches!(ask, Ask::Append(_)),
            [Fate::AnswerBroken],
        );
        let result = stream.append(["x"]).if_offset(0).await;
        if mode == RequestMode::Anonymous {
            assert_eq!(result.unwrap_err().outcome(), Outcome::Unknown);
        } else {
            let appended = result.unwrap().done().unwrap();
            assert_eq!((appended.first, appended.repeated), (0, true), "{mode:?}");
        }
        assert_eq!(stream.info().await.unwrap().tail, 1, "{mode:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_append_is_remembered_as_refused() {
    let world = World::new(1);
    let stream = stream(&world.client(), 1).await;
    meets(&world.cluster, |ask| matches!(ask, Ask::Append(_)), [Fate::AnswerLost]);
    let verdict = stream.append(["x"]).if_offset(0).await.unwrap();
    assert_eq!(verdict, Verdict::Refused(Refusal::WrongTail { tail: 1 }));
}

#[tokio::test(start_paused = true)]
async fn records_are_read_in_pages_from_where_one_wants() {
    let world = World::new(1);
    let stream = stream(&world.client(), 6).await;
    let first = stream.read().await.unwrap();
    let offsets: Vec<u64> = first.records.iter().map(|record| record.offset).collect();
    assert_eq!((offsets, first.next, first.tail), (vec![0, 1, 2, 3], 4, 6));
    let second = stream
        .read()
        .from_offset(first.next)
        .incarnation(first.incarnation)
        .await
        .unwrap();
    assert_eq!((second.records.len(), second.next), (2, 6));
    assert_eq!(second.records[1].data, "r5");
    let none = stream.read().from_latest().await.unwrap();
    assert_eq!((none.records.len(), none.next), (0, 6));
    assert_eq!(stream.read().limit(1).await.unwrap().records.len(), 1);
    assert_eq!(stream.trim(2).await.unwrap(), 2);
    let error = stream.read().from_offset(1).await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::Compacted, Outcome::NotApplied)
    );
    assert_eq!(error.server().unwrap().resume_from(), Some(2));
    assert_eq!(stream.read().from_earliest().await.unwrap().records[0].offset, 2);
}

#[tokio::test(start_paused = true)]
async fn streams_are_listed_and_deleted() {
    let world = World::new(1);
    let client = world.client();
    let stream = stream(&client, 0).await;
    let names: Vec<String> = client.streams().await.unwrap().into_iter().map(|it| it.name).collect();
    assert_eq!(names, ["s"]);
    assert!(stream.delete().await.unwrap() > 0);
    let error = stream.delete().await.unwrap_err();
    assert_eq!(
        (error.code(), error.outcome()),
        (ErrorCode::NotFound, Outcome::NotApplied)
    );
    assert_eq!(stream.append(["x"]).await.unwrap_err().code(), ErrorCode::NotFound);
}
