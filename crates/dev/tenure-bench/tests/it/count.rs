//! Counting instructions: this program once more, under valgrind.

use std::process::Command;

use super::COUNTED;
use crate::paths::Path;

/// How many instructions one operation of a path takes.
///
/// # Errors
/// Valgrind is not installed, or the path failed.
pub(crate) fn instructions(path: &Path) -> Result<u64, String> {
    let whole = run(path.name, path.operations)?;
    let start = run(path.name, 0)?;
    Ok(whole.saturating_sub(start) / path.operations)
}

fn run(name: &str, operations: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| format!("this program is nowhere: {error}"))?;
    let mut command = Command::new("valgrind");
    command
        .args(["--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"])
        .arg(program)
        .args([COUNTED, name, &operations.to_string()]);
    let output = command
        .output()
        .map_err(|error| format!("valgrind cannot be started: install it, or run `cargo xtask test`: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("{name} under valgrind: {}\n{said}", output.status));
    }
    counted(&said).ok_or_else(|| format!("valgrind counted nothing:\n{said}"))
}

/// Reads `==123== I   refs:      1,234,567`.
fn counted(said: &str) -> Option<u64> {
    let line = said.lines().find(|line| line.contains("refs:"))?;
    let number = line.rsplit(' ').next()?;
    number.replace(',', "").parse().ok()
}
