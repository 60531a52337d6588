//! Each prefix of a key is found, and the others are not even looked at.

use super::*;

fn of(prefixes: &[&str]) -> Prefixes<String> {
    let mut map = Prefixes::default();
    for prefix in prefixes {
        map.insert(Bytes::copy_from_slice(prefix.as_bytes()), (*prefix).to_owned());
    }
    map
}

fn found(map: &Prefixes<String>, key: &str) -> Vec<String> {
    let mut found = Vec::new();
    map.visit(key.as_bytes(), |value| found.push(value.clone()));
    found
}

#[test]
fn every_prefix_of_a_key_is_found_once_the_longest_first() {
    let map = of(&["", "a", "a/b", "a/b/c", "a/b/d", "a0", "b", "a/b/cc"]);
    assert_eq!(found(&map, "a/b/c"), ["a/b/c", "a/b", "a", ""]);
    assert_eq!(found(&map, "a/b/cz"), ["a/b/c", "a/b", "a", ""]);
    assert_eq!(found(&map, "zebra"), [""]);
    assert_eq!(found(&map, ""), [""]);
    assert!(found(&of(&["b"]), "a").is_empty());
}

#[test]
fn it_finds_what_a_look_at_all_of_them_finds() {
    // All words of up to four letters of three, as prefixes and as keys.
    let mut words = vec![String::new()];
    for _ in 0..4 {
        let longer: Vec<String> = words
            .iter()
            .flat_map(|word| ["a", "b", "c"].map(|letter| format!("{word}{letter}")))
            .collect();
        words.extend(longer);
        words.sort_unstable();
        words.dedup();
    }
    // A third of them are watched.
    let watched: Vec<&str> = words.iter().step_by(3).map(String::as_str).collect();
    let map = of(&watched);
    for key in &words {
        let mut expected: Vec<&str> = watched
            .iter()
            .copied()
            .filter(|prefix| key.starts_with(prefix))
            .collect();
        expected.sort_unstable_by_key(|prefix| std::cmp::Reverse(prefix.len()));
        assert_eq!(found(&map, key), expected, "of {key}");
    }
}

#[test]
fn ten_thousand_other_prefixes_cost_a_change_a_handful_of_looks() {
    let mut map = Prefixes::default();
    for number in 0..10_000 {
        map.insert(Bytes::from(format!("tenant-{number:05}/")), number);
    }
    map.insert(Bytes::from_static(b"jobs/"), 10_000);
    for (key, wanted) in [
        ("jobs/17", vec![10_000]),
        ("tenant-04321/lease", vec![4_321]),
        ("tenant-x", vec![]),
        ("zzz", vec![]),
        ("", vec![]),
    ] {
        let mut found = Vec::new();
        let looked_at = map.visit(key.as_bytes(), |value| found.push(*value));
        assert_eq!(found, wanted, "of {key}");
        assert!(looked_at <= 8, "{looked_at} prefixes were looked at for {key}");
    }
}
