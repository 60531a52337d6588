//! Each rule finds what breaks it, and nothing else.

use super::*;

fn append(at: u64, records: &[&str], told: AppendTold) -> AppendCall {
    AppendCall {
        records: records.iter().map(|record| (*record).to_owned()).collect(),
        expected: None,
        token: None,
        message_id: None,
        called: Duration::from_millis(at),
        returned: (told != AppendTold::Unknown).then(|| Duration::from_millis(at + 5)),
        told,
    }
}

fn new(first: u64) -> AppendTold {
    AppendTold::Appended {
        first,
        duplicate: false,
    }
}

fn kept(records: &[(&str, Option<u64>)]) -> Vec<Kept> {
    let records = records.iter().zip(0..);
    let kept = records.map(|((data, token), offset)| Kept {
        offset,
        data: (*data).to_owned(),
        token: *token,
    });
    kept.collect()
}

/// Four appends that went as they should, and what is there.
fn right() -> (Vec<AppendCall>, Vec<Kept>) {
    let message = |at, told| AppendCall {
        message_id: Some("m".to_owned()),
        ..append(at, &["d"], told)
    };
    let expecting = AppendCall {
        expected: Some(2),
        token: Some(7),
        ..append(10, &["c"], new(2))
    };
    let late = AppendCall {
        expected: Some(2),
        ..append(12, &["x"], AppendTold::WrongTail { tail: 3 })
    };
    let again = AppendTold::Appended {
        first: 3,
        duplicate: true,
    };
    let calls = vec![
        append(0, &["a", "b"], new(0)),
        expecting,
        late,
        message(20, AppendTold::Unknown),
        message(30, again),
    ];
    (calls, kept(&[("a", None), ("b", None), ("c", Some(7)), ("d", Some(7))]))
}

fn rule_broken(calls: &[AppendCall], kept: &[Kept]) -> &'static str {
    stream(calls, kept).expect_err("a rule is broken").rule
}

#[test]
fn a_stream_that_is_as_it_was_told_keeps_every_rule() {
    let (calls, kept) = right();
    assert_eq!(stream(&calls, &kept), Ok(()));
}

#[test]
fn a_gap_and_a_record_that_is_there_twice_are_found() {
    let (calls, mut kept) = right();
    kept[2].offset = 5;
    assert_eq!(rule_broken(&calls, &kept), "offsets have no gaps");
    let (calls, mut kept) = right();
    kept[3].data = "a".to_owned();
    assert_eq!(rule_broken(&calls, &kept), "no record is there twice");
}

#[test]
fn a_token_that_falls_is_found() {
    let (calls, mut kept) = right();
    kept[3].token = Some(6);
    assert_eq!(rule_broken(&calls, &kept), "tokens never fall");
}

#[test]
fn an_acknowledged_record_that_is_lost_is_found() {
    let (calls, mut kept) = right();
    kept.pop();
    assert_eq!(rule_broken(&calls, &kept), "what was acknowledged is there");
}

#[test]
fn a_record_that_was_refused_and_is_there_is_found() {
    let (mut calls, mut kept) = right();
    kept.push(Kept {
        offset: 4,
        data: "x".to_owned(),
        token: None,
    });
    assert_eq!(rule_broken(&calls, &kept), "what is there was asked for");
    calls[2].told = AppendTold::Unknown;
    assert_eq!(stream(&calls, &kept), Ok(()));
}

#[test]
fn half_an_append_is_found() {
    let (mut calls, kept) = right();
    calls.push(append(40, &["e", "d"], AppendTold::Unknown));
    assert_eq!(rule_broken(&calls, &kept), "an append is whole");
}

#[test]
fn two_winners_of_one_tail_are_found() {
    let (mut calls, mut kept) = right();
    calls[2].told = new(4);
    kept.push(Kept {
        offset: 4,
        data: "x".to_owned(),
        token: None,
    });
    assert_eq!(rule_broken(&calls, &kept), "an expected tail held");
}

#[test]
fn a_repeat_that_was_appended_anew_is_found() {
    let (mut calls, _) = right();
    calls[4].told = AppendTold::Appended {
        first: 2,
        duplicate: true,
    };
    calls[3].told = new(3);
    assert_eq!(
        one_message_is_one_append(&calls).expect_err("two offsets").rule,
        "one message is one append"
    );
}

#[test]
fn an_append_before_one_that_was_answered_earlier_is_found() {
    let (mut calls, mut kept) = right();
    calls.push(append(41, &["f"], new(5)));
    calls.push(append(50, &["e"], new(4)));
    for (offset, data) in [(4, "e"), (5, "f")] {
        kept.push(Kept {
            offset,
            data: data.to_owned(),
            token: None,
        });
    }
    assert_eq!(rule_broken(&calls, &kept), "offsets agree with real time");
}

#[test]
fn a_counter_that_lost_or_doubled_an_addition_is_found() {
    let add = |at: u64, told: Option<(i64, u64)>| AddCall {
        called: Duration::from_millis(at),
        returned: told.map(|_| Duration::from_millis(at + 5)),
        told,
    };
    let calls = [add(0, Some((1, 10))), add(10, None), add(20, Some((3, 14)))];
    assert_eq!(counter(&calls, 3), Ok(()));
    assert_eq!(
        counter(&calls, 1).expect_err("one is lost").rule,
        "a counter holds what was added"
    );
    assert!(counter(&calls, 4).is_err());
    let same = [add(0, Some((1, 10))), add(10, Some((1, 11)))];
    assert_eq!(
        counter(&same, 2).expect_err("one sum twice").rule,
        "sums rise with versions"
    );
    let late = [add(0, Some((2, 11))), add(10, Some((1, 10)))];
    assert_eq!(
        counter(&late, 2).expect_err("out of order").rule,
        "sums agree with real time"
    );
}
