//! A disk that is almost full, and one that is full, under a real process. It needs the right to mount, which root has.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use tempfile::TempDir;
use tenure_client::ErrorCode;
use tenure_testkit::{Disks, NodeProcess, eventually};

use crate::support::{SOON, Site, client};

/// Size of the disk. A quarter of it is kept in reserve.
const DISK_BYTES: u64 = 320 << 20;
const RESERVE_BYTES: u64 = DISK_BYTES / 4;
/// Size of a disk on which the state takes more room than what the log and the journals may take.
const LARGER_DISK_BYTES: u64 = 600 << 20;
const LARGE_VALUE_BYTES: usize = 512 << 10;
/// How often the disk is filled and emptied at most.
const ROUNDS_MAX: usize = 100;
const CHUNK_BYTES: usize = 1 << 20;
const KEYS: usize = 64;
const VALUE_BYTES: usize = 1 << 10;
/// Renewals that a node may take on a full disk before it has to write something that has no room.
const RENEWALS_MAX: usize = 400_000;

/// A disk of its own, mounted over a folder.
struct SmallDisk {
    folder: TempDir,
    disks: Disks,
}

impl SmallDisk {
    fn mount() -> SmallDisk {
        SmallDisk::mount_of(DISK_BYTES)
    }

    fn mount_of(bytes: u64) -> SmallDisk {
        let folder = TempDir::new().expect("a temporary folder");
        let mut disks = Disks::start();
        disks.mount(folder.path(), bytes);
        SmallDisk { folder, disks }
    }

    /// Starts a node on it.
    fn start_node(&self) -> NodeProcess {
        NodeProcess::start_under(&self.folder.path().join("node"), &self.disks.wrapper())
    }

    /// Where a file of the disk is for this process.
    fn reach(&self, name: &str) -> PathBuf {
        self.disks.reach(&self.folder.path().join(name))
    }

    fn free(&self) -> u64 {
        self.disks.free(self.folder.path())
    }

    /// Fills it with a file until so much is free.
    fn fill(&self, free: u64) {
        let mut filler = File::options()
            .create(true)
            .append(true)
            .open(self.reach("filler"))
            .expect("the disk can be written");
        let chunk = vec![7; CHUNK_BYTES];
        loop {
            let left = self.free().saturating_sub(free);
            let length = usize::try_from(left).unwrap_or(CHUNK_BYTES).min(CHUNK_BYTES);
            // The node writes too, so the last of it may be gone meanwhile.
            if length == 0 || filler.write_all(&chunk[..length]).is_err() {
                return;
            }
        }
    }

    fn empty(&self) {
        fs::remove_file(self.reach("filler")).expect("the filler is there");
    }
}

/// A node on such a disk, with keys.
async fn start(disk: &SmallDisk) -> Site {
    let site = Site::on(TempDir::new().expect("a temporary folder"), disk.start_node()).await;
    for key in 0..KEYS {
        put(&site, key).await.expect("there is room");
    }
    site
}

fn name(key: usize) -> String {
    format!("key-{key:03}")
}

async fn put(site: &Site, key: usize) -> Result<(), tenure_client::Error> {
    let verdict = site.cache.put(name(key), vec![b'v'; VALUE_BYTES]).await?;
    assert!(verdict.is_done());
    Ok(())
}

