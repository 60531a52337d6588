//! Help, version and completions.

use crate::binary;
use crate::transcript::Transcript;

const COMMANDS: &[&str] = &[
    "",
    "dev",
    "start",
    "cache",
    "cache create",
    "cache ls",
    "cache info",
    "cache rm",
    "cache put",
    "cache touch",
    "cache get",
    "cache delete",
    "cache ls-keys",
    "cache watch",
    "session",
    "session open",
    "session renew",
    "session close",
    "session show",
    "session ls",
    "tenant ls",
    "namespace ls",
    "cluster status",
    "completions",
];

#[test]
fn every_command_explains_itself() {
    let mut transcript = Transcript::new(None, false);
    transcript.run("--version");
    for command in COMMANDS {
        let ran = transcript.run(&format!("{command} --help"));
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{command}");
    }
    transcript.check("help");
}

#[test]
fn without_a_command_help_goes_to_standard_error() {
    for words in [&[][..], &["cache"], &["session"]] {
        let ran = binary::run(binary::command().args(words), b"");
        assert_eq!(ran.status, 2, "{ran:?}");
        assert_eq!(ran.text(), "");
        assert!(ran.stderr.contains("Usage: tenure"), "{ran:?}");
    }
}

#[test]
fn every_shell_gets_its_completions() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ran = binary::run(binary::command().args(["completions", shell]), b"");
        assert_eq!((ran.status, ran.stderr.as_str()), (0, ""), "{shell}");
        assert!(ran.text().contains("ls-keys"), "{shell}");
    }
    let ran = binary::run(binary::command().args(["completions", "bash"]), b"");
    assert!(ran.text().contains("complete -F _tenure"), "{ran:?}");
}
