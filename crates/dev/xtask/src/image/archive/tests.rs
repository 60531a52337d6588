//! Archives as the system's own program reads them.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;

#[test]
fn tar_lists_what_was_added() {
    let mut archive = Archive::default();
    archive.add(Entry::folder("data/", 0o700).owned_by(65_532));
    archive.add(Entry::folder("tmp/", 0o1777));
    archive.add(Entry::file("data/one", 0o755, &[7; 513]));
    archive.add(Entry::file("data/none", 0o644, &[]));
    let bytes = archive.finish();
    assert_eq!(bytes.len() % BLOCK, 0);
    let mut tar = Command::new("tar")
        .args(["--list", "--verbose", "--numeric-owner", "--utc", "--file", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    // It is less than a pipe holds.
    tar.stdin.take().unwrap().write_all(&bytes).unwrap();
    let output = tar.wait_with_output().unwrap();
    assert!(output.status.success());
    let text = String::from_utf8(output.stdout).unwrap();
    let lines: Vec<String> = text
        .lines()
        .map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "))
        .collect();
    let expected = [
        "drwx------ 65532/65532 0 1970-01-01 00:00 data/",
        "drwxrwxrwt 0/0 0 1970-01-01 00:00 tmp/",
        "-rwxr-xr-x 0/0 513 1970-01-01 00:00 data/one",
        "-rw-r--r-- 0/0 0 1970-01-01 00:00 data/none",
    ];
    assert_eq!(lines, expected);
}
