//! How old a state is, by what was heard.

use std::time::Duration;

use super::Heard;

fn at(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

#[test]
fn a_state_is_as_old_as_the_last_message_that_it_has_applied() {
    let heard = Heard::default();
    assert_eq!(heard.current_as_of(Some(9)), None, "nobody has said anything");
    heard.said(5, at(100), Some(5));
    heard.said(5, at(200), Some(5));
    assert_eq!(heard.current_as_of(Some(5)), Some(at(200)));
    heard.said(7, at(300), Some(5));
    heard.said(9, at(400), Some(6));
    assert_eq!(
        heard.current_as_of(Some(6)),
        Some(at(200)),
        "it lacks what was told at 300"
    );
    assert_eq!(heard.current_as_of(Some(7)), Some(at(300)));
    assert_eq!(
        heard.current_as_of(Some(9)),
        Some(at(300)),
        "what was told at 400 was not kept"
    );
    heard.said(9, at(500), Some(9));
    assert_eq!(heard.current_as_of(Some(9)), Some(at(500)));
}

#[test]
fn a_message_that_was_overtaken_makes_nothing_older() {
    let heard = Heard::default();
    heard.said(5, at(200), Some(5));
    heard.said(5, at(100), Some(5));
    assert_eq!(heard.current_as_of(Some(5)), Some(at(200)));
}
