//! Randomness from a seed.

use std::sync::atomic::{AtomicU64, Ordering};

/// The step of the sequence: 2^64 divided by the golden ratio.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// An endless sequence of numbers that its seed determines. It is not for secrets.
#[derive(Debug)]
pub(crate) struct SeededRandom {
    state: AtomicU64,
}

impl SeededRandom {
    /// The sequence of this seed.
    pub(crate) fn new(seed: u64) -> SeededRandom {
        SeededRandom {
            state: AtomicU64::new(seed),
        }
    }

    /// A sequence of its own for the part of this name, which does not depend on how much others have drawn.
    pub(crate) fn of(seed: u64, name: &str) -> SeededRandom {
        let mut state = mixed(seed.wrapping_add(STEP));
        for byte in name.bytes() {
            state = mixed(state ^ u64::from(byte)).wrapping_add(STEP);
        }
        SeededRandom::new(state)
    }

    /// The next 64 bits.
    pub(crate) fn bits(&self) -> u64 {
        mixed(self.state.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP))
    }

    /// A number from `low` up to, and without, `high`. Without room between them: `low`.
    pub(crate) fn between(&self, low: u64, high: u64) -> u64 {
        match high.saturating_sub(low) {
            0 => low,
            // The slight preference for small numbers does not matter here.
            width => low + self.bits() % width,
        }
    }

    /// True in so many of a hundred cases.
    pub(crate) fn percent(&self, percent: u64) -> bool {
        self.between(0, 100) < percent
    }

    fn fill_bytes(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.bits().to_le_bytes()[..chunk.len()]);
        }
    }
}

impl tenure_replica::runtime::Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        self.fill_bytes(buffer);
    }
}

impl tenure_client::runtime::Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        self.fill_bytes(buffer);
    }
}

/// Splitmix64's mixer: a bijection in which each bit depends on every other.
fn mixed(bits: u64) -> u64 {
    let bits = (bits ^ (bits >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let bits = (bits ^ (bits >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests;
