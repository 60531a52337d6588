//! Tests of the simulated clocks.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Duration;

use super::VirtualClock;

#[test]
fn outside_of_a_simulation_a_clock_stands_still() {
    let clock = VirtualClock::up_for(Duration::from_secs(9));
    assert_eq!(clock.reading(), Duration::from_secs(9));
    assert_eq!(
        VirtualClock::started_at(Duration::from_secs(3)).reading(),
        Duration::ZERO
    );
}

#[test]
fn a_clock_goes_with_the_time_of_the_simulation() {
    let mut sim = turmoil::Builder::new().build();
    let passed = Rc::new(Cell::new(Duration::ZERO));
    let shared = Rc::clone(&passed);
    sim.client("machine", async move {
        let clock = VirtualClock::up_for(Duration::from_secs(9));
        let start = clock.reading();
        let nothing = tokio::time::timeout(Duration::from_millis(700), std::future::pending::<()>());
        assert!(nothing.await.is_err());
        shared.set(clock.reading() - start);
        Ok(())
    });
    sim.run().expect("the client ends");
    assert_eq!(passed.get(), Duration::from_millis(700));
}
