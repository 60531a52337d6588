//! Whole-output snapshots: commands with everything that they wrote, compared with a file in the snapshots' folder.
//!
//! What differs from run to run is replaced: ports, secrets, folders, times left. Revisions do not differ, since each
//! transcript begins with a fresh server. With `UPDATE_SNAPSHOTS` set the files are written anew instead.

use std::path::Path;

use crate::binary::{self, Ran, Server};

/// Commands and what they wrote.
pub(crate) struct Transcript<'a> {
    server: Option<&'a Server>,
    json: bool,
    text: String,
    /// What is replaced, and by what.
    names: Vec<(String, String)>,
}

impl<'a> Transcript<'a> {
    /// A transcript of commands for a server, in text or in JSON.
    pub(crate) fn new(server: Option<&'a Server>, json: bool) -> Transcript<'a> {
        Transcript {
            server,
            json,
            text: String::new(),
            names: Vec::new(),
        }
    }

    /// Shows this text under a name.
    pub(crate) fn name(&mut self, text: impl Into<String>, name: &str) {
        self.names.push((text.into(), name.to_owned()));
    }

    /// Runs a command whose words have no blanks.
    pub(crate) fn run(&mut self, words: &str) -> Ran {
        self.run_with(&words.split_whitespace().collect::<Vec<_>>(), b"")
    }

    /// Runs a command with something on its standard input.
    pub(crate) fn run_with(&mut self, words: &[&str], input: &[u8]) -> Ran {
        let mut command = match self.server {
            Some(server) => server.command(words),
            None => binary::command(),
        };
        if self.server.is_none() {
            command.args(words);
        }
        if self.json {
            command.args(["--output", "json"]);
        }
        let ran = binary::run(&mut command, input);
        self.note(words, input, &ran);
        ran
    }

    /// Writes down a command that has been run.
    fn note(&mut self, words: &[&str], input: &[u8], ran: &Ran) {
        let shown: Vec<String> = words.iter().map(|word| quoted(word)).collect();
        let mut text = format!("$ tenure {}\n", shown.join(" "));
        for line in String::from_utf8_lossy(input).lines() {
            text.push_str(&format!("< {line}\n"));
        }
        for line in ran.text().lines() {
            text.push_str(&format!("{line}\n"));
        }
        for line in ran.stderr.lines() {
            text.push_str(&format!("! {line}\n"));
        }
        if ran.status != 0 {
            text.push_str(&format!("[exit {}]\n", ran.status));
        }
        for (given, name) in &self.names {
            text = text.replace(given, name);
        }
        for line in text.lines() {
            self.text.push_str(&format!("{}\n", normalised(line)));
        }
        self.text.push('\n');
    }

    /// Compares with the file of this name.
    pub(crate) fn check(self, name: &str) {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/snapshots")
            .join(format!("{name}.txt"));
        let text = format!("{}\n", self.text.trim_end());
        if std::env::var_os("UPDATE_SNAPSHOTS").is_some() {
            std::fs::write(&path, &text).expect("the snapshot can be written");
        }
        let expected = std::fs::read_to_string(&path).unwrap_or_default();
        if text == expected {
            return;
        }
        let differs = text.lines().zip(expected.lines()).position(|(is, was)| is != was);
        let line = differs.unwrap_or_else(|| text.lines().count().min(expected.lines().count()));
        panic!(
            "{} differs from line {}; if that is meant, run with UPDATE_SNAPSHOTS=1\nwas {:?}\nis  {:?}\n\n{text}",
            path.display(),
            line + 1,
            expected.lines().nth(line),
            text.lines().nth(line),
        );
    }
}

/// A word as one would type it.
fn quoted(word: &str) -> String {
    if !word.is_empty()
        && word
            .bytes()
            .all(|byte| byte.is_ascii_graphic() && byte != b'\'' && byte != b'\\')
    {
        word.to_owned()
    } else {
        format!("'{}'", word.escape_debug())
    }
}

/// A line without what differs from run to run.
fn normalised(line: &str) -> String {
    let mut text = line.replace(env!("CARGO_PKG_VERSION"), "VERSION");
    text = replace_after(&text, "127.0.0.1:", |c| c.is_ascii_digit(), "PORT");
    text = replace_runs_of_hexadecimal(&text);
    for field in ["\"ttl_ms\":", "\"remaining_ms\":"] {
        text = replace_after(&text, field, |c| c.is_ascii_digit(), "T");
    }
    text = replace_after(&text, "\"time_us\":\"", |c| c.is_ascii_digit(), "T");
    for field in ["\"term\":\"", "\"last_index\":\"", "\"applied_index\":\""] {
        text = replace_after(&text, field, |c| c.is_ascii_digit(), "N");
    }
    if let Some(at) = text.find(" ms left") {
        let digits = text[..at].bytes().rev().take_while(u8::is_ascii_digit).count();
        text.replace_range(at - digits..at, "T");
    }
    if line.starts_with("$ ") || line.starts_with("< ") {
        return text;
    }
    let is_group = text.ends_with(" runs");
    let mut words: Vec<&str> = text.split(' ').collect();
    for (column, word) in words.iter_mut().filter(|word| !word.is_empty()).enumerate() {
        // How far the log of a group has come, which its leader decides.
        if is_group && (2..5).contains(&column) {
            *word = "N";
        } else if is_length_of_time(word) {
            *word = "T";
        }
    }
    let replaced = words.join(" ");
    if replaced == text { text } else { narrowed(&replaced) }
}

/// A line whose columns do not depend on the widths of what was replaced.
fn narrowed(line: &str) -> String {
    let mut narrow = line.to_owned();
    while narrow.contains("   ") {
        narrow = narrow.replace("   ", "  ");
    }
    narrow
}

/// Whether a word is a length of time as it is shown to people.
fn is_length_of_time(word: &str) -> bool {
    let number = word
        .strip_suffix("ms")
        .or_else(|| word.strip_suffix('s'))
        .unwrap_or_default();
    number.starts_with(|c: char| c.is_ascii_digit()) && number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
}

/// Replaces what follows a mark, as long as it is made of such characters.
fn replace_after(text: &str, mark: &str, belongs: impl Fn(char) -> bool, name: &str) -> String {
    let mut parts = text.split(mark);
    let mut replaced = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let rest = part.trim_start_matches(&belongs);
        replaced.push_str(mark);
        replaced.push_str(if rest.len() < part.len() { name } else { "" });
        replaced.push_str(rest);
    }
    replaced
}

/// Replaces secrets and ids of clusters, which are 32 hexadecimal digits.
fn replace_runs_of_hexadecimal(text: &str) -> String {
    let mut replaced = String::new();
    let mut rest = text;
    while !rest.is_empty() {
        let is_digit = |c: char| c.is_ascii_hexdigit();
        let run = rest.find(|c| !is_digit(c)).unwrap_or(rest.len());
        replaced.push_str(if run == 32 { "HEX" } else { &rest[..run] });
        let end = rest[run..].find(is_digit).map_or(rest.len(), |at| run + at);
        replaced.push_str(&rest[run..end]);
        rest = &rest[end..];
    }
    replaced
}
