//! The file of a backup: the rows of every group of a cluster, each as of one revision.
//!
//! It is a sequence of frames behind eight bytes of magic. The checksum of a frame covers everything before it as well, so
//! a frame that is changed, missing, doubled or moved is noticed, and the last one stands for the whole file. The form is
//! described in `docs/formats.md`.

use std::io::{self, Read, Write};

use bytes::Bytes;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_core::ids::GroupId;
use tenure_core::machine::GroupKind;
use tenure_core::table::{TableRead, Visit};

/// About how many bytes of rows are put into one chunk; a larger row has one of its own.
pub const CHUNK_BYTES: usize = 1 << 20;
/// Bytes of the longest frame. No row is that long.
const FRAME_BYTES_MAX: usize = 8 << 20;

const MAGIC: &[u8; 8] = b"TNRBKUP1";
/// Where the number of the format stands in the magic.
const VERSION_AT: usize = 7;
const FORM: u8 = 1;
/// Kind, length, checksum.
const FRAME_HEAD_BYTES: usize = 9;
/// Where the checksum stands in the head of a frame, behind what it covers.
const FRAME_SUM_AT: usize = 5;

const HEAD: u8 = 1;
const GROUP: u8 = 2;
const ROWS: u8 = 3;
const GROUP_END: u8 = 4;
const END: u8 = 5;

/// What the whole file is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackupHead {
    /// The cluster.
    pub cluster: u128,
    /// When it was begun, in seconds since 1970 on the clock of who made it. For people: nothing is decided by it.
    pub begun_unix_secs: u64,
    /// How many groups follow.
    pub groups: u32,
}

/// Which group's rows follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupHead {
    /// The group.
    pub group: u32,
    /// The last entry of its log that is in the rows.
    pub applied: u64,
    /// Its revision.
    pub revision: u64,
    /// Its time, in microseconds.
    pub time_us: u64,
}

/// The end of a group's rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupEnd {
    /// How many rows there were.
    pub rows: u64,
    /// The bytes of their keys and values.
    pub bytes: u64,
}

/// A file that is not a whole backup, or cannot be read. Nothing was done with it.
#[derive(Debug, thiserror::Error)]
pub enum BackupError {
    /// It does not begin like one.
    #[error("it is not a backup of Tenure")]
    NotABackup,
    /// A newer release has written it.
    #[error("it has format {found:?}, and this release knows format 1: use a newer release")]
    FormatNewer {
        /// The sign of its format.
        found: char,
    },
    /// It is not what was written.
    #[error("it is damaged at byte {offset}: {what}")]
    Damaged {
        /// Where the frame begins that is not as it was written.
        offset: u64,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It ends before its end.
    #[error("it ends at byte {offset}, before its end: it was cut off, or the backup was not finished")]
    Truncated {
        /// Where the frame begins that is not whole.
        offset: u64,
    },
    /// The disk refused.
    #[error("it cannot be read: {0}")]
    Io(#[from] io::Error),
}

impl GroupHead {
    /// Which commands the group takes.
    pub fn kind(&self) -> GroupKind {
        if GroupId(self.group) == GroupId::SYSTEM {
            GroupKind::System
        } else {
            GroupKind::Home
        }
    }
}

/// Rows in the order of their keys, as they are sent and stored: for each the length of its key and of its value (each
/// four bytes, lowest first) and both. They were looked through when this was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunk {
    bytes: Bytes,
    end: GroupEnd,
}

impl Chunk {
    /// The next rows of a table, from a key on, and the key to go on with: `None` behind the last row.
    pub fn read(table: &dyn TableRead, from: &[u8]) -> (Chunk, Option<Vec<u8>>) {
        let (mut bytes, mut end, mut next) = (Vec::new(), GroupEnd::default(), None);
        table.scan(from, &[u8::MAX], &mut |key, value| {
            let len = 8 + key.len() + value.len();
            if !bytes.is_empty() && bytes.len() + len > CHUNK_BYTES {
                next = Some(key.to_vec());
                return Visit::Break(());
            }
            for len in [key.len(), value.len()] {
                let len = u32::try_from(len).expect("the limits keep every row far below this size");
                bytes.extend_from_slice(&len.to_le_bytes());
            }
            bytes.extend_from_slice(key);
            bytes.extend_from_slice(value);
            end.rows += 1;
            end.bytes += (key.len() + value.len()) as u64;
            Visit::Continue(())
        });
        let bytes = Bytes::from(bytes);
        (Chunk { bytes, end }, next)
    }

