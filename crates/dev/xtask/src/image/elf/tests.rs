//! Programs that need a loader, programs that do not, and what is no program.

use super::*;

/// A program with headers of these kinds.
fn program(kinds: &[u32]) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
    bytes[32] = 64;
    bytes[54] = 56;
    bytes[56] = u8::try_from(kinds.len()).unwrap();
    for kind in kinds {
        bytes.extend(kind.to_le_bytes());
        bytes.extend([0; 52]);
    }
    bytes
}

#[test]
fn a_program_with_a_loader_is_not_static() {
    assert!(is_static(&program(&[1, 2])));
    assert!(!is_static(&program(&[1, 3])));
}

#[test]
fn what_is_cut_or_no_program_is_not_static() {
    let whole = program(&[1, 2]);
    assert!(!is_static(b"#!/bin/sh\n"));
    for length in 0..64 + 56 {
        assert!(!is_static(&whole[..length]), "{length}");
    }
}

#[test]
fn this_test_needs_a_loader() {
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(needs_loader(&own), Some(true));
}
