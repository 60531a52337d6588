//! A histogram of fixed buckets: noting costs two additions, and it never grows. (That of the exporter keeps every
//! sample until somebody reads it.)

use std::fmt::Write;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of values in buckets, each holding what is at or below its bound and above the one before.
#[derive(Debug)]
pub(crate) struct Histogram {
    name: &'static str,
    bounds: &'static [u64],
    /// What a value is divided by when it is shown.
    scale: u64,
    /// One for each bound, and one for what lies above all of them.
    counts: Vec<AtomicU64>,
    sum: AtomicU64,
}

impl Histogram {
    /// A histogram with these ascending bounds.
    pub(crate) fn new(name: &'static str, bounds: &'static [u64], scale: u64) -> Histogram {
        Histogram {
            name,
            bounds,
            scale,
            counts: (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect(),
            sum: AtomicU64::new(0),
        }
    }

    /// Counts a value.
    pub(crate) fn note(&self, value: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(value, Ordering::Relaxed);
    }

    /// Appends it in the Prometheus text format.
    pub(crate) fn render(&self, text: &mut String) {
        let name = self.name;
        let mut count = 0;
        // Writing into a string cannot fail.
        let _ = writeln!(text, "# TYPE {name} histogram");
        for (bound, bucket) in self.bounds.iter().zip(&self.counts) {
            count += bucket.load(Ordering::Relaxed);
            let _ = writeln!(text, "{name}_bucket{{le=\"{}\"}} {count}", self.shown(*bound));
        }
        count += self.counts[self.bounds.len()].load(Ordering::Relaxed);
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum {}", self.shown(self.sum.load(Ordering::Relaxed)));
        let _ = writeln!(text, "{name}_count {count}");
    }

    #[expect(clippy::cast_precision_loss, reason = "metrics are for looking at")]
    fn shown(&self, value: u64) -> f64 {
        value as f64 / self.scale as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_counted_up_to_and_including_each_bound() {
        let histogram = Histogram::new("late_seconds", &[1_000, 2_000_000], 1_000_000);
        for value in [0, 1_000, 1_001, 2_000_000, 9_000_000] {
            histogram.note(value);
        }
        let mut text = String::new();
        histogram.render(&mut text);
        assert_eq!(
            text,
            "# TYPE late_seconds histogram\n\
             late_seconds_bucket{le=\"0.001\"} 2\n\
             late_seconds_bucket{le=\"2\"} 4\n\
             late_seconds_bucket{le=\"+Inf\"} 5\n\
             late_seconds_sum 11.002001\n\
             late_seconds_count 5\n"
        );
    }
}
