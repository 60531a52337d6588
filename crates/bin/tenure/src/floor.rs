//! Where revisions begin in a cluster that is restored or recovered, of whose past not all is known: the one place where a
//! wall clock is read.

use crate::exit::Failure;

/// The beginning of 2025, in seconds since 1970.
const YEAR_2025_UNIX_SECS: u64 = 1_735_689_600;
/// Revisions of a second: more than a cluster hands out in one.
const REVISIONS_OF_A_SECOND: u64 = 1 << 32;

/// The floor that was asked for, or else what the clock says: later lies above earlier.
///
/// # Errors
/// The clock stands before 2025, or too far behind it.
pub(crate) fn revision_floor(asked: Option<u64>, now_unix_secs: u64) -> Result<u64, Failure> {
    if let Some(floor) = asked {
        return Ok(floor);
    }
    let floor = now_unix_secs
        .checked_sub(YEAR_2025_UNIX_SECS)
        .and_then(|since| since.checked_mul(REVISIONS_OF_A_SECOND));
    floor.filter(|floor| *floor > 0).ok_or_else(|| {
        Failure::settings(
            "this machine's clock does not stand in a year that revisions can be made from",
            "set it, or name a floor with --revision-floor",
        )
    })
}

#[cfg(test)]
mod tests;
