//! The bytes as ZooKeeper's documents have them, and answers that are damaged.

use super::*;

#[test]
fn a_request_has_its_length_number_and_operation_before_it() {
    let mut out = Vec::new();
    put_request(&mut out, 7, DELETE, &delete("/a", 3));
    let expected = [0, 0, 0, 18, 0, 0, 0, 7, 0, 0, 0, 2, 0, 0, 0, 2, b'/', b'a', 0, 0, 0, 3];
    assert_eq!(out, expected);
}

#[test]
fn only_a_claim_goes_with_its_session() {
    assert!(create("/a", "v", true).ends_with(&[0, 0, 0, 1]));
    assert!(create("/a", "v", false).ends_with(&[0, 0, 0, 0]));
}

#[test]
fn a_session_comes_again_as_itself() {
    let identity = Identity {
        session: 5,
        password: vec![9; 16],
        timeout_ms: 4_000,
    };
    let frame = connect(4_000, 8, Some(&identity));
    let (body, length) = first_frame(&frame).unwrap().unwrap();
    assert_eq!(length, frame.len());
    // An answer begins as the request does, without the last revision seen.
    let answer = [&body[..4], &body[12..]].concat();
    assert_eq!(connected(&answer), Ok(identity));
}

#[test]
fn a_session_that_is_over_is_told_from_one_that_goes_on() {
    let over = [0; 4 + 4 + 8 + 4];
    assert_eq!(connected(&over), Err(Trouble::Expired));
}

#[test]
fn frames_are_taken_one_by_one_and_only_whole() {
    let two = [0, 0, 0, 2, 1, 2, 0, 0, 0, 1, 3];
    assert_eq!(first_frame(&two), Ok(Some((&two[4..6], 6))));
    for length in 0..6 {
        assert_eq!(first_frame(&two[..length]), Ok(None), "{length}");
    }
    assert_eq!(first_frame(&[255; 4]), Err(Trouble::Garbled), "a negative length");
    assert_eq!(
        first_frame(&[127; 4]),
        Err(Trouble::Garbled),
        "a length beyond the bound"
    );
}

#[test]
fn answers_that_are_cut_are_garbled() {
    let whole = [0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 9, 255, 255, 255, 146];
    let read = Answer {
        xid: 7,
        zxid: 9,
        code: NODE_EXISTS,
    };
    assert_eq!(answer(&whole), Ok(read));
    for length in 0..whole.len() {
        assert_eq!(answer(&whole[..length]), Err(Trouble::Garbled), "{length}");
        assert_eq!(connected(&whole[..length]), Err(Trouble::Garbled), "{length}");
    }
}
