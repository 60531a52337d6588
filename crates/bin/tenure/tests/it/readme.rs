//! The README says what happens: its console blocks are run from top to bottom in one shell against one node, and what
//! they print is compared with what stands there.
//!
//! A line that begins with `$ ` is a command, one with `> ` behind it goes on with it, and what follows is its output on
//! both channels. From four blanks and a `#` on a line is a remark. Numbers of two and more digits are not compared, since
//! times and most revisions differ. Blocks that are marked `console stopped` are run when the node has stopped.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};

use rustix::process::Signal;

use crate::binary::{self, Server, folder};

const README: &str = "../../../README.md";
/// What stands between the outputs of two commands.
const MARK: &str = "--- the next command ---";

/// A command of a block, and what it prints.
#[derive(Debug)]
struct Step {
    command: String,
    output: Vec<String>,
}

/// The steps of all blocks with this mark.
fn steps(page: &str, mark: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match line.strip_prefix("```") {
            Some(info) => {
                inside = !inside && info == mark;
                continue;
            }
            None if !inside => continue,
            None => {}
        }
        let shown = line.split("    #").next().unwrap_or(line).trim_end();
        if let Some(command) = shown.strip_prefix("$ ") {
            steps.push(Step {
                command: command.to_owned(),
                output: Vec::new(),
            });
            continue;
        }
        let step = steps.last_mut().expect("a block begins with a command");
        match shown.strip_prefix("> ").filter(|_| step.output.is_empty()) {
            Some(more) => {
                step.command.push('\n');
                step.command.push_str(more);
            }
            None => step.output.push(shown.to_owned()),
        }
    }
    steps
}

/// Numbers of two and more digits become `N`.
fn without_numbers(line: &str) -> String {
    let mut text = String::new();
    let mut digits = String::new();
    for character in line.chars().chain(['\0']) {
        if character.is_ascii_digit() {
            digits.push(character);
            continue;
        }
        text.push_str(if digits.len() > 1 { "N" } else { &digits });
        digits.clear();
        text.push(character);
    }
    text.trim_end_matches('\0').to_owned()
}

/// Runs the steps in one shell and compares.
fn run(steps: &[Step], folder: &Path, endpoint: &str) {
    let mut script = String::new();
    for step in steps {
        script.push_str(&format!("{}\necho '{MARK}'\n", step.command));
    }
    let path = format!("{}:{}", folder.join("bin").display(), std::env::var("PATH").unwrap());
    let shell = Command::new("bash")
        .args(["-c", &format!("exec 2>&1\n{script}")])
        .current_dir(folder)
        .env("PATH", path)
        .env("TENURE_ENDPOINTS", endpoint)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let printed = String::from_utf8(shell.stdout).unwrap();
    let outputs: Vec<&str> = printed.split(&format!("{MARK}\n")).collect();
    assert_eq!(outputs.len(), steps.len() + 1, "{printed}");
    for (step, output) in steps.iter().zip(outputs) {
        let is: Vec<String> = output.lines().map(without_numbers).collect();
        let was: Vec<String> = step.output.iter().map(|line| without_numbers(line)).collect();
        assert_eq!(is, was, "$ {}\n{output}\nall of it:\n{printed}", step.command);
    }
}

#[test]
fn every_command_of_the_readme_does_what_stands_there() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(README)).unwrap();
    let (serving, stopped) = (steps(&page, "console"), steps(&page, "console stopped"));
    assert!(serving.len() > 20 && !stopped.is_empty(), "{serving:?}");
    // Nothing that can be run stands elsewhere.
    let commands = page.lines().filter(|line| line.starts_with("$ ")).count();
    assert_eq!(serving.len() + stopped.len(), commands);

    let (temporary, _) = folder();
    let place = temporary.path();
    fs::create_dir(place.join("bin")).unwrap();
    symlink(binary::command().get_program(), place.join("bin/tenure")).unwrap();
    let server = Server::dev(&place.join("tenure-data"));
    run(&serving, place, &server.address);
    let (status, ..) = server.stop(Signal::TERM);
    assert_eq!(status, Some(0));
    run(&stopped, place, "127.0.0.1:1");
}
