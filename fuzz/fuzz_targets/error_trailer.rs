//! The trailer of a gRPC status: never a success, whatever is in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_api::details::ERROR_TRAILER;
use tenure_api::v1::WireError;
use tonic::metadata::{BinaryMetadataKey, MetadataValue};
use tonic::{Code, Status};

fuzz_target!(|bytes: &[u8]| {
    let mut status = Status::unavailable("");
    let key = BinaryMetadataKey::from_static(ERROR_TRAILER);
    status.metadata_mut().insert_bin(key, MetadataValue::from_bytes(bytes));
    if let Ok(Some(error)) = WireError::from_status(&status) {
        assert_ne!(error.to_status().code(), Code::Ok);
    }
});
