//! Files that a program writes. They are committed, so that nobody needs the generators to build.

use crate::failure::Failure;
use crate::repository::Repository;
use crate::steps;

pub(crate) const HELP: &str = "\
Usage: cargo xtask generate [--check]

Writes every generated file anew. With --check nothing is written: it fails if a file would change.";

/// A crate whose own program writes its generated files.
struct Generator {
    package: &'static str,
    manifest: &'static str,
    binary: &'static str,
}

const GENERATORS: &[Generator] = &[Generator {
    package: "tenure-api",
    manifest: "crates/tenure-api/Cargo.toml",
    binary: "tenure-api-codegen",
}];

pub(crate) fn run(repository: &Repository, arguments: &[String]) -> Result<(), Failure> {
    let is_check = match arguments {
        [] => false,
        [argument] if argument == "--check" => true,
        _ => {
            return Err(Failure::Usage(format!(
                "`generate` takes --check or nothing, not {arguments:?}"
            )));
        }
    };
    for generator in GENERATORS {
        let manifest = repository.read(generator.manifest)?;
        if !manifest.lines().any(|line| line.trim_start().starts_with("codegen")) {
            eprintln!("    {} generates nothing", generator.package);
            continue;
        }
        let mut command = steps::cargo(repository);
        command.args(["run", "--profile", "ci", "--quiet", "--package", generator.package]);
        command.args(["--features", "codegen", "--bin", generator.binary, "--"]);
        if is_check {
            command.arg("--check");
        }
        steps::run(&mut command)?;
    }
    Ok(())
}
