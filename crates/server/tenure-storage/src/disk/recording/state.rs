//! What a [`RecordingDisk`](super::RecordingDisk) holds, and how it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};

use bytes::Bytes;

/// What a disk writes in one piece.
const SECTOR_LENGTH: usize = 512;

/// One change, as it is recorded.
#[derive(Clone)]
pub(super) enum Event {
    CreateDir { dir: PathBuf },
    Create { path: PathBuf },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
    Write { inode: u64, offset: u64, bytes: Bytes },
    SetLength { inode: u64, length: u64 },
    Sync { inode: u64 },
    FailedSync { inode: u64 },
    SyncDir { dir: PathBuf },
}

#[derive(Default)]
pub(super) struct State {
    /// The names as a process sees them.
    pub(super) names: BTreeMap<PathBuf, u64>,
    durable_names: BTreeMap<PathBuf, u64>,
    /// Changes of names that are not durable, oldest first.
    pending_names: Vec<NameChange>,
    pub(super) dirs: BTreeSet<PathBuf>,
    inodes: BTreeMap<u64, Inode>,
    inode_next: u64,
    pub(super) faults: Faults,
    pub(super) syncs: u64,
    history: Option<History>,
}

#[derive(Default)]
pub(super) struct Faults {
    pub(super) fail_sync_after: Option<u64>,
    pub(super) fail_write_after: Option<u64>,
    pub(super) capacity: Option<u64>,
    pub(super) free_space: Option<u64>,
}

struct History {
    start: Box<State>,
    events: Vec<Event>,
}

#[derive(Clone, Default)]
struct Inode {
    /// As a process sees it.
    current: Vec<u8>,
    durable: Vec<u8>,
    /// Writes that are not durable, oldest first.
    pending: Vec<Change>,
    handles: u64,
}

#[derive(Clone)]
struct Change {
    kind: ChangeKind,
    /// A sync of it failed: no later sync makes it durable.
    given_up: bool,
}

#[derive(Clone)]
enum ChangeKind {
    Write { offset: u64, bytes: Bytes },
    SetLength(u64),
}

#[derive(Clone)]
enum NameChange {
    Create { path: PathBuf, inode: u64 },
    Rename { from: PathBuf, to: PathBuf },
    Remove { path: PathBuf },
}

impl NameChange {
    fn dir(&self) -> Option<&Path> {
        match self {
            NameChange::Create { path, .. } | NameChange::Remove { path } => path.parent(),
            NameChange::Rename { to, .. } => to.parent(),
        }
    }

    fn apply(&self, names: &mut BTreeMap<PathBuf, u64>) {
        match self {
            NameChange::Create { path, inode } => {
                names.insert(path.clone(), *inode);
            }
            NameChange::Rename { from, to } => {
                if let Some(inode) = names.remove(from) {
                    names.insert(to.clone(), inode);
                }
            }
            NameChange::Remove { path } => {
                names.remove(path);
            }
        }
    }
}

impl State {
    pub(super) fn start_recording(&mut self) {
        self.history = Some(History {
            start: Box::new(self.copy()),
            events: Vec::new(),
        });
    }

    pub(super) fn events(&self) -> usize {
        self.history.as_ref().map_or(0, |history| history.events.len())
    }

    /// Everything but the history, the faults and the open handles.
    pub(super) fn copy(&self) -> State {
        let mut inodes = self.inodes.clone();
        for inode in inodes.values_mut() {
            inode.handles = 0;
        }
        State {
            names: self.names.clone(),
            durable_names: self.durable_names.clone(),
            pending_names: self.pending_names.clone(),
            dirs: self.dirs.clone(),
            inodes,
            inode_next: self.inode_next,
            ..State::default()
        }
    }

