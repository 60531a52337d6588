//! What is read, what is refused with its place, and that nothing makes it panic.

use super::{Bytes, Guard, KeyGuard, Operation, Publish, Transaction};

const EXAMPLE: &str = r#"{"guards":[{"cache":"c","key":"k","absent":true},{"cache":"c","key":"j","version":"17"},
{"stream":"s","tail":"3"},{"session":"9","alive":true},{"cache":"c","key":"n","min":"0","max":5},
{"cache":"c","key_base64":"/w==","value":"v"},{"cache":"c","key":"k","created":7}],
"then":[{"put":{"cache":"c","key":"k","value":"v","ttl_ms":1000}},{"publish":{"stream":"s","records":["r"]}},
{"add":{"cache":"c","key":"n","delta":-1}},{"delete":{"cache":"c","key":"d"}}],
"else":[{"get":{"cache":"c","key":"k"}}]}"#;

fn refused(text: &str) -> String {
    Transaction::parse(text.as_bytes()).expect_err(text)
}

#[test]
fn a_transaction_is_read_field_by_field() {
    let text = |text: &'static str| Bytes::from_static(text.as_bytes());
    let cache = || "c".to_owned();
    let read = Transaction::parse(EXAMPLE.as_bytes()).unwrap();
    let key = |key, guard| Guard::Key {
        cache: cache(),
        key: text(key),
        guard,
    };
    assert_eq!(
        read.guards,
        [
            key("k", KeyGuard::Absent),
            key("j", KeyGuard::Version(17)),
            Guard::Tail {
                stream: "s".to_owned(),
                tail: 3
            },
            Guard::Alive { session: 9 },
            Guard::Counter {
                cache: cache(),
                key: text("n"),
                min: Some(0),
                max: Some(5)
            },
            Guard::Key {
                cache: cache(),
                key: Bytes::from_static(b"\xff"),
                guard: KeyGuard::Value(text("v"))
            },
            key("k", KeyGuard::Created(7)),
        ]
    );
    assert_eq!(
        read.then,
        [
            Operation::Put {
                cache: cache(),
                key: text("k"),
                value: text("v"),
                ttl_ms: Some(1_000),
                session: None
            },
            Operation::Publish {
                stream: "s".to_owned(),
                publish: Publish {
                    records: vec![text("r")],
                    if_offset: None,
                    fence_token: None,
                    dedup_id: None
                }
            },
            Operation::Add {
                cache: cache(),
                key: text("n"),
                delta: -1,
                ttl_ms: None
            },
            Operation::Delete {
                cache: cache(),
                key: text("d")
            },
        ]
    );
    assert_eq!(
        read.otherwise,
        [Operation::Get {
            cache: cache(),
            key: text("k")
        }]
    );
    assert_eq!(Transaction::parse(b"{}").unwrap(), Transaction::default());
}

