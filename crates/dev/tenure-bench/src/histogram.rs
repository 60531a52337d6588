//! Latencies in bounded memory.

/// Values below this are counted exactly; above it each doubling is cut into half as many parts.
const EXACT: u64 = 128;
/// `EXACT` is two to this.
const EXACT_BITS: u32 = 7;
const PARTS: usize = 64;
/// Values up to 2^32 microseconds, more than an hour, are told apart; longer ones count as the longest.
const BUCKETS: usize = EXACT as usize + (32 - EXACT_BITS as usize) * PARTS;

/// How often each latency occurred, in microseconds, within 1.6 %.
#[derive(Clone, Debug)]
pub struct Histogram {
    counts: Vec<u64>,
    total: u64,
}

impl Histogram {
    /// One without a value.
    pub fn new() -> Histogram {
        Histogram {
            counts: vec![0; BUCKETS],
            total: 0,
        }
    }

    /// Counts a value.
    pub fn record(&mut self, microseconds: u64) {
        self.counts[bucket(microseconds)] += 1;
        self.total += 1;
    }

    /// Adds what another has counted.
    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(&other.counts) {
            *count += more;
        }
        self.total += other.total;
    }

    /// How many values were counted.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The value that this many of a thousand do not exceed; 0 if none was counted.
    pub fn per_mille(&self, per_mille: u64) -> u64 {
        let wanted = (self.total * per_mille.min(1_000)).div_ceil(1_000).max(1);
        let mut seen = 0;
        for (index, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                return value(index);
            }
        }
        0
    }
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram::new()
    }
}

fn bucket(microseconds: u64) -> usize {
    let bounded = microseconds.min(u64::from(u32::MAX));
    if bounded < EXACT {
        return bounded as usize;
    }
    // The number of doublings beyond the exact part, and the leading bits below the first one.
    let doublings = bounded.ilog2() - EXACT_BITS;
    let part = (bounded >> (doublings + 1)) as usize - PARTS;
    EXACT as usize + doublings as usize * PARTS + part
}

/// The lowest value of a bucket.
fn value(index: usize) -> u64 {
    if index < EXACT as usize {
        return index as u64;
    }
    let beyond = index - EXACT as usize;
    ((PARTS + beyond % PARTS) as u64) << (beyond / PARTS + 1)
}

#[cfg(test)]
mod tests;
