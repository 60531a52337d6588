//! Entries of the log: what is read is written back and read as the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_core::codec::{decode_entry, encode_entry};

fuzz_target!(|bytes: &[u8]| {
    if let Ok(entry) = decode_entry(bytes) {
        assert_eq!(decode_entry(&encode_entry(&entry)), Ok(entry));
    }
});
