//! What we take from others: licences, sources, duplicates, and what must not be used.
//!
//! The rules stand in `deny.toml`, which `cargo deny` reads as well; it runs too where it is installed. No database
//! of advisories can be fetched here, so the list of versions with a known fault is kept by hand, in `bans.deny`.

mod licence;
mod version;

use std::collections::{BTreeMap, BTreeSet};

use crate::failure::Failure;
use crate::finding::{self, Finding};
use crate::metadata::{self, Package};
use crate::repository::Repository;
use crate::steps;
use crate::toml::{self, Value};
use version::Requirement;

const SETTINGS: &str = "deny.toml";

/// The one registry; what the lock file calls it.
const REGISTRY: &str = concat!("registry+https://github.com/rust-lang/crates", ".io-index");

/// Checks the dependencies of the product, and of the simulation where there is one.
pub(crate) fn run(repository: &Repository) -> Result<(), Failure> {
    let rules =
        Rules::read(&repository.read(SETTINGS)?).map_err(|error| Failure::Failed(format!("{SETTINGS}: {error}")))?;
    let mut findings = Vec::new();
    let mut packages = Vec::new();
    for folder in ["", "sim"] {
        let prefix = if folder.is_empty() {
            String::new()
        } else {
            format!("{folder}/")
        };
        if repository.has(&format!("{prefix}Cargo.toml")) {
            let found = metadata::everything(repository, folder, &rules.targets)?.packages;
            let lock = format!("{prefix}Cargo.lock");
            findings.extend(check(&rules, &lock, &found));
            packages.extend(found);
        }
    }
    for note in unused(&rules, &packages) {
        eprintln!("note: {SETTINGS}: {note}");
    }
    finding::report("audit", &findings)?;
    deny(repository)
}

/// Runs `cargo deny` where it is installed; without its database of advisories, which it would fetch.
fn deny(repository: &Repository) -> Result<(), Failure> {
    let mut probe = steps::cargo(repository);
    if !steps::succeeds(probe.args(["deny", "--version"])) {
        eprintln!("    cargo deny is not installed: its checks were done here");
        return Ok(());
    }
    let mut command = steps::cargo(repository);
    steps::run(command.args(["deny", "check", "bans", "licenses", "sources"]))
}

/// A crate, or some versions of it.
#[derive(Debug)]
struct Spec {
    name: String,
    requirement: Requirement,
    reason: String,
}

impl Spec {
    fn read(value: &Value) -> Result<Self, String> {
        let spec = value
            .get("crate")
            .and_then(Value::text)
            .ok_or("an entry without `crate`")?;
        let reason = value.get("reason").and_then(Value::text).unwrap_or_default();
        if reason.is_empty() {
            return Err(format!("`{spec}` has no reason"));
        }
        let (name, requirement) = spec.split_once('@').unwrap_or((spec, ""));
        let requirement = Requirement::read(requirement).map_err(|error| format!("`{spec}`: {error}"))?;
        Ok(Spec {
            name: name.to_owned(),
            requirement,
            reason: reason.to_owned(),
        })
    }

    fn covers(&self, package: &Package) -> bool {
        self.name == package.name && self.requirement.covers(&package.version)
    }
}

/// What `deny.toml` says.
#[derive(Debug)]
struct Rules {
    targets: Vec<String>,
    licences: Vec<String>,
    exceptions: BTreeMap<String, Vec<String>>,
    banned: Vec<Spec>,
    duplicates: Vec<Spec>,
}

impl Rules {
    fn read(text: &str) -> Result<Self, String> {
        let settings = toml::parse(text)?;
        let list = |section: &str, name: &str| -> Vec<Value> {
            let value = settings
                .get(section)
                .and_then(|section| section.get(name))
                .and_then(Value::list);
            value.unwrap_or_default().to_vec()
        };
        let texts = |values: &[Value]| -> Vec<String> {
            values
                .iter()
                .filter_map(|value| value.text().map(str::to_owned))
                .collect()
        };
        let mut exceptions = BTreeMap::new();
        for value in list("licenses", "exceptions") {
            let name = value
                .get("crate")
                .and_then(Value::text)
                .ok_or("an exception without `crate`")?;
            let allowed = value
                .get("allow")
                .and_then(Value::list)
                .ok_or("an exception without `allow`")?;
            exceptions.insert(name.to_owned(), texts(allowed));
        }
        Ok(Rules {
            targets: texts(&list("graph", "targets")),
            licences: texts(&list("licenses", "allow")),
            exceptions,
            banned: list("bans", "deny").iter().map(Spec::read).collect::<Result<_, _>>()?,
            duplicates: list("bans", "skip").iter().map(Spec::read).collect::<Result<_, _>>()?,
        })
    }
}

/// Every rule on every package of one lock file.
fn check(rules: &Rules, lock: &str, packages: &[Package]) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut versions: BTreeMap<&str, Vec<&Package>> = BTreeMap::new();
    for package in packages {
        versions.entry(&package.name).or_default().push(package);
        let called = format!("{} {}", package.name, package.version);
        match &package.source {
            None => {}
            Some(source) if source == REGISTRY => {}
            Some(source) => findings.push(Finding::file(lock, format!("{called} comes from {source}"))),
        }
        let allowed = |name: &str| {
            let exception = rules.exceptions.get(&package.name);
            rules
                .licences
                .iter()
                .chain(exception.into_iter().flatten())
                .any(|licence| licence == name)
        };
        match package
            .license
            .as_deref()
            .map(|licence| licence::satisfied(licence, &allowed))
        {
            Some(Ok(true)) => {}
            Some(Ok(false)) => {
                let licence = package.license.as_deref().unwrap_or_default();
                findings.push(Finding::file(
                    lock,
                    format!("{called} has a licence that is not allowed: {licence}"),
                ));
            }
            Some(Err(error)) => findings.push(Finding::file(lock, format!("{called}: {error}"))),
            None => findings.push(Finding::file(lock, format!("{called} names no licence"))),
        }
        for spec in rules.banned.iter().filter(|spec| spec.covers(package)) {
            findings.push(Finding::file(
                lock,
                format!("{called} must not be used: {}", spec.reason),
            ));
        }
    }
    for (name, found) in versions {
        // One version may stay without being named; every other one needs a reason.
        let unnamed: Vec<&str> = found
            .iter()
            .filter(|package| !rules.duplicates.iter().any(|spec| spec.covers(package)))
            .map(|package| package.version.as_str())
            .collect();
        if unnamed.len() > 1 {
            let message = format!(
                "{name} is there more than once: {}; name all but one in bans.skip",
                unnamed.join(", ")
            );
            findings.push(Finding::file(lock, message));
        }
    }
    findings
}

/// Rules that nothing needs any more.
fn unused(rules: &Rules, packages: &[Package]) -> Vec<String> {
    let mut notes = Vec::new();
    for spec in &rules.duplicates {
        if !packages.iter().any(|package| spec.covers(package)) {
            notes.push(format!(
                "bans.skip names {}, which nobody uses in that version",
                spec.name
            ));
        }
    }
    let mut named = BTreeSet::new();
    for package in packages {
        named.extend(licence::names(package.license.as_deref().unwrap_or_default()));
    }
    for licence in rules
        .licences
        .iter()
        .filter(|licence| !named.contains(licence.as_str()))
    {
        notes.push(format!("licenses.allow names {licence}, which nobody uses"));
    }
    notes
}

#[cfg(test)]
mod tests;
