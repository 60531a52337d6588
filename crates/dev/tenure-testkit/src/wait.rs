//! Waiting for a condition, with a limit. Nothing in a test waits for time alone to pass.

use std::time::{Duration, Instant};

/// How often a condition is looked at.
pub const TICK: Duration = Duration::from_millis(5);

/// Waits until the condition holds.
///
/// # Panics
/// If it does not hold in that time.
pub async fn eventually(what: &str, limit: Duration, mut condition: impl AsyncFnMut() -> bool) {
    eventually_some(what, limit, async || condition().await.then_some(())).await;
}

/// Waits until there is something, and returns it.
///
/// # Panics
/// If there is nothing in that time.
pub async fn eventually_some<T>(what: &str, limit: Duration, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(started.elapsed() < limit, "not in {limit:?}: {what}");
        tokio::time::sleep(TICK).await;
    }
}

/// Waits until a value has not changed for so long, and returns it.
///
/// # Panics
/// If it never stands still so long within the limit.
pub async fn wait_unchanged<T: PartialEq>(
    what: &str,
    still: Duration,
    limit: Duration,
    mut look: impl AsyncFnMut() -> T,
) -> T {
    let started = Instant::now();
    let mut last = look().await;
    let mut since = Instant::now();
    while since.elapsed() < still {
        assert!(started.elapsed() < limit, "it did not stand still in {limit:?}: {what}");
        tokio::time::sleep(TICK).await;
        let now = look().await;
        if now != last {
            last = now;
            since = Instant::now();
        }
    }
    last
}