    pub(super) fn at(&self, events: usize, torn: Option<usize>) -> State {
        let history = self.history.as_ref().expect("start_recording was called");
        let mut state = history.start.copy();
        for event in &history.events[..events] {
            state.replay(event);
        }
        if let (Some(length), Some(Event::Write { inode, offset, bytes })) = (torn, history.events.get(events)) {
            let bytes = bytes.slice(..length.min(bytes.len()));
            state.replay(&Event::Write {
                inode: *inode,
                offset: *offset,
                bytes,
            });
        }
        state
    }

    fn replay(&mut self, event: &Event) {
        // The only thing that can be missing is a file without a name that was still open at the time.
        if let Err(error) = self.apply(event) {
            debug_assert_eq!(
                error.kind(),
                io::ErrorKind::NotFound,
                "the same change went through before"
            );
        }
    }

    pub(super) fn lose_power(&mut self, choose: &mut dyn FnMut(u64) -> u64) {
        let mut dirs: Vec<PathBuf> = self
            .pending_names
            .iter()
            .filter_map(|c| c.dir().map(Path::to_owned))
            .collect();
        dirs.sort();
        dirs.dedup();
        for dir in dirs {
            let changes: Vec<&NameChange> = self
                .pending_names
                .iter()
                .filter(|change| change.dir() == Some(dir.as_path()))
                .collect();
            let kept = below(choose, changes.len() + 1);
            for change in &changes[..kept] {
                change.apply(&mut self.durable_names);
            }
        }
        self.pending_names.clear();
        self.names = self.durable_names.clone();
        for inode in self.inodes.values_mut() {
            for change in std::mem::take(&mut inode.pending) {
                keep_some(&mut inode.durable, &change.kind, choose);
            }
            inode.current = inode.durable.clone();
        }
        self.forget_unreachable();
    }

    pub(super) fn flip_bit(&mut self, path: &Path, bit: u64) -> io::Result<()> {
        let inode = self
            .names
            .get(path)
            .and_then(|number| self.inodes.get_mut(number))
            .ok_or_else(|| missing(path))?;
        let at = usize::try_from(bit / 8).map_err(io::Error::other)?;
        let mask = 1 << (bit % 8);
        *inode.current.get_mut(at).ok_or(io::ErrorKind::UnexpectedEof)? ^= mask;
        if let Some(byte) = inode.durable.get_mut(at) {
            *byte ^= mask;
        }
        Ok(())
    }

    pub(super) fn used(&self) -> u64 {
        self.inodes.values().map(|inode| inode.current.len() as u64).sum()
    }

    pub(super) fn list(&self, dir: &Path) -> io::Result<Vec<String>> {
        if !self.dirs.contains(dir) {
            return Err(missing(dir));
        }
        let children = self
            .names
            .keys()
            .chain(&self.dirs)
            .filter(|path| path.parent() == Some(dir));
        let mut names: Vec<String> = children
            .filter_map(|path| path.file_name())
            .map(|name| name.to_string_lossy().into_owned())
            .collect();
        names.sort();
        Ok(names)
    }

    pub(super) fn open(&mut self, path: &Path) -> io::Result<u64> {
        let number = *self.names.get(path).ok_or_else(|| missing(path))?;
        self.inode(number)?.handles += 1;
        Ok(number)
    }

    pub(super) fn close(&mut self, number: u64) {
        if let Ok(inode) = self.inode(number) {
            inode.handles = inode.handles.saturating_sub(1);
        }
        self.forget_unreachable();
    }

    pub(super) fn read(&mut self, number: u64, offset: u64, buffer: &mut [u8]) -> io::Result<usize> {
        let current = &self.inode(number)?.current;
        let start = usize::try_from(offset).map_err(io::Error::other)?.min(current.len());
        let count = buffer.len().min(current.len() - start);
        buffer[..count].copy_from_slice(&current[start..start + count]);
        Ok(count)
    }

    pub(super) fn length(&mut self, number: u64) -> io::Result<u64> {
        Ok(self.inode(number)?.current.len() as u64)
    }

