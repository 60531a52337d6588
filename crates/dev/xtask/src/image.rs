//! The image: one static binary on nothing, as a file that `docker load` takes.
//!
//! It is written here and not by a daemon: two tar files with fixed times and owners, so that the same binary gives the
//! same image wherever it is made.

mod archive;
mod elf;

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;

use crate::failure::Failure;
use crate::repository::Repository;
use crate::{metadata, steps};
use archive::{Archive, Entry};

pub(crate) const HELP: &str = "\
Usage: cargo xtask image [--profile NAME] [--tag NAME:TAG]

Builds `tenure` as one static binary, in a target folder of its own, and writes target/image/tenure.tar: an image
with that binary as its entry point, an empty folder /data for volumes, and nothing else. Take it in with

  docker load --input target/image/tenure.tar

It needs no daemon and fetches no other image. Without more it is built with the profile dist and called
tenure:latest. compose.yaml runs three nodes of it.";

/// How it is built, and called, if nothing is said.
const PROFILE: &str = "dist";
const TAG: &str = "tenure:latest";
/// Links what the system has into the program: an empty image has nothing to load.
const FLAGS: &str = "-C target-feature=+crt-static";
/// Who runs in it: nobody whom a machine knows.
const USER: u32 = 65_532;
const EXECUTABLE: u32 = 0o755;
const OWN_FOLDER: u32 = 0o700;
const TEMPORARY: u32 = 0o1777;
const READABLE: u32 = 0o644;

/// What the command line says.
#[derive(Debug, PartialEq, Eq)]
struct Options {
    profile: String,
    tag: String,
}

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    let options = parse(arguments)?;
    let folder = PathBuf::from(metadata::members(repository, "")?.target_directory).join("image");
    let mut binary = Vec::new();
    steps::step("build", || {
        let built = build(repository, &options.profile, &folder)?;
        binary = std::fs::read(&built).map_err(|error| cannot("read", &built, &error))?;
        if elf::is_static(&binary) {
            return Ok(());
        }
        Err(Failure::Failed(format!("{} is no static program", built.display())))
    })?;
    let file = folder.join("tenure.tar");
    steps::step("image", || {
        let layer = layer(&binary);
        let config = config(architecture()?, &sha256(&folder, &layer)?);
        let image = image(&options.tag, &layer, &config, &sha256(&folder, config.as_bytes())?);
        std::fs::write(&file, image).map_err(|error| cannot("write", &file, &error))
    })?;
    println!("{}: docker load --input {}", options.tag, file.display());
    Ok(())
}

fn parse(arguments: &[String]) -> Result<Options, Failure> {
    let mut options = Options {
        profile: PROFILE.to_owned(),
        tag: TAG.to_owned(),
    };
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let place = match word.as_str() {
            "--profile" => &mut options.profile,
            "--tag" => &mut options.tag,
            _ => return Err(Failure::Usage(format!("`image` takes no argument {word:?}"))),
        };
        let value = words.next().filter(|value| !value.is_empty());
        *place = value
            .cloned()
            .ok_or_else(|| Failure::Usage(format!("{word} takes a name")))?;
    }
    // Without it docker would say `latest` itself, but only where it looks the name up.
    if !options.tag.contains(':') {
        options.tag.push_str(":latest");
    }
    Ok(options)
}

/// Builds the binary and takes away what only a debugger reads; returns where it is.
fn build(repository: &Repository, profile: &str, folder: &Path) -> Result<PathBuf, Failure> {
    // With a target named, the flags are for the program alone and not for build scripts and macros.
    let target = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    let mut command = steps::cargo(repository);
    command
        .args([
            "build",
            "--profile",
            profile,
            "--package",
            "tenure",
            "--target",
            &target,
        ])
        .arg("--target-dir")
        .arg(folder)
        .env("RUSTFLAGS", FLAGS);
    steps::run(&mut command)?;
    // The profile `dev` has a folder of another name.
    let profile = if profile == "dev" { "debug" } else { profile };
    let built = folder.join(target).join(profile).join("tenure");
    let stripped = folder.join("tenure");
    let mut strip = Command::new("strip");
    steps::run(strip.arg("--strip-debug").arg("-o").arg(&stripped).arg(built))?;
    Ok(stripped)
}

/// What the container sees.
fn layer(binary: &[u8]) -> Vec<u8> {
    let mut layer = Archive::default();
    layer.add(Entry::folder("bin/", EXECUTABLE));
    layer.add(Entry::file("bin/tenure", EXECUTABLE, binary));
    // A volume takes over the owner of the folder that it is mounted on.
    layer.add(Entry::folder("data/", OWN_FOLDER).owned_by(USER));
    layer.add(Entry::folder("tmp/", TEMPORARY));
    layer.finish()
}

/// How it runs, as JSON.
fn config(architecture: &str, layer_sha256: &str) -> String {
    let config = json!({
        "architecture": architecture,
        "os": "linux",
        "created": "1970-01-01T00:00:00Z",
        "config": {
            "User": format!("{USER}:{USER}"),
            "WorkingDir": "/data",
            "Entrypoint": ["/bin/tenure"],
            "Cmd": ["--help"],
            "ExposedPorts": { "7400/tcp": {} },
            "Volumes": { "/data": {} },
        },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{layer_sha256}")] },
        "history": [{ "created": "1970-01-01T00:00:00Z", "created_by": "cargo xtask image" }],
    });
    config.to_string()
}

/// The file that `docker load` takes.
fn image(tag: &str, layer: &[u8], config: &str, config_sha256: &str) -> Vec<u8> {
    let config_name = format!("{config_sha256}.json");
    let manifest = json!([{ "Config": config_name, "RepoTags": [tag], "Layers": ["layer.tar"] }]);
    let mut image = Archive::default();
    image.add(Entry::file("manifest.json", READABLE, manifest.to_string().as_bytes()));
    image.add(Entry::file(&config_name, READABLE, config.as_bytes()));
    image.add(Entry::file("layer.tar", READABLE, layer));
    image.finish()
}

/// What images call the machine that this runs on.
fn architecture() -> Result<&'static str, Failure> {
    match std::env::consts::ARCH {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        other => Err(Failure::Failed(format!(
            "images are made for x86_64 and aarch64, this is {other}"
        ))),
    }
}

/// The digest in hexadecimal, by the system's own program.
fn sha256(folder: &Path, bytes: &[u8]) -> Result<String, Failure> {
    let file = folder.join("digest");
    std::fs::write(&file, bytes).map_err(|error| cannot("write", &file, &error))?;
    let text = steps::output(Command::new("sha256sum").arg("--binary").arg(&file))?;
    std::fs::remove_file(&file).map_err(|error| cannot("remove", &file, &error))?;
    let digest = text.split(' ').next().unwrap_or_default();
    if digest.len() == 64 && digest.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return Ok(digest.to_owned());
    }
    Err(Failure::Failed(format!("sha256sum printed no digest: {text:?}")))
}

fn cannot(what: &str, file: &Path, error: &std::io::Error) -> Failure {
    Failure::Failed(format!("cannot {what} {}: {error}", file.display()))
}

#[cfg(test)]
mod tests;
