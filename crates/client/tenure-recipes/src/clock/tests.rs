//! The two clocks agree until the machine sleeps.

use std::time::Duration;

use super::{Clock, Instants, ManualClock};

#[test]
fn clocks_that_run_alike_agree_and_a_suspension_is_their_difference() {
    let clock = ManualClock::new(Instants {
        boot: Duration::from_secs(100),
        monotonic: Duration::from_secs(40),
    });
    let first = clock.now();
    clock.advance(Duration::from_secs(5));
    assert_eq!(clock.now().disagreement_since(first), Duration::ZERO);
    clock.suspend(Duration::from_secs(60));
    assert_eq!(clock.now().disagreement_since(first), Duration::from_secs(60));
    assert_eq!(clock.now().boot, Duration::from_secs(165));
}
