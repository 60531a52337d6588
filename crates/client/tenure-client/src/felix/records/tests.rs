//! What a commit may consist of, and where its state is kept.

use super::{CommitOp, one_stream, state_key};

#[test]
fn a_commit_is_about_one_stream_and_publishes_something() {
    let publish = || CommitOp::publish("orders", "placed");
    assert_eq!(
        one_stream(&[publish(), CommitOp::put("orders", "k", "v")]).unwrap(),
        "orders"
    );
    assert!(one_stream(&[]).is_err());
    assert!(one_stream(&[CommitOp::put("orders", "k", "v")]).is_err());
    assert!(one_stream(&[publish(), CommitOp::delete("stock", "k")]).is_err());
}

#[test]
fn no_two_entities_share_a_key_of_their_state() {
    let key = |entity: &str, key: &str| state_key(entity.as_bytes(), key).unwrap();
    assert_ne!(key("ab", "c"), key("a", "bc"));
    assert_ne!(key("", "abc"), key("abc", ""));
    assert_eq!(key("a", "b"), b"\0\0\0\x01ab");
}
