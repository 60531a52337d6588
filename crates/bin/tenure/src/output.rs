//! Answers on standard output: text for people and pipes, one JSON object a line for programs.
//!
//! In JSON numbers that a double cannot hold are decimal strings ([`Decimal`]), and bytes that are not UTF-8 are
//! base64 under another name ([`Blob`]).

pub(crate) mod base64;
mod blob;
mod table;

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufWriter, StdoutLock, Write};

use clap::ValueEnum;
use serde::{Serialize, Serializer};

use crate::exit::Failure;

pub(crate) use blob::{Blob, MaybeBlob};
pub(crate) use table::{fields, table};

/// How answers look.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum Format {
    // With doc comments here the parser would print help four times as long.
    #[default]
    Text,
    Json,
}

impl Format {
    /// What arguments that could not be parsed ask for, as far as that can be seen.
    pub(crate) fn wanted_by(given: &[OsString]) -> Format {
        let json = |pair: &[OsString]| pair[0] == "--output" && pair[1] == "json";
        if given.iter().any(|word| word == "--output=json") || given.windows(2).any(json) {
            Format::Json
        } else {
            Format::Text
        }
    }
}

/// Something that can be answered in either format.
pub(crate) trait Answer: Serialize {
    /// The text, without the newline at its end.
    fn text(&self, line: &mut Vec<u8>);
}

/// Standard output. Each answer is written whole before the next call returns.
pub(crate) struct Output {
    format: Format,
    out: BufWriter<StdoutLock<'static>>,
}

impl Output {
    pub(crate) fn new(format: Format) -> Output {
        Output {
            format,
            out: BufWriter::new(io::stdout().lock()),
        }
    }

    /// Whether answers are JSON.
    pub(crate) fn is_json(&self) -> bool {
        self.format == Format::Json
    }

    /// Writes one answer.
    ///
    /// # Errors
    /// Nobody reads standard output any more, or it cannot be written.
    pub(crate) fn answer(&mut self, answer: &impl Answer) -> Result<(), Failure> {
        self.answers(std::slice::from_ref(answer))
    }

    /// Writes several answers, each on its line.
    ///
    /// # Errors
    /// Those of [`answer`](Output::answer).
    pub(crate) fn answers<T: Answer>(&mut self, answers: &[T]) -> Result<(), Failure> {
        for answer in answers {
            let mut line = Vec::new();
            match self.format {
                Format::Text => answer.text(&mut line),
                Format::Json => line = json(answer)?,
            }
            line.push(b'\n');
            self.out.write_all(&line)?;
        }
        self.out.flush()?;
        Ok(())
    }

    /// Writes rows: a table in text, an object for each in JSON.
    ///
    /// # Errors
    /// Those of [`answer`](Output::answer).
    pub(crate) fn rows<T: Serialize, const N: usize>(
        &mut self,
        titles: [&str; N],
        rows: &[T],
        cells: impl Fn(&T) -> [String; N],
    ) -> Result<(), Failure> {
        let mut lines = Vec::new();
        match self.format {
            Format::Text => lines = table(titles, rows.iter().map(cells)).into_bytes(),
            Format::Json => {
                for row in rows {
                    lines.append(&mut json(row)?);
                    lines.push(b'\n');
                }
            }
        }
        self.raw(&lines)
    }

    /// Writes bytes as they are.
    ///
    /// # Errors
    /// Those of [`answer`](Output::answer).
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.write_all(bytes)?;
        self.out.flush()?;
        Ok(())
    }
}

/// A number that may exceed what a double holds: a decimal string in JSON.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Decimal(pub(crate) u64);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for Decimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// The same for numbers that may be negative.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SignedDecimal(pub(crate) i64);

impl fmt::Display for SignedDecimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl Serialize for SignedDecimal {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

/// One JSON object on a line of its own, without the newline.
///
/// # Errors
/// It cannot be written as JSON, which is a defect of this program.
pub(crate) fn json(answer: &impl Serialize) -> Result<Vec<u8>, Failure> {
    serde_json::to_vec(answer)
        .map_err(|error| Failure::failed(format!("the answer cannot be written as JSON: {error}"), "report it"))
}

/// Bytes for a listing: readable, on one line, and different for different bytes. Control characters, backslashes and
/// bytes that are not UTF-8 are escaped.
pub(crate) fn escaped(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                control if control.is_ascii_control() => text.push_str(&format!("\\x{:02x}", u32::from(control))),
                control if is_unsafe_to_show(control) => text.push_str(&format!("\\u{{{:x}}}", u32::from(control))),
                other => text.push(other),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    text
}

/// Whether a character beyond ASCII moves the cursor, ends the line, or reorders what stands beside it.
fn is_unsafe_to_show(character: char) -> bool {
    character.is_control()
        || matches!(character, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{feff}')
}

#[cfg(test)]
mod tests;
