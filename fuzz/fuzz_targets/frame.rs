//! Frames of the multiplexed stream, both ways: what is read is written back and read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use prost::Message;
use tenure_api::v1::{ClientFrame, ServerFrame};

fuzz_target!(|bytes: &[u8]| {
    check::<ClientFrame>(bytes);
    check::<ServerFrame>(bytes);
});

fn check<M: Message + Default + PartialEq>(bytes: &[u8]) {
    if let Ok(message) = M::decode(bytes) {
        assert!(M::decode(&message.encode_to_vec()[..]).is_ok_and(|again| again == message));
    }
}
