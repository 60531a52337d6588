//! Snapshots: read or refused, and nothing is written before the checksum was compared.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tenure_core::snapshot;
use tenure_core::table::MemTable;

fuzz_target!(|bytes: &[u8]| {
    let mut table = MemTable::new();
    if snapshot::import(bytes, &mut table).is_err() && bytes.len() < 28 {
        assert!(table.is_empty());
    }
});
