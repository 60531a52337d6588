//! Streams: what they are made with, what they take, what they refuse, what is read of them.

use bytes::Bytes;
use tenure_api::ErrorCode;
use tenure_api::v1::refusal::Detail;
use tenure_api::v1::{self, create_stream_reply};

use crate::streams_door::{
    Door, STREAM, append_request, at, earliest, latest, numbered, record_of, records, refused, says,
};
use crate::support::{CACHE, TestNode};

fn create(settings: v1::StreamSettings) -> v1::CreateStreamRequest {
    v1::CreateStreamRequest {
        name: STREAM.to_owned(),
        settings: Some(settings),
        ..Default::default()
    }
}

fn read(from: Option<v1::ReadFrom>) -> v1::ReadRecordsRequest {
    v1::ReadRecordsRequest {
        stream: STREAM.to_owned(),
        from,
        ..Default::default()
    }
}

fn named(id: &str, append: v1::Append) -> v1::Append {
    v1::Append {
        message_id: Some(Bytes::copy_from_slice(id.as_bytes())),
        ..append
    }
}

fn fenced(token: u64, append: v1::Append) -> v1::Append {
    v1::Append {
        fence_token: Some(token),
        ..append
    }
}

fn done(first: u64, count: u64) -> v1::AppendDone {
    v1::AppendDone {
        first,
        count,
        duplicate: false,
    }
}

