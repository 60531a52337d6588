//! What is looked at before the engine opens the state's files, so that the damage of one group costs that group only.
//!
//! The engine opens all its keyspaces or none, deletes a keyspace whose first file is gone, and refuses every write once
//! it has met damage while it merged files. So each keyspace is first opened here, by itself. One that cannot be opened
//! is moved into the folder `damaged`, under its name and with the reason beside it: for the engine it is then missing,
//! which costs its group and nobody else, and nothing is deleted.
//!
//! What opening does not look at, the insides of tables, is looked at when the note `suspect` lies in the folder. It is
//! left by whoever met damage while the engine ran.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use lsm_tree::{AbstractTree, AnyTree, Guard, SeqNo, SequenceNumberCounter};
use rustix::fs::FlockOperation;
use rustix::io::Errno;
use xxhash_rust::xxh3::Xxh3;

use super::StateError;
use super::journal::cut_torn_tail;
use super::names::Holds;

const LOCK_FILE: &str = "lock";
const VERSION_FILE: &str = "version";
/// What is in it: the form of the engine's files that this release writes and reads.
const VERSION_BYTES: &[u8] = b"FJL\x03";
const VERSION_WRONG: &str = "it does not hold the four bytes 46 4a 4c 03, as that of every folder of this release does";
const KEYSPACES_FOLDER: &str = "keyspaces";
/// The keyspace in which the engine keeps the names of the others.
const META_KEYSPACE: &str = "0";
/// The file of a keyspace that names its newest manifest.
const CURRENT_FILE: &str = "current";
const TABLES_FOLDER: &str = "tables";
/// `current` holds the manifest's number, its checksum, and the kind of that.
const CURRENT_BYTES: usize = 8 + 16 + 1;
/// Where the keyspaces go that cannot be opened.
const DAMAGED_FOLDER: &str = "damaged";
/// The note that says that every table is to be looked through.
const SUSPECT_FILE: &str = "suspect";
/// A reason is a line.
const REASON_BYTES_MAX: usize = 4_096;

/// What a look at the folder found.
#[derive(Debug, Default)]
pub(crate) struct Inspected {
    /// The highest number in any name of a keyspace that the engine knows, those included that it has lost.
    pub(crate) last_number: u64,
}

/// Why a keyspace cannot be used.
enum Fault {
    /// Its files are not what was written, and why.
    Damaged(String),
    /// The machine does not let it be read now.
    Environment(io::Error),
    /// Its form is that of another release.
    OtherRelease(String),
}

/// Makes the folder such that the engine can open it, whatever happened to the files of single groups.
///
/// # Errors
/// [`StateError::EngineDamaged`] if what all groups share is damaged, and [`StateError::EngineFailed`] if the folder
/// cannot be read or changed; the engine is not to be opened then.
pub(crate) fn inspect(folder: &Path) -> Result<Inspected, StateError> {
    let io_failed = |error| StateError::engine_failed("opened", error);
    if !is_made(folder)? {
        return Ok(Inspected::default());
    }
    let Some(_lock) = lock(folder).map_err(io_failed)? else {
        // Whoever has it open is at work in it. The engine waits for a moment and then refuses.
        return Ok(Inspected::default());
    };
    cut_torn_tail(folder).map_err(io_failed)?;
    let keyspaces = list_keyspaces(folder)?;
    let Some(names) = read_names(folder, &keyspaces)? else {
        return Ok(Inspected::default());
    };
    let last_number = names.values().filter_map(|name| Some(Holds::parse(name)?.number()));
    let inspected = Inspected {
        last_number: last_number.max().unwrap_or(0),
    };
    let suspect = folder.join(SUSPECT_FILE);
    let look_inside = suspect.try_exists().map_err(io_failed)?;
    if look_inside {
        tracing::warn!("damage was met in the state while it was in use: every file of it is looked through");
    }
    for (id, name) in &names {
        // The engine would make it anew, empty.
        if Holds::parse(name).is_none() && !keyspaces.contains_key(id) {
            let path = folder.join(KEYSPACES_FOLDER).join(id.to_string());
            return Err(engine_damaged(&path, "it is missing"));
        }
    }
    for (id, path) in keyspaces {
        // One without a name is about to be deleted by the engine.
        let Some(name) = names.get(&id) else { continue };
        let Err(fault) = check_keyspace(&path, look_inside) else {
            continue;
        };
        match fault {
            Fault::Environment(error) => return Err(io_failed(error)),
            Fault::OtherRelease(what) => return Err(engine_damaged(&path, what)),
            Fault::Damaged(what) if Holds::parse(name).is_some() => {
                set_aside(folder, name, &path, &what).map_err(io_failed)?;
            }
            Fault::Damaged(what) => return Err(engine_damaged(&path, what)),
        }
    }
    if look_inside {
        fs::remove_file(&suspect).map_err(io_failed)?;
    }
    Ok(inspected)
}