    /// Looks through bytes from outside. `None`: they are no rows.
    pub fn parse(bytes: Bytes) -> Option<Chunk> {
        if bytes.len() > FRAME_BYTES_MAX {
            return None;
        }
        let (mut rest, mut end) = (&bytes[..], GroupEnd::default());
        while !rest.is_empty() {
            let (key, value) = take_row(&mut rest)?;
            end.rows += 1;
            end.bytes += (key.len() + value.len()) as u64;
        }
        Some(Chunk { bytes, end })
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = &self.bytes[..];
        std::iter::from_fn(move || take_row(&mut rest))
    }

    /// How many rows there are, and their bytes.
    pub fn counts(&self) -> GroupEnd {
        self.end
    }

    /// The bytes.
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }
}

fn take_row<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
    let (lengths, behind) = rest.split_at_checked(8)?;
    let length = |at: usize| lengths[at..at + 4].try_into().ok().map(u32::from_le_bytes);
    let (key, behind) = behind.split_at_checked(length(0)? as usize)?;
    let (value, behind) = behind.split_at_checked(length(4)? as usize)?;
    *rest = behind;
    Some((key, value))
}

/// Writes a backup.
pub struct BackupWriter<W> {
    file: W,
    sum: u32,
    group: GroupEnd,
}

impl<W: Write> BackupWriter<W> {
    /// Begins one.
    ///
    /// # Errors
    /// What the disk said.
    pub fn begin(mut file: W, head: &BackupHead) -> io::Result<BackupWriter<W>> {
        file.write_all(MAGIC)?;
        let mut writer = BackupWriter {
            file,
            sum: crc32c::crc32c(MAGIC),
            group: GroupEnd::default(),
        };
        writer.form(HEAD, head)?;
        Ok(writer)
    }

    /// Begins a group, of as many as the head says.
    ///
    /// # Errors
    /// What the disk said.
    pub fn begin_group(&mut self, head: &GroupHead) -> io::Result<()> {
        self.group = GroupEnd::default();
        self.form(GROUP, head)
    }

    /// Writes rows of it, behind those before in the order of their keys.
    ///
    /// # Errors
    /// What the disk said.
    pub fn rows(&mut self, chunk: &Chunk) -> io::Result<()> {
        self.group.rows += chunk.end.rows;
        self.group.bytes += chunk.end.bytes;
        self.frame(ROWS, &chunk.bytes)
    }

    /// Ends it, and says how much it was.
    ///
    /// # Errors
    /// What the disk said.
    pub fn end_group(&mut self) -> io::Result<GroupEnd> {
        let end = self.group;
        self.form(GROUP_END, &end)?;
        Ok(end)
    }

    /// Ends the backup. The file is not synced.
    ///
    /// # Errors
    /// What the disk said.
    pub fn end(mut self) -> io::Result<W> {
        self.frame(END, &[])?;
        Ok(self.file)
    }

    fn form<T: Serialize>(&mut self, kind: u8, form: &T) -> io::Result<()> {
        let payload = postcard::to_extend(form, vec![FORM]).map_err(io::Error::other)?;
        self.frame(kind, &payload)
    }

    fn frame(&mut self, kind: u8, payload: &[u8]) -> io::Result<()> {
        let len = u32::try_from(payload.len())
            .ok()
            .filter(|_| payload.len() <= FRAME_BYTES_MAX);
        let len = len.ok_or_else(|| io::Error::other("a frame of a backup would be too long"))?;
        let mut head = [0; FRAME_HEAD_BYTES];
        head[0] = kind;
        head[1..FRAME_SUM_AT].copy_from_slice(&len.to_le_bytes());
        self.sum = checksum(self.sum, &head[..FRAME_SUM_AT], payload);
        head[FRAME_SUM_AT..].copy_from_slice(&self.sum.to_le_bytes());
        self.file.write_all(&head)?;
        self.file.write_all(payload)
    }
}

/// What lies next in a backup.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item {
    /// A group begins.
    Group(GroupHead),
    /// Rows of it.
    Rows(Chunk),
    /// The group ends.
    GroupEnd(GroupEnd),
    /// All groups were there and nothing lies behind them.
    End,
}

/// Reads a backup. Whatever it gives was written so, unless somebody made the checksums fit; that the file is whole is
/// known with [`Item::End`].
pub struct BackupReader<R> {
    file: R,
    head: BackupHead,
    sum: u32,
    offset: u64,
    groups_left: u32,
    group: Option<GroupEnd>,
    has_ended: bool,
}

