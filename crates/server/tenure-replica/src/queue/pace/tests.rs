//! The pace is that of full entries, and a line that stands still has little room.

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(1);

fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn a_line_that_was_never_full_has_all_the_room_there_is() {
    let mut pace = Pace::default();
    for at in 0..100 {
        pace.note_first(ms(at * 50));
        pace.note_taken(ms(at * 50 + 20), 3, false, false);
    }
    assert_eq!(pace.room(WAIT_MAX, ms(5_000)), usize::MAX);
}

#[test]
fn the_room_is_what_the_line_takes_in_the_longest_wait() {
    let mut pace = Pace::default();
    for at in 0..20 {
        // A thousand units every 20 ms: 50,000 a second.
        pace.note_taken(ms(at * 20), 1_000, true, true);
    }
    assert_eq!(pace.room(WAIT_MAX, ms(390)), 50_000);
    assert_eq!(pace.retry_after(50_000), ms(500));
    for at in 20..60 {
        // Four times as slow.
        pace.note_taken(ms(at * 80), 1_000, true, true);
    }
    let room = pace.room(WAIT_MAX, ms(60 * 80));
    assert!((12_500..12_600).contains(&room), "{room}");
}

#[test]
fn a_line_from_which_nothing_is_taken_has_little_room_until_it_moves() {
    let mut pace = Pace::default();
    pace.note_first(ms(0));
    assert_eq!(pace.room(WAIT_MAX, ms(500)), usize::MAX);
    assert_eq!(pace.room(WAIT_MAX, ms(501)), ROOM_UNITS_MIN);
    pace.note_taken(ms(600), 1_024, true, true);
    assert_eq!(pace.room(WAIT_MAX, ms(601)), usize::MAX);
}

#[test]
fn a_unit_is_a_command_or_a_kibibyte_whichever_is_more() {
    assert_eq!([units(1), units(1_024), units(1_025), units(1 << 20)], [1, 1, 2, 1_024]);
}
