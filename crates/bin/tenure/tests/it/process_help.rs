//! Help, version and completions.

use crate::binary;
use crate::transcript::Transcript;

const COMMANDS: &[&str] = &[
    "",
    "dev",
    "start",
    "demo",
    "inspect",
    "backup",
    "restore",
    "recover",
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
    "counter add",
    "counter get",
    "stream",
    "stream create",
    "stream ls",
    "stream info",
    "stream rm",
    "stream trim",
    "stream publish",
    "stream read",
    "txn",
    "session",
    "session open",
    "session renew",
    "session keep",
    "session close",
    "session show",
    "session ls",
    "tenant ls",
    "namespace ls",
    "cluster status",
    "cluster nodes",
    "cluster groups",
    "cluster transfer-leader",
    "cluster drain",
    "cluster remove",
    "bench",
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
        // Whatever the environment sets, and without what is no command for people.
        let mut set = binary::command();
        let ran = binary::run(set.args(words).env("TENURE_ENDPOINTS", "127.0.0.1:1"), b"");
        assert_eq!((ran.status, ran.text()), (2, ""), "{ran:?}");
        assert!(!ran.stderr.contains("-part"), "{ran:?}");
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
