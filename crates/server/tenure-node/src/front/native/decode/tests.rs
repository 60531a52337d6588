//! What can be judged without state is judged before anything is proposed.

use tenure_api::ErrorCode;
use tenure_core::command::{Append, FenceMode, StreamSettings};

use super::*;

fn code<T: std::fmt::Debug>(result: Result<T, WireError>) -> ErrorCode {
    result
        .expect_err("it breaks a rule")
        .error_code()
        .expect("a code of ours")
}

#[test]
fn names_are_short_and_plain() {
    for good in ["a", "A-Z_0.9", &"x".repeat(NAME_BYTES_MAX)] {
        assert_eq!(name("cache", good).expect("a good name"), good);
    }
    for bad in ["", "a b", "a/b", "ä", "a\0", &"x".repeat(NAME_BYTES_MAX + 1)] {
        assert_eq!(code(name("cache", bad)), ErrorCode::Invalid);
    }
}

#[test]
fn what_is_left_out_of_a_scope_is_default() {
    let expected = Namespace {
        tenant: "default".to_owned(),
        name: "default".to_owned(),
    };
    assert_eq!(namespace(None).expect("the default"), expected);
    assert_eq!(namespace(Some(&v1::Scope::default())).expect("the default"), expected);
}

#[test]
fn keys_values_and_ttls_have_bounds() {
    assert_eq!(code(key(Bytes::new())), ErrorCode::Invalid);
    assert!(key(Bytes::from(vec![0; KEY_BYTES_MAX])).is_ok());
    assert_eq!(code(key(Bytes::from(vec![0; KEY_BYTES_MAX + 1]))), ErrorCode::Limit);
    assert!(value(Bytes::from(vec![0; VALUE_BYTES_MAX])).is_ok());
    assert_eq!(code(value(Bytes::from(vec![0; VALUE_BYTES_MAX + 1]))), ErrorCode::Limit);
    assert_eq!(key_ttl(1).expect("the shortest"), KEY_TTL_MIN);
    assert_eq!(code(key_ttl(0)), ErrorCode::Invalid);
    assert_eq!(code(key_ttl(u64::MAX)), ErrorCode::Invalid);
    assert_eq!(code(session_ttl(499)), ErrorCode::Invalid);
    assert_eq!(session_ttl(500).expect("the shortest"), SESSION_TTL_MIN);
    assert_eq!(code(session_ttl(24 * 3_600 * 1_000 + 1)), ErrorCode::Invalid);
}

#[test]
fn a_guard_says_what_it_means() {
    use v1::guard::Condition;
    let with = |condition| guard(Some(v1::Guard { condition }));
    assert_eq!(guard(None).expect("no guard"), None);
    assert_eq!(
        with(Some(Condition::Absent(true))).expect("a guard"),
        Some(Guard::Absent)
    );
    assert_eq!(
        with(Some(Condition::Created(7))).expect("a guard"),
        Some(Guard::Created(7))
    );
    assert_eq!(code(with(Some(Condition::Present(false)))), ErrorCode::Invalid);
    assert_eq!(code(with(None)), ErrorCode::Invalid);
}

#[test]
fn identities_have_sixteen_bytes_and_numbers_count_from_one() {
    assert_eq!(code(nonce(&[0; 15])), ErrorCode::Invalid);
    assert_eq!(nonce(&[0; 16]).expect("a nonce"), Nonce(0));
    let command = Command::DeleteCache {
        name: cache(None, "c").expect("a name"),
    };
    let numbered = |seq, acknowledged| {
        let session = Some(v1::SessionRef {
            id: 1,
            secret: Bytes::from_static(&[1; 16]),
        });
        let request = v1::SessionRequest {
            session,
            seq,
            acknowledged_below: 1,
            acknowledged,
        };
        Some(v1::RequestId {
            kind: Some(v1::request_id::Kind::Session(request)),
        })
    };
    assert_eq!(
        code(request(numbered(0, Vec::new()), command.clone())),
        ErrorCode::Invalid
    );
    let many = vec![9; REQUEST_ACKNOWLEDGEMENTS_MAX + 1];
    assert_eq!(code(request(numbered(1, many), command.clone())), ErrorCode::Limit);
    assert!(matches!(
        request(numbered(1, vec![3]), command.clone()),
        Ok(Request {
            origin: Origin::Session { .. },
            ..
        })
    ));
    assert_eq!(
        code(request(Some(v1::RequestId { kind: None }), command.clone())),
        ErrorCode::Invalid
    );
    assert!(matches!(
        request(None, command),
        Ok(Request {
            origin: Origin::Anonymous,
            ..
        })
    ));
}

#[test]
fn what_a_stream_is_created_with_has_defaults_and_bounds() {
    let defaults = StreamSettings {
        retention: None,
        retention_bytes: None,
        fence: FenceMode::Optional,
        dedup_window: Span::from_secs(120),
        replication: 3,
    };
    assert_eq!(streams::settings(None).expect("the defaults"), defaults);
    let given = v1::StreamSettings {
        retention_ms: Some(1),
        retention_bytes: Some(1),
        fence: v1::FenceMode::Mandatory.into(),
        dedup_window_ms: Some(0),
        shards: Some(1),
        replication: Some(7),
        consistency: v1::Consistency::Quorum.into(),
    };
    let expected = StreamSettings {
        retention: Some(Span::from_millis(1)),
        retention_bytes: Some(1),
        fence: FenceMode::Mandatory,
        dedup_window: Span(0),
        replication: 7,
    };
    assert_eq!(streams::settings(Some(given)).expect("good settings"), expected);
}

#[test]
fn what_is_wrong_within_something_is_named_with_its_place() {
    let field = |error: WireError| match error.detail {
        Some(Detail::Invalid(invalid)) => invalid.field,
        other => panic!("not invalid: {other:?}"),
    };
    let error = within("then[3]", within("put", key(Bytes::new()))).expect_err("it is empty");
    assert_eq!(field(error), "then[3].put.key");
    let limit = within("then[3]", value(Bytes::from(vec![0; VALUE_BYTES_MAX + 1])));
    assert_eq!(
        limit.expect_err("too long"),
        WireError::limit("value bytes", VALUE_BYTES_MAX as u64)
    );
}

#[test]
fn commands_that_differ_have_other_fingerprints() {
    let stream = object(None, "stream", "s").expect("a name");
    let append = |records: &[&str], token| Command::Append {
        stream: stream.clone(),
        append: Append {
            records: records
                .iter()
                .map(|record| Bytes::copy_from_slice(record.as_bytes()))
                .collect(),
            token,
            ..Append::default()
        },
    };
    let commands = [
        append(&["ab"], None),
        append(&["a", "b"], None),
        append(&["ab"], Some(1)),
        Command::DeleteStream { name: stream.clone() },
        Command::TrimStream {
            stream: stream.clone(),
            before: 1,
        },
    ];
    for (at, one) in commands.iter().enumerate() {
        for (other_at, other) in commands.iter().enumerate() {
            assert_eq!(fingerprint(one) == fingerprint(other), at == other_at);
        }
    }
}
