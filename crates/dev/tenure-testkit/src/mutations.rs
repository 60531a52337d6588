//! Damage to bytes by a seed, for tests of whatever reads bytes from outside.
//!
//! The crates at the bottom include this file by its path (`#[path]`): to depend on this crate would make them wait for
//! the client. So it uses nothing but the standard library.

use std::ops::Range;

/// Numbers that look random and are the same in each run (splitmix64).
#[derive(Clone, Debug)]
pub struct Seeded(u64);

impl Seeded {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Seeded {
        Seeded(seed)
    }

    /// A number below this; 0 if there is none.
    pub fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        if end == 0 { 0 } else { (mixed % end as u64) as usize }
    }

    fn byte(&mut self) -> u8 {
        self.below(256) as u8
    }

    /// A part of so many bytes, often short.
    fn part(&mut self, len: usize) -> Range<usize> {
        let from = self.below(len + 1);
        let longest = if self.below(2) == 0 { 8 } else { len };
        let until = (from + self.below(longest + 1)).min(len);
        from..until
    }
}

/// One of the bytes in `corpus`, damaged in one to four ways: bits turned, bytes set to where numbers change their
/// length, an end cut off, parts taken out, doubled, exchanged with a part of another of the corpus, and lengths that
/// claim more than there is. It has at most `length_max` bytes.
pub fn damaged(corpus: &[Vec<u8>], length_max: usize, seeded: &mut Seeded) -> Vec<u8> {
    let mut bytes = pick(corpus, seeded).to_vec();
    for _ in 0..=seeded.below(4) {
        damage(&mut bytes, corpus, seeded);
    }
    bytes.truncate(length_max);
    bytes
}

/// Damages these bytes in one way; `corpus` is where foreign parts come from.
pub fn damage(bytes: &mut Vec<u8>, corpus: &[Vec<u8>], seeded: &mut Seeded) {
    let at = seeded.below(bytes.len());
    match seeded.below(9) {
        0 | 1 if !bytes.is_empty() => bytes[at] ^= 1 << seeded.below(8),
        2 if !bytes.is_empty() => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][seeded.below(5)],
        3 => bytes.truncate(at),
        4 => {
            let part = seeded.part(bytes.len());
            bytes.drain(part);
        }
        5 => {
            let part = bytes[seeded.part(bytes.len())].to_vec();
            bytes.splice(at..at, part);
        }
        6 => {
            let other = pick(corpus, seeded);
            let foreign = other[seeded.part(other.len())].to_vec();
            let replaced = seeded.part(bytes.len());
            bytes.splice(replaced, foreign);
        }
        7 => {
            // A length or a number that claims very much, as both kinds of numbers are written.
            let claims: [&[u8]; 5] = [
                &[0xff, 0xff, 0xff, 0x7f],
                &[0xff, 0xff, 0xff, 0xff, 0x0f],
                &[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01],
                &[0xff, 0xff, 0xff, 0x03],
                &[0xff; 8],
            ];
            let claim = claims[seeded.below(claims.len())];
            let until = (at + seeded.below(claim.len() + 1)).min(bytes.len());
            bytes.splice(at..until, claim.iter().copied());
        }
        _ => {
            let random: Vec<u8> = (0..1 + seeded.below(12)).map(|_| seeded.byte()).collect();
            bytes.splice(at..at, random);
        }
    }
}

/// The most memory that this process had ever asked the system for, in bytes; `None` where the system does not say.
/// A difference of it says whether something in between asked for very much, even if it gave it back.
pub fn memory_peak() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmPeak:"))?;
    let kib: usize = line.trim().strip_suffix(" kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

/// Does something that must not ask for more than `growth_max` bytes of memory at any moment.
///
/// It is measured only if the test has the process for itself, as with the runner that the project uses: another
/// test's memory would count too.
///
/// # Panics
/// If it asked for more.
pub fn assert_modest<T>(growth_max: usize, work: impl FnOnce() -> T) -> T {
    let before = memory_peak();
    let result = work();
    let alone = std::env::var_os("NEXTEST_EXECUTION_MODE").is_some_and(|mode| mode == "process-per-test");
    if let (Some(before), Some(after), true) = (before, memory_peak(), alone) {
        let growth = after - before;
        assert!(
            growth <= growth_max,
            "{growth} bytes were asked for, {growth_max} are enough"
        );
    }
    result
}

fn pick<'a>(corpus: &'a [Vec<u8>], seeded: &mut Seeded) -> &'a [u8] {
    &corpus[seeded.below(corpus.len())]
}
