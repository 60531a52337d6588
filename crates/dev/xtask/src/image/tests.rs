//! What is in an image, and what the command line may say.

use super::*;

fn options(words: &[&str]) -> Result<Options, Failure> {
    parse(&words.iter().map(|word| word.to_string()).collect::<Vec<_>>())
}

#[test]
fn options_are_read_and_others_refused() {
    let plain = options(&[]).unwrap();
    assert_eq!((plain.profile.as_str(), plain.tag.as_str()), ("dist", "tenure:latest"));
    let said = options(&["--profile", "ci", "--tag", "mine"]).unwrap();
    assert_eq!((said.profile.as_str(), said.tag.as_str()), ("ci", "mine:latest"));
    for words in [&["--profile"][..], &["--tag", ""], &["--push"]] {
        assert_eq!(options(words).expect_err("it is refused").exit_code(), 2, "{words:?}");
    }
}

#[test]
fn the_same_binary_gives_the_same_image() {
    let make = || image("tenure:latest", &layer(b"program"), &config("amd64", "0a"), "0b");
    assert_eq!(make(), make());
}

#[test]
fn the_manifest_names_the_config_and_the_layer() {
    let bytes = image("tenure:1", &layer(b"program"), &config("amd64", "0a"), "0b");
    let text = String::from_utf8_lossy(&bytes);
    assert!(text.contains(r#"[{"Config":"0b.json","Layers":["layer.tar"],"RepoTags":["tenure:1"]}]"#));
    assert!(text.contains(r#""diff_ids":["sha256:0a"]"#));
    assert!(text.contains(r#""User":"65532:65532""#));
}

#[test]
fn a_digest_is_the_known_one() {
    let folder = std::env::temp_dir().join(format!("xtask-digest-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let digest = sha256(&folder, b"abc").unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(
        digest,
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    );
}
