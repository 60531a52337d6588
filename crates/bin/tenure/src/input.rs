//! Standard input, for what is not given as an argument.

use std::io::{self, StdinLock};
use std::os::unix::fs::MetadataExt as _;

use rustix::fs::{OFlags, fcntl_getfl, fstat};

use crate::exit::Failure;

/// Standard input, unless whoever started this closed it: then nothing was given, which is not the same as giving
/// something empty.
///
/// # Errors
/// It is closed.
pub(crate) fn open(wanted: &str) -> Result<StdinLock<'static>, Failure> {
    if is_closed() {
        return Err(Failure::settings(
            format!("{wanted} is missing, and standard input is closed"),
            "give it as an argument, or by standard input",
        ));
    }
    Ok(io::stdin().lock())
}

/// A program's first three descriptors are opened before it begins if they were closed: on the null device, for reading
/// and writing. Who redirects from that device opens it for reading only.
fn is_closed() -> bool {
    let stdin = io::stdin();
    let null = std::fs::metadata("/dev/null").map(|metadata| metadata.rdev());
    let (Ok(flags), Ok(status), Ok(null)) = (fcntl_getfl(&stdin), fstat(&stdin), null) else {
        return true;
    };
    status.st_rdev == null && flags.contains(OFlags::RDWR)
}
