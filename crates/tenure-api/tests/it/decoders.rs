//! Whatever bytes a peer sends: a message, an error, or a named refusal, and never much more memory than they have.

use std::fmt::Debug;

use prost::Message;
use tenure_api::details::ERROR_TRAILER;
use tenure_api::limits::{ERROR_TRAILER_BYTES_MAX, MESSAGE_BYTES_MAX};
use tenure_api::v1::{self, WireError};
use tonic::Status;
use tonic::metadata::{BinaryMetadataKey, MetadataValue};

use crate::fixtures;
use crate::mutations::{Seeded, assert_modest, damaged};

/// Damaged messages of each kind that are read.
const CASES: usize = 6_000;
/// Bytes of the longest damaged message; those of the fixtures are far shorter.
const LENGTH_MAX: usize = 16 << 10;
/// A field of one byte may become a structure of some hundred; beyond that nothing may be asked for.
const GROWTH_MAX: usize = 16 << 20;
/// Bytes in memory of an element of a list in a request. An empty one has two bytes on the wire.
const ELEMENT_BYTES_MAX: usize = 48;

/// Every message that was ever written down, as it travels.
fn corpus() -> Vec<Vec<u8>> {
    let messages = fixtures::read("messages.txt");
    let digits = messages.lines().filter_map(|line| line.split_once(' '));
    digits.map(|(_, digits)| fixtures::from_hex(digits)).collect()
}

/// Reads bytes as a message. What is read is written back and read as the same, in no more bytes than a peer may send.
fn read<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> bool {
    let Ok(message) = M::decode(bytes) else {
        return false;
    };
    let again = message.encode_to_vec();
    // A number may have been written longer than it needs, but a default is left out when it is written again, and an
    // enumeration's number of another size is written in ten bytes.
    assert!(again.len() <= 10 * bytes.len() && again.len() <= MESSAGE_BYTES_MAX);
    assert!(M::decode(&again[..]).is_ok_and(|read| read == message), "{bytes:02x?}");
    assert!(!format!("{message:?}").is_empty());
    true
}

#[test]
fn no_damage_to_a_frame_makes_a_reader_panic_or_ask_for_much_memory() {
    let corpus = corpus();
    assert!(corpus.len() > 30, "the fixtures are there");
    let mut seeded = Seeded::new(1);
    let readable = assert_modest(GROWTH_MAX, || {
        (0..CASES)
            .filter(|_| {
                let bytes = damaged(&corpus, LENGTH_MAX, &mut seeded);
                let request = read::<v1::ClientFrame>(&bytes);
                read::<v1::ServerFrame>(&bytes) || request
            })
            .count()
    });
    assert!(readable > CASES / 20, "{readable} of {CASES} could still be read");
}

#[test]
fn no_damage_to_a_unary_message_makes_a_reader_panic() {
    let corpus = corpus();
    let mut seeded = Seeded::new(2);
    // The body of a frame begins behind its own field's number and length, so the same bytes serve as messages when a
    // few bytes are cut off in front.
    for _ in 0..CASES {
        let bytes = damaged(&corpus, LENGTH_MAX, &mut seeded);
        let bytes = &bytes[seeded.below(6).min(bytes.len())..];
        read::<v1::PutRequest>(bytes);
        read::<v1::TxnRequest>(bytes);
        read::<v1::AppendRequest>(bytes);
        read::<v1::KeepAliveRequest>(bytes);
        read::<v1::ListReply>(bytes);
        read::<v1::TxnReply>(bytes);
        read::<v1::WatchEvent>(bytes);
        read::<v1::Refusal>(bytes);
    }
}

#[test]
fn no_damage_to_an_error_trailer_becomes_a_verdict_or_a_panic() {
    let errors = [
        WireError::invalid("ttl_ms", "at least 1"),
        WireError::not_found("key", &b"\x00\xff"[..]),
        WireError::overloaded("one-shot requests", 250_000),
        WireError::session_expired(9, v1::EndReason::Forced, 77),
        WireError::lagged(101),
    ];
    let corpus: Vec<Vec<u8>> = errors.iter().map(Message::encode_to_vec).collect();
    let mut seeded = Seeded::new(3);
    let mut readable = 0;
    for _ in 0..CASES {
        let bytes = damaged(&corpus, 2 * ERROR_TRAILER_BYTES_MAX, &mut seeded);
        let mut status = Status::unavailable("elsewhere");
        let key = BinaryMetadataKey::from_static(ERROR_TRAILER);
        status.metadata_mut().insert_bin(key, MetadataValue::from_bytes(&bytes));
        if let Ok(Some(error)) = WireError::from_status(&status) {
            readable += 1;
            assert!(bytes.len() <= ERROR_TRAILER_BYTES_MAX);
            assert_ne!(error.to_status().code(), tonic::Code::Ok);
            let _ = (error.error_code(), error.known_outcome(), error.resume_from());
        }
    }
    assert!(readable > CASES / 20, "{readable} of {CASES} could still be read");
}

#[test]
fn a_message_of_the_largest_size_full_of_the_smallest_elements_costs_a_known_multiple() {
    // Two bytes make an empty element of a list: the worst that bytes on the wire can become in memory.
    let element = v1::TxnRequest {
        then: vec![v1::TxnOperation::default()],
        ..v1::TxnRequest::default()
    };
    let bytes = element.encode_to_vec();
    assert_eq!(bytes.len(), 2);
    let count = MESSAGE_BYTES_MAX / bytes.len();
    let bytes = bytes.repeat(count);
    // While a list grows, its old and its new place may be there together.
    let growth_max = count * ELEMENT_BYTES_MAX * 3 / 2 + MESSAGE_BYTES_MAX;
    let read = assert_modest(growth_max, || v1::TxnRequest::decode(&bytes[..]));
    assert_eq!(read.expect("it is well formed").then.len(), count);
    let of_requests = [
        size_of::<v1::TxnOperation>(),
        size_of::<v1::TxnGuard>(),
        size_of::<v1::SessionInGroup>(),
    ];
    assert!(
        of_requests.iter().all(|size| *size <= ELEMENT_BYTES_MAX),
        "{of_requests:?}"
    );
}
