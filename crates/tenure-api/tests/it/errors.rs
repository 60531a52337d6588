//! The table of errors, and errors as a gRPC status and back.

use std::collections::BTreeSet;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message;
use tenure_api::details::ERROR_TRAILER;
use tenure_api::limits::{ERROR_MESSAGE_BYTES_MAX, ERROR_TRAILER_BYTES_MAX, KEY_BYTES_MAX};
use tenure_api::v1::mux_client::MuxClient;
use tenure_api::v1::mux_server::{self, MuxServer};
use tenure_api::v1::{self, EndReason, LeaderHint, WireError};
use tenure_api::{ErrorCode, MalformedError, Outcome};
use tonic::metadata::{BinaryMetadataKey, MetadataValue};
use tonic::{Code, Request, Response, Status, Streaming};

use crate::fixtures;

/// One error of each kind that carries something, and of each that carries nothing.
fn one_of_each() -> Vec<WireError> {
    let leader = LeaderHint {
        group: 3,
        node_id: 2,
        address: "127.0.0.1:7401".into(),
        term: 5,
    };
    vec![
        WireError::invalid("ttl_ms", "at least 1"),
        WireError::cross_group("a/b/c", "a/d/e"),
        WireError::wrong_type("a/b/c", "stream"),
        WireError::not_found("key", &b"\x00\xff"[..]),
        WireError::session_expired(9, EndReason::Forced, 77),
        WireError::session_unknown(9),
        WireError::request_forgotten(4),
        WireError::too_late(),
        WireError::request_reused(),
        WireError::window_full(1_024, 9_999),
        WireError::wrong_group(2, 5),
        WireError::wrong_cluster("cluster", "00ff", "ff00"),
        WireError::object_deleted("a/b/c", 12),
        WireError::deadline(),
        WireError::behind(40, 41),
        WireError::storage_full(1, 2),
        WireError::compacted(100),
        WireError::lagged(101),
        WireError::limit("keys of a session", 4_096),
        WireError::overloaded("one-shot requests", 250_000),
        WireError::not_leader(3, Some(leader.clone())),
        WireError::unavailable("no leader of group g-3").with_leader(Some(leader)),
        WireError::quorum_timeout(),
        WireError::leadership_lost(),
        WireError::internal("apply stopped"),
    ]
}

#[test]
fn no_code_changes_its_outcome_or_its_statuses() {
    let table: String = ErrorCode::ALL
        .into_iter()
        .map(|code| {
            format!(
                "{} {} {:?} {} {} {}\n",
                code.name(),
                code.outcome(),
                code.grpc(),
                code.http(),
                code.exit(),
                if code.retryable() { "retryable" } else { "final" }
            )
        })
        .collect();
    fixtures::assert_equal("error_codes.txt", &table);
}

#[test]
fn every_code_is_found_by_its_name_and_no_two_share_one() {
    let names: BTreeSet<&str> = ErrorCode::ALL.into_iter().map(ErrorCode::name).collect();
    assert_eq!(names.len(), ErrorCode::ALL.len());
    for code in ErrorCode::ALL {
        assert_eq!(ErrorCode::from_name(code.name()), Some(code));
    }
    assert_eq!(ErrorCode::from_name("from_the_future"), None);
    assert_eq!(ErrorCode::from_name(""), None);
}

#[test]
fn only_a_verdict_is_a_normal_answer() {
    for code in ErrorCode::ALL {
        assert_eq!(code.grpc() == Code::Ok, code.outcome() == Outcome::Refused, "{code}");
    }
}

#[test]
fn the_exit_status_tells_an_unknown_outcome_from_a_known_one() {
    for code in ErrorCode::ALL {
        let says_unknown = matches!(code.exit(), 1 | 6);
        assert_eq!(says_unknown, code.outcome() == Outcome::Unknown, "{code}");
    }
}

#[test]
fn the_worst_outcome_is_the_greatest() {
    assert!(Outcome::Refused < Outcome::NotApplied && Outcome::NotApplied < Outcome::Unknown);
}

#[test]
fn there_is_an_error_for_every_code_that_is_no_verdict() {
    let built: BTreeSet<String> = one_of_each().into_iter().map(|error| error.code).collect();
    let expected: BTreeSet<String> = ErrorCode::ALL
        .into_iter()
        .filter(|code| code.outcome() != Outcome::Refused)
        .map(|code| code.name().to_owned())
        .collect();
    assert_eq!(built, expected);
}

#[test]
fn an_error_comes_back_from_its_status_as_it_went_in() {
    for error in one_of_each() {
        let code = error.error_code().expect("a code of this version");
        let status = Status::from(error.clone());
        assert_eq!(status.code(), code.grpc());
        assert_eq!(status.message(), error.message);
        assert_eq!(error.known_outcome(), code.outcome());
        assert_eq!(WireError::from_status(&status), Ok(Some(error)));
    }
}

