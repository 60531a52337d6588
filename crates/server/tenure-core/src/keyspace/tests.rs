//! Keys of rows lie in the order of what they name, and nothing lies inside the range of something else.

use proptest::prelude::*;

use super::*;
use crate::table::{MemTable, prefix_end};

fn name() -> impl Strategy<Value = String> {
    "[a-zA-Z0-9._-]{1,6}"
}

fn namespace() -> impl Strategy<Value = Namespace> {
    (name(), name()).prop_map(|(tenant, name)| Namespace { tenant, name })
}

proptest! {
    #[test]
    fn a_namespace_holds_its_own_rows_and_no_others(a in namespace(), b in namespace(), cache_name in name(), stream_name in name(), id: u64) {
        let (start, end) = (caches_of(&a), prefix_end(&caches_of(&a)).expect("a kind byte is below 255"));
        let of_b = cache(&ObjectName { namespace: b.clone(), name: cache_name });
        prop_assert_eq!(start <= of_b && of_b < end, a == b);
        let of_b = stream(&ObjectName { namespace: b.clone(), name: stream_name });
        let (start, end) = (streams_of(&a), prefix_end(&streams_of(&a)).expect("a kind byte is below 255"));
        prop_assert_eq!(start <= of_b && of_b < end, a == b);
        let (start, end) = (sessions_of(&a), prefix_end(&sessions_of(&a)).expect("a kind byte is below 255"));
        let of_b = session_of(&b, SessionId(id));
        prop_assert_eq!(start <= of_b && of_b < end, a == b);
        prop_assert_eq!(number_at(&of_b, sessions_of(&b).len()), id);
    }

    #[test]
    fn rows_lie_in_the_order_of_their_numbers(a: (u64, u64), b: (u64, u64), key_a: Vec<u8>, key_b: Vec<u8>) {
        prop_assert_eq!(session(SessionId(a.0)).cmp(&session(SessionId(b.0))), a.0.cmp(&b.0));
        prop_assert_eq!(result(SessionId(a.0), a.1).cmp(&result(SessionId(b.0), b.1)), a.cmp(&b));
        let (life_a, life_b) = (Incarnation(a.0), Incarnation(b.0));
        prop_assert_eq!(key(life_a, &key_a).cmp(&key(life_b, &key_b)), (a.0, &key_a).cmp(&(b.0, &key_b)));
        let (owned_a, owned_b) = (owned(SessionId(a.0), life_a, &key_a), owned(SessionId(b.0), life_b, &key_b));
        prop_assert_eq!(owned_a.cmp(&owned_b), (a.0, &key_a).cmp(&(b.0, &key_b)));
        prop_assert_eq!(record(life_a, a.1).cmp(&record(life_b, b.1)), a.cmp(&b));
        let id_ends = [id_end(life_a, Timestamp(a.1), &key_a), id_end(life_b, Timestamp(b.1), &key_b)];
        prop_assert_eq!(id_ends[0].cmp(&id_ends[1]), (a, &key_a).cmp(&(b, &key_b)));
        let ids = [message_id(life_a, &key_a), message_id(life_b, &key_b)];
        prop_assert_eq!(ids[0].cmp(&ids[1]), (a.0, &key_a).cmp(&(b.0, &key_b)));
        prop_assert_eq!(number_in(&session(SessionId(a.0))), a.0);
        prop_assert_eq!(number_at(&owned_a, 9), a.0);
        prop_assert_eq!(wide_in(&nonce(Nonce(u128::from(a.1) << 64))), u128::from(a.1) << 64);
    }
}

#[test]
fn a_row_is_read_as_it_was_written() {
    let mut table = MemTable::new();
    let len = write(&mut table, TIME.to_vec(), &Timestamp(300));
    assert_eq!(read(&table, TIME), Some(Timestamp(300)));
    assert_eq!(table.get(TIME).map(|bytes| bytes.len()), Some(len));
    assert_eq!(read::<Timestamp>(&table, REVISIONS), None);
}

#[test]
#[should_panic(expected = "the row T is damaged")]
fn a_row_of_another_form_stops_the_group() {
    decode::<Timestamp>(TIME, &[2, 7]);
}

#[test]
#[should_panic(expected = "the row T is damaged")]
fn a_row_with_something_behind_it_stops_the_group() {
    decode::<Timestamp>(TIME, &[1, 7, 7]);
}
