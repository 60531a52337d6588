//! Disks of a chosen size, for nodes that are to run out of room.
//!
//! They are file systems in memory that only this test's processes see: a holder makes them in a mount namespace of its own
//! and keeps them, and a node is started inside. The test reaches them through the holder's root. It needs the right to
//! mount, which root has.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::child::ChildProcess;

/// How long the holder may take.
const LIMIT: Duration = Duration::from_secs(30);
/// What the holder does with each line that it is told.
const SCRIPT: &str = r#"
while read -r what size folder; do
    case "$what" in
        mount) mkdir -p "$folder" && mount -t tmpfs -o "size=$size" tenure-test "$folder" ;;
        resize) mount -o "remount,size=$size" "$folder" ;;
        unmount) umount -l "$folder" ;;
    esac && echo done || echo failed
done
"#;

/// Disks, each mounted over a folder. They are gone when this is dropped and no process uses them any more.
#[derive(Debug)]
pub struct Disks {
    holder: ChildProcess,
}

impl Disks {
    /// Without any disk.
    ///
    /// # Panics
    /// If the namespace cannot be made.
    pub fn start() -> Disks {
        let words = ["--mount", "--propagation", "private", "sh", "-c", SCRIPT];
        Disks {
            holder: ChildProcess::start("the holder of the disks", Path::new("/usr/bin/unshare"), words),
        }
    }

    /// Mounts one of so many bytes.
    ///
    /// # Panics
    /// If it cannot be mounted.
    pub fn mount(&mut self, folder: &Path, bytes: u64) {
        assert!(
            self.tell("mount", bytes, folder),
            "a disk could not be mounted; this test needs the right to mount:\n{}",
            self.holder.stderr()
        );
    }

    /// Gives one another size. One that holds more than that stays as it is, and `false` is returned.
    pub fn resize(&mut self, folder: &Path, bytes: u64) -> bool {
        self.tell("resize", bytes, folder)
    }

    /// Throws one away with what is on it.
    ///
    /// # Panics
    /// If it is not there.
    pub fn unmount(&mut self, folder: &Path) {
        assert!(self.tell("unmount", 0, folder), "{}", self.holder.stderr());
    }

    fn tell(&mut self, what: &str, bytes: u64, folder: &Path) -> bool {
        self.holder.write_line(&format!("{what} {bytes} {}", folder.display()));
        match self.holder.next_line(LIMIT).as_deref() {
            Some("done") => true,
            Some("failed") => false,
            other => panic!("the holder said {other:?}:\n{}", self.holder.stderr()),
        }
    }

    /// Put before a command that is to see the disks.
    pub fn wrapper(&self) -> Vec<OsString> {
        let mut words: Vec<OsString> = ["/usr/bin/nsenter", "--target"].map(OsString::from).to_vec();
        words.push(self.holder.pid().to_string().into());
        words.extend(["--mount", "--"].map(OsString::from));
        words
    }

    /// Where a file of a disk is for this process.
    ///
    /// # Panics
    /// If the path does not begin at the root.
    pub fn reach(&self, path: &Path) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.holder.pid()));
        root.join(path.strip_prefix("/").expect("a path from the root"))
    }

    /// Bytes that are free on the disk that this lies on.
    ///
    /// # Panics
    /// If it is not there.
    pub fn free(&self, path: &Path) -> u64 {
        let status = rustix::fs::statvfs(self.reach(path)).expect("the disk is there");
        status.f_bavail * status.f_frsize
    }

    /// Bytes that are in use there.
    ///
    /// # Panics
    /// If it is not there.
    pub fn used(&self, path: &Path) -> u64 {
        let status = rustix::fs::statvfs(self.reach(path)).expect("the disk is there");
        (status.f_blocks - status.f_bfree) * status.f_frsize
    }
}