#[test]
fn a_status_from_something_in_between_carries_no_error() {
    assert_eq!(
        WireError::from_status(&Status::unavailable("connection refused")),
        Ok(None)
    );
}

#[test]
fn an_unreadable_trailer_is_an_error_and_not_a_guess() {
    let too_long = vec![0; ERROR_TRAILER_BYTES_MAX + 1];
    for bytes in [&[0xff][..], &[0x0a, 0x05, b'x'][..], &too_long[..]] {
        let mut status = Status::unavailable("elsewhere");
        let key = BinaryMetadataKey::from_static(ERROR_TRAILER);
        status.metadata_mut().insert_bin(key, MetadataValue::from_bytes(bytes));
        assert_eq!(WireError::from_status(&status), Err(MalformedError));
    }
}

#[test]
fn what_a_newer_node_says_is_unknown_unless_it_says_more() {
    let silent = WireError {
        code: "from_the_future".into(),
        ..WireError::default()
    };
    assert_eq!((silent.error_code(), silent.known_outcome()), (None, Outcome::Unknown));
    let strange = WireError {
        outcome: 99,
        ..WireError::default()
    };
    assert_eq!(strange.known_outcome(), Outcome::Unknown);
    let clear = WireError {
        outcome: v1::Outcome::NotApplied.into(),
        ..silent
    };
    assert_eq!(clear.known_outcome(), Outcome::NotApplied);
    assert_eq!(clear.to_status().code(), Code::Internal);
    assert_eq!(WireError::from_status(&clear.to_status()), Ok(Some(clear)));
}

#[test]
fn a_verdict_in_place_of_an_error_is_not_taken_for_a_success() {
    for code in ErrorCode::ALL
        .into_iter()
        .filter(|code| code.outcome() == Outcome::Refused)
    {
        assert_eq!(WireError::new(code, "").to_status().code(), Code::Internal);
    }
}

#[test]
fn the_longest_key_fits_a_trailer_whole() {
    let error = WireError::not_found("key", vec![0xff; KEY_BYTES_MAX]);
    assert!(error.message.len() <= ERROR_MESSAGE_BYTES_MAX);
    assert_eq!(WireError::from_status(&error.to_status()), Ok(Some(error)));
}

#[test]
fn an_error_too_long_for_a_trailer_loses_its_detail_and_keeps_its_meaning() {
    let long = "ä".repeat(ERROR_TRAILER_BYTES_MAX);
    let error = WireError::unavailable(long);
    let status = error.to_status();
    let back = WireError::from_status(&status).expect("readable").expect("there");
    assert_eq!(back.error_code(), Some(ErrorCode::Unavailable));
    assert_eq!(back.known_outcome(), Outcome::NotApplied);
    assert_eq!(back.detail, None);
    assert!(!back.message.is_empty() && back.message.len() <= ERROR_MESSAGE_BYTES_MAX);
}

#[test]
fn a_watch_reads_where_to_go_on() {
    assert_eq!(WireError::lagged(101).resume_from(), Some(101));
    assert_eq!(WireError::compacted(100).resume_from(), Some(100));
    assert_eq!(WireError::deadline().resume_from(), None);
}

/// A server that answers every stream with one error.
struct Failing(WireError);

#[tonic::async_trait]
impl mux_server::Mux for Failing {
    type ConnectStream = tokio_stream::Empty<Result<v1::ServerFrame, Status>>;

    async fn connect(&self, _: Request<Streaming<v1::ClientFrame>>) -> Result<Response<Self::ConnectStream>, Status> {
        Err(self.0.to_status())
    }
}

#[tokio::test]
async fn an_error_passes_from_a_service_to_its_client_whole() {
    for error in one_of_each() {
        let mut client = MuxClient::new(MuxServer::new(Failing(error.clone())));
        let status = client
            .connect(tokio_stream::empty())
            .await
            .expect_err("the service fails");
        assert_eq!(
            status.code(),
            error.error_code().expect("a code of this version").grpc()
        );
        assert_eq!(status.message(), error.message);
        assert_eq!(WireError::from_status(&status), Ok(Some(error)));
    }
}

proptest! {
    #[test]
    fn no_bytes_in_the_trailer_make_a_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
        let mut status = Status::internal("");
        let key = BinaryMetadataKey::from_static(ERROR_TRAILER);
        status.metadata_mut().insert_bin(key, MetadataValue::from_bytes(&bytes));
        if let Ok(Some(error)) = WireError::from_status(&status) {
            error.known_outcome();
            error.to_status();
        }
    }

    #[test]
    fn any_error_of_ordinary_length_survives_its_status(
        message in "\\PC{0,100}", name in prop::collection::vec(any::<u8>(), 0..512), after in any::<Option<u64>>()
    ) {
        let mut error = WireError::not_found("key", Bytes::from(name));
        error.message = message;
        error.retry_after_us = after;
        prop_assert!(error.encoded_len() <= ERROR_TRAILER_BYTES_MAX);
        prop_assert_eq!(WireError::from_status(&error.to_status()), Ok(Some(error)));
    }
}
