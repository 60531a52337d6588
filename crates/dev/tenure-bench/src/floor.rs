//! What the machine itself gives: below this no durable system on it can come.

use std::fs::File;
use std::io::{self, Write as _};
use std::path::Path;
use std::time::{Duration, Instant};

use crate::histogram::Histogram;

/// What is appended for each sync: about as much as one small write of a log.
const APPEND: [u8; 128] = [b'f'; 128];
/// The file is begun anew at this length.
const FILE_LENGTH_MAX: u64 = 64 << 20;

/// Appends a little to a file in this folder and syncs its data, over and over for so long; the latencies are those of
/// an append with its sync. The file is removed.
///
/// # Errors
/// What the disk said.
pub fn appends_with_sync(folder: &Path, duration: Duration) -> io::Result<Histogram> {
    let path = folder.join("tenure-bench-floor");
    let result = append(&path, duration);
    std::fs::remove_file(&path)?;
    result
}

fn append(path: &Path, duration: Duration) -> io::Result<Histogram> {
    let mut file = File::create(path)?;
    let mut latencies = Histogram::new();
    let mut length = 0;
    let begun = Instant::now();
    while begun.elapsed() < duration {
        if length >= FILE_LENGTH_MAX {
            file = File::create(path)?;
            length = 0;
        }
        let started = Instant::now();
        file.write_all(&APPEND)?;
        file.sync_data()?;
        length += APPEND.len() as u64;
        latencies.record(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
    }
    Ok(latencies)
}