/// Leaves the note that makes the next [`inspect`] look through every file. Without room for it that is left out: what
/// met no room has met no damage.
///
/// # Errors
/// Why it was left out, which was logged.
pub(crate) fn leave_note(folder: &Path) -> io::Result<()> {
    let path = folder.join(SUSPECT_FILE);
    let left = File::create(&path).and_then(|file| file.sync_all());
    if let Err(error) = &left {
        tracing::warn!(path = %path.display(), %error, "no note could be left that the state is to be looked through");
    }
    left
}

/// Why the keyspace of this name was set aside, and where it is; `None` if it was not.
pub(crate) fn why_set_aside(folder: &Path, name: &str) -> Option<String> {
    let mut reason = Vec::new();
    let file = File::open(reason_path(folder, name)).ok()?;
    file.take(REASON_BYTES_MAX as u64).read_to_end(&mut reason).ok()?;
    let reason = String::from_utf8_lossy(&reason);
    let kept = folder.join(DAMAGED_FOLDER).join(name);
    Some(format!(
        "{} (its files were moved to {})",
        reason.trim_end(),
        kept.display()
    ))
}

/// What an error of the engine's storage says, for people.
pub(crate) fn describe(error: &lsm_tree::Error) -> String {
    match error {
        lsm_tree::Error::Io(error) => error.to_string(),
        lsm_tree::Error::ChecksumMismatch { .. } => "a part of it does not have its checksum".to_owned(),
        lsm_tree::Error::Unrecoverable => "files of it are missing or are not what was written".to_owned(),
        other => format!("it is not what was written ({other:?})"),
    }
}

/// Whether an error of the engine's storage means that bytes on the disk are gone or wrong.
pub(crate) fn is_damage(error: &lsm_tree::Error) -> bool {
    match error {
        lsm_tree::Error::Io(error) => is_lost(error),
        _ => true,
    }
}

/// Whether the engine was ever made here. What a crash left that came before its end is taken away.
fn is_made(folder: &Path) -> Result<bool, StateError> {
    let io_failed = |error| StateError::engine_failed("opened", error);
    let version = folder.join(VERSION_FILE);
    let what = match fs::metadata(&version) {
        Ok(found) if found.len() > 0 => {
            // The engine would say only that it does not know it.
            let is_short = found.len() <= VERSION_BYTES.len() as u64;
            if is_short && fs::read(&version).map_err(io_failed)? == VERSION_BYTES {
                return Ok(true);
            }
            return Err(engine_damaged(&version, VERSION_WRONG));
        }
        Ok(_) => "it is empty",
        Err(error) if error.kind() == io::ErrorKind::NotFound => "it is missing",
        Err(error) => return Err(io_failed(error)),
    };
    // Its making ends with the file `version`, and nothing is stored before.
    let paths = match entries(folder) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(io_failed(error)),
    };
    let mut left = Vec::new();
    for path in paths {
        let is_journal = path.extension().is_some_and(|extension| extension == "jnl");
        let in_use = if is_journal {
            !holds_zeros(&path).map_err(io_failed)?
        } else {
            path.ends_with(KEYSPACES_FOLDER) && !entries(&path).map_err(io_failed)?.is_empty()
        };
        if in_use {
            return Err(engine_damaged(&version, what));
        }
        if is_journal || path == version {
            left.push(path);
        }
    }
    for path in left {
        fs::remove_file(&path).map_err(io_failed)?;
    }
    Ok(false)
}

/// The engine's own lock; `None` if somebody has it.
fn lock(folder: &Path) -> io::Result<Option<File>> {
    let file = match File::options().read(true).write(true).open(folder.join(LOCK_FILE)) {
        Ok(file) => file,
        // The engine needs the file, and what is in it is nothing.
        Err(error) if error.kind() == io::ErrorKind::NotFound => File::create_new(folder.join(LOCK_FILE))?,
        Err(error) => return Err(error),
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Some(file)),
        Err(Errno::WOULDBLOCK) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// The folders of keyspaces by their number.
fn list_keyspaces(folder: &Path) -> Result<BTreeMap<u64, PathBuf>, StateError> {
    let root = folder.join(KEYSPACES_FOLDER);
    let mut keyspaces = BTreeMap::new();
    let paths = match entries(&root) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Err(engine_damaged(&root, "it is missing")),
        Err(error) => return Err(StateError::engine_failed("opened", error)),
    };
    for path in paths {
        let number = path.file_name().and_then(|name| name.to_str()?.parse().ok());
        match number {
            Some(number) => keyspaces.insert(number, path),
            None if path.is_dir() => return Err(engine_damaged(&path, "it does not belong there")),
            None => None,
        };
    }
    Ok(keyspaces)
}