fn offsets(reply: &v1::ReadRecordsReply) -> Vec<u64> {
    reply.records.iter().map(|record| record.offset).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_created_found_listed_and_deleted() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let made = door.create(v1::StreamSettings::default()).await;
    let expected = v1::StreamSettings {
        retention_ms: None,
        retention_bytes: None,
        fence: v1::FenceMode::Optional.into(),
        dedup_window_ms: Some(120_000),
        shards: Some(1),
        replication: Some(3),
        consistency: v1::Consistency::Quorum.into(),
    };
    assert_eq!((made.name.as_str(), made.replication_actual), (STREAM, 1));
    assert_eq!(made.settings, Some(expected));
    // What is said to have been made makes the same again.
    let again = door
        .streams
        .create(create(expected))
        .await
        .expect("answered")
        .into_inner();
    assert!(again.existed);
    let other = v1::StreamSettings {
        retention_bytes: Some(1),
        ..expected
    };
    let refusal = match door
        .streams
        .create(create(other))
        .await
        .expect("answered")
        .into_inner()
        .verdict
    {
        Some(create_stream_reply::Verdict::Refused(refusal)) => refusal,
        other => panic!("not refused: {other:?}"),
    };
    assert_eq!(refusal.code, ErrorCode::ExistsOtherwise.name());
    let Some(Detail::ExistsOtherwise(exists)) = refusal.detail else {
        panic!("no detail")
    };
    assert_eq!((exists.cache, exists.stream), (None, Some(made.clone())));
    // Caches have names of their own.
    let cache = v1::CreateStreamRequest {
        name: CACHE.to_owned(),
        ..Default::default()
    };
    door.streams.create(cache).await.expect("created");
    let listed = door.streams.list(v1::ListStreamsRequest::default()).await;
    let names: Vec<String> = listed
        .expect("answered")
        .into_inner()
        .streams
        .into_iter()
        .map(|stream| stream.name)
        .collect();
    assert_eq!(names, [STREAM, CACHE]);
    let view = door.stream().await;
    assert_eq!(view.stream, Some(made));
    assert_eq!((view.first, view.tail, view.bytes, view.fence_token), (0, 0, 0, None));
    assert!(door.delete_stream().await > 0);
    let gone = v1::DeleteStreamRequest {
        name: STREAM.to_owned(),
        ..Default::default()
    };
    assert_eq!(
        refused(door.streams.delete(gone).await),
        says(ErrorCode::NotFound, "stream")
    );
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_break_a_rule_are_refused_by_name() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let none = v1::StreamSettings::default();
    let cases = [
        (
            v1::StreamSettings {
                shards: Some(2),
                ..none
            },
            "shards",
        ),
        (
            v1::StreamSettings {
                shards: Some(0),
                ..none
            },
            "shards",
        ),
        (v1::StreamSettings { consistency: 2, ..none }, "consistency"),
        (
            v1::StreamSettings {
                consistency: 77,
                ..none
            },
            "consistency",
        ),
        (v1::StreamSettings { fence: 3, ..none }, "fence"),
        (
            v1::StreamSettings {
                replication: Some(0),
                ..none
            },
            "replication",
        ),
        (
            v1::StreamSettings {
                replication: Some(8),
                ..none
            },
            "replication",
        ),
        (
            v1::StreamSettings {
                retention_ms: Some(0),
                ..none
            },
            "retention_ms",
        ),
        (
            v1::StreamSettings {
                retention_ms: Some(u64::MAX),
                ..none
            },
            "retention_ms",
        ),
        (
            v1::StreamSettings {
                retention_bytes: Some(0),
                ..none
            },
            "retention_bytes",
        ),
        (
            v1::StreamSettings {
                dedup_window_ms: Some(86_400_001),
                ..none
            },
            "dedup_window_ms",
        ),
    ];
    for (settings, field) in cases {
        let answer = door.streams.create(create(settings)).await;
        assert_eq!(refused(answer), says(ErrorCode::Invalid, field), "{settings:?}");
    }
    let name = v1::CreateStreamRequest {
        name: "a/b".to_owned(),
        ..Default::default()
    };
    assert_eq!(
        refused(door.streams.create(name).await),
        says(ErrorCode::Invalid, "name")
    );
    let listed = door.streams.list(v1::ListStreamsRequest::default()).await;
    assert!(listed.expect("answered").into_inner().streams.is_empty());
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_stream_of_a_namespace_brings_it_into_being_and_the_rest_is_not_found_before() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let scope = Some(v1::Scope {
        tenant: "acme".to_owned(),
        namespace: "prod".to_owned(),
    });
    let append = v1::AppendRequest {
        scope: scope.clone(),
        ..append_request(records(["a"]))
    };
    let reading = v1::ReadRecordsRequest {
        scope: scope.clone(),
        ..read(None)
    };
    let following = v1::FollowRequest {
        scope: scope.clone(),
        stream: STREAM.to_owned(),
        ..Default::default()
    };
    let missing = says(ErrorCode::NotFound, "namespace");
    assert_eq!(refused(door.streams.append(append.clone()).await), missing);
    assert_eq!(refused(door.streams.read(reading.clone()).await), missing);
    assert_eq!(refused(door.streams.follow(following).await), missing);
    let made = v1::CreateStreamRequest {
        scope,
        ..create(v1::StreamSettings::default())
    };
    door.streams.create(made).await.expect("created");
    door.streams.append(append).await.expect("appended");
    let page = door.streams.read(reading).await.expect("read").into_inner();
    assert_eq!(offsets(&page), [0]);
    let missing = says(ErrorCode::NotFound, "stream");
    assert_eq!(
        refused(door.streams.append(append_request(records(["a"]))).await),
        missing
    );
    assert_eq!(refused(door.streams.read(read(None)).await), missing);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn offsets_are_dense_and_an_unexpected_tail_is_told() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    assert_eq!(door.append(records(["a", "b"])).await, done(0, 2));
    let expecting = |expected_offset, append| v1::Append {
        expected_offset: Some(expected_offset),
        ..append
    };
    assert_eq!(door.append(expecting(2, records(["c"]))).await, done(2, 1));
    let refusal = door.append_refused(expecting(2, records(["d"]))).await;
    assert_eq!(refusal.code, ErrorCode::WrongTail.name());
    assert_eq!(refusal.detail, Some(Detail::WrongTail(3)));
    let page = door.streams.read(read(None)).await.expect("read").into_inner();
    let data: Vec<&[u8]> = page.records.iter().map(|record| record.data.as_ref()).collect();
    assert_eq!(data, [b"a", b"b", b"c"]);
    assert_eq!((page.first, page.tail, page.next), (0, 3, 3));
    assert!(page.records[0].time_us <= page.records[2].time_us);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lower_token_than_the_highest_is_refused_and_a_seal_raises_it() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let mandatory = v1::StreamSettings {
        fence: v1::FenceMode::Mandatory.into(),
        ..Default::default()
    };
    door.create(mandatory).await;
    let without = door.streams.append(append_request(records(["a"]))).await;
    assert_eq!(refused(without), says(ErrorCode::Invalid, "fence_token"));
    assert_eq!(door.append(fenced(7, records(["a"]))).await, done(0, 1));
    assert_eq!(door.append(fenced(7, records(["b"]))).await, done(1, 1));
    assert_eq!(door.append(fenced(9, v1::Append::default())).await, done(2, 0));
    let refusal = door.append_refused(fenced(8, records(["c"]))).await;
    assert_eq!(refusal.code, ErrorCode::StaleToken.name());
    assert_eq!(refusal.detail, Some(Detail::StaleToken(9)));
    let view = door.stream().await;
    assert_eq!((view.tail, view.fence_token), (2, Some(9)));
    let highest = i64::MAX.unsigned_abs();
    assert_eq!(door.append(fenced(highest, records(["c"]))).await, done(2, 1));
    let page = door.streams.read(read(None)).await.expect("read").into_inner();
    let tokens: Vec<Option<u64>> = page.records.iter().map(|record| record.fence_token).collect();
    assert_eq!(tokens, [Some(7), Some(7), Some(highest)]);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_known_message_id_is_answered_like_the_first_append_whatever_comes_with_it() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    let first = door.append(named("m-1", fenced(5, records(["a", "b"])))).await;
    assert_eq!(first, done(0, 2));
    door.append(records(["c"])).await;
    let duplicate = v1::AppendDone {
        duplicate: true,
        ..first
    };
    assert_eq!(door.append(named("m-1", records(["a", "b"]))).await, duplicate);
    // Neither its content, its token nor its place matters any more.
    let otherwise = v1::Append {
        expected_offset: Some(99),
        ..named("m-1", fenced(1, records(["x"])))
    };
    assert_eq!(door.append(otherwise).await, duplicate);
    door.trim(3).await;
    assert_eq!(door.append(named("m-1", records(["a", "b"]))).await, duplicate);
    assert_eq!(door.stream().await.tail, 3);
    // The stream's end frees its ids.
    door.delete_stream().await;
    door.create(v1::StreamSettings::default()).await;
    assert_eq!(door.append(named("m-1", records(["a"]))).await, done(0, 1));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_append_over_a_bound_is_refused_by_name_and_one_at_the_bound_is_taken() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let without_ids = v1::StreamSettings {
        dedup_window_ms: Some(0),
        ..Default::default()
    };
    door.create(without_ids).await;
    let many = |count| v1::Append {
        records: vec![Bytes::from_static(b"r"); count],
        ..Default::default()
    };
    let three = v1::Append {
        records: vec![
            Bytes::from(vec![0; 1 << 20]),
            Bytes::from(vec![0; 1 << 20]),
            Bytes::from_static(b"r"),
        ],
        ..Default::default()
    };
    let id = |len| v1::Append {
        message_id: Some(Bytes::from(vec![b'i'; len])),
        ..records(["a"])
    };
    let cases = [
        (many(1_025), says(ErrorCode::Limit, "records of an append 1024")),
        (
            record_of((1 << 20) + 1),
            says(ErrorCode::Limit, "bytes of a record 1048576"),
        ),
        (three, says(ErrorCode::Limit, "bytes of an append 2097152")),
        (v1::Append::default(), says(ErrorCode::Invalid, "records")),
        (fenced(0, records(["a"])), says(ErrorCode::Invalid, "fence_token")),
        (fenced(1 << 63, records(["a"])), says(ErrorCode::Invalid, "fence_token")),
        (id(0), says(ErrorCode::Invalid, "message_id")),
        (id(256), says(ErrorCode::Limit, "message id bytes 255")),
        // This stream remembers none.
        (id(1), says(ErrorCode::Invalid, "message_id")),
    ];
    for (append, expected) in cases {
        assert_eq!(refused(door.streams.append(append_request(append)).await), expected);
    }
    let absent = v1::AppendRequest {
        append: None,
        ..append_request(v1::Append::default())
    };
    assert_eq!(
        refused(door.streams.append(absent).await),
        says(ErrorCode::Invalid, "append")
    );
    assert_eq!(door.stream().await.tail, 0);
    assert_eq!(door.append(many(1_024)).await, done(0, 1_024));
    let largest = v1::Append {
        records: vec![Bytes::from(vec![0; 1 << 20]); 2],
        ..Default::default()
    };
    assert_eq!(door.append(largest).await, done(1_024, 2));
    door.delete_stream().await;
    door.create(v1::StreamSettings::default()).await;
    assert_eq!(door.append(id(255)).await, done(0, 1));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_read_in_pages_from_anywhere() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let made = door.create(v1::StreamSettings::default()).await;
    for _ in 0..3 {
        let append = v1::Append {
            records: vec![Bytes::from_static(b"r"); 500],
            ..Default::default()
        };
        door.append(append).await;
    }
    let page = door.streams.read(read(earliest())).await.expect("read").into_inner();
    assert_eq!((page.records.len(), page.next, page.tail), (1_000, 1_000, 1_500));
    assert_eq!((page.incarnation, page.age_us), (made.incarnation, None));
    let rest = v1::ReadRecordsRequest {
        incarnation: Some(page.incarnation),
        limit: 9_999,
        ..read(at(page.next))
    };
    let page = door.streams.read(rest).await.expect("read").into_inner();
    assert_eq!((page.records.len(), page.next), (500, 1_500));
    let few = v1::ReadRecordsRequest {
        limit: 2,
        ..read(at(7))
    };
    assert_eq!(
        offsets(&door.streams.read(few).await.expect("read").into_inner()),
        [7, 8]
    );
    let end = door.streams.read(read(latest())).await.expect("read").into_inner();
    assert_eq!((end.records.len(), end.next), (0, 1_500));
    let above = door.streams.read(read(at(9_000))).await.expect("read").into_inner();
    assert_eq!((above.records.len(), above.next), (0, 9_000));
    let stale = v1::ReadRecordsRequest {
        stale: true,
        min_revision: page.header.expect("a header").revision,
        ..read(None)
    };
    let stale = door.streams.read(stale).await.expect("read").into_inner();
    assert!(stale.age_us.is_some());
    // A page of large records is bounded by its bytes, and holds at least one.
    for _ in 0..3 {
        door.append(record_of(600_000)).await;
    }
    let page = door.streams.read(read(at(1_500))).await.expect("read").into_inner();
    assert_eq!(offsets(&page), [1_500]);
    for from in [
        v1::ReadFrom { from: None },
        v1::ReadFrom {
            from: Some(v1::read_from::From::Latest(false)),
        },
    ] {
        let answer = door.streams.read(read(Some(from))).await;
        assert_eq!(refused(answer), says(ErrorCode::Invalid, "from"));
    }
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_trimmed_is_compacted_for_who_asks_by_number_and_skipped_for_others() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let made = door.create(v1::StreamSettings::default()).await;
    door.append(records(["a", "b", "c", "d"])).await;
    assert_eq!(door.trim(2).await.first, 2);
    assert_eq!(door.trim(1).await.first, 2);
    assert_eq!(
        refused(door.streams.read(read(at(1))).await),
        says(ErrorCode::Compacted, "2")
    );
    let page = door.streams.read(read(None)).await.expect("read").into_inner();
    assert_eq!((offsets(&page), page.first), (vec![2, 3], 2));
    assert_eq!(door.stream().await.bytes, 2);
    assert_eq!(door.trim(u64::MAX).await.first, 4);
    let page = door.streams.read(read(earliest())).await.expect("read").into_inner();
    assert_eq!((page.records.len(), page.first, page.tail, page.next), (0, 4, 4, 4));
    assert_eq!(door.append(records(["e"])).await, done(4, 1));
    // Another life under the same name is another stream.
    door.delete_stream().await;
    let resuming = v1::ReadRecordsRequest {
        incarnation: Some(made.incarnation),
        ..read(at(4))
    };
    let deleted = says(ErrorCode::ObjectDeleted, "0");
    assert_eq!(refused(door.streams.read(resuming.clone()).await), deleted);
    door.create(v1::StreamSettings::default()).await;
    assert_eq!(refused(door.streams.read(resuming).await), deleted);
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn repeated_requests_of_streams_return_the_first_answers() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    let session = door.open(1, None).await;
    let made = v1::CreateStreamRequest {
        request: numbered(&session, 1),
        ..create(v1::StreamSettings::default())
    };
    let first = door.streams.create(made.clone()).await.expect("answered").into_inner();
    let again = door.streams.create(made).await.expect("answered").into_inner();
    assert_eq!((first.existed, again.existed, again.repeated), (false, false, true));
    let append = v1::AppendRequest {
        request: numbered(&session, 2),
        ..append_request(records(["a"]))
    };
    let first = door
        .streams
        .append(append.clone())
        .await
        .expect("answered")
        .into_inner();
    let again = door
        .streams
        .append(append.clone())
        .await
        .expect("answered")
        .into_inner();
    assert_eq!(
        (first.verdict, false, true),
        (again.verdict, first.repeated, again.repeated)
    );
    assert_eq!(door.stream().await.tail, 1);
    // A refusal is an answer too.
    let refusal = v1::AppendRequest {
        request: numbered(&session, 3),
        ..append_request(v1::Append {
            expected_offset: Some(5),
            ..records(["b"])
        })
    };
    let first = door
        .streams
        .append(refusal.clone())
        .await
        .expect("answered")
        .into_inner();
    door.append(records(["b", "c", "d", "e"])).await;
    let again = door.streams.append(refusal).await.expect("answered").into_inner();
    assert_eq!((first.verdict, true), (again.verdict, again.repeated));
    let trim = v1::TrimStreamRequest {
        stream: STREAM.to_owned(),
        before: 2,
        request: numbered(&session, 4),
        ..Default::default()
    };
    door.streams.trim(trim.clone()).await.expect("answered");
    door.trim(4).await;
    let again = door.streams.trim(trim).await.expect("answered").into_inner();
    assert_eq!((again.first, again.repeated), (2, true));
    let other = v1::AppendRequest {
        request: numbered(&session, 2),
        ..append_request(records(["other"]))
    };
    assert_eq!(refused(door.streams.append(other).await).0, ErrorCode::RequestReused);
    let delete = v1::DeleteStreamRequest {
        name: STREAM.to_owned(),
        request: door.one_shot(3).await,
        ..Default::default()
    };
    let first = door
        .streams
        .delete(delete.clone())
        .await
        .expect("answered")
        .into_inner();
    let again = door.streams.delete(delete).await.expect("answered").into_inner();
    assert_eq!((first.revision, true), (again.revision, again.repeated));
    node.node.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_survives_a_restart_with_its_token_and_its_message_ids() {
    let node = TestNode::start().await;
    let mut door = Door::of(&node).await;
    door.create(v1::StreamSettings::default()).await;
    door.append(named("m", fenced(3, records(["a", "b", "c"])))).await;
    door.trim(1).await;
    let before = door.stream().await;
    let node = node.restart().await;
    let mut door = Door::of(&node).await;
    let after = door.stream().await;
    assert_eq!(
        (after.stream, after.first, after.tail, after.bytes, after.fence_token),
        (before.stream, 1, 3, 2, Some(3))
    );
    let again = door.append(named("m", records(["a", "b", "c"]))).await;
    assert!(again.duplicate);
    assert_eq!(door.append_refused(fenced(2, records(["x"]))).await.code, "stale_token");
    node.node.stop().await;
}
