//! The table of what was counted before.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// The table, from the folder of this crate.
const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/instructions.txt");
/// How far a count may be from the table, in per cent of it.
const TOLERANCE_PERCENT: u64 = 10;
/// How the table is written anew.
const UPDATE: &str = "cargo test --profile ci -p tenure-bench --test it -- --update";

/// Instructions an operation, by path.
pub(crate) struct Table(BTreeMap<String, u64>);

impl Table {
    pub(crate) fn read() -> Result<Table, String> {
        let text = std::fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
        let mut table = BTreeMap::new();
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let row = line.split_once(' ');
            let row = row.and_then(|(name, count)| Some((name.to_owned(), count.trim().parse().ok()?)));
            let (name, count) = row.ok_or_else(|| format!("{FILE}: this is no row: {line:?}"))?;
            table.insert(name, count);
        }
        Ok(Table(table))
    }

    pub(crate) fn write(counts: &[(&str, u64)]) -> Result<(), String> {
        let mut text = format!(
            "# Instructions for one operation of each path, in the profile `ci`. A test fails where a path is more than\n\
             # {TOLERANCE_PERCENT} % off. After a change that is meant, or with another compiler, write them anew:\n\
             # {UPDATE}\n"
        );
        for (name, count) in counts {
            writeln!(text, "{name} {count}").map_err(|error| error.to_string())?;
        }
        std::fs::write(FILE, text).map_err(|error| format!("{FILE}: {error}"))
    }

    /// Whether a count is what it was, more or less.
    pub(crate) fn compare(&self, name: &str, counted: u64) -> Result<(), String> {
        let Some(before) = self.0.get(name) else {
            return Err(format!("{name} is not in the table: {UPDATE}"));
        };
        if counted.abs_diff(*before) * 100 <= before * TOLERANCE_PERCENT {
            return Ok(());
        }
        let what = if counted > *before { "more expensive" } else { "cheaper" };
        Err(format!(
            "{name} has become {what}: {counted} instructions an operation, {before} before. If that is meant, or the \
             compiler is another: {UPDATE}"
        ))
    }
}
