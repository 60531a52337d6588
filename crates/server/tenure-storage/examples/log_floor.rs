//! How close the log comes to a bare file: the same batches written to a preallocated file with one write and one
//! `fdatasync` each, and appended to the log.
//!
//! `cargo run --release -p tenure-storage --example log_floor [folder]`; the folder must be on the disk in question.

use std::cell::Cell;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use bytes::Bytes;
use tenure_storage::disk::{Disk, DiskFile, Files, OpenMode};
use tenure_storage::log::{GroupId, GroupLog, Log, LogOptions, Spawner, WriterMode};

const ROUNDS: u64 = 20;
const BATCHES_A_ROUND: u64 = 200;
const PAYLOAD_LENGTH: usize = 100;
/// What a record costs on top of its payload.
const RECORD_HEADER_LENGTH: usize = 40;
const FILE_LENGTH: u64 = 32 << 20;
/// Callers that wait for each of their entries.
const CALLERS: u32 = 64;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let parent = std::env::args().nth(1).unwrap_or_else(|| ".".to_owned());
    println!(
        "{:>8} {:>26} {:>12} {:>12} {:>9}",
        "a batch", "written by", "batches/s", "entries/s", "of bare"
    );
    for entries in [1, 16, 64, 512] {
        let folder = tempfile::tempdir_in(&parent)?;
        let bare = BareFile::make(folder.path(), entries)?;
        let inline = open(&folder.path().join("inline"), WriterMode::Inline)?;
        let threaded = open(&folder.path().join("threaded"), WriterMode::Thread(spawner()))?;
        let (mut bare_time, mut inline_time, mut threaded_time) = Default::default();
        // In turns, so that whatever else the machine does slows all of them down.
        for _ in 0..ROUNDS {
            bare_time += time(|| bare.write_batches())?;
            inline_time += time(|| append_one_by_one(&inline, entries))?;
            threaded_time += time(|| append_one_by_one(&threaded, entries))?;
        }
        report(entries, "a bare file", bare_time, bare_time);
        report(entries, "the log, inline", inline_time, bare_time);
        report(entries, "the log, its own thread", threaded_time, bare_time);
        inline.close();
        threaded.close();
    }
    let folder = tempfile::tempdir_in(&parent)?;
    let log = open(folder.path(), WriterMode::Thread(spawner()))?;
    let before = log.stats();
    let entries = ROUNDS * BATCHES_A_ROUND * 25;
    let took = time(|| append_from_callers(&log, entries))?;
    let stats = log.stats();
    println!(
        "{CALLERS} callers over 8 groups: {:.0} entries/s, {:.1} entries a sync, syncs of {} us on average",
        entries as f64 / took.as_secs_f64(),
        (stats.entries - before.entries) as f64 / (stats.syncs - before.syncs) as f64,
        stats.sync_sum_us / stats.syncs.max(1),
    );
    log.close();
    Ok(())
}

fn report(entries: u64, what: &str, took: Duration, bare: Duration) {
    let rate = (ROUNDS * BATCHES_A_ROUND) as f64 / took.as_secs_f64();
    let part = bare.as_secs_f64() / took.as_secs_f64() * 100.0;
    println!(
        "{entries:>8} {what:>26} {rate:>12.0} {:>12.0} {part:>8.0}%",
        rate * entries as f64
    );
}

fn now() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

fn time<E>(work: impl FnOnce() -> Result<(), E>) -> Result<Duration, E> {
    let begun = now();
    work()?;
    Ok(now() - begun)
}

fn open(folder: &Path, mode: WriterMode) -> Result<Log, Box<dyn std::error::Error>> {
    let options = LogOptions {
        clock: Arc::new(now),
        ..LogOptions::default()
    };
    Ok(Log::open(Arc::new(Files), folder, options, mode)?)
}

#[expect(clippy::disallowed_methods, reason = "this is the runtime that hands threads in")]
fn spawner() -> Spawner {
    Arc::new(|name, work| {
        std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)
            .map(|_| ())
    })
}

/// Written over and over, as segments are.
struct BareFile {
    file: Box<dyn DiskFile>,
    offset: Cell<u64>,
    batch_length: usize,
}

impl BareFile {
    fn make(folder: &Path, entries: u64) -> std::io::Result<BareFile> {
        let file = Files.open(&folder.join("bare"), OpenMode::Create)?;
        file.allocate(FILE_LENGTH)?;
        file.write_at(0, &vec![0; FILE_LENGTH as usize])?;
        file.sync_data()?;
        let batch_length = entries as usize * (PAYLOAD_LENGTH + RECORD_HEADER_LENGTH);
        Ok(BareFile {
            file,
            offset: Cell::new(0),
            batch_length,
        })
    }

    fn write_batches(&self) -> std::io::Result<()> {
        let batch = vec![7; self.batch_length];
        for _ in 0..BATCHES_A_ROUND {
            let end = self.offset.get() + batch.len() as u64;
            let offset = if end > FILE_LENGTH { 0 } else { self.offset.get() };
            self.file.write_at(offset, &batch)?;
            self.file.sync_data()?;
            self.offset.set(offset + batch.len() as u64);
        }
        Ok(())
    }
}

fn append_one_by_one(log: &Log, entries: u64) -> Result<(), Box<dyn std::error::Error>> {
    let group = log.group(GroupId(1));
    let (sender, receiver) = mpsc::channel();
    let mut next = group.state().purged.map_or(1, |(upto, _)| upto + 1);
    for _ in 0..BATCHES_A_ROUND {
        let payload = Bytes::from(vec![7; PAYLOAD_LENGTH]);
        let sender = sender.clone();
        let list = (next..next + entries).map(|index| (index, payload.clone())).collect();
        group.append(list, Box::new(move |result| sender.send(result).unwrap_or(())));
        receiver.recv()??;
        next += entries;
    }
    purge_behind(&group, next).recv()??;
    Ok(())
}

/// Purges what is behind, so that segments are used again.
fn purge_behind(group: &GroupLog, next: u64) -> mpsc::Receiver<Result<(), tenure_storage::error::LogFailed>> {
    let (sender, receiver) = mpsc::channel();
    group.purge(
        next - 1,
        Bytes::new(),
        Box::new(move |result| sender.send(result).unwrap_or(())),
    );
    receiver
}

#[expect(clippy::disallowed_methods, reason = "the callers are threads")]
fn append_from_callers(log: &Log, entries: u64) -> Result<(), Box<dyn std::error::Error>> {
    // One thread a group hands out what its callers want next, as consensus would: an entry for each that has its last.
    std::thread::scope(|scope| {
        for number in 0..8 {
            let group = log.group(GroupId(number));
            scope.spawn(move || {
                let (sender, receiver) = mpsc::channel();
                let mut next = 1;
                let mut waiting = 0;
                let mut left = entries / 8;
                while left > 0 || waiting > 0 {
                    let free = (u64::from(CALLERS / 8) - waiting).min(left);
                    if free > 0 {
                        let list = (next..next + free).map(|index| (index, Bytes::from(vec![1; PAYLOAD_LENGTH])));
                        let sender = sender.clone();
                        group.append(
                            list.collect(),
                            Box::new(move |result| sender.send(result.map(|()| free)).unwrap_or(())),
                        );
                        next += free;
                        left -= free;
                        waiting += free;
                    }
                    match receiver.recv() {
                        Ok(Ok(done)) => waiting -= done,
                        other => return eprintln!("{other:?}"),
                    }
                }
            });
        }
    });
    Ok(())
}