impl<R: Read> BackupReader<R> {
    /// Begins to read.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn begin(mut file: R) -> Result<BackupReader<R>, BackupError> {
        let mut magic = [0; MAGIC.len()];
        if !fill(&mut file, &mut magic)? || magic[..VERSION_AT] != MAGIC[..VERSION_AT] {
            return Err(BackupError::NotABackup);
        }
        if magic[VERSION_AT] != MAGIC[VERSION_AT] {
            let found = char::from(magic[VERSION_AT]);
            return Err(BackupError::FormatNewer { found });
        }
        let mut reader = BackupReader {
            file,
            head: BackupHead {
                cluster: 0,
                begun_unix_secs: 0,
                groups: 0,
            },
            sum: crc32c::crc32c(MAGIC),
            offset: MAGIC.len() as u64,
            groups_left: 0,
            group: None,
            has_ended: false,
        };
        let begun = reader.offset;
        let (HEAD, payload) = reader.frame()? else {
            return Err(damaged(begun, "it does not begin with its head"));
        };
        reader.head = form(begun, &payload)?;
        reader.groups_left = reader.head.groups;
        Ok(reader)
    }

    /// What the whole file is about.
    pub fn head(&self) -> &BackupHead {
        &self.head
    }

    /// What lies next. Behind the end there is the end again.
    ///
    /// # Errors
    /// [`BackupError`].
    pub fn next_item(&mut self) -> Result<Item, BackupError> {
        if self.has_ended {
            return Ok(Item::End);
        }
        let begun = self.offset;
        let (kind, payload) = self.frame()?;
        match (kind, self.group) {
            (GROUP, None) if self.groups_left > 0 => {
                self.groups_left -= 1;
                self.group = Some(GroupEnd::default());
                Ok(Item::Group(form(begun, &payload)?))
            }
            (ROWS, Some(so_far)) => {
                let chunk = Chunk::parse(payload).ok_or_else(|| damaged(begun, "it holds no rows"))?;
                let counts = chunk.end;
                self.group = Some(GroupEnd {
                    rows: so_far.rows.saturating_add(counts.rows),
                    bytes: so_far.bytes.saturating_add(counts.bytes),
                });
                Ok(Item::Rows(chunk))
            }
            (GROUP_END, Some(so_far)) => {
                self.group = None;
                let end: GroupEnd = form(begun, &payload)?;
                if end != so_far {
                    return Err(damaged(begun, "a group has another number of rows"));
                }
                Ok(Item::GroupEnd(end))
            }
            (END, None) if self.groups_left == 0 && payload.is_empty() => {
                if fill(&mut self.file, &mut [0])? {
                    return Err(damaged(self.offset, "there is something behind its end"));
                }
                self.has_ended = true;
                Ok(Item::End)
            }
            _ => Err(damaged(begun, "this does not belong here")),
        }
    }

    fn frame(&mut self) -> Result<(u8, Bytes), BackupError> {
        let truncated = BackupError::Truncated { offset: self.offset };
        let mut head = [0; FRAME_HEAD_BYTES];
        if !fill(&mut self.file, &mut head)? {
            return Err(truncated);
        }
        let number = |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let len = number(1) as usize;
        if len > FRAME_BYTES_MAX {
            return Err(damaged(self.offset, "its length is beyond every bound"));
        }
        // Read and not reserved: a length from outside is no reason to take memory.
        let mut payload = Vec::new();
        let read = (&mut self.file).take(len as u64).read_to_end(&mut payload)?;
        if read < len {
            return Err(truncated);
        }
        let sum = checksum(self.sum, &head[..FRAME_SUM_AT], &payload);
        if sum != number(FRAME_SUM_AT) {
            return Err(damaged(self.offset, "its checksum does not match"));
        }
        self.sum = sum;
        self.offset += (FRAME_HEAD_BYTES + len) as u64;
        Ok((head[0], Bytes::from(payload)))
    }
}

fn checksum(before: u32, head: &[u8], payload: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c_append(before, head), payload)
}

fn damaged(offset: u64, what: &'static str) -> BackupError {
    BackupError::Damaged { offset, what }
}

fn form<T: DeserializeOwned>(begun: u64, payload: &[u8]) -> Result<T, BackupError> {
    let form = match payload.split_first() {
        Some((&FORM, body)) => postcard::take_from_bytes(body).ok(),
        _ => None,
    };
    let whole = form.and_then(|(form, rest)| rest.is_empty().then_some(form));
    whole.ok_or_else(|| damaged(begun, "it is of no known form"))
}

/// Reads a whole buffer. `false`: the file ends before.
fn fill(file: &mut impl Read, buffer: &mut [u8]) -> io::Result<bool> {
    match file.read_exact(buffer) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests;
