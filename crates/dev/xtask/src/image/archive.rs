//! Tar files as POSIX has them (`ustar`), with no time and only the owners that are said.

/// Everything in a tar file comes in pieces of this length.
const BLOCK: usize = 512;

/// A tar file that grows.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
}

impl Archive {
    /// Adds a file or a folder; parents come first.
    pub(super) fn add(&mut self, entry: Entry<'_>) {
        self.bytes.extend(entry.header());
        self.bytes.extend_from_slice(entry.content);
        self.bytes.resize(self.bytes.len().next_multiple_of(BLOCK), 0);
    }

    /// The whole file: two empty blocks are its end.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.bytes.resize(self.bytes.len() + 2 * BLOCK, 0);
        self.bytes
    }
}

/// A file or a folder, owned by root.
pub(super) struct Entry<'a> {
    name: &'a str,
    mode: u32,
    owner: u32,
    kind: u8,
    content: &'a [u8],
}

impl<'a> Entry<'a> {
    /// A file. The name has at most 100 bytes.
    pub(super) fn file(name: &'a str, mode: u32, content: &'a [u8]) -> Entry<'a> {
        Entry {
            name,
            mode,
            owner: 0,
            kind: b'0',
            content,
        }
    }

    /// A folder, whose name ends with a slash.
    pub(super) fn folder(name: &'a str, mode: u32) -> Entry<'a> {
        Entry {
            name,
            mode,
            owner: 0,
            kind: b'5',
            content: &[],
        }
    }

    /// The same, of this user and group.
    pub(super) fn owned_by(self, owner: u32) -> Entry<'a> {
        Entry { owner, ..self }
    }

    fn header(&self) -> [u8; BLOCK] {
        let mut header = [0; BLOCK];
        let mut put = |at: usize, bytes: &[u8]| header[at..at + bytes.len()].copy_from_slice(bytes);
        assert!(self.name.len() <= 100, "names in our archives are short");
        put(0, self.name.as_bytes());
        put(100, format!("{:07o}", self.mode).as_bytes());
        put(108, format!("{:07o}", self.owner).as_bytes());
        put(116, format!("{:07o}", self.owner).as_bytes());
        // Eleven digits: up to 8 GiB, which no program of ours reaches.
        put(124, format!("{:011o}", self.content.len()).as_bytes());
        put(136, b"00000000000");
        // The sum is counted with spaces in its place.
        put(148, b"        ");
        put(156, &[self.kind]);
        put(257, b"ustar\x0000");
        let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
        header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
        header
    }
}

#[cfg(test)]
mod tests;