/// The names of the keyspaces by number, as the engine has them. `None`: it has none yet.
fn read_names(folder: &Path, keyspaces: &BTreeMap<u64, PathBuf>) -> Result<Option<BTreeMap<u64, String>>, StateError> {
    let path = folder.join(KEYSPACES_FOLDER).join(META_KEYSPACE);
    let has_others = keyspaces.keys().any(|id| *id != 0);
    match path.join(CURRENT_FILE).try_exists() {
        Ok(true) => {}
        // The engine would make it anew and then delete whatever has no name in it.
        Ok(false) if has_others => return Err(engine_damaged(&path, "its file current is missing")),
        Ok(false) => return Ok(None),
        Err(error) => return Err(StateError::engine_failed("opened", error)),
    }
    match open_tree(&path).and_then(|tree| guarded(|| names_in(&tree))) {
        Ok(names) => Ok(Some(names)),
        Err(Fault::Environment(error)) => Err(StateError::engine_failed("opened", error)),
        Err(Fault::Damaged(what) | Fault::OtherRelease(what)) => Err(engine_damaged(&path, what)),
    }
}

fn names_in(tree: &AnyTree) -> Result<BTreeMap<u64, String>, Fault> {
    let mut names = BTreeMap::new();
    for row in tree.prefix(b"n", SeqNo::MAX, None) {
        let (key, name) = row.into_inner().map_err(Fault::from)?;
        let id = key.get(1..).and_then(|id| id.try_into().ok()).map(u64::from_be_bytes);
        match (id, std::str::from_utf8(&name)) {
            (Some(id), Ok(name)) => names.insert(id, name.to_owned()),
            _ => return Err(Fault::Damaged("it holds what is no name".to_owned())),
        };
    }
    Ok(names)
}

fn check_keyspace(path: &Path, look_inside: bool) -> Result<(), Fault> {
    // One gets its name when it is made to its end, and this file is then there.
    if !path.join(CURRENT_FILE).try_exists().map_err(Fault::Environment)? {
        return Err(Fault::Damaged("its file current is missing".to_owned()));
    }
    let current = read_lost_as_damage(&path.join(CURRENT_FILE))?;
    let Some((number, checksum)) = parse_current(&current) else {
        return Err(Fault::Damaged("its file current is not what was written".to_owned()));
    };
    let manifest = path.join(format!("v{number}"));
    if checksum_of(&manifest)? != checksum {
        return Err(Fault::Damaged(format!("its file v{number} does not have its checksum")));
    }
    let tree = match open_tree(path) {
        // The engine names no file.
        Err(Fault::Damaged(what)) => return Err(Fault::Damaged(name_empty_table(path).unwrap_or(what))),
        opened => opened?,
    };
    if look_inside {
        for table in tree.current_version().iter_tables() {
            if checksum_of(&table.path)? != table.checksum().into_u128() {
                let name = table.path.file_name().unwrap_or_default().display();
                return Err(Fault::Damaged(format!(
                    "its file {TABLES_FOLDER}/{name} does not have its checksum"
                )));
            }
        }
    }
    Ok(())
}

/// Says which table has nothing in it, if one has not.
fn name_empty_table(keyspace: &Path) -> Option<String> {
    let tables = entries(&keyspace.join(TABLES_FOLDER)).ok()?;
    let empty = tables
        .iter()
        .find(|path| fs::metadata(path).is_ok_and(|about| about.len() == 0))?;
    let name = empty.file_name().unwrap_or_default().display();
    Some(format!("its file {TABLES_FOLDER}/{name} is empty"))
}

/// Opens one keyspace by itself, as the engine does. What lies in it is not changed, but for what the engine would
/// tidy away as well.
fn open_tree(path: &Path) -> Result<AnyTree, Fault> {
    let counter = SequenceNumberCounter::default;
    guarded(|| {
        let opened = lsm_tree::Config::new(path, counter(), counter()).open();
        opened.map_err(Fault::from)
    })
}

/// Runs what reads a keyspace, whose reader may give up on a damaged one by a panic.
fn guarded<T>(read: impl FnOnce() -> Result<T, Fault>) -> Result<T, Fault> {
    catch_unwind(AssertUnwindSafe(read))
        .unwrap_or_else(|_| Err(Fault::Damaged("it cannot be opened (its reader gave up)".to_owned())))
}

/// The number of the manifest that counts, and its checksum.
fn parse_current(bytes: &[u8]) -> Option<(u64, u128)> {
    let bytes: &[u8; CURRENT_BYTES] = bytes.try_into().ok()?;
    let (number, rest) = bytes.split_first_chunk::<8>()?;
    let (checksum, kind) = rest.split_first_chunk::<16>()?;
    (kind == [0]).then(|| (u64::from_le_bytes(*number), u128::from_le_bytes(*checksum)))
}

