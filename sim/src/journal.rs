//! All that can be observed of a run, as text, one line a fact.

use std::fmt::{self, Write as _};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock;

/// The text of a run. Each line begins with the time of the simulation and the machine that it is about.
#[derive(Debug, Default)]
pub(crate) struct Journal {
    text: Mutex<String>,
}

impl Journal {
    /// Writes a line about the machine that is running now.
    pub(crate) fn note(&self, who: &str, what: impl fmt::Display) {
        self.note_at(clock::now().unwrap_or_default(), who, what);
    }

    /// Writes a line, for who stands outside of the simulation and knows its time.
    pub(crate) fn note_at(&self, time: Duration, who: &str, what: impl fmt::Display) {
        let (seconds, micros) = (time.as_secs(), time.subsec_micros());
        let mut text = self.text();
        writeln!(text, "{seconds:>4}.{micros:06} {who:<9} {what}").expect("a string takes whatever is written to it");
    }

    /// What was written so far.
    pub(crate) fn read(&self) -> String {
        self.text().clone()
    }

    fn text(&self) -> MutexGuard<'_, String> {
        self.text.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A digest of a sequence of bytes (FNV-1a): two that differ are equal once in 2^64 by chance. It withstands no malice.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Digest(u64);

impl Digest {
    /// Takes further bytes.
    pub(crate) fn add(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = (self.0 ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        }
    }
}

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xcbf2_9ce4_8422_2325)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
