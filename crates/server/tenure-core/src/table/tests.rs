//! The overlay reads as if its writes were in the table.

use proptest::prelude::*;

use super::*;

proptest! {
    #[test]
    fn an_overlay_reads_like_the_table_that_it_becomes(
        base in proptest::collection::btree_map(proptest::collection::vec(0u8..4, 0..3), any::<u8>(), 0..20),
        writes in proptest::collection::vec((proptest::collection::vec(0u8..4, 0..3), any::<Option<u8>>()), 0..20),
        from in proptest::collection::vec(0u8..4, 0..3),
        to in proptest::collection::vec(0u8..4, 0..3),
        stop_after in 1usize..10,
    ) {
        let mut table = MemTable::new();
        for (key, value) in base {
            table.put(key, Bytes::from(vec![value]));
        }
        let mut overlay = Overlay::new(&table);
        for (key, value) in writes {
            match value {
                Some(value) => overlay.put(key, Bytes::from(vec![value])),
                None => overlay.delete(&key),
            }
        }
        let seen = collect(&overlay, &from, &to, stop_after);
        let one = overlay.get(&from);
        let written = overlay.into_writes();
        let mut after = table.clone();
        after.commit(written);
        prop_assert_eq!(seen, collect(&after, &from, &to, stop_after));
        prop_assert_eq!(one, after.get(&from));
    }
}

#[test]
fn the_end_of_a_prefix_is_behind_everything_that_begins_with_it() {
    assert_eq!(prefix_end(b"ab"), Some(b"ac".to_vec()));
    assert_eq!(prefix_end(&[b'a', 255]), Some(b"b".to_vec()));
    assert_eq!(prefix_end(&[255, 255]), None);
    assert_eq!(prefix_end(b""), None);
}

fn collect(table: &dyn TableRead, from: &[u8], to: &[u8], stop_after: usize) -> Vec<(Vec<u8>, Bytes)> {
    let mut rows = Vec::new();
    table.scan(from, to, &mut |key, value| {
        rows.push((key.to_vec(), value.clone()));
        if rows.len() == stop_after {
            Visit::Break(())
        } else {
            Visit::Continue(())
        }
    });
    rows
}