    pub(super) fn write(&mut self, inode: u64, offset: u64, bytes: Bytes) -> io::Result<()> {
        if due(&mut self.faults.fail_write_after) {
            let bytes = bytes.slice(..bytes.len() / 2);
            self.apply(&Event::Write { inode, offset, bytes })?;
            return Err(io::Error::other("this write was told to fail"));
        }
        let length = self.length(inode)?;
        let end = offset + bytes.len() as u64;
        let room = self.room();
        if end > length && end - length > room {
            let fits = usize::try_from((length + room).saturating_sub(offset)).map_err(io::Error::other)?;
            self.apply(&Event::Write {
                inode,
                offset,
                bytes: bytes.slice(..fits.min(bytes.len())),
            })?;
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.apply(&Event::Write { inode, offset, bytes })
    }

    pub(super) fn set_length(&mut self, inode: u64, length: u64) -> io::Result<()> {
        let more = length.saturating_sub(self.length(inode)?);
        if more > self.room() {
            return Err(io::ErrorKind::StorageFull.into());
        }
        self.apply(&Event::SetLength { inode, length })
    }

    pub(super) fn sync(&mut self, inode: u64) -> io::Result<()> {
        self.syncs += 1;
        if due(&mut self.faults.fail_sync_after) {
            self.apply(&Event::FailedSync { inode })?;
            return Err(io::Error::other("this sync was told to fail"));
        }
        self.apply(&Event::Sync { inode })
    }

    pub(super) fn sync_dir(&mut self, dir: &Path) -> io::Result<()> {
        if due(&mut self.faults.fail_sync_after) {
            return Err(io::Error::other("this sync was told to fail"));
        }
        self.apply(&Event::SyncDir { dir: dir.to_owned() })
    }

    /// Makes a change, and records it if that is asked for.
    pub(super) fn apply(&mut self, event: &Event) -> io::Result<()> {
        match event {
            Event::CreateDir { dir } => self.dirs.extend(dir.ancestors().map(Path::to_owned)),
            Event::Create { path } => {
                let inode = self.inode_next;
                self.inode_next += 1;
                self.inodes.insert(inode, Inode::default());
                self.change_name(NameChange::Create {
                    path: path.clone(),
                    inode,
                });
            }
            Event::Rename { from, to } => {
                self.names.get(from).ok_or_else(|| missing(from))?;
                self.change_name(NameChange::Rename {
                    from: from.clone(),
                    to: to.clone(),
                });
            }
            Event::Remove { path } => {
                self.names.get(path).ok_or_else(|| missing(path))?;
                self.change_name(NameChange::Remove { path: path.clone() });
            }
            Event::Write { inode, offset, bytes } => {
                self.inode(*inode)?.change(ChangeKind::Write {
                    offset: *offset,
                    bytes: bytes.clone(),
                });
            }
            Event::SetLength { inode, length } => self.inode(*inode)?.change(ChangeKind::SetLength(*length)),
            Event::Sync { inode } => self.inode(*inode)?.sync(),
            Event::FailedSync { inode } => self.inode(*inode)?.pending.iter_mut().for_each(|c| c.given_up = true),
            Event::SyncDir { dir } => self.make_names_durable(dir),
        }
        if let Some(history) = &mut self.history {
            history.events.push(event.clone());
        }
        Ok(())
    }

    fn change_name(&mut self, change: NameChange) {
        change.apply(&mut self.names);
        self.pending_names.push(change);
    }

    fn make_names_durable(&mut self, dir: &Path) {
        let (durable, pending) = std::mem::take(&mut self.pending_names)
            .into_iter()
            .partition(|change| change.dir() == Some(dir));
        self.pending_names = pending;
        let durable: Vec<NameChange> = durable;
        for change in durable {
            change.apply(&mut self.durable_names);
        }
        self.forget_unreachable();
    }

    fn forget_unreachable(&mut self) {
        let State {
            names,
            durable_names,
            pending_names,
            inodes,
            ..
        } = self;
        let mut reachable: BTreeSet<u64> = names.values().chain(durable_names.values()).copied().collect();
        reachable.extend(pending_names.iter().filter_map(|change| match change {
            NameChange::Create { inode, .. } => Some(*inode),
            NameChange::Rename { .. } | NameChange::Remove { .. } => None,
        }));
        inodes.retain(|number, inode| inode.handles > 0 || reachable.contains(number));
    }

    fn inode(&mut self, number: u64) -> io::Result<&mut Inode> {
        self.inodes
            .get_mut(&number)
            .ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn room(&self) -> u64 {
        self.faults
            .capacity
            .map_or(u64::MAX, |capacity| capacity.saturating_sub(self.used()))
    }
}

impl Inode {
    fn change(&mut self, kind: ChangeKind) {
        kind.apply(&mut self.current);
        self.pending.push(Change { kind, given_up: false });
    }

    fn sync(&mut self) {
        for change in std::mem::take(&mut self.pending) {
            if change.given_up {
                self.pending.push(change);
                continue;
            }
            change.kind.apply(&mut self.durable);
            // What was given up may still reach the disk, but not over something that was written there later.
            if let ChangeKind::Write { offset, bytes } = &change.kind {
                for earlier in &mut self.pending {
                    earlier.kind.overlay(*offset, bytes);
                }
            }
        }
    }
}

impl ChangeKind {
    fn apply(&self, content: &mut Vec<u8>) {
        match self {
            ChangeKind::Write { offset, bytes } => put(content, *offset, bytes),
            ChangeKind::SetLength(length) => content.resize(size(*length), 0),
        }
    }

    /// Takes over what a later write put into the same place.
    fn overlay(&mut self, later_offset: u64, later: &[u8]) {
        let ChangeKind::Write { offset, bytes } = self else {
            return;
        };
        let start = later_offset.max(*offset);
        let end = (later_offset + later.len() as u64).min(*offset + bytes.len() as u64);
        if start < end {
            let mut merged = bytes.to_vec();
            merged[size(start - *offset)..size(end - *offset)]
                .copy_from_slice(&later[size(start - later_offset)..size(end - later_offset)]);
            *bytes = merged.into();
        }
    }
}

/// Keeps any part of a change that was not synced.
fn keep_some(content: &mut Vec<u8>, change: &ChangeKind, choose: &mut dyn FnMut(u64) -> u64) {
    let ChangeKind::Write { offset, bytes } = change else {
        if choose(2) == 1 {
            change.apply(content);
        }
        return;
    };
    match choose(4) {
        0 => {}
        1 => change.apply(content),
        2 => put(content, *offset, &bytes[..below(choose, bytes.len() + 1)]),
        _ => {
            let mut start = 0;
            while start < bytes.len() {
                let into_sector = (size(*offset) + start) % SECTOR_LENGTH;
                let end = bytes.len().min(start + SECTOR_LENGTH - into_sector);
                if choose(2) == 1 {
                    put(content, *offset + start as u64, &bytes[start..end]);
                }
                start = end;
            }
        }
    }
}

fn put(content: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    if bytes.is_empty() {
        return;
    }
    let start = size(offset);
    let end = start + bytes.len();
    if content.len() < end {
        content.resize(end, 0);
    }
    content[start..end].copy_from_slice(bytes);
}

fn size(length: u64) -> usize {
    usize::try_from(length).expect("what lies in memory has a length that fits memory")
}

fn below(choose: &mut dyn FnMut(u64) -> u64, bound: usize) -> usize {
    size(choose(bound as u64)).min(bound - 1)
}

/// Counts a fault down; whether it is now.
fn due(countdown: &mut Option<u64>) -> bool {
    match countdown {
        Some(0) => {
            *countdown = None;
            true
        }
        Some(skip) => {
            *skip -= 1;
            false
        }
        None => false,
    }
}

fn missing(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{} does not exist", path.display()))
}
