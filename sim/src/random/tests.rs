//! Tests of the seeded randomness.

use super::SeededRandom;

fn first(random: &SeededRandom) -> Vec<u64> {
    (0..8).map(|_| random.bits()).collect()
}

#[test]
fn a_seed_and_a_name_determine_the_sequence() {
    assert_eq!(first(&SeededRandom::of(7, "node")), first(&SeededRandom::of(7, "node")));
    assert_ne!(first(&SeededRandom::of(7, "node")), first(&SeededRandom::of(8, "node")));
    assert_ne!(
        first(&SeededRandom::of(7, "node")),
        first(&SeededRandom::of(7, "worker-1"))
    );
}

#[test]
fn numbers_stay_between_their_bounds() {
    let random = SeededRandom::new(1);
    for _ in 0..1_000 {
        assert!((3..9).contains(&random.between(3, 9)));
    }
    assert_eq!(random.between(5, 5), 5);
    assert_eq!(random.between(5, 4), 5);
    assert!(!random.percent(0));
    assert!(random.percent(100));
}
