//! What is protected: a process that keeps lines and refuses a token lower than the highest it has seen.
//!
//! It speaks lines over TCP on loopback. `write TOKEN TEXT` is answered `ok`, or `refused HIGHEST`; `lines` is answered
//! with everything that was written, separated by `; `. It prints `listening ADDR` first.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use crate::exit::Failure;

/// Bytes of a line.
const LINE_BYTES_MAX: u64 = 1_024;
/// Lines that are kept.
const LINES_MAX: usize = 1_000;
/// How long a line of a client is waited for, so that a client that hangs does not hold up the others.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Default)]
struct Resource {
    highest: u64,
    lines: Vec<String>,
}

/// Serves until the process is ended.
///
/// # Errors
/// It cannot listen.
pub(super) fn serve() -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::failed(format!("the resource cannot serve: {error}"), "report it");
    let listener = TcpListener::bind(("127.0.0.1", 0)).map_err(failed)?;
    println!("listening {}", listener.local_addr().map_err(failed)?);
    let mut resource = Resource::default();
    loop {
        let (client, _) = listener.accept().map_err(failed)?;
        // One request a connection; one that breaks is the client's affair.
        let _ = resource.answer(client);
    }
}

impl Resource {
    fn answer(&mut self, mut client: TcpStream) -> std::io::Result<()> {
        client.set_read_timeout(Some(PATIENCE))?;
        let mut line = String::new();
        BufReader::new((&client).take(LINE_BYTES_MAX)).read_line(&mut line)?;
        let answer = self.answer_to(line.trim_end());
        writeln!(client, "{answer}")
    }

    fn answer_to(&mut self, line: &str) -> String {
        if line == "lines" {
            return self.lines.join("; ");
        }
        let write = line.strip_prefix("write ").and_then(|rest| rest.split_once(' '));
        let Some((token, text)) = write.and_then(|(token, text)| Some((token.parse().ok()?, text))) else {
            return "not understood".to_owned();
        };
        if token < self.highest {
            return format!("refused {}", self.highest);
        }
        if self.lines.len() >= LINES_MAX {
            return "full".to_owned();
        }
        self.highest = token;
        self.lines.push(text.to_owned());
        "ok".to_owned()
    }
}

/// Sends one line to the resource at this address and returns its answer.
///
/// # Errors
/// It cannot be reached or does not answer.
pub(super) fn ask(address: &str, line: &str) -> std::io::Result<String> {
    let mut resource = TcpStream::connect(address)?;
    resource.set_read_timeout(Some(PATIENCE))?;
    writeln!(resource, "{line}")?;
    let mut answer = String::new();
    BufReader::new(resource.take(LINE_BYTES_MAX * LINES_MAX as u64)).read_line(&mut answer)?;
    Ok(answer.trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::Resource;

    #[test]
    fn a_token_lower_than_the_highest_is_refused() {
        let mut resource = Resource::default();
        for (line, answer) in [
            ("write 3 old", "ok"),
            ("write 3 old again", "ok"),
            ("write 5 new", "ok"),
            ("write 3 late", "refused 5"),
            ("write 5 new again", "ok"),
            ("write x y", "not understood"),
            ("write 5", "not understood"),
            ("", "not understood"),
            ("lines", "old; old again; new; new again"),
        ] {
            assert_eq!(resource.answer_to(line), answer, "{line}");
        }
    }
}
