//! Columns of text.

use super::escaped;

/// What stands between two columns.
const GAP: usize = 2;

/// A table with a line of titles. Nothing stands to the right of the last column, and every row is one line.
pub(crate) fn table<const N: usize>(titles: [&str; N], rows: impl Iterator<Item = [String; N]>) -> String {
    let mut lines = vec![titles.map(str::to_owned)];
    lines.extend(rows.map(|row| row.map(|cell| escaped(cell.as_bytes()))));
    let mut widths = [0; N];
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut text = String::new();
    for line in lines {
        let mut row = String::new();
        for (width, cell) in widths.into_iter().zip(line) {
            row.push_str(&cell);
            row.extend(std::iter::repeat_n(' ', width + GAP - cell.chars().count()));
        }
        text.push_str(row.trim_end());
        text.push('\n');
    }
    text
}

/// Names and what belongs to them, one pair a line, without the newline at the end.
pub(crate) fn fields(pairs: &[(&str, String)]) -> String {
    let width = pairs.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines: Vec<String> = pairs
        .iter()
        .map(|(name, value)| format!("{name:width$}  {}", escaped(value.as_bytes())))
        .collect();
    lines.join("\n")
}
