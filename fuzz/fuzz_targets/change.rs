//! Changes of the feed: what is read is written back and read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_core::codec::{decode_change, encode_change};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(change) = decode_change(bytes) {
        assert_eq!(decode_change(&encode_change(&change)), Ok(change));
    }
});
