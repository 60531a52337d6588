//! Whether a program needs anything of the system to start.

/// A program header of this kind names the loader, which loads the libraries.
const INTERPRETER: u32 = 3;
/// A program has a few; the field holds no more anyway.
const HEADER_LENGTH_MIN: usize = 56;

/// Whether these are the bytes of a 64-bit program for Linux that asks for no loader.
pub(super) fn is_static(program: &[u8]) -> bool {
    needs_loader(program) == Some(false)
}

/// `None` if it is no such program.
fn needs_loader(program: &[u8]) -> Option<bool> {
    // 64 bits, and numbers with the low byte first.
    if !program.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let offset = usize::try_from(u64::from_le_bytes(*program.get(32..)?.first_chunk()?)).ok()?;
    let length = usize::from(u16::from_le_bytes(*program.get(54..)?.first_chunk()?));
    let count = usize::from(u16::from_le_bytes(*program.get(56..)?.first_chunk()?));
    if length < HEADER_LENGTH_MIN {
        return None;
    }
    for number in 0..count {
        let header = program.get(offset.checked_add(number * length)?..)?;
        if u32::from_le_bytes(*header.first_chunk()?) == INTERPRETER {
            return Some(true);
        }
    }
    Some(false)
}

#[cfg(test)]
mod tests;