fn checksum_of(path: &Path) -> Result<u128, Fault> {
    let lost = |error: io::Error| Fault::of_file(path, error);
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path).map_err(lost)?);
    let mut checksum = Xxh3::new();
    loop {
        let bytes = reader.fill_buf().map_err(lost)?;
        if bytes.is_empty() {
            return Ok(checksum.digest128());
        }
        checksum.update(bytes);
        let length = bytes.len();
        reader.consume(length);
    }
}

fn read_lost_as_damage(path: &Path) -> Result<Vec<u8>, Fault> {
    fs::read(path).map_err(|error| Fault::of_file(path, error))
}

/// Moves a keyspace out of the engine's sight, with the reason beside it. Nothing is deleted.
fn set_aside(folder: &Path, name: &str, path: &Path, what: &str) -> io::Result<()> {
    let damaged = folder.join(DAMAGED_FOLDER);
    fs::create_dir_all(&damaged)?;
    let reason = File::create(reason_path(folder, name))?;
    io::Write::write_all(&mut &reason, format!("{}: {what}\n", path.display()).as_bytes())?;
    reason.sync_all()?;
    let target = damaged.join(name);
    fs::rename(path, &target)?;
    for folder in [folder, damaged.as_path(), &folder.join(KEYSPACES_FOLDER)] {
        File::open(folder)?.sync_all()?;
    }
    tracing::error!(
        keyspace = name,
        from = %path.display(),
        to = %target.display(),
        what,
        "files of the state are damaged and were moved away; the others are used"
    );
    Ok(())
}

/// The keyspaces that were set aside in `folder`, by their names, each with the reason.
pub(crate) fn all_set_aside(folder: &Path) -> io::Result<BTreeMap<String, String>> {
    let paths = match entries(&folder.join(DAMAGED_FOLDER)) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(BTreeMap::new()),
        Err(error) => return Err(error),
    };
    let mut reasons = BTreeMap::new();
    for path in paths
        .iter()
        .filter(|path| path.extension().is_some_and(|suffix| suffix == "txt"))
    {
        let mut reason = Vec::new();
        File::open(path)?
            .take(REASON_BYTES_MAX as u64)
            .read_to_end(&mut reason)?;
        let name = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        reasons.insert(name, String::from_utf8_lossy(&reason).trim_end().to_owned());
    }
    Ok(reasons)
}

fn reason_path(folder: &Path, name: &str) -> PathBuf {
    folder.join(DAMAGED_FOLDER).join(format!("{name}.txt"))
}

/// What lies in a folder, in order.
fn entries(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut paths = fs::read_dir(folder)?
        .map(|entry| Ok(entry?.path()))
        .collect::<io::Result<Vec<PathBuf>>>()?;
    paths.sort();
    Ok(paths)
}

fn holds_zeros(path: &Path) -> io::Result<bool> {
    let mut reader = BufReader::with_capacity(1 << 20, File::open(path)?);
    loop {
        let bytes = reader.fill_buf()?;
        if bytes.is_empty() {
            return Ok(true);
        }
        if bytes.iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        let length = bytes.len();
        reader.consume(length);
    }
}

/// Whether a failed read means that the file or a part of it is gone, rather than that it cannot be had now.
fn is_lost(error: &io::Error) -> bool {
    let lost_on_disk = error.raw_os_error() == Some(Errno::IO.raw_os_error());
    lost_on_disk
        || matches!(
            error.kind(),
            io::ErrorKind::NotFound
                | io::ErrorKind::UnexpectedEof
                | io::ErrorKind::InvalidData
                | io::ErrorKind::InvalidInput
                | io::ErrorKind::NotADirectory
                | io::ErrorKind::IsADirectory
        )
}

fn engine_damaged(path: &Path, what: impl Into<String>) -> StateError {
    StateError::EngineDamaged {
        path: path.to_owned(),
        what: what.into(),
    }
}

impl Fault {
    fn of_file(path: &Path, error: io::Error) -> Fault {
        match is_lost(&error) {
            true => {
                let name = path.file_name().unwrap_or_default().display();
                Fault::Damaged(format!("its file {name} cannot be read: {error}"))
            }
            false => Fault::Environment(error),
        }
    }
}

impl From<lsm_tree::Error> for Fault {
    fn from(error: lsm_tree::Error) -> Fault {
        match error {
            lsm_tree::Error::Io(error) if !is_lost(&error) => Fault::Environment(error),
            lsm_tree::Error::InvalidVersion(_) => Fault::OtherRelease(describe(&error)),
            damaged => Fault::Damaged(describe(&damaged)),
        }
    }
}