/// Whether a write that grows is refused because there is no room; `None` if the node gave no answer to it.
async fn is_full(site: &Site) -> Option<bool> {
    let quick = site
        .client
        .with_timeout(Duration::from_millis(500))
        .cache(site.cache.name());
    match quick.put("probe", "value").await {
        Ok(_) => Some(false),
        Err(error) if error.code() == ErrorCode::StorageFull => Some(true),
        Err(_) => None,
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn below_the_reserve_writes_are_refused_and_deletes_go_on_until_there_is_room_again() {
    let disk = SmallDisk::mount();
    let mut site = start(&disk).await;
    disk.fill(RESERVE_BYTES / 2);
    eventually("writes are refused", SOON, async || is_full(&site).await == Some(true)).await;
    for key in 0..KEYS / 2 {
        let deleted = site.cache.delete(name(key)).await.expect("a delete goes on");
        assert!(deleted.is_done());
    }
    let touched = site.cache.touch(name(KEYS - 1), Duration::from_secs(600)).await;
    assert!(touched.expect("a renewal goes on").is_done());
    println!("{} bytes free of {DISK_BYTES}, writes refused", disk.free());
    // A restart changes nothing of it.
    site.node.kill();
    site.node.restart();
    eventually("writes are refused", SOON, async || is_full(&site).await == Some(true)).await;
    disk.empty();
    eventually("writes are taken", SOON, async || is_full(&site).await == Some(false)).await;
    for key in 0..KEYS {
        let there = site.cache.get(name(key)).await.expect("the node answers").is_some();
        assert_eq!(there, key >= KEYS / 2, "{}", name(key));
        put(&site, key).await.expect("there is room");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_is_deleted_makes_room_without_a_restart() {
    let disk = SmallDisk::mount_of(LARGER_DISK_BYTES);
    let site = start(&disk).await;
    let (mut random, mut written, mut round) = (1u64, 0, 0);
    // More than there is on the whole disk: what was deleted is room again.
    while written * LARGE_VALUE_BYTES <= usize::try_from(LARGER_DISK_BYTES).expect("it fits") {
        let mut keys = 0;
        loop {
            // Not to be made smaller by any compression.
            let value = std::iter::repeat_with(|| {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                (random >> 56) as u8
            });
            let value: Vec<u8> = value.take(LARGE_VALUE_BYTES).collect();
            match site.cache.put(format!("large-{keys}"), value).await {
                Ok(verdict) => assert!(verdict.is_done()),
                Err(error) if error.code() == ErrorCode::StorageFull => break,
                Err(error) => panic!("{error}"),
            }
            keys += 1;
        }
        println!("round {round}: {keys} keys, {} bytes free", disk.free());
        assert!(round < ROUNDS_MAX, "{written} keys in {round} rounds");
        for key in 0..keys {
            let deleted = site
                .cache
                .delete(format!("large-{key}"))
                .await
                .expect("a delete goes on");
            assert!(deleted.is_done());
        }
        eventually("there is room again", 3 * SOON, async || {
            is_full(&site).await == Some(false)
        })
        .await;
        println!("round {round}: {} bytes free", disk.free());
        (written, round) = (written + keys, round + 1);
    }
    for key in 0..KEYS {
        let there = site.cache.get(name(key)).await.expect("the node answers").is_some();
        assert!(there, "{}", name(key));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn on_a_full_disk_the_node_stops_with_a_reason_and_with_room_again_it_has_all_that_it_acknowledged() {
    let disk = SmallDisk::mount();
    let mut site = start(&disk).await;
    disk.fill(0);
    assert!(disk.free() < 1 << 20, "{} bytes are left", disk.free());
    // Renewals and deletes go on, and they have to be written somewhere too.
    let impatient = site
        .client
        .with_timeout(Duration::from_secs(3))
        .cache(site.cache.name());
    let mut deleted = Vec::new();
    let mut renewals = 0;
    while site.node.runs() && renewals < RENEWALS_MAX {
        if deleted.len() < KEYS / 2 && renewals % 16 == 0 {
            match impatient.delete(name(deleted.len())).await {
                Ok(verdict) => deleted.push(verdict.is_done()),
                Err(_) => break,
            }
        }
        let touched = impatient.touch(name(KEYS - 1), Duration::from_secs(3_600)).await;
        if touched.is_err() {
            break;
        }
        renewals += 1;
    }
    let status = site.node.wait(SOON);
    let said = site.node.stderr();
    println!("{renewals} renewals on a full disk, then {status}:\n{said}");
    assert!(!status.success(), "a node that cannot write ends with a failure");
    assert!(said.contains("the disk is full: free some room"), "{said}");

    disk.empty();
    site.node.restart();
    let cache = client(&site.node.endpoint()).await.cache(site.cache.name());
    for key in 0..KEYS {
        let there = cache.get(name(key)).await.expect("the node answers").is_some();
        // The delete whose answer was lost may have been done or not.
        let is_open = key == deleted.len();
        assert!(is_open || there == (key > deleted.len()), "{}: {there}", name(key));
    }
    assert!(cache.put("after", "v").await.expect("it serves").is_done());
}