#[test]
fn what_is_misspelt_is_named_with_its_place() {
    let unknown = refused("{\"guards\":[],\n\"when\":[]}");
    assert!(unknown.starts_with("unknown field `when`"), "{unknown}");
    assert!(unknown.ends_with("at line 2 column 6"), "{unknown}");
    let unknown = refused(r#"{"then":[{"put":{"cache":"c","key":"k","value":"v","ttl":1}}]}"#);
    assert!(unknown.starts_with("unknown field `ttl`"), "{unknown}");
    assert!(unknown.contains("at line 1 column"), "{unknown}");
    let unknown = refused(r#"{"then":[{"write":{}}]}"#);
    assert!(unknown.starts_with("unknown variant `write`"), "{unknown}");
    assert!(refused("{}x").contains("trailing characters"));
    assert!(refused("").contains("EOF"));
    assert!(refused(r#"{"guards":[],"guards":[]}"#).contains("duplicate field"));
}

#[test]
fn a_list_of_fields_is_no_object() {
    for text in [
        "[]",
        r#"[[],[{"put":{"cache":"c","key":"k","value":"v"}}],[]]"#,
        r#"{"guards":[[]]}"#,
        r#"{"guards":[["c","k",null,true]]}"#,
        r#"{"then":[{"put":["c","k",null,"v",null,null,null]}]}"#,
        r#"{"then":[{"delete":["c","k",null]}]}"#,
        r#"{"then":[{"get":["c","k",null]}]}"#,
        r#"{"then":[{"add":["c","k",null,1,null]}]}"#,
        r#"{"else":[{"publish":["s",["r"],null,null,null,null]}]}"#,
    ] {
        let error = refused(text);
        assert!(
            error.starts_with("invalid type: sequence, expected an object"),
            "{text}: {error}"
        );
    }
    assert!(refused(r#"{"then":[["put",{"cache":"c","key":"k","value":"v"}]]}"#).contains("at line 1 column"));
}

#[test]
fn the_keys_that_are_counted_are_known() {
    let read = Transaction::parse(EXAMPLE.as_bytes()).unwrap();
    assert_eq!(read.counters(), [("c".to_owned(), Bytes::from_static(b"n"))]);
}

#[test]
fn a_guard_is_of_one_kind() {
    for (guard, rule) in [
        (r#"{"cache":"c","key":"k"}"#, "guards[0]: a key needs exactly one of"),
        (
            r#"{"cache":"c","key":"k","absent":true,"version":1}"#,
            "guards[0]: a key needs exactly one of",
        ),
        (
            r#"{"cache":"c","key":"k","absent":false}"#,
            "guards[0]: absent and present must be true",
        ),
        (r#"{"key":"k","absent":true}"#, "guards[0]: cache is missing"),
        (r#"{"cache":"c","absent":true}"#, "guards[0]: key is missing"),
        (
            r#"{"cache":"c","key":"k","key_base64":"aw==","absent":true}"#,
            "guards[0]: key and key_base64",
        ),
        (
            r#"{"cache":"c","key_base64":"a","absent":true}"#,
            "guards[0]: key_base64 is no base64",
        ),
        (r#"{"stream":"s"}"#, "guards[0]: tail is missing"),
        (r#"{"session":"9"}"#, "guards[0]: alive must be true"),
        (r#"{"session":"9","alive":false}"#, "guards[0]: alive must be true"),
        (
            r#"{"stream":"s","tail":"3","session":"9","alive":true}"#,
            "guards[0]: it must be of one",
        ),
        ("{}", "guards[0]: it must be of one"),
    ] {
        let error = refused(&format!("{{\"guards\":[{guard}]}}"));
        assert!(error.starts_with(rule), "{guard}: {error}");
    }
}

#[test]
fn a_number_is_a_string_or_one_that_every_reader_holds() {
    let tail = |number: &str| {
        let text = format!(r#"{{"guards":[{{"stream":"s","tail":{number}}}]}}"#);
        Transaction::parse(text.as_bytes())
    };
    for (number, value) in [
        ("0", 0),
        ("\"18446744073709551615\"", u64::MAX),
        ("9007199254740991", (1 << 53) - 1),
    ] {
        let Guard::Tail { tail, .. } = tail(number).unwrap().guards[0] else {
            panic!("another guard");
        };
        assert_eq!(tail, value);
    }
    for number in [
        "9007199254740992",
        "18446744073709551615",
        "\"18446744073709551616\"",
        "-1",
        "\"-1\"",
        "1.0",
        "1e3",
        "\"01\"",
        "\"+1\"",
        "\" 1\"",
        "\"\"",
        "true",
        "null",
        "[1]",
    ] {
        // Null is a field that is missing.
        assert!(tail(number).is_err(), "{number}");
    }
}

#[test]
fn no_text_makes_it_panic() {
    // A generator with a fixed seed: the same texts in every run.
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = |below: usize| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    };
    let pieces: [&[u8]; 14] = [
        b"\"",
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"null",
        b"-1",
        b"1e999",
        b"\\u0000",
        b"\xff",
        b"\"min\":1",
        b"9007199254740993",
    ];
    let mut read = 0;
    for _ in 0..20_000 {
        let mut text = EXAMPLE.as_bytes().to_vec();
        for _ in 0..=next(4) {
            if text.is_empty() {
                break;
            }
            let at = next(text.len());
            match next(4) {
                0 => text[at] ^= 1 << next(8),
                1 => drop(text.drain(at..(at + 1 + next(12)).min(text.len()))),
                2 => text.truncate(at + 1),
                _ => drop(text.splice(at..at, pieces[next(pieces.len())].iter().copied())),
            }
        }
        read += usize::from(Transaction::parse(&text).is_ok());
    }
    assert!(read > 0, "some of the texts are still transactions");
    let nested = "[".repeat(100_000);
    assert!(refused(&nested).contains("at line 1 column"));
    assert!(refused(&format!("{{\"guards\":{nested}")).contains("at line 1 column"));
}
